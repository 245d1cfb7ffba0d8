//! Fuzz targets for traces of every format.

use crate::packed;
use larder_core::policy::PolicyKind;
use larder_lab::fitted::{FitOptions, fit};
use larder_lab::sim::sizing::{Options, SizingError, measure};
use larder_lab::trace::{
    Addressing, BoxedSource, Format, LEN_MAX, NameKind, OpenOptions, Record, Source, TIME_NS_MAX,
    TraceError, VOLUME_MAX, open as open_path, open_stream,
};
use larder_report::sizing::SizedCache;
use larder_schema::advice::SizingGoal;
use rustix::fs::MemfdFlags;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Cursor;
use std::num::NonZero;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock};

/// The maximum number of records read: a compressed stream may hold any number.
const RECORDS_MAX: usize = 1 << 16;

/// Reads a trace. The first byte selects the format; otherwise the format is detected by content.
fn open(input: &[u8]) -> Result<BoxedSource, TraceError> {
    let (first, bytes) = input.split_first().unwrap_or((&0, &[]));
    let format = usize::from(*first).checked_sub(1).and_then(|at| stream_formats().nth(at));
    let with_header;
    let bytes = if format == Some(Format::Lcs) {
        with_header = after_lcs_header(bytes);
        &with_header
    } else {
        bytes
    };
    let options = OpenOptions { format, max_bad: 3, ..OpenOptions::default() };
    open_stream("input", Box::new(Cursor::new(bytes.to_vec())), &options)
}

/// Returns the formats that streams can have.
fn stream_formats() -> impl Iterator<Item = Format> {
    Format::all().filter(|format| *format != Format::Parquet)
}

/// Returns lcs records after their header; the first byte selects the version.
fn after_lcs_header(bytes: &[u8]) -> Vec<u8> {
    const MAGIC: u64 = 0x1234_5678_9abc_def0;
    let (&version, records) = bytes.split_first().unwrap_or((&0, &[]));
    let mut file = [MAGIC.to_le_bytes(), u64::from(version).to_le_bytes()].concat();
    file.resize(8192 - 8, 0);
    file.extend(MAGIC.to_le_bytes());
    file.extend(records);
    file
}

fn records(source: &mut BoxedSource) -> Result<Vec<Record>, TraceError> {
    let (mut records, mut batch) = (Vec::new(), Vec::new());
    while records.len() < RECORDS_MAX && source.next_batch(&mut batch)? {
        records.append(&mut batch);
    }
    Ok(records)
}

/// Opens a trace as a stream.
pub(crate) fn trace(input: &[u8]) {
    if let Ok(source) = open(input) {
        check(source);
    }
}

/// Opens a trace as a file, so that its index is used. The first byte selects the format, its upper
/// half the requested time range.
pub(crate) fn trace_file(input: &[u8]) {
    static MEMORY: OnceLock<Mutex<File>> = OnceLock::new();
    let memory = MEMORY.get_or_init(|| {
        let memory = rustix::fs::memfd_create("trace", MemfdFlags::CLOEXEC);
        Mutex::new(File::from(memory.expect("a file in memory")))
    });
    let (first, bytes) = input.split_first().unwrap_or((&0, &[]));
    let file = memory.lock().expect("no holder panics");
    file.set_len(0).expect("it is ours");
    file.write_all_at(bytes, 0).expect("there is room");
    let path = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
    let formats = [None, Some(Format::Larder), Some(Format::Parquet)];
    let times = (first >> 4 != 0).then(|| 0..1 << ((first >> 4) * 4));
    let format = formats[usize::from(first & 0xf) % formats.len()];
    let options = OpenOptions { format, max_bad: 3, times, ..OpenOptions::default() };
    if let Ok(source) = open_path(&path, &options) {
        check(source);
    }
}

