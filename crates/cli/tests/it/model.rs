//! Tests of `larder model`: its lists, a fit and a check of a file, files with models, a modeled
//! device over NBD, and what is not written.

use crate::shared::program::{Outcome, names, program, run_command};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

const BYTES: usize = 16 << 20;

fn larder(directory: &Path, line: &str) -> Command {
    let mut command = Command::new(program());
    command.args(line.split(' ')).current_dir(directory).stdin(Stdio::null());
    command.env("RUNTIME_DIRECTORY", directory.join("runtime"));
    command
}

fn run(directory: &Path, line: &str) -> Outcome {
    run_command(&mut larder(directory, line))
}

fn json(directory: &Path, line: &str) -> Value {
    let Outcome { code, out, err } = run(directory, line);
    assert_eq!(code, Some(0), "{line}: {err}");
    serde_json::from_str(&out).unwrap()
}

/// Returns a directory with a file of 16 MiB; `None` if its file system has no direct I/O.
fn directory_with_image() -> Option<tempfile::TempDir> {
    let directory = tempfile::tempdir().unwrap();
    std::fs::create_dir(directory.path().join("runtime")).unwrap();
    std::fs::write(directory.path().join("a.img"), vec![1; BYTES]).unwrap();
    let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::DIRECT;
    let image = directory.path().join("a.img");
    if rustix::fs::open(image, flags, rustix::fs::Mode::empty()).is_err() {
        larder_testing::skip("the file system has no direct I/O");
        return None;
    }
    Some(directory)
}

#[test]
fn every_model_of_the_list_is_shown_and_its_json_is_a_model_file() {
    let directory = tempfile::tempdir().unwrap();
    let list = json(directory.path(), "model list --json");
    assert_eq!((&list["schema"], &list["version"]), (&"larder-models".into(), &1.into()));
    let text = run(directory.path(), "model list").out;
    let models = list["models"].as_array().unwrap();
    assert!(models.len() >= 14);
    for model in models {
        let name = model["name"].as_str().unwrap();
        assert!(text.contains(name) && text.contains(model["summary"].as_str().unwrap()));
        let shown = run(directory.path(), &format!("model show {name}"));
        assert!(shown.out.contains("\nSources:\n"), "{shown:?}");
        let described = run(directory.path(), &format!("model show {name} --json"));
        std::fs::write(directory.path().join("m.json"), &described.out).unwrap();
        let again = run(directory.path(), "model show file:m.json --json");
        assert_eq!(again.out, described.out, "{}", again.err);
    }
    let array = json(directory.path(), "model show raid5:3xscsi-1999,chunk=64KiB --json");
    assert_eq!(array["figures"][1]["value"], 65_536);
}

#[test]
fn a_fit_writes_a_model_that_other_commands_use() {
    let Some(directory) = directory_with_image() else { return };
    let directory = directory.path();
    let fitted = json(directory, "model fit a.img --output fit.json --json --quiet");
    assert_eq!(fitted["comparisons"].as_array().unwrap().len(), 5);
    let file = std::fs::read_to_string(directory.join("fit.json")).unwrap();
    assert_eq!(serde_json::from_str::<Value>(&file).unwrap(), fitted);
    assert_eq!(std::fs::read(directory.join("a.img")).unwrap(), vec![1; BYTES], "only read");
    let checked = json(directory, "model check a.img --store file:fit.json --for 20ms --json");
    assert_eq!(checked["model"], fitted["model"]);
    let rows = checked["comparisons"].as_array().unwrap();
    assert_eq!(rows.len(), 8);
    for row in rows {
        assert!(row["pattern"].as_str().unwrap().contains(" read, "), "{row}");
        let measured = &row["measured"];
        assert!(measured["p50_ns"].as_u64().unwrap() <= measured["p99_ns"].as_u64().unwrap());
        assert!(row["predicted"]["operations_per_s"].as_f64().unwrap() > 0.0, "{row}");
    }
    let options = "--level whole --size 2MiB --policy lru --store file:fit.json --quiet --json";
    let simulated = json(directory, &format!("sim --sample {options}"));
    assert_eq!(simulated["rows"][0]["store"], fitted["model"]);
}

