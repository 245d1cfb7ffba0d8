//! Text rendering of a comparison.

use crate::doubts::doubts_in_words;
use crate::escape;
use crate::setting::{change_in_words, series_in_words};
use crate::table::{Cell, Column, Field, Table};
use larder_schema::compare::{Comparison, SeriesComparison, Verdict};
use larder_schema::format;

/// Formats the relative change, such as `+9.8 %`.
pub(super) fn format_change(ratio: f64) -> String {
    let percent = (ratio - 1.0) * 100.0;
    format!("{percent:+.1} %")
}

/// Returns the series as a table.
#[must_use]
pub fn table(comparison: &Comparison) -> Table {
    let ratio = |ratio: Option<f64>| {
        ratio.map_or_else(Cell::missing, |ratio| Cell::shown(ratio, format_change(ratio)))
    };
    let fields = [
        Field::of(Column::words("series", "series"), |it: &SeriesComparison| {
            Cell::shown(it.series.as_str(), series_in_words(&it.series))
        }),
        Field::word("unit", "unit", |it| &it.unit),
        Field::number("median_a", "A", |it| it.median_a),
        Field::number("median_b", "B", |it| it.median_b),
        Field::of(Column::numbers("ratio", "B against A"), move |it: &SeriesComparison| {
            ratio(it.ratio)
        }),
        Field::of(Column::numbers("ratio_low", "from"), move |it: &SeriesComparison| {
            ratio(it.ratio_low)
        }),
        Field::of(Column::numbers("ratio_high", "to"), move |it: &SeriesComparison| {
            ratio(it.ratio_high)
        }),
        Field::text("verdict", "verdict", |it| match it.verdict {
            Verdict::CannotTell => format!("{}: {}", it.verdict.words(), it.why),
            verdict => verdict.words().to_owned(),
        }),
    ];
    Table::of("", &comparison.series, fields)
}

/// Renders the whole comparison.
#[must_use]
pub fn to_text(comparison: &Comparison) -> String {
    let what = escape::line(&comparison.what);
    let [of_a, of_b] =
        [&comparison.started_at.0, &comparison.started_at.1].map(|at| escape::line(at));
    let mut text = match &comparison.what_b {
        Some(what_b) => format!("A of {of_a}: {what}\nB of {of_b}: {}\n\n", escape::line(what_b)),
        None => format!("{what}\nA of {of_a}, B of {of_b}\n\n"),
    };
    text.push_str(&table(comparison).to_text());
    put_line!(
        text,
        "B against A is the median of all ratios of a value of B to one of A, with its 95 % \
         interval;\na verdict is given where the whole interval is more than {} above or \
         below no difference.",
        format::percent(comparison.threshold)
    );
    for (title, series_names) in
        [("Only in A", &comparison.only_a), ("Only in B", &comparison.only_b)]
    {
        if !series_names.is_empty() {
            let series_names: Vec<_> = series_names
                .iter()
                .map(|series| escape::text(&series_in_words(series)).into_owned())
                .collect();
            put_line!(text, "\n{title}: {}", series_names.join("; "));
        }
    }
    if !comparison.differences.is_empty() {
        text.push_str("\nAlso different:\n");
        for change in &comparison.differences {
            let words = change_in_words(change);
            let [name, before, after] = words.each_ref().map(|it| escape::text(it));
            put_line!(text, "  {name}: {before} -> {after}");
        }
    }
    for (name, doubts) in [("A", &comparison.doubts.0), ("B", &comparison.doubts.1)] {
        text.push_str(&doubts_in_words(&format!("{name} is doubtful"), doubts));
    }
    text
}
