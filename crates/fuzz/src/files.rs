//! Fuzz targets for logs, records, replies and lists.

use crate::packed;
use larder_io::front::fuse::FileGlob;
use larder_io::warm_list::{self, StoreIdentity, StoreKind};
use larder_report::compare::{self, THRESHOLD};
use larder_report::escape::{self, Terminal};
use larder_report::perfmon::{self, Names, Options};
use larder_report::{control, run, watch};
use larder_schema::control::{Curves, Files, Stats, Volumes};
use larder_schema::run::Run;
use larder_schema::watch::Watch;
use std::io::Write;
use std::path::Path;

/// Checks that a text is not empty.
fn check_text(text: &str) {
    assert!(!text.is_empty());
}

/// Reads a log, or a list of names.
pub(crate) fn perfmon(input: &[u8]) {
    assert!(Names::read(input).is_ok(), "bytes can be read");
    if let Ok(found) = perfmon::read(input, &Options::default()) {
        for text in [perfmon::to_text(&found), perfmon::to_csv(&found), perfmon::to_html(&found)] {
            check_text(&text);
        }
        let ratios = found.interfaces.iter().filter_map(|interface| interface.hit_ratio);
        for ratio in ratios {
            assert!((0.0..=1.0).contains(&ratio));
        }
    }
}

/// Prints a record in all formats, and compares it with itself.
pub(crate) fn record(input: &[u8]) {
    let Some(run) = str::from_utf8(input).ok().and_then(|text| Run::from_json(text).ok()) else {
        return;
    };
    for text in [run::to_text(&run), run::to_csv(&run), run::to_html(&run)] {
        check_text(&text);
    }
    let again = Run::from_json(&run.to_json().expect("what was read is finite"));
    assert_eq!(again.expect("it is a record"), run);
    if let Ok(found) = compare::compare(&run, &run, THRESHOLD) {
        check_text(&compare::to_text(&found));
        assert!(!found.is_worse(), "it is as good as itself");
    }
}

/// Reads a record of `larder watch`.
pub(crate) fn watch(input: &[u8]) {
    if let Some(found) = str::from_utf8(input).ok().and_then(|it| Watch::from_json(it).ok()) {
        check_text(&watch::to_text(&found, None));
    }
}

/// Reads a reply of a server.
pub(crate) fn control(input: &[u8]) {
    if let Ok(stats) = serde_json::from_slice::<Stats>(input) {
        check_text(&control::everything_table(&stats).to_text());
        check_text(&control::requests_table(&stats, None).to_text());
        check_text(&control::stores_table(&stats.since(&stats).0, Some(1.0)).to_text());
    }
    if let Ok(volumes) = serde_json::from_slice::<Volumes>(input) {
        check_text(&control::volumes_table(&volumes).to_text());
    }
    if let Ok(curves) = serde_json::from_slice::<Curves>(input) {
        check_text(&control::curves_to_text(&curves));
    }
    if let Ok(files) = serde_json::from_slice::<Files>(input) {
        check_text(&control::files_table(&files).to_csv());
    }
}

/// Checks that the output of the escaping is safe, however the bytes are split, and that a name is
/// one line.
pub(crate) fn escape(input: &[u8]) {
    let shown = escape::name(input);
    assert!(!shown.contains(escape::is_unsafe));
    let (first, second) = input.split_at(input.len() / 2);
    let mut out = Vec::new();
    let mut terminal = Terminal::new(&mut out);
    for part in [first, second] {
        terminal.write_all(part).expect("memory takes it");
    }
    terminal.flush().expect("memory takes it");
    let text = String::from_utf8(out).expect("text");
    assert!(!text.contains(|c| escape::is_unsafe(c) && c != '\n' && c != '\t'));
}

/// Reads a list with valid checksums around any payload, and the raw input.
pub(crate) fn warm_list(input: &[u8]) {
    let packed = packed::frame(input);
    let mut bytes = b"LARDERW\n\x01\0\0\0".to_vec();
    bytes.extend(u32::try_from(packed.len()).unwrap_or(0).to_le_bytes());
    bytes.extend(crc32c::crc32c(&packed).to_le_bytes());
    bytes.extend([0; 8]);
    bytes.extend(crc32c::crc32c(&bytes).to_le_bytes());
    bytes.extend(packed);
    for bytes in [&bytes[..], input] {
        let now = StoreIdentity {
            kind: StoreKind::File,
            place: Vec::new(),
            length: 0,
            device: 0,
            inode: 0,
            changed_ns: 0,
        };
        if let Ok(ranges) = warm_list::parse(Path::new("list"), bytes, &now, 1000) {
            assert!(ranges.len() <= 1000);
            assert!(ranges.iter().all(|range| range.start < range.end));
        }
    }
}

/// Matches a pattern of a rule against a name; both are lines of the input.
pub(crate) fn rules(input: &[u8]) {
    let Ok(text) = str::from_utf8(input) else { return };
    let (pattern, name) = text.split_once('\n').unwrap_or((text, "a/b.c"));
    if let Ok(glob) = FileGlob::parse(pattern) {
        let _is_meant = glob.matches(Path::new(name));
    }
}
