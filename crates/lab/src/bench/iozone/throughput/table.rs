//! The figures of parent and children in the words of IOzone, and the table for spreadsheets: tests
//! down, numbers of threads across, kB per second.

use std::fmt::Write as _;

const KIB: u64 = 1024;
/// Text of a value that was not measured.
const NOT_MEASURED: &str = "-";
/// The first line of the table.
const HEADING: &str = "\"Throughput report Y-axis is type of test X-axis is number of processes\"";
/// Title of the row with the numbers of threads, which IOzone leaves out.
const THREADS: &str = "threads";

/// Figures of parent and children for one pass. Rates are bytes per second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Seen {
    /// Name of the threads.
    pub who: &'static str,
    /// Number of threads.
    pub threads: u64,
    /// The sum of their rates.
    pub children: f64,
    /// All bytes divided by the time from the first begin to the last end.
    pub parent: f64,
    /// The same including the flush, for passes that write.
    pub parent_flushed: Option<f64>,
    /// The rate of the slowest thread.
    pub min: f64,
    /// The rate of the fastest thread.
    pub max: f64,
    /// The mean rate.
    pub avg: f64,
    /// Minimum number of bytes that a thread moved.
    pub min_moved: f64,
}

fn kib(bytes: f64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "exact")]
    let kib = KIB as f64;
    bytes / kib
}

impl Seen {
    /// Returns the lines of text.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut lines = vec![
            (
                format!("Children see throughput for {:>2} {}", self.threads, self.who),
                self.children,
            ),
            (format!("Parent sees throughput for {:>2} {}", self.threads, self.who), self.parent),
        ];
        let flushed = self.parent_flushed.map(|rate| ("Parent sees, flushed".to_owned(), rate));
        lines.extend(flushed);
        let threads = [("Min", self.min), ("Max", self.max), ("Avg", self.avg)];
        lines.extend(threads.map(|(what, rate)| (format!("{what} throughput per thread"), rate)));
        let mut text = String::new();
        for (what, rate) in lines {
            writeln!(text, "{what:<48} = {:>15.2} kB/sec", kib(rate))
                .expect("a string takes everything");
        }
        writeln!(text, "{:<48} = {:>15.2} kB", "Min xfer", kib(self.min_moved))
            .expect("a string takes everything");
        text
    }
}

/// The table. Rates are bytes per second; `None` if not measured.
#[derive(Clone, Debug, PartialEq)]
pub struct ThroughputTable {
    /// Bytes of a record.
    pub record_bytes: u64,
    /// Numbers of threads.
    pub threads: Vec<u64>,
    /// The name of a test, and its rate with each number of threads.
    pub rows: Vec<(String, Vec<Option<f64>>)>,
}

impl ThroughputTable {
    /// Returns the text, with an empty line before it.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut text = format!(
            "\n{HEADING}\n\"Record size = {} kBytes \"\n\"Output is in kBytes/sec\"\n\n",
            self.record_bytes / KIB
        );
        let name = |name: &str| format!("\"{name:>16} \"");
        text.push_str(&name(THREADS));
        for threads in &self.threads {
            write!(text, " {threads:>14}").expect("a string takes everything");
        }
        text.push('\n');
        for (test, rates) in &self.rows {
            text.push_str(&name(test));
            for rate in rates {
                let shown =
                    rate.map_or(NOT_MEASURED.to_owned(), |rate| format!("{:.2}", kib(rate)));
                write!(text, " {shown:>14}").expect("a string takes everything");
            }
            text.push('\n');
        }
        text
    }
}
