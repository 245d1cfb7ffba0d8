//! Speed of the trace readers: megabytes (10^6 bytes) of input per second on one core, from memory,
//! for each text format and each other format.
//!
//! `cargo bench --package larder-lab --bench trace -- [--json] [--quick]`. Without `--bench`, which
//! cargo adds, as in `cargo test --benches`, a short run over a few requests checks that it works.

#![expect(clippy::unwrap_used, reason = "a bench that cannot go on is to panic")]

#[path = "../tests/it/trace/samples.rs"]
mod samples;

use larder_lab::trace::{Format, OpenOptions, Record, Source, Target, open_stream};
use samples::{Sample, binaries, requests, texts};
use std::io::{self, Cursor, Write};
use std::time::Instant;

/// Requests of each input, and the number of times it is read.
#[derive(Clone, Copy)]
struct Scale {
    requests: usize,
    rounds: usize,
}

impl Scale {
    fn of(arguments: &[String]) -> Self {
        let has = |name: &str| arguments.iter().any(|argument| argument == name);
        match (has("--bench") && !has("--test"), has("--quick")) {
            (false, _) => Scale { requests: 1_000, rounds: 1 },
            (true, true) => Scale { requests: 200_000, rounds: 3 },
            (true, false) => Scale { requests: 500_000, rounds: 7 },
        }
    }
}

/// Result for one format.
struct Line {
    name: String,
    text: bool,
    bytes: usize,
    /// Median, least and greatest.
    mb_per_s: [f64; 3],
    records_per_s: f64,
}

/// Reads an input to its end, and returns its number of records.
fn read(sample: &Sample) -> usize {
    let options = OpenOptions { format: Some(sample.format), ..OpenOptions::default() };
    let bytes = Box::new(Cursor::new(sample.bytes.clone()));
    let mut source = open_stream(sample.name, bytes, &options).unwrap();
    let (mut batch, mut count) = (Vec::new(), 0);
    while source.next_batch(&mut batch).unwrap() {
        count += batch.len();
    }
    count
}

fn measure(sample: &Sample, text: bool, scale: Scale) -> Line {
    let mut seconds: Vec<f64> = (0..scale.rounds)
        .map(|_| {
            let started = Instant::now();
            let count = read(sample);
            assert_eq!(count, sample.records.len(), "all records of {:?}", sample.format);
            started.elapsed().as_secs_f64()
        })
        .collect();
    seconds.sort_by(f64::total_cmp);
    let [median, least, greatest] =
        [seconds[seconds.len() / 2], seconds[0], seconds[seconds.len() - 1]];
    let as_f64 = |count: usize| f64::from(u32::try_from(count).expect("less than 2^32"));
    let rate = |seconds: f64| as_f64(sample.bytes.len()) / seconds / 1e6;
    Line {
        name: sample.format.name().to_owned(),
        text,
        bytes: sample.bytes.len(),
        mb_per_s: [rate(median), rate(greatest), rate(least)],
        records_per_s: as_f64(sample.records.len()) / median,
    }
}

/// A source that provides no names.
struct NoNames;

impl Source for NoNames {
    fn read_batch(&mut self, _: &mut Vec<Record>) -> Result<(), larder_lab::trace::TraceError> {
        Ok(())
    }

    fn name(&self, _: larder_lab::trace::NameKind, _: u32) -> Option<&str> {
        None
    }
}

/// Returns the same requests in Larder's own format.
fn larder_sample(records: &[Record]) -> Sample {
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut sink = Target::Larder.begin(file.reopen().unwrap(), &NoNames).unwrap();
    sink.append(records, &NoNames).unwrap();
    sink.finish(&NoNames).unwrap();
    let bytes = std::fs::read(file.path()).unwrap();
    Sample { format: Format::Larder, name: "bench.ltr", bytes, records: records.to_vec() }
}

fn main() -> io::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let scale = Scale::of(&arguments);
    let requests = requests(scale.requests, 1);
    let mut lines: Vec<Line> =
        texts(&requests).iter().map(|sample| measure(sample, true, scale)).collect();
    lines.extend(binaries(&requests).iter().map(|sample| measure(sample, false, scale)));
    lines.push(measure(&larder_sample(&requests), false, scale));
    let mut out = io::stdout().lock();
    if arguments.iter().any(|argument| argument == "--json") {
        let rows: Vec<String> = lines
            .iter()
            .map(|Line { name, text, bytes, mb_per_s: [median, min, max], records_per_s }| {
                format!(
                    "{{\"format\":\"{name}\",\"text\":{text},\"bytes\":{bytes},\
                     \"mb_per_s\":[{median:.1},{min:.1},{max:.1}],\
                     \"records_per_s\":{records_per_s:.0}}}"
                )
            })
            .collect();
        return writeln!(out, "{{\"formats\":[{}]}}", rows.join(","));
    }
    writeln!(out, "{:<16} {:>8} {:>8} {:>8} {:>16}", "MB/s", "median", "min", "max", "records/s")?;
    for Line { name, mb_per_s: [median, min, max], records_per_s, .. } in &lines {
        writeln!(out, "{name:<16} {median:>8.0} {min:>8.0} {max:>8.0} {records_per_s:>16.0}")?;
    }
    Ok(())
}
