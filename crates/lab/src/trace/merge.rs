//! Merging of several traces, by time: the recordings of the processors of a machine, or of the
//! machines of a store; or concatenation: the parts of a recording that was split.
//!
//! Invariants: times count from the beginning of each trace, or from the end of the previous one;
//! records of one trace keep their order; records with equal times are in the order of the traces.
//! Volumes, files and processes with the same name are the same; those without a name differ
//! between traces.

use super::names::AllNames;
use super::{Addressing, BoxedSource, NameKind, Record, Source, TraceError};
use std::collections::{HashMap, VecDeque};

/// One of the input traces.
struct InputTrace {
    source: BoxedSource,
    buffered: VecDeque<Record>,
    at_end: bool,
    /// Merged number by kind and number in this trace.
    numbers: HashMap<(NameKind, u32), u32>,
}

/// The order in which records are returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MergeOrder {
    /// By time, over all traces.
    Time,
    /// By trace; the times of a trace continue at the end of the previous one.
    Trace,
}

/// A merged or concatenated trace.
pub struct Merge {
    traces: Vec<InputTrace>,
    order: MergeOrder,
    names: AllNames,
    batch: Vec<Record>,
    /// With [`MergeOrder::Trace`], start time of the current trace, and the latest time so far.
    trace_start_ns: u64,
    latest_ns: u64,
}

impl std::fmt::Debug for Merge {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Merge").field("parts", &self.traces.len()).finish_non_exhaustive()
    }
}

/// Records of a batch.
const BATCH_RECORDS: usize = 8192;

impl Merge {
    /// Merges traces by time; `None` if they mix bytes and objects, which have no common addresses,
    /// or have different sampling divisors.
    #[must_use]
    pub fn by_time(sources: Vec<BoxedSource>) -> Option<Self> {
        Merge::new(sources, MergeOrder::Time)
    }

    /// Concatenates traces; `None` in the same cases.
    #[must_use]
    pub fn in_turn(sources: Vec<BoxedSource>) -> Option<Self> {
        Merge::new(sources, MergeOrder::Trace)
    }

    fn new(sources: Vec<BoxedSource>, order: MergeOrder) -> Option<Self> {
        let kind =
            |source: &BoxedSource| (source.addressing() == Addressing::Objects, source.sample());
        let mut kinds = sources.iter().map(kind);
        let first = kinds.next()?;
        if kinds.any(|kind| kind != first) {
            return None;
        }
        let trace = |source| InputTrace {
            source,
            buffered: VecDeque::new(),
            at_end: false,
            numbers: HashMap::new(),
        };
        let traces = sources.into_iter().map(trace).collect();
        let (names, batch) = (AllNames::new(), Vec::new());
        Some(Merge { traces, order, names, batch, trace_start_ns: 0, latest_ns: 0 })
    }

    /// Ensures that each trace that may be next has a buffered record, unless it has ended.
    fn refill(&mut self) -> Result<(), TraceError> {
        for trace in &mut self.traces {
            if trace.buffered.is_empty() && !trace.at_end {
                trace.at_end = !trace.source.next_batch(&mut self.batch)?;
                trace.buffered.extend(&self.batch);
                if trace.at_end {
                    self.trace_start_ns = self.latest_ns;
                }
            }
            if self.order == MergeOrder::Trace && !trace.buffered.is_empty() {
                break;
            }
        }
        Ok(())
    }

    /// Returns the earliest record of all traces, with merged numbers.
    fn next(&mut self) -> Option<Record> {
        let earliest = self
            .traces
            .iter()
            .enumerate()
            // With `MergeOrder::Trace`, only one trace has buffered records.
            .filter_map(|(at, trace)| Some((trace.buffered.front()?.time_ns, at)))
            .min()?
            .1;
        let trace = &mut self.traces[earliest];
        let mut record = trace.buffered.pop_front()?;
        if self.order == MergeOrder::Trace {
            record.time_ns = record.time_ns.saturating_add(self.trace_start_ns);
            self.latest_ns = self.latest_ns.max(record.time_ns);
        }
        record.volume = merged_number(trace, &mut self.names, &record, NameKind::Volume, earliest);
        record.file = merged_number(trace, &mut self.names, &record, NameKind::File, earliest);
        record.process =
            merged_number(trace, &mut self.names, &record, NameKind::Process, earliest);
        Some(record)
    }
}

