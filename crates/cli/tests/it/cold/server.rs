//! The server load against a directory, a mounted file server and an NBD export: load steps, stress
//! point, and no files left behind.

use super::places::ImageServer;
use super::rig::bench;
use super::samba::Samba;
use larder_report::run::stress;
use larder_schema::run::Run;
use larder_schema::run::trial::Start;
use std::path::Path;

const SHORT: [&str; 14] = [
    "--clients",
    "1,2,4",
    "--think",
    "2,1",
    "--items",
    "3",
    "--size",
    "20KiB",
    "--record",
    "8KiB",
    "--warm-up",
    "100ms",
    "--measure",
    "400ms",
];
const TRIAL_ARGS: [&str; 6] = ["--trials", "2", "--confidence", "off", "--format", "json"];

fn is_empty(directory: &Path) -> bool {
    std::fs::read_dir(directory).unwrap().next().is_none()
}

/// Runs three short load steps and returns the run record.
fn run_steps(target: &str, more: &[&str]) -> Run {
    let args = [&["server", target][..], &SHORT, &TRIAL_ARGS, more].concat();
    // A step measures nothing if the machine stalls for its whole duration; then the run is
    // repeated.
    let done = (0..5)
        .map(|_| bench(&args))
        .find(|done| !done.err.contains("no transaction ended within"))
        .expect("a machine that goes on");
    assert!(done.succeeded(), "{done:?}");
    let run = Run::from_json(&done.out).unwrap();
    assert_eq!(run.workload, "server");
    let steps = stress::steps(&run);
    let clients: Vec<f64> = steps.iter().map(|step| step.clients).collect();
    assert_eq!(clients, [1.0, 2.0, 4.0]);
    assert!(steps.iter().all(|step| step.throughput > 0.0 && step.response_ns > 0.0), "{steps:?}");
    // The text and the HTML page state the stress point. The page plots throughput and response
    // time over load.
    let stress = stress::stress_in_words(&run).unwrap();
    let page = larder_report::run::to_html(&run);
    assert!(larder_report::run::to_text(&run).contains(&stress) && page.contains(&stress));
    for group in ["throughput", "response time"] {
        assert!(page.contains(&format!("{group} over clients")), "{group}");
    }
    run
}

#[test]
fn a_directory_is_loaded_step_by_step() {
    let directory = tempfile::tempdir().unwrap();
    let run = run_steps(directory.path().to_str().unwrap(), &["--sync"]);
    assert!(run.trials.iter().all(|trial| trial.started.start == Start::AsIs));
    assert!(is_empty(directory.path()));
}

#[test]
fn a_mounted_file_server_is_loaded_step_by_step() {
    let Some(samba) = Samba::mounted() else { return };
    run_steps(samba.share.to_str().unwrap(), &[]);
    assert!(is_empty(&samba.exported), "what was made on the server is removed");
}

#[test]
fn an_export_is_loaded_step_by_step() {
    let served = ImageServer::image(4 << 20);
    let refused = bench(&["server", &served.uri, "--items", "2"]);
    assert!(refused.code == Some(2) && refused.err.contains("it has 4194304"), "{refused:?}");
    let refused = bench(&[&["server", &served.uri][..], &SHORT].concat());
    assert!(refused.err.contains("add --overwrite, or use --mix read=1"), "{refused:?}");
    let run = run_steps(&served.uri, &["--overwrite"]);
    assert!(run.trials.iter().all(|trial| trial.started.pages.is_none()));
    run_steps(&served.uri, &["--mix", "read=1"]);
}

#[test]
fn what_cannot_be_is_said() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path().to_str().unwrap();
    for (args, reason) in [
        (&["/no/such/directory"][..], "find /no/such/directory"),
        (&["nbd+unix:///x?socket=/no/such/socket"], "reach nbd+unix:///x?socket=/no/such/socket"),
        (&[here, "--clients", "4,2"], "each step has more clients than the one before"),
        (&[here, "--clients", "0"], "it is not a whole number from 1 to 4096"),
        (&[here, "--mix", "move=1"], "there are read, write and copy"),
        (&[here, "--size", "1000", "--unbuffered"], "multiples of 512 bytes"),
        (&[here, "--measure", "0s"], "nothing can end in it"),
        (&[here, "--size", "900TiB"], "are free"),
        (&[here, "--think", "60000", "--measure", "10ms", "--warm-up", "0s"], "measure longer"),
    ] {
        let refused = bench(&[&["server"][..], args].concat());
        assert_eq!(refused.code, Some(2), "{args:?}: {refused:?}");
        assert!(refused.err.contains(reason), "{args:?}: {refused:?}");
    }
    assert!(is_empty(directory.path()));
}
