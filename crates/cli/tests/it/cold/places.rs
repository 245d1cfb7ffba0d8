//! Probe on targets that are not files: an engine in process, which counts its cached blocks, and
//! an NBD export, whose server does not report its cache.

use super::rig::{bench, content};
use larder_schema::run::Run;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

const COMMON: [&str; 8] =
    ["--pattern", "R", "--trials", "2", "--confidence", "off", "--length", "400ms"];

#[test]
fn an_engine_in_process_starts_as_told() {
    let engine = ["probe", "--in-process", "memory", "--size", "8MiB", "--format", "json"];
    for (start, resident) in [("cold", 0), ("warm", 2048)] {
        let args = [&engine[..], &COMMON[..], &["--memory", "64MiB", "--start", start]].concat();
        let outcome = bench(&args);
        assert!(outcome.succeeded(), "{outcome:?}");
        let run = Run::from_json(&outcome.out).unwrap();
        for trial in &run.trials {
            assert_eq!((trial.started.pages, trial.started.resident), (Some(2048), Some(resident)));
        }
    }
    // Data that does not fit in memory cannot start warm.
    let args =
        [&engine[..3], &COMMON[..], &["--size", "64MiB", "--memory", "16MiB", "--start", "warm"]];
    let refused = bench(&args.concat());
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(refused.err.contains("start warm: ") && refused.err.contains("blocks are cached"));
}

/// An image served by `larder serve` until dropped.
pub(crate) struct ImageServer {
    server: Child,
    pub(crate) uri: String,
    _directory: TempDir,
}

impl ImageServer {
    pub(crate) fn image(bytes: u64) -> ImageServer {
        let directory = tempfile::tempdir().unwrap();
        let image = directory.path().join("image");
        std::fs::write(&image, content(bytes)).unwrap();
        let mut serve = Command::new(env!("CARGO_BIN_EXE_larder"));
        let socket = format!("unix:{}", directory.path().join("socket").display());
        serve.args(["serve", image.to_str().unwrap(), "--memory", "32MiB", "--listen", &socket]);
        serve.args(["--control", "none"]).stdout(Stdio::piped());
        let mut server = serve.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(server.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let uri = line.trim().rsplit_once(" at ").map_or("", |(_, uri)| uri).to_owned();
        ImageServer { server, uri, _directory: directory }
    }
}

impl Drop for ImageServer {
    fn drop(&mut self) {
        self.server.kill().unwrap();
        self.server.wait().unwrap();
    }
}

#[test]
fn an_export_is_measured_as_it_is_and_never_called_cold() {
    let served = ImageServer::image(4 << 20);
    let uri = served.uri.as_str();
    let as_is = bench(&[&["probe", uri, "--start", "as-is"][..], &COMMON[..]].concat());
    let cold = bench(&[&["probe", uri][..], &COMMON[..]].concat());
    let writes = bench(&["probe", uri, "--start", "as-is"]);
    assert!(as_is.succeeded(), "{uri}: {as_is:?}");
    assert!(as_is.out.contains("what was in memory cannot be known"), "{as_is:?}");
    assert!(cold.err.contains("a server may cache, and does not say what"), "{cold:?}");
    assert!(writes.err.contains("add --overwrite, or use --pattern R"), "{writes:?}");
}
