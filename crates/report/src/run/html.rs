//! HTML report of a run: one prominent figure, then charts, then all numbers.

mod charts;

use super::parts::{ends, part_columns, parts_table};
use super::stress::{steps, stress_in_words, stress_point};
use super::text::{in_words, latencies, latency_table, series_table, starts_in_words};
use crate::escape::html as escape;
use crate::page::{self, card, html_table};
use crate::stats::{Summary, confidence_interval};
use crate::table::{Cell, Column, Field, Table};
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
    let summary = run.main_sample().and_then(|main| Some((main, Summary::of(&main.values)?)));
    if run.is_gathered() {
        text.push_str(&part_cards(run));
    } else if let Some((main, summary)) = summary {
        text.push_str("<div class=\"cards\">\n");
        let value = format!("{} {}", format::number(summary.median), main.unit);
        text.push_str(&card(&main.series, &value, "the median"));
        let interval = confidence_interval(&main.values);
        let (value, note) = match interval {
            Some(it) => {
                let half = (it.high - it.low) / 2.0 / summary.median.abs();
                let ends = format!("{} to {}", format::number(it.low), format::number(it.high));
                (format!("+-{}", format::percent(half)), ends)
            }
            None => ("-".to_owned(), "fewer than six trials".to_owned()),
        };
        text.push_str(&card("95 % interval", &value, &note));
        let trials = format::count(main.values.len() as u64);
        let start = run.trials.first().map(|trial| trial.started.start.name());
        let note = start.map_or_else(String::new, |start| format!("start {start}"));
        text.push_str(&card("Trials", &trials, &note));
        text.push_str("</div>\n");
    }
    for sentence in [run.verdict.clone(), starts_in_words(run)] {
        if !sentence.is_empty() {
            put_line!(text, "<p>{}</p>", escape(&sentence));
        }
    }
    text
}

fn doubts_section(run: &Run) -> String {
    if run.doubts.is_empty() {
        return String::new();
    }
    let mut text = String::from("<section class=\"doubts\">\n<h2>Doubtful because</h2>\n<ul>\n");
    for doubt in &run.doubts {
        put_line!(text, "<li>{}</li>", escape(&doubt.text));
    }
    text.push_str("</ul>\n</section>\n");
    text
}

fn series_section(run: &Run) -> String {
    let mut text = String::from("<section>\n<h2>Results</h2>\n");
    for samples in by_unit(run) {
        put!(
            text,
            "<figure>\n{}<figcaption>Median of the trials in {}; the thin line is its 95 % \
             interval, the dots are the trials.</figcaption>\n</figure>\n",
            charts::bars(&samples),
            escape(&samples[0].unit)
        );
    }
    text.push_str(&html_table(&series_table(run)));
    text.push_str("</section>\n");
    text
}

/// Returns the series without a group by unit, in the order of the run.
fn by_unit(run: &Run) -> Vec<Vec<&Sample>> {
    let mut units: Vec<Vec<&Sample>> = Vec::new();
    let alone = |sample: &&Sample| sample.group.is_none() && !sample.values.is_empty();
    for sample in run.samples.iter().filter(alone) {
        match units.iter_mut().find(|samples| samples[0].unit == sample.unit) {
            Some(samples) => samples.push(sample),
            None => units.push(vec![sample]),
        }
    }
    units
}

fn groups_section(run: &Run) -> String {
    let mut text = String::new();
    let stress = stress_point(&steps(run)).map(|point| point.at.clients);
    if let Some(sentence) = stress_in_words(run) {
        put_line!(text, "<p>{}</p>", escape(&sentence));
    }
    for (name, samples) in groups(run) {
        let chart = match samples[0].at.len() {
            1 => charts::curve(name, &samples, stress),
            2 => charts::surface(name, &samples),
            _ => continue,
        };
        let note = if samples[0].at.len() == 1 {
            "Medians, with the 95 % interval as a band; the mark is the highest point."
        } else {
            "Medians; the darker, the higher. Cells that were not measured are empty."
        };
        put!(
            text,
            "<section>\n<h2>{}</h2>\n<figure>\n{chart}<figcaption>{note} In {}.</figcaption>\n\
             </figure>\n</section>\n",
            escape(name),
            escape(&samples[0].unit)
        );
    }
    text
}

