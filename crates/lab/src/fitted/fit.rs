//! The reading of a trace, and the fit of the model to it.

use super::model::{Kind, Model, PageOp, Phase, Run, Start, distance_class, op_context};
use super::shapes::Shape;
use super::streams::Streams;
use super::{FitError, PAGES_MAX, TraceSize};
use crate::random::Random;
use crate::sim::curve::{Exact, ExactCurve};
use crate::sim::references::Split;
use crate::trace::{Op, Record};
use std::collections::HashMap;

/// Maximum number of phases.
const PHASES_MAX: usize = 128;
/// Requests of a phase at first; when there are too many phases, pairs of them become one.
const PHASE_REQUESTS: u64 = 256;
/// Maximum distance in pages between requests of one sequence.
const STEP_MAX: u64 = 1024;

/// The references to a page so far.
#[derive(Clone, Copy, Debug, Default)]
struct Page {
    references: u32,
    op: PageOp,
}

/// The previous request.
#[derive(Clone, Copy, Debug, Default)]
struct Before {
    volume: u32,
    first: u64,
    time_ns: u64,
    write: bool,
    context: usize,
}

/// The fit of a model, request by request.
#[derive(Debug)]
pub(super) struct Fitter {
    split: Split,
    random: Random,
    exact: Exact,
    pages: Vec<Page>,
    model: Model,
    phase: Phase,
    phase_requests: u64,
    run: Option<Run>,
    before: Before,
    /// Pages of each volume.
    ends: HashMap<u32, u64>,
    streams: Streams,
    /// Classes of the references of the current request.
    classes: Vec<usize>,
    size: TraceSize,
}

impl Fitter {
    pub(super) fn new(split: Split, seed: u64) -> Self {
        Fitter {
            split,
            random: Random::from_seed(seed),
            exact: Exact::new(),
            pages: Vec::new(),
            model: Model::default(),
            phase: Phase::default(),
            phase_requests: PHASE_REQUESTS,
            run: None,
            before: Before::default(),
            ends: HashMap::new(),
            streams: Streams::default(),
            classes: Vec::new(),
            size: TraceSize::default(),
        }
    }

    /// Adds the next request.
    pub(super) fn add(&mut self, record: &Record) -> Result<(), FitError> {
        if record.op == Op::Flush && self.size.requests > 0 {
            self.phase.ops[self.before.context].flushes += 1;
        }
        let is_reference =
            record.op.transfers() && (record.len > 0 || self.split == Split::Objects);
        if !is_reference {
            return Ok(());
        }
        let (shape, first) = Shape::of(record, self.split).ok_or(FitError::TooLarge)?;
        if self.split != Split::Objects {
            let end = self.ends.entry(record.volume).or_default();
            let begin = record.offset / u64::from(self.split.page_bytes().unwrap_or(1));
            *end = (*end).max(begin + shape.pages);
        }
        let write = record.op == Op::Write;
        let (kind, page_op) = self.reference(first, shape.pages, record.volume, write)?;
        let shape_number = self.model.shapes.number(shape);
        self.extend_run(kind, shape_number, shape.pages);
        for class in self.classes.drain(..) {
            self.phase.distances[class] += 1;
        }
        let class = self.run.expect("it was extended").kind.class();
        let context = op_context(class, page_op, self.before.write);
        self.phase.ops[context].requests += 1;
        self.phase.ops[context].writes += u64::from(write);
        if self.size.requests > 0 {
            self.phase.add_interval(record.time_ns.saturating_sub(self.before.time_ns));
        }
        self.phase.requests += 1;
        self.phase.writes += u64::from(write);
        self.size.requests += 1;
        self.size.writes += u64::from(write);
        let (volume, time_ns) = (record.volume, record.time_ns);
        self.streams.add(first, first.wrapping_add(shape.pages));
        self.before = Before { volume, first, time_ns, write, context };
        Ok(())
    }

