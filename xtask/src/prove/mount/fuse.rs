//! A directory that is mounted at another place through FUSE, by Larder or by a peer.

use rustix::process::Signal;

use crate::cleanup::Cleanup;
use crate::daemon::Daemon;
use crate::prove::prelude::*;

/// The program that mounts a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::prove) enum Program {
    /// With these options in one line.
    Larder(&'static str),
    /// Passes everything through.
    Bindfs,
    /// Passes everything through; the kernel keeps no pages of its own.
    Mergerfs,
    /// With this for `--vfs-cache-mode`.
    Rclone(&'static str),
}

impl Program {
    /// Its name in tables and records.
    pub(in crate::prove) fn name(self) -> String {
        match self {
            Self::Larder(options) if options.contains("--allow-other") => "larder for all".into(),
            Self::Larder(_) => "larder".into(),
            Self::Bindfs => "bindfs".into(),
            Self::Mergerfs => "mergerfs".into(),
            Self::Rclone(mode) => format!("rclone {mode}"),
        }
    }

    /// Its options. The peers let no other users in by default.
    pub(in crate::prove) fn options(self) -> String {
        match self {
            Self::Larder(options) => format!("--control none {options}"),
            Self::Bindfs => "-f --no-allow-other".into(),
            // Without the last one it makes no file where less than 4 GiB are free.
            Self::Mergerfs => "-f -o cache.files=off,minfreespace=0".into(),
            Self::Rclone(mode) => format!("--vfs-cache-mode {mode}"),
        }
    }

    /// The command that mounts `source` at `dir/at` in the foreground until SIGTERM.
    fn command(self, larder: &Path, source: &Path, dir: &Path) -> Command {
        let (options, at) = (self.options(), dir.join("at"));
        let options = options.split_whitespace();
        match self {
            Self::Larder(_) => cmd!("{larder} mount {options...} {source} {at}"),
            Self::Bindfs => cmd!("bindfs {options...} {source} {at}"),
            Self::Mergerfs => cmd!("mergerfs {options...} {source} {at}"),
            Self::Rclone(_) => {
                let own = ["--cache-dir", "cache", "--config", "none.conf"];
                let mut command = cmd!("rclone mount {options...} {own...} {source} {at}");
                command.current_dir(dir);
                command
            }
        }
    }
}

/// A mounted directory.
#[derive(Debug)]
pub(in crate::prove) struct FuseMount {
    program: Program,
    point: PathBuf,
    cleanup: Cleanup,
    daemon: Daemon,
}

impl FuseMount {
    /// Mounts a directory at a mountpoint that is made for it.
    pub(in crate::prove) fn start(env: &Env, program: Program, source: &Path) -> Result<Self> {
        let mut daemon = Daemon::start(&program.name(), env.dir(), |dir| {
            // A mountpoint that cannot be made is one that nothing is mounted at.
            let _is_made = std::fs::create_dir(dir.join("at")).is_ok();
            program.command(&env.larder, source, dir)
        })?;
        let point = daemon.file("at");
        let cleanup = Cleanup::with("umount --lazy \"$1\"", &[&point.to_string_lossy()])?;
        daemon.wait_until(|_| is_mounted(&point))?;
        Ok(FuseMount { program, point, cleanup, daemon })
    }

    pub(in crate::prove) fn program(&self) -> Program {
        self.program
    }

    pub(in crate::prove) fn point(&self) -> &Path {
        &self.point
    }

    /// Has it unmount and end; an error if Larder does not end well.
    pub(in crate::prove) fn stop_clean(mut self) -> Result<()> {
        let (point, is_larder) = (&self.point, matches!(self.program, Program::Larder(_)));
        if is_larder {
            self.daemon.end_well(Signal::TERM)?;
            ensure!(!is_mounted(point), "larder has left its mount behind");
        } else {
            // rclone reports the signal by its exit code, and may leave a mount behind.
            self.daemon.end(Signal::TERM)?;
            if is_mounted(point) {
                text(cmd!("umount --lazy {point}"))?;
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
