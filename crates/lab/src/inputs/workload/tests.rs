//! Simulations of small logs, and logs that are refused.

use super::*;
use crate::inputs::{LogRecord, VERSION};
use larder_core::counters::Counter;
use larder_core::hint::Hint;
use larder_core::input::{Input, LoggedLimit};
use larder_core::request::Request;
use larder_core::store::Geometry;
use std::io::Write;
use std::ops::Range;

const PAGE: u64 = 4096;
const FILE: Range<u64> = 0..20 * PAGE;

/// Number of sessions of a log.
const SESSIONS: u32 = 3;

/// Writes a log of requests of one session, one millisecond apart, to a volume of 64 MiB.
fn log(requests: impl IntoIterator<Item = Request>) -> tempfile::NamedTempFile {
    log_of_sessions(requests.into_iter().map(|request| (0, request)))
}

/// Writes a log like [`log`], with the session of each request.
fn log_of_sessions(requests: impl IntoIterator<Item = (u32, Request)>) -> tempfile::NamedTempFile {
    let geometry = Geometry { length: 64 << 20, granule: 512, read_only: false };
    let limit = LoggedLimit::Own(u64::MAX);
    let begin = [
        LogRecord::LarderInputs { version: VERSION },
        LogRecord::Input(Input::Cache { frames: 4096, frames_max: 4096, shards: 1 }),
        LogRecord::Input(Input::AddVolume { options: VolumeOptions::new("files", geometry) }),
    ];
    let open = |session| LogRecord::Input(Input::Open { session, volume: 0, limit });
    let submit = |(number, (session, request)): (u64, (u32, Request))| {
        let now = number * 1_000_000;
        LogRecord::Input(Input::Submit { session, now, request, payload: 0 })
    };
    let begin = begin.into_iter().chain((0..SESSIONS).map(open));
    let mut file = tempfile::NamedTempFile::new().unwrap();
    for record in begin.chain((1..).zip(requests).map(submit)) {
        writeln!(file, "{}", serde_json::to_string(&record).unwrap()).unwrap();
    }
    file
}

fn read_of(page: u64) -> Request {
    Request::new(RequestOp::Read, page * PAGE..(page + 1) * PAGE)
}

fn simulate(requests: impl IntoIterator<Item = Request>, frames: u32) -> Totals {
    simulate_log(&log(requests), frames)
}

fn simulate_log(file: &tempfile::NamedTempFile, frames: u32) -> Totals {
    let workload = RecordedWorkload::open(file.path()).unwrap();
    workload.simulate(frames, NonZero::<usize>::MIN, StoreModel::Instant).unwrap()
}

#[test]
fn a_loop_hits_if_it_fits() {
    const PAGES: u64 = 2000;
    // Nothing is read ahead.
    let random = |page| Request { hint: Some(Hint::Random), ..read_of(page) };
    let requests = || (0..3).flat_map(|_| (0..PAGES).map(random));
    let workload = RecordedWorkload::open(log(requests()).path()).unwrap();
    assert_eq!((workload.requests(), workload.footprint_bytes()), (3 * PAGES, PAGES * PAGE));
    assert_eq!(simulate(requests(), 4096).read_hits(), 2 * PAGES);
    let small = simulate(requests(), 1024);
    assert!(small.read_pages() == 3 * PAGES && small.read_hits() < 3000, "{}", small.read_hits());
}

#[test]
fn nothing_is_read_ahead_beyond_the_end_of_a_file() {
    let in_file = |page| Request { bound: Some(FILE), ..read_of(page) };
    let bounded = simulate((0..20).map(in_file), 4096);
    assert_eq!(bounded.get(Counter::StoreReadBytes), FILE.end);
    let unbounded = simulate((0..20).map(read_of), 4096);
    assert!(unbounded.get(Counter::StoreReadBytes) > FILE.end);
}

#[test]
fn the_reads_of_a_file_are_one_sequence_whatever_threads_they_arrive_on() {
    let misses = |bound: Option<Range<u64>>| {
        // No session gets reads at equal distances.
        let reads = (0..1000_u64).map(|page| {
            (page.count_ones() % SESSIONS, Request { bound: bound.clone(), ..read_of(page) })
        });
        simulate_log(&log_of_sessions(reads), 4096).get(Counter::ReadMiss)
    };
    assert_eq!(misses(Some(0..1000 * PAGE)), 3);
    assert!(misses(None) > 3, "each session is a client of its own");
}

#[test]
fn discarded_pages_are_not_of_the_footprint() {
    let write = |page| Request { op: RequestOp::Write, ..read_of(page) };
    let discard = Request::new(RequestOp::Discard, FILE);
    let requests = (0..20).map(write).chain([discard]).chain((100..110).map(write));
    let workload = RecordedWorkload::open(log(requests).path()).unwrap();
    assert_eq!(workload.footprint_bytes(), FILE.end);
}

#[test]
fn requests_that_the_engine_would_not_accept_are_refused_with_their_line() {
    let refusal = |request| {
        RecordedWorkload::open(log([read_of(1), request]).path()).unwrap_err().to_string()
    };
    let sentence = "read the recording of inputs: line 8: its session is not open, its range \
                    is outside of the volume, or it maps memory";
    assert_eq!(refusal(read_of(1 << 20)), sentence);
    assert_eq!(refusal(Request { offset: u64::MAX, ..read_of(0) }), sentence);
    assert_eq!(refusal(Request { op: RequestOp::Map, ..read_of(0) }), sentence);
    let mut no_log = tempfile::NamedTempFile::new().unwrap();
    writeln!(no_log, "time,offset").unwrap();
    assert!(matches!(
        RecordedWorkload::open(no_log.path()),
        Err(WorkloadError::Refused { line: 1, .. })
    ));
    assert!(RecordedWorkload::open(Path::new("/missing")).is_err());
}
