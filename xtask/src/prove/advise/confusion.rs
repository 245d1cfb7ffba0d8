//! Confusion tables: the best candidate in the rows, the advised one in the columns.

use super::super::prelude::*;
use crate::record::Record;
use std::collections::{BTreeMap, BTreeSet};

/// Number of cases by the best and the advised candidate.
#[derive(Debug, Default)]
pub(super) struct Confusion {
    counts: BTreeMap<(String, String), u32>,
}

impl Confusion {
    pub(super) fn add(&mut self, best: &str, advised: &str) {
        *self.counts.entry((best.to_owned(), advised.to_owned())).or_default() += 1;
    }

    /// Prints the table of `subject`, and adds its cells to a record.
    pub(super) fn finish(&self, subject: &str, record: &mut Record) {
        let columns: BTreeSet<&String> = self.counts.keys().map(|(_, advised)| advised).collect();
        let rows: BTreeSet<&String> = self.counts.keys().map(|(best, _)| best).collect();
        let line = |first: &str, cells: Vec<String>| {
            let cells: Vec<String> = cells.iter().map(|cell| format!("{cell:>10}")).collect();
            let cells = cells.concat();
            outln!("   {first:<24}{cells}");
        };
        line(&format!("{subject}: best, advised"), columns.iter().copied().cloned().collect());
        for row in rows {
            let count = |column: &&String| {
                let cell = self.counts.get(&(row.clone(), (*column).clone()));
                cell.copied().unwrap_or_default().to_string()
            };
            line(row, columns.iter().map(count).collect());
        }
        for ((best, advised), count) in &self.counts {
            let name = format!("{subject}: best {best}, advised {advised}");
            record.series(&name, "cases", &[f64::from(*count)], 0);
        }
    }
}
