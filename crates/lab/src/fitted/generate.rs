//! The generator: requests for the pages at the distances of the runs, and for new pages.

mod place;

use super::PAGES_MAX;
use super::history::History;
use super::model::{Kind, Model, Run, op_context};
use super::report::{self, CurveError, TraceSize};
use super::run_pool::{CANDIDATES, RunPool};
use super::shapes::Shape;
use crate::random::Random;
use crate::sim::curve::ExactCurve;
use crate::sim::references::Split;
use crate::trace::{Addressing, NameKind, Op, Record, Source, TIME_NS_MAX, TraceError};

/// Records of a batch.
const BATCH_RECORDS: usize = 8192;
/// Name of the only volume.
const VOLUME: &str = "synthetic";
/// Maximum number of bytes of the volume; pages for which no free place is found follow its end.
const VOLUME_BYTES_MAX: u64 = 1 << 61;
/// Maximum number of passes through all phases until there is a run: phases that repeat lack no
/// references until those that the trace has too many of are made up for.
const PHASES_WITHOUT_RUN_MAX: usize = 16;

/// The properties of a generated trace that the model does not have.
#[derive(Clone, Copy, Debug)]
pub(super) struct Form {
    pub(super) addressing: Addressing,
    pub(super) sample: u32,
    pub(super) requests: Option<u64>,
}

/// The run of which requests are generated.
#[derive(Clone, Copy, Debug)]
struct Current {
    run: Run,
    /// First page of the run, if it continues a recent request.
    begin: Option<u64>,
    /// Requests and pages so far.
    requests: u64,
    pages: u64,
}

/// A synthetic trace with the distributions of another one. It has the error of its hit ratios when
/// it was read to the end.
#[derive(Debug)]
pub struct FittedTrace {
    model: Model,
    form: Form,
    split: Split,
    random: Random,
    history: History,
    run_pool: RunPool,
    phase: usize,
    current: Option<Current>,
    /// Maximum number of pages of the volume, its pages, and the first one after all that are in
    /// use.
    limit: u64,
    span: u64,
    end: u64,
    /// First page of the last request.
    first: u64,
    write: bool,
    /// Requests and writes of the phase.
    phase_ops: [u64; 2],
    time_ns: u64,
    original: (ExactCurve, TraceSize),
    size: TraceSize,
}

impl FittedTrace {
    pub(super) fn new(
        model: Model,
        random: Random,
        form: Form,
        original: (ExactCurve, TraceSize),
    ) -> Self {
        let split = Split::native(form.addressing);
        let limit = VOLUME_BYTES_MAX / split.page_bytes().map_or(1, u64::from);
        let span = if split == Split::Objects { limit } else { model.span.min(limit) };
        let mut run_pool = RunPool::new();
        run_pool.begin(&model.phases[0]);
        FittedTrace {
            model,
            form,
            split,
            random,
            history: History::new(),
            run_pool,
            phase: 0,
            current: None,
            limit,
            span,
            end: span,
            first: 0,
            write: false,
            phase_ops: [0, 0],
            time_ns: 0,
            original,
            size: TraceSize::default(),
        }
    }

    /// Returns the sizes of the other trace and of this one so far.
    #[must_use]
    pub fn sizes(&self) -> [TraceSize; 2] {
        let exact = &self.history.exact;
        let (references, pages) = (exact.references(), exact.footprint());
        [self.original.1, TraceSize { references, pages, ..self.size }]
    }

    /// Returns the difference between the curve of the other trace and that of this one so far.
    #[must_use]
    pub fn error(&self) -> CurveError {
        CurveError::between(&self.original.0, &self.history.exact.curve())
    }

    /// Returns the sizes and the error so far as text.
    #[must_use]
    pub fn to_text(&self) -> String {
        let [original, synthetic] = self.sizes();
        report::to_text(original, synthetic, self.error())
    }

    /// Returns the next run; `None` at the end of the trace, or if no phase has a run.
    fn next_run(&mut self) -> Option<Run> {
        let class = self.current.map_or(0, |current| current.run.kind.class());
        let mut phases_left = PHASES_WITHOUT_RUN_MAX * self.model.phases.len();
        loop {
            while !self.run_pool.fill(&self.model.phases[self.phase]) {
                let next = self.phase + 1;
                let is_end = next == self.model.phases.len() && self.form.requests.is_none();
                phases_left = phases_left.saturating_sub(1);
                if is_end || phases_left == 0 {
                    return None;
                }
                self.phase = next % self.model.phases.len();
                self.run_pool.begin(&self.model.phases[self.phase]);
                self.phase_ops = [0, 0];
            }
            let (history, shapes) = (&self.history, &self.model.shapes);
            let mismatch =
                |run: &Run, distances: &_| match history.continuation(run, shapes, distances) {
                    Some(_) => 0,
                    None => history.mismatch(run, shapes),
                };
            let run = self.run_pool.draw(class, &mut self.random, mismatch);
            let pages = self.history.exact.footprint();
            let is_possible = match run.kind {
                Kind::New { .. } => true,
                // A later round draws it again, when there are more pages.
                Kind::Old { distance, .. } => u64::from(distance) < pages,
            };
            if is_possible && self.run_pool.distances.lacks(run.kind.distance_class()) {
                return Some(run);
            }
        }
    }

