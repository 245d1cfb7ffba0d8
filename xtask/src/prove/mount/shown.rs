//! A folder that is shown once more through FUSE, by Larder or by a peer: started, waited for and
//! ended in one way, undone whatever happens.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};

use crate::prove::Lab;
use crate::run;
use crate::undo::Undo;

/// How long a program may take until its mount is there.
const START_MAX: Duration = Duration::from_secs(30);

/// How long it may take from SIGTERM to its end, with everything written.
const STOP_MAX: Duration = Duration::from_mins(2);

/// Who shows a folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::prove) enum By {
    /// Larder, with these options in one line.
    Larder(&'static str),
    /// Passes everything through.
    Bindfs,
    /// Passes everything through; the kernel keeps no pages of its own.
    Mergerfs,
    /// With this for `--vfs-cache-mode`.
    Rclone(&'static str),
}

impl By {
    /// Its name in tables and records.
    pub(in crate::prove) fn name(self) -> String {
        match self {
            By::Larder(options) if options.contains("--allow-other") => "larder for all".into(),
            By::Larder(_) => "larder".into(),
            By::Bindfs => "bindfs".into(),
            By::Mergerfs => "mergerfs".into(),
            By::Rclone(mode) => format!("rclone {mode}"),
        }
    }

    /// The program, if it is not ours.
    fn program(self) -> Option<&'static str> {
        match self {
            By::Larder(_) => None,
            By::Bindfs => Some("bindfs"),
            By::Mergerfs => Some("mergerfs"),
            By::Rclone(_) => Some("rclone"),
        }
    }

    /// What it is told, beside what is shown and where. Nobody lets others in than who mounts, if
    /// nothing else is said.
    pub(in crate::prove) fn words(self) -> String {
        match self {
            By::Larder(options) => format!("--control none {options}"),
            By::Bindfs => "-f --no-allow-other".into(),
            // Without the last one it makes no file where less than 4 GiB are free.
            By::Mergerfs => "-f -o cache.files=off,minfreespace=0".into(),
            By::Rclone(mode) => format!("--vfs-cache-mode {mode}"),
        }
    }

    /// The command that shows `source` at `point` in the foreground until SIGTERM.
    fn command(self, lab: &Lab, source: &Path, point: &Path, scratch: &Path) -> Command {
        let mut command = Command::new(self.program().map_or(lab.binary.clone(), PathBuf::from));
        if matches!(self, By::Larder(_) | By::Rclone(_)) {
            command.arg("mount");
        }
        command.args(self.words().split_whitespace());
        if matches!(self, By::Rclone(_)) {
            command.arg("--cache-dir").arg(scratch.join("cache"));
            command.arg("--config").arg(scratch.join("none.conf"));
        }
        command.arg(source).arg(point);
        command
    }
}

/// A folder that is shown.
#[derive(Debug)]
pub(in crate::prove) struct Shown {
    by: By,
    child: Child,
    point: PathBuf,
    undo: Undo,
    scratch: tempfile::TempDir,
}

impl Shown {
    /// Shows a folder at a mountpoint that is made for it.
    pub(in crate::prove) fn start(lab: &Lab, by: By, source: &Path) -> Result<Self> {
        let scratch = tempfile::Builder::new()
            .prefix("shown-")
            .tempdir_in(lab.dir())
            .context("make a directory for a mount")?;
        let point = scratch.path().join("at");
        std::fs::create_dir(&point).context("make a mountpoint")?;
        let log = |name: &str| File::create(scratch.path().join(name)).context("create a log");
        let mut command = by.command(lab, source, &point, scratch.path());
        command.stdin(Stdio::null()).stdout(log("stdout")?).stderr(log("stderr")?);
        let child = command.spawn().with_context(|| format!("start {}", by.name()))?;
        let undo = "kill -9 \"$1\"; umount --lazy \"$2\"";
        let undo = Undo::with(undo, &[&child.id().to_string(), &point.to_string_lossy()])?;
        let mut shown = Shown { by, child, point, undo, scratch };
        shown.wait_until_mounted()?;
        Ok(shown)
    }

    fn wait_until_mounted(&mut self) -> Result<()> {
        let begun = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().context("look after a mount")? {
                bail!("{} ended at its start: {status}\n{}", self.by.name(), self.notes());
            }
            if self.is_mounted()? {
                return Ok(());
            }
            ensure!(
                begun.elapsed() < START_MAX,
                "{} mounts nothing for {} s\n{}",
                self.by.name(),
                START_MAX.as_secs(),
                self.notes()
            );
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn is_mounted(&self) -> Result<bool> {
        let mounts = std::fs::read_to_string("/proc/self/mountinfo");
        let mounts = mounts.context("read the mounts of this machine")?;
        // Its directory has no blanks in its name.
        let point = format!(" {} ", self.point.display());
        Ok(mounts.lines().any(|line| line.contains(&point)))
    }

    /// Who shows it.
    pub(in crate::prove) fn by(&self) -> By {
        self.by
    }

    /// Where it is seen.
    pub(in crate::prove) fn point(&self) -> &Path {
        &self.point
    }

    /// The last words of the program.
    fn notes(&self) -> String {
        let notes = std::fs::read_to_string(self.scratch.path().join("stderr"));
        run::tail(&notes.unwrap_or_default())
    }

    /// Has it unmount and end; an error if Larder does not end well.
    pub(in crate::prove) fn stop_clean(mut self) -> Result<()> {
        let name = self.by.name();
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        let pid = pid.context("a process id out of range")?;
        kill_process(pid, Signal::TERM).with_context(|| format!("signal {name}"))?;
        let begun = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().context("wait for a mount")? {
                break status;
            }
            ensure!(
                begun.elapsed() < STOP_MAX,
                "{name} does not end within {} s",
                STOP_MAX.as_secs()
            );
            std::thread::sleep(Duration::from_millis(5));
        };
        // rclone says by its exit code that it was told to end.
        let is_well = status.success() || !matches!(self.by, By::Larder(_));
        ensure!(is_well, "{name}: {status} after SIGTERM\n{}", self.notes());
        if self.is_mounted()? {
            // rclone leaves it where it was stuck.
            ensure!(!matches!(self.by, By::Larder(_)), "{name} has left its mount behind");
            run::text(Command::new("umount").arg("--lazy").arg(&self.point))?;
        }
        self.undo.cancel();
        Ok(())
    }
}

impl Drop for Shown {
    fn drop(&mut self) {
        if !matches!(self.child.try_wait(), Ok(Some(_))) {
            drop(self.child.kill());
            drop(self.child.wait());
        }
    }
}