/// Returns the series with a group, by group.
fn groups(run: &Run) -> Vec<(&str, Vec<&Sample>)> {
    let mut groups: Vec<(&str, Vec<&Sample>)> = Vec::new();
    for sample in run.samples.iter().filter(|sample| !sample.values.is_empty()) {
        let Some(name) = sample.group.as_deref() else { continue };
        match groups.iter_mut().find(|(known, _)| *known == name) {
            Some((_, samples)) => samples.push(sample),
            None => groups.push((name, vec![sample])),
        }
    }
    groups
}

/// Renders the best and the worst part.
fn part_cards(run: &Run) -> String {
    let main = run.parts.first().and_then(|part| part.run.main_sample());
    let (Some(main), Some(ends)) = (main, ends(run)) else { return String::new() };
    let cards = ["Best", "Worst"].into_iter().zip(ends).map(|(title, (name, value))| {
        card(title, &format!("{} {}", format::number(value), main.unit), name)
    });
    let count = format::count(run.parts.len() as u64);
    let count = card("Measured", &count, &format!("by the median of {}", main.series));
    format!("<div class=\"cards\">\n{}{count}</div>\n", cards.collect::<String>())
}

/// Renders the table of parts, and a chart for each of its columns.
fn parts_section(run: &Run) -> String {
    if run.parts.is_empty() {
        return String::new();
    }
    let mut text = format!(
        "<section>\n<h2>Beside each other</h2>\n{}<p>{}</p>\n",
        html_table(&parts_table(run)),
        super::text::SPREAD
    );
    for column in part_columns(run) {
        let of_part = |part: &Part| {
            let sample = part.run.sample(&column.series)?.clone();
            Some(Sample { series: part.name.clone(), ..sample })
        };
        let samples: Vec<Sample> = run.parts.iter().filter_map(of_part).collect();
        let samples: Vec<&Sample> = samples.iter().collect();
        if let Some(first) = samples.first() {
            put!(
                text,
                "<figure>\n{}<figcaption>{}: median of the trials in {}; the thin line is its \
                 95 % interval, the dots are the trials.</figcaption>\n</figure>\n",
                charts::bars(&samples),
                escape(&column.series),
                escape(&first.unit)
            );
        }
    }
    text.push_str("</section>\n");
    text
}

fn latency_section(run: &Run) -> String {
    let latencies = latencies(run);
    if latencies.iter().all(|latency| latency.count() == 0) {
        return String::new();
    }
    format!(
        "<section>\n<h2>Answer times</h2>\n<figure>\n{}<figcaption>The share of requests that \
         took no longer than this, all trials together.</figcaption>\n</figure>\n{}\
         </section>\n",
        charts::answer_times(&latencies),
        html_table(&latency_table(run))
    )
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
        Field::percent("foreign", "foreign I/O", |it| it.foreign()),
    ];
    let table = Table::of("", &run.trials, fields);
    let chart = match run.main_sample().filter(|main| main.values.len() > 1) {
        Some(main) => format!(
            "<figure>\n{}<figcaption>{} in {} by trial. A slope means that something changed \
             meanwhile.</figcaption>\n</figure>\n",
            charts::by_trial(main),
            escape(&main.series),
            escape(&main.unit)
        ),
        None => String::new(),
    };
    format!("<section>\n<h2>Trials</h2>\n{chart}{}</section>\n", html_table(&table))
}

fn machine_section(run: &Run) -> String {
    let columns = [Column::words("name", "setting"), Column::words("value", "value")];
    let mut table = Table::new("", columns);
    let word =
        |value: &serde_json::Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    for (name, value) in &run.settings {
        table.push([Cell::word(name), Cell::word(word(value))]);
    }
    for (name, value) in run.software.iter().chain(&run.environment) {
        table.push([Cell::word(name), Cell::word(value)]);
    }
    format!("<section>\n<h2>Settings</h2>\n{}</section>\n", html_table(&table))
}

#[cfg(test)]
mod tests;
