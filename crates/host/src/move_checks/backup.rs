//! The age of the last backup.

use super::{MoveRoots, TreeFacts};
use crate::holders::quoted;
use crate::proc;
use larder_schema::balance::FindingLevel::{Note, Warning};
use larder_schema::balance::MoveFinding;
use larder_schema::format;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// Words in the names of timers of backup programs.
const PROGRAMS: [&str; 10] = [
    "backup",
    "bareos",
    "borg",
    "btrbk",
    "duplicity",
    "kopia",
    "rdiff",
    "restic",
    "rsnapshot",
    "sanoid",
];
/// Age above which a backup is old.
const AGE_MAX: Duration = Duration::from_hours(24);

/// The last backup that is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backup {
    /// The file whose time it is.
    pub stamp: PathBuf,
    /// Its time.
    pub at: SystemTime,
}

/// Returns the last backup: the time of `stamp`, or of the newest stamp that a timer of systemd
/// with the name of a backup program has left.
///
/// # Errors
/// `stamp` cannot be read.
pub fn last_backup(roots: &MoveRoots, stamp: Option<&Path>) -> io::Result<Option<Backup>> {
    let time = |path: &Path| std::fs::metadata(path).and_then(|it| it.modified());
    if let Some(stamp) = stamp {
        return Ok(Some(Backup { stamp: stamp.to_owned(), at: time(stamp)? }));
    }
    let is_of_backup = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
        PROGRAMS.iter().any(|program| name.contains(program))
    };
    let stamps = proc::entries(roots.var.join("lib/systemd/timers")).filter(is_of_backup);
    let backups = stamps.filter_map(|stamp| {
        let at = time(&stamp).ok()?;
        Some(Backup { stamp, at })
    });
    Ok(backups.max_by_key(|backup| backup.at))
}

impl Backup {
    /// Returns a finding about the age of the backup.
    #[must_use]
    pub fn age_finding(&self) -> MoveFinding {
        let age = self.at.elapsed().unwrap_or_default();
        let level = if age > AGE_MAX { Warning } else { Note };
        let shown = format::duration(u64::try_from(age.as_nanos()).unwrap_or(u64::MAX));
        let text =
            format!("the last backup is {shown} old, by the time of {}", quoted(&self.stamp));
        MoveFinding::new("backup", level, text)
    }

    /// Returns a finding if a tree has changed since the backup.
    pub(super) fn check(&self, facts: &TreeFacts) -> Option<MoveFinding> {
        let newest = facts.newest.filter(|newest| *newest > self.at)?;
        let after = newest.duration_since(self.at).unwrap_or_default();
        let shown = format::duration(u64::try_from(after.as_nanos()).unwrap_or(u64::MAX));
        let text =
            format!("it has changed {shown} after the last backup: make one before the move");
        Some(MoveFinding::new("backup", Warning, text))
    }
}

/// Returns the finding without a known backup.
#[must_use]
pub fn no_backup() -> MoveFinding {
    let text = "no backup is known: name a file that it writes with --backup FILE";
    MoveFinding::new("backup", Warning, text)
}
