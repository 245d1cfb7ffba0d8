//! Mounts of other mount namespaces, which are reached through the root of one of their processes.

use crate::mount_table::{self, MountLine};
use std::collections::HashSet;
use std::fs::File;
use std::io::Read as _;
use std::path::{Component, Path, PathBuf};

/// Maximum length of all tables that are read. Users may create namespaces.
const BYTES_MAX: u64 = 16 << 20;

/// Returns the mounts of all other mount namespaces whose processes this one may examine. Each
/// mountpoint begins with the root of a process.
pub(super) fn read() -> Vec<MountLine> {
    let mut seen = HashSet::new();
    seen.extend(std::fs::read_link("/proc/self/ns/mnt"));
    let (mut mounts, mut bytes_max) = (Vec::new(), BYTES_MAX);
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let process = entry.path();
        let is_process = entry.file_name().as_encoded_bytes().iter().all(u8::is_ascii_digit);
        let Ok(namespace) = std::fs::read_link(process.join("ns/mnt")) else { continue };
        if !is_process || seen.contains(&namespace) {
            continue;
        }
        let mut table = Vec::new();
        let read = File::open(process.join("mountinfo"))
            .and_then(|file| file.take(bytes_max).read_to_end(&mut table));
        // The process may have ended; another one may show the namespace.
        if !read.is_ok_and(|bytes| bytes > 0) {
            continue;
        }
        seen.insert(namespace);
        bytes_max -= table.len() as u64;
        let root = process.join("root");
        let seen_from_here = |mount: MountLine| MountLine {
            at: below(&root, &mount.at).components().collect(),
            ..mount
        };
        mounts.extend(mount_table::parse_all(&table).into_iter().map(seen_from_here));
    }
    mounts
}

/// Returns an absolute path as seen from outside of its root.
pub(super) fn below(root: &Path, path: &Path) -> PathBuf {
    root.join(path.strip_prefix("/").unwrap_or(path))
}

/// Returns the root of the process through which a path of another mount namespace is reached.
pub(super) fn root_of(path: &Path) -> Option<PathBuf> {
    let root: PathBuf = path.components().take(4).collect();
    let mut names = root.components().skip(1);
    let is_proc = names.next() == Some(Component::Normal("proc".as_ref()));
    (is_proc && names.next().is_some() && names.next() == Some(Component::Normal("root".as_ref())))
        .then_some(root)
}
