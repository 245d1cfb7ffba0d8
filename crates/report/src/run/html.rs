//! HTML report of a run: one prominent figure, then charts, then all numbers.

mod charts;

use super::parts::{ends, part_columns, parts_table};
use super::stress::{steps, stress_in_words, stress_point};
use super::text::{in_words, latencies, latency_table, series_table, starts_in_words};
use crate::escape::html as escape;
use crate::page::{self, cards, figure, html_table, list, section};
use crate::stats::{Summary, confidence_interval};
use crate::table::{Field, Table};
use larder_schema::format;
use larder_schema::run::trial::Trial;
use larder_schema::run::{Part, Run, Sample};

/// Renders the report.
#[must_use]
pub fn to_html(run: &Run) -> String {
    let mut body = heading(run);
    body.push_str(&doubts_section(run));
    if !run.is_gathered() {
        body.push_str(&series_section(run));
        body.push_str(&groups_section(run));
    }
    body.push_str(&parts_section(run));
    body.push_str(&latency_section(run));
    body.push_str(&trials_section(run));
    body.push_str(&machine_section(run));
    let data = serde_json::to_value(run).unwrap_or_default();
    page::page(&run.what, &body, &data)
}

fn heading(run: &Run) -> String {
    let kind = match run.workload.as_str() {
        "" => "larder".to_owned(),
        // `try` is the only workload with its own command.
        "try" => "larder try".to_owned(),
        workload => format!("larder bench {workload}"),
    };
    let mut text = format!(
        "<header>\n<p class=\"kind\">{}</p>\n<h1>{}</h1>\n<p>{}, {}</p>\n</header>\n",
        escape(&kind),
        escape(&run.what),
        escape(&run.started_at),
        escape(&in_words(&run.machine))
    );
    if run.is_gathered() {
        text.push_str(&part_cards(run));
    } else {
        text.push_str(&main_cards(run).unwrap_or_default());
    }
    for sentence in [run.verdict.clone(), starts_in_words(run)] {
        if !sentence.is_empty() {
            put_line!(text, "<p>{}</p>", escape(&sentence));
        }
    }
    text
}

/// Renders the median of the main series, its confidence and the number of trials.
fn main_cards(run: &Run) -> Option<String> {
    let main = run.main_sample()?;
    let summary = Summary::of(&main.values)?;
    let median = format!("{} {}", format::number(summary.median), main.unit);
    let (interval, ends) = match confidence_interval(&main.values) {
        Some(it) => {
            let half = (it.high - it.low) / 2.0 / summary.median.abs();
            let ends = format!("{} to {}", format::number(it.low), format::number(it.high));
            (format!("+-{}", format::percent(half)), ends)
        }
        None => ("-".to_owned(), "fewer than six trials".to_owned()),
    };
    let trials = format::count(main.values.len() as u64);
    let start = run.trials.first().map(|trial| format!("start {}", trial.started.start.name()));
    Some(cards([
        (main.series.as_str(), median, "the median".to_owned()),
        ("95 % interval", interval, ends),
        ("Trials", trials, start.unwrap_or_default()),
    ]))
}

fn doubts_section(run: &Run) -> String {
    if run.doubts.is_empty() {
        return String::new();
    }
    let doubts = list(run.doubts.iter().map(|doubt| &doubt.text));
    format!("<section class=\"doubts\">\n<h2>Doubtful because</h2>\n{doubts}</section>\n")
}

fn series_section(run: &Run) -> String {
    let alone = |sample: &&Sample| sample.group.is_none() && !sample.values.is_empty();
    let by_unit = grouped(run.samples.iter().filter(alone), |sample| &sample.unit);
    let figures = by_unit.iter().map(|samples| bars_figure("Median", samples));
    section("Results", &(figures.collect::<String>() + &html_table(&series_table(run))))
}

/// Renders a bar for each series of one unit; the caption begins with `what` is shown.
fn bars_figure(what: &str, samples: &[&Sample]) -> String {
    let caption = format!(
        "{} of the trials in {}; the thin line is its 95 % interval, the dots are the trials.",
        escape(what),
        escape(&samples[0].unit)
    );
    figure(&charts::bars(samples), &caption)
}

/// Groups series by a key, in the order of the run.
fn grouped<'a>(
    samples: impl Iterator<Item = &'a Sample>,
    key: impl Fn(&Sample) -> &str,
) -> Vec<Vec<&'a Sample>> {
    let mut groups: Vec<Vec<&Sample>> = Vec::new();
    for sample in samples {
        match groups.iter_mut().find(|samples| key(samples[0]) == key(sample)) {
            Some(samples) => samples.push(sample),
            None => groups.push(vec![sample]),
        }
    }
    groups
}

