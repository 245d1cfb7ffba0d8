//! Text rendering of findings, and the table of all rules for docs/findings.md.

use super::{RULES, Rule};
use crate::escape;
use crate::table::{Field, Table};
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
    let fields = [
        Field::word("rule", "finding", |it: &Rule| it.name),
        Field::word("when", "condition", |it| it.when),
        Field::word("source", "reason for the thresholds", |it| it.source),
        Field::word("sure", "confidence", |it| it.sure.word()),
    ];
    Table::of("", &RULES, fields)
}
