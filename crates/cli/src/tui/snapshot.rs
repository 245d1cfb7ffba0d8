//! What was seen at one moment: a grid for each view, with columns of the eye's choice.

use larder_report::{escape, format};
use serde_json::{Value as Json, json};
use std::cmp::Ordering;

/// How many views there are.
pub(crate) const VIEWS: usize = 5;

/// What can be looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum View {
    Files,
    Processes,
    Disks,
    Caches,
    /// Files by the processes that use them.
    Uses,
}

impl View {
    /// All of them, in the order of their keys 1 to 5.
    pub(crate) const ALL: [View; VIEWS] =
        [View::Files, View::Processes, View::Disks, View::Caches, View::Uses];

    pub(crate) fn name(self) -> &'static str {
        match self {
            View::Files => "files",
            View::Processes => "processes",
            View::Disks => "disks",
            View::Caches => "caches",
            View::Uses => "uses",
        }
    }

    pub(crate) fn place(self) -> usize {
        View::ALL.iter().position(|view| *view == self).expect("it is one of them")
    }
}

/// A value with its unit.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    Word(String),
    Bytes(u64),
    /// So many in a second.
    Rate(f64),
    /// Bytes in a second.
    ByteRate(f64),
    /// A number without a unit.
    Number(f64),
    /// From 0 to 1, or more where several things go on at once.
    Share(f64),
    /// Nanoseconds.
    Time(f64),
    Missing,
}

impl Value {
    /// For people.
    pub(crate) fn shown(&self) -> String {
        match self {
            Value::Word(word) => escape::text(word).into_owned(),
            Value::Bytes(bytes) => format::bytes(*bytes),
            Value::Rate(rate) | Value::Number(rate) => format::number(*rate),
            Value::ByteRate(rate) => format::byte_rate(*rate),
            Value::Share(share) => format::percent(*share),
            Value::Time(ns) => {
                #[expect(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "saturates"
                )]
                let whole = ns.round() as u64;
                format::duration(whole)
            }
            Value::Missing => "-".to_owned(),
        }
    }

    /// For programs.
    fn json(&self) -> Json {
        match self {
            Value::Word(word) => json!(word),
            Value::Bytes(bytes) => json!(bytes),
            Value::Rate(value)
            | Value::ByteRate(value)
            | Value::Number(value)
            | Value::Share(value)
            | Value::Time(value) => json!(value),
            Value::Missing => Json::Null,
        }
    }

    fn number(&self) -> Option<f64> {
        match self {
            #[expect(clippy::cast_precision_loss, reason = "to be compared")]
            Value::Bytes(bytes) => Some(*bytes as f64),
            Value::Rate(value)
            | Value::ByteRate(value)
            | Value::Number(value)
            | Value::Share(value)
            | Value::Time(value) => Some(*value),
            Value::Word(_) | Value::Missing => None,
        }
    }

    /// Words by the alphabet, numbers the largest first, what is missing last.
    pub(crate) fn order(&self, other: &Value) -> Ordering {
        match (self, other) {
            (Value::Word(a), Value::Word(b)) => a.cmp(b),
            _ => match (self.number(), other.number()) {
                (Some(a), Some(b)) => b.total_cmp(&a),
                (a, b) => b.is_some().cmp(&a.is_some()),
            },
        }
    }

    pub(crate) fn is_word(&self) -> bool {
        matches!(self, Value::Word(_))
    }
}

/// What one view shows. Columns come in the order of their weight: where there is no room, the last
/// ones are left out.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Grid {
    pub(crate) columns: Vec<&'static str>,
    /// The column that rows are sorted by as long as nobody chooses another.
    pub(crate) sort: usize,
    /// One value for each column.
    pub(crate) rows: Vec<Vec<Value>>,
    /// What is to be said instead of rows, or beside them.
    pub(crate) note: Option<String>,
    /// A column, and what is to be said of it where it is shown.
    pub(crate) of_column: Option<(&'static str, &'static str)>,
}

/// A moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct TopSnapshot {
    /// Seconds since the first one.
    pub(crate) at_s: f64,
    /// Memory in one line, nothing if it is not known.
    pub(crate) memory: String,
    /// By the place of the view.
    pub(crate) grids: [Grid; VIEWS],
}

impl TopSnapshot {
    /// What a view shows.
    pub(crate) fn grid(&self, view: View) -> &Grid {
        &self.grids[view.place()]
    }

    /// One line of a recording.
    pub(crate) fn to_json(&self) -> Json {
        let mut all = json!({ "schema": "larder-top", "version": 1, "at_s": self.at_s });
        for (view, grid) in View::ALL.iter().zip(&self.grids) {
            let rows: Vec<Json> = grid
                .rows
                .iter()
                .map(|row| {
                    let pairs = grid.columns.iter().zip(row);
                    pairs.map(|(column, value)| ((*column).to_owned(), value.json())).collect()
                })
                .collect();
            all[view.name()] = Json::Array(rows);
        }
        all
    }
}

/// Whoever looks at the machine.
pub(crate) trait Collector {
    /// What is to be seen now; rates are those since the last time. What costs the machine
    /// something is looked for only once its view was wanted.
    fn collect(&mut self, view: View) -> TopSnapshot;

    /// To be called every few milliseconds.
    fn step(&mut self);
}
