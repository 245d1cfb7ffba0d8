//! Verdicts on samples with known truth, from fixed seeds, with noise as in benchmarks.

use super::*;
use larder_schema::run::trial::{Doubt, DoubtReason, MeasuredStart, Trial};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use serde_json::json;

fn run(series: &[(&str, &str, Option<Direction>, &[f64])]) -> Run {
    let mut run = Run::new("something", "2026-11-21T03:22:11Z", Machine::default());
    run.workload = "probe".to_owned();
    for (name, unit, better, values) in series {
        let sample = Sample::new(*name, *unit, *better);
        run.samples.push(Sample { values: values.to_vec(), ..sample });
    }
    run
}

fn compared(a: &[f64], b: &[f64]) -> SeriesComparison {
    let higher = Some(Direction::Higher);
    let (a, b) = (run(&[("rate", "1/s", higher, a)]), run(&[("rate", "1/s", higher, b)]));
    compare(&a, &b, THRESHOLD).unwrap().series.remove(0)
}

const STEADY: [f64; 6] = [100.0, 101.0, 99.0, 100.5, 99.5, 100.2];

fn scaled(factor: f64) -> [f64; 6] {
    STEADY.map(|value| value * factor)
}

#[test]
fn a_slower_machine_widens_the_interval() {
    let compared = |values: &[f64]| run(&[("rate", "ops/s", None, values)]);
    let fast = compared(&[10.0, 10.1, 9.9, 10.0, 10.1, 9.9]);
    let mut slow = compared(&[8.0, 8.1, 7.9, 8.0, 8.1, 7.9]);
    let with_speed = |run: &mut Run, speed: f64| {
        run.trials = vec![Trial { speed: Some(speed), ..Trial::default() }; 6];
    };
    let verdict = |a: &Run, b: &Run| {
        let found = compare(a, b, THRESHOLD).unwrap().series.remove(0);
        (found.verdict, found.why)
    };
    assert_eq!(verdict(&fast, &slow).0, Verdict::Worse, "the speed was not measured");
    let mut fast = fast;
    with_speed(&mut fast, 100.0);
    with_speed(&mut slow, 80.0);
    let why = "the machine was 20.0 % slower during the second".to_owned();
    assert_eq!(verdict(&fast, &slow), (Verdict::CannotTell, why));
    let why = "the machine was 20.0 % slower during the first".to_owned();
    assert_eq!(verdict(&slow, &fast), (Verdict::CannotTell, why));
    with_speed(&mut slow, 95.0);
    assert_eq!(verdict(&fast, &slow).0, Verdict::Worse, "as fast");
    with_speed(&mut slow, 80.0);
    slow.machine.cores += 1;
    assert_eq!(verdict(&fast, &slow).0, Verdict::Worse, "another machine");
}

#[test]
fn a_difference_beyond_the_slowdown_stays_a_verdict() {
    let with_speed = |unit: &str, values: &[f64], speed: f64| {
        let mut run = run(&[("x", unit, None, values)]);
        run.trials = vec![Trial { speed: Some(speed), ..Trial::default() }; 6];
        run
    };
    let compared =
        |unit: &str, (factor_a, speed_a): (f64, f64), (factor_b, speed_b): (f64, f64)| {
            let (a, b) = (scaled(factor_a), scaled(factor_b));
            let (a, b) = (with_speed(unit, &a, speed_a), with_speed(unit, &b, speed_b));
            compare(&a, &b, THRESHOLD).unwrap().series.remove(0)
        };
    // At the speed of the first run the second could have had 0.02 / 0.7 of its rate.
    let worse = compared("ops/s", (1.0, 100.0), (0.02, 70.0));
    assert_eq!((worse.verdict, worse.why.as_str()), (Verdict::Worse, ""));
    let steady = compared("ops/s", (1.0, 100.0), (0.02, 100.0));
    assert_eq!(worse.ratio_low, steady.ratio_low);
    let (wide, narrow) = (worse.ratio_high.unwrap(), steady.ratio_high.unwrap());
    assert!((wide * 0.7 - narrow).abs() < 1e-9, "{wide} {narrow}");
    // A better result on a slower machine is better.
    assert_eq!(compared("ops/s", (1.0, 100.0), (1.1, 70.0)).verdict, Verdict::Better);
    assert_eq!(compared("ops/s", (1.1, 70.0), (1.0, 100.0)).verdict, Verdict::Worse);
    for (a, b, verdict) in [
        ((1.0, 100.0), (1.3, 80.0), Verdict::Worse),
        ((1.0, 100.0), (1.2, 80.0), Verdict::CannotTell),
        ((1.0, 100.0), (0.9, 80.0), Verdict::Better),
        ((1.3, 80.0), (1.0, 100.0), Verdict::Better),
        ((1.2, 80.0), (1.0, 100.0), Verdict::CannotTell),
    ] {
        assert_eq!(compared("ms", a, b).verdict, verdict, "{a:?} {b:?}");
    }
}

