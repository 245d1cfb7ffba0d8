//! `larder report` and `larder compare` of the recorded runs in bench-runs.

use larder_schema::watch::{self, Watch};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Runs a line such as `larder compare a.json b.json` in the directory of the recorded runs.
fn larder(line: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_larder"));
    let args = line.split(' ').skip(1);
    command.args(args).current_dir(root().join("bench-runs")).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_comparison_that_finds_something_worse_says_so_with_its_exit_code() {
    let code = |line: &str| larder(line).status.code();
    assert_eq!(code("larder compare probe-before.json probe-after.json"), Some(1));
    assert_eq!(code("larder compare probe-after.json probe-before.json"), Some(0));
    assert_eq!(code("larder compare probe-before.json probe-before.json"), Some(0));
}

#[test]
fn reports_are_written_as_their_names_say() {
    let directory = tempfile::tempdir().unwrap();
    for (name, prefix) in [
        ("run.html", "<!DOCTYPE html>"),
        ("run.csv", "series,unit,trial,start,value"),
        ("run.json", "{\n  \"schema\": \"larder-run\""),
        ("run.txt", "Probe: "),
    ] {
        let file = directory.path().join(name);
        let output = larder(&format!("larder report probe-before.json -o {}", file.display()));
        assert!(output.status.success(), "{name}: {}", text(&output.stderr));
        let report = std::fs::read_to_string(&file).unwrap();
        assert!(report.starts_with(prefix), "{name}: {}", &report[..60]);
    }
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 4);
}

fn assert_refused(line: &str, message: &str) {
    let output = larder(line);
    assert_eq!(output.status.code(), Some(2), "{line}");
    assert!(text(&output.stderr).contains(message), "{line}: {}", text(&output.stderr));
}

#[test]
fn a_record_of_watch_is_reported() {
    let directory = tempfile::tempdir().unwrap();
    let [record, page] = ["watch.json", "watch.html"].map(|name| directory.path().join(name));
    let scope = "the whole machine".to_owned();
    let watch = Watch {
        schema: watch::SCHEMA.to_owned(),
        version: watch::VERSION,
        scope,
        ..Watch::default()
    };
    std::fs::write(&record, watch.to_json()).unwrap();
    let report = |options: &str| larder(&format!("larder report {}{options}", record.display()));
    assert!(text(&report("").stdout).contains("the whole machine"));
    assert_eq!(Watch::from_json(&text(&report(" --json").stdout)).unwrap(), watch);
    assert!(report(&format!(" -o {}", page.display())).status.success());
    assert!(std::fs::read_to_string(&page).unwrap().starts_with("<!DOCTYPE html>"));
}

#[test]
fn a_comparison_has_a_page_with_its_verdict() {
    let directory = tempfile::tempdir().unwrap();
    let page = directory.path().join("compare.html");
    let line = format!("larder compare probe-before.json probe-after.json -o {}", page.display());
    assert_eq!(larder(&line).status.code(), Some(1));
    let page = std::fs::read_to_string(&page).unwrap();
    assert!(page.contains("<h1>B is worse: cycles") && page.contains("<svg"), "{page}");
}

#[test]
fn wrong_runs_are_refused_with_a_sentence() {
    for (line, message) in [
        ("larder report absent.json", "cannot read absent.json: "),
        ("larder report README.md", "neither a result of larder nor a log of Perfmon\n"),
        ("larder compare README.md probe-after.json", "it is not JSON"),
        ("larder compare probe-before.json absent.json", "read absent.json"),
        ("larder report probe-before.json -o /no/such/directory/x.html", "cannot write "),
        ("larder compare probe-before.json probe-after.json --threshold 2", "is not a share"),
    ] {
        assert_refused(line, message);
    }
}

#[test]
fn files_that_are_no_results_are_refused_with_a_sentence() {
    let directory = tempfile::tempdir().unwrap();
    let neither = "it is neither a result of larder nor a log of Perfmon\n";
    for (name, bytes, message) in [
        ("empty.csv", &b""[..], neither),
        ("other.csv", b"time,value\n1,2\n", neither),
        ("random", b"\xff\x00\x9c{", neither),
        ("cut.json", b"{\"schema\": \"larder-run\"", "it is not JSON (EOF"),
        (
            "no-samples.csv",
            b"\"(PDH-CSV 4.0) (UTC)(0)\",\"\\\\SRV\\Cache\\Copy Reads/sec\"\r\n",
            "the log has no samples\n",
        ),
    ] {
        let file = directory.path().join(name);
        std::fs::write(&file, bytes).unwrap();
        assert_refused(&format!("larder report {}", file.display()), message);
    }
}
