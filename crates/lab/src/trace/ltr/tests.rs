//! Tests of the rules that docs/FORMATS.md states.

use super::super::tests::drain;
use super::super::{
    Addressing, BoxedSource, NameKind, OpenOptions, Record, TraceError, open_stream,
};
use super::index::IndexEntry;
use super::section::{Kind, pack};
use super::{
    BLOCK_RECORDS_MAX, END_MAGIC, FRAME_BYTES, HEADER_BYTES, Index, TRAILER_BYTES, Writer,
    WriterOptions,
};
use crate::random::Random;
use std::io::Cursor;

/// Returns records in order of time.
fn records(count: u64) -> Vec<Record> {
    let mut random = Random::from_seed(1);
    let record = |number| Record {
        time_ns: number * 1_000 + random.below(900),
        offset: random.below(1 << 40) * 512,
        len: random.below(64) * 512,
        volume: 1,
        ..Record::default()
    };
    (0..count).map(record).collect()
}

/// Returns a file with blocks of 100 records.
fn file(records: &[Record]) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), WriterOptions::default()).unwrap();
    writer.name(NameKind::Volume, 1, "disk").unwrap();
    for block in records.chunks(100) {
        writer.append(block).unwrap();
        writer.cut().unwrap();
    }
    writer.finish().unwrap()
}

fn open(bytes: &[u8], max_bad: u64) -> Result<BoxedSource, TraceError> {
    let options = OpenOptions { max_bad, ..OpenOptions::default() };
    open_stream("test.ltr", Box::new(Cursor::new(bytes.to_vec())), &options)
}

#[test]
fn what_is_written_is_read_back_unchanged() {
    let records = records(BLOCK_RECORDS_MAX as u64 + 5);
    let addressing = Addressing::Pages { bytes: 4096 };
    let options = WriterOptions { addressing, begun_unix_ns: 17, sample: 1 };
    let mut writer = Writer::new(Vec::new(), options).unwrap();
    writer.name(NameKind::Process, 3, "a process").unwrap();
    writer.append(&records).unwrap();
    let bytes = writer.finish().unwrap();
    let mut source = open(&bytes, 0).unwrap();
    assert_eq!(drain(&mut source).unwrap(), records);
    assert_eq!(source.addressing(), options.addressing);
    assert_eq!(source.name(NameKind::Process, 3), Some("a process"));
    assert!(source.notes().is_empty());
}

#[test]
fn a_sample_says_what_it_is_of() {
    let options = WriterOptions { sample: 16, ..WriterOptions::default() };
    let mut writer = Writer::new(Vec::new(), options).unwrap();
    writer.append(&records(7)).unwrap();
    let mut source = open(&writer.finish().unwrap(), 0).unwrap();
    assert_eq!(drain(&mut source).unwrap().len(), 7);
    assert_eq!(source.sample(), 16);
    assert!(matches!(&source.notes()[..], [note] if note.contains("of 16 pages one")));
}

#[test]
fn a_file_cut_anywhere_is_read_up_to_its_last_block() {
    let records = records(500);
    let bytes = file(&records);
    let index = Index::read(&mut Cursor::new(&bytes)).unwrap().unwrap();
    let ends: Vec<(u64, usize)> = index
        .entries
        .iter()
        .enumerate()
        .filter(|(_, entry)| entry.is_records())
        .map(|(at, entry)| {
            let end = index.entries.get(at + 1).map_or(index.end, |next| next.offset);
            (end, usize::try_from(entry.first).unwrap() + 100)
        })
        .collect();
    for cut in HEADER_BYTES..bytes.len() {
        let whole = ends.iter().filter(|(end, _)| *end <= cut as u64).map(|(_, count)| *count);
        let mut source = open(&bytes[..cut], 0).unwrap();
        assert_eq!(drain(&mut source).unwrap(), records[..whole.max().unwrap_or(0)], "at {cut}");
        assert!(source.notes()[0].starts_with("the file ends"), "at {cut}");
        assert_eq!(Index::read(&mut Cursor::new(&bytes[..cut])).unwrap(), None);
    }
    for cut in 1..HEADER_BYTES {
        assert!(open(&bytes[..cut], 0).is_err(), "at {cut}");
    }
}

