//! A log as numbers: times, and a column for each counter that is known.
//!
//! Invariants: every column has a value, or none, for each line. A line that has too few or too
//! many fields, or a field that is no number, is an error with its place. What no counter can be
//! (less than nothing, more than all) is taken for missing and counted: that is how a counter that
//! began anew shows itself.

use super::columns::Path;
use super::counters::{Counter, Kind, Object};
use super::number::{self, Decimal, Shows};
use super::time::{self, Stamp};
use super::{Names, PerfmonError, text};
use crate::format;

/// Calls per second beyond which a counter has run over or begun anew: a 32-bit counter that goes
/// back by one appears as 4,294,967,295.
const RATE_MAX: f64 = 1e9;
/// A percentage above this is more than all; Perfmon writes 100.00000001 as well.
const ALL: f64 = 100.01;

/// How a log is to be read.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options<'a> {
    /// The names of the counters on that machine, if they are in a language that is not known.
    pub names: Option<&'a Names>,
    /// What stands before decimals, if the log does not show it.
    pub decimal: Option<Decimal>,
}

/// One counter of one instance.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Column {
    pub(super) object: Object,
    pub(super) instance: String,
    pub(super) counter: Counter,
    pub(super) values: Vec<Option<f64>>,
}

/// A log.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Log {
    pub(super) host: String,
    /// The language of its headings.
    pub(super) language: String,
    /// Seconds since 1970, rising.
    pub(super) times: Vec<f64>,
    pub(super) columns: Vec<Column>,
    /// Headings of the objects that are known whose counters are not.
    pub(super) unknown: Vec<(Kind, String)>,
    pub(super) notes: Vec<String>,
}

/// The lines of a log as fields.
struct Lines {
    /// What the first line says, without the column of times.
    headings: Vec<String>,
    /// Number of the line in the file, time, the other fields.
    rows: Vec<(u64, String, Vec<String>)>,
}

pub(super) fn read(bytes: &[u8], options: &Options<'_>) -> Result<Log, PerfmonError> {
    let lines = split(&text::decode(bytes))?;
    let mut log = Log {
        host: String::new(),
        language: "English".to_owned(),
        times: Vec::new(),
        columns: Vec::new(),
        unknown: Vec::new(),
        notes: Vec::new(),
    };
    let places = log.take_headings(&lines.headings, options);
    if places.is_empty() {
        return Err(PerfmonError::NothingKnown { headings: examples(&lines.headings) });
    }
    if lines.rows.is_empty() {
        return Err(PerfmonError::NoSamples);
    }
    let decimal = match options.decimal {
        Some(decimal) => decimal,
        None => told(&lines, &places)?,
    };
    for (place, column) in places.iter().zip(&mut log.columns) {
        let heading = &lines.headings[*place];
        for (line, _, fields) in &lines.rows {
            let field = fields[*place].as_str();
            let value = number::parse(field, decimal).map_err(|()| PerfmonError::Line {
                line: *line,
                reason: format!("{field:?} of {heading} is not a number"),
            })?;
            column.values.push(value);
        }
    }
    log.take_times(&lines)?;
    log.drop_impossible();
    Ok(log)
}

/// The first three headings, for a message.
fn examples(headings: &[String]) -> String {
    let some: Vec<&str> = headings.iter().take(3).map(String::as_str).collect();
    some.join(", ")
}

/// Finds the line of a place in the text; places come in their order.
struct LineOf<'a> {
    text: &'a str,
    byte: usize,
    line: u64,
}

impl LineOf<'_> {
    /// The parser's own numbers are those of the line end before the record.
    fn at(&mut self, place: Option<&csv::Position>) -> u64 {
        let begin = place.and_then(|place| usize::try_from(place.byte()).ok()).unwrap_or(self.byte);
        let ends = |byte: &u8| *byte == b'\n' || *byte == b'\r';
        let rest = self.text.as_bytes().get(begin..).unwrap_or_default();
        let begin = begin + rest.iter().take_while(|byte| ends(byte)).count();
        let between = self.text.as_bytes().get(self.byte..begin).unwrap_or_default();
        self.line += between.split(|byte| *byte == b'\n').skip(1).count() as u64;
        self.byte = begin.max(self.byte);
        self.line
    }
}

