//! Findings for people, and the table of all rules for docs/findings.md.

use super::{Finding, RULES};
use crate::escape;
use crate::table::{Cell, Column, Table};

/// Findings for a terminal, one after the other; empty if there are none.
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

/// All rules: when they fire, where that comes from, how sure they are.
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
