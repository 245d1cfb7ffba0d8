//! Order of rows, and the text.

use super::*;
use larder_schema::watch::{
    Counts, Disk, Interval, Row, SCHEMA, UnattributedIo, VERSION, Watch, rows,
};

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

fn row(file: &str, counts: &Counts) -> Row {
    let counts = *counts;
    Row { file: file.into(), process: "p".into(), pid: 7, counts, ..Row::default() }
}

#[test]
fn the_first_of_each_matter_are_kept_and_shown() {
    let write = |pages| Counts { dirtied_pages: pages, ..Counts::default() };
    let evicted = Counts { evicted_pages: 2, ..Counts::default() };
    let mut all: Vec<Row> = (0..9_u64).map(|n| row(&format!("w{n}"), &write(1000 - n))).collect();
    all.extend([row("r1", &read(5, 5, 0)), row("r2", &read(4, 0, 0)), row("e", &evicted)]);
    let (kept, count) = rows(all, 4096, 5);
    let names: Vec<&str> = kept.iter().map(|row| row.file.as_str()).collect();
    assert_eq!((names, count), (vec!["w0", "w1", "r1", "r2", "e"], 12));
    let text = interval_to_text(
        &Interval { rows: kept, rows_all: count, ..Interval::default() },
        4096,
        Some(1),
    );
    for part in ["w0", "r1", "e   ", "and 1 more\n", "7 more files by processes did less"] {
        assert!(text.contains(part), "{part} in\n{text}");
    }
    assert!(!text.contains("w1") && !text.contains("r2"), "{text}");
}

fn watch() -> Watch {
    let total = Interval {
        duration_ns: 2_000_000_000,
        sum: read(1000, 900, 50),
        rows: vec![row(&format!("/a/{}/end", "x".repeat(60)), &read(1000, 900, 50))],
        rows_all: 3,
        disks: vec![Disk {
            name: "sda".into(),
            reads: 100,
            read_sectors: 800,
            read_ms: 500,
            ..Disk::default()
        }],
        unattributed: UnattributedIo { metadata_bytes: 4096, ..UnattributedIo::default() },
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
fn the_text_says_what_is_known_and_what_is_missing() {
    let text = to_text(&watch(), None);
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
    let line = line_cells(&watch().total, 4096).join(" ");
    assert!(line.contains("95.0 %  1,000 "), "{line}");
    assert_eq!((line_header().len(), line.len()), (69, 69), "{line}");
}

#[test]
fn a_disk_that_is_not_counted_is_named_and_proves_no_idle_disk() {
    let mut watch = watch();
    watch.scope = larder_schema::watch::WHOLE.to_owned();
    let rates = |watch: &Watch| crate::findings::Observation::from(watch).moments[0].written_per_s;
    assert!(rates(&watch).is_some());
    watch.total.uncounted = vec!["sdb".to_owned()];
    let sentence = "sdb: not counted (queue/iostats is 0; echo 1 > /sys/block/sdb/queue/iostats)";
    assert!(to_text(&watch, None).contains(sentence));
    let page = to_html(&watch).replace("&gt;", ">");
    assert!(page.contains("not counted (queue/iostats is 0"), "{page}");
    assert_eq!(rates(&watch), None, "sdb may have written");
}

#[test]
fn the_lines_over_time_add_up_to_what_was_read() {
    let mut watch = watch();
    let idle =
        Interval { begin_ns: 2_000_000_000, duration_ns: 8_000_000_000, ..Interval::default() };
    watch.intervals.push(idle);
    let page = to_html(&watch).replace("&#160;", " ");
    // 900 pages, of which none by read-ahead, 50 by read-ahead, and 50 misses.
    for key in ["hits 3.52 MiB, 90.0 %", "read-ahead hits 200 KiB, 5.0 %", "misses 200 KiB"] {
        assert!(page.contains(key), "{key}");
    }
    let begin = page.find("<polyline class=\"line hit\" points=\"").expect("a line") + 36;
    let points = &page[begin..begin + page[begin..].find('"').expect("its end")];
    let ys: Vec<&str> = points.split(' ').map(|at| at.split_once(',').expect("x,y").1).collect();
    assert!(ys[0] == ys[1] && ys[2] == ys[3] && ys[1] != ys[2], "steps, not slopes: {points}");
    // 1.76 MiB/s on an axis that ends at 1.75 MiB/s or more, not 1.66 MiB/s.
    assert!(page.contains(">1.75 MiB/s<"), "{page}");
}

#[test]
fn a_page_states_the_rows_that_it_leaves_out() {
    let mut watch = watch();
    watch.total.rows = (0..60).map(|file| row(&format!("f{file}"), &read(100, 0, 0))).collect();
    watch.total.rows_all = 70;
    let page = to_html(&watch);
    for part in ["and 10 more", "10 more files by processes did less, and were not kept"] {
        assert!(page.contains(part), "{part}");
    }
}
