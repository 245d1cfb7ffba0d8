//! Probe over a file and over a double that counts: what is asked, what is counted, what is left.

use super::super::target::{AtPath, Buffering};
use super::super::testing::{Double, never};
use super::super::{Plan, Start, run_trials};
use super::*;
use larder_core::clock::SECOND;
use larder_report::run::trial::Latency;
use std::io;
use std::sync::Mutex;

/// What was asked of a place: a letter and an offset for each request.
type RequestLog = std::sync::Arc<Mutex<Vec<(char, u64)>>>;

/// A place that notes what it is asked; beyond `fails_after` requests it fails.
#[derive(Debug)]
struct RecordingTarget {
    asked: RequestLog,
    fails_after: usize,
}

impl Place for RecordingTarget {
    fn description(&self) -> String {
        "a double".to_owned()
    }

    fn bytes(&self) -> u64 {
        64 << 10
    }

    fn open(&self) -> Result<Box<dyn Target>, BenchError> {
        let (asked, fails_after) = (self.asked.clone(), self.fails_after);
        Ok(Box::new(RecordingTarget { asked, fails_after }))
    }

    fn start_state(&mut self) -> StartState<'_> {
        StartState::Unknown("nobody knows".to_owned())
    }
}

impl RecordingTarget {
    fn note(&self, letter: char, offset: u64) -> io::Result<()> {
        let mut asked = self.asked.lock().unwrap();
        asked.push((letter, offset));
        if asked.len() > self.fails_after { Err(io::Error::other("it broke")) } else { Ok(()) }
    }
}

impl Target for RecordingTarget {
    fn read_at(&mut self, offset: u64, _: &mut [u8]) -> io::Result<()> {
        self.note('R', offset)
    }

    fn write_at(&mut self, offset: u64, _: &[u8]) -> io::Result<()> {
        self.note('W', offset)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.note('F', 0)
    }
}

fn one_trial(start: Start) -> Plan {
    Plan { start, trials: 1..=1, confidence: None, ..Plan::default() }
}

/// A trial on the clock of the double, which moves by 10 ns with each look.
fn bench(asked: &RequestLog, fails_after: usize, threads: usize) -> ProbeBench {
    let place = RecordingTarget { asked: asked.clone(), fails_after };
    ProbeBench::new(Box::new(place), Probe::random(64 << 10), Spread::default(), threads, 100_000)
}

#[test]
fn requests_are_those_of_the_seed_and_the_pattern_and_end_with_a_flush() {
    let asked = RequestLog::default();
    let mut bench = bench(&asked, usize::MAX, 1);
    let plan = one_trial(Start::AsIs);
    let run = run_trials(&mut bench, &plan, &Double::default(), &never(), &mut |_| ()).unwrap().run;
    let mut asked = asked.lock().unwrap().clone();
    assert_eq!(asked.pop(), Some(('F', 0)));
    let expected: Vec<(char, u64)> = Probe::random(64 << 10)
        .requests(1)
        .take(asked.len())
        .map(|it| (if it.action == Action::Read { 'R' } else { 'W' }, it.offset))
        .collect();
    assert!(asked.len() > 100 && asked == expected, "{} requests", asked.len());
    // Only the second half counts: about half of the requests have answer times.
    let trial = &run.trials[0];
    let counted: u64 = trial.latencies.iter().map(Latency::count).sum();
    let all = asked.len() as u64;
    assert!((4 * all..6 * all).contains(&(10 * counted)), "{counted} of {all}");
    let names: Vec<&str> = trial.phases.iter().map(|phase| phase.name.as_str()).collect();
    assert_eq!(names, ["probe", "flush"]);
    let value = |series: &str| run.sample(series).unwrap().values[0];
    assert!((value("writes") / value("reads") - 3.0).abs() < 0.1);
    assert!((value("cycles") / (value("reads") + value("writes")) - 1.0).abs() < 0.1);
    assert!(value("answer time") >= 10.0);
}

#[test]
fn threads_draw_from_seeds_of_their_own_and_their_rates_add_up() {
    let asked = RequestLog::default();
    let mut bench = bench(&asked, usize::MAX, 3);
    let plan = one_trial(Start::AsIs);
    let run = run_trials(&mut bench, &plan, &Double::default(), &never(), &mut |_| ()).unwrap().run;
    assert_eq!(asked.lock().unwrap().iter().filter(|(letter, _)| *letter == 'F').count(), 3);
    assert_eq!(run.settings["threads"], 3);
}

#[test]
fn an_error_of_the_place_ends_the_run_with_what_was_asked() {
    let asked = RequestLog::default();
    let mut bench = bench(&asked, 10, 1);
    let plan = one_trial(Start::AsIs);
    let error =
        run_trials(&mut bench, &plan, &Double::default(), &never(), &mut |_| ()).unwrap_err();
    let (letter, offset) = asked.lock().unwrap()[10];
    let what = if letter == 'R' { "read" } else { "write" };
    assert_eq!(error.to_string(), format!("{what} 4096 bytes at {offset}: it broke"));
}

