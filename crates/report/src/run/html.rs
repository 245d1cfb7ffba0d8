//! HTML report of a run: the verdict, then charts, then all numbers.

mod charts;
mod grid;

use super::parts::{part_columns, parts_table, spread};
use super::stress::{steps, stress_in_words, stress_point};
use super::text::{SPREAD, in_words, latencies, latency_table, series_table, starts_in_words};
use super::verdict::{self, capitalized, series_name, start_words};
use crate::escape::html as escape;
use crate::page::{self, Captions, Head, WIDE, details, figure, html_table, section};
use crate::quantity::quantity;
use crate::setting;
use crate::stats::{RATIO_VALUES_MIN, confidence_interval, median};
use crate::table::{Cell, Column, Field, Table};
use crate::try_verdict;
use grid::Grid;
use larder_schema::format;
use larder_schema::run::trial::Trial;
use larder_schema::run::{Part, Run, Sample};

/// Maximum number of parts that are columns of a table.
const PARTS_MAX: usize = 4;
/// Meaning of the factors in the labels of `larder try`.
const FACTORS: &str = "The factors are medians of all ratios of a trial with Larder to one \
                       without, from the same start.";
/// Part of the names of groups whose times include a flush.
const FLUSHED: &str = ", flushed";

/// Renders the report.
#[must_use]
pub fn to_html(run: &Run) -> String {
    let head = Head {
        kind: command(run),
        verdict: verdict::verdict(run),
        cards: verdict::cards(run),
        subject: vec![
            capitalized(&format!("{}.", run.what)),
            run.verdict.clone(),
            starts_in_words(run),
            format!("{}, {}.", run.started_at, in_words(&run.machine)),
        ],
    };
    let mut body = page::doubts("Reasons for doubt", run.doubts.iter().map(|doubt| &doubt.text));
    let mut captions = Captions::default();
    body.push_str(&parts_section(run, &mut captions));
    if !run.is_gathered() {
        body.push_str(&groups_section(run, &mut captions));
        body.push_str(&series_section(run, &mut captions));
    }
    body.push_str(&latency_section(run));
    body.push_str(&trials_section(run));
    body.push_str(&settings_section(run));
    let data = serde_json::to_value(run).unwrap_or_default();
    page::page(&head, &body, &data)
}

/// Returns the command that made the run.
fn command(run: &Run) -> String {
    match run.workload.as_str() {
        "" => "larder".to_owned(),
        // `try` is the only workload with its own command.
        "try" => "larder try".to_owned(),
        workload => format!("larder bench {workload}"),
    }
}

fn series_section(run: &Run, captions: &mut Captions) -> String {
    let is_shown = |sample: &&Sample| sample.group.is_none() && !sample.values.is_empty();
    let by_unit = grouped(run.samples.iter().filter(is_shown), |sample| &sample.unit);
    let shown = format!("Median of {}.", trials_in_words(&run.trials));
    let mut figures =
        by_unit.iter().map(|samples| bars_figure(&[&shown], samples, captions, |_| None));
    let first = figures.next().unwrap_or_default();
    let others = details("Other series", &figures.collect::<String>());
    // The sections of grids have their values.
    let others_than_grids = run.samples.iter().filter(|sample| sample.at.len() < 2);
    let table = series_table(others_than_grids);
    let table = if table.is_empty() { String::new() } else { page::all_rows(&table) };
    let table = details("All series", &table);
    if first.is_empty() {
        return table;
    }
    section("Results", &(first + &others + &table))
}

/// Renders a bar for each series of one unit; the caption begins with the sentences on what is
/// shown. `note` returns words to add to the label of a series.
fn bars_figure(
    shown: &[&str],
    samples: &[&Sample],
    captions: &mut Captions,
    note: impl Fn(&Sample) -> Option<String>,
) -> String {
    let mut caption = captions.unseen(&[shown, &[meaning_of_bars(samples)]].concat());
    if matches!(samples[0].unit.as_str(), "ns" | "s") {
        caption.push_str(" Less is better.");
    }
    figure(|width| charts::bars(samples, &note, width), caption.trim_start(), None)
}