#[test]
fn better_and_worse_follow_what_is_better() {
    assert_eq!(compared(&STEADY, &scaled(1.1)).verdict, Verdict::Better);
    assert_eq!(compared(&STEADY, &scaled(0.9)).verdict, Verdict::Worse);
    let time = |values: &[f64]| run(&[("time", "ms", Some(Direction::Lower), values)]);
    let found = compare(&time(&STEADY), &time(&scaled(1.1)), THRESHOLD).unwrap();
    assert!(found.is_worse() && found.series[0].verdict == Verdict::Worse);
    // Without a stated direction the unit decides.
    let plain = |unit| move |values: &[f64]| run(&[("x", unit, None, values)]);
    let verdict_of = |make: &dyn Fn(&[f64]) -> Run| {
        compare(&make(&STEADY), &make(&scaled(1.1)), THRESHOLD).unwrap().series.remove(0)
    };
    assert_eq!(verdict_of(&plain("requests/s")).verdict, Verdict::Better);
    assert_eq!(verdict_of(&plain("ns")).verdict, Verdict::Worse);
    let files = verdict_of(&plain("files"));
    assert_eq!(
        (files.verdict, files.why.as_str()),
        (Verdict::CannotTell, "the direction of improvement is unknown")
    );
}

#[test]
fn constant_parameters_are_left_out() {
    let rate = ("rate", "1/s", None, &STEADY[..]);
    let with = |files: &[f64]| run(&[("files", "files", None, files), rate]);
    let names = |a: &Run, b: &Run| -> Vec<String> {
        let found = compare(a, b, THRESHOLD).unwrap();
        assert!(found.only_a.is_empty() && found.only_b.is_empty());
        found.series.into_iter().map(|series| series.series).collect()
    };
    assert_eq!(names(&with(&[7.0; 4]), &with(&[7.0; 4])), ["rate"]);
    assert_eq!(names(&with(&[7.0; 4]), &with(&[8.0; 4])), ["files", "rate"]);
}

#[test]
fn both_descriptions_are_shown_if_they_differ() {
    let a = run(&[("rate", "1/s", None, &STEADY)]);
    let mut b = a.clone();
    let text = |b: &Run| to_text(&compare(&a, b, THRESHOLD).unwrap());
    assert!(text(&b).starts_with("something\nA of 2026-11-21T03:22:11Z, B of "), "{}", text(&b));
    b.what = "something else".to_owned();
    let different = "A of 2026-11-21T03:22:11Z: something\nB of 2026-11-21T03:22:11Z: something \
                     else\n\n";
    assert!(text(&b).starts_with(different), "{}", text(&b));
}

#[test]
fn what_is_too_small_too_noisy_or_too_little_is_not_told() {
    let small = compared(&STEADY, &scaled(1.01));
    assert_eq!(
        (small.verdict, small.why.as_str()),
        (Verdict::CannotTell, "the difference may be less than 2.0 %")
    );
    let same = compared(&[100.0; 6], &[100.5; 6]);
    assert_eq!(
        (same.verdict, same.why.as_str()),
        (Verdict::CannotTell, "no more than 2.0 % apart")
    );
    let few = compared(&STEADY[..3], &scaled(2.0)[..3]);
    assert_eq!(few.why, "too few values: 4 of each are needed for 95 %");
    assert_eq!(compared(&STEADY[..4], &scaled(2.0)[..4]).verdict, Verdict::Better);
    let none = compared(&STEADY, &[0.0; 6]);
    assert_eq!(
        (none.ratio, none.why.as_str()),
        (None, "there is no ratio to a value of 0 or less")
    );
}

