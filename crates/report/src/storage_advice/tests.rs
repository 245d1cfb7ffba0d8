//! Tests of the text and the page.

use super::*;
use larder_schema::storage_advice::{
    CacheEffect, LogAdvice, PublishedRule, ReadAheadEffect, ReadOrder, TrafficSummary,
};

fn row(level: &'static str, rate: f64) -> ArrayRow {
    ArrayRow {
        model: format!("{level}:4xdisk"),
        level,
        disks: 4,
        chunk_bytes: (level != "one disk").then_some(64 << 10),
        usable_bytes: Some(3 << 40),
        failures_survived: 1,
        suffices: level != "one disk",
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
            recorded_per_s: Some(40.0),
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
        needed_bytes: 1 << 30,
        depth: 8,
        sampled_requests: 1_000,
        arrays: vec![row("raid5", 400.0), row("raid10", 300.0), row("one disk", 100.0)],
        advised_array: Some(0),
        log: None,
        read_ahead: ReadAheadEffect {
            order: ReadOrder { in_order_share: 0.03, run_reads: 2.5 },
            ..ReadAheadEffect::default()
        },
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
    assert!(
        text.contains("Recorded: 40.0 requests/s on average: one disk is fast enough"),
        "{text}"
    );
    assert!(!text.contains("As fast"), "{text}");
    let near = StorageAdvice { arrays: vec![row("raid5", 400.0), row("raid6", 390.0)], ..advice() };
    assert!(to_text(&near).contains("As fast, within 5.0 %: raid6:4xdisk.\n"));
    let slow =
        StorageAdvice { arrays: vec![row("raid5", 80.0), row("one disk", 100.0)], ..advice() };
    assert!(
        to_text(&slow)
            .starts_with("Use raid5:4xdisk: 80 requests/s, 20.0 % fewer than one disk.\n")
    );
    let none = StorageAdvice { advised_array: None, ..advice() };
    let text = to_text(&none);
    assert!(text.starts_with("No array of 4 disks has 1 GiB and survives 1 failure"), "{text}");
}

#[test]
fn a_log_is_apart_from_a_gain_of_a_twentieth_on() {
    let with = |rate: f64| {
        let log = LogAdvice {
            volume: "<i>wal".to_owned(),
            write_share: 1.0,
            in_order_share: 0.95,
            together: row("raid5", 400.0),
            log_model: "raid1:2xdisk".to_owned(),
            apart: Some(row("raid1", rate)),
        };
        StorageAdvice { log: Some(log), ..advice() }
    };
    let text = to_text(&with(420.0));
    assert!(
        text.contains(
            "LOG apart: 420 requests/s instead of 400 requests/s, with the log on raid1:2xdisk and \
             the rest on raid1:4xdisk instead of all on raid5:4xdisk; the log is volume <i>wal: \
             100.0 % writes, 95.0 % of them in order.\n"
        ),
        "{text}"
    );
    assert!(to_text(&with(419.0)).contains("Log on the array of all data; the log is volume"));
    assert!(!to_html(&with(420.0)).contains("<i>wal"));
}

#[test]
fn read_ahead_is_judged_by_its_gain_or_by_the_order_of_the_reads() {
    let of = |share: f64, rates: Option<(f64, f64)>| {
        let read_ahead = ReadAheadEffect {
            order: ReadOrder { in_order_share: share, run_reads: 8.0 },
            with_per_s: rates.map(|(with, _)| with),
            without_per_s: rates.map(|(_, without)| without),
        };
        to_text(&StorageAdvice { read_ahead, ..advice() })
    };
    let nothing = "Read-ahead gains nothing: 3.0 % of the reads are in order, in runs of 2.5";
    assert!(to_text(&advice()).contains(nothing), "{}", to_text(&advice()));
    assert!(of(0.4, None).contains("on average; --cache compares both ways.\n"));
    let gains = "Read-ahead gains 50.0 %: 150 requests/s, 100 requests/s without it; 40.0 % of";
    assert!(of(0.4, Some((150.0, 100.0))).contains(gains));
    assert!(of(0.4, Some((104.0, 100.0))).contains("Read-ahead gains nothing: 104 requests/s"));
    assert!(of(0.4, Some((90.0, 100.0))).contains("Read-ahead loses 10.0 %: 90 requests/s"));
}

#[test]
fn the_page_has_the_answer_and_no_foreign_markup() {
    let page = to_html(&advice());
    assert!(page.contains("raid5:4xdisk: 400 requests/s"));
    assert!(!page.contains("<b>.ltr"));
}
