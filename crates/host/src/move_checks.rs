//! Obstacles to the move of a file or directory to another file system: attributes that the target
//! cannot hold, open files, mounts, exports, configured paths, and the age of the last backup.
//!
//! Invariants: nothing is changed; a walk and the search of configuration files are bounded, and a
//! finding says so if a bound was reached. Only root sees all processes and all configuration.

mod attributes;
mod backup;
mod configuration;
mod exports;
#[cfg(test)]
mod tests;

pub use attributes::TreeFacts;
pub use backup::{Backup, last_backup, no_backup};

use crate::holders::{self, quoted};
use crate::mounts::{self, Mount};
use crate::proc;
use larder_schema::balance::FindingLevel::{Note, Stop, Warning};
use larder_schema::balance::{MoveFinding, MoveLink};
use std::path::{Path, PathBuf};

/// File systems with POSIX ACLs and all kinds of extended attributes.
const WITH_ATTRIBUTES: [&str; 8] =
    ["bcachefs", "btrfs", "ext2", "ext3", "ext4", "f2fs", "jfs", "xfs"];

/// Places of the machine's configuration and state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MoveRoots {
    /// Configuration: `/etc`.
    pub etc: PathBuf,
    /// State: `/var`.
    pub var: PathBuf,
}

impl Default for MoveRoots {
    fn default() -> Self {
        MoveRoots { etc: "/etc".into(), var: "/var".into() }
    }
}

/// A move that is planned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MoveCandidate {
    /// The file or directory.
    pub path: PathBuf,
    /// An existing directory of the target file system.
    pub target: PathBuf,
    /// Replacement of the path.
    pub link: MoveLink,
}

impl MoveCandidate {
    /// Returns the new path: the whole old one below the target directory, so that all directories
    /// above it keep their permissions.
    #[must_use]
    pub fn destination(&self) -> PathBuf {
        self.target.join(self.path.strip_prefix("/").unwrap_or(&self.path))
    }
}

/// Returns the findings about a move, the most serious first.
#[must_use]
pub fn check(
    roots: &MoveRoots,
    candidate: &MoveCandidate,
    facts: &TreeFacts,
    backup: Option<&Backup>,
) -> Vec<MoveFinding> {
    let mut findings = Vec::new();
    let target = Mount::of(&candidate.target).ok();
    attributes::check(candidate, facts, target.as_ref(), &mut findings);
    in_the_way(candidate, &mut findings);
    options(candidate, target.as_ref(), &mut findings);
    users(candidate, &mut findings);
    exports::check(&roots.etc, &roots.var, candidate, &mut findings);
    configuration::check(&roots.etc, candidate, &mut findings);
    findings.extend(backup.and_then(|backup| backup.check(facts)));
    findings.sort_by_key(|finding| finding.level);
    findings
}

/// Reports symbolic links and mounts on the way to the old and the new path.
fn in_the_way(candidate: &MoveCandidate, findings: &mut Vec<MoveFinding>) {
    let path = &candidate.path;
    match path.canonicalize() {
        Ok(real) if real != *path => {
            let text = format!(
                "{} leads through a symbolic link to {}: plan the move of that path",
                quoted(path),
                quoted(&real)
            );
            findings.push(MoveFinding::new("symbolic-links", Stop, text));
        }
        Ok(_) => {}
        Err(error) => {
            let text = format!("{} cannot be resolved: {error}", quoted(path));
            findings.push(MoveFinding::new("identity", Stop, text));
        }
    }
    let swaps = proc::read("/proc/swaps").unwrap_or_default();
    let names = swaps.lines().skip(1).filter_map(|line| line.split_whitespace().next());
    if names.map(|name| mounts::unescaped_path(name.as_bytes())).any(|swap| swap == *path) {
        let text = format!("{} is swap space: use swapoff for the move", quoted(path));
        findings.push(MoveFinding::new("open-files", Stop, text));
    }
    for point in mounts::mount_points_below(path) {
        let text = format!(
            "{} is a mount point, whose files would stay: unmount it for the move",
            quoted(&point)
        );
        findings.push(MoveFinding::new("mount-points", Stop, text));
    }
    let destination = candidate.destination();
    let below: Vec<&Path> =
        destination.ancestors().take_while(|it| *it != candidate.target).collect();
    for (number, part) in below.iter().rev().enumerate() {
        let Ok(found) = std::fs::symlink_metadata(part) else { break };
        let is_last = number + 1 == below.len();
        if is_last || !found.is_dir() {
            let kind = if found.is_symlink() { "a symbolic link" } else { "in the way" };
            let kind = if is_last { "there already" } else { kind };
            let text = format!("{} is {kind}: remove it, or choose another target", quoted(part));
            findings.push(MoveFinding::new("destination", Stop, text));
            break;
        }
    }
}

/// Reports options of the target's mount that the source's does not have.
fn options(candidate: &MoveCandidate, target: Option<&Mount>, findings: &mut Vec<MoveFinding>) {
    let (Ok(source), Some(target)) = (Mount::of(&candidate.path), target) else { return };
    let has = |mount: &Mount, option: &str| mount.options.split(',').any(|it| it == option);
    if has(target, "ro") {
        let text = format!("{} is mounted read-only", quoted(&target.point));
        findings.push(MoveFinding::new("mount-options", Stop, text));
    }
    for option in ["nosuid", "nodev", "noexec"] {
        if has(target, option) && !has(&source, option) {
            let text = format!(
                "{} is mounted with {option}, and {} is not: remount it if programs need that",
                quoted(&target.point),
                quoted(&source.point)
            );
            findings.push(MoveFinding::new("mount-options", Warning, text));
        }
    }
}

/// Reports processes and loop devices that use the file.
fn users(candidate: &MoveCandidate, findings: &mut Vec<MoveFinding>) {
    let users = holders::holders(&candidate.path);
    let has_users = users.first.iter().any(|user| !user.is_note());
    for user in &users.first {
        let (level, advice) =
            if user.is_note() { (Warning, "") } else { (Stop, ": stop it for the move") };
        let text = format!("{}{advice}", user.description);
        findings.push(MoveFinding::new("open-files", level, text));
    }
    if users.others > 0 {
        let text = format!("{} more processes use it", users.others);
        findings.push(MoveFinding::new("open-files", Stop, text));
    }
    if has_users {
        let text = "a program that starts again opens the new place through the old path";
        findings.push(MoveFinding::new("open-files", Note, text));
    }
}
