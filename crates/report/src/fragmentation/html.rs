//! The page of fragmentation.

use super::volume_map::volume_map;
use super::{
    extents_table, files_table, layouts_table, measures, sentences, sizes_table, verdict,
    writers_table,
};
use crate::page::{self, Card, Head, all_rows, details, html_table, list, section};
use larder_schema::format;
use larder_schema::fragmentation::Fragmentation;

/// Maximum number of files whose extents the page has.
const EXTENTS_OF_FILES: usize = 20;

/// Renders the page.
#[must_use]
pub fn to_html(found: &Fragmentation) -> String {
    let subject = match &found.file_system {
        Some(place) => format!(
            "{} on {}, {} mounted at {}.",
            found.paths.join(", "),
            place.device,
            place.kind,
            place.mount
        ),
        None => format!("{}.", found.paths.join(", ")),
    };
    let head = Head {
        kind: "larder frag".to_owned(),
        verdict: verdict(found),
        cards: cards(found),
        subject: std::iter::once(subject).chain(sentences(found)).collect(),
    };
    let mut body = list(&found.verdict.commands);
    if let Some(map) = volume_map(found) {
        body.push_str(&section("Map of the volume", &map));
    }
    if let Some(cost) = &found.cost {
        body.push_str(&section("Cost", &html_table(&layouts_table(cost))));
    }
    if !found.files.is_empty() {
        body.push_str(&section("Files", &html_table(&files_table(found, usize::MAX))));
    }
    for file in found.files.iter().take(EXTENTS_OF_FILES) {
        if let Some(extents) = &file.placed {
            let title = format!("Extents of {}", file.path);
            body.push_str(&details(&title, &html_table(&extents_table(extents))));
        }
    }
    if !found.writers.is_empty() {
        let writers = html_table(&writers_table(&found.writers)) + &list(&measures(&found.writers));
        body.push_str(&section("Programs that write to fragmented files", &writers));
    }
    body.push_str(&section("By length", &all_rows(&sizes_table(found))));
    body.push_str(&list(&found.notes));
    page::page(&head, &body, &found.to_json())
}

fn cards(found: &Fragmentation) -> Vec<Card> {
    let scan = &found.scan;
    let files = format::counted(scan.files, "file");
    let mut cards =
        vec![Card::new("Fragmented", format::count(scan.fragmented), format!("of {files}"))];
    if let Some(cost) = &found.cost {
        let requests = format::counted(cost.device_requests, "request");
        let share = format::percent(cost.crossing_share());
        cards.push(Card::new("Cross a fragment", share, format!("of {requests}")));
        let gain = format::percent(cost.gain().max(0.0));
        cards.push(Card::new("Gain", gain, "of the time, if contiguous"));
    }
    if let Some(free) = &found.free {
        let largest = format::bytes(free.largest_bytes);
        cards.push(Card::new(
            "Largest free run",
            largest,
            format!("of {}", format::bytes(free.bytes)),
        ));
    }
    cards
}
