//! Claim about the curve of the policy in use: hit ratios that a cache predicts for half and twice
//! its size, against those of caches of these sizes, for each policy and amount of read-ahead.

use super::{Result, TRACES, mean_and_most, open, part, whole_options};
use larder_core::curve::report::CurvePoint;
use larder_core::hint::Hint;
use larder_core::policy::PolicyKind;
use larder_core::units::BLOCK_BYTES_U64;
use larder_lab::sim::engine::{self, VolumeLengths};
use larder_lab::trace::synth::{Pattern, Synth, SynthOptions};
use larder_lab::trace::{NameKind, Record, Source, TraceError};
use larder_testing::{claim, shared_trace};
use std::collections::HashSet;
use std::sync::Mutex;

/// References of a trace that are replayed: about five minutes at 1,000 references per second.
const REFERENCES: u64 = 300_000;
/// Sizes of the caches in per cent of the footprint, each half of the next. Those but the first and
/// the last predict both neighbors.
const SIZES: [u64; 4] = [5, 10, 20, 40];
/// Amounts of read-ahead in bytes.
const READ_AHEAD: [u64; 3] = [0, 64 << 10, 1 << 20];
/// Patterns of generated traces.
const PATTERNS: [Pattern; 3] = [Pattern::Zipf, Pattern::Sample, Pattern::Database];
/// Records of a batch.
const BATCH: usize = 1024;

/// Records in memory.
struct Records<'a>(&'a [Record]);

impl Source for Records<'_> {
    fn read_batch(&mut self, batch: &mut Vec<Record>) -> std::result::Result<(), TraceError> {
        let (next, rest) = self.0.split_at(BATCH.min(self.0.len()));
        batch.extend_from_slice(next);
        self.0 = rest;
        Ok(())
    }

    fn name(&self, _: NameKind, _: u32) -> Option<&str> {
        None
    }
}

/// The first part of a trace.
struct Trace {
    name: &'static str,
    records: Vec<Record>,
    /// Distinct pages.
    footprint: u64,
}

fn pages(record: &Record) -> std::ops::Range<u64> {
    record.offset / BLOCK_BYTES_U64..record.end().div_ceil(BLOCK_BYTES_U64)
}

fn read(name: &'static str, source: &mut dyn Source) -> Result<Trace> {
    let (mut records, mut found, mut references) = (Vec::new(), HashSet::new(), 0);
    let mut batch = Vec::new();
    while references < REFERENCES && source.next_batch(&mut batch)? {
        for record in batch.iter().filter(|record| record.op.transfers() && record.len > 0) {
            if references < REFERENCES {
                references += pages(record).count() as u64;
                found.extend(pages(record));
                records.push(*record);
            }
        }
    }
    Ok(Trace { name, records, footprint: found.len() as u64 })
}

fn all_traces() -> Result<Vec<Trace>> {
    let mut traces = Vec::new();
    // The last one has no hits at these sizes.
    for &(file, name) in &TRACES[..TRACES.len() - 1] {
        if let Some(path) = shared_trace(file) {
            traces.push(read(name, &mut open(&path)?)?);
        }
    }
    for pattern in PATTERNS {
        let options = SynthOptions {
            pattern,
            requests: REFERENCES,
            pages: 32_768,
            writes: 0.1,
            exponent: 0.9,
            ..SynthOptions::default()
        };
        traces.push(read(pattern.name(), &mut Synth::new(options)?)?);
    }
    Ok(traces)
}

/// Returns the curve of the policy after the replay: of all references, without aging.
fn replay(
    trace: &Trace,
    policy: PolicyKind,
    read_ahead: u64,
    frames: u32,
) -> Result<Vec<CurvePoint>> {
    let mut options = whole_options(frames)?;
    options.policy = policy.into();
    options.hint = if read_ahead == 0 { Hint::Random } else { Hint::Normal };
    options.tunables.set("read-ahead-max", read_ahead)?;
    let lengths = VolumeLengths::of(&mut Records(&trace.records))?;
    let outcome = engine::simulate(&mut Records(&trace.records), &lengths, &options, |_| ())?;
    let report = outcome.curves.into_iter().flatten().next().ok_or("the curve is kept")?;
    Ok(report.lifetime_policy_points)
}

/// Predicted and measured hit ratios.
#[derive(Clone, Debug)]
struct Prediction {
    policy: PolicyKind,
    read_ahead: u64,
    /// `None` if there is no estimate.
    errors: Vec<Option<f64>>,
    held: usize,
}