#[test]
fn a_difference_that_stolen_time_can_explain_is_no_verdict() {
    let a = run(&[("rate", "1/s", Some(Direction::Higher), &STEADY)]);
    let compared = |factor: f64, steal: &[f64]| {
        let mut b = run(&[("rate", "1/s", Some(Direction::Higher), &scaled(factor))]);
        let trial = |steal: &f64| Trial { steal: Some(*steal), ..Trial::default() };
        b.trials = steal.iter().map(trial).collect();
        let found = compare(&a, &b, THRESHOLD).unwrap().series.remove(0);
        (found.verdict, found.why)
    };
    let reason = "the hypervisor took 6.0 % of the processor time";
    for (factor, verdict, why) in [
        (2.0, Verdict::Better, ""),
        (0.02, Verdict::Worse, ""),
        (1.08, Verdict::CannotTell, reason),
        (0.92, Verdict::CannotTell, reason),
    ] {
        assert_eq!(compared(factor, &[0.02, 0.1]), (verdict, why.to_owned()), "{factor}");
    }
    assert_eq!(compared(1.08, &[0.02]).0, Verdict::Better, "2 % are not counted");
}

#[test]
fn what_else_is_different_and_doubtful_is_said() {
    let higher = Some(Direction::Higher);
    let mut a = run(&[("old", "1/s", higher, &STEADY), ("rate", "1/s", higher, &STEADY)]);
    let mut b = run(&[("rate", "1/s", higher, &scaled(1.2)), ("new", "1/s", higher, &STEADY)]);
    a.main = Some("rate".to_owned());
    for (run, start, kernel) in [(&mut a, Start::Cold, "6.1"), (&mut b, Start::Warm, "6.18")] {
        let started = MeasuredStart { start, ..MeasuredStart::default() };
        run.trials = vec![Trial { started, ..Trial::default() }];
        kernel.clone_into(&mut run.machine.kernel);
        run.settings.insert("file_bytes".to_owned(), json!(4096));
    }
    b.environment.insert("vm.swappiness".to_owned(), "10".to_owned());
    b.doubts = vec![Doubt { why: DoubtReason::Clock, text: "the clock is coarse".to_owned() }];
    let found = compare(&a, &b, THRESHOLD).unwrap();
    assert_eq!(
        (found.only_a.clone(), found.only_b.clone()),
        (vec!["old".to_owned()], vec!["new".to_owned()])
    );
    let names: Vec<&str> = found.differences.iter().map(|it| it.name.as_str()).collect();
    assert_eq!(names, ["machine.kernel", "start", "vm.swappiness"]);
    let text = to_text(&found);
    for words in [
        "+20.0 %",
        "better",
        "start: cold -> warm",
        "vm.swappiness: - -> 10",
        "Only in B: new",
        "B is doubtful because the clock is coarse.",
    ] {
        assert!(text.contains(words), "{words} in {text}");
    }
    assert!(text.is_ascii());
    let json = found.to_json();
    assert_eq!((&json["schema"], &json["version"]), (&json!(SCHEMA), &json!(VERSION)));
    assert_eq!(json["series"][0]["verdict"], "better");
}

#[test]
fn names_in_the_chart_stand_beside_the_plane() {
    let series: Vec<String> =
        ["cycles", "appended in transactions of a very long name, 64 KiB, read 4 KiB, records 7"]
            .map(str::to_owned)
            .into();
    let with = |factor: f64| {
        let values = scaled(factor);
        let named: Vec<_> =
            series.iter().map(|it| (it.as_str(), "1/s", None, &values[..])).collect();
        run(&named)
    };
    let page = to_html(&compare(&with(1.0), &with(1.1), THRESHOLD).unwrap());
    let number = |element: &str, name: &str| -> f64 {
        let value = element.split(&format!(" {name}=\"")).nth(1).unwrap().split('"').next();
        value.unwrap().parse().unwrap()
    };
    let drawings: Vec<&str> = page.split("<svg ").skip(1).collect();
    assert_eq!(drawings.len(), 2, "for wide and narrow screens");
    for drawing in drawings {
        let drawing = drawing.split("</svg>").next().unwrap();
        let elements =
            |start: &str| drawing.split('<').filter(|it| it.starts_with(start)).collect::<Vec<_>>();
        let left = elements("line").iter().map(|it| number(it, "x1")).fold(f64::INFINITY, f64::min);
        let names = elements("text class=\"label\"");
        assert_eq!(names.len(), series.len());
        for name in names {
            // A bold character is at most 8 pixels wide on average.
            let characters = name.split('>').nth(1).unwrap().chars().count();
            let right = number(name, "x") + 8.0 * larder_schema::as_f64(characters as u64);
            assert!(right <= left, "{name} ends at {right}, the plane begins at {left}");
        }
    }
}

