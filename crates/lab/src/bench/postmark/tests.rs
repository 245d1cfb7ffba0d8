//! PostMark trials on a fake host.

use super::*;
use crate::bench::testing::{FakeHost, no_stop};
use crate::bench::{Plan, Start, run_trials};
use crate::workload::postmark::{Config, Location};

fn bench(directory: &std::path::Path) -> PostmarkBench {
    let location = Location { path: directory.as_os_str().into(), weight: 1 };
    PostmarkBench::new(Options::new(Config {
        number: 20,
        transactions: 100,
        locations: vec![location],
        ..Config::default()
    }))
}

#[test]
fn every_trial_does_the_same_and_leaves_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let mut bench = bench(directory.path());
    let plan = Plan { start: Start::Cold, trials: 3..=3, ..Plan::default() };
    let result =
        run_trials(&mut bench, &plan, &FakeHost::default(), &no_stop(), &mut |_| ()).unwrap();
    let run = result.run;
    assert_eq!(run.main.as_deref(), Some("transactions"));
    for (name, _) in COUNTS {
        let values = &run.sample(name).unwrap().values;
        let same = values.iter().all(|value| value.to_bits() == values[0].to_bits());
        assert!(values[0] > 0.0 && same, "{name}");
    }
    let deleted = run.sample("deleted").unwrap().values[0];
    assert_eq!(run.sample("created").unwrap().values[0].to_bits(), deleted.to_bits());
    assert!(run.sample("transactions").unwrap().values.iter().all(|rate| *rate > 0.0));
    for trial in &run.trials {
        let phases: Vec<_> = trial.phases.iter().map(|phase| phase.name.as_str()).collect();
        assert_eq!(phases, ["create", "transactions", "delete"]);
        let times: Vec<_> = trial.latencies.iter().map(|times| times.what.as_str()).collect();
        assert_eq!(times, ["create", "read", "append", "delete"]);
    }
    assert!(run.doubts.iter().any(|doubt| doubt.text.starts_with("nothing is made stable")));
    assert_eq!(run.settings["postmark_seed"], 42);
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
}

#[test]
fn what_is_refused_ends_the_run_with_its_sentence() {
    let directory = tempfile::tempdir().unwrap();
    let mut bench = bench(&directory.path().join("missing"));
    let machine = FakeHost::default();
    let error =
        run_trials(&mut bench, &Plan::default(), &machine, &no_stop(), &mut |_| ()).unwrap_err();
    assert!(error.to_string().starts_with("make a directory "), "{error}");
}
