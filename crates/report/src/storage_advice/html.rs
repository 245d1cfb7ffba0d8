//! The page of advice on storage.

use super::{arrays_table, log, rate, rules, sentences, ties, unit_sentence, units_table, verdict};
use crate::chart::{Axis, Chart, Labels};
use crate::page::{self, Card, Head, all_rows, list, section};
use larder_schema::as_f64;
use larder_schema::format;
use larder_schema::storage_advice::{ArrayRow, StorageAdvice};

/// Height of the chart, in pixels.
const HEIGHT: f64 = 280.0;

/// Renders the page.
#[must_use]
pub fn to_html(advice: &StorageAdvice) -> String {
    let head = Head {
        kind: "larder advise".to_owned(),
        verdict: verdict(advice),
        cards: cards(advice),
        subject: log(advice).into_iter().chain(sentences(advice)).collect(),
    };
    let candidates =
        chart(advice) + &all_rows(&arrays_table(advice)) + &list(ties(advice).as_ref());
    let mut body = section("Candidates", &candidates);
    let rules = rules(advice);
    if !rules.is_empty() {
        body.push_str(&section("Published rules", &list(&rules)));
    }
    if !advice.units.is_empty() {
        let units = all_rows(&units_table(advice)) + &list(&[unit_sentence(advice)]);
        body.push_str(&section("Allocation unit", &units));
    }
    page::page(&head, &body, &advice.to_json())
}

fn cards(advice: &StorageAdvice) -> Vec<Card> {
    let Some(row) = advice.advised() else { return Vec::new() };
    let usable = row.usable_bytes.map_or_else(|| "-".to_owned(), format::bytes);
    vec![
        Card::new("Level", row.level.to_owned(), row.model.clone()),
        Card::new("Requests", rate(row.requests_per_s), format!("{} disks", row.disks)),
        Card::new(
            "Usable",
            usable,
            format!("survives {}", format::counted(row.failures_survived.into(), "failure")),
        ),
    ]
}

/// Returns the rates over the chunk, with a line for each level that has chunks.
fn chart(advice: &StorageAdvice) -> String {
    let x = Axis::new("chunk", "").labels(Labels::Bytes).scale(crate::chart::Scale::Log2);
    let mut chart = Chart::new("", x, Axis::new("requests/s", "").from_zero());
    let mut levels: Vec<&str> = Vec::new();
    for row in &advice.arrays {
        if row.chunk_bytes.is_some() && !levels.contains(&row.level) {
            levels.push(row.level);
        }
    }
    for level in &levels {
        let of_level = advice.arrays.iter().filter(|row| row.level == *level);
        let point = |row: &ArrayRow| Some((as_f64(row.chunk_bytes?), row.requests_per_s));
        let mut points: Vec<(f64, f64)> = of_level.filter_map(point).collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        chart.line((*level).to_owned(), points);
    }
    let description = format!("requests per second by chunk of {}", levels.join(", "));
    chart.to_figure(HEIGHT, &description, "", None).unwrap_or_default()
}
