//! Mutated inputs of all formats through all readers, and random records through all writers, for
//! the configured time. None of them may panic, hang, or return more records than the bytes can
//! hold.

use super::round_trip::{check, decode, encode, random_records};
use super::samples::{Sample, requests};
use super::{drain, open, samples};
use larder_lab::random::Random;
use larder_lab::trace::{Addressing, BoxedSource, Format, LEN_MAX, OpenOptions, Target};
use larder_testing::budget;
use std::time::{Duration, Instant};

/// Maximum processor time for one input; on a machine with other work, waiting takes more.
const INPUT_MAX: Duration = Duration::from_secs(5);

/// Reads one input, valid or not.
fn read(sample: &Sample, bytes: &[u8], options: &OpenOptions) {
    if let Ok(mut source) = open(sample.name, bytes, options) {
        check_source(&mut source, bytes.len());
    }
}

/// Returns the time that this thread has run on a processor: the first number of
/// `/proc/thread-self/schedstat` (the kernel's Documentation/scheduler/sched-stats.rst).
fn thread_cpu_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").expect("the kernel tells");
    let first = stat.split_whitespace().next().and_then(|ns| ns.parse().ok());
    Duration::from_nanos(first.expect("a number of nanoseconds"))
}

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(default)
}

fn below(random: &mut Random, end: usize) -> usize {
    usize::try_from(random.below(end.max(1) as u64)).expect("below a length")
}

/// Applies one to eight changes: flips, cuts, duplications, boundary numbers, parts of another
/// input.
fn mutate(bytes: &mut Vec<u8>, other: &[u8], random: &mut Random) {
    for _ in 0..=random.below(8) {
        let at = below(random, bytes.len());
        let len = below(random, 64).min(bytes.len() - at);
        match random.below(9) {
            0 if !bytes.is_empty() => bytes[at] ^= 1 << random.below(8),
            1 if !bytes.is_empty() => bytes[at] = random.bits().to_le_bytes()[0],
            2 => bytes.truncate(at),
            3 => drop(bytes.drain(at..at + len)),
            4 => {
                let part = bytes[at..at + len].to_vec();
                bytes.splice(at..at, part);
            }
            5 => {
                let limits: [&[u8]; 5] =
                    [&[0xff; 8], &[0; 8], b"18446744073709551615", b"-1", b"4294967296"];
                let limit = limits[below(random, limits.len())];
                let end = bytes.len().min(at + limit.len());
                bytes.splice(at..end, limit.iter().copied());
            }
            6 => {
                let from = below(random, other.len());
                let part = other[from..].iter().take(256).copied();
                bytes.splice(at..at + len, part);
            }
            7 => bytes.insert(at, b"\n,\" .\0\xff-"[below(random, 8)]),
            _ => {
                let end = bytes.len().min(at + 8);
                bytes[at..end].reverse();
            }
        }
    }
}

/// Reads to the end, valid or not, and checks the guarantees of a reader.
fn check_source(source: &mut BoxedSource, bytes: usize) {
    let objects = source.addressing() == Addressing::Objects;
    if let Ok(records) = drain(source) {
        // Formats without compression have at least two bytes per record; a block of Larder's own
        // format packs 65,536 records into a few bytes, and a zstd stream any number.
        assert!(records.len() <= (bytes + 1).saturating_mul(65_536));
        for record in records {
            assert!(objects || record.offset.checked_add(record.len).is_some());
            assert!(objects || !record.op.transfers() || record.len <= LEN_MAX);
        }
    }
    assert!(source.notes().len() < 10);
}

/// Returns the inputs to mutate: one of each format, plain and compressed, and one in Larder's own
/// format.
fn corpus() -> Vec<Sample> {
    let requests = requests(40, 1);
    let mut corpus = samples(&requests);
    let larder_sample = |target, format, name| {
        let bytes = encode(&requests, target, Addressing::Bytes);
        Sample { format, name, bytes, records: requests.clone() }
    };
    corpus.push(larder_sample(Target::Larder, Format::Larder, "a.ltr"));
    let packed = zstd::encode_all(&corpus[0].bytes[..], 1).expect("packed in memory");
    corpus.push(Sample { bytes: packed, ..corpus[0].clone() });
    corpus
}

#[test]
fn mutated_traces_harm_nobody() {
    let seconds = number("LARDER_FUZZ_SECONDS", budget(1, 60));
    let mut random = Random::from_seed(number("LARDER_SEED", 1));
    let corpus = corpus();
    let formats: Vec<Format> = Format::all().filter(|f| *f != Format::Parquet).collect();
    let parquet = Target::from_name("parquet")
        .map(|target| (target, encode(&requests(40, 1), target, Addressing::Bytes)));
    let start = Instant::now();
    let (mut rounds, mut inputs, mut trips) = (0_u64, 0_u64, 0_u64);
    while start.elapsed() < Duration::from_secs(seconds) {
        let sample = &corpus[below(&mut random, corpus.len())];
        let other = &corpus[below(&mut random, corpus.len())];
        let mut bytes = sample.bytes.clone();
        mutate(&mut bytes, &other.bytes, &mut random);
        // By its content, as its own format, and as another one.
        let anything_else = formats[below(&mut random, formats.len())];
        for format in [None, Some(sample.format), Some(anything_else)] {
            let max_bad = random.below(3) * 1_000_000;
            let options = OpenOptions { format, max_bad, ..OpenOptions::default() };
            let started = Instant::now();
            read(sample, &bytes, &options);
            if started.elapsed() >= INPUT_MAX {
                let before = thread_cpu_time();
                read(sample, &bytes, &options);
                let took = thread_cpu_time().saturating_sub(before);
                assert!(took < INPUT_MAX, "{:?} as {format:?} takes {took:?}", sample.format);
            }
            inputs += 1;
        }
        rounds += 1;
        if rounds.is_multiple_of(64) {
            let addressing =
                if random.below(2) == 0 { Addressing::Bytes } else { Addressing::Objects };
            let count = random.below(400);
            check(&random_records(&mut random, count, addressing), addressing);
            trips += 1;
            if let Some((target, whole)) = &parquet {
                let mut bytes = whole.clone();
                mutate(&mut bytes, &other.bytes, &mut random);
                if let Ok(mut source) = decode(&bytes, *target, 0) {
                    check_source(&mut source, bytes.len());
                }
                inputs += 1;
            }
        }
    }
    assert!(trips > 0 || rounds < 64, "records are written and read back");
    println!("fuzzed: {inputs} inputs, {trips} round trips through all writers");
}