#[test]
fn a_flipped_bit_is_noticed_wherever_it_is() {
    let records = records(300);
    let bytes = file(&records);
    for at in 0..bytes.len() {
        let mut flipped = bytes.clone();
        flipped[at] ^= 0x10;
        let detected = match open(&flipped, 0) {
            Err(_) => true,
            Ok(mut source) => {
                let read = drain(&mut source);
                // Flips in the index do not affect a reader that reads from front to back; a flip
                // in the first bytes of the trailer makes it an incomplete section.
                let index = Index::read(&mut Cursor::new(&flipped)).unwrap();
                read.is_err() || !source.notes().is_empty() || index.is_none()
            }
        };
        assert!(detected, "byte {at} of {}", bytes.len());
        // With a limit, intact blocks are read, and each damaged block is skipped as a whole.
        if let Ok(mut source) = open(&flipped, u64::MAX) {
            let read = drain(&mut source).unwrap();
            assert!(read.len().is_multiple_of(100), "byte {at}: {}", read.len());
            assert!(read.iter().all(|record| records.contains(record)), "byte {at}");
        }
    }
}

#[test]
fn a_length_beyond_the_limit_is_refused() {
    let bytes = file(&records(10));
    for at in [4, 8] {
        let mut long = bytes.clone();
        let frame = HEADER_BYTES;
        long[frame + at..frame + at + 4].copy_from_slice(&u32::MAX.to_le_bytes());
        let crc = crc32c::crc32c(&long[frame..frame + 28]);
        long[frame + 28..frame + 32].copy_from_slice(&crc.to_le_bytes());
        let error = drain(&mut open(&long, 0).unwrap()).unwrap_err().to_string();
        assert!(error.contains("longer than 8 MiB"), "{error}");
    }
}

#[test]
fn a_later_version_is_refused() {
    let mut bytes = file(&records(10));
    bytes[8] = 2;
    let crc = crc32c::crc32c(&bytes[..28]);
    bytes[28..32].copy_from_slice(&crc.to_le_bytes());
    let error = open(&bytes, 0).err().unwrap().to_string();
    assert!(error.contains("version 2 of the format is not known"), "{error}");
}

#[test]
fn only_blocks_that_can_be_wanted_are_read() {
    let records = records(1_000);
    let trace_file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(trace_file.path(), file(&records)).unwrap();
    let read = std::sync::Arc::new(std::sync::atomic::AtomicU64::new(0));
    let options = OpenOptions {
        times: Some(250_000..350_000),
        progress: Some(read.clone()),
        ..OpenOptions::default()
    };
    let mut source = super::super::open(trace_file.path(), &options).unwrap();
    assert_eq!(drain(&mut source).unwrap(), records[200..400]);
    assert_eq!(source.name(NameKind::Volume, 1), Some("disk"));
    assert!(source.notes().is_empty(), "{:?}", source.notes());
    let length = trace_file.path().metadata().unwrap().len();
    assert!(read.load(std::sync::atomic::Ordering::Relaxed) < length / 3);
}

#[test]
fn names_at_the_end_of_a_file_are_known_from_its_first_record_on() {
    let mut writer = Writer::new(Vec::new(), WriterOptions::default()).unwrap();
    for block in records(1_000).chunks(100) {
        writer.append(block).unwrap();
        writer.cut().unwrap();
    }
    writer.name(NameKind::Volume, 1, "disk").unwrap();
    let bytes = writer.finish().unwrap();
    let trace_file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(trace_file.path(), &bytes).unwrap();
    for times in [None, Some(0..250_000)] {
        let options = OpenOptions { times, ..OpenOptions::default() };
        let mut source = super::super::open(trace_file.path(), &options).unwrap();
        let mut batch = Vec::new();
        source.read_batch(&mut batch).unwrap();
        assert_eq!(source.name(NameKind::Volume, 1), Some("disk"));
        assert_eq!(batch[..100], records(1_000)[..100]);
        drain(&mut source).unwrap();
        assert!(source.notes().is_empty(), "{:?}", source.notes());
    }
    // A stream reader learns the names when it reaches them.
    let mut stream = open(&bytes, 0).unwrap();
    assert_eq!(drain(&mut stream).unwrap().len(), 1_000);
    assert_eq!(stream.name(NameKind::Volume, 1), Some("disk"));
}

