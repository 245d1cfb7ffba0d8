//! The scan over the files.

use super::checkpoint::{Checkpoint, Links};
use crate::args;
use crate::progress;
use crate::signals::Stop;
use anyhow::{Context, Result, ensure};
use larder_host::extents;
use larder_host::file_walk::{FileVisitor, LeftOut, WalkPosition, WalkRoot, WalkedFile, walk};
use larder_host::mounts::Mount;
use larder_host::space;
use larder_report::escape;
use larder_schema::fragmentation::{FileScan, FileSystemPlace};
use std::cell::Cell;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Interval between two checkpoints.
const CHECKPOINT_EVERY: Duration = Duration::from_secs(10);

/// Opens the paths, which must be on one file system and not inside each other.
pub(super) fn open(paths: &[PathBuf]) -> Result<Vec<WalkRoot>> {
    let mut roots = Vec::new();
    for path in paths {
        let name = escape::path(path);
        let path = path.canonicalize().with_context(|| format!("scan {name}"))?;
        let root = WalkRoot::open(&path).with_context(|| format!("scan {name}"))?;
        for other in &roots {
            let other: &WalkRoot = other;
            let (this, that) = (root.path(), other.path());
            ensure!(
                !this.starts_with(that) && !that.starts_with(this),
                "scan {}: it is inside {}, or the reverse; name each file once",
                escape::path(this),
                escape::path(that)
            );
            let device = |root: &WalkRoot| root.file().metadata().map(|it| it.dev());
            ensure!(
                device(&root)? == device(other)?,
                "scan {} and {}: they are on different file systems; scan one after the other",
                escape::path(that),
                escape::path(this)
            );
        }
        roots.push(root);
    }
    Ok(roots)
}

/// Returns the file system of a root.
pub(super) fn place(root: &WalkRoot) -> Result<FileSystemPlace> {
    let name = escape::path(root.path());
    let mount = Mount::of(root.path()).with_context(|| format!("find the mount of {name}"))?;
    let total =
        space::total_bytes(root.path()).with_context(|| format!("query the size of {name}"))?;
    Ok(FileSystemPlace {
        kind: mount.fs_type.clone(),
        mount: escape::path(&mount.point).into_owned(),
        device: escape::text(&mount.source).into_owned(),
        bytes: mount.device_bytes().unwrap_or(total),
    })
}

/// Extent of a scan.
#[derive(Clone, Copy, Debug)]
pub(super) struct ScanOptions<'a> {
    /// Maximum number of files that are kept.
    pub(super) keep: usize,
    /// Keeps files without several fragments as well.
    pub(super) keeps_all: bool,
    /// File with the position of the scan.
    pub(super) resume: Option<&'a Path>,
}

/// Scans all files. Returns `None` if a signal ended the scan and its position was saved.
pub(super) fn scan(
    roots: &[WalkRoot],
    place: &FileSystemPlace,
    options: &ScanOptions<'_>,
) -> Result<Option<FileScan>> {
    let new_scan = || FileScan::new(place.bytes, options.keep, options.keeps_all);
    let (links, resume) = (Links::default(), options.resume);
    let paths: Vec<PathBuf> = roots.iter().map(|root| root.path().to_owned()).collect();
    let saved = resume.map(|file| Checkpoint::read(file, &paths)).transpose()?.flatten();
    let (mut number, mut position, mut all) = match saved {
        Some(saved) => {
            links.restore(&saved.links);
            (saved.path, saved.position(), saved.scan)
        }
        None => (0, WalkPosition::default(), new_scan()),
    };
    let (stop, files) = (Stop::listen()?, AtomicU64::new(all.totals.files));
    let is_stopped = || stop.flag().load(Ordering::Relaxed);
    let bar = progress::bar(0, "scanning: {count} files{rate}");
    let threads = args::cores().get();
    while let Some(root) = roots.get(number) {
        let due = Cell::new(Instant::now() + CHECKPOINT_EVERY);
        let visitors =
            (0..threads).map(|_| Scanner { scan: new_scan(), links: &links, files: &files });
        let mut outcome = Ok(());
        let context = || format!("scan {}", escape::path(root.path()));
        walk(
            root,
            std::mem::take(&mut position),
            visitors.collect(),
            || {
                bar.set_position(files.load(Ordering::Relaxed));
                is_stopped() || Instant::now() >= due.get()
            },
            |scanners, at| {
                for scanner in scanners {
                    all.merge(std::mem::replace(&mut scanner.scan, new_scan()));
                }
                due.set(Instant::now() + CHECKPOINT_EVERY);
                if let (Some(file), Some(at)) = (resume, at) {
                    outcome = Checkpoint::new(&paths, number, at, &all, &links).write(file);
                }
                let is_over = outcome.is_err() || (is_stopped() && at.is_some());
                if is_over { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            },
        )
        .with_context(context)?;
        outcome?;
        if is_stopped() {
            bar.finish_and_clear();
            return stopped(resume.is_some());
        }
        number += 1;
    }
    bar.finish_and_clear();
    Ok(Some(all))
}

fn stopped(is_saved: bool) -> Result<Option<FileScan>> {
    ensure!(is_saved, "scan: stopped by a signal; --resume FILE would have kept the position");
    eprintln!("larder: note: stopped; the same command continues the scan");
    Ok(None)
}

/// A thread of the scan.
struct Scanner<'a> {
    scan: FileScan,
    links: &'a Links,
    files: &'a AtomicU64,
}

impl FileVisitor for Scanner<'_> {
    fn visit(&mut self, walked: &WalkedFile<'_>) {
        let path = || walked.path().into_os_string().into_vec();
        let found = match walked.file.metadata() {
            Ok(found) => found,
            Err(error) => return self.scan.totals.leave_out(&reason(&error)),
        };
        if found.nlink() > 1 && !self.links.is_new(found.ino()) {
            self.scan.totals.further_names += 1;
            return;
        }
        self.files.fetch_add(1, Ordering::Relaxed);
        if found.len() == 0 && found.blocks() == 0 {
            self.scan.add(0, &[], path);
            return;
        }
        match extents::recorded(walked.file, false) {
            Ok(extents) => self.scan.add(found.len(), &extents, path),
            Err(error) => self.scan.totals.leave_out(&error.to_string()),
        }
    }

    fn leave_out(&mut self, (_, error): LeftOut<'_>) {
        self.scan.totals.leave_out(&reason(error));
    }
}

/// Returns the reason for which a file or a directory is left out.
fn reason(error: &std::io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::EXDEV) => "on another file system".to_owned(),
        Some(libc::ELOOP) => "replaced by a link".to_owned(),
        Some(libc::ENOENT) => "removed meanwhile".to_owned(),
        _ => error.to_string(),
    }
}
