//! Sums, order, and renderings.

use super::*;

fn read(pages: u64, hits: u64, ahead: u64) -> Counts {
    Counts {
        read_requests: 1,
        read_pages: pages,
        hit_pages: hits,
        read_ahead_hit_pages: ahead,
        miss_pages: pages - hits - ahead,
        ..Counts::default()
    }
}

fn row(file: &str, counts: Counts) -> Row {
    Row { file: file.into(), process: "p".into(), pid: 7, counts, ..Row::default() }
}

#[test]
fn a_ratio_of_sums_is_weighted_by_what_was_asked() {
    // Half of few pages and almost all of many: the mean of the ratios would be 74 %.
    let mut sum = read(10, 5, 0);
    sum += read(990, 900, 80);
    assert_eq!(sum.hit_ratio(), Some(0.985));
    assert_eq!(Counts::default().hit_ratio(), None);
}

#[test]
fn differences_never_go_below_nothing() {
    let mut later = read(10, 5, 0);
    later += read(4, 4, 0);
    assert_eq!((later - read(10, 5, 0)).hit_pages, 4);
    // A page that was reported as a hit became a miss later.
    assert_eq!((read(10, 4, 0) - read(10, 5, 0)).hit_pages, 0);
    assert!((later - later).is_zero());
}

#[test]
fn pages_written_while_dirty_are_those_that_did_not_become_so() {
    let counts =
        Counts { write_pages: 10, write_dirtied_pages: 3, dirtied_pages: 9, ..Counts::default() };
    assert_eq!(counts.overwritten_pages(), 7);
}

#[test]
fn rows_are_ordered_by_weight_and_counted_before_they_are_cut() {
    let disk = Counts { disk_read_bytes: 4096 * 100, ..Counts::default() };
    let all = vec![row("few", read(2, 2, 0)), row("nothing", Counts::default())];
    let all = [all, vec![row("many", read(1000, 1000, 0)), row("disk", disk)]].concat();
    let (rows, count) = super::rows(all, 4096, 2);
    let names: Vec<&str> = rows.iter().map(|row| row.file.as_str()).collect();
    assert_eq!((names, count), (vec!["disk", "many"], 3));
}

#[test]
fn the_first_of_each_matter_are_kept_and_shown() {
    let write = |pages| Counts { dirtied_pages: pages, ..Counts::default() };
    let evicted = Counts { evicted_pages: 2, ..Counts::default() };
    let mut all: Vec<Row> = (0..9_u64).map(|n| row(&format!("w{n}"), write(1000 - n))).collect();
    all.extend([row("r1", read(5, 5, 0)), row("r2", read(4, 0, 0)), row("e", evicted)]);
    let (kept, count) = super::rows(all, 4096, 5);
    let names: Vec<&str> = kept.iter().map(|row| row.file.as_str()).collect();
    assert_eq!((names, count), (vec!["w0", "w1", "r1", "r2", "e"], 12));
    let text = Interval { rows: kept, rows_all: count, ..Interval::default() }.to_text(4096, 1);
    for part in ["w0", "r1", "e   ", "and 1 more\n", "7 more files by processes did less"] {
        assert!(text.contains(part), "{part} in\n{text}");
    }
    assert!(!text.contains("w1") && !text.contains("r2"), "{text}");
}

fn watch() -> Watch {
    let total = Interval {
        duration_ns: 2_000_000_000,
        sum: read(1000, 900, 50),
        rows: vec![row(&format!("/a/{}/end", "x".repeat(60)), read(1000, 900, 50))],
        rows_all: 3,
        disks: vec![Disk {
            name: "sda".into(),
            reads: 100,
            read_sectors: 800,
            read_ms: 500,
            ..Disk::default()
        }],
        unattributed: Unattributed { metadata_bytes: 4096, ..Unattributed::default() },
        ..Interval::default()
    };
    Watch {
        schema: SCHEMA.into(),
        version: VERSION,
        scope: "the whole machine".into(),
        page_bytes: 4096,
        missing: vec!["no tracing".into()],
        total: total.clone(),
        intervals: vec![total],
        ..Watch::default()
    }
}

#[test]
fn what_is_written_is_read_back_unchanged() {
    let watch = watch();
    assert_eq!(Watch::from_json(&watch.to_json()).unwrap(), watch);
    let other = watch.to_json().replace("larder-watch", "larder-run");
    let error = Watch::from_json(&other).unwrap_err().to_string();
    assert!(error.contains("it is larder-run 1, not larder-watch 1"), "{error}");
    assert!(Watch::from_json("{}").is_err());
}

#[test]
fn the_text_says_what_is_known_and_what_is_missing() {
    let text = watch().to_text(20);
    for part in [
        "95.0 % of 1,000 pages read were resident, 50 of them by read-ahead",
        "x/end",
        "200 KiB",
        "2 more files by processes did less, and were not kept",
        "sda",
        "5.00 ms",
        "metadata 4 KiB",
        "missing: no tracing",
    ] {
        assert!(text.contains(part), "{part} in\n{text}");
    }
    assert!(!text.contains("writes\n"), "nothing was written");
    let line = watch().total.to_line(4096);
    assert!(line.contains("hits 95.0 % of 1,000 pages"), "{line}");
}