#[test]
fn the_index_finds_times() {
    let records = records(1_000);
    let bytes = file(&records);
    let index = Index::read(&mut Cursor::new(&bytes)).unwrap().unwrap();
    assert_eq!(index.records, 1_000);
    assert_eq!(index.entries.iter().filter(|entry| entry.is_records()).count(), 10);
    let starts: Vec<u64> = index.entries.iter().map(|entry| entry.offset).collect();
    // The names are the first section; block 2 begins at 200 us, block 3 ends at 400 us.
    let names = [0..HEADER_BYTES as u64, starts[0]..starts[1]];
    let blocks = [starts[3]..starts[4], starts[4]..starts[5]];
    assert_eq!(index.pieces(&(250_000..350_000)), [names.clone(), blocks].concat());
    assert_eq!(index.pieces(&(5_000_000..6_000_000)), names);
}

/// Returns the sections followed by another index.
fn with_index(sections: &[u8], entries: &[IndexEntry]) -> Vec<u8> {
    let raw: Vec<u8> = entries.iter().flat_map(|entry| entry.to_bytes()).collect();
    let mut compressor = zstd::bulk::Compressor::new(1).unwrap();
    let mut section = Vec::new();
    pack((Kind::Index, 0, 0), &raw, &mut compressor, &mut section).unwrap();
    let mut trailer = [0; TRAILER_BYTES];
    trailer[..8].copy_from_slice(&END_MAGIC);
    trailer[8..16].copy_from_slice(&(sections.len() as u64).to_le_bytes());
    trailer[24..32].copy_from_slice(&(entries.len() as u64).to_le_bytes());
    let crc = crc32c::crc32c(&trailer[..36]);
    trailer[36..].copy_from_slice(&crc.to_le_bytes());
    [sections, &section, &trailer].concat()
}

/// Entries compress well, so the index of a short file could hold any number of them, and each
/// could make the reader read the whole file.
#[test]
fn an_index_whose_sections_overlap_is_not_used() {
    let bytes = file(&records(1_000));
    let index = Index::read(&mut Cursor::new(&bytes)).unwrap().unwrap();
    let sections = &bytes[..usize::try_from(index.end).unwrap()];
    let read = |entries: &[IndexEntry]| {
        Index::read(&mut Cursor::new(with_index(sections, entries))).unwrap().map(|it| it.entries)
    };
    let entries = &index.entries;
    assert_eq!(read(entries), Some(entries.clone()));
    let moved = |entry: IndexEntry, offset| IndexEntry { offset, ..entry };
    let (first, second) = (entries[0], entries[1]);
    for (case, wrong) in [
        ("a section twice", [first, first]),
        ("backwards", [second, first]),
        ("within the header", [moved(first, 0), second]),
        ("within another section", [first, moved(second, first.offset + FRAME_BYTES as u64 - 1)]),
        ("beyond the sections", [first, moved(second, index.end - FRAME_BYTES as u64 + 1)]),
        ("beyond 2^64", [first, moved(second, u64::MAX)]),
    ] {
        assert_eq!(read(&wrong), None, "{case}");
    }
    assert_eq!(read(&vec![first; 100_000]), None, "more sections than the file has room for");
}

#[test]
fn what_a_recorder_lost_is_said() {
    let records = records(300);
    let mut writer = Writer::new(Vec::new(), WriterOptions::default()).unwrap();
    for block in records.chunks(100) {
        writer.append(block).unwrap();
        writer.lost(7);
        writer.cut().unwrap();
    }
    writer.lost(1);
    let bytes = writer.finish().unwrap();
    let mut source = open(&bytes, 0).unwrap();
    assert_eq!(drain(&mut source).unwrap(), records);
    let expected = "22 requests are missing: their recorder had no room for them";
    assert_eq!(source.notes(), [expected]);
}
