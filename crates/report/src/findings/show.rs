//! Text rendering of findings, and the table of all rules for docs/findings.md.

use super::RULES;
use crate::escape;
use crate::table::{Cell, Column, Table};
use larder_schema::watch::Finding;

/// Renders findings for a terminal; empty if there are none.
#[must_use]
pub fn to_text(findings: &[Finding]) -> String {
    let mut text = String::new();
    for finding in findings {
        put_line!(
            text,
            "{} ({}): {}.",
            finding.rule,
            finding.sure.word(),
            escape::line(&finding.seen)
        );
        put_line!(text, "  {}", escape::line(&finding.why));
        for command in &finding.attempt {
            put_line!(text, "  Try: {}", escape::line(command));
        }
    }
    text
}

/// Returns all rules with their conditions, sources and confidence.
#[must_use]
pub fn rules_table() -> Table {
    let columns = [
        Column::words("rule", "finding"),
        Column::words("when", "when"),
        Column::words("source", "thresholds from"),
        Column::words("sure", "how sure"),
    ];
    let mut table = Table::new("", columns);
    for rule in &RULES {
        table.push([
            Cell::word(rule.name),
            Cell::word(rule.when),
            Cell::word(rule.source),
            Cell::word(rule.sure.word()),
        ]);
    }
    table
}
