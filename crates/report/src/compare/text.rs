//! Text rendering of a comparison.

use crate::escape;
use crate::table::{Cell, Column, Table};
use larder_schema::compare::{Compared, Comparison, Verdict};
use larder_schema::format;

/// Formats the relative change, such as `+9.8 %`.
fn format_change(ratio: f64) -> String {
    let percent = (ratio - 1.0) * 100.0;
    format!("{percent:+.1} %")
}

/// Returns the series as a table.
#[must_use]
pub fn table(comparison: &Comparison) -> Table {
    let mut table = Table::new(
        "",
        [
            Column::words("series", "series"),
            Column::words("unit", "unit"),
            Column::numbers("median_a", "A"),
            Column::numbers("median_b", "B"),
            Column::numbers("ratio", "B against A"),
            Column::numbers("ratio_low", "from"),
            Column::numbers("ratio_high", "to"),
            Column::words("verdict", "verdict"),
        ],
    );
    for compared in &comparison.series {
        table.push(cells(compared));
    }
    table
}

/// Renders the whole comparison.
#[must_use]
pub fn to_text(comparison: &Comparison) -> String {
    let mut text = format!(
        "{}\nA of {}, B of {}\n\n{}",
        escape::line(&comparison.what),
        escape::line(&comparison.started_at.0),
        escape::line(&comparison.started_at.1),
        table(comparison).to_text()
    );
    put_line!(
        text,
        "B against A is the median of all ratios of a value of B to one of A, with its 95 % \
         interval;\na verdict is given where all of it is more than {} away from no \
         difference.",
        format::percent(comparison.threshold)
    );
    for (title, series_names) in
        [("Only in A", &comparison.only_a), ("Only in B", &comparison.only_b)]
    {
        if !series_names.is_empty() {
            let series_names: Vec<_> =
                series_names.iter().map(|series| escape::text(series)).collect();
            put_line!(text, "\n{title}: {}", series_names.join("; "));
        }
    }
    if !comparison.differences.is_empty() {
        text.push_str("\nAlso different:\n");
        let value = |value: &Option<String>| -> String {
            value.as_deref().map_or("-".into(), escape::text).into_owned()
        };
        for each in &comparison.differences {
            let (before, after) = (value(&each.before), value(&each.after));
            put_line!(text, "  {}: {before} -> {after}", escape::text(&each.name));
        }
    }
    for (name, doubts) in [("A", &comparison.doubts.0), ("B", &comparison.doubts.1)] {
        for doubt in doubts {
            put_line!(text, "\n{name} is doubtful because {}.", escape::line(doubt));
        }
    }
    text
}

fn cells(compared: &Compared) -> Vec<Cell> {
    let ratio = |ratio: Option<f64>| match ratio {
        Some(ratio) => Cell::shown(ratio, format_change(ratio)),
        None => Cell::missing(),
    };
    let verdict = match compared.verdict {
        Verdict::CannotTell => format!("{}: {}", compared.verdict.words(), compared.why),
        verdict => verdict.words().to_owned(),
    };
    vec![
        Cell::word(&compared.series),
        Cell::word(&compared.unit),
        Cell::number(compared.median_a),
        Cell::number(compared.median_b),
        ratio(compared.ratio),
        ratio(compared.ratio_low),
        ratio(compared.ratio_high),
        Cell::word(verdict),
    ]
}
