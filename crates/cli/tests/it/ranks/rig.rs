//! Ranks as processes that work in one directory.

use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Time limit of one step on a busy machine.
const TIMEOUT: Duration = Duration::from_mins(4);

/// Returns `larder bench` with `args` in a directory, as one of several ranks.
pub(crate) fn rank(directory: &Path, (rank, ranks): (usize, usize), args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_larder"));
    command.arg("bench").args(args).arg("--rendezvous").arg(rendezvous(directory));
    command.env("PMI_RANK", rank.to_string()).env("PMI_SIZE", ranks.to_string());
    command.env_remove("OMPI_COMM_WORLD_RANK").current_dir(directory);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Returns the path of the rendezvous file, next to the working directory.
pub(crate) fn rendezvous(directory: &Path) -> std::path::PathBuf {
    directory.with_extension("meeting")
}

/// Starts `ranks` ranks with the same arguments.
pub(crate) fn start(directory: &Path, ranks: usize, args: &[&str]) -> Vec<Child> {
    (0..ranks).map(|number| rank(directory, (number, ranks), args).spawn().unwrap()).collect()
}

/// Waits for the end of all ranks, and returns their outputs.
pub(crate) fn wait(children: Vec<Child>) -> Vec<Output> {
    children.into_iter().map(|child| child.wait_with_output().unwrap()).collect()
}

pub(crate) fn stderr_of(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Returns the sorted names of the entries of a directory.
pub(crate) fn names(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Waits until `ranks` ranks have created PostMark files.
pub(crate) fn wait_for_work(directory: &Path, ranks: usize) {
    let begun = Instant::now();
    let works = |name: &String| {
        let subdirectory = directory.join(name).join("t0");
        std::fs::read_dir(subdirectory).is_ok_and(|entries| entries.count() > 10)
    };
    while names(directory).iter().filter(|name| works(name)).count() < ranks {
        assert!(begun.elapsed() < TIMEOUT, "no rank works");
        std::thread::sleep(Duration::from_millis(5));
    }
}
