//! The reports of the original, byte for byte.
//!
//! Invariants: rates of the verbose report are whole numbers, truncated; those of the terse report,
//! and all rates of bytes, are in single precision. Times are whole seconds, never 0. Byte rates
//! are over the total time, those of reads and appends over the time of the transactions.

use super::config::Config;
use super::counts::Counts;
use std::fmt::Write;

/// Whole seconds that a run took; each is at least 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Seconds {
    /// From the first creation to the last deletion.
    pub(super) total: u64,
    /// The transactions alone.
    pub(super) transactions: u64,
    /// The creation before the transactions.
    pub(super) creation: u64,
    /// The deletion after the transactions.
    pub(super) deletion: u64,
}

/// Returns the report in the configured format.
pub(super) fn report(config: &Config, counts: &Counts, seconds: Seconds) -> String {
    let format = if config.is_verbose { verbose } else { terse };
    format(config, counts, seconds)
}

fn verbose(config: &Config, counts: &Counts, seconds: Seconds) -> String {
    let Seconds { total, transactions, creation, deletion } = seconds;
    let mut text = String::new();
    let mut line = |indent: usize, what: &str| {
        let indent = "\t".repeat(indent);
        writeln!(text, "{indent}{what}").expect("memory takes every byte");
    };
    let some =
        |count: u64, verb: &str, over: u64| format!("{count} {verb} ({} per second)", count / over);
    let alone = |phase: &str, files: u64, over: u64| {
        format!("{phase} alone: {files} files ({} per second)", files / over)
    };
    let mixed = |files: u64| {
        format!("Mixed with transactions: {files} files ({} per second)", files / transactions)
    };
    let number = u64::from(config.number);
    line(0, "Time:");
    line(1, &format!("{total} seconds total"));
    let rate = u64::from(config.transactions) / transactions;
    line(1, &format!("{transactions} seconds of transactions ({rate} per second)"));
    line(0, "");
    line(0, "Files:");
    line(1, &some(counts.created, "created", total));
    line(2, &alone("Creation", number, creation));
    line(2, &mixed(counts.created.saturating_sub(number)));
    line(1, &some(counts.read, "read", transactions));
    line(1, &some(counts.appended, "appended", transactions));
    line(1, &some(counts.deleted, "deleted", total));
    line(2, &alone("Deletion", counts.deleted_at_end, deletion));
    line(2, &mixed(counts.deleted - counts.deleted_at_end));
    line(0, "");
    line(0, "Data:");
    for (sum, verb) in [(counts.bytes_read, "read"), (counts.bytes_written, "written")] {
        let rate = scaled(sum.single / single(total));
        line(1, &format!("{} {verb} ({rate} per second)", scaled(sum.single)));
    }
    text
}

fn terse(config: &Config, counts: &Counts, seconds: Seconds) -> String {
    let Seconds { total, transactions, creation, deletion } = seconds;
    let number = u64::from(config.number);
    let rates = [
        (u64::from(config.transactions), transactions),
        (counts.created, total),
        (number, creation),
        (counts.created.saturating_sub(number), transactions),
        (counts.read, transactions),
        (counts.appended, transactions),
        (counts.deleted, total),
        (counts.deleted_at_end, deletion),
        (counts.deleted - counts.deleted_at_end, transactions),
    ];
    let mut text = format!("{total} {transactions}");
    let bytes = [counts.bytes_read.single, counts.bytes_written.single];
    let rates = rates.into_iter().map(|(count, over)| single(count) / single(over));
    for rate in rates.chain(bytes.map(|bytes| bytes / single(total))) {
        write!(text, " {rate:.2}").expect("memory takes every byte");
    }
    text.push('\n');
    text
}

#[expect(clippy::cast_precision_loss, reason = "the original calculates in single precision")]
fn single(count: u64) -> f32 {
    count as f32
}

/// Formats a number or rate of bytes in the unit that the original chooses. Exactly one megabyte is
/// 1024.00 kilobytes, and less than a kilobyte is a fraction of one.
fn scaled(bytes: f32) -> String {
    if bytes / 1_048_576.0 > 1.0 {
        format!("{:.2} megabytes", bytes / 1_048_576.0)
    } else if bytes > 0.0 {
        format!("{:.2} kilobytes", bytes / 1024.0)
    } else {
        "0.000000 bytes".to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::super::counts::Sum;
    use super::*;

    const SECOND: Seconds = Seconds { total: 1, transactions: 1, creation: 1, deletion: 1 };

    fn sum(bytes: u64) -> Sum {
        Sum { bytes, single: single(bytes) }
    }

    /// Returns the configuration with number 100 and other defaults, and its counts.
    fn hundred() -> (Config, Counts) {
        let counts = Counts {
            created: 349,
            deleted: 349,
            deleted_at_end: 98,
            read: 252,
            appended: 248,
            bytes_read: sum(1_719_418),
            bytes_written: sum(2_292_558),
            transactions: 500,
        };
        (Config { number: 100, ..Config::default() }, counts)
    }

    #[test]
    fn the_terse_report_has_thirteen_numbers() {
        let (mut config, counts) = hundred();
        config.is_verbose = false;
        assert_eq!(
            report(&config, &counts, SECOND),
            "1 1 500.00 349.00 100.00 249.00 252.00 248.00 349.00 98.00 251.00 1719418.00 \
             2292558.00\n"
        );
    }

    #[test]
    fn rates_are_cut_and_over_the_time_that_belongs_to_them() {
        let (config, counts) = hundred();
        let seconds = Seconds { total: 7, transactions: 3, creation: 2, deletion: 5 };
        let text = report(&config, &counts, seconds);
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(
            lines[..3],
            ["Time:", "\t7 seconds total", "\t3 seconds of transactions (166 per second)"]
        );
        assert_eq!(lines[5], "\t349 created (49 per second)");
        assert_eq!(lines[6], "\t\tCreation alone: 100 files (50 per second)");
        assert_eq!(lines[7], "\t\tMixed with transactions: 249 files (83 per second)");
        assert_eq!(lines[11], "\t\tDeletion alone: 98 files (19 per second)");
        assert_eq!(lines[15], "\t1.64 megabytes read (239.87 kilobytes per second)");
        assert_eq!(lines.len(), 17);
    }

    #[test]
    fn units_change_where_those_of_the_original_do() {
        let known = [
            (0.0, "0.000000 bytes"),
            (1.0, "0.00 kilobytes"),
            (500.0, "0.49 kilobytes"),
            (1_048_576.0, "1024.00 kilobytes"),
            (1_048_577.0, "1.00 megabytes"),
            (1_214_240_768.0, "1157.99 megabytes"),
        ];
        for (bytes, text) in known {
            assert_eq!(scaled(bytes), text);
        }
    }
}