/// Returns the merged number of a volume, file or process of the trace at index `at`.
fn merged_number(
    trace: &mut InputTrace,
    names: &mut AllNames,
    record: &Record,
    kind: NameKind,
    at: usize,
) -> u32 {
    let number = record.number_of(kind);
    if kind != NameKind::Volume && number == 0 {
        return 0;
    }
    if let Some(&number) = trace.numbers.get(&(kind, number)) {
        return number;
    }
    let key = match trace.source.name(kind, number) {
        Some(name) => name.to_owned(),
        None => format!("{number} of trace {}", at + 1),
    };
    let new = names.of_kind(kind).number(key.as_bytes());
    trace.numbers.insert((kind, number), new);
    new
}

impl Source for Merge {
    fn read_batch(&mut self, batch: &mut Vec<Record>) -> Result<(), TraceError> {
        for _ in 0..BATCH_RECORDS {
            self.refill()?;
            match self.next() {
                Some(record) => batch.push(record),
                None => break,
            }
        }
        Ok(())
    }

    fn name(&self, kind: NameKind, number: u32) -> Option<&str> {
        self.names.get(kind, number)
    }

    fn addressing(&self) -> Addressing {
        let mut all = self.traces.iter().map(|trace| trace.source.addressing());
        let first = all.next().unwrap_or_default();
        if all.all(|other| other == first) { first } else { Addressing::Bytes }
    }

    fn sample(&self) -> u32 {
        self.traces.first().map_or(1, |trace| trace.source.sample())
    }

    fn notes(&self) -> Vec<String> {
        self.traces.iter().flat_map(|trace| trace.source.notes()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::ltr::{Writer, WriterOptions};
    use crate::trace::{OpenOptions, open_stream};

    fn source(text: &'static str) -> BoxedSource {
        let stream = Box::new(std::io::Cursor::new(text));
        open_stream("test", stream, &OpenOptions::default()).unwrap()
    }

    #[test]
    fn records_come_in_order_of_time_and_names_become_common() {
        let a = source("1,R,0,512,100\n2,R,1024,512,300\n1,R,2048,512,301\n");
        let b = source("2,W,4096,512,7\n3,W,8192,512,107\n");
        let mut merge = Merge::by_time(vec![a, b]).unwrap();
        let mut records = Vec::new();
        merge.read_batch(&mut records).unwrap();
        let merged: Vec<_> = records
            .iter()
            .map(|r| (r.time_ns, r.offset, merge.name(NameKind::Volume, r.volume).unwrap()))
            .collect();
        assert_eq!(
            merged,
            [
                (0, 0, "1"),
                (0, 4096, "2"),
                (100_000, 8192, "3"),
                (200_000, 1024, "2"),
                (201_000, 2048, "1"),
            ]
        );
        assert_eq!(records[1].volume, records[3].volume);
    }

    #[test]
    fn one_after_the_other_goes_on_in_time() {
        let traces =
            ["1,R,0,512,100\n2,R,0,512,105\n", "2,W,0,512,7\n", "1,W,0,512,1\n3,W,0,512,2\n"];
        let mut merge = Merge::in_turn(traces.map(source).into()).unwrap();
        let mut records = Vec::new();
        merge.read_batch(&mut records).unwrap();
        let merged: Vec<_> = records.iter().map(|r| (r.time_ns, r.volume)).collect();
        assert_eq!(merged, [(0, 0), (5_000, 1), (5_000, 1), (5_000, 0), (6_000, 2)]);
    }

    /// Returns an empty trace with this sampling divisor.
    fn sample(sample: u32) -> BoxedSource {
        let options = WriterOptions { sample, ..WriterOptions::default() };
        let bytes = Writer::new(Vec::new(), options).unwrap().finish().unwrap();
        open_stream("test", Box::new(std::io::Cursor::new(bytes)), &OpenOptions::default()).unwrap()
    }

    #[test]
    fn bytes_and_objects_do_not_mix_and_samples_only_with_their_like() {
        let keys = source("0,key,3,10,1,get,0\n");
        assert!(Merge::by_time(vec![source("1,R,0,512,100\n"), keys]).is_none());
        assert!(Merge::by_time(vec![sample(1), sample(8)]).is_none());
        assert_eq!(Merge::by_time(vec![sample(8), sample(8)]).unwrap().sample(), 8);
    }
}
