//! Attributes of a file or tree that a copy may lose: ACLs, extended attributes, hard links,
//! relative links, flags.

use super::{MoveCandidate, WITH_ATTRIBUTES};
use crate::holders::quoted;
use crate::mounts::Mount;
use larder_schema::balance::FindingLevel::{Note, Stop, Warning};
use larder_schema::balance::{FindingLevel, MoveFinding, MoveLink};
use larder_schema::format;
use rustix::fs::{IFlags, Mode, OFlags};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::Metadata;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Component, Path, PathBuf};
use std::time::SystemTime;

/// Maximum number of entries of a tree that are inspected.
const ENTRIES_MAX: u64 = 200_000;
/// Unit of `st_blocks`.
const SECTOR_BYTES: u64 = 512;
/// Maximum length of the names of extended attributes (`XATTR_LIST_MAX` of Linux).
const NAMES_BYTES_MAX: usize = 65_536;

/// The number of files with a property, and the first of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Found {
    count: u64,
    first: PathBuf,
}

impl Found {
    fn add(&mut self, path: &Path) {
        if self.count == 0 {
            path.clone_into(&mut self.first);
        }
        self.count += 1;
    }
}

/// A file or tree, as a walk has found it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TreeFacts {
    /// Allocated bytes.
    pub bytes: u64,
    /// Number of files and directories.
    pub entries: u64,
    /// Time of the last change of data.
    pub newest: Option<SystemTime>,
    /// True if the tree has more entries than are inspected, or a directory cannot be read.
    pub is_cut: bool,
    acl: Found,
    attributes: Found,
    attribute_names: BTreeSet<String>,
    outside_names: Found,
    relative_links: Found,
    flagged: Found,
    special: Found,
}

impl TreeFacts {
    /// Inspects a file or a tree. Other file systems below it are left out.
    #[must_use]
    pub fn of(path: &Path) -> TreeFacts {
        let mut facts = TreeFacts::default();
        let mut linked: BTreeMap<(u64, u64), (u64, PathBuf)> = BTreeMap::new();
        let mut left = vec![path.to_owned()];
        let root_device = std::fs::symlink_metadata(path).map(|it| it.dev()).ok();
        let mut buffer = vec![0; NAMES_BYTES_MAX];
        while let Some(next) = left.pop() {
            let Ok(found) = std::fs::symlink_metadata(&next) else { continue };
            if Some(found.dev()) != root_device {
                continue;
            }
            if facts.entries == ENTRIES_MAX {
                facts.is_cut = true;
                break;
            }
            facts.add(path, &next, &found, &mut buffer);
            if found.is_dir() {
                match std::fs::read_dir(&next) {
                    Ok(entries) => left.extend(entries.flatten().map(|it| it.path())),
                    Err(_) => facts.is_cut = true,
                }
            } else if found.nlink() > 1 {
                linked.entry((found.ino(), found.nlink())).or_insert((0, next)).0 += 1;
            }
        }
        for ((_, links), (seen, path)) in linked {
            if links > seen {
                facts.outside_names.add(&path);
            }
        }
        facts
    }

    fn add(&mut self, root: &Path, path: &Path, found: &Metadata, buffer: &mut [u8]) {
        self.entries += 1;
        self.bytes = self.bytes.saturating_add(found.blocks() * SECTOR_BYTES);
        self.newest = self.newest.max(found.modified().ok());
        let kind = found.file_type();
        if kind.is_symlink() {
            if std::fs::read_link(path).is_ok_and(|link| leads_out(root, path, &link)) {
                self.relative_links.add(path);
            }
            return;
        }
        if kind.is_socket() || kind.is_fifo() || kind.is_block_device() || kind.is_char_device() {
            self.special.add(path);
            return;
        }
        let count = rustix::fs::llistxattr(path, &mut buffer[..]).unwrap_or(0);
        let names = buffer[..count].split(|&byte| byte == 0).filter(|name| !name.is_empty());
        let names: Vec<_> = names.map(String::from_utf8_lossy).collect();
        if names.iter().any(|name| name.starts_with("system.posix_acl_")) {
            self.acl.add(path);
        }
        let others = names.iter().filter(|name| !name.starts_with("system.posix_acl_"));
        let others: Vec<String> = others.map(|name| name.clone().into_owned()).collect();
        if !others.is_empty() {
            self.attributes.add(path);
            self.attribute_names.extend(others);
        }
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let opened = rustix::fs::open(path, flags, Mode::empty());
        let flags = opened.and_then(rustix::fs::ioctl_getflags);
        if flags.is_ok_and(|it| it.intersects(IFlags::IMMUTABLE | IFlags::APPEND)) {
            self.flagged.add(path);
        }
    }
}

