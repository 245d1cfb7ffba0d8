//! The words and tables of a prediction of a server's work.

use crate::advise::page_size;
use crate::table::{Field, Table};
use larder_schema::format;
use larder_schema::sizing::{Effect, PageSize, ServerRun, Sizing};

/// Returns true if the hit ratios of the curve and of the effects are those of a server's reads.
pub(super) fn is_searched(sizing: &Sizing) -> bool {
    sizing.server.as_ref().is_some_and(|server| server.is_searched)
}

/// Returns the events whose share the hit ratios of the curve and of the effects are.
pub(super) fn counted(sizing: &Sizing) -> &'static str {
    if is_searched(sizing) { "page reads" } else { "references" }
}

/// Returns the title of these hit ratios.
pub(super) fn hits_title(sizing: &Sizing) -> &'static str {
    if is_searched(sizing) { "read hit ratio" } else { "hit ratio" }
}

/// Returns the sentence about the server of the prediction, and how the size was searched.
pub(super) fn description(sizing: &Sizing) -> Option<String> {
    let server = sizing.server.as_ref()?;
    let advice = sizing.recommendation.as_ref()?;
    let search = if server.is_searched {
        ""
    } else {
        " The size was chosen by replacement alone, without read-ahead, since the whole cache \
         takes longer to simulate; larder sim simulates other sizes."
    };
    Some(format!(
        "Predicted for a server with {}, pages of {}, {}, read-ahead and the store model {}, with \
         one request at a time.{search}",
        advice.policy,
        format::bytes(advice.page_bytes.into()),
        server.write_mode,
        server.store
    ))
}

/// A row of the tables.
struct Row {
    what: String,
    bytes: u64,
    /// The hit ratio of the curve at this size.
    hit_ratio: f64,
    run: ServerRun,
}

/// Returns the columns that both tables have.
fn work() -> [Field<Row>; 5] {
    [
        Field::percent("request_hit_ratio", "reads without waiting", |it: &Row| {
            it.run.request_hit_ratio
        }),
        Field::bytes("read_bytes", "read from the store", |it| it.run.read_bytes),
        Field::bytes("written_bytes", "written", |it| it.run.written_bytes),
        Field::duration("read_p99_ns", "read p99", |it| it.run.read_p99_ns),
        Field::duration("elapsed_ns", "time", |it| it.run.elapsed_ns),
    ]
}

/// Returns the work of a server at the sizes of the effects; `None` without a prediction of it.
pub(super) fn table(sizing: &Sizing) -> Option<Table> {
    let row = |effect: &Effect| {
        let Effect { what, point, server, .. } = effect;
        let run = (*server)?;
        let hit_ratio = if is_searched(sizing) { point.hit_ratio } else { run.read_hit_ratio };
        Some(Row { what: what.clone(), bytes: point.bytes, hit_ratio, run })
    };
    let rows: Vec<Row> = sizing.effects.iter().filter_map(row).collect();
    let hits = [
        Field::word("what", "", |it: &Row| &it.what),
        Field::bytes("bytes", "size", |it| it.bytes),
        Field::percent("read_hit_ratio", "read hits", |it| it.hit_ratio),
    ];
    (!rows.is_empty()).then(|| Table::of("", &rows, hits.into_iter().chain(work())))
}

/// Returns the work of a server by page size; `None` without a prediction of it.
pub(super) fn page_sizes_table(sizing: &Sizing) -> Option<Table> {
    if !page_size::of_server(&sizing.page_sizes) {
        return None;
    }
    let row = |size: &PageSize| {
        let (what, bytes, run) = (String::new(), size.page_bytes.into(), size.server?);
        Some(Row { what, bytes, hit_ratio: run.read_hit_ratio, run })
    };
    let rows: Vec<Row> = sizing.page_sizes.iter().filter_map(row).collect();
    let page = Field::bytes("page_bytes", "page", |it: &Row| it.bytes);
    Some(Table::of("", &rows, [page].into_iter().chain(work())))
}
