//! Why pages of a file stay although they were to be dropped: a sentence for people.

use super::Residency;
use crate::mounts::Mount;
use crate::proc;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Why pages of a file are still resident after they were dropped, as far as it can be told; a
/// part of a sentence.
#[must_use]
pub fn why_pages_stay(path: &Path, found: &Residency) -> String {
    let mount = Mount::of(path).ok();
    if let Some(mount) = mount.as_ref().filter(|mount| mount.is_memory()) {
        return format!("it lies on {}, whose files are memory themselves", mount.fs_type);
    }
    if found.dirty + found.write_back > 0 {
        let count = found.dirty + found.write_back;
        return format!("{count} of its pages are dirty or being written: something writes to it");
    }
    if let Some(who) = who_maps(path) {
        return format!("it is mapped by {who}, and mapped pages cannot be dropped");
    }
    "another program reads it, or holds its pages locked".to_owned()
}

/// A process that has the file mapped, as `123 (name)`. Processes of others are seen by root only.
fn who_maps(path: &Path) -> Option<String> {
    let inode = std::fs::metadata(path).ok()?.ino().to_string();
    let real = path.canonicalize().ok()?;
    let processes = std::fs::read_dir("/proc").ok()?;
    processes.flatten().find_map(|process| {
        let number: u32 = process.file_name().to_str()?.parse().ok()?;
        let maps = std::fs::read_to_string(process.path().join("maps")).ok()?;
        // address perms offset dev inode path; the device is not what stat(2) says on btrfs.
        let maps_it = maps.lines().any(|line| {
            line.split_whitespace().nth(4) == Some(inode.as_str())
                && line.ends_with(&*real.to_string_lossy())
        });
        let name = proc::read(process.path().join("comm")).unwrap_or_default();
        maps_it.then(|| format!("process {number} ({name})"))
    })
}
