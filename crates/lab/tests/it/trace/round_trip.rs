//! Records written in a format are read back unchanged.

use super::{drain, open};
use larder_lab::random::Random;
use larder_lab::trace::TIME_NS_MAX;
use larder_lab::trace::synth::{Pattern, Synth, SynthOptions};
use larder_lab::trace::{
    Addressing, BoxedSource, NameKind, Op, OpenOptions, Record, Source, Target, TraceError, ltr,
};
use std::io::Write;

/// A source of records in memory, with names for some numbers.
pub(crate) struct RecordList {
    pub(crate) records: Vec<Record>,
    pub(crate) addressing: Addressing,
}

const NAMES: [&str; 4] = ["a", "with, comma", "with \"quotes\"", "non-ASCII \u{fc}"];

impl Source for RecordList {
    fn read_batch(&mut self, batch: &mut Vec<Record>) -> Result<(), TraceError> {
        batch.append(&mut self.records);
        Ok(())
    }

    fn name(&self, _: NameKind, number: u32) -> Option<&str> {
        let number = usize::try_from(number).ok()?.checked_sub(1)?;
        NAMES.get(number).copied()
    }

    fn addressing(&self) -> Addressing {
        self.addressing
    }
}

/// Returns random records of all kinds that a trace may hold.
pub(crate) fn random_records(
    random: &mut Random,
    count: u64,
    addressing: Addressing,
) -> Vec<Record> {
    let small = |random: &mut Random, bits: u64| random.bits() >> (64 - bits.max(1));
    let mut time_ns = 0_u64;
    (0..count)
        .map(|_| {
            let op = Op::ALL[usize::try_from(random.below(5)).expect("below 5")];
            let bits = 1 + random.below(33);
            let mut len = small(random, bits).min(4 << 30);
            let bits = 1 + random.below(63);
            let mut offset = small(random, bits);
            if addressing == Addressing::Objects {
                (offset, len) = (random.bits(), random.bits());
            }
            // Mostly ascending times, with occasional jumps.
            let step = small(random, 30);
            time_ns = if random.below(50) == 0 { small(random, 62) } else { time_ns + step };
            time_ns = time_ns.min(TIME_NS_MAX);
            let latency_ns = if random.below(2) == 0 { 0 } else { small(random, 40) };
            let number = |random: &mut Random| u32::try_from(random.below(6)).expect("below 6");
            let [volume, file, process] = [(); 3].map(|()| number(random));
            let class = u8::try_from(random.below(12)).expect("below 12");
            Record { time_ns, offset, len, latency_ns, volume, file, process, op, class }
        })
        .collect()
}

/// Writes records in a format, with names, and returns the bytes of the file.
pub(crate) fn encode(records: &[Record], target: Target, addressing: Addressing) -> Vec<u8> {
    let file = tempfile::NamedTempFile::new().unwrap();
    let listed = RecordList { records: Vec::new(), addressing };
    let mut sink = target.begin(file.reopen().unwrap(), &listed).unwrap();
    for part in records.chunks(10_000) {
        sink.append(part, &listed).unwrap();
    }
    sink.finish(&listed).unwrap();
    std::fs::read(file.path()).unwrap()
}

/// Opens bytes of any format, including Parquet, which needs a file.
pub(crate) fn decode(
    bytes: &[u8],
    target: Target,
    max_bad: u64,
) -> Result<BoxedSource, TraceError> {
    let options = OpenOptions { max_bad, ..OpenOptions::default() };
    if matches!(target, Target::Larder | Target::Csv) {
        return open("memory", bytes, &options);
    }
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(bytes).unwrap();
    larder_lab::trace::open(file.path(), &options)
}

/// Checks that every format returns the records, and the names that they use.
pub(crate) fn check(records: &[Record], addressing: Addressing) {
    for &(target, ..) in Target::all() {
        let bytes = encode(records, target, addressing);
        let mut source = decode(&bytes, target, 0).unwrap();
        let pages = matches!(addressing, Addressing::Pages { .. });
        let expected = if pages && target == Target::Csv { Addressing::Bytes } else { addressing };
        assert_eq!(source.addressing(), expected, "{target:?}");
        assert_eq!(drain(&mut source).unwrap(), records, "{target:?}");
        assert!(source.notes().is_empty(), "{target:?}: {:?}", source.notes());
        let listed = RecordList { records: Vec::new(), addressing };
        for record in records {
            for (of, number) in [
                (NameKind::Volume, record.volume),
                (NameKind::File, record.file),
                (NameKind::Process, record.process),
            ] {
                assert_eq!(source.name(of, number), listed.name(of, number), "{target:?}");
            }
        }
    }
}

#[test]
fn random_records_come_back_from_every_format() {
    let mut random = Random::from_seed(3);
    for addressing in [Addressing::Bytes, Addressing::Pages { bytes: 512 }, Addressing::Objects] {
        for count in [0, 1, 7, 3_000] {
            check(&random_records(&mut random, count, addressing), addressing);
        }
    }
}

#[test]
fn more_than_a_block_comes_back() {
    let count = ltr::BLOCK_RECORDS_MAX as u64 * 2 + 17;
    check(&random_records(&mut Random::from_seed(4), count, Addressing::Bytes), Addressing::Bytes);
}

#[test]
fn a_synthetic_trace_is_the_same_file_each_time() {
    let options =
        SynthOptions { pattern: Pattern::Database, requests: 100_000, ..SynthOptions::default() };
    let make = || {
        let mut source: BoxedSource = Box::new(Synth::new(options).unwrap());
        encode(&drain(&mut source).unwrap(), Target::Larder, Addressing::Bytes)
    };
    assert_eq!(make(), make());
}
