//! A cgroup (version 1) that limits processes or single threads to half a CPU.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context as _, Result};

use crate::cleanup::Cleanup;

const CONTROLLER: &str = "/sys/fs/cgroup/cpu";

const REMOVE: &str = "
for try in 1 2 3 4 5 6 7 8 9 10; do
  for process in $(cat \"$1/cgroup.procs\"); do echo \"$process\" > \"$2/cgroup.procs\"; done
  rmdir \"$1\" && break
  sleep 0.2
done";

/// CPU time in microseconds in each period of 100 ms: half a CPU.
const QUOTA_US: u32 = 50_000;

/// A CPU cgroup, removed when this value is dropped or this process dies.
pub(crate) struct HalfProcessor {
    path: PathBuf,
    _cleanup: Cleanup,
}

impl HalfProcessor {
    /// Returns the reason if this machine cannot provide the group.
    pub(crate) fn unavailable_reason() -> Option<String> {
        let has_limit = Path::new(CONTROLLER).join("cpu.cfs_quota_us").exists();
        (!has_limit).then(|| format!("no cpu controller (cgroup v1) at {CONTROLLER}"))
    }

    pub(crate) fn new() -> Result<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("larder-half-{}-{number}", std::process::id());
        let path = Path::new(CONTROLLER).join(name);
        std::fs::create_dir(&path).with_context(|| format!("create {}", path.display()))?;
        let cleanup = Cleanup::start(REMOVE, &[&path.to_string_lossy(), CONTROLLER])?;
        std::fs::write(path.join("cpu.cfs_quota_us"), QUOTA_US.to_string())
            .context("limit the CPU time of a cgroup")?;
        Ok(HalfProcessor { path, _cleanup: cleanup })
    }

    /// Returns a command that runs `command` in the cgroup.
    pub(crate) fn wrap(&self, command: &Command) -> Command {
        let mut inside = Command::new("sh");
        inside.args(["-c", "echo $$ > \"$1\" && shift && exec \"$@\"", "enter"]);
        inside.arg(self.path.join("cgroup.procs"));
        inside.arg(command.get_program()).args(command.get_args());
        if let Some(directory) = command.get_current_dir() {
            inside.current_dir(directory);
        }
        inside
    }

    /// Moves the calling thread into the cgroup; its later child threads start there.
    pub(crate) fn enter_thread(&self) -> Result<()> {
        let thread = rustix::thread::gettid().as_raw_nonzero().to_string();
        std::fs::write(self.path.join("tasks"), thread).context("move a thread into a cgroup")
    }
}
