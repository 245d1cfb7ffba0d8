//! The page of an experiment.

use super::{curve_table, figures_table, reasons, value, variations_table, verdict};
use crate::chart::{Axis, Chart, Scale};
use crate::page::{self, Card, Head, html_table, list, section};
use crate::run::capitalized;
use larder_schema::experiment::{Curve, Experiment, Line};

/// Ratio of the highest and the lowest value of a chart above which it has a logarithmic scale.
const LOG_RATIO: f64 = 50.0;
/// Height of a chart over a variable, in pixels.
const HEIGHT: f64 = 280.0;

/// Renders the page.
#[must_use]
pub fn to_html(experiment: &Experiment) -> String {
    let agree = experiment.figures.iter().filter(|figure| figure.agrees()).count();
    let head = Head {
        kind: format!("larder lab {}", experiment.name),
        verdict: verdict(experiment),
        cards: vec![
            Card::new("Agree", agree.to_string(), format!("of {}", experiment.figures.len())),
            Card::new("Seeds", experiment.seeds.to_string(), "each with other places and reads"),
        ],
        subject: [format!("{}.", experiment.title)]
            .into_iter()
            .chain(experiment.machine.iter().cloned())
            .collect(),
    };
    let mut body = section("Published and modeled", &figures_html(experiment));
    for curve in &experiment.curves {
        body.push_str(&section(&capitalized(curve.name), &curve_html(curve)));
    }
    if !experiment.variations.is_empty() {
        let table = html_table(&variations_table(experiment));
        body.push_str(&section("With other assumptions", &table));
    }
    page::page(&head, &body, &experiment.to_json())
}

fn figures_html(experiment: &Experiment) -> String {
    html_table(&figures_table(experiment)) + &list(&reasons(experiment))
}

fn curve_html(curve: &Curve) -> String {
    let x = Axis::new(curve.over, "");
    let values = curve.lines.iter().flat_map(|line| line.points.iter().map(|(_, y)| *y));
    let (low, high) = values
        .fold((f64::INFINITY, 0.0_f64), |(low, high), value| (low.min(value), high.max(value)));
    let y = Axis::new(curve.unit, "");
    let y = if low > 0.0 && high > LOG_RATIO * low { y.scale(Scale::Log2) } else { y.from_zero() };
    let mut chart = Chart::new("", x, y);
    for line in &curve.lines {
        chart.line(line.name.clone(), line.points.iter().copied());
    }
    let last = |line: &Line| {
        line.points.last().map_or_else(String::new, |(at, y)| {
            format!("{}: {} at {at}", line.name, value(*y, curve.unit))
        })
    };
    let description = curve.lines.iter().map(last).collect::<Vec<_>>().join("; ");
    chart
        .to_figure(HEIGHT, &description, "", Some(&curve_table(curve, usize::MAX)))
        .unwrap_or_default()
}
