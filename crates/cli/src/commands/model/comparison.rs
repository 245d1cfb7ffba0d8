//! Predictions of a model beside measurements, as a table.

use larder_lab::model::StoreModel;
use larder_lab::model::measure::{Pattern, PatternLimits, PatternResult, predict};
use larder_report::table::{Cell, Column, Table};
use larder_schema::model::{PatternComparison, PatternFigures};

/// Compares the result of a pattern on a device of `bytes` bytes with that on a model.
pub(super) fn compare(
    model: &StoreModel,
    bytes: u64,
    (pattern, limits, measured): (Pattern, PatternLimits, PatternResult),
) -> PatternComparison {
    PatternComparison {
        pattern: pattern.name(),
        predicted: figures(&predict(model, bytes, &pattern, limits)),
        measured: figures(&measured),
    }
}

fn figures(result: &PatternResult) -> PatternFigures {
    PatternFigures {
        operations: result.operations,
        operations_per_s: result.operations_per_s,
        p50_ns: result.p50,
        p99_ns: result.p99,
    }
}

/// Returns the table: for each quantity the prediction, the measurement and the difference.
pub(super) fn to_text(comparisons: &[PatternComparison]) -> String {
    let mut columns = vec![Column::words("pattern", "pattern")];
    for quantity in ["per s", "p50", "p99"] {
        columns.extend([
            Column::numbers(format!("predicted {quantity}"), format!("predicted {quantity}")),
            Column::numbers(format!("measured {quantity}"), "measured"),
            Column::numbers(format!("difference {quantity}"), "diff"),
        ]);
    }
    let mut table = Table::new("", columns);
    for comparison in comparisons {
        let PatternComparison { pattern, predicted, measured } = comparison;
        let difference = comparison.differences().map(|it| Cell::shown(it, percent(it)));
        let [of_rate, of_p50, of_p99] = difference;
        table.push([
            Cell::word(pattern),
            Cell::number(predicted.operations_per_s),
            Cell::number(measured.operations_per_s),
            of_rate,
            Cell::duration(predicted.p50_ns),
            Cell::duration(measured.p50_ns),
            of_p50,
            Cell::duration(predicted.p99_ns),
            Cell::duration(measured.p99_ns),
            of_p99,
        ]);
    }
    table.to_text()
}

fn percent(difference: f64) -> String {
    format!("{:+.1} %", 100.0 * difference)
}
