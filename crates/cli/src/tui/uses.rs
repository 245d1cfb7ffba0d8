//! File accesses by process, and their hits, from kernel tracing. Tracing requires root and slows
//! down reads from memory slightly, so it starts when its view is first shown.

use super::snapshot::{Grid, Value};
use crate::colors;
use larder_host::residency;
use larder_host::watch::{Options, Watcher};
use larder_schema::watch::{Interval, Row};
use larder_schema::{as_f64, format};

/// Maximum number of rows per interval.
const ROWS_MAX: usize = 500;
const COLUMNS: [&str; 9] =
    ["file", "read", "hits", "missed", "used by", "from disk", "to disk", "dirtied", "read-ahead"];

/// A tracer of file accesses, or the reason for its failure.
#[derive(Debug, Default)]
pub(super) enum UseTracer {
    #[default]
    Idle,
    /// The tracer, and the hit ratios of the last intervals.
    Tracing(Box<Watcher>, Vec<f64>),
    Unavailable(String),
}

impl UseTracer {
    /// Starts tracing, unless it runs or has failed.
    pub(super) fn begin(&mut self) {
        if !matches!(self, UseTracer::Idle) {
            return;
        }
        *self = match Watcher::start(Options { rows_max: ROWS_MAX, ..Options::default() }) {
            Ok(watcher) if watcher.sees_events() => {
                UseTracer::Tracing(Box::new(watcher), Vec::new())
            }
            Ok(watcher) => {
                UseTracer::Unavailable(format!("Not to be seen: {}.", watcher.missing().join("; ")))
            }
            Err(error) => UseTracer::Unavailable(format!("Failed to {error}.")),
        };
    }

    /// Reads the pending events of the kernel.
    pub(super) fn step(&mut self) {
        if let UseTracer::Tracing(watcher, _) = self
            && let Err(error) = watcher.step(|_, _| ())
        {
            *self = UseTracer::Unavailable(format!("Failed to {error}."));
        }
    }

    /// Returns the accesses since the previous call.
    pub(super) fn refresh(&mut self) -> Grid {
        self.step();
        match self {
            UseTracer::Tracing(watcher, trend) => {
                let interval = watcher.interval();
                colors::extend_trend(trend, interval.sum.hit_ratio());
                let grid = grid(interval, trend);
                watcher.forget_intervals();
                grid
            }
            UseTracer::Idle => empty("This is seen by tracing, which begins with this view."),
            UseTracer::Unavailable(reason) => empty(reason),
        }
    }
}

fn empty(note: &str) -> Grid {
    Grid { columns: COLUMNS.to_vec(), sort: 1, note: Some(note.to_owned()), ..Grid::default() }
}

fn grid(interval: &Interval, trend: &[f64]) -> Grid {
    let page_bytes = residency::page_bytes();
    let per_s =
        |bytes: u64| Value::ByteRate(as_f64(bytes) * 1e9 / as_f64(interval.duration_ns.max(1)));
    let share =
        |part, whole| larder_schema::share(part, whole).map_or(Value::Missing, Value::Share);
    let row = |row: &Row| {
        let it = &row.counts;
        vec![
            Value::Word(row.file.clone()),
            per_s(it.read_pages * page_bytes),
            it.hit_ratio().map_or(Value::Missing, Value::Share),
            per_s(it.miss_pages * page_bytes),
            Value::Word(if row.pid == 0 {
                row.process.clone()
            } else {
                format!("{} ({})", row.process, row.pid)
            }),
            per_s(it.disk_read_bytes),
            per_s(it.disk_write_bytes + it.disk_lazy_write_bytes),
            per_s(it.dirtied_pages * page_bytes),
            share(it.read_ahead_hit_pages, it.read_pages),
        ]
    };
    let lost = interval.lost_events;
    let note = if lost > 0 {
        format!("{lost} events were lost, so there is more than is shown.")
    } else if let Some(ratio) = interval.sum.hit_ratio() {
        let (ratio, trend) = (format::percent(ratio), colors::spark_line(trend));
        format!("Through the cache of this machine: {ratio} of the read pages were hits, {trend}.")
    } else {
        "Through the cache of this machine.".to_owned()
    };
    let rows = interval.rows.iter().map(row).collect();
    let column_note = Some((
        "to disk",
        "To disk: bytes written back on behalf of the task that made them dirty.",
    ));
    Grid { columns: COLUMNS.to_vec(), sort: 1, rows, note: Some(note), column_note }
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_schema::watch::Counts;

    #[test]
    fn rows_become_rates_and_shares() {
        let counts = Counts {
            read_pages: 100,
            hit_pages: 40,
            read_ahead_hit_pages: 50,
            miss_pages: 10,
            ..Counts::default()
        };
        let of =
            |pid| Row { file: "/a".into(), process: "p".into(), pid, counts, ..Row::default() };
        let rows = vec![of(7), of(0)];
        let interval = Interval { duration_ns: 2_000_000_000, rows, ..Interval::default() };
        let grid = grid(&interval, &[]);
        assert!(grid.rows.iter().all(|row| row.len() == grid.columns.len()));
        let cells: Vec<String> = grid.rows[0].iter().map(Value::to_text).collect();
        assert_eq!(cells[..5], ["/a", "200 KiB/s", "90.0 %", "20 KiB/s", "p (7)"]);
        assert_eq!((grid.rows[1][4].to_text(), cells[8].as_str()), ("p".to_owned(), "50.0 %"));
    }

    #[test]
    fn it_says_why_there_is_nothing() {
        let mut tracer = UseTracer::default();
        assert!(tracer.refresh().note.is_some_and(|note| note.contains("begins with this view")));
        tracer = UseTracer::Unavailable("Not to be seen: it is dark.".to_owned());
        tracer.begin();
        assert_eq!(tracer.refresh().note.as_deref(), Some("Not to be seen: it is dark."));
    }
}
