//! Tests of the text, the CSV and the page.

use super::*;
use larder_schema::fragmentation::{
    FileScan, FileSystemPlace, FragmentationVerdict, FreeSpace, LayoutCost, MapCell,
};

const BLOCK: u64 = 4096;

fn cost() -> FragmentationCost {
    FragmentationCost {
        from: RequestsFrom::Trace,
        device: "disk".to_owned(),
        depth: 1,
        requests: 130,
        cached_requests: 20,
        other_requests: 10,
        device_requests: 100,
        crossing_requests: 98,
        sampled_requests: 100,
        now: LayoutCost { seconds: 2.0, seeks_per_1000: 1980.0, operations_per_request: 1.98 },
        contiguous: LayoutCost {
            seconds: 1.0,
            seeks_per_1000: 1000.0,
            operations_per_request: 1.0,
        },
        ..FragmentationCost::default()
    }
}

fn fragmentation() -> Fragmentation {
    let mut scan = FileScan::new(8 << 20, 4, false);
    let extent = |logical: u64, physical: u64| FileExtent {
        logical: logical * BLOCK,
        physical: physical * BLOCK,
        bytes: 16 * BLOCK,
        flags: 0,
    };
    let extents = [extent(0, 0), extent(16, 64), extent(32, 512)];
    scan.add(48 * BLOCK, &extents, || b"/srv/a<b>".to_vec());
    scan.add(16 * BLOCK, &[extent(0, 128)], || b"/srv/c".to_vec());
    scan.totals.leave_out("on another file system");
    let mut free = FreeSpace::default();
    for (start, blocks) in [(1024, 1000), (256, 8)] {
        free.add(blocks * BLOCK);
        scan.add_free(start * BLOCK, blocks * BLOCK);
    }
    (0..10).for_each(|_| scan.add_request(64 * BLOCK));
    Fragmentation {
        paths: vec!["/srv".to_owned()],
        file_system: Some(FileSystemPlace {
            kind: "ext4".to_owned(),
            mount: "/srv".to_owned(),
            device: "/dev/sdb1".to_owned(),
            bytes: 8 << 20,
        }),
        free: Some(free),
        free_unknown: String::new(),
        cost: Some(cost()),
        verdict: FragmentationVerdict {
            kind: VerdictKind::Repair,
            reason: "98.0 % of the requests cross".to_owned(),
            commands: vec!["larder frag repair /srv".to_owned()],
        },
        files: vec![FragmentedFile {
            path: "/srv/a<b>\u{1b}".to_owned(),
            bytes: 48 * BLOCK,
            extents: 3,
            fragments: 3,
            requests: 100,
            crossing_requests: 98,
            now_ns: 2_000_000_000,
            contiguous_ns: 1_000_000_000,
            placed: Some(extents.to_vec()),
        }],
        writers: vec![FragmentWriter {
            process: "logger".to_owned(),
            files: 1,
            fragments: 3,
            writes: 12,
            bytes: 12 * BLOCK,
            measures: vec!["write through a larger buffer".to_owned()],
        }],
        map: scan.map.clone(),
        map_cell_bytes: scan.cell_bytes(),
        scan: scan.totals,
        notes: vec!["A note.".to_owned()],
    }
}

#[test]
fn the_first_sentence_is_the_answer() {
    let text = to_text(&fragmentation());
    let first = "Worth a repair: 98.0 % of the requests cross.\n  larder frag repair /srv\n";
    assert!(text.starts_with(first), "{text}");
    for part in [
        "2 files with 256 KiB in 4 fragments; 1 file with several fragments, 2 fragments in \
         excess.",
        "Free: 3.94 MiB in 2 runs; a file of up to 3.91 MiB can be contiguous.",
        "100 requests of the trace on disk with 1 in flight; 20 served by the cache; 10 to other \
         files.",
        "Left out: 1 (on another file system).",
        "logger: write through a larger buffer.",
        "A note.",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
    assert!(!text.contains('\u{1b}'));
}

#[test]
fn the_csv_has_a_line_for_each_file() {
    let csv = to_csv(&fragmentation());
    let lines: Vec<&str> = csv.lines().collect();
    assert_eq!(lines.len(), 2);
    assert!(lines[0].starts_with("path,bytes,extents,fragments,requests,"), "{csv}");
}

#[test]
fn the_page_has_a_map_of_the_device() {
    let page = to_html(&fragmentation());
    assert!(!page.contains("a<b>"), "foreign text is escaped");
    for part in ["Map of the volume", "half of the requests", "class=\"over\"", "class=\"free\""] {
        assert!(page.contains(part), "{part}");
    }
    let without = Fragmentation { map: Vec::<MapCell>::new(), ..fragmentation() };
    assert!(!to_html(&without).contains("Map of the volume"));
}