fn group_name(sample: &Sample) -> &str {
    sample.group.as_deref().unwrap_or_default()
}

fn groups_section(run: &Run) -> String {
    let mut text = String::new();
    let stress = stress_point(&steps(run)).map(|point| point.at.clients);
    if let Some(sentence) = stress_in_words(run) {
        put_line!(text, "<p>{}</p>", escape(&sentence));
    }
    let measured = run.samples.iter().filter(|it| it.group.is_some() && !it.values.is_empty());
    for samples in grouped(measured, group_name) {
        let (first, name) = (samples[0], group_name(samples[0]));
        let (chart, note) = match first.at.len() {
            1 => (
                charts::curve(name, &samples, stress),
                "Medians, with the 95 % interval as a band; the mark is the highest point.",
            ),
            2 => (
                charts::surface(name, &samples),
                "Medians; the darker, the higher. Cells that were not measured are empty.",
            ),
            _ => continue,
        };
        let caption = format!("{note} In {}.", escape(&first.unit));
        text.push_str(&section(name, &figure(&chart, &caption)));
    }
    text
}

/// Renders the best and the worst part.
fn part_cards(run: &Run) -> String {
    let main = run.parts.first().and_then(|part| part.run.main_sample());
    let (Some(main), Some([best, worst])) = (main, ends(run)) else { return String::new() };
    let value = |value: f64| format!("{} {}", format::number(value), main.unit);
    let count = format::count(run.parts.len() as u64);
    cards([
        ("Best", value(best.1), best.0.to_owned()),
        ("Worst", value(worst.1), worst.0.to_owned()),
        ("Measured", count, format!("by the median of {}", main.series)),
    ])
}

/// Renders the table of parts, and a chart for each of its columns.
fn parts_section(run: &Run) -> String {
    if run.parts.is_empty() {
        return String::new();
    }
    let mut body = format!("{}<p>{}</p>\n", html_table(&parts_table(run)), super::text::SPREAD);
    for column in part_columns(run) {
        let of_part = |part: &Part| {
            let sample = part.run.sample(&column.series)?.clone();
            Some(Sample { series: part.name.clone(), ..sample })
        };
        let samples: Vec<Sample> = run.parts.iter().filter_map(of_part).collect();
        if !samples.is_empty() {
            let samples: Vec<&Sample> = samples.iter().collect();
            body.push_str(&bars_figure(&format!("{}: median", column.series), &samples));
        }
    }
    section("Beside each other", &body)
}

fn latency_section(run: &Run) -> String {
    let latencies = latencies(run);
    if latencies.iter().all(|latency| latency.count() == 0) {
        return String::new();
    }
    let chart = figure(
        &charts::answer_times(&latencies),
        "The share of requests that took no longer than this, all trials together.",
    );
    section("Answer times", &(chart + &html_table(&latency_table(run))))
}

fn trials_section(run: &Run) -> String {
    if run.trials.is_empty() {
        return String::new();
    }
    let fields = [
        Field::count("trial", "trial", |it: &Trial| it.number),
        Field::duration("duration_ns", "took", |it| it.duration_ns),
        Field::word("start", "start", |it| it.started.start.name()),
        Field::percent("resident", "resident before", |it| it.started.share()),
        Field::percent("steal", "stolen", |it| it.steal),
        Field::percent("foreign", "foreign I/O", Trial::foreign),
    ];
    let table = html_table(&Table::of("", &run.trials, fields));
    let main = run.main_sample().filter(|main| main.values.len() > 1);
    let chart = main.map_or_else(String::new, |main| {
        let caption = format!(
            "{} in {} by trial. A slope means that something changed meanwhile.",
            escape(&main.series),
            escape(&main.unit)
        );
        figure(&charts::by_trial(main), &caption)
    });
    section("Trials", &(chart + &table))
}

fn machine_section(run: &Run) -> String {
    let word =
        |value: &serde_json::Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let settings = run.settings.iter().map(|(name, value)| (name.clone(), word(value)));
    let others = run.software.iter().chain(&run.environment);
    let others = others.map(|(name, value)| (name.clone(), value.clone()));
    let all: Vec<(String, String)> = settings.chain(others).collect();
    let fields = [
        Field::word("name", "setting", |it: &(String, String)| &it.0),
        Field::word("value", "value", |it| &it.1),
    ];
    section("Settings", &html_table(&Table::of("", &all, fields)))
}

#[cfg(test)]
mod tests;
