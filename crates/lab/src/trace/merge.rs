//! Several traces as one, in the order of time: the recordings of the processors of a machine, or
//! of the machines of a store; or one after the other: the parts of a recording that was split.
//!
//! Invariants: times count from the beginning of each trace, or from the end of the one before;
//! records of one trace keep their order; of records with the same time those of the trace that was
//! named first come first. Volumes,
//! files and processes are the same if they have the same name; without a name they are another
//! one in each trace.

use super::names::AllNames;
use super::{Addressing, BoxedSource, NameOf, Record, Source, TraceError};
use std::collections::{HashMap, VecDeque};

/// One of the traces.
struct Part {
    source: BoxedSource,
    waiting: VecDeque<Record>,
    ended: bool,
    /// What its numbers became.
    numbers: HashMap<(NameOf, u32), u32>,
}

/// Which record is next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    /// The earliest of all traces.
    Time,
    /// The next of a trace, until it ends; the times of the one after that go on from there.
    Trace,
}

/// Traces merged by time.
pub struct Merge {
    parts: Vec<Part>,
    order: Order,
    names: AllNames,
    batch: Vec<Record>,
    /// In the order of traces, when the current one began, and the latest time so far.
    begun_ns: u64,
    latest_ns: u64,
}

impl std::fmt::Debug for Merge {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Merge").field("parts", &self.parts.len()).finish_non_exhaustive()
    }
}

/// Records that are handed out at once.
const BATCH_RECORDS: usize = 8192;

impl Merge {
    /// Merges traces by time; none if they count different things, bytes and objects, which have no
    /// common places, or are samples of different parts of all pages.
    #[must_use]
    pub fn by_time(sources: Vec<BoxedSource>) -> Option<Self> {
        Merge::new(sources, Order::Time)
    }

    /// Puts traces one after the other; none as above.
    #[must_use]
    pub fn in_turn(sources: Vec<BoxedSource>) -> Option<Self> {
        Merge::new(sources, Order::Trace)
    }

    fn new(sources: Vec<BoxedSource>, order: Order) -> Option<Self> {
        let kind =
            |source: &BoxedSource| (source.addressing() == Addressing::Objects, source.sample());
        let mut kinds = sources.iter().map(kind);
        let first = kinds.next()?;
        if kinds.any(|kind| kind != first) {
            return None;
        }
        let part = |source| Part {
            source,
            waiting: VecDeque::new(),
            ended: false,
            numbers: HashMap::new(),
        };
        let parts = sources.into_iter().map(part).collect();
        let (names, batch) = (AllNames::new(), Vec::new());
        Some(Merge { parts, order, names, batch, begun_ns: 0, latest_ns: 0 })
    }

    /// Makes sure that each part that may be next has a record waiting, unless it has ended.
    fn refill(&mut self) -> Result<(), TraceError> {
        for part in &mut self.parts {
            if part.waiting.is_empty() && !part.ended {
                part.ended = !part.source.next_batch(&mut self.batch)?;
                part.waiting.extend(&self.batch);
                if part.ended {
                    self.begun_ns = self.latest_ns;
                }
            }
            if self.order == Order::Trace && !part.waiting.is_empty() {
                break;
            }
        }
        Ok(())
    }

    /// The earliest record of all parts, with its numbers made common.
    fn next(&mut self) -> Option<Record> {
        let earliest = self
            .parts
            .iter()
            .enumerate()
            // One after the other, only one has records waiting.
            .filter_map(|(at, part)| Some((part.waiting.front()?.time_ns, at)))
            .min()?
            .1;
        let part = &mut self.parts[earliest];
        let mut record = part.waiting.pop_front()?;
        if self.order == Order::Trace {
            record.time_ns = record.time_ns.saturating_add(self.begun_ns);
            self.latest_ns = self.latest_ns.max(record.time_ns);
        }
        record.volume = common(part, &mut self.names, NameOf::Volume, record.volume, earliest);
        record.file = common(part, &mut self.names, NameOf::File, record.file, earliest);
        record.process = common(part, &mut self.names, NameOf::Process, record.process, earliest);
        Some(record)
    }
}

/// What a number of one trace is in the merged one.
fn common(part: &mut Part, names: &mut AllNames, of: NameOf, number: u32, at: usize) -> u32 {
    if of != NameOf::Volume && number == 0 {
        return 0;
    }
    if let Some(&number) = part.numbers.get(&(of, number)) {
        return number;
    }
    let key = match part.source.name(of, number) {
        Some(name) => name.to_owned(),
        None => format!("{number} of trace {}", at + 1),
    };
    let new = names.of(of).number(key.as_bytes());
    part.numbers.insert((of, number), new);
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

    fn name(&self, of: NameOf, number: u32) -> Option<&str> {
        self.names.get(of, number)
    }

    fn addressing(&self) -> Addressing {
        let mut all = self.parts.iter().map(|part| part.source.addressing());
        let first = all.next().unwrap_or_default();
        if all.all(|other| other == first) { first } else { Addressing::Bytes }
    }

    fn sample(&self) -> u32 {
        self.parts.first().map_or(1, |part| part.source.sample())
    }

    fn notes(&self) -> Vec<String> {
        self.parts.iter().flat_map(|part| part.source.notes()).collect()
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
        let seen: Vec<_> = records
            .iter()
            .map(|r| (r.time_ns, r.offset, merge.name(NameOf::Volume, r.volume).unwrap()))
            .collect();
        assert_eq!(
            seen,
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
        let parts =
            ["1,R,0,512,100\n2,R,0,512,105\n", "2,W,0,512,7\n", "1,W,0,512,1\n3,W,0,512,2\n"];
        let mut merge = Merge::in_turn(parts.map(source).into()).unwrap();
        let mut records = Vec::new();
        merge.read_batch(&mut records).unwrap();
        let seen: Vec<_> = records.iter().map(|r| (r.time_ns, r.volume)).collect();
        assert_eq!(seen, [(0, 0), (5_000, 1), (5_000, 1), (5_000, 0), (6_000, 2)]);
    }

    /// One page of so many, of nothing.
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
