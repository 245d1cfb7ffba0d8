//! FUSE mounts of a directory, by Larder or by a peer.

use rustix::process::Signal;

use crate::cleanup::Cleanup;
use crate::daemon::Daemon;
use crate::prove::prelude::*;

/// A program that mounts a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::prove) struct Program {
    /// Its name in tables and records.
    pub(in crate::prove) name: &'static str,
    /// The command line before source and mountpoint; LARDER represents the binary under test.
    pub(in crate::prove) line: &'static str,
}

impl Program {
    /// Returns the command that mounts `source` at `dir/at` in the foreground until SIGTERM.
    fn command(self, larder: &Path, source: &Path, dir: &Path) -> Command {
        let (at, mut words) = (dir.join("at"), self.line.split(' '));
        let program = words.next().filter(|_| !self.is_larder()).map_or(larder, Path::new);
        let mut command = cmd!("{program} {words...} {source} {at}");
        command.current_dir(dir);
        command
    }

    fn is_larder(self) -> bool {
        self.line.starts_with("LARDER ")
    }
}

/// A mounted directory.
#[derive(Debug)]
pub(in crate::prove) struct FuseMount {
    pub(in crate::prove) program: Program,
    pub(in crate::prove) point: PathBuf,
    cleanup: Cleanup,
    daemon: Daemon,
}

impl FuseMount {
    /// Mounts a directory at a new mountpoint.
    pub(in crate::prove) fn start(env: &Env, program: Program, source: &Path) -> Result<Self> {
        let mut daemon = Daemon::start(program.name, env.dir(), |dir| {
            // If the mountpoint cannot be created, the mount fails.
            let _is_made = std::fs::create_dir(dir.join("at")).is_ok();
            program.command(&env.larder, source, dir)
        })?;
        let point = daemon.file("at");
        let cleanup = Cleanup::start("umount --lazy \"$1\"", &[&point.to_string_lossy()])?;
        daemon.wait_until(|_| is_mounted(&point))?;
        Ok(FuseMount { program, point, cleanup, daemon })
    }

    /// Kills the program with SIGKILL, and removes the dead mount.
    pub(in crate::prove) fn kill(mut self) -> Result<()> {
        let point = &self.point;
        self.daemon.end(Signal::KILL)?;
        stdout_of(cmd!("umount --lazy {point}"))?;
        self.cleanup.cancel();
        Ok(())
    }

    /// Ends the program, which unmounts; fails if Larder does not end cleanly.
    pub(in crate::prove) fn stop_clean(mut self) -> Result<()> {
        let (point, is_larder) = (&self.point, self.program.is_larder());
        if is_larder {
            self.daemon.end_with_success(Signal::TERM)?;
            ensure!(!is_mounted(point), "larder has left its mount behind");
        } else {
            // rclone reports the signal by its exit code, and may leave a mount behind.
            self.daemon.end(Signal::TERM)?;
            if is_mounted(point) {
                stdout_of(cmd!("umount --lazy {point}"))?;
            }
        }
        self.cleanup.cancel();
        Ok(())
    }
}

fn is_mounted(point: &Path) -> bool {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let point = format!(" {} ", point.display());
    mounts.lines().any(|line| line.contains(&point))
}