/// Opens a trace in Larder's format with valid checksums, as a stream and as a file. A byte for the
/// header is followed by sections: kind, count, number of the first record, length, payload.
pub(crate) fn ltr(input: &[u8]) {
    const KINDS: [&[u8; 4]; 5] = [b"RECS", b"NAME", b"LOST", b"INDX", b"????"];
    let (&first, mut rest) = input.split_first().unwrap_or((&0, &[]));
    let mut bytes = b"LARDERT\n\x01\0".to_vec();
    bytes.extend([first % 3, 0]);
    bytes.extend((1_u32 << (first >> 3)).to_le_bytes());
    bytes.extend([0; 12]);
    bytes.extend(crc32c::crc32c(&bytes).to_le_bytes());
    let mut index = Vec::new();
    while let Some((&[kind, count, number, low, high], following)) = rest.split_first_chunk() {
        let length = usize::from(u16::from_le_bytes([low, high])).min(following.len());
        let (raw, following) = following.split_at(length);
        let kind = KINDS[usize::from(kind) % KINDS.len()];
        index.extend((bytes.len() as u64).to_le_bytes());
        index.extend(kind);
        index.extend(u32::from(count).to_le_bytes());
        index.extend(u64::from(number).to_le_bytes());
        index.extend([0; 15]);
        index.push(1);
        section(&mut bytes, *kind, (count, number), raw);
        rest = following;
    }
    let end = bytes.len() as u64;
    section(&mut bytes, *b"INDX", (0, 0), &index);
    let trailer = bytes.len();
    bytes.extend(b"LARDEND\n");
    bytes.extend(end.to_le_bytes());
    bytes.extend(u64::from(first).to_le_bytes());
    bytes.extend((index.len() as u64 / 40).to_le_bytes());
    bytes.extend([0; 4]);
    bytes.extend(crc32c::crc32c(&bytes[trailer..]).to_le_bytes());
    trace(&[&[0], &bytes[..]].concat());
    trace_file(&[&[first << 4], &bytes[..]].concat());
}

/// Appends a section of a trace in Larder's format.
fn section(bytes: &mut Vec<u8>, kind: [u8; 4], (count, number): (u8, u8), raw: &[u8]) {
    let packed = packed::frame(raw);
    let begin = bytes.len();
    let length = |length: usize| u32::try_from(length).expect("an input is short").to_le_bytes();
    bytes.extend(kind);
    bytes.extend(length(packed.len()));
    bytes.extend(length(raw.len()));
    bytes.extend(u32::from(count).to_le_bytes());
    bytes.extend(u64::from(number).to_le_bytes());
    bytes.extend(crc32c::crc32c(&packed).to_le_bytes());
    bytes.extend(crc32c::crc32c(&bytes[begin..]).to_le_bytes());
    bytes.extend(packed);
}

/// Checks the guarantees of a reader for all consumers.
fn check(mut source: BoxedSource) {
    let Ok(records) = records(&mut source) else { return };
    let objects = source.addressing() == Addressing::Objects;
    for record in records {
        assert!(record.time_ns <= TIME_NS_MAX && record.volume <= VOLUME_MAX);
        assert!(objects || record.offset.checked_add(record.len).is_some());
        assert!(objects || !record.op.transfers() || record.len <= LEN_MAX);
        for of in [NameKind::Volume, NameKind::File, NameKind::Process] {
            let name = source.name(of, record.volume);
            assert!(name.is_none_or(|name| name.len() <= 3 * 4096 + 16));
        }
    }
    assert!(source.notes().len() < 10);
}

/// The maximum number of references for `size`: each takes time, and more reach no new code.
const REFERENCES_MAX: u64 = 500;

/// A parsed trace.
struct Trace {
    records: Vec<Record>,
    volumes: BTreeMap<u32, String>,
    addressing: Addressing,
    sample: u32,
    notes: Vec<String>,
}

impl Trace {
    fn read(input: &[u8]) -> Result<Self, TraceError> {
        let mut source = open(input)?;
        let records = records(&mut source)?;
        let name = |volume| Some((volume, source.name(NameKind::Volume, volume)?.to_owned()));
        let volumes = records.iter().filter_map(|record| name(record.volume)).collect();
        let (addressing, sample, notes) = (source.addressing(), source.sample(), source.notes());
        Ok(Trace { records, volumes, addressing, sample, notes })
    }
}