/// Lines into fields. The separator is what follows the first heading.
fn split(text: &str) -> Result<Lines, PerfmonError> {
    let first = text.lines().next().unwrap_or_default();
    let begin = first.trim_start_matches('"');
    if !begin.starts_with("(PDH-CSV") && !begin.starts_with("(PDH-TSV") {
        return Err(PerfmonError::NoLog);
    }
    let outside = first.split('"').step_by(2).collect::<String>();
    let separator = *b",;\t"
        .iter()
        .max_by_key(|separator| outside.bytes().filter(|byte| byte == *separator).count())
        .expect("three of them");
    let mut reader = csv::ReaderBuilder::new()
        .delimiter(separator)
        .has_headers(false)
        .flexible(true)
        .from_reader(text.as_bytes());
    let mut headings: Option<Vec<String>> = None;
    let mut rows = Vec::new();
    let mut lines = LineOf { text, byte: 0, line: 1 };
    for record in reader.records() {
        let record = record.map_err(|error| PerfmonError::Line {
            line: lines.at(error.position()),
            reason: error.to_string(),
        })?;
        let line = lines.at(record.position());
        let mut fields: Vec<String> = record.iter().map(str::to_owned).collect();
        let Some(headings) = &headings else {
            fields.remove(0);
            headings = Some(fields);
            continue;
        };
        // relog ends some lines with a separator.
        let spare =
            fields.len() == headings.len() + 2 && fields.last().is_some_and(String::is_empty);
        fields.truncate(fields.len() - usize::from(spare));
        if fields.iter().all(|field| field.trim().is_empty()) {
            continue;
        }
        if fields.len() != headings.len() + 1 {
            return Err(PerfmonError::Line {
                line,
                reason: format!(
                    "it has {} fields and the first line {}",
                    fields.len(),
                    headings.len() + 1
                ),
            });
        }
        let at = fields.remove(0);
        rows.push((line, at, fields));
    }
    Ok(Lines { headings: headings.unwrap_or_default(), rows })
}

/// What stands before the decimals of this log.
fn told(lines: &Lines, places: &[usize]) -> Result<Decimal, PerfmonError> {
    let mut either = None;
    let mut only = None;
    for (line, _, fields) in &lines.rows {
        for place in places {
            match number::shows(fields[*place].trim()) {
                Shows::Only(decimal) if only.is_some_and(|(known, _)| known != decimal) => {
                    return Err(PerfmonError::Line {
                        line: *line,
                        reason: format!(
                            "{:?} is written otherwise than the number in line {}",
                            fields[*place],
                            only.map_or(0, |(_, first)| first)
                        ),
                    });
                }
                Shows::Only(decimal) => only = only.or(Some((decimal, *line))),
                Shows::Either => either = either.or(Some((*line, fields[*place].clone()))),
                Shows::Nothing => {}
            }
        }
    }
    match (only, either) {
        (Some((decimal, _)), _) => Ok(decimal),
        (None, Some((line, field))) => Err(PerfmonError::Line {
            line,
            reason: format!(
                "{field:?} may have decimals or thousands, and nothing else shows which"
            ),
        }),
        (None, None) => Ok(Decimal::Point),
    }
}

impl Log {
    /// Makes a column for each known heading; answers where they are in the lines.
    fn take_headings(&mut self, headings: &[String], options: &Options<'_>) -> Vec<usize> {
        let mut places = Vec::new();
        let mut languages: Vec<&str> = Vec::new();
        let mut hosts: Vec<&str> = Vec::new();
        for (place, heading) in headings.iter().enumerate() {
            let Some(path) = Path::parse(heading) else { continue };
            let Some(object) = path.object(options.names) else { continue };
            let Some((counter, language)) = path.counter(object, options.names) else {
                self.unknown.push((object.kind(), heading.clone()));
                continue;
            };
            if !hosts.contains(&path.host) {
                hosts.push(path.host);
            }
            // Only the first machine of a log is told about.
            if hosts.first() != Some(&path.host) {
                continue;
            }
            languages.extend(language);
            let instance = path.instance.to_owned();
            let known =
                |c: &Column| (c.object, c.counter) == (object, counter) && c.instance == instance;
            if self.columns.iter().any(known) {
                continue;
            }
            self.columns.push(Column { object, instance, counter, values: Vec::new() });
            places.push(place);
        }
        if let [first, others @ ..] = hosts.as_slice()
            && !others.is_empty()
        {
            let others = others.join(", ");
            self.notes.push(format!(
                "the log is of several machines; {others} is left out, only {first} is told about"
            ));
        }
        self.host = hosts.first().map_or_else(String::new, |host| (*host).to_owned());
        if options.names.is_some() {
            "as listed".clone_into(&mut self.language);
        } else if let Some(language) = languages.first() {
            (*language).clone_into(&mut self.language);
        }
        places
    }