#[test]
fn a_file_is_made_for_the_run_and_removed_after_it() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("work");
    let place = AtPath::new(&path, 64 << 10, Buffering::Buffered);
    let machine = Double { free_bytes: 1 << 30, ..Double::default() };
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
    let run = run_trials(&mut bench(), &plan, &machine, &never(), &mut |_| ()).unwrap().run;
    assert_eq!(run.trials.len(), 1);
    assert!(!path.exists(), "what it made is removed");
    // What it did not make is neither overwritten nor removed.
    std::fs::write(&path, "mine").unwrap();
    let error =
        run_trials(&mut bench(), &plan, &machine, &never(), &mut |_| ()).unwrap_err().to_string();
    assert!(error.starts_with("make ") && error.contains("exists"), "{error}");
    assert_eq!(std::fs::read(&path).unwrap(), b"mine");
    let full = Double { free_bytes: 1 << 10, ..Double::default() };
    let error =
        run_trials(&mut bench(), &plan, &full, &never(), &mut |_| ()).unwrap_err().to_string();
    assert!(error.ends_with("it needs 64 KiB and 1 KiB are free"), "{error}");
}

#[test]
fn a_pattern_without_reads_has_no_series_of_reads() {
    let asked = RequestLog::default();
    let mut bench = bench(&asked, usize::MAX, 1);
    bench.probe.pattern = vec![Action::Write];
    let names: Vec<String> = bench.series().into_iter().map(|series| series.name).collect();
    assert_eq!(names, ["cycles", "answer time", "writes"]);
    let plan = one_trial(Start::AsIs);
    let run = run_trials(&mut bench, &plan, &Double::default(), &never(), &mut |_| ()).unwrap().run;
    assert_eq!(run.trials[0].latencies.len(), 1);
}

#[test]
fn thinking_takes_time_that_no_answer_has_and_computing_takes_time_that_each_has() {
    let asked = RequestLog::default();
    let mut bench = bench(&asked, usize::MAX, 1);
    bench.compute = Spread::exactly(1_000.0);
    let plan = one_trial(Start::AsIs);
    let run = run_trials(&mut bench, &plan, &Double::default(), &never(), &mut |_| ()).unwrap().run;
    let answer = run.sample("answer time").unwrap().values[0];
    assert!((1_000.0..1_200.0).contains(&answer), "{answer}");
}

#[test]
fn cycles_that_are_longer_than_a_trial_are_waited_for_and_doubted() {
    let asked = RequestLog::default();
    let mut bench = bench(&asked, usize::MAX, 1);
    bench.compute = Spread::exactly(150_000.0);
    let plan = one_trial(Start::AsIs);
    let run = run_trials(&mut bench, &plan, &Double::default(), &never(), &mut |_| ()).unwrap().run;
    // One that begins with the trial, and one that is measured.
    assert_eq!(asked.lock().unwrap().len(), 3, "two and a flush");
    let answer = run.sample("answer time").unwrap().values[0];
    assert!((150_000.0..151_000.0).contains(&answer), "{answer}");
    let said = "no cycle fitted into half of a trial";
    assert!(run.doubts.iter().any(|doubt| doubt.text.starts_with(said)), "{:?}", run.doubts);
}

/// Notes when it is begun and ended among the requests.
#[derive(Debug)]
struct RecordingLoad {
    asked: RequestLog,
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
        self.asked.lock().unwrap().push(('B', 0));
        if self.fails { Err(BenchError::Workload("begin".to_owned())) } else { Ok(()) }
    }

    fn end(&mut self) -> Result<(BTreeMap<String, f64>, Vec<String>), BenchError> {
        let mut asked = self.asked.lock().unwrap();
        asked.push(('E', 0));
        #[expect(clippy::cast_precision_loss, reason = "a few")]
        let seen = asked.len() as f64;
        Ok(([("requests seen".to_owned(), seen)].into(), vec!["it was not alone".to_owned()]))
    }
}

#[test]
fn what_goes_on_beside_a_trial_begins_before_it_and_ends_after_it_however_it_ends() {
    let with = |asked: &RequestLog, fails_after, fails| {
        bench(asked, fails_after, 1)
            .with_background_load(Box::new(RecordingLoad { asked: asked.clone(), fails }))
    };
    let letters =
        |asked: &RequestLog| asked.lock().unwrap().iter().map(|it| it.0).collect::<String>();
    let plan = one_trial(Start::AsIs);
    let asked = RequestLog::default();
    let mut company = with(&asked, usize::MAX, false);
    let run =
        run_trials(&mut company, &plan, &Double::default(), &never(), &mut |_| ()).unwrap().run;
    let seen = letters(&asked);
    assert!(seen.starts_with('B') && seen.ends_with("FE"), "{seen}");
    #[expect(clippy::cast_precision_loss, reason = "a few")]
    let count = seen.len() as f64;
    assert_eq!(run.sample("requests seen").unwrap().values, [count]);
    assert_eq!(run.settings["company"], 1);
    assert!(run.doubts.iter().any(|doubt| doubt.text == "it was not alone"));
    let asked = RequestLog::default();
    let mut company = with(&asked, 10, false);
    assert!(run_trials(&mut company, &plan, &Double::default(), &never(), &mut |_| ()).is_err());
    assert!(letters(&asked).ends_with('E'), "{}", letters(&asked));
    let asked = RequestLog::default();
    let mut company = with(&asked, 10, true);
    assert!(run_trials(&mut company, &plan, &Double::default(), &never(), &mut |_| ()).is_err());
    assert_eq!(letters(&asked), "B");
}
