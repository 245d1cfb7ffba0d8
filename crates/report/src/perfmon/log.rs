//! A log in numbers: times, and a column for each known counter.
//!
//! Invariants: every column has a value or `None` for each line. A line with too few or too many
//! fields, or a field that is not a number, is an error with its position. An impossible value (a
//! negative one, or more than the total) counts as missing: a counter that was reset has such
//! values. The parser reads the log line by line in one pass and keeps only times and values of
//! known counters, so time and memory are linear in its length.

use super::columns::Path;
use super::counters::{Counter, Kind, Object};
use super::number::{Decimal, Numbers};
use super::time::{self, UnorderedTime};
use super::{Names, PerfmonError, fields, text};
use crate::lines::Lines;
use larder_schema::format;
use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::io::BufRead;

/// Maximum calls per second; a higher rate means that the counter overflowed or was reset: a 32-bit
/// counter that decreases by one appears as 4,294,967,295.
const RATE_MAX: f64 = 1e9;
/// Maximum percentage; Perfmon also writes 100.00000001.
const PERCENTAGE_MAX: f64 = 100.01;

/// Options of the parser.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options<'a> {
    /// Counter names of the machine, if they are in an unknown language.
    pub names: Option<&'a Names>,
    /// Decimal separator, if the log does not reveal it.
    pub decimal: Option<Decimal>,
}

/// Values of one counter of one instance.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Column {
    pub(super) object: Object,
    pub(super) instance: String,
    pub(super) counter: Counter,
    pub(super) values: Vec<Option<f64>>,
}

/// A parsed log.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Log {
    pub(super) host: String,
    /// Language of the headings.
    pub(super) language: String,
    /// Seconds since 1970, rising.
    pub(super) times: Vec<f64>,
    pub(super) columns: Vec<Column>,
    /// Index of each column by object, counter and instance.
    index: HashMap<(Object, Counter), HashMap<String, usize>>,
    /// Headings of unknown counters of known objects.
    pub(super) unknown: Vec<(Kind, String)>,
    pub(super) notes: Vec<String>,
}

/// One line after the header.
#[derive(Clone, Copy, Debug)]
struct Row {
    /// Line number in the file.
    line: u64,
    at: UnorderedTime,
}

pub(super) fn read(from: impl BufRead, options: &Options<'_>) -> Result<Log, PerfmonError> {
    let refused = |error: std::io::Error| PerfmonError::Read { reason: error.to_string() };
    let mut lines = Lines::new(text::to_utf8(from).map_err(refused)?);
    let first = lines.next_line()?.map(|(_, line)| text::decode_line(line)).unwrap_or_default();
    let begin = first.trim_start_matches('"');
    if !begin.starts_with("(PDH-CSV") && !begin.starts_with("(PDH-TSV") {
        return Err(PerfmonError::NoLog);
    }
    let separator = fields::separator(&first);
    let line_error = |line: u64, reason: String| PerfmonError::Line { line, reason };
    let mut headings = fields::split(&first, separator).map_err(|reason| line_error(1, reason))?;
    headings.remove(0);
    let mut log = Log { language: "English".to_owned(), ..Log::default() };
    let positions = log.add_columns(&headings, options);
    if positions.is_empty() {
        return Err(PerfmonError::NothingKnown { headings: examples(&headings) });
    }
    let mut rows = Vec::new();
    let mut numbers = Numbers::new(options.decimal);
    while let Some((line, bytes)) = lines.next_line()? {
        let text = text::decode_line(bytes);
        let line_error = |reason: String| line_error(line, reason);
        let mut fields = fields::split(&text, separator).map_err(line_error)?;
        // relog ends some lines with a separator.
        let trailing_separator =
            fields.len() == headings.len() + 2 && fields.last().is_some_and(|it| it.is_empty());
        fields.truncate(fields.len() - usize::from(trailing_separator));
        if fields.iter().all(|field| field.trim().is_empty()) {
            continue;
        }
        if fields.len() != headings.len() + 1 {
            let (found, known) = (fields.len(), headings.len() + 1);
            let found = format::counted(found as u64, "field");
            return Err(line_error(format!("it has {found}, the first line has {known}")));
        }
        let at = UnorderedTime::parse(&fields[0]);
        let at = at.ok_or_else(|| line_error(format!("{:?} is not a time", fields[0])))?;
        for (number, position) in positions.iter().enumerate() {
            let value = numbers.take(&fields[position + 1], (number, rows.len()), line).map_err(
                |reason| line_error(format!("{reason} (it is of {})", headings[*position])),
            )?;
            log.columns[number].values.push(value);
        }
        rows.push(Row { line, at });
    }
    if rows.is_empty() {
        return Err(PerfmonError::NoSamples);
    }
    let thousandths = numbers.finish().map_err(|(line, reason)| line_error(line, reason))?;
    for (column, row) in thousandths {
        if let Some(value) = &mut log.columns[column].values[row] {
            *value /= 1000.0;
        }
    }
    log.set_times(&rows)?;
    log.remove_impossible();
    Ok(log)
}