/// Replays a trace to caches of all sizes, and compares the predictions of the inner ones.
fn predict(trace: &Trace, policy: PolicyKind, read_ahead: u64) -> Result<Vec<Prediction>> {
    let mut curves = Vec::new();
    for size in SIZES {
        let frames = part(trace.footprint, size)?;
        curves.push((frames, replay(trace, policy, read_ahead, frames)?));
    }
    let at = |curve: &[CurvePoint], frames: u32| {
        let near = |point: &&CurvePoint| {
            (point.bytes / BLOCK_BYTES_U64).abs_diff(frames.into()) <= u64::from(frames / 50) + 1
        };
        curve.iter().find(near).map(|point| point.estimate)
    };
    let mut predictions = Vec::new();
    for of in 1..SIZES.len() - 1 {
        let (mut texts, mut errors, mut held) = (Vec::new(), Vec::new(), 0);
        for other in of - 1..=of + 1 {
            let frames = curves[other].0;
            let measured = at(&curves[other].1, frames).ok_or("a cache counts its hits")?;
            let made = at(&curves[of].1, frames);
            let measured = measured.hit_ratio;
            let shown =
                made.map_or("-".to_owned(), |made| format!("{:.2}", made.hit_ratio * 100.0));
            texts.push(format!("{shown}/{:.2}", measured * 100.0));
            errors.push(made.map(|made| (made.hit_ratio - measured).abs()));
            held += usize::from(made.is_some_and(|made| made.holds(measured)));
        }
        let (name, size, kib) = (trace.name, SIZES[of], read_ahead >> 10);
        println!("{name} {size} %, {}, {kib} KiB: {}", policy.name(), texts.join(" "));
        predictions.push(Prediction { policy, read_ahead, errors, held });
    }
    Ok(predictions)
}

/// Prints mean and maximum of some predictions, and returns them.
fn summary(label: &str, predictions: &[&Prediction]) -> Option<(String, bool)> {
    let errors = || predictions.iter().flat_map(|one| &one.errors);
    let known: Vec<f64> = errors().copied().flatten().collect();
    let (figure, holds) = mean_and_most(&known, [0.01, 0.03])?;
    let held: usize = predictions.iter().map(|one| one.held).sum();
    let unknown = errors().count() - known.len();
    let figure =
        format!("{figure}, {held} of {} in their interval, {unknown} not estimated", known.len());
    println!("{label}: {figure}");
    Some((figure, holds))
}

/// Compares predictions with measurements. The quick form leaves out most policies.
pub(super) fn run(quick: bool) -> Result<()> {
    let traces = all_traces()?;
    let is_default = |kind: &PolicyKind| *kind == PolicyKind::S3Fifo;
    // This policy has no estimate.
    let is_estimated = |kind: &PolicyKind| *kind != PolicyKind::WTinyLfu;
    let chosen = |kind: &PolicyKind| if quick { is_default(kind) } else { is_estimated(kind) };
    let policies: Vec<PolicyKind> = PolicyKind::ALL.into_iter().filter(chosen).collect();
    let cases = traces.iter().flat_map(|trace| {
        let of = move |&policy| READ_AHEAD.map(|read_ahead| (trace, policy, read_ahead));
        policies.iter().flat_map(of)
    });
    let cases: Mutex<Vec<_>> = Mutex::new(cases.collect());
    let work = || -> std::result::Result<Vec<Prediction>, String> {
        let mut found = Vec::new();
        loop {
            let case = cases.lock().expect("no other thread failed").pop();
            let Some((trace, policy, read_ahead)) = case else { return Ok(found) };
            found.extend(predict(trace, policy, read_ahead).map_err(|error| error.to_string())?);
        }
    };
    let mut all: Vec<Prediction> = Vec::new();
    std::thread::scope(|scope| -> Result<()> {
        let workers = [(), ()].map(|()| scope.spawn(work));
        for worker in workers {
            all.extend(worker.join().expect("no thread panics")?);
        }
        Ok(())
    })?;
    for read_ahead in READ_AHEAD {
        for &policy in &policies {
            let of = |one: &&Prediction| one.policy == policy && one.read_ahead == read_ahead;
            let chosen: Vec<_> = all.iter().filter(of).collect();
            summary(&format!("{}, read-ahead {} KiB", policy.name(), read_ahead >> 10), &chosen);
        }
        let chosen: Vec<_> = all.iter().filter(|one| one.read_ahead == read_ahead).collect();
        let kib = read_ahead >> 10;
        let what = format!(
            "the curve of the policy in use is 1 point off on average, 3 at most; \
             read-ahead {kib} KiB"
        );
        match summary(&format!("all, read-ahead {kib} KiB"), &chosen) {
            Some((figure, holds)) => claim(what, figure, "", holds),
            None => claim(what, "no trace in ../shared/traces", "", None),
        }
    }
    Ok(())
}
