//! HTML report of a comparison: the verdict on the main series, then all ratios in one chart.

use super::text::{format_change, table};
use crate::chart::Axis;
use crate::chart::plot::{Plot, count_f64};
use crate::page::{self, Card, Confidence, Head, details, figure, html_table, list, section};
use crate::quantity::quantity;
use crate::setting::{change_in_words, name_in_words, series_in_words};
use crate::table::{Field, Table};
use larder_schema::compare::{Comparison, SeriesComparison, Verdict};
use larder_schema::format;

/// Height of a row of the chart, in pixels.
const ROW: f64 = 44.0;

/// Renders the comparison.
#[must_use]
pub fn to_html(comparison: &Comparison) -> String {
    let what_b = comparison.what_b.as_ref().map(|what| format!("B: {what}."));
    let head = Head {
        kind: "larder compare".to_owned(),
        verdict: verdict(comparison),
        cards: cards(comparison),
        subject: vec![
            format!(
                "A of {}, B of {}: {}.",
                comparison.started_at.0, comparison.started_at.1, comparison.what
            ),
            what_b.unwrap_or_default(),
            other_conditions(comparison),
        ],
    };
    let caption = format!(
        "The ratio of a value of B to one of A: median and 95 % interval, as a difference. A \
         verdict needs the whole interval outside the gray band of {}.",
        format::percent(comparison.threshold)
    );
    let mut body = doubts(comparison);
    let chart = figure(|width| ratios(comparison, width), &caption, None);
    body.push_str(&section("Which series differ?", &(chart + &html_table(&table(comparison)))));
    body.push_str(&differences(comparison));
    for (title, series) in
        [("Series only in A", &comparison.only_a), ("Series only in B", &comparison.only_b)]
    {
        let names: Vec<String> = series.iter().map(|it| series_in_words(it)).collect();
        body.push_str(&details(title, &list(&names)));
    }
    page::page(&head, &body, &comparison.to_json())
}

/// Returns the answer: the verdict on the main series, which is the first.
fn verdict(comparison: &Comparison) -> String {
    let Some(main) = comparison.series.first() else { return "Nothing to compare".to_owned() };
    let change = main.ratio.map_or_else(|| "no ratio".to_owned(), format_change);
    let (name, values) = (series_in_words(&main.series), values(main));
    match main.verdict {
        Verdict::CannotTell => {
            format!("No verdict on {name}: {change}, {}", main.why)
        }
        verdict => format!("B is {}: {name} {change}, {values}", verdict.words()),
    }
}

/// Returns the medians of both runs.
fn values(series: &SeriesComparison) -> String {
    let value = |median| quantity(median, &series.unit);
    format!("{} in A, {} in B", value(series.median_a), value(series.median_b))
}

/// Returns the names of the conditions that differ, which may be the cause of a difference.
fn other_conditions(comparison: &Comparison) -> String {
    let names: Vec<String> =
        comparison.differences.iter().map(|it| name_in_words(&it.name)).collect();
    match names.len() {
        0 => String::new(),
        1..=4 => format!("The runs also differ in {}.", names.join(", ")),
        count => format!("The runs also differ in {count} conditions, listed below."),
    }
}

fn cards(comparison: &Comparison) -> Vec<Card> {
    let Some(main) = comparison.series.first() else { return Vec::new() };
    let values = |count| format!("median of {}", format::counted(count as u64, "value"));
    let range = main.ratio_low.zip(main.ratio_high).map_or_else(
        || "no interval".to_owned(),
        |(low, high)| format!("{} to {}", format_change(low), format_change(high)),
    );
    let doubts = comparison.doubts.0.len() + comparison.doubts.1.len();
    vec![
        Card::new("A", quantity(main.median_a, &main.unit), values(main.values.0)),
        Card::new("B", quantity(main.median_b, &main.unit), values(main.values.1)),
        Card::new("B against A", main.ratio.map_or_else(|| "-".to_owned(), format_change), range),
        Card::confidence(Confidence::of_doubts(doubts)),
    ]
}

fn doubts(comparison: &Comparison) -> String {
    let of = |name: &str, doubts: &[String]| -> Vec<String> {
        doubts.iter().map(|doubt| format!("{name}: {doubt}")).collect()
    };
    let all = [of("A", &comparison.doubts.0), of("B", &comparison.doubts.1)].concat();
    page::doubts("Reasons for doubt", &all)
}

fn differences(comparison: &Comparison) -> String {
    let rows: Vec<[String; 3]> = comparison.differences.iter().map(change_in_words).collect();
    if rows.is_empty() {
        return String::new();
    }
    let fields = [
        Field::word("name", "condition", |it: &[String; 3]| &it[0]),
        Field::word("a", "A", |it| &it[1]),
        Field::word("b", "B", |it| &it[2]),
    ];
    section("Other differences of the runs", &html_table(&Table::of("", &rows, fields)))
}

/// Draws the ratios of all series, each with its interval, around no difference.
fn ratios(comparison: &Comparison, width: f64) -> String {
    let drawn: Vec<(&SeriesComparison, [f64; 3])> = comparison
        .series
        .iter()
        .filter_map(|series| {
            let ratios = [series.ratio_low?, series.ratio?, series.ratio_high?];
            Some((series, ratios.map(|ratio| (ratio - 1.0) * 100.0)))
        })
        .collect();
    let threshold = comparison.threshold * 100.0;
    let ends = [-threshold * 2.0, 0.0, threshold * 2.0];
    let xs: Vec<f64> = drawn.iter().flat_map(|(_, ratios)| *ratios).chain(ends).collect();
    let height = 60.0 + ROW * count_f64(drawn.len());
    let rows = Axis::new("", "").range(0.0, 1.0);
    let names: Vec<String> =
        drawn.iter().map(|(series, _)| series_in_words(&series.series)).collect();
    let axis = Axis::new("B against A", "%");
    let plot = Plot::new((width, height), axis, rows, &xs, &[0.0]);
    let mut plot = plot.with_names(names.iter().map(String::as_str));
    let [_, _, top, bottom] = plot.ends();
    plot.rectangle("flat", (plot.x(-threshold), plot.x(threshold)), (top, bottom), "");
    plot.draw_x();
    plot.stroke("ceiling", (plot.x(0.0), top), (plot.x(0.0), bottom));
    let mut labels = Vec::new();
    for (number, ((series, [low, middle, high]), name)) in drawn.iter().zip(&names).enumerate() {
        let y = top + ROW * (count_f64(number) + 0.5);
        let class = match series.verdict {
            Verdict::Better => "better",
            Verdict::Worse => "worse",
            Verdict::CannotTell => "same",
        };
        let change = format!("{middle:+.1} %, {}", series.verdict.words());
        let text = format!("{name}: {change}, {}", values(series));
        plot.interval((*low, *high), y);
        plot.dot(class, (plot.x(*middle), y), &text);
        plot.name_row(y, name, &change);
        labels.push(text);
    }
    plot.finish(&format!("B against A: {}", labels.join("; ")))
}
