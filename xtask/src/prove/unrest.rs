//! Settings that change while a server works: all of them, one time after the other, from a seed,
//! through `larder ctl set` as a person would; and a volume that comes and goes.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

use super::guest::Guest;
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
    /// Begins: a change each time that `pause` has passed. Memory is one of `memory`. The guest, if
    /// there is one, comes and goes in turns.
    pub(super) fn begin(
        binary: &Path,
        server: &Server,
        memory: &'static [&'static str],
        pause: Duration,
        seed: u64,
        mut guest: Option<Guest>,
    ) -> Self {
        let (binary, control) = (binary.to_path_buf(), server.control());
        let quit = Arc::new(AtomicBool::new(false));
        let shall_quit = Arc::clone(&quit);
        let thread = std::thread::spawn(move || {
            let mut random = Random::seeded(seed);
            let mut changes = 0;
            let begun = Instant::now();
            while !shall_quit.load(Ordering::Acquire) {
                let mut change = || -> Result<()> {
                    change(&binary, &control, &settings(&mut random, memory))?;
                    guest.as_mut().map_or(Ok(()), Guest::come_or_go)
                };
                if let Err(error) = change() {
                    return (changes, Some(error));
                }
                changes += 1;
                // At a fixed rate, however long the changes themselves take.
                let next = begun + pause * u32::try_from(changes).expect("few");
                std::thread::sleep(next.saturating_duration_since(Instant::now()));
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

/// Each kind of setting.
fn settings(random: &mut Random, memory: &[&str]) -> [String; 4] {
    let mut one_of = |name: &str, values: &[&str]| {
        let value = values[random.below(values.len())];
        format!("{name}={value}")
    };
    [
        one_of("memory", memory),
        one_of("page-size", &PAGE_SIZES),
        one_of("policy", &POLICIES),
        one_of("write-mode", &WRITE_MODES),
    ]
}

fn change(binary: &Path, control: &PathBuf, settings: &[String]) -> Result<()> {
    let mut ctl = run::client(60, &binary.to_string_lossy());
    ctl.args(["ctl", "set", "--control"]).arg(control).args(settings);
    run::text(&mut ctl).with_context(|| format!("set {}", settings.join(" ")))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_setting_changes() {
        let made = settings(&mut Random::seeded(1), &["8MiB"]);
        let names: Vec<_> =
            made.iter().filter_map(|one| one.split_once('=')).map(|(n, _)| n).collect();
        assert_eq!(names, ["memory", "page-size", "policy", "write-mode"]);
        assert_eq!(made[0], "memory=8MiB");
    }
}