    /// Puts lines on one clock; those whose time goes back are left out.
    fn take_times(&mut self, lines: &Lines) -> Result<(), PerfmonError> {
        let mut stamps = Vec::with_capacity(lines.rows.len());
        for (line, at, _) in &lines.rows {
            stamps.push(Stamp::parse(at).ok_or_else(|| PerfmonError::Line {
                line: *line,
                reason: format!("{at:?} is not a time"),
            })?);
        }
        let times = time::resolve(&stamps).map_err(|(place, reason)| PerfmonError::Line {
            line: lines.rows.get(place).map_or(0, |row| row.0),
            reason: format!("{:?}: {reason}", lines.rows.get(place).map_or("", |row| &row.1)),
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
        let back = keep.iter().filter(|keep| !**keep).count();
        if back > 0 {
            let lines_back = format::counted(back as u64, "line");
            let line = keep.iter().position(|keep| !keep).and_then(|place| lines.rows.get(place));
            self.notes.push(format!(
                "left out: {lines_back} not later than the one before, the first of them line {}",
                line.map_or(0, |row| row.0)
            ));
        }
        let kept = |place: usize| keep.get(place).copied().unwrap_or(false);
        self.times =
            (0..).zip(times.seconds).filter(|(place, _)| kept(*place)).map(|(_, at)| at).collect();
        for column in &mut self.columns {
            let values = std::mem::take(&mut column.values);
            column.values = (0..)
                .zip(values)
                .filter(|(place, _)| kept(*place))
                .map(|(_, value)| value)
                .collect();
        }
        Ok(())
    }

    /// What no counter can be is missing: after a reset or an overflow the first value is such.
    fn drop_impossible(&mut self) {
        let mut dropped = 0;
        let mut first: Option<(usize, &'static str)> = None;
        for column in &mut self.columns {
            let counter = column.counter;
            // Bytes may be many; only what is counted in calls and pages has this bound.
            let is_rate = column.object.kind() == Kind::Cache && !counter.is_percentage();
            for (place, value) in column.values.iter_mut().enumerate() {
                let impossible = value.is_some_and(|value| {
                    value < 0.0
                        || (counter.is_percentage() && value > ALL)
                        || (is_rate && value > RATE_MAX)
                });
                if impossible {
                    *value = None;
                    dropped += 1;
                    if first.is_none_or(|(earlier, _)| place < earlier) {
                        first = Some((place, counter.english()));
                    }
                }
            }
        }
        if let Some((place, counter)) = first {
            let at = self.times.get(place).copied().map_or_else(String::new, time::show);
            self.notes.push(format!(
                "left out: {} that cannot be, as after a reset of the counters, the first of \
                 {counter} at {at}",
                format::counted(dropped, "value")
            ));
        }
    }

    /// A column of an object without instances.
    pub(super) fn values(&self, object: Object, counter: Counter) -> Option<&[Option<f64>]> {
        self.instance(object, "", counter)
    }

    /// A column of one instance.
    pub(super) fn instance(
        &self,
        object: Object,
        instance: &str,
        counter: Counter,
    ) -> Option<&[Option<f64>]> {
        let is = |c: &&Column| (c.object, c.counter) == (object, counter) && c.instance == instance;
        self.columns.iter().find(is).map(|column| column.values.as_slice())
    }

    /// The instances of an object, in the order of the log.
    pub(super) fn instances(&self, object: Object) -> Vec<&str> {
        let mut instances: Vec<&str> = Vec::new();
        for column in self.columns.iter().filter(|column| column.object == object) {
            if !instances.contains(&column.instance.as_str()) {
                instances.push(&column.instance);
            }
        }
        instances
    }
}
