//! The figures of parent and children in the words of IOzone, and the table for spreadsheets: tests
//! down, numbers of threads across, kB per second.

use super::Figure;
use std::fmt::Write as _;

const KIB: u64 = 1024;
/// The first line of the table.
const HEADING: &str = "\"Throughput report Y-axis is type of test X-axis is number of processes\"";
/// Title of the row with the numbers of threads, which IOzone leaves out.
const THREADS: &str = "threads";

fn kib(bytes: f64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "exact")]
    let kib = KIB as f64;
    bytes / kib
}

/// Returns the lines of the figures of a pass by `threads` threads that are called `who`; `None` if
/// it was not measured. Rates are bytes per second.
pub(super) fn figures_text(
    threads: u64,
    who: &str,
    value: impl Fn(Figure) -> Option<f64>,
) -> Option<String> {
    let lines = [
        (Figure::Children, format!("Children see throughput for {threads:>2} {who}")),
        (Figure::Parent, format!("Parent sees throughput for {threads:>2} {who}")),
        (Figure::ParentFlushed, "Parent sees, flushed".to_owned()),
        (Figure::Min, "Min throughput per thread".to_owned()),
        (Figure::Max, "Max throughput per thread".to_owned()),
        (Figure::Avg, "Avg throughput per thread".to_owned()),
        (Figure::MinMoved, "Min xfer".to_owned()),
    ];
    value(Figure::Children)?;
    let mut text = String::new();
    for (figure, what) in lines {
        let Some(value) = value(figure) else { continue };
        let unit = if figure == Figure::MinMoved { "kB" } else { "kB/sec" };
        writeln!(text, "{what:<48} = {:>15.2} {unit}", kib(value))
            .expect("a string takes everything");
    }
    Some(text)
}

/// Returns the table of rates in bytes per second, `None` if not measured, with an empty line
/// before it. A row has the name of a test, and its rate with each number of threads.
pub(super) fn table_text(
    record_bytes: u64,
    threads: &[u64],
    rows: &[(&str, Vec<Option<f64>>)],
) -> String {
    let mut text = format!(
        "\n{HEADING}\n\"Record size = {} kBytes \"\n\"Output is in kBytes/sec\"\n\n",
        record_bytes / KIB
    );
    let mut add_row = |name: &str, cells: &mut dyn Iterator<Item = String>| {
        write!(text, "\"{name:>16} \"").expect("a string takes everything");
        for cell in cells {
            write!(text, " {cell:>14}").expect("a string takes everything");
        }
        text.push('\n');
    };
    add_row(THREADS, &mut threads.iter().map(ToString::to_string));
    for (test, rates) in rows {
        let shown =
            |rate: &Option<f64>| rate.map_or("-".to_owned(), |rate| format!("{:.2}", kib(rate)));
        add_row(test, &mut rates.iter().map(shown));
    }
    text
}
