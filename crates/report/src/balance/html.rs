//! The page of a balance.

use super::{disks_table, finding_line, loads_table, move_sentence, services_table, verdict};
use crate::escape;
use crate::page::{self, Card, Head, all_rows, details, doubts, html_table, list, section};
use crate::run::capitalized;
use larder_schema::balance::{Balance, FindingLevel};
use larder_schema::format;

/// Height of the bars of a disk, and the place of the names, in pixels.
const ROW: f64 = 44.0;
const NAMES: f64 = 110.0;
/// Place of the figures behind the bars.
const FIGURES: f64 = 80.0;

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
    key + &page::figure(|width| draw(balance, width), "", None)
}

fn draw(balance: &Balance, width: f64) -> String {
    let all = balance.disks.iter().flat_map(|it| [it.before.utilization, it.after.utilization]);
    let highest = all.fold(1.0, f64::max);
    let scale = (width - NAMES - FIGURES) / highest;
    let count = u32::try_from(balance.disks.len()).unwrap_or(u32::MAX);
    let height = ROW * f64::from(count);
    let mut svg = format!(
        "<svg viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" role=\"img\" \
         aria-label=\"{}\">",
        escape::html(&verdict(balance))
    );
    let full = NAMES + scale;
    put!(svg, "<line class=\"grid\" x1=\"{full:.1}\" x2=\"{full:.1}\" y1=\"0\" y2=\"{height}\"/>");
    for (index, disk) in (0_u32..).zip(&balance.disks) {
        let top = ROW * f64::from(index);
        let name: String = disk.name.chars().take(14).collect();
        put!(
            svg,
            "<text class=\"label axis\" x=\"0\" y=\"{:.1}\">{}</text>",
            top + 25.0,
            escape::html(&name)
        );
        let pairs =
            [("without", disk.before.utilization, 4.0), ("bar", disk.after.utilization, 22.0)];
        for (class, utilization, down) in pairs {
            let (y, length) = (top + down, (scale * utilization).max(1.0));
            put!(
                svg,
                "<rect class=\"{class}\" x=\"{NAMES}\" y=\"{y:.1}\" width=\"{length:.1}\" \
                 height=\"16\"/><text class=\"axis\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
                NAMES + length + 6.0,
                y + 13.0,
                format::percent(utilization)
            );
        }
    }
    svg + "</svg>"
}
