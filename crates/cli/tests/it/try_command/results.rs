//! What it shows: starts that were made and read back, what larder counted, one verdict.

use super::rig::{SHORT, directory, done, may, mounts, names, page, shortest, text};
use larder_report::run::Run;
use larder_report::run::trial::Start;
use larder_testing::stays_resident;
use std::path::Path;

/// The record of a run, after it has printed `said`; nothing of it is left in the directory.
fn recorded(directory: &Path, words: &[&str]) -> (Run, String) {
    let output = done(directory, words);
    let said = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!((names(directory), mounts(directory)), (vec![], vec![]));
    let run = Run::from_json(&std::fs::read_to_string(page(directory)).unwrap()).unwrap();
    std::fs::remove_file(page(directory)).unwrap();
    assert_eq!(said.matches("Through larder: ").count(), 1, "one verdict: {said}");
    assert!(said.contains(&run.verdict), "{said}");
    (run, said)
}

fn values<'a>(run: &'a Run, part: &str, series: &str) -> &'a [f64] {
    let part = run.parts.iter().find(|it| it.name == part).unwrap();
    &part.run.sample(series).unwrap_or_else(|| panic!("{series}")).values
}

#[test]
fn cold_is_cold_and_warm_is_warm_on_both_sides() {
    if !may() {
        return;
    }
    let directory = directory();
    let (run, said) = recorded(directory.path(), &SHORT);
    let parts: Vec<&str> = run.parts.iter().map(|part| part.name.as_str()).collect();
    assert_eq!(parts, ["native, cold", "native, warm", "larder, cold", "larder, warm"]);
    for part in &run.parts {
        assert!(said.contains(&part.name), "{said}");
        assert_eq!(part.run.trials.len(), 4, "{}", part.name);
        for trial in &part.run.trials {
            let warm = trial.started.start == Start::Warm;
            assert_eq!(warm, part.name.ends_with("warm"));
            let wanted = if warm { 256 } else { 0 };
            assert_eq!(trial.started.pages, Some(256), "{}", part.name);
            let resident = trial.started.resident.unwrap();
            assert!(stays_resident(resident, wanted), "{}: {resident}", part.name);
        }
    }
    let hits = values(&run, "larder, warm", "hits");
    assert!(hits.iter().all(|hits| *hits > 99.9), "all of it is in the cache: {hits:?}");
    let cold = values(&run, "larder, cold", "pages read, of these in the cache");
    let read = values(&run, "larder, cold", "pages read");
    assert!(cold.iter().zip(read).all(|(hit, read)| hit < read), "some had to be read: {cold:?}");
    // Three of four records are written, over and over in one place.
    let gathered = values(&run, "larder, warm", "pages per disk write");
    // A machine that stands still at the begin of a trial leaves no time for it in that one.
    let few = gathered.iter().filter(|pages| **pages <= 2.0).count();
    assert!(few <= 1, "{gathered:?}");
}

#[test]
fn a_file_that_is_read_in_order_is_read_ahead_through_larder() {
    if !may() {
        return;
    }
    let directory = directory();
    let words = ["--memory", "32MiB", "--trials", "1", "--", "--size", "4MiB"];
    let (run, said) = recorded(directory.path(), &words);
    assert!(said.contains("Fileload: sequential"), "{said}");
    // Of 1,024 pages; how many of them had come before their reader did is a matter of the disk.
    let ahead = values(&run, "larder, cold", "pages read, of these read ahead")[0];
    assert!(ahead > 128.0, "{ahead}");
    let hits = values(&run, "larder, cold", "pages read, of these in the cache")[0];
    assert_eq!(hits.to_bits(), ahead.to_bits(), "nothing else has brought any: {hits}");
    assert!(values(&run, "larder, warm", "hits")[0] > 99.9);
    // One trial is too few, whatever else there is to say of a busy machine.
    assert!(run.verdict.contains("cannot tell from a cold start"), "{}", run.verdict);
    assert!(!said.contains("pages per disk write"), "nothing is written: {said}");
    // What does not fit has no warm start.
    let words = ["--memory", "32MiB", "--trials", "1", "--", "--size", "48MiB"];
    let (run, _) = recorded(directory.path(), &words);
    assert_eq!(run.parts.len(), 2);
    let why = run.settings["starts"].as_str().unwrap();
    assert_eq!(why, "there is no warm start: 48 MiB do not fit into 32 MiB of cache");
}

#[test]
fn postmark_has_one_start_and_the_same_counts_on_both_sides() {
    if !may() {
        return;
    }
    let directory = directory();
    let words = ["--workload", "postmark", "--memory", "16MiB", "--trials", "2"];
    let work = ["--flush", "ignore", "--", "--number", "50", "--transactions", "100"];
    let (run, said) = recorded(directory.path(), &[&words[..], &work].concat());
    assert!(said.contains("transactions") && run.parts.len() == 2, "{said}");
    for series in ["created", "deleted", "bytes written"] {
        assert_eq!(values(&run, "native", series), values(&run, "larder", series), "{series}");
    }
    assert_eq!(run.settings["flush"], "ignore");
}

#[test]
fn the_result_is_printed_though_the_page_cannot_be_written() {
    if !may() {
        return;
    }
    let directory = directory();
    let words = [&["-o", "/dev/full"], &shortest()[..]].concat();
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_larder"));
    let output = command.arg("try").arg(directory.path()).args(words).output().unwrap();
    let (shown, said) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(shown.contains("native, cold") && !shown.contains("Written to"), "{shown}");
    assert!(said.lines().last().unwrap().contains("failed to write /dev/full: "), "{said}");
    assert!(said.contains("ways by turns, once: "), "{said}");
    assert!(!said.contains("more on this one"), "nothing is left to do: {said}");
}

#[test]
fn the_page_has_the_verdict_and_nothing_is_asked_of_a_small_run() {
    if !may() {
        return;
    }
    let directory = directory();
    let page = directory.path().with_extension("html");
    let words = [&["-o", page.to_str().unwrap()], &shortest()[..]].concat();
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_larder"));
    let output = command.arg("try").arg(directory.path()).args(words).output().unwrap();
    let said = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(said.ends_with(&format!("Written to {}\n", page.display())), "{said}");
    let html = std::fs::read_to_string(&page).unwrap();
    std::fs::remove_file(&page).unwrap();
    assert!(html.contains("Through larder: ") && html.contains("<svg"), "a page with charts");
}