    /// References the pages of a request; returns its kind and the last operation on its first
    /// page.
    fn reference(
        &mut self,
        first: u64,
        pages: u64,
        volume: u32,
        write: bool,
    ) -> Result<(Kind, PageOp), FitError> {
        let has_neighbors = self.split != Split::Objects;
        let continues = self.streams.continuation(first).filter(|_| has_neighbors);
        let anchor = match self.exact.find(first) {
            Some((_, distance)) => Some(distance),
            None if has_neighbors && first > 0 => self.exact.find(first - 1).map(|found| found.1),
            None => None,
        };
        let (mut old, mut middle, mut page_op) = (0, (0, 0), PageOp::None);
        for index in 0..pages {
            let (number, distance) = self.exact.reference(first + index);
            if number as usize == self.pages.len() {
                self.pages.push(Page::default());
                if self.pages.len() as u64 > PAGES_MAX {
                    return Err(FitError::TooLarge);
                }
            }
            let page = &mut self.pages[number as usize];
            if index == 0 {
                page_op = page.op;
            }
            old += u64::from(distance.is_some());
            self.classes.push(distance_class(distance));
            if index == pages / 2 {
                middle = (distance.unwrap_or(0), page.references);
            }
            page.references = page.references.saturating_add(1);
            page.op = PageOp::of(write);
        }
        if old == pages {
            let (distance, references) = middle;
            let popularity = u8::try_from(references.max(1).ilog2()).expect("at most 31");
            return Ok((Kind::Old { distance, popularity, continues }, page_op));
        }
        let is_after_new = self.run.is_some_and(|run| matches!(run.kind, Kind::New { .. }));
        let step = (volume == self.before.volume && is_after_new && has_neighbors)
            .then(|| first.wrapping_sub(self.before.first).cast_signed())
            .filter(|step| *step != 0 && step.unsigned_abs() <= STEP_MAX)
            .and_then(|step| i32::try_from(step).ok());
        let start = match (continues, anchor, step) {
            (Some(like), ..) if old == u64::from(like.overlaps) => Start::Stream(like),
            (_, Some(distance), _) => Start::After(distance),
            (_, _, Some(step)) => Start::Step(step),
            _ => Start::Far,
        };
        Ok((Kind::New { start, old, step: step.unwrap_or(0) }, page_op))
    }

    /// Adds a request to the last run, or begins a new one.
    fn extend_run(&mut self, kind: Kind, shape: u16, pages: u64) {
        let before = self.run.map_or(0, |run| run.kind.class());
        if let Some(run) = &mut self.run {
            let continues = match (&mut run.kind, kind) {
                (Kind::Old { distance, .. }, Kind::Old { distance: next, .. }) => *distance == next,
                (Kind::New { old, step, .. }, Kind::New { old: next_old, step: next, .. }) => {
                    let is_second = run.requests == 1 && next != 0;
                    if is_second && *old == next_old && run.shape == shape {
                        *step = next;
                    }
                    next != 0 && *step == next && *old == next_old && run.shape == shape
                }
                _ => false,
            };
            if continues {
                run.requests += 1;
                run.pages += pages;
                return;
            }
        }
        self.close_run();
        let kind = match kind {
            Kind::New { start, old, .. } => Kind::New { start, old, step: 0 },
            old @ Kind::Old { .. } => old,
        };
        let before = u8::try_from(before).expect("few classes");
        self.run = Some(Run { kind, before, shape, requests: 1, pages });
    }

    fn close_run(&mut self) {
        let Some(run) = self.run.take() else { return };
        self.phase.add_run(run, &mut self.random);
        if self.phase.requests >= self.phase_requests {
            self.close_phase();
        }
    }

    fn close_phase(&mut self) {
        self.model.phases.push(std::mem::take(&mut self.phase));
        if self.model.phases.len() < PHASES_MAX {
            return;
        }
        self.phase_requests *= 2;
        let mut phases = std::mem::take(&mut self.model.phases).into_iter();
        while let Some(mut phase) = phases.next() {
            if let Some(next) = phases.next() {
                phase.merge(next, &mut self.random);
            }
            self.model.phases.push(phase);
        }
    }

    /// Returns the model, the curve of the trace, and its size.
    pub(super) fn finish(mut self) -> Result<(Model, ExactCurve, TraceSize), FitError> {
        self.close_run();
        self.close_phase();
        if self.size.requests == 0 {
            return Err(FitError::Empty);
        }
        self.model.span = self.ends.values().fold(0, |sum: u64, end| sum.saturating_add(*end));
        let (references, pages) = (self.exact.references(), self.exact.footprint());
        let size = TraceSize { references, pages, ..self.size };
        Ok((self.model, self.exact.curve(), size))
    }
}
