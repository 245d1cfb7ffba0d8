//! Mutated inputs of all formats through all readers, and random records through all writers, for
//! as long as is asked. Nothing may panic, hang, or hand out more records than bytes can hold.

use super::round_trip::{anything, check, reopened, written};
use super::samples::{Sample, asked};
use super::{drain, open, samples};
use larder_lab::random::Random;
use larder_lab::trace::{Addressing, BoxedSource, Format, LEN_MAX, OpenOptions, Target};
use larder_testing::budget;
use std::time::{Duration, Instant};

/// How long one input may take, on a processor: a machine with other work makes it wait as well.
const INPUT_MAX: Duration = Duration::from_secs(5);

/// Reads one input, whatever it is.
fn read(sample: &Sample, bytes: &[u8], options: &OpenOptions) {
    if let Ok(mut source) = open(sample.name, bytes, options) {
        judge(&mut source, bytes.len());
    }
}

/// Nanoseconds that this thread has been on a processor: the first number of
/// `/proc/thread-self/schedstat` (the kernel's Documentation/scheduler/sched-stats.rst).
fn on_processor() -> Duration {
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

/// One to eight changes: flips, cuts, doublings, numbers at their limits, parts of another input.
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

/// Reads to the end, whatever it is; what comes out is what a reader promises.
fn judge(source: &mut BoxedSource, bytes: usize) {
    let objects = source.addressing() == Addressing::Objects;
    if let Ok(records) = drain(source) {
        // No format that is not packed has less than two bytes a record; a block of ours packs
        // 65,536 into a few, and a zstd stream whatever it likes.
        assert!(records.len() <= (bytes + 1).saturating_mul(65_536));
        for record in records {
            assert!(objects || record.offset.checked_add(record.len).is_some());
            assert!(objects || !record.op.transfers() || record.len <= LEN_MAX);
        }
    }
    assert!(source.notes().len() < 10);
}

/// The inputs that are mutated: one of each format, plain and packed, and ours.
fn corpus() -> Vec<Sample> {
    let asked = asked(40, 1);
    let mut corpus = samples(&asked);
    let own = |target, format, name| {
        let bytes = written(&asked, target, Addressing::Bytes);
        Sample { format, name, bytes, records: asked.clone() }
    };
    corpus.push(own(Target::Larder, Format::Larder, "a.ltr"));
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
        .map(|target| (target, written(&asked(40, 1), target, Addressing::Bytes)));
    let begun = Instant::now();
    let (mut rounds, mut inputs, mut trips) = (0_u64, 0_u64, 0_u64);
    while begun.elapsed() < Duration::from_secs(seconds) {
        let sample = &corpus[below(&mut random, corpus.len())];
        let other = &corpus[below(&mut random, corpus.len())];
        let mut bytes = sample.bytes.clone();
        mutate(&mut bytes, &other.bytes, &mut random);
        // By its content, as what it is, and as something else.
        let anything_else = formats[below(&mut random, formats.len())];
        for format in [None, Some(sample.format), Some(anything_else)] {
            let max_bad = random.below(3) * 1_000_000;
            let options = OpenOptions { format, max_bad, ..OpenOptions::default() };
            let started = Instant::now();
            read(sample, &bytes, &options);
            if started.elapsed() >= INPUT_MAX {
                let before = on_processor();
                read(sample, &bytes, &options);
                let took = on_processor().saturating_sub(before);
                assert!(took < INPUT_MAX, "{:?} as {format:?} takes {took:?}", sample.format);
            }
            inputs += 1;
        }
        rounds += 1;
        if rounds.is_multiple_of(64) {
            let addressing =
                if random.below(2) == 0 { Addressing::Bytes } else { Addressing::Objects };
            let count = random.below(400);
            check(&anything(&mut random, count, addressing), addressing);
            trips += 1;
            if let Some((target, whole)) = &parquet {
                let mut bytes = whole.clone();
                mutate(&mut bytes, &other.bytes, &mut random);
                if let Ok(mut source) = reopened(&bytes, *target, 0) {
                    judge(&mut source, bytes.len());
                }
                inputs += 1;
            }
        }
    }
    assert!(trips > 0 || rounds < 64, "records are written and read back");
    println!("fuzzed: {inputs} inputs, {trips} round trips through all writers");
}