#[test]
fn only_destructive_measurements_write_and_not_into_what_another_process_uses() {
    let Some(directory) = directory_with_image() else { return };
    let directory = directory.path();
    let server = serve(directory, "a.img");
    let line = "model check a.img --destructive a.img --store disk --for 10ms --json";
    let refused = run(directory, line);
    assert_eq!(refused.code, Some(2));
    assert!(
        refused.err.starts_with("larder: cannot cache the file a.img: process "),
        "{refused:?}"
    );
    end(server, Signal::TERM);
    assert_eq!(std::fs::read(directory.join("a.img")).unwrap(), vec![1; BYTES]);
    let checked = json(directory, line);
    let rows = checked["comparisons"].as_array().unwrap();
    let writes = rows.iter().filter(|row| row["pattern"].as_str().unwrap().contains(" write, "));
    assert_eq!((rows.len(), writes.count()), (8, 4));
    assert_ne!(std::fs::read(directory.join("a.img")).unwrap(), vec![1; BYTES]);
    assert_eq!(names(directory), ["a.img", "runtime"]);
}

/// Starts a modeled device over a file.
fn serve(directory: &Path, image: &str) -> Child {
    let line = format!("model serve fixed:2ms {image} --listen unix:a.sock");
    let mut child = larder(directory, &line).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "serving fixed:2ms (16 MiB) at nbd+unix:///?socket=a.sock\n");
    child
}

/// Ends a process with a signal; returns the signal that ended it, and its exit code.
fn end(mut child: Child, signal: Signal) -> (Option<i32>, Option<i32>) {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw).unwrap();
    kill_process(pid, signal).unwrap();
    let status = child.wait().unwrap();
    (status.signal(), status.code())
}

#[test]
fn a_modeled_device_is_measured_over_nbd() {
    let Some(directory) = directory_with_image() else { return };
    let directory = directory.path();
    let server = serve(directory, "a.img");
    let uri = "nbd+unix:///?socket=a.sock";
    let line =
        format!("model check {uri} --destructive {uri} --store fixed:2ms --for 100ms --json");
    let checked = json(directory, &line);
    for row in checked["comparisons"].as_array().unwrap() {
        // A machine that is busy makes it slower, but not faster.
        assert!(row["measured"]["p50_ns"].as_u64().unwrap() >= 2_000_000, "{row}");
        assert_eq!(row["predicted"]["p50_ns"], 2_000_000, "{row}");
    }
    assert_eq!(end(server, Signal::TERM), (None, Some(0)));
    assert_eq!(names(directory), ["a.img", "runtime"]);
}

#[test]
fn an_interrupted_measurement_ends_with_the_signal() {
    let Some(directory) = directory_with_image() else { return };
    let line = "model check a.img --store disk --for 5m";
    let mut child = larder(directory.path(), line).stderr(Stdio::piped()).spawn().unwrap();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    let mut text = String::new();
    stderr.read_line(&mut text).unwrap();
    assert_eq!(text, "larder: random read, 4 KiB, depth 1\n");
    let ended = end(child, Signal::INT);
    assert_eq!(ended, (Some(Signal::INT.as_raw()), None));
    std::io::Read::read_to_string(&mut stderr, &mut text).unwrap();
    assert!(text.ends_with("larder: stopped before there was a result\n"), "{text}");
}

#[test]
fn a_file_that_is_no_model_is_refused_in_one_sentence() {
    let directory = tempfile::tempdir().unwrap();
    let write = |text: &str| std::fs::write(directory.path().join("m.json"), text).unwrap();
    let model = |text: &str| {
        serde_json::json!({ "schema": "larder-model", "version": 1, "model": text }).to_string()
    };
    for (text, reason) in [
        ("\u{0}".to_owned(), "it is not JSON"),
        ("[".repeat(60_000), "it is not JSON"),
        (" ".repeat(65_537), "it is longer than 65536 bytes"),
        (model("file:m.json"), "it names another file"),
        (model("measure:m.json"), "it names another file"),
        (model("raid0:2xfile:m.json"), "the members of an array are devices"),
        (model("\u{1b}[2J"), "there is no store model"),
    ] {
        write(&text);
        let Outcome { code, out, err } = run(directory.path(), "model show file:m.json");
        assert_eq!((code, &out[..], err.lines().count()), (Some(2), "", 1), "{err}");
        let start = "larder: cannot read the model m.json: ";
        assert!(err.starts_with(start) && err.contains(reason), "{err}");
        assert!(!err.contains('\u{1b}'), "{err:?}");
    }
}
