//! Settings that change while a server works: one change after the other, from a seed, through
//! `larder ctl set` as a person would.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context as _, Result};

use crate::random::Random;
use crate::run;
use crate::server::Server;

const PAGE_SIZES: [&str; 5] = ["4KiB", "16KiB", "64KiB", "256KiB", "1MiB"];
const POLICIES: [&str; 13] = [
    "random", "fifo", "lru", "clock", "2q", "slru", "arc", "lirs", "s3fifo", "sieve", "wtinylfu",
    "clock2q+", "linux",
];
const WRITE_MODES: [&str; 3] = ["back", "through", "around"];

/// Changes the settings of a server until it is ended.
#[derive(Debug)]
pub(super) struct Unrest {
    quit: Arc<AtomicBool>,
    thread: JoinHandle<(usize, Option<anyhow::Error>)>,
}

impl Unrest {
    /// Begins: a change, a pause, the next one. Memory is one of `memory`.
    pub(super) fn begin(
        binary: &Path,
        server: &Server,
        memory: &'static [&'static str],
        pause: Duration,
        seed: u64,
    ) -> Self {
        let (binary, control) = (binary.to_path_buf(), server.control());
        let quit = Arc::new(AtomicBool::new(false));
        let shall_quit = Arc::clone(&quit);
        let thread = std::thread::spawn(move || {
            let mut random = Random::seeded(seed);
            let mut changes = 0;
            while !shall_quit.load(Ordering::Acquire) {
                let setting = setting(&mut random, changes, memory);
                if let Err(error) = change(&binary, &control, &setting) {
                    return (changes, Some(error));
                }
                changes += 1;
                std::thread::sleep(pause);
            }
            (changes, None)
        });
        Self { quit, thread }
    }

    /// Ends it; how many changes were made. An error if one was refused.
    pub(super) fn end(self) -> Result<usize> {
        match self.quit() {
            (changes, None) => Ok(changes),
            (changes, Some(error)) => Err(error.context(format!("after {changes} changes"))),
        }
    }

    /// The same where the server may have been killed meanwhile, so that the last one failed.
    pub(super) fn end_after_a_kill(self) -> usize {
        self.quit().0
    }

    fn quit(self) -> (usize, Option<anyhow::Error>) {
        self.quit.store(true, Ordering::Release);
        self.thread.join().expect("the thread that changes settings does not panic")
    }
}

/// Each kind of setting in turn.
fn setting(random: &mut Random, turn: usize, memory: &[&str]) -> String {
    let mut one_of = |name: &str, values: &[&str]| {
        let value = values[random.below(values.len())];
        format!("{name}={value}")
    };
    match turn % 4 {
        0 => one_of("memory", memory),
        1 => one_of("page-size", &PAGE_SIZES),
        2 => one_of("policy", &POLICIES),
        _ => one_of("write-mode", &WRITE_MODES),
    }
}

fn change(binary: &Path, control: &PathBuf, setting: &str) -> Result<()> {
    let mut ctl = run::client(60, &binary.to_string_lossy());
    ctl.args(["ctl", "set", "--control"]).arg(control).arg(setting);
    run::text(&mut ctl).with_context(|| format!("set {setting}"))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_setting_comes_in_turn() {
        let mut random = Random::seeded(1);
        let made: Vec<_> = (0..4).map(|turn| setting(&mut random, turn, &["8MiB"])).collect();
        let names: Vec<_> =
            made.iter().filter_map(|one| one.split_once('=')).map(|(n, _)| n).collect();
        assert_eq!(names, ["memory", "page-size", "policy", "write-mode"]);
        assert_eq!(made[0], "memory=8MiB");
    }
}