    /// Returns the run with the most similar page at a similar distance.
    fn matched(&mut self, run: Run) -> Run {
        let Kind::Old { distance, popularity, continues } = run.kind else { return run };
        let (mut best, shapes) = (run, &self.model.shapes);
        let mut least = self.history.mismatch(&run, shapes);
        for _ in 0..CANDIDATES {
            if least == 0 {
                break;
            }
            let Some(distance) = self.run_pool.distances.similar(distance, &mut self.random) else {
                continue;
            };
            let moved = Run { kind: Kind::Old { distance, popularity, continues }, ..run };
            let mismatch = self.history.mismatch(&moved, shapes);
            if mismatch < least {
                (best, least) = (moved, mismatch);
            }
        }
        best
    }

    /// Returns the current run if it has another request, else the next one; `None` at the end of
    /// the trace.
    fn current(&mut self) -> Option<Current> {
        if let Some(current) = self.current {
            let left = current.run.pages.saturating_sub(current.pages);
            // A run of repeated requests ends with the nearest number of pages.
            let pages = match current.run.kind {
                Kind::New { .. } => 1,
                Kind::Old { distance, .. } => {
                    self.history.repeated_pages(distance, &self.model.shapes)
                }
            };
            let lacks = self.run_pool.distances.lacks(current.run.kind.distance_class());
            if left > 0 && left >= pages / 2 && lacks {
                return Some(current);
            }
        }
        let run = self.next_run()?;
        let begin = self.history.continuation(&run, &self.model.shapes, &self.run_pool.distances);
        let run = if begin.is_none() { self.matched(run) } else { run };
        Some(Current { run, begin, requests: 0, pages: 0 })
    }

    /// Draws the operation of a request in a context; the share of writes in the phase is kept.
    fn draw_write(&mut self, context: usize) -> bool {
        let phase = &self.model.phases[self.phase];
        let of_phase = (phase.requests.max(1), phase.writes);
        let counts = phase.ops[context];
        let of_context =
            if counts.requests == 0 { of_phase } else { (counts.requests, counts.writes) };
        let mut draw = |(all, writes): (u64, u64)| self.random.below(all) < writes;
        let [had, had_writes] = self.phase_ops.map(u128::from);
        let has_many = had_writes * u128::from(phase.requests) > had * u128::from(phase.writes);
        let mut write = draw(of_context);
        if write == has_many {
            write = draw(of_phase);
        }
        self.phase_ops[0] += 1;
        self.phase_ops[1] += u64::from(write);
        write
    }

    /// Generates the next request, and the flush after it; returns false at the end.
    fn next_request(&mut self, batch: &mut Vec<Record>) -> bool {
        let Some(mut current) = self.current() else { return false };
        let (first, number) = self.place(current);
        let shape = self.model.shapes.get(number);
        if self.history.exact.footprint() + shape.pages > 2 * PAGES_MAX {
            return false;
        }
        let context = op_context(current.run.kind.class(), self.history.op(first), self.write);
        self.write = self.draw_write(context);
        let distances = &mut self.run_pool.distances;
        self.history
            .reference(first, shape.pages, number, self.write, |class| distances.count(class));
        self.first = first;
        self.end = self.end.max(first + shape.pages);
        current.requests += 1;
        current.pages += shape.pages;
        self.current = Some(current);
        self.emit(first, shape, context, batch);
        true
    }

    fn emit(&mut self, first: u64, shape: Shape, context: usize, batch: &mut Vec<Record>) {
        let phase = &self.model.phases[self.phase];
        if self.size.requests > 0 {
            let interval = phase.interval_ns(&mut self.random);
            self.time_ns = self.time_ns.saturating_add(interval).min(TIME_NS_MAX);
        }
        let offset = first * self.split.page_bytes().map_or(1, u64::from) + shape.skipped;
        let op = if self.write { Op::Write } else { Op::Read };
        let time_ns = self.time_ns;
        batch.push(Record { time_ns, offset, len: shape.bytes, op, ..Record::default() });
        let counts = phase.ops[context];
        if self.random.below(counts.requests.max(1)) < counts.flushes {
            batch.push(Record { time_ns, op: Op::Flush, ..Record::default() });
        }
        self.size.requests += 1;
        self.size.writes += u64::from(self.write);
    }
}

impl Source for FittedTrace {
    fn read_batch(&mut self, batch: &mut Vec<Record>) -> Result<(), TraceError> {
        let end = batch.len() + BATCH_RECORDS;
        let is_complete =
            |made: &Self| made.form.requests.is_some_and(|all| made.size.requests >= all);
        while batch.len() < end && !is_complete(self) && self.next_request(batch) {}
        Ok(())
    }

    fn name(&self, kind: NameKind, number: u32) -> Option<&str> {
        (kind == NameKind::Volume && number == 0).then_some(VOLUME)
    }

    fn addressing(&self) -> Addressing {
        self.form.addressing
    }

    fn sample(&self) -> u32 {
        self.form.sample
    }
}
