//! The state of the machine at one moment: a grid for each view.

use crate::colors;
use clap::ValueEnum;
use larder_report::escape;
use larder_schema::format;
use larder_schema::{as_f64, as_u64};
use serde_json::{Value as Json, json};
use std::cmp::Ordering;

pub(crate) const VIEWS: usize = 5;

/// A view of the machine, in the order of the keys 1 to 5.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum View {
    /// Open files and their resident parts.
    Files,
    /// Reads and writes of processes.
    Processes,
    /// Disk activity.
    Disks,
    /// Caches that larder serves on this machine.
    Caches,
    /// Files by process, with hit ratios; needs root.
    Uses,
}

impl View {
    pub(crate) fn name(self) -> String {
        let name = self.to_possible_value().expect("no view is hidden");
        name.get_name().to_owned()
    }

    pub(crate) fn index(self) -> usize {
        self as usize
    }

    /// Returns the view that follows `count` views later; the first follows the last.
    pub(super) fn later(self, count: usize) -> View {
        View::value_variants()[(self.index() + count) % VIEWS]
    }
}

/// A value with its unit.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    Word(String),
    Bytes(u64),
    /// Events per second.
    Rate(f64),
    /// Bytes per second.
    ByteRate(f64),
    /// A number without a unit.
    Number(f64),
    /// A fraction from 0 to 1; above 1 if several operations overlap.
    Share(f64),
    /// Nanoseconds.
    Time(f64),
    /// Hit ratios of the last intervals; not part of a recording, which has all of them.
    Trend(Vec<f64>),
    Missing,
}

impl Value {
    /// Formats the value for people.
    pub(crate) fn to_text(&self) -> String {
        match self {
            Value::Word(word) => escape::text(word).into_owned(),
            Value::Bytes(bytes) => format::bytes(*bytes),
            Value::Rate(rate) | Value::Number(rate) => format::number(*rate),
            Value::ByteRate(rate) => format::byte_rate(*rate),
            Value::Share(share) => format::percent(*share),
            Value::Time(ns) => format::duration(as_u64(*ns)),
            // As wide as a full trend, so that the columns stay in their places.
            Value::Trend(ratios) => {
                format!("{:>width$}", colors::spark_line(ratios), width = colors::TREND_MAX)
            }
            Value::Missing => "-".to_owned(),
        }
    }

    /// Returns the value for programs.
    fn json(&self) -> Json {
        match self {
            Value::Word(word) => json!(word),
            Value::Bytes(bytes) => json!(bytes),
            other => json!(other.number()),
        }
    }

    fn number(&self) -> Option<f64> {
        match self {
            Value::Bytes(bytes) => Some(as_f64(*bytes)),
            Value::Rate(value)
            | Value::ByteRate(value)
            | Value::Number(value)
            | Value::Share(value)
            | Value::Time(value) => Some(*value),
            Value::Word(_) | Value::Trend(_) | Value::Missing => None,
        }
    }

    /// Orders words alphabetically, numbers in descending order, missing values last.
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

/// The table of one view. Columns are in order of importance: the last ones are left out if they do
/// not fit.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Grid {
    pub(crate) columns: Vec<&'static str>,
    /// The sort column until the user selects another.
    pub(crate) sort: usize,
    /// One value for each column.
    pub(crate) rows: Vec<Vec<Value>>,
    /// A note that is shown below the rows, or instead of them.
    pub(crate) note: Option<String>,
    /// A column, and a note that is shown while the column is visible.
    pub(crate) column_note: Option<(&'static str, &'static str)>,
}

/// The state of the machine at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct TopSnapshot {
    /// Seconds since the first snapshot.
    pub(crate) at_s: f64,
    /// Memory in one line; empty if unknown.
    pub(crate) memory: String,
    /// Grids, indexed by view.
    pub(crate) grids: [Grid; VIEWS],
}

impl TopSnapshot {
    pub(crate) fn grid(&self, view: View) -> &Grid {
        &self.grids[view.index()]
    }

    /// Returns one line of a recording.
    pub(crate) fn to_json(&self) -> Json {
        let mut all = json!({ "schema": "larder-top", "version": 1, "at_s": self.at_s });
        for (view, grid) in View::value_variants().iter().zip(&self.grids) {
            let object = |row: &Vec<Value>| -> Json {
                let pairs = grid.columns.iter().zip(row);
                let pairs = pairs.filter(|(_, value)| !matches!(value, Value::Trend(_)));
                pairs.map(|(column, value)| ((*column).to_owned(), value.json())).collect()
            };
            all[view.name()] = grid.rows.iter().map(object).collect();
        }
        all
    }
}