#[test]
fn parameters_are_shown_with_their_name_and_unit() {
    let series = "rate at read_bytes 4096";
    let mut a = run(&[(series, "1/s", Some(Direction::Higher), &STEADY)]);
    let mut b = a.clone();
    a.settings.insert("compute_ns".to_owned(), json!([1e6, 0.0]));
    b.settings.insert("compute_ns".to_owned(), json!([1.1e6, 0.0]));
    let found = compare(&a, &b, THRESHOLD).unwrap();
    let (text, page) = (to_text(&found), to_html(&found));
    assert!(text.contains("  computing time per cycle: 1.00 ms -> 1.10 ms\n"), "{text}");
    assert!(text.contains("\nrate, read 4 KiB"), "{text}");
    let page = page.split("<script").next().unwrap();
    for words in ["differ in computing time per cycle.", "<td>1.10 ms</td>", "rate, read 4 KiB"] {
        assert!(page.contains(words), "{words} in {page}");
    }
    assert!(!page.contains("compute_ns") && !page.contains("read_bytes"), "{page}");
    assert!(table(&found).to_csv().contains(series), "programs get the name of the record");
}

#[test]
fn other_workloads_and_nothing_in_common_are_refused() {
    let a = run(&[("rate", "1/s", None, &STEADY)]);
    let mut b = a.clone();
    b.workload = "postmark".to_owned();
    let error = compare(&a, &b, THRESHOLD).unwrap_err().to_string();
    assert_eq!(error, "the first is of \"probe\", the second of \"postmark\"");
    let other = run(&[("rate", "ms", None, &STEADY)]);
    assert_eq!(compare(&a, &other, THRESHOLD), Err(CompareError::NoSeries));
}

/// Generator of values as in benchmarks: proportional noise, slow waves shared by adjacent values,
/// occasional disturbed trials, and an offset of the whole run.
struct Noise {
    random: Xoshiro256PlusPlus,
    /// Standard deviations of a value's noise, of the wave, and of the run's offset.
    parts: (f64, f64, f64),
}

impl Noise {
    fn unit(&mut self) -> f64 {
        larder_schema::as_f64(self.random.next_u64() >> 11) / larder_schema::as_f64(1 << 53)
    }

    /// The sum of twelve uniform numbers approximates a normal distribution.
    fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.unit()).sum::<f64>() - 6.0
    }

    fn run(&mut self, count: usize, factor: f64) -> Vec<f64> {
        let (value_noise, wave, whole) = self.parts;
        let off = self.normal() * whole;
        let mut wave_value = self.normal() * wave;
        let mut values = Vec::new();
        for _ in 0..count {
            // Adjacent values share four fifths of the wave.
            wave_value = 0.8 * wave_value + 0.6 * wave * self.normal();
            let disturbed = if self.unit() < 0.05 { 0.3 * self.unit() } else { 0.0 };
            let off = off + wave_value + value_noise * self.normal() - disturbed;
            values.push(1000.0 * factor * off.exp());
        }
        values
    }
}

#[test]
fn the_same_is_not_told_apart_and_ten_percent_is_found() {
    // A quiet machine, a typical one, and a noisy one with correspondingly more trials.
    let machines =
        [((0.005, 0.002, 0.003), 6), ((0.02, 0.005, 0.005), 10), ((0.04, 0.01, 0.01), 20)];
    for (number, (parts, count)) in machines.into_iter().enumerate() {
        let random = Xoshiro256PlusPlus::seed_from_u64(number as u64);
        let mut noise = Noise { random, parts };
        let rounds = 500;
        let (mut silent, mut found, mut wrong) = (0, 0, 0);
        for _ in 0..rounds {
            let base = noise.run(count, 1.0);
            let (same, slower) = (noise.run(count, 1.0), noise.run(count, 0.9));
            silent += u32::from(compared(&base, &same).verdict == Verdict::CannotTell);
            let verdict = compared(&base, &slower).verdict;
            found += u32::from(verdict == Verdict::Worse);
            wrong += u32::from(verdict == Verdict::Better);
        }
        println!("{parts:?}, {count} trials: {silent} silent, {found} found of {rounds}");
        assert!(silent * 100 >= rounds * 95, "{silent} of {rounds} on machine {number}");
        assert!(found * 100 >= rounds * 85, "{found} of {rounds} on machine {number}");
        assert_eq!(wrong, 0, "on machine {number}");
    }
}
