//! Probe over a file and over a recording target: requests, counts, and cleanup.

use super::super::target::{Buffering, TargetPath};
use super::super::testing::{FakeHost, no_stop};
use super::super::{Plan, Start, run_trials};
use super::*;
use larder_core::clock::SECOND;
use larder_schema::run::trial::Latency;
use std::io;
use std::sync::Mutex;

/// A letter and an offset for each request to a target.
type RequestLog = std::sync::Arc<Mutex<Vec<(char, u64)>>>;

/// A target that records its requests; after `fails_after` of them, each fails.
#[derive(Debug)]
struct RecordingTarget {
    requests: RequestLog,
    fails_after: usize,
}

impl TargetSource for RecordingTarget {
    fn description(&self) -> String {
        "a double".to_owned()
    }

    fn bytes(&self) -> u64 {
        64 << 10
    }

    fn open(&self) -> Result<Box<dyn Target>, BenchError> {
        let (requests, fails_after) = (self.requests.clone(), self.fails_after);
        Ok(Box::new(RecordingTarget { requests, fails_after }))
    }

    fn start_state(&mut self) -> StartState<'_> {
        StartState::Unknown("unknown".to_owned())
    }
}

impl RecordingTarget {
    fn record_request(&self, letter: char, offset: u64) -> io::Result<()> {
        let mut requests = self.requests.lock().unwrap();
        requests.push((letter, offset));
        if requests.len() > self.fails_after { Err(io::Error::other("it broke")) } else { Ok(()) }
    }
}

impl Target for RecordingTarget {
    fn read_at(&mut self, offset: u64, _: &mut [u8]) -> io::Result<()> {
        self.record_request('R', offset)
    }

    fn write_at(&mut self, offset: u64, _: &[u8]) -> io::Result<()> {
        self.record_request('W', offset)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.record_request('F', 0)
    }
}

fn one_trial(start: Start) -> Plan {
    Plan { start, trials: 1..=1, confidence: None, ..Plan::default() }
}

/// A trial on the clock of the fake host, which advances by 10 ns with each reading.
fn bench(requests: &RequestLog, fails_after: usize, threads: usize) -> ProbeBench {
    let place = RecordingTarget { requests: requests.clone(), fails_after };
    ProbeBench::new(Box::new(place), Probe::random(64 << 10), Spread::default(), threads, 100_000)
}

#[test]
fn requests_are_those_of_the_seed_and_the_pattern_and_end_with_a_flush() {
    let requests = RequestLog::default();
    let mut bench = bench(&requests, usize::MAX, 1);
    let plan = one_trial(Start::AsIs);
    let run =
        run_trials(&mut bench, &plan, &FakeHost::default(), &no_stop(), &mut |_| ()).unwrap().run;
    let mut requests = requests.lock().unwrap().clone();
    assert_eq!(requests.pop(), Some(('F', 0)));
    let expected: Vec<(char, u64)> = Probe::random(64 << 10)
        .requests(1)
        .take(requests.len())
        .map(|it| (if it.action == Action::Read { 'R' } else { 'W' }, it.offset))
        .collect();
    assert!(requests.len() > 100 && requests == expected, "{} requests", requests.len());
    // Only the second half counts: about half of the requests have response times.
    let trial = &run.trials[0];
    let counted: u64 = trial.latencies.iter().map(Latency::count).sum();
    let all = requests.len() as u64;
    assert!((4 * all..6 * all).contains(&(10 * counted)), "{counted} of {all}");
    let names: Vec<&str> = trial.phases.iter().map(|phase| phase.name.as_str()).collect();
    assert_eq!(names, ["probe", "flush"]);
    let value = |series: &str| run.sample(series).unwrap().values[0];
    assert!((value("writes") / value("reads") - 3.0).abs() < 0.1);
    assert!((value("cycles") / (value("reads") + value("writes")) - 1.0).abs() < 0.1);
    assert!(value("response time") >= 10.0);
}

#[test]
fn threads_draw_from_seeds_of_their_own_and_their_rates_add_up() {
    let requests = RequestLog::default();
    let mut bench = bench(&requests, usize::MAX, 3);
    let plan = one_trial(Start::AsIs);
    let run =
        run_trials(&mut bench, &plan, &FakeHost::default(), &no_stop(), &mut |_| ()).unwrap().run;
    assert_eq!(requests.lock().unwrap().iter().filter(|(letter, _)| *letter == 'F').count(), 3);
    assert_eq!(run.settings["threads"], 3);
}

#[test]
fn an_error_of_the_place_ends_the_run_with_what_was_asked() {
    let requests = RequestLog::default();
    let mut bench = bench(&requests, 10, 1);
    let plan = one_trial(Start::AsIs);
    let error =
        run_trials(&mut bench, &plan, &FakeHost::default(), &no_stop(), &mut |_| ()).unwrap_err();
    let (letter, offset) = requests.lock().unwrap()[10];
    let what = if letter == 'R' { "read" } else { "write" };
    assert_eq!(error.to_string(), format!("{what} 4096 bytes at {offset}: it broke"));
}

