//! Advice on storage, as text and as a page.

mod html;

pub use html::to_html;

use crate::table::{Cell, Column, Table};
use larder_schema::as_u64;
use larder_schema::format;
use larder_schema::storage_advice::{ArrayRow, GAIN, StorageAdvice, TIE, UnitRow};

/// Share of the rate of one disk below which the recorded rate needs no more disks: half, since
/// peaks are higher than the average.
const ENOUGH: f64 = 0.5;
/// Share of the requests by which twice the memory must reduce those behind the cache, so that more
/// cache is advised first.
const MORE_CACHE: f64 = 0.2;

/// Renders the advice as sentences and tables.
#[must_use]
pub fn to_text(advice: &StorageAdvice) -> String {
    let mut text = format!("{}.\n", verdict(advice));
    for sentence in log(advice).into_iter().chain(sentences(advice)) {
        put_line!(text, "{sentence}");
    }
    put!(text, "\n{}", arrays_table(advice).to_text());
    for sentence in ties(advice).into_iter().chain(rules(advice)) {
        put_line!(text, "{sentence}");
    }
    if !advice.units.is_empty() {
        put!(text, "\n{}", units_table(advice).to_text());
        put_line!(text, "{}", unit_sentence(advice));
    }
    text
}

/// Returns the answer in one sentence, without a period.
fn verdict(advice: &StorageAdvice) -> String {
    let Some(row) = advice.advised() else {
        let (disks, needed) = (advice.disks.into(), format::bytes(advice.needed_bytes));
        return format!(
            "No array of {} has {needed} and survives {}; use more or larger disks",
            format::counted(disks, "disk"),
            failures(advice.failures)
        );
    };
    let rate = format!("Use {}: {}", row.model, rate(row.requests_per_s));
    match one_disk(advice).filter(|it| it.model != row.model) {
        Some(one) if row.requests_per_s >= one.requests_per_s => {
            let times = format::times(row.requests_per_s / one.requests_per_s);
            format!("{rate}, {times} as many as one disk")
        }
        Some(one) => {
            let fewer = 1.0 - row.requests_per_s / one.requests_per_s;
            format!("{rate}, {} fewer than one disk", format::percent(fewer))
        }
        None => rate,
    }
}

fn one_disk(advice: &StorageAdvice) -> Option<&ArrayRow> {
    advice.arrays.iter().find(|it| it.level == "one disk")
}

/// Returns the sentence about the candidates that are as fast as the advised one.
fn ties(advice: &StorageAdvice) -> Option<String> {
    let advised = advice.advised()?;
    let is_tied = |row: &&ArrayRow| {
        let ratio = row.requests_per_s / advised.requests_per_s;
        row.suffices && row.model != advised.model && (1.0 - TIE..=1.0 + TIE).contains(&ratio)
    };
    let tied: Vec<&str> = advice.arrays.iter().filter(is_tied).map(|row| &row.model[..]).collect();
    let within = format::percent(TIE);
    (!tied.is_empty()).then(|| format!("As fast, within {within}: {}.", tied.join("; ")))
}

/// Returns the sentence that compares the recorded rate with that of one disk.
fn recorded(advice: &StorageAdvice) -> Option<String> {
    let recorded = advice.traffic.recorded_per_s?;
    let sentence = format!("Recorded: {} requests/s on average", format::number(recorded));
    let one = one_disk(advice)?.requests_per_s;
    Some(if recorded < ENOUGH * one {
        format!("{sentence}: one disk is fast enough, and more are for space and failures.")
    } else {
        format!("{sentence}.")
    })
}

fn failures(count: u32) -> String {
    format!("{} of any disks", format::counted(count.into(), "failure"))
}

fn rate(requests_per_s: f64) -> String {
    format!("{} requests/s", format::count(as_u64(requests_per_s.round())))
}

/// Returns the facts about the traffic and the choice.
fn sentences(advice: &StorageAdvice) -> Vec<String> {
    let traffic = &advice.traffic;
    let all = traffic.reads + traffic.writes;
    let each = |verb: &str, bytes: u64, count: u64| {
        bytes.checked_div(count).map(|each| format!("a {verb} has {}", format::bytes(each)))
    };
    let facts = [
        Some(format!(
            "{}, {} of them writes",
            format::counted(all, "request"),
            format::percent(traffic.write_share())
        )),
        each("read", traffic.read_bytes, traffic.reads),
        each("write", traffic.write_bytes, traffic.writes),
        Some(format!("{} are in order", format::percent(traffic.sequential_share))),
        Some(format!("{} of data", format::bytes(traffic.bytes))),
    ];
    let facts: Vec<String> = facts.into_iter().flatten().collect();
    let mut sentences = vec![format!("Traffic of {}: {}.", advice.subject, facts.join("; "))];
    sentences.push(format!(
        "Disks: {} {}, with the data at their start (full disks are slower); {} in flight; {} run \
         on each candidate.",
        advice.disks,
        advice.disk,
        format::counted(advice.depth as u64, "request"),
        format::counted(advice.sampled_requests, "request"),
    ));
    sentences.extend(recorded(advice));
    sentences.push(read_ahead(advice));
    if let Some(cache) = advice.cache {
        let memory = format::bytes(cache.memory_bytes);
        sentences.push(format!(
            "A cache of {memory} leaves {} of {} requests; one of twice the memory leaves {}.",
            format::count(cache.behind),
            format::count(cache.requests),
            format::count(cache.behind_twice),
        ));
        let saved = 1.0 - ratio(cache.behind_twice, cache.behind);
        if saved >= MORE_CACHE {
            sentences.push(format!(
                "More cache first: twice the memory saves {} of the requests to the disks.",
                format::percent(saved)
            ));
        }
    }
    sentences
}

