//! Results: starts that were prepared and verified, counts of the cache, and one verdict.

use super::rig::{SHORT, can_run, directory, mounts, names, page, run_try, shortest, text};
use larder_schema::run::Run;
use larder_schema::run::trial::Start;
use larder_testing::stays_resident;
use std::path::Path;

/// Returns the record of a run and its standard output. Checks that the run leaves nothing in the
/// directory.
fn run_recorded(directory: &Path, args: &[&str]) -> (Run, String) {
    let output = run_try(directory, args);
    let stdout = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!((names(directory), mounts(directory)), (vec![], vec![]));
    let run = Run::from_json(&std::fs::read_to_string(page(directory)).unwrap()).unwrap();
    std::fs::remove_file(page(directory)).unwrap();
    assert_eq!(stdout.matches("Through larder: ").count(), 1, "one verdict: {stdout}");
    assert!(stdout.contains(&run.verdict), "{stdout}");
    (run, stdout)
}

fn values<'a>(run: &'a Run, part: &str, series: &str) -> &'a [f64] {
    let part = run.parts.iter().find(|it| it.name == part).unwrap();
    &part.run.sample(series).unwrap_or_else(|| panic!("{series}")).values
}

#[test]
fn cold_is_cold_and_warm_is_warm_on_both_sides() {
    if !can_run() {
        return;
    }
    let directory = directory();
    let (run, stdout) = run_recorded(directory.path(), &SHORT);
    let parts: Vec<&str> = run.parts.iter().map(|part| part.name.as_str()).collect();
    assert_eq!(parts, ["native, cold", "native, warm", "larder, cold", "larder, warm"]);
    for part in &run.parts {
        assert!(stdout.contains(&part.name), "{stdout}");
        assert_eq!(part.run.trials.len(), 4, "{}", part.name);
        for trial in &part.run.trials {
            let warm = trial.started.start == Start::Warm;
            assert_eq!(warm, part.name.ends_with("warm"));
            let expected = if warm { 256 } else { 0 };
            assert_eq!(trial.started.pages, Some(256), "{}", part.name);
            let resident = trial.started.resident.unwrap();
            assert!(stays_resident(resident, expected), "{}: {resident}", part.name);
        }
    }
    let hits = values(&run, "larder, warm", "hits");
    assert!(hits.iter().all(|hits| *hits > 99.9), "all of it is in the cache: {hits:?}");
    let cold = values(&run, "larder, cold", "pages read, of these in the cache");
    let read = values(&run, "larder, cold", "pages read");
    assert!(cold.iter().zip(read).all(|(hit, read)| hit < read), "some had to be read: {cold:?}");
    // Three of four records are written, repeatedly to one place.
    let gathered = values(&run, "larder, warm", "pages per disk write");
    // If the machine stalls at the start of a trial, that trial has no time to combine writes.
    let few = gathered.iter().filter(|pages| **pages <= 2.0).count();
    assert!(few <= 1, "{gathered:?}");
}

#[test]
fn a_file_that_is_read_in_order_is_read_ahead_through_larder() {
    if !can_run() {
        return;
    }
    let directory = directory();
    let args = ["--workload", "fileload", "--memory", "32MiB", "--trials", "1"];
    let (run, stdout) =
        run_recorded(directory.path(), &[&args[..], &["--", "--size", "4MiB"]].concat());
    assert!(stdout.contains("Fileload: sequential"), "{stdout}");
    // Of 1,024 pages. The disk determines how many of them arrive before their reader needs them.
    let ahead = values(&run, "larder, cold", "pages read, of these read ahead")[0];
    assert!(ahead > 128.0, "{ahead}");
    let hits = values(&run, "larder, cold", "pages read, of these in the cache")[0];
    assert_eq!(hits.to_bits(), ahead.to_bits(), "nothing else has brought any: {hits}");
    assert!(values(&run, "larder, warm", "hits")[0] > 99.9);
    // One trial is too few for a verdict. On a busy machine the verdict may name further reasons.
    assert!(run.verdict.contains("cannot tell from a cold start"), "{}", run.verdict);
    assert!(!stdout.contains("pages per disk write"), "nothing is written: {stdout}");
    // Data that does not fit in the cache has no warm start.
    let args = ["--memory", "32MiB", "--trials", "1", "--", "--size", "48MiB"];
    let (run, _) = run_recorded(directory.path(), &args);
    assert_eq!(run.parts.len(), 2);
    let reason = run.settings["starts"].as_str().unwrap();
    assert_eq!(reason, "there is no warm start: 48 MiB do not fit into 32 MiB of cache");
}

#[test]
fn postmark_has_one_start_and_the_same_counts_on_both_sides() {
    if !can_run() {
        return;
    }
    let directory = directory();
    let args = ["--workload", "postmark", "--memory", "16MiB", "--trials", "2"];
    let work = ["--flush", "ignore", "--", "--number", "50", "--transactions", "100"];
    let (run, stdout) = run_recorded(directory.path(), &[&args[..], &work].concat());
    assert!(stdout.contains("transactions") && run.parts.len() == 2, "{stdout}");
    for series in ["created", "deleted", "bytes written"] {
        assert_eq!(values(&run, "native", series), values(&run, "larder", series), "{series}");
    }
    assert_eq!(run.settings["flush"], "ignore");
}

#[test]
fn the_result_is_printed_though_the_page_cannot_be_written() {
    if !can_run() {
        return;
    }
    let directory = directory();
    let args = [&["-o", "/dev/full"], &shortest()[..]].concat();
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_larder"));
    let output = command.arg("try").arg(directory.path()).args(args).output().unwrap();
    let (shown, stderr) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(shown.contains("native, cold") && !shown.contains("Written to"), "{shown}");
    assert!(stderr.lines().last().unwrap().contains("cannot write /dev/full: "), "{stderr}");
    assert!(stderr.contains("kinds of trials in turn, once: "), "{stderr}");
    assert!(!stderr.contains("left on this disk"), "nothing is left to do: {stderr}");
}

#[test]
fn the_page_has_the_verdict_and_nothing_is_asked_of_a_small_run() {
    if !can_run() {
        return;
    }
    let directory = directory();
    let page = directory.path().with_extension("html");
    let args = [&["-o", page.to_str().unwrap()], &shortest()[..]].concat();
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_larder"));
    let output = command.arg("try").arg(directory.path()).args(args).output().unwrap();
    let stdout = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(stdout.ends_with(&format!("Written to {}\n", page.display())), "{stdout}");
    let html = std::fs::read_to_string(&page).unwrap();
    std::fs::remove_file(&page).unwrap();
    assert!(html.contains("Through larder: ") && html.contains("<svg"), "a page with charts");
}
