//! The page of a balance.

use super::{disks_table, finding_line, loads_table, move_sentence, services_table, verdict};
use crate::page::{self, Card, Head, all_rows, details, doubts, html_table, list, section};
use crate::run::capitalized;
use crate::share_bars::share_bars;
use larder_schema::balance::{Balance, BalanceDisk, FindingLevel};
use larder_schema::format;

/// Renders the page.
#[must_use]
pub fn to_html(balance: &Balance) -> String {
    let (before, after) = (&balance.before, &balance.after);
    let shown = |ns: u64| if ns == 0 { "-".to_owned() } else { format::duration(ns) };
    let head = Head {
        kind: "larder balance".to_owned(),
        verdict: verdict(balance),
        cards: vec![
            Card::new(
                "Busiest disk",
                format::percent(before.utilization),
                format!("{}, recorded", before.disk),
            ),
            Card::new(
                "After the moves",
                format::percent(after.utilization),
                format!("{}, predicted", after.disk),
            ),
            Card::new(
                "Response",
                shown(after.response_ns),
                format!("instead of {}", shown(before.response_ns)),
            ),
            Card::new(
                "Moves",
                balance.moves.len().to_string(),
                format::bytes(balance.moved_bytes()),
            ),
        ],
        subject: vec![format!(
            "Load of {} in {}.",
            format::duration(balance.duration_ns),
            balance.records.join(", ")
        )],
    };
    let mut body = section("Disks", &(bars(balance) + &all_rows(&disks_table(balance))));
    body.push_str(&stops(balance));
    if !balance.moves.is_empty() {
        body.push_str(&section("Plan", &plan_html(balance)));
    }
    if !balance.loads.is_empty() {
        body.push_str(&section("Load by file and process", &html_table(&loads_table(balance))));
    }
    let devices = all_rows(&services_table(balance)) + &list(&balance.notes);
    body.push_str(&details("Devices, service times and assumptions", &devices));
    page::page(&head, &body, &balance.to_json())
}

/// Returns the findings that stop moves.
fn stops(balance: &Balance) -> String {
    let mut sentences = Vec::new();
    for (index, each) in balance.moves.iter().enumerate() {
        let stops = each.findings.iter().filter(|it| it.level == FindingLevel::Stop);
        sentences.extend(stops.map(|it| format!("Move {}: {}.", index + 1, it.text)));
    }
    doubts("Before the moves", &sentences)
}

fn plan_html(balance: &Balance) -> String {
    let mut text = String::new();
    for (index, each) in balance.moves.iter().enumerate() {
        let sentence = capitalized(&move_sentence(each));
        put_line!(text, "<h3>{}. {}</h3>", index + 1, page::prose(&sentence));
        let findings: Vec<String> = each.findings.iter().map(finding_line).collect();
        text.push_str(&list(&findings));
    }
    let findings: Vec<String> = balance.findings.iter().map(finding_line).collect();
    text + &list(&findings) + &details("Alternatives", &list(&balance.alternatives))
}

/// Renders two bars for each disk: recorded and predicted.
fn bars(balance: &Balance) -> String {
    if balance.disks.is_empty() {
        return String::new();
    }
    let key = [("bypass", "recorded"), ("hit", "predicted after the moves")];
    let key = page::key(&key.map(|(class, name)| (class.to_owned(), name.to_owned())));
    let row = |disk: &BalanceDisk| {
        let pair = [("without", disk.before.utilization), ("bar", disk.after.utilization)];
        (disk.name.clone(), pair.to_vec())
    };
    let rows: Vec<_> = balance.disks.iter().map(row).collect();
    key + &page::figure(|width| share_bars(&verdict(balance), &rows, width), "", None)
}
