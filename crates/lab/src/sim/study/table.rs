//! The table of results: one row for each trace, page size, policy and cache size.

use super::case::Case;
use crate::sim::references::ReferenceKey;
use larder_core::curve::estimate::Estimate;
use larder_core::replace::Counts;
use larder_report::table::{Cell, Column, Table};
use larder_schema::share;
use serde_json::{Value, json};

/// One result.
#[derive(Clone, Debug)]
pub struct Row {
    pub(super) trace: String,
    pub(super) policy: String,
    pub(super) pages: u64,
    pub(super) page_bytes: Option<u32>,
    pub(super) references: u64,
    pub(super) estimate: Estimate,
    pub(super) counts: Option<Counts>,
    /// Misses that no cache avoids.
    pub(super) compulsory: Option<u64>,
    /// Dirty pages that were written back.
    pub(super) write_backs: Option<u64>,
    pub(super) group: Option<String>,
}

impl Row {
    /// Returns the row of a simulated cache.
    pub(super) fn counted(case: &Case<'_>, policy: &str, capacity: u32, counts: Counts) -> Self {
        let references = counts.all().references;
        let ratio = share(counts.hits().references, references).unwrap_or_default();
        let exact = Estimate::exact(ratio);
        let row = Row::estimated(case, policy, capacity.into(), references, exact);
        Row { counts: Some(counts), ..row }
    }

    /// Returns the row of a point on a curve.
    pub(super) fn estimated(
        case: &Case<'_>,
        policy: &str,
        pages: u64,
        references: u64,
        estimate: Estimate,
    ) -> Self {
        Row {
            trace: case.name.clone(),
            policy: policy.to_owned(),
            pages,
            page_bytes: case.page_bytes(),
            references,
            estimate,
            counts: None,
            compulsory: None,
            write_backs: None,
            group: None,
        }
    }

    fn cells(&self) -> Vec<Cell> {
        let optional = |value: Option<u64>| Cell::count(value);
        let ratio = |part: fn(&Counts) -> (u64, u64)| {
            let (hits, all) = part(self.counts.as_ref()?);
            Some(Cell::percent(share(hits, all)?))
        };
        let ratio = |part| ratio(part).unwrap_or_else(Cell::missing);
        vec![
            Cell::word(&self.trace),
            Cell::word(&self.policy),
            self.page_bytes.map_or_else(Cell::missing, |bytes| {
                Cell::bytes(self.pages.saturating_mul(u64::from(bytes)))
            }),
            self.page_bytes.map_or_else(Cell::missing, |bytes| Cell::bytes(u64::from(bytes))),
            Cell::count(self.references),
            Cell::percent(self.estimate.hit_ratio),
            Cell::percent(self.estimate.low),
            Cell::percent(self.estimate.high),
            ratio(|c| (c.read_hits.references, c.read_hits.references + c.read_misses.references)),
            ratio(|c| {
                (c.write_hits.references, c.write_hits.references + c.write_misses.references)
            }),
            ratio(|c| (c.hits().bytes, c.all().bytes)),
            Cell::count(self.pages),
            optional(self.compulsory),
            optional(self.counts.map(|counts| counts.evictions)),
            optional(self.write_backs),
        ]
    }
}

/// Returns the first columns of all tables of simulations, in an order that CSV keeps; docs/sim.md
/// defines them. Text shows the hit ratio under the title `hits`.
pub(super) fn first_columns(hits: &str) -> [Column; 6] {
    [
        Column::words("trace", "trace"),
        Column::words("policy", "policy"),
        Column::numbers("size_bytes", "size"),
        Column::numbers("page_bytes", "page"),
        Column::numbers("references", "references"),
        Column::numbers("hit_ratio", hits),
    ]
}

/// Returns the columns of simulated replacement, in an order that CSV keeps.
fn columns() -> Vec<Column> {
    let others = [
        Column::numbers("hit_ratio_low", "from"),
        Column::numbers("hit_ratio_high", "to"),
        Column::numbers("read_hit_ratio", "read hits"),
        Column::numbers("write_hit_ratio", "write hits"),
        Column::numbers("byte_hit_ratio", "byte hits"),
        Column::numbers("size_pages", "pages"),
        Column::numbers("compulsory_misses", "compulsory"),
        Column::numbers("evictions", "evictions"),
        Column::numbers("write_backs", "write-backs"),
    ];
    first_columns("hits").into_iter().chain(others).collect()
}

/// Returns the table of all rows; with an additional column if they are of groups.
#[must_use]
pub fn from_rows(rows: &[Row], by: Option<ReferenceKey>) -> Table {
    let mut columns = columns();
    columns.extend(by.map(|by| Column::words(by.name(), by.name())));
    let mut table = Table::new("", columns);
    for row in rows {
        let group = by.map(|_| row.group.as_ref().map_or_else(Cell::missing, Cell::word));
        table.push(row.cells().into_iter().chain(group));
    }
    table
}

/// Returns the JSON object: schema, version, the table, and what the simulation leaves out.
#[must_use]
pub fn json(table: &Table, left_out: &[&str]) -> Value {
    let mut json = json!({ "schema": "larder-sim", "version": 1 });
    if !left_out.is_empty() {
        json["left_out"] = json!(left_out);
    }
    let Value::Object(parts) = table.to_json() else { return json };
    for (key, value) in parts {
        if key != "title" {
            json[key] = value;
        }
    }
    json
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn csv_begins_with_the_columns_that_others_rely_on() {
        let csv = from_rows(&[], None).to_csv();
        assert!(
            csv.starts_with("trace,policy,size_bytes,page_bytes,references,hit_ratio,"),
            "{csv}"
        );
        assert!(
            from_rows(&[], Some(ReferenceKey::Name(crate::trace::NameKind::File)))
                .to_csv()
                .ends_with(",file\n")
        );
        assert_eq!(json(&from_rows(&[], None), &[])["version"], 1);
    }
}
