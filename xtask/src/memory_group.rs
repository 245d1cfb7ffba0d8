//! A memory cgroup: processes that share a limit, as on a machine with little memory.
//!
//! Requires root and the version 1 memory controller. When the value is dropped and when this
//! process dies, the processes in the cgroup are killed and the cgroup is removed.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::cleanup::Cleanup;
use crate::daemon::Daemon;
use crate::image::MIB;
use crate::run::{self, cmd};

const CONTROLLER: &str = "/sys/fs/cgroup/memory";

const CLEANUP: &str = "
for try in 1 2 3 4 5 6 7 8 9 10; do
  for process in $(cat \"$1/cgroup.procs\"); do kill -9 \"$process\"; done
  rmdir \"$1\" && break
  sleep 0.2
done";

/// Runs a command inside the cgroup; `$1` is its list of processes.
const ENTER: &str = "echo $$ > \"$1\" && shift && exec \"$@\"";

/// Leaks 8 MiB at a time, with pauses of `$1` seconds, and keeps all of it in memory.
const LEAK: &str = "echo 1000 > /proc/self/oom_score_adj
while head -c 8388608 /dev/zero; do sleep \"$1\"; done | tail";

/// A memory cgroup with a limit.
pub(crate) struct MemoryGroup {
    path: PathBuf,
    _cleanup: Cleanup,
}

impl MemoryGroup {
    /// Returns the reason if this machine cannot provide the cgroup.
    pub(crate) fn unavailable_reason() -> Option<String> {
        let has_limit = Path::new(CONTROLLER).join("memory.limit_in_bytes").exists();
        let no_group = || (!has_limit).then(|| "no memory controller (cgroup v1)".into());
        run::unmet_requirement(&[]).or_else(no_group)
    }

    /// Creates a cgroup whose processes together have `mib` MiB of memory.
    pub(crate) fn with_limit(mib: u64) -> Result<Self> {
        let path = Path::new(CONTROLLER).join(format!("larder-{}", std::process::id()));
        std::fs::create_dir(&path).with_context(|| format!("make {}", path.display()))?;
        let cleanup = Cleanup::start(CLEANUP, &[&path.to_string_lossy()])?;
        std::fs::write(path.join("memory.limit_in_bytes"), (mib * MIB).to_string())
            .context("limit the memory of the group")?;
        Ok(Self { path, _cleanup: cleanup })
    }

    /// Returns a command that runs `command` in the cgroup.
    pub(crate) fn wrap(&self, command: &Command) -> Command {
        let mut inside = Command::new("sh");
        inside.args(["-c", ENTER, "enter"]).arg(self.path.join("cgroup.procs"));
        inside.arg(command.get_program()).args(command.get_args());
        inside
    }

    /// Returns a value of `memory.stat`, in bytes.
    pub(crate) fn bytes(&self, name: &str) -> Result<u64> {
        let text = std::fs::read_to_string(self.path.join("memory.stat"))
            .context("read the statistics of the group")?;
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        let value = value.with_context(|| format!("no {name} in memory.stat"))?;
        value.parse().with_context(|| format!("{name} is '{value}'"))
    }

    /// Starts the command in the cgroup.
    pub(crate) fn start(&self, name: &str, scratch: &Path, command: &Command) -> Result<Daemon> {
        Daemon::start(name, scratch, |_| self.wrap(command))
    }

    /// Starts a process in the cgroup that leaks memory, with these pauses, until the kernel kills
    /// it.
    pub(crate) fn leak(&self, scratch: &Path, pause_s: &str) -> Result<Daemon> {
        self.start("the leak", scratch, &cmd!("sh -c {LEAK} leak {pause_s}"))
    }
}
