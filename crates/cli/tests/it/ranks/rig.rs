//! Ranks as processes, in a directory of their own.

use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// How long anything may take on a busy machine.
const PATIENCE: Duration = Duration::from_mins(4);

/// `larder bench` with these words in a directory, as one rank of several.
pub(crate) fn rank(directory: &Path, (rank, ranks): (usize, usize), words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_larder"));
    command.arg("bench").args(words).arg("--rendezvous").arg(meeting(directory));
    command.env("PMI_RANK", rank.to_string()).env("PMI_SIZE", ranks.to_string());
    command.env_remove("OMPI_COMM_WORLD_RANK").current_dir(directory);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Where they meet: beside the directory that they work in.
pub(crate) fn meeting(directory: &Path) -> std::path::PathBuf {
    directory.with_extension("meeting")
}

/// Starts as many ranks with the same words.
pub(crate) fn start(directory: &Path, ranks: usize, words: &[&str]) -> Vec<Child> {
    (0..ranks).map(|number| rank(directory, (number, ranks), words).spawn().unwrap()).collect()
}

/// What all of them came to.
pub(crate) fn wait(children: Vec<Child>) -> Vec<Output> {
    children.into_iter().map(|child| child.wait_with_output().unwrap()).collect()
}

pub(crate) fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// What is in a directory, by name.
pub(crate) fn names(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Waits until so many ranks have made files of PostMark.
pub(crate) fn wait_for_work(directory: &Path, ranks: usize) {
    let begun = Instant::now();
    let works = |name: &String| {
        let inside = directory.join(name).join("t0");
        std::fs::read_dir(inside).is_ok_and(|entries| entries.count() > 10)
    };
    while names(directory).iter().filter(|name| works(name)).count() < ranks {
        assert!(begun.elapsed() < PATIENCE, "nobody works");
        std::thread::sleep(Duration::from_millis(5));
    }
}