fn ratio(part: u64, whole: u64) -> f64 {
    larder_schema::share(part, whole).unwrap_or(0.0)
}

/// Returns the sentence about the place of the log.
fn log(advice: &StorageAdvice) -> Option<String> {
    let log = advice.log.as_ref()?;
    let place = match log.advised_apart() {
        Some(apart) => format!(
            "LOG apart: {} instead of {}, with the log on {} and the rest on {} instead of all on \
             {}",
            rate(apart.requests_per_s),
            rate(log.together.requests_per_s),
            log.log_model,
            apart.model,
            log.together.model
        ),
        None => "Log on the array of all data".to_owned(),
    };
    Some(format!(
        "{place}; the log is volume {}: {} writes, {} of them in order.",
        log.volume,
        format::percent(log.write_share),
        format::percent(log.in_order_share)
    ))
}

/// Returns the sentence about read-ahead.
fn read_ahead(advice: &StorageAdvice) -> String {
    let effect = &advice.read_ahead;
    let share = format::percent(effect.order.in_order_share);
    let order = if effect.order.run_reads > 0.0 {
        let run = format::number(effect.order.run_reads);
        format!("{share} of the reads are in order, in runs of {run} on average")
    } else {
        format!("{share} of the reads are in order")
    };
    let Some((with, without)) = effect.with_per_s.zip(effect.without_per_s) else {
        return if effect.order.in_order_share < GAIN {
            format!("Read-ahead gains nothing: {order}.")
        } else {
            format!("Read-ahead: {order}; --cache compares both ways.")
        };
    };
    let rates = format!("{}, {} without it", rate(with), rate(without));
    let gain = with / without - 1.0;
    if gain >= GAIN {
        format!("Read-ahead gains {}: {rates}; {order}.", format::percent(gain))
    } else if gain > -GAIN {
        format!("Read-ahead gains nothing: {rates}; {order}.")
    } else {
        format!("Read-ahead loses {}: {rates}; {order}.", format::percent(-gain))
    }
}

/// Returns the verdicts of the published rules.
fn rules(advice: &StorageAdvice) -> Vec<String> {
    let sentence = |rule: &larder_schema::storage_advice::PublishedRule| {
        let verdict = if rule.follows { "the model agrees" } else { "the model disagrees" };
        let reason =
            if rule.reason.is_empty() { String::new() } else { format!(": {}", rule.reason) };
        format!("Published rule of about 1999, {}: {verdict}{reason}.", rule.rule)
    };
    advice.rules.iter().map(sentence).collect()
}

fn unit_sentence(advice: &StorageAdvice) -> String {
    let Some(row) = advice.units.get(advice.advised_unit) else { return String::new() };
    format!(
        "Allocation unit: {}, with {} and {} of the used space at the ends of files unused.",
        format::bytes(row.unit_bytes),
        rate(row.requests_per_s),
        format::percent(row.unused_share)
    )
}

fn arrays_table(advice: &StorageAdvice) -> Table {
    let mut columns = vec![
        Column::words("advised", ""),
        Column::words("level", "level"),
        Column::numbers("chunk_bytes", "chunk"),
        Column::numbers("disks", "disks"),
        Column::numbers("requests_per_s", "requests/s"),
        Column::numbers("mean_ns", "mean time"),
        Column::numbers("operations_per_request", "disk operations"),
        Column::numbers("usable_bytes", "usable"),
        Column::numbers("failures_survived", "failures survived"),
    ];
    let has_price = advice.arrays.iter().any(|row| row.price_per_request_per_s.is_some());
    if has_price {
        columns.push(Column::numbers("price_per_request_per_s", "price of 1 request/s"));
    }
    let mut table = Table::new("", columns);
    for (index, row) in advice.arrays.iter().enumerate() {
        let ArrayRow { level, chunk_bytes, usable_bytes, .. } = row;
        let is_advised = advice.advised_array == Some(index);
        let mut cells = vec![
            Cell::word(if is_advised { "advised" } else { "" }),
            Cell::word(*level),
            Cell::bytes(*chunk_bytes),
            Cell::count(u64::from(row.disks)),
            Cell::number(row.requests_per_s),
            Cell::duration(as_u64(row.mean_ns)),
            Cell::shown(row.operations_per_request, format!("{:.2}", row.operations_per_request)),
            Cell::bytes(*usable_bytes),
            Cell::count(u64::from(row.failures_survived)),
        ];
        if has_price {
            cells.push(Cell::number(row.price_per_request_per_s));
        }
        table.push(cells);
    }
    table
}

fn units_table(advice: &StorageAdvice) -> Table {
    let columns = [
        Column::words("advised", ""),
        Column::numbers("unit_bytes", "unit"),
        Column::numbers("extent_bytes", "extent"),
        Column::numbers("parts_per_request", "parts of a request"),
        Column::numbers("requests_per_s", "requests/s"),
        Column::numbers("unused_share", "unused"),
    ];
    let mut table = Table::new("Allocation units on the advised array", columns);
    for (index, row) in advice.units.iter().enumerate() {
        let UnitRow { unit_bytes, extent_bytes, .. } = *row;
        table.push([
            Cell::word(if advice.advised_unit == index { "advised" } else { "" }),
            Cell::bytes(unit_bytes),
            Cell::bytes(extent_bytes),
            Cell::shown(row.parts_per_request, format!("{:.2}", row.parts_per_request)),
            Cell::number(row.requests_per_s),
            Cell::percent(row.unused_share),
        ]);
    }
    table
}

#[cfg(test)]
mod tests;
