//! Configuration files that name a path.

use super::MoveCandidate;
use crate::holders::quoted;
use crate::proc;
use larder_schema::balance::FindingLevel::{Note, Stop, Warning};
use larder_schema::balance::{FindingLevel, MoveFinding};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Maximum number of files that are searched, their maximum size, and the maximum number of files
/// that are named.
const FILES_MAX: usize = 4000;
const FILE_BYTES_MAX: u64 = 256 << 10;
const NAMED_MAX: usize = 5;
/// Maximum depth of directories.
const DEPTH_MAX: usize = 4;
/// Programs with files of their own that name paths, below /etc; the level and the advice.
const PROGRAMS: [(&str, FindingLevel, &str); 7] = [
    ("apparmor.d", Stop, "the profile permits the old path only: add the new path, and reload it"),
    ("selinux", Warning, "the new path needs the label of the old one: use semanage fcontext"),
    ("logrotate.d", Warning, "logrotate refuses symbolic links to log files: use --link bind"),
    ("fstab", Warning, "the mount table names it"),
    ("exports", Note, "see the finding about exports"),
    ("systemd", Note, "ProtectSystem and ReadWritePaths of a service must permit the new path"),
    ("", Note, "the program finds it through the old path; set the new one if it resolves links"),
];

/// Reports configuration files that name the path or a path below it.
pub(super) fn check(etc: &Path, candidate: &MoveCandidate, findings: &mut Vec<MoveFinding>) {
    let Some(wanted) = candidate.path.to_str() else { return };
    let (mut left, mut searched, mut named) = (vec![(etc.to_owned(), 0)], 0, 0);
    while let Some((path, depth)) = left.pop() {
        let Ok(found) = std::fs::symlink_metadata(&path) else { continue };
        if found.is_dir() && depth <= DEPTH_MAX {
            let mut entries: Vec<PathBuf> = proc::entries(&path).collect();
            entries.sort_by(|a, b| b.cmp(a));
            left.extend(entries.into_iter().map(|entry| (entry, depth + 1)));
        }
        if !found.is_file() || found.len() > FILE_BYTES_MAX {
            continue;
        }
        searched += 1;
        if searched > FILES_MAX {
            let text = format!("only {FILES_MAX} files of {} were searched", quoted(etc));
            findings.push(MoveFinding::new("configuration", Note, text));
            return;
        }
        let Some(line) = line_with(&path, wanted) else { continue };
        named += 1;
        if named > NAMED_MAX {
            let text = "more configuration files name it".to_owned();
            findings.push(MoveFinding::new("configuration", Note, text));
            return;
        }
        let below = path.strip_prefix(etc).unwrap_or(&path);
        let (_, level, advice) = PROGRAMS
            .iter()
            .find(|(program, ..)| below.starts_with(program))
            .unwrap_or(&PROGRAMS[PROGRAMS.len() - 1]);
        let text = format!("{}, line {line}, names it: {advice}", quoted(&path));
        findings.push(MoveFinding::new("configuration", *level, text));
    }
}

/// Returns the number of the first line that names the path, or a path below it, outside of a
/// comment.
fn line_with(file: &Path, wanted: &str) -> Option<usize> {
    let mut text = Vec::new();
    File::open(file).ok()?.take(FILE_BYTES_MAX).read_to_end(&mut text).ok()?;
    let text = str::from_utf8(&text).ok()?;
    let names = |line: &str| {
        !line.trim_start().starts_with(['#', ';'])
            && line.match_indices(wanted).any(|(at, _)| {
                let is_part = |it: char| it.is_alphanumeric() || "_-./".contains(it);
                let before = line[..at].chars().next_back();
                let after = line[at + wanted.len()..].chars().next();
                !before.is_some_and(is_part) && after.is_none_or(|it| it == '/' || !is_part(it))
            })
    };
    text.lines().position(names).map(|index| index + 1)
}
