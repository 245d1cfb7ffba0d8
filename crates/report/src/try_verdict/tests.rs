//! Verdicts on runs with given values and counts.

use super::*;
use larder_schema::run::trial::{MeasuredStart, Trial};
use larder_schema::run::{Machine, Sample};
use std::collections::BTreeMap;

const STEADY: [f64; 6] = [100.0, 101.0, 99.0, 100.5, 99.5, 100.2];

/// Creates a part whose main series is [`STEADY`] times a factor, with counts of larder.
fn part(side: &str, start: Start, times: f64, counts: &[(&str, f64)]) -> Part {
    let mut run = Run::new("work", "2026-11-21T03:22:11Z", Machine::default());
    run.workload = "probe".to_owned();
    run.main = Some("rate".to_owned());
    let values = STEADY.map(|value| value * times).to_vec();
    run.samples.push(Sample { values, ..Sample::new("rate", "1/s", Some(Direction::Higher)) });
    for (name, value) in counts {
        run.samples.push(Sample { values: vec![*value; 6], ..Sample::new(*name, "pages", None) });
    }
    let started = MeasuredStart { start, ..MeasuredStart::default() };
    run.trials = vec![Trial { started, disk_bytes: Some(0), ..Trial::default() }; 6];
    let labels = [(SIDE.to_owned(), side.to_owned())].into();
    Part { name: format!("{side}, {}", start.name()), labels, run }
}

