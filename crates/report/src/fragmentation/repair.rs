//! A repair of fragmentation as text and as a page.

use crate::escape;
use crate::page::{self, Card, Head, html_table, list, section};
use crate::table::{Field, Table};
use larder_schema::fragmentation::{FragmentationRepair, MovedFile, RepairEnd, SkippedFile};
use larder_schema::{as_u64, format};

/// Renders a repair as tables and sentences.
#[must_use]
pub fn repair_to_text(repair: &FragmentationRepair) -> String {
    let mut text = format!("{}.\n", verdict(repair));
    for line in sentences(repair) {
        put_line!(text, "{line}");
    }
    if !repair.moved.is_empty() {
        put!(text, "\n{}", moved_table(repair).to_text());
    }
    if !repair.skipped.is_empty() {
        put!(text, "\n{}", skipped_table(repair).to_text());
    }
    text
}

/// Renders the page.
#[must_use]
pub fn repair_to_html(repair: &FragmentationRepair) -> String {
    let head = Head {
        kind: "larder frag repair".to_owned(),
        verdict: verdict(repair),
        cards: cards(repair),
        subject: sentences(repair),
    };
    let mut body = String::new();
    if !repair.moved.is_empty() {
        body.push_str(&section("Moved files", &html_table(&moved_table(repair))));
    }
    if !repair.skipped.is_empty() {
        body.push_str(&section("Files that stay", &html_table(&skipped_table(repair))));
    }
    body.push_str(&list(&repair.interrupted));
    page::page(&head, &body, &repair.to_json())
}

/// Returns the answer in one sentence, without a period.
fn verdict(repair: &FragmentationRepair) -> String {
    let files = format::counted(repair.moved.len() as u64, "file");
    let bytes = format::bytes(repair.moved.iter().map(|it| it.bytes).sum());
    match (repair.end, repair.is_dry_run) {
        (RepairEnd::NotWorthIt, _) => format!("Nothing was moved: {}", repair.verdict.reason),
        (_, true) => format!("{files} with {bytes} would be moved, predicted {}", gain(repair)),
        (_, false) if repair.moved.is_empty() => "No file was moved".to_owned(),
        (_, false) => format!(
            "{files} moved, {} written: the requests take {} instead of {} on the model",
            format::bytes(repair.written_bytes),
            seconds(repair.after_s),
            seconds(repair.before_s)
        ),
    }
}

fn seconds(seconds: f64) -> String {
    format::duration(as_u64(seconds * 1e9))
}

fn gain(repair: &FragmentationRepair) -> String {
    format!("{} instead of {}", seconds(repair.predicted_s), seconds(repair.before_s))
}

fn sentences(repair: &FragmentationRepair) -> Vec<String> {
    let mut sentences: Vec<String> =
        repair.interrupted.iter().map(|line| escape::line(line).into_owned()).collect();
    if repair.end == RepairEnd::NotWorthIt {
        return sentences;
    }
    if !repair.is_dry_run {
        sentences.push(format!("Predicted with all files contiguous: {}.", gain(repair)));
    }
    if let Some((before, after)) = repair.measured_s {
        sentences.push(format!(
            "Measured: {} of the moved files took {} before and {} after, past the page cache.",
            format::counted(repair.measured_reads, "read"),
            seconds(before),
            seconds(after)
        ));
    }
    let end = match repair.end {
        RepairEnd::Complete | RepairEnd::NotWorthIt => return sentences,
        RepairEnd::Target => "the target share of the gain is reached",
        RepairEnd::Time => "the time is over",
        RepairEnd::WriteBudget => "the rest does not fit the write budget",
        RepairEnd::Signal => "a signal stopped it",
    };
    sentences.push(format!("The repair ended: {end}."));
    sentences
}

fn cards(repair: &FragmentationRepair) -> Vec<Card> {
    let skipped = format::counted(repair.skipped.len() as u64, "file");
    let mut cards = vec![
        Card::new("Moved", format::count(repair.moved.len() as u64), format!("{skipped} stay")),
        Card::new("Written", format::bytes(repair.written_bytes), seconds(repair.seconds)),
    ];
    if let Some((before, after)) = repair.measured_s {
        let note = format!("instead of {}, measured", seconds(before));
        cards.push(Card::new("Reads", seconds(after), note));
    }
    cards
}

fn moved_table(repair: &FragmentationRepair) -> Table {
    let fields = [
        Field::word("path", "file", |it: &MovedFile| &it.path),
        Field::bytes("bytes", "bytes", |it| it.bytes),
        Field::count("fragments_before", "fragments", |it| it.fragments_before),
        Field::count("fragments_after", "after", |it| {
            Some(it.fragments_after).filter(|number| *number > 0)
        }),
        Field::duration("gain_ns", "predicted gain", |it| it.gain_ns),
        Field::text("content", "content", |it| {
            let word = if it.is_compared { "compared" } else { "changed meanwhile" };
            if it.fragments_after == 0 { "-".to_owned() } else { word.to_owned() }
        }),
    ];
    let title = if repair.is_dry_run { "Files to move" } else { "Moved files" };
    Table::of(title, &repair.moved, fields)
}

fn skipped_table(repair: &FragmentationRepair) -> Table {
    let fields = [
        Field::word("path", "file", |it: &SkippedFile| &it.path),
        Field::word("reason", "reason", |it| &it.reason),
    ];
    Table::of("Files that stay", &repair.skipped, fields)
}