/// A source of a parsed trace. `size` reads a trace about twenty times, and parsing it each time
/// would dominate the run time.
struct FromMemory {
    trace: Arc<Trace>,
    is_read: bool,
}

impl Source for FromMemory {
    fn read_batch(&mut self, batch: &mut Vec<Record>) -> Result<(), TraceError> {
        if !std::mem::replace(&mut self.is_read, true) {
            batch.extend_from_slice(&self.trace.records);
        }
        Ok(())
    }

    fn name(&self, of: NameKind, number: u32) -> Option<&str> {
        let name = self.trace.volumes.get(&number).filter(|_| of == NameKind::Volume);
        name.map(String::as_str)
    }

    fn addressing(&self) -> Addressing {
        self.trace.addressing
    }

    fn sample(&self) -> u32 {
        self.trace.sample
    }

    fn notes(&self) -> Vec<String> {
        self.trace.notes.clone()
    }
}

/// Evaluates each trace, and prints the result in every format.
pub(crate) fn sizing(input: &[u8]) {
    let Ok(trace) = Trace::read(input).map(Arc::new) else { return };
    if trace.records.iter().map(|record| record.len / 4096 + 2).sum::<u64>() > REFERENCES_MAX {
        return;
    }
    let options = Options {
        name: "input".to_owned(),
        goal: SizingGoal { target: 0.95, budget_bytes: None },
        policies: vec![PolicyKind::Lru],
        page_sizes: true,
        sampled: false,
        server: None,
        seed: 1,
        threads: NonZero::<usize>::MIN,
    };
    let again = || {
        let source = FromMemory { trace: Arc::clone(&trace), is_read: false };
        Ok(Box::new(source) as BoxedSource)
    };
    match measure(&again, &options, &mut |_| ()) {
        Ok(report) => assert!(
            !larder_report::sizing::to_text(&report, SizedCache::Server).is_empty()
                && larder_report::sizing::to_html(&report, SizedCache::Server).contains("</html>")
        ),
        Err(
            SizingError::Reference(_) | SizingError::Objects { .. } | SizingError::Empty { .. },
        ) => {}
        Err(error) => panic!("{error}"),
    }
    let requests = (trace.records.len() % 2 == 1).then_some(1000);
    fitted(Box::new(FromMemory { trace, is_read: false }), requests);
}

/// Generates a trace that is fitted to a parsed one, and checks what every consumer relies on.
fn fitted(source: BoxedSource, requests: Option<u64>) {
    let Ok(mut made) = fit(source, &FitOptions { requests, seed: 1 }) else { return };
    let is_of_objects = made.addressing() == Addressing::Objects;
    let mut batch = Vec::new();
    while made.next_batch(&mut batch).expect("it is generated") {
        for record in &batch {
            assert!(record.time_ns <= TIME_NS_MAX && record.volume == 0);
            let is_within =
                record.len <= LEN_MAX && record.offset.checked_add(record.len).is_some();
            assert!(is_of_objects || is_within);
        }
    }
    assert!((0.0..=100.0).contains(&made.error().largest));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_corpus_has_records_of_every_format() {
        let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/trace");
        let files = std::fs::read_dir(corpus).unwrap();
        let inputs: Vec<_> = files.map(|it| std::fs::read(it.unwrap().path()).unwrap()).collect();
        for (index, format) in stream_formats().enumerate() {
            let mut inputs = inputs.iter().filter(|it| usize::from(it[0]) == index + 1);
            let has_records = |input: &Vec<u8>| {
                let read = open(input).and_then(|mut source| records(&mut source));
                read.is_ok_and(|records| !records.is_empty())
            };
            let has_records = inputs.any(has_records);
            // A reader of this format only identifies it.
            assert!(has_records != (format == Format::Perfmon), "{}", format.name());
        }
    }
}
