//! Each kind of run has its own answer.

use super::{cards, verdict};
use crate::run::gathered;
use larder_schema::run::trial::{Doubt, DoubtReason, MeasuredStart, Start, Trial};
use larder_schema::run::{Direction, Machine, Part, Run, Sample};
use std::collections::BTreeMap;

/// Returns a run of six trials around a value.
fn run(unit: &str, middle: f64, start: Start) -> Run {
    let mut run = Run::new("a benchmark", "2026-11-21T03:22:11Z", Machine::default());
    let values = [0.99, 1.0, 1.01, 0.98, 1.02, 1.0].map(|factor| factor * middle).to_vec();
    run.samples =
        vec![Sample { values, ..Sample::new("throughput", unit, Some(Direction::Higher)) }];
    run.main = Some("throughput".to_owned());
    let started = MeasuredStart { start, files: 1, pages: Some(256), resident: Some(0) };
    run.trials = (1..=6).map(|number| Trial { number, started, ..Trial::default() }).collect();
    run
}

fn part(name: &str, labels: &[(&str, &str)], run: Run) -> Part {
    let labels = labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    Part { name: name.to_owned(), labels: labels.collect(), run }
}

#[test]
fn a_benchmark_answers_with_its_median_and_interval() {
    let mut run = run("bytes/s", 209_715_200.0, Start::Cold);
    assert_eq!(verdict(&run), "Throughput: 200 MiB/s (196 to 204 MiB/s), cold start");
    assert_eq!(cards(&run).len(), 4);
    run.doubts = vec![Doubt { why: DoubtReason::Steal, text: "time was stolen".to_owned() }];
    assert!(format!("{:?}", cards(&run)).contains("doubtful"));
}

#[test]
fn a_run_of_few_trials_or_with_many_set_aside_has_no_good_confidence() {
    let mut run = run("bytes/s", 209_715_200.0, Start::Cold);
    run.set_aside = 7;
    assert!(format!("{:?}", cards(&run)).contains("7 of 13 trials were set aside"));
    run.set_aside = 6;
    assert!(format!("{:?}", cards(&run)).contains("good"));
    run.set_aside = 0;
    run.trials.truncate(5);
    assert!(format!("{:?}", cards(&run)).contains("an interval needs 6 trials"));
}

#[test]
fn a_trial_of_a_cache_answers_with_its_gain_from_each_start() {
    let side = |side: &str, start: Start, value: f64| {
        let labels = [("side", side), ("start", start.name())];
        part(&format!("{side}, {}", start.name()), &labels, run("reads/s", value, start))
    };
    let parts = vec![
        side("native", Start::Cold, 100.0),
        side("native", Start::Warm, 1000.0),
        side("larder", Start::Cold, 310.0),
        side("larder", Start::Warm, 500.0),
    ];
    let tried = gathered("a try", parts);
    assert_eq!(verdict(&tried), "With Larder: 3.10 times as fast cold, 2.00 times slower warm");
    let cards = format!("{:?}", cards(&tried));
    assert!(cards.contains("100 reads/s without, 310 reads/s with Larder"), "{cards}");
}

#[test]
fn a_trial_of_a_cache_without_a_verdict_is_no_sign_of_no_difference() {
    let side = |side: &str, value: f64, trials: usize| {
        let mut run = run("reads/s", value, Start::Cold);
        run.samples[0].values.truncate(trials);
        run.trials.truncate(trials);
        part(side, &[("side", side), ("start", "cold")], run)
    };
    let tried = |trials| {
        gathered("a try", vec![side("native", 100.0, trials), side("larder", 230.0, trials)])
    };
    assert_eq!(verdict(&tried(3)), "With Larder: cannot tell from a cold start");
    let shown = format!("{:?}", cards(&tried(3)));
    assert!(shown.contains("too few values"), "{shown}");
    // The interval of a ratio needs fewer trials than that of a median.
    let shown = format!("{:?}", cards(&tried(4)));
    assert!(shown.contains("2.30 times as fast") && shown.contains("good"), "{shown}");
}

#[test]
fn parts_answer_with_the_best_one_only_if_it_is_clearly_better() {
    let cells = |best: f64| {
        let fast = part("xfs", &[], run("files/s", best, Start::AsIs));
        gathered("a matrix", vec![part("ext4", &[], run("files/s", 100.0, Start::AsIs)), fast])
    };
    assert_eq!(verdict(&cells(150.0)), "xfs is best with 150 files/s; ext4 has 100 files/s");
    assert_eq!(verdict(&cells(100.5)), "No clear difference: 100 files/s at best of 2 variants");
}

#[test]
fn a_grid_answers_with_its_fastest_and_slowest_pass() {
    let mut run = Run::new("a grid", "2026-11-21T03:22:11Z", Machine::default());
    let cell = |group: &str, file: f64, value: f64| Sample {
        values: vec![value],
        group: Some(group.to_owned()),
        at: BTreeMap::from([("file_bytes".to_owned(), file), ("record_bytes".to_owned(), 4096.0)]),
        ..Sample::new(format!("{group} {file}"), "B/s", Some(Direction::Higher))
    };
    let mib = 1_048_576.0;
    run.samples = vec![
        cell("write", 65_536.0, 100.0 * mib),
        cell("write", 131_072.0, 200.0 * mib),
        cell("read", 65_536.0, 900.0 * mib),
        cell("write, flushed", 65_536.0, 1.0 * mib),
    ];
    assert_eq!(verdict(&run), "Read reaches 900 MiB/s, write reaches 200 MiB/s");
    assert_eq!(cards(&run).len(), 3, "two passes and the confidence");
}

#[test]
fn a_load_answers_with_its_clients_as_whole_numbers() {
    let mut run = Run::new("a load", "2026-11-21T03:22:11Z", Machine::default());
    let step = |group: &str, clients: f64, value: f64, unit: &str| Sample {
        values: vec![value],
        group: Some(group.to_owned()),
        at: BTreeMap::from([("clients".to_owned(), clients)]),
        ..Sample::new(format!("{group} {clients}"), unit, None)
    };
    for clients in [1.0, 4.0] {
        run.samples.push(step("throughput", clients, clients * 1_048_576.0, "bytes/s"));
        run.samples.push(step("response time", clients, 1e6, "ns"));
    }
    assert_eq!(verdict(&run), "Not saturated by 4 clients: 4 MiB/s");
}

#[test]
fn a_series_over_one_coordinate_answers_with_its_ends() {
    let mut run = run("bytes/s", 1_048_576.0, Start::Cold);
    run.samples = [(65_536.0, 2.0), (4096.0, 1.0), (16_384.0, 1.5)]
        .map(|(size, factor)| Sample {
            values: vec![factor * 1_048_576.0; 6],
            group: Some("throughput".to_owned()),
            at: BTreeMap::from([("read_bytes".to_owned(), size)]),
            ..Sample::new(format!("throughput at {size}"), "bytes/s", Some(Direction::Higher))
        })
        .to_vec();
    run.main = Some("throughput at 4096".to_owned());
    let expected = "Throughput: 1 MiB/s at read 4 KiB, 2 MiB/s at read 64 KiB, cold start";
    assert_eq!(verdict(&run), expected);
    assert!(format!("{:?}", cards(&run)).contains("Read 64 KiB"));
    run.samples[1].values[0] *= 3.0;
    assert_eq!(verdict(&run), expected.to_owned() + "; no clear difference");
}
