//! A published experiment beside its repetition on a model, as text and as a page.

mod html;

pub use html::to_html;

use crate::table::{Cell, Column, Table};
use larder_schema::experiment::{Curve, Experiment};
use larder_schema::format;
use larder_schema::mean;

/// Maximum number of points of a curve that the text shows.
const ROWS_MAX: usize = 12;
/// Relative change of a figure that another assumption must cause to be shown.
const CHANGED: f64 = 0.1;

/// Renders the experiment as tables and sentences.
#[must_use]
pub fn to_text(experiment: &Experiment) -> String {
    let mut text = format!("{}, {}\n", experiment.title, seeds(experiment));
    for sentence in &experiment.machine {
        put_line!(text, "{sentence}");
    }
    put!(text, "\n{}", figures_table(experiment).to_text());
    for sentence in reasons(experiment) {
        put_line!(text, "{sentence}");
    }
    for curve in &experiment.curves {
        put!(text, "\n{}", curve_table(curve, ROWS_MAX).to_text());
    }
    if !experiment.variations.is_empty() {
        put!(text, "\n{}", variations_table(experiment).to_text());
    }
    put_line!(text, "\n{}.", verdict(experiment));
    text
}

fn seeds(experiment: &Experiment) -> String {
    format::counted(experiment.seeds, "seed")
}

/// Returns the answer in one sentence, without a period.
fn verdict(experiment: &Experiment) -> String {
    let all = experiment.figures.len() as u64;
    let agree = experiment.figures.iter().filter(|figure| figure.agrees()).count();
    format!("{agree} of {} agree with the model", format::counted(all, "published figure"))
}

/// Returns a sentence for each reason of a difference, after the figures that have it.
fn reasons(experiment: &Experiment) -> Vec<String> {
    let mut reasons: Vec<(&str, Vec<&str>)> = Vec::new();
    for figure in experiment.figures.iter().filter(|figure| !figure.agrees()) {
        let reason = match figure.reason {
            "" => "the reason of the difference is not known.",
            reason => reason,
        };
        match reasons.iter_mut().find(|(known, _)| *known == reason) {
            Some((_, names)) => names.push(figure.name),
            None => reasons.push((reason, vec![figure.name])),
        }
    }
    reasons.iter().map(|(reason, names)| format!("{}: {reason}", names.join("; "))).collect()
}

/// Returns a value with its unit.
fn value(value: f64, unit: &str) -> String {
    match unit {
        "%" => format!("{value:.1} %"),
        "x" => format!("{value:.2} x"),
        "" => format!("{value:.1}"),
        unit if unit.starts_with('/') => format!("{value:.1}{unit}"),
        unit => format!("{value:.1} {unit}"),
    }
}

fn figures_table(experiment: &Experiment) -> Table {
    let columns = [
        Column::words("name", "figure"),
        Column::words("published", "published"),
        Column::numbers("mean", "model"),
        Column::numbers("low", "from"),
        Column::numbers("high", "to"),
        Column::words("agrees", "agrees"),
    ];
    let mut table = Table::new("", columns);
    for figure in &experiment.figures {
        let shown = |number: Option<f64>| {
            number.map_or_else(Cell::missing, |it| Cell::shown(it, value(it, figure.unit)))
        };
        let range = figure.range();
        table.push([
            Cell::word(figure.name),
            Cell::word(figure.published),
            shown(figure.mean()),
            shown(range.map(|range| range[0])),
            shown(range.map(|range| range[1])),
            Cell::word(if figure.agrees() { "yes" } else { "no" }),
        ]);
    }
    table
}

/// Returns the points of a curve: of more than `rows_max`, every second, third and so on.
fn curve_table(curve: &Curve, rows_max: usize) -> Table {
    let lines =
        curve.lines.iter().map(|line| Column::numbers(line.name.clone(), line.name.clone()));
    let columns = std::iter::once(Column::numbers(curve.over, curve.over)).chain(lines);
    let mut table = Table::new(curve.name, columns);
    let points = curve.lines.first().map_or(&[][..], |line| &line.points);
    let every = points.len().div_ceil(rows_max).max(1);
    for (index, &(at, _)) in points.iter().enumerate().step_by(every) {
        let first = Cell::shown(at, format!("{at}"));
        let cell = |&(_, y): &(f64, f64)| Cell::shown(y, value(y, curve.unit));
        let others = curve.lines.iter().map(|line| line.points.get(index));
        let others = others.map(|point| point.map_or_else(Cell::missing, cell));
        table.push(std::iter::once(first).chain(others));
    }
    table
}

/// Returns the title of the figures with other assumptions.
fn variations_title(experiment: &Experiment) -> String {
    let seeds = format::counted(experiment.variation_seeds, "seed");
    format!("With other assumptions, {seeds}")
}

/// Returns the figures that another assumption changes by more than [`CHANGED`] of their value.
fn variations_table(experiment: &Experiment) -> Table {
    let columns = [
        Column::words("assumption", "assumption"),
        Column::words("name", "figure"),
        Column::numbers("mean", "model"),
        Column::numbers("changed", "changed"),
    ];
    let mut table = Table::new(variations_title(experiment), columns);
    let seeds = usize::try_from(experiment.variation_seeds).unwrap_or(usize::MAX);
    for variation in &experiment.variations {
        for (figure, &changed) in experiment.figures.iter().zip(&variation.means) {
            let values = &figure.values[..seeds.min(figure.values.len())];
            let Some(mean) = mean(values) else { continue };
            if (changed - mean).abs() <= CHANGED * mean.abs() {
                continue;
            }
            let shown = |number: f64| Cell::shown(number, value(number, figure.unit));
            let names = [Cell::word(variation.name), Cell::word(figure.name)];
            table.push(names.into_iter().chain([shown(mean), shown(changed)]));
        }
    }
    table
}

#[cfg(test)]
mod tests;