/// Returns the sentence that explains the lines and dots of bars, and if they can be ranked: as the
/// verdict on two of them does, which needs fewer trials than the interval of a median.
fn meaning_of_bars(samples: &[&Sample]) -> &'static str {
    let fewest = samples.iter().map(|sample| sample.values.len() as u64).min().unwrap_or(0);
    if has_interval(samples) {
        "The thin line is the 95 % interval of the median, the dots are the trials."
    } else if samples.len() < 2 {
        "The dots are the trials, too few for an interval."
    } else if fewest < RATIO_VALUES_MIN {
        "The dots are the trials, too few for an interval: do not rank by these bars."
    } else {
        "The dots are the trials, too few for an interval of each median: rank two bars only if \
         all dots of one lie beyond those of the other."
    }
}

/// Returns the number of the trials and their start state.
fn trials_in_words(trials: &[Trial]) -> String {
    format::counted(trials.len() as u64, "trial") + &start_words(trials)
}

/// Returns true if a chart of the series draws an interval.
fn has_interval(samples: &[&Sample]) -> bool {
    samples.iter().any(|sample| confidence_interval(&sample.values).is_some())
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

fn groups_section(run: &Run, captions: &mut Captions) -> String {
    let (mut text, trials) = (String::new(), trials_in_words(&run.trials));
    let stress = stress_point(&steps(run)).map(|point| point.at.clients);
    if let Some(sentence) = stress_in_words(run) {
        put_line!(text, "<p>{}</p>", escape(&sentence));
    }
    let measured = run.samples.iter().filter(|it| it.group.is_some() && !it.values.is_empty());
    let mut flushed = String::new();
    for samples in grouped(measured, group_name) {
        let (first, name) = (samples[0], group_name(samples[0]));
        let charts = match first.at.len() {
            1 => {
                let band =
                    if has_interval(&samples) { ", with the 95 % interval as a band" } else { "" };
                let caption = captions.unseen(&[&format!("Medians of {trials}{band}.")]);
                let draw = |width| charts::curve(name, &samples, stress, width);
                figure(draw, &caption, Some(&group_table(&samples)))
            }
            2 => grid_figure(name, &samples, &trials, captions),
            _ => continue,
        };
        let section = section(&capitalized(name), &charts);
        if name.contains(FLUSHED) { flushed.push_str(&section) } else { text.push_str(&section) }
    }
    text + &details("Including the flush to stable storage", &flushed)
}

/// Renders a group with two coordinates as lines and as a table.
fn grid_figure(name: &str, samples: &[&Sample], trials: &str, captions: &mut Captions) -> String {
    let Some(grid) = Grid::new(samples) else { return String::new() };
    let draw = |width| charts::lines(name, &grid, width);
    let (_, keys) = draw(WIDE);
    let table = page::scrolling(&format!("{name}, all sizes"), &grid.to_html());
    let shown = format!("Medians of {trials}, with the value of the highest point.");
    let mut sentences = vec![shown.as_str()];
    if charts::shown_columns(&grid).len() < grid.columns.len() {
        sentences.push("Only some columns have a line; the table has all.");
    }
    let caption = captions.unseen(&sentences);
    let shades = captions.unseen(&["The darker, the higher. Empty cells were not measured."]);
    let shades = if shades.is_empty() { shades } else { format!("<p>{shades}</p>\n") };
    page::key(&keys)
        + &figure(|width| draw(width).0, &caption, None)
        + &details("All sizes", &(shades + &table))
}

/// Returns the medians of a group.
fn group_table(samples: &[&Sample]) -> Table {
    let columns = [
        Column::words("series", "series"),
        Column::numbers("median", "median"),
        Column::numbers("low", "from"),
        Column::numbers("high", "to"),
    ];
    let mut table = Table::new("", columns);
    for sample in samples {
        let cell = |value: f64| Cell::shown(value, quantity(value, &sample.unit));
        let or_missing = |value: Option<f64>| value.map_or_else(Cell::missing, cell);
        let interval = confidence_interval(&sample.values);
        table.push([
            Cell::word(series_name(sample)),
            or_missing(median(&sample.values)),
            or_missing(interval.map(|it| it.low)),
            or_missing(interval.map(|it| it.high)),
        ]);
    }
    table
}

/// Renders the main series of the parts as a chart, and all series as a table and folded charts.
fn parts_section(run: &Run, captions: &mut Captions) -> String {
    if run.parts.is_empty() {
        return String::new();
    }
    // The verdict is about the main series, which therefore comes first.
    let main = run.parts.first().and_then(|part| part.run.main_sample());
    let main = main.map_or("", |sample| &sample.series);
    let comparisons = try_verdict::comparisons(run).unwrap_or_default();
    let mut columns = part_columns(run);
    columns.sort_by_key(|column| column.series != main);
    let mut charts = columns.into_iter().filter_map(|column| {
        let of_part = |part: &Part| {
            let sample = part.run.sample(&column.series)?.clone();
            Some(Sample { series: part.name.clone(), group: None, ..sample })
        };
        let samples: Vec<Sample> = run.parts.iter().filter_map(of_part).collect();
        let samples: Vec<&Sample> = samples.iter().collect();
        let trials = run.parts.iter().flat_map(|part| &part.run.trials);
        let name = capitalized(&column.series);
        let shown = format!("{name}: median of the trials{}.", start_words(trials));
        let mut sentences = vec![shown.as_str()];
        if column.series == main && try_verdict::is_try(run) {
            sentences.push(FACTORS);
        }
        let note = |sample: &Sample| {
            let part = run.parts.iter().find(|part| part.name == sample.series)?;
            let compared = try_verdict::comparison_of(&comparisons, part)?;
            (column.series == main).then(|| verdict::factor_words(compared))
        };
        (!samples.is_empty()).then(|| bars_figure(&sentences, &samples, captions, note))
    });
    let first = charts.next().unwrap_or_default();
    let others = details("Other series", &charts.collect::<String>());
    let table = html_table(&parts_by_series(run));
    section("Side by side", &format!("{first}{table}<p>{}</p>\n{others}", escape(SPREAD)))
}

/// Returns a table with a row for each series and a column for each part, or, with many parts, the
/// table of the text.
fn parts_by_series(run: &Run) -> Table {
    if run.parts.len() > PARTS_MAX {
        return parts_table(run);
    }
    let parts = run.parts.iter().map(|part| Column::numbers(&part.name, &part.name));
    let mut table = Table::new("", [Column::words("series", "")].into_iter().chain(parts));
    for column in part_columns(run) {
        let cells = run.parts.iter().map(|part| {
            let sample = part.run.sample(&column.series);
            sample.map_or_else(Cell::missing, |it| spread(&it.values, &it.unit, 1.0))
        });
        table.push([Cell::word(&column.series)].into_iter().chain(cells));
    }
    table
}

fn latency_section(run: &Run) -> String {
    let latencies = latencies(run);
    if latencies.iter().all(|latency| latency.count() == 0) {
        return String::new();
    }
    let draw = |width| charts::latency_distribution(&latencies, width);
    let (_, keys) = draw(WIDE);
    let caption = "The share of requests that took no longer than this, all trials together. Above \
                   90 %, each step leaves a tenth of the slower requests.";
    let chart = page::key(&keys) + &figure(|width| draw(width).0, caption, None);
    section("Latency", &(chart + &html_table(&latency_table(run))))
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
    let table = page::all_rows(&Table::of("", &run.trials, fields));
    let main = run.main_sample().filter(|main| main.values.len() > 1);
    let chart = main.map_or_else(String::new, |main| {
        let caption = format!(
            "{} by trial. A slope means that a condition changed between the trials.",
            capitalized(&series_name(main)),
        );
        figure(|width| charts::by_trial(main, width), &caption, None)
    });
    details("Trials", &(chart + &table))
}

fn settings_section(run: &Run) -> String {
    let settings = run.settings.iter().map(|(name, value)| {
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        (setting::name_in_words(name), setting::value_in_words(name, &value))
    });
    let others = run.software.iter().chain(&run.environment);
    let others = others.map(|(name, value)| (name.clone(), value.clone()));
    let all: Vec<(String, String)> = settings.chain(others).collect();
    let fields = [
        Field::word("name", "setting", |it: &(String, String)| &it.0),
        Field::word("value", "value", |it| &it.1),
    ];
    details("Settings and machine", &page::all_rows(&Table::of("", &all, fields)))
}

#[cfg(test)]
mod tests;