/// Returns the first three headings, for a message.
fn examples(headings: &[Cow<'_, str>]) -> String {
    headings.get(..3).unwrap_or(headings).join(", ")
}

impl Log {
    /// Creates a column for each known heading; returns the positions of these headings.
    fn add_columns(&mut self, headings: &[Cow<'_, str>], options: &Options<'_>) -> Vec<usize> {
        let mut positions = Vec::new();
        let mut language = None;
        let mut hosts: Vec<&str> = Vec::new();
        let mut known_hosts = HashSet::new();
        for (position, heading) in headings.iter().enumerate() {
            let Some(path) = Path::parse(heading) else { continue };
            let Some(object) = path.object(options.names) else { continue };
            let Some((counter, heading_language)) = path.counter(object, options.names) else {
                self.unknown.push((object.kind(), heading.clone().into_owned()));
                continue;
            };
            if known_hosts.insert(path.host) {
                hosts.push(path.host);
            }
            // Only the first machine of a log is reported.
            if hosts.first() != Some(&path.host) {
                continue;
            }
            language = language.or(heading_language);
            let instance = path.instance.to_owned();
            let by_instance = self.index.entry((object, counter)).or_default();
            if by_instance.contains_key(&instance) {
                continue;
            }
            by_instance.insert(instance.clone(), self.columns.len());
            self.columns.push(Column { object, instance, counter, values: Vec::new() });
            positions.push(position);
        }
        if let [first, others @ ..] = hosts.as_slice()
            && !others.is_empty()
        {
            let named = others.get(..3).unwrap_or(others).join(", ");
            let more = match others.len().saturating_sub(3) {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            self.notes.push(format!(
                "the log is of several machines; only {first} is reported; {named}{more} is left \
                 out"
            ));
        }
        self.host = hosts.first().map_or_else(String::new, |host| (*host).to_owned());
        if options.names.is_some() {
            "as listed".clone_into(&mut self.language);
        } else if let Some(language) = language {
            language.clone_into(&mut self.language);
        }
        positions
    }

    /// Converts the times of all lines to one clock, and removes lines whose time goes backward.
    fn set_times(&mut self, rows: &[Row]) -> Result<(), PerfmonError> {
        let stamps: Vec<UnorderedTime> = rows.iter().map(|row| row.at).collect();
        let times = time::resolve(&stamps).map_err(|(position, reason)| PerfmonError::Line {
            line: rows.get(position).map_or(0, |row| row.line),
            reason: reason.to_owned(),
        })?;
        self.notes.extend(times.notes);
        let mut latest = f64::NEG_INFINITY;
        let keep: Vec<bool> = times
            .seconds
            .iter()
            .map(|&at| {
                let forward = at > latest;
                latest = latest.max(at);
                forward
            })
            .collect();
        let backward_lines = keep.iter().filter(|keep| !**keep).count();
        if backward_lines > 0 {
            let count_text = format::counted(backward_lines as u64, "line");
            let line = keep.iter().position(|keep| !keep).and_then(|position| rows.get(position));
            self.notes.push(format!(
                "left out: {count_text} not later than the one before, the first of them line {}",
                line.map_or(0, |row| row.line)
            ));
        }
        let kept = |position: usize| keep.get(position).copied().unwrap_or(false);
        self.times = (0..)
            .zip(times.seconds)
            .filter(|(position, _)| kept(*position))
            .map(|(_, at)| at)
            .collect();
        for column in &mut self.columns {
            let values = std::mem::take(&mut column.values);
            column.values = (0..)
                .zip(values)
                .filter(|(position, _)| kept(*position))
                .map(|(_, value)| value)
                .collect();
        }
        Ok(())
    }

    /// Marks impossible values as missing; the first value after a reset or overflow is one.
    fn remove_impossible(&mut self) {
        let mut dropped = 0;
        let mut first: Option<(usize, &'static str)> = None;
        for column in &mut self.columns {
            let counter = column.counter;
            // The limit applies to calls and pages only; rates of bytes may be higher.
            let is_rate = column.object.kind() == Kind::Cache && !counter.is_hit_ratio();
            for (position, value) in column.values.iter_mut().enumerate() {
                let impossible = value.is_some_and(|value| {
                    value < 0.0
                        || (counter.is_hit_ratio() && value > PERCENTAGE_MAX)
                        || (is_rate && value > RATE_MAX)
                });
                if impossible {
                    *value = None;
                    dropped += 1;
                    if first.is_none_or(|(earlier, _)| position < earlier) {
                        first = Some((position, counter.english()));
                    }
                }
            }
        }
        if let Some((position, counter)) = first {
            let at = self.times.get(position).copied().map_or_else(String::new, time::format_time);
            self.notes.push(format!(
                "left out: {} that cannot be, as after a reset of the counters, the first of \
                 {counter} at {at}",
                format::counted(dropped, "value")
            ));
        }
    }

    /// Returns the column of an object without instances.
    pub(super) fn values(&self, object: Object, counter: Counter) -> Option<&[Option<f64>]> {
        self.instance(object, "", counter)
    }

    /// Returns the column of one instance.
    pub(super) fn instance(
        &self,
        object: Object,
        instance: &str,
        counter: Counter,
    ) -> Option<&[Option<f64>]> {
        let position = *self.index.get(&(object, counter))?.get(instance)?;
        Some(&self.columns[position].values)
    }

    /// Returns the instances of an object, in the order of the log.
    pub(super) fn instances(&self, object: Object) -> Vec<&str> {
        let mut known = HashSet::new();
        let of_object = self.columns.iter().filter(|column| column.object == object);
        let instances = of_object.map(|column| column.instance.as_str());
        instances.filter(|instance| known.insert(*instance)).collect()
    }
}
