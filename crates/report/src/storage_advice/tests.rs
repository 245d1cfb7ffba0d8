//! Tests of the text and the page.

use super::*;
use larder_schema::storage_advice::{CacheEffect, PublishedRule, TrafficSummary};

fn row(level: &'static str, rate: f64) -> ArrayRow {
    ArrayRow {
        model: format!("{level}:4xdisk"),
        level,
        disks: 4,
        chunk_bytes: (level != "one disk").then_some(64 << 10),
        usable_bytes: Some(3 << 40),
        failures_survived: 1,
        requests_per_s: rate,
        mean_ns: 4e6,
        operations_per_request: 1.25,
        price_per_request_per_s: Some(0.5),
    }
}

fn advice() -> StorageAdvice {
    StorageAdvice {
        subject: "db<b>.ltr".to_owned(),
        traffic: TrafficSummary {
            reads: 900,
            writes: 100,
            read_bytes: 900 << 12,
            write_bytes: 100 << 13,
            sequential_share: 0.25,
            bytes: 1 << 30,
        },
        cache: Some(CacheEffect {
            memory_bytes: 64 << 20,
            requests: 4_000,
            behind: 1_000,
            behind_twice: 500,
        }),
        disk: "disk".to_owned(),
        disks: 4,
        failures: 1,
        depth: 8,
        sampled_requests: 1_000,
        arrays: vec![row("raid5", 400.0), row("raid10", 300.0), row("one disk", 100.0)],
        advised_array: Some(0),
        rules: vec![PublishedRule {
            rule: "90.0 % reads: RAID 5".to_owned(),
            follows: true,
            reason: String::new(),
        }],
        units: vec![UnitRow {
            unit_bytes: 4096,
            extent_bytes: 65_536,
            requests_per_s: 300.0,
            parts_per_request: 1.1,
            unused_share: 0.05,
        }],
        advised_unit: 0,
    }
}

#[test]
fn the_first_sentence_is_the_answer() {
    let text = to_text(&advice());
    assert!(
        text.starts_with("Use raid5:4xdisk: 400 requests/s, 4.00x as many as one disk.\n"),
        "{text}"
    );
    assert!(text.contains("More cache first: twice the memory saves 50.0 % of the requests"));
    assert!(text.contains("90.0 % reads: RAID 5: the model agrees."));
    let none = StorageAdvice { advised_array: None, ..advice() };
    let text = to_text(&none);
    assert!(text.starts_with("No array of 4 disks has 1 GiB and survives 1 failure"), "{text}");
}

#[test]
fn the_page_has_the_answer_and_no_foreign_markup() {
    let page = to_html(&advice());
    assert!(page.contains("raid5:4xdisk: 400 requests/s"));
    assert!(!page.contains("<b>.ltr"));
}
