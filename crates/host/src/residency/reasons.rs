//! Likely reasons for pages that stay resident after a drop or are missing after a read, and caches
//! below the page cache, as text for the user.

use super::Residency;
use crate::disk::Disk;
use crate::mounts::Mount;
use crate::process_files::mapped_files;
use crate::scan::Scan;
use crate::{proc, process_name};
use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Returns a likely reason why pages of a file are still resident after a drop, as part of a
/// sentence.
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
    let mut scan = Scan::start();
    if let Some(process) = mapping_process(&mut scan, path) {
        return format!("it is mapped by {process}, and mapped pages cannot be dropped");
    }
    let mut reason = "another program reads it, or holds its pages locked".to_owned();
    if let Some(incomplete) = scan.describe_incomplete() {
        reason = format!("{reason}, or maps it ({incomplete})");
    }
    reason
}

/// Returns a process that maps the file, as `process 123 (name)`. Only root sees the processes of
/// other users.
fn mapping_process(scan: &mut Scan, path: &Path) -> Option<String> {
    let inode = std::fs::metadata(path).ok()?.ino();
    let real = path.canonicalize().ok()?;
    let maps_it = |pid| {
        let file = (inode, real.clone());
        move |deadline| {
            let mut maps = mapped_files(pid, deadline);
            let is_mapped = maps.any(|mapped| (mapped.ino, mapped.path) == file);
            (is_mapped, is_mapped || maps.is_complete)
        }
    };
    let mut process = None;
    scan.inspect_all(Scan::processes(), maps_it, |pid, is_mapped| {
        if is_mapped != Ok(true) {
            return ControlFlow::Continue(());
        }
        process = Some(process_name::describe(pid));
        ControlFlow::Break(())
    });
    process
}

/// Returns a likely reason why pages of a file are missing after it was read, as part of a
/// sentence.
#[must_use]
pub fn why_pages_lack(path: &Path, found: &Residency) -> String {
    let mount = Mount::of(path).ok();
    if let Some(mount) = mount.as_ref().filter(|mount| mount.is_fuse()) {
        return format!(
            "it lies on {}, which keeps no pages from one open to the next; mount it so that it \
             does (-o kernel_cache)",
            mount.fs_type
        );
    }
    let size = found.pages * super::page_bytes();
    if size > crate::machine::memory_bytes() {
        return "it is larger than the memory of this machine".to_owned();
    }
    if crate::damon::pages_out() == Some(true) {
        return "a DAMON scheme of the kernel pages out what rests (see \
                /sys/kernel/mm/damon/admin/kdamonds)"
            .to_owned();
    }
    "the machine is short of memory, or another program drops or cuts it".to_owned()
}

/// Returns a sentence for each cache below the page cache that may hold data of these files and
/// cannot be inspected, without duplicates. `all_dropped` says that all kernel caches were dropped.
#[must_use]
pub fn caches_below(files: &[PathBuf], all_dropped: bool) -> Vec<String> {
    let mut sentences = BTreeSet::new();
    for file in files {
        let fuse = Mount::of(file).ok().filter(Mount::is_fuse);
        sentences.extend(fuse.map(|mount| {
            format!(
                "files lie on {}, and what its program and the file system below it hold in \
                 memory cannot be seen",
                mount.fs_type
            )
        }));
        let disk = Disk::of(file).ok().flatten().filter(|_| !all_dropped);
        let buffered = disk
            .filter(|disk| proc::read(disk.directory().join("loop/dio")).as_deref() == Some("0"));
        sentences.extend(buffered.map(|disk| {
            format!(
                "files lie on {}, and the file behind it is read through the page cache \
                 (losetup --direct-io=on, or --drop-all)",
                disk.name
            )
        }));
    }
    sentences.into_iter().collect()
}