#[test]
fn a_file_is_made_for_the_run_and_removed_after_it() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("work");
    let place = TargetPath::new(&path, 64 << 10, Buffering::Buffered);
    let machine = FakeHost { free_bytes: 1 << 30, ..FakeHost::default() };
    let probe = Probe::random(64 << 10);
    let bench = || {
        ProbeBench::new(
            Box::new(place.clone()),
            probe.clone(),
            Spread::default(),
            1,
            SECOND / 10_000,
        )
    };
    let plan = one_trial(Start::Cold);
    let run = run_trials(&mut bench(), &plan, &machine, &no_stop(), &mut |_| ()).unwrap().run;
    assert_eq!(run.trials.len(), 1);
    assert!(!path.exists(), "what it made is removed");
    // The run neither overwrites nor removes a file that it did not make.
    std::fs::write(&path, "mine").unwrap();
    let error =
        run_trials(&mut bench(), &plan, &machine, &no_stop(), &mut |_| ()).unwrap_err().to_string();
    assert!(error.starts_with("make ") && error.contains("exists"), "{error}");
    assert_eq!(std::fs::read(&path).unwrap(), b"mine");
    let full = FakeHost { free_bytes: 1 << 10, ..FakeHost::default() };
    let error =
        run_trials(&mut bench(), &plan, &full, &no_stop(), &mut |_| ()).unwrap_err().to_string();
    assert!(error.ends_with("it needs 64 KiB and 1 KiB are free"), "{error}");
}

#[test]
fn a_pattern_without_reads_has_no_series_of_reads() {
    let requests = RequestLog::default();
    let mut bench = bench(&requests, usize::MAX, 1);
    bench.probe.pattern = vec![Action::Write];
    let names: Vec<String> = bench.series().into_iter().map(|series| series.name).collect();
    assert_eq!(names, ["cycles", "response time", "writes"]);
    let plan = one_trial(Start::AsIs);
    let run =
        run_trials(&mut bench, &plan, &FakeHost::default(), &no_stop(), &mut |_| ()).unwrap().run;
    assert_eq!(run.trials[0].latencies.len(), 1);
}

#[test]
fn thinking_takes_time_that_no_answer_has_and_computing_takes_time_that_each_has() {
    let requests = RequestLog::default();
    let mut bench = bench(&requests, usize::MAX, 1);
    bench.compute = Spread::exactly(1_000.0);
    let plan = one_trial(Start::AsIs);
    let run =
        run_trials(&mut bench, &plan, &FakeHost::default(), &no_stop(), &mut |_| ()).unwrap().run;
    let answer = run.sample("response time").unwrap().values[0];
    assert!((1_000.0..1_200.0).contains(&answer), "{answer}");
}

#[test]
fn cycles_that_are_longer_than_a_trial_are_waited_for_and_doubted() {
    let requests = RequestLog::default();
    let mut bench = bench(&requests, usize::MAX, 1);
    bench.compute = Spread::exactly(150_000.0);
    let plan = one_trial(Start::AsIs);
    let run =
        run_trials(&mut bench, &plan, &FakeHost::default(), &no_stop(), &mut |_| ()).unwrap().run;
    // One cycle that begins with the trial, and one that is measured.
    assert_eq!(requests.lock().unwrap().len(), 3, "two and a flush");
    let answer = run.sample("response time").unwrap().values[0];
    assert!((150_000.0..151_000.0).contains(&answer), "{answer}");
    let message = "no cycle fitted into half of a trial";
    assert!(run.doubts.iter().any(|doubt| doubt.text.starts_with(message)), "{:?}", run.doubts);
}

/// Records its start and end among the requests.
#[derive(Debug)]
struct RecordingLoad {
    requests: RequestLog,
    fails: bool,
}

impl BackgroundLoad for RecordingLoad {
    fn series(&self) -> Vec<Series> {
        vec![Series::new("requests seen", "requests", None)]
    }

    fn settings(&self) -> BTreeMap<String, Value> {
        [("company".to_owned(), json!(1))].into()
    }

    fn begin(&mut self) -> Result<(), BenchError> {
        self.requests.lock().unwrap().push(('B', 0));
        if self.fails { Err(BenchError::Failed("begin".to_owned())) } else { Ok(()) }
    }

    fn end(&mut self) -> Result<(BTreeMap<String, f64>, Vec<String>), BenchError> {
        let mut requests = self.requests.lock().unwrap();
        requests.push(('E', 0));
        #[expect(clippy::cast_precision_loss, reason = "a few")]
        let seen = requests.len() as f64;
        Ok(([("requests seen".to_owned(), seen)].into(), vec!["it was not alone".to_owned()]))
    }
}

#[test]
fn what_goes_on_beside_a_trial_begins_before_it_and_ends_after_it_however_it_ends() {
    let with = |requests: &RequestLog, fails_after, fails| {
        bench(requests, fails_after, 1)
            .with_background_load(Box::new(RecordingLoad { requests: requests.clone(), fails }))
    };
    let letters =
        |requests: &RequestLog| requests.lock().unwrap().iter().map(|it| it.0).collect::<String>();
    let plan = one_trial(Start::AsIs);
    let requests = RequestLog::default();
    let mut bench = with(&requests, usize::MAX, false);
    let run =
        run_trials(&mut bench, &plan, &FakeHost::default(), &no_stop(), &mut |_| ()).unwrap().run;
    let seen = letters(&requests);
    assert!(seen.starts_with('B') && seen.ends_with("FE"), "{seen}");
    #[expect(clippy::cast_precision_loss, reason = "a few")]
    let count = seen.len() as f64;
    assert_eq!(run.sample("requests seen").unwrap().values, [count]);
    assert_eq!(run.settings["company"], 1);
    assert!(run.doubts.iter().any(|doubt| doubt.text == "it was not alone"));
    let requests = RequestLog::default();
    let mut bench = with(&requests, 10, false);
    assert!(run_trials(&mut bench, &plan, &FakeHost::default(), &no_stop(), &mut |_| ()).is_err());
    assert!(letters(&requests).ends_with('E'), "{}", letters(&requests));
    let requests = RequestLog::default();
    let mut bench = with(&requests, 10, true);
    assert!(run_trials(&mut bench, &plan, &FakeHost::default(), &no_stop(), &mut |_| ()).is_err());
    assert_eq!(letters(&requests), "B");
}