fn counted(read: f64, hit: f64, ahead: f64, written: f64, writes: f64) -> [(&'static str, f64); 6] {
    [
        (READ_PAGES, read),
        (HIT_PAGES, hit),
        (AHEAD_PAGES, ahead),
        (WRITTEN_PAGES, written),
        (DISK_WRITES, writes),
        (GATHERED, written / writes.max(1.0)),
    ]
}

/// Returns the verdict if a native warm start is ten times as fast as a cold one, with the given
/// factors of larder.
fn of(cold: f64, warm: f64, counts: &[(&str, f64)]) -> String {
    let parts = [
        part(NATIVE, Start::Cold, 1.0, &[]),
        part(NATIVE, Start::Warm, 10.0, &[]),
        part(LARDER, Start::Cold, cold, counts),
        part(LARDER, Start::Warm, 10.0 * warm, counts),
    ];
    verdict(&parts).unwrap()
}

#[test]
fn what_is_better_comes_first_with_what_was_counted() {
    let text = of(3.0, 0.5, &counted(1000.0, 900.0, 850.0, 600.0, 20.0));
    assert_eq!(
        text,
        "Through larder: better from a cold start (3.00 times as fast, 2.97 to 3.03), since \
         85.0 % of the pages read had been read ahead and each write of the disk had 30.0 written \
         pages; worse from a warm start (2.00 times slower, 1.98 to 2.02), since the kernel's \
         own cache holds all of it, and through larder every call passes through a second \
         program (FUSE)."
    );
    let text = of(3.0, 2.0, &counted(1000.0, 900.0, 0.0, 0.0, 0.0));
    assert!(
        text.contains("since 90.0 % of the pages read were in its cache; better from a warm"),
        "{text}"
    );
    let text = of(3.0, 2.0, &counted(1000.0, 10.0, 0.0, 10.0, 10.0));
    assert!(
        text.contains("since writes were acknowledged from memory and written later"),
        "{text}"
    );
    let text = of(3.0, 2.0, &counted(1000.0, 10.0, 0.0, 0.0, 0.0));
    assert!(text.contains("since no counter explains it"), "{text}");
}

#[test]
fn what_is_not_better_says_why_from_what_was_counted() {
    let text = of(0.7, 0.5, &counted(1000.0, 10.0, 0.0, 0.0, 0.0));
    assert!(text.contains("both wait for the same disk: 1.0 % of the pages"), "{text}");
    let text = of(0.7, 0.1, &counted(1000.0, 900.0, 0.0, 0.0, 0.0));
    assert!(text.contains("which outweighs 90.0 % hits"), "{text}");
    let text = of(0.7, 0.5, &counted(1000.0, 900.0, 900.0, 0.0, 0.0));
    assert!(text.contains("waiting for the disk (14.0 % of the speed of a warm start)"), "{text}");
    // A disk that is almost as fast as memory.
    let parts = [
        part(NATIVE, Start::Cold, 9.0, &[]),
        part(NATIVE, Start::Warm, 10.0, &[]),
        part(LARDER, Start::Cold, 4.0, &[]),
        part(LARDER, Start::Warm, 4.0, &[]),
    ];
    let text = verdict(&parts).unwrap();
    assert!(text.contains("nearly as fast as memory here (90.0 % of it)"), "{text}");
    assert!(!text.contains("better"), "{text}");
    // A share above all of it is no share.
    let mut faster = parts.clone();
    faster[0] = part(NATIVE, Start::Cold, 19.97, &[]);
    let text = verdict(&faster).unwrap();
    assert!(text.contains("the disk is as fast as memory here, and"), "{text}");
    // Work that bypasses the page cache has no hits there.
    let mut parts = parts;
    for part in &mut parts {
        part.run.settings.insert("hint".to_owned(), "no-buffering".into());
    }
    let text = verdict(&parts).unwrap();
    assert!(!text.contains("memory") && !text.contains("own cache"), "{text}");
}

#[test]
fn the_same_and_too_few_trials_cannot_be_told() {
    let text = of(1.0, 1.0, &counted(1000.0, 10.0, 0.0, 0.0, 0.0));
    assert!(text.starts_with("Through larder: cannot tell from a cold start (1"), "{text}");
    let mut parts = [part(NATIVE, Start::Cold, 1.0, &[]), part(LARDER, Start::Cold, 3.0, &[])];
    for part in &mut parts {
        part.run.samples[0].values.truncate(3);
    }
    let text = verdict(&parts).unwrap();
    assert!(text.contains(": cannot tell (3"), "no start where there is one: {text}");
    assert!(text.ends_with("needed for 95 %)."), "no reason against what looks better: {text}");
}

#[test]
fn files_that_are_made_and_removed_are_judged_by_what_the_disk_moved() {
    let made = [("bytes written", 1_048_576.0)];
    let parts = |moved: u64| {
        let mut parts =
            [part(NATIVE, Start::Cold, 1.0, &made), part(LARDER, Start::Cold, 0.5, &made)];
        parts[0].run.trials[0].disk_bytes = Some(moved);
        parts
    };
    let text = verdict(&parts(4096)).unwrap();
    assert!(text.contains("(the disk moved 4 KiB of 6 MiB that were written)"), "{text}");
    let text = verdict(&parts(6 << 20)).unwrap();
    assert!(text.contains("the disk creates and removes the names in both cases"), "{text}");
}

#[test]
fn trials_with_a_doubt_are_named_by_their_start_and_side() {
    let parts = [(NATIVE, Start::Cold), (NATIVE, Start::Warm), (LARDER, Start::Cold)]
        .map(|(side, start)| part(side, start, 1.0, &[]));
    let words = |numbers: &[usize]| {
        let some: Vec<&Part> = numbers.iter().map(|number| &parts[*number]).collect();
        trials_in_words(&some, &parts).unwrap()
    };
    assert_eq!(words(&[0, 2]), "the cold trials of both");
    assert_eq!(words(&[1, 2]), "the cold trials of larder and the warm trials of native");
    assert_eq!(words(&[1]), "the warm trials of native");
    assert_eq!(words(&[0, 1]), "the trials of native");
    let other = Part { labels: BTreeMap::new(), ..parts[0].clone() };
    assert_eq!(trials_in_words(&[&other], std::slice::from_ref(&other)), None);
}

#[test]
fn times_are_turned_round_and_different_work_is_refused() {
    let mut parts = [part(NATIVE, Start::Cold, 1.0, &[]), part(LARDER, Start::Cold, 0.25, &[])];
    for part in &mut parts {
        part.run.samples[0].better = Some(Direction::Lower);
    }
    let text = verdict(&parts).unwrap();
    assert!(text.contains("better (4.00 times as fast, 3.96 to 4.04)"), "{text}");
    parts[1].run.workload = "postmark".to_owned();
    assert!(verdict(&parts).is_err());
}