/// Returns true if the relative target of a link in a tree is outside of the tree.
fn leads_out(root: &Path, path: &Path, link: &Path) -> bool {
    let Ok(below) = path.strip_prefix(root) else { return true };
    // The root itself is at depth 0, and a link directly in it as well.
    let mut depth = below.components().count().saturating_sub(1);
    for part in link.components() {
        match part {
            Component::RootDir | Component::Prefix(_) => return false,
            Component::CurDir => {}
            Component::Normal(_) => depth += 1,
            Component::ParentDir => match depth.checked_sub(1) {
                Some(less) => depth = less,
                None => return true,
            },
        }
    }
    false
}

/// Describes files with a property: the first of them, and the number of the others.
fn described(found: &Found) -> String {
    match found.count {
        1 => quoted(&found.first),
        count => format!("{} and {} more", quoted(&found.first), format::count(count - 1)),
    }
}

/// Reports attributes, of which the target must hold all.
pub(super) fn check(
    candidate: &MoveCandidate,
    facts: &TreeFacts,
    target: Option<&Mount>,
    findings: &mut Vec<MoveFinding>,
) {
    let holds_all = target.is_some_and(|mount| {
        let refuses = |option: &str| option == "noacl" || option == "nouser_xattr";
        WITH_ATTRIBUTES.contains(&&*mount.fs_type) && !mount.fs_options.split(',').any(refuses)
    });
    let fs_type = target.map_or("unknown", |mount| &mount.fs_type);
    let mut kept = |check, found: &Found, kind: &str| {
        if found.count == 0 {
            return;
        }
        let (level, fate): (FindingLevel, String) = if holds_all {
            (Note, "the copy keeps it, and the script compares it".to_owned())
        } else {
            (Stop, format!("the target ({fs_type}) may lose it: choose another target"))
        };
        let text = format!("{} has {kind}: {fate}", described(found));
        findings.push(MoveFinding::new(check, level, text));
    };
    kept("acl", &facts.acl, "an ACL");
    let names: Vec<&str> = facts.attribute_names.iter().map(String::as_str).take(3).collect();
    let kind = format!("extended attributes ({})", names.join(", "));
    kept("extended-attributes", &facts.attributes, &kind);
    let mut add = |check, level, found: &Found, text: &str| {
        if found.count > 0 {
            let text = format!("{} {text}", described(found));
            findings.push(MoveFinding::new(check, level, text));
        }
    };
    let text = "has other names (hard links), which would keep the old data: remove them, or plan \
                with --exclude";
    add("hard-links", Stop, &facts.outside_names, text);
    let text = "is immutable or append-only: use chattr -ia for the move";
    add("flags", Stop, &facts.flagged, text);
    let text = "is a symbolic link whose relative target is outside of the directory, and breaks \
                behind a symbolic link: use --link bind";
    if candidate.link == MoveLink::Symlink {
        add("symbolic-links", Stop, &facts.relative_links, text);
    }
    let text = "is a socket, pipe or device: the program that made it must make it again";
    add("special-files", Warning, &facts.special, text);
    if facts.is_cut {
        let text = "only a part of it was inspected: it has more than 200,000 files, or a \
                    directory that cannot be read";
        findings.push(MoveFinding::new("attributes", Warning, text));
    }
}
