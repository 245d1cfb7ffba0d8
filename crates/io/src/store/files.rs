//! The files of a directory as one store, for a cache in front of all of them.
//!
//! The store's addresses are allocated in segments of 1 GiB: a file has one for each GiB of it that
//! was accessed, so that a page never spans two files and neighbors in a file are neighbors in the
//! store. Segments take memory outside of the budget, and a sparse file has any number of GiB, so a
//! read allocates one only where the file has data. Bytes behind the end of a file read as zeros
//! and are never written. Data goes through direct I/O, except for parts of blocks, which go
//! through the kernel's page cache.
//!
//! A discard of a segment executes the planned change of its file (`PendingChange`): the cache
//! ensures that no operation on the file is in flight then, and drops its data of the file.

mod source;

pub(crate) use source::{
    Attributes, CoveredRange, FsyncGuard, PendingChange, SourceFile, WriteInFlight,
    is_capabilities, is_some_device_full, link_to,
};

use super::EngineStore;
use super::backing::{Backing, Transfer};
use super::directory::LockedDirectory;
use super::error::store_error;
use crate::frames::ArenaFrames;
use larder_core::clock::Clock;
use larder_core::store::{Geometry, StoreError, StoreErrorKind, StoreOp, StoreOpKind};
use larder_core::units::BLOCK_BYTES_U64;
pub(crate) use larder_core::units::SEGMENT_BYTES;
use rustix::fs::FallocateFlags;
use rustix::io::Errno;
use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, RwLock};

/// Maximum number of segments at a time, 16 PiB; one takes about 50 bytes of memory.
const SEGMENTS_MAX: u32 = 1 << 24;
/// A write that does not end at a block boundary goes through the page cache as a whole if it is no
/// longer than this: two calls cost more than the copy.
const SMALL_BYTES: u64 = 64 << 10;

/// Returns the next piece of a write of `at..end`, where direct I/O must be aligned to `align`:
/// true if it goes by direct I/O, and its length.
///
/// Several writes to one block may be in flight at the same time, each of some sectors. If one of
/// them went through the page cache and another one past it, the kernel could write back the page
/// with the old data, and would report an error at the next fsync(2). So only whole blocks bypass
/// the page cache.
fn piece(at: u64, end: u64, align: u64) -> (bool, u64) {
    let (step, left) = (align.max(BLOCK_BYTES_U64), end - at);
    let whole = left / step * step;
    let is_small = left <= SMALL_BYTES;
    match at % step {
        0 if whole == left || whole > 0 && !is_small => (true, whole),
        over if over > 0 && !is_small => (false, (step - over).min(left)),
        _ => (false, left),
    }
}

/// The file of a segment, and the offset in the file at which the segment begins.
#[derive(Clone, Debug)]
struct SegmentOwner {
    file: Arc<SourceFile>,
    start: u64,
}

/// The files that have segments.
#[derive(Debug)]
pub(crate) struct FileTable {
    /// The directory, locked as long as its files are cached, and its path.
    root: Arc<LockedDirectory>,
    directory: PathBuf,
    read_only: bool,
    owners: RwLock<Vec<Option<SegmentOwner>>>,
    free: Mutex<Vec<u32>>,
}

impl FileTable {
    /// Creates a table without files, for the directory that `root` has open.
    pub(crate) fn new(root: Arc<LockedDirectory>, directory: PathBuf, read_only: bool) -> Self {
        let (owners, free) = (RwLock::default(), Mutex::default());
        FileTable { root, directory, read_only, owners, free }
    }

    /// Returns the store, and a note for the user.
    pub(crate) fn store(
        self: &Arc<Self>,
        clock: Arc<dyn Clock>,
        plain: bool,
    ) -> (Box<dyn EngineStore>, Option<String>) {
        super::store_on(Arc::<FileTable>::clone(self), "files are", plain, clock)
    }

    /// Returns the address of a byte of a file in the store; allocates its segment if there is
    /// none.
    pub(crate) fn place(&self, file: &Arc<SourceFile>, offset: u64) -> Result<u64, Errno> {
        let number = offset / SEGMENT_BYTES;
        let segment =
            file.segment_or(number, || self.allocate_segment(file, number * SEGMENT_BYTES))?;
        Ok(u64::from(segment) * SEGMENT_BYTES + offset % SEGMENT_BYTES)
    }

    /// Returns the address of a byte of a file in the store, if its segment exists.
    pub(crate) fn find(file: &SourceFile, offset: u64) -> Option<u64> {
        let segment = file.segment(offset / SEGMENT_BYTES)?;
        Some(u64::from(segment) * SEGMENT_BYTES + offset % SEGMENT_BYTES)
    }

    /// Returns the address of a byte that is to be read; allocates its segment if there is none.
    /// `None` if the file has only a hole there, or no segment is free: that part is not cached,
    /// and a read must return the data of the file in the directory.
    pub(crate) fn place_to_read(&self, file: &Arc<SourceFile>, offset: u64) -> Option<u64> {
        FileTable::find(file, offset).or_else(|| {
            let start = offset / SEGMENT_BYTES * SEGMENT_BYTES;
            let has_data = file.has_data(start..start + SEGMENT_BYTES);
            has_data.then(|| self.place(file, offset).ok()).flatten()
        })
    }

    fn allocate_segment(&self, file: &Arc<SourceFile>, start: u64) -> Result<u32, Errno> {
        let owner = Some(SegmentOwner { file: Arc::clone(file), start });
        let free = self.free.lock().expect("no holder panics").pop();
        let mut owners = self.owners.write().expect("no holder panics");
        if let Some(segment) = free {
            owners[segment as usize] = owner;
            return Ok(segment);
        }
        let segment = u32::try_from(owners.len()).ok().filter(|&segment| segment < SEGMENTS_MAX);
        let segment = segment.ok_or(Errno::NFILE)?;
        owners.push(owner);
        Ok(segment)
    }

    /// Returns the section of a file, and the parts of the bytes `from..end` that lie in segments:
    /// the offset of each in the file, and its range in the store of the section.
    pub(crate) fn parts(file: &SourceFile, from: u64, end: u64) -> (usize, Vec<(u64, Range<u64>)>) {
        let (section, segments) = file.placed();
        let parts = segments.into_iter().map(|(number, segment)| {
            let (start, base) = (number * SEGMENT_BYTES, u64::from(segment) * SEGMENT_BYTES);
            let first = from.clamp(start, start + SEGMENT_BYTES) - start;
            let last = end.clamp(start, start + SEGMENT_BYTES) - start;
            (start + first, base + first..base + last.max(first))
        });
        (section, parts.filter(|(_, range)| !range.is_empty()).collect())
    }

    /// Returns the section and the ranges as [`FileTable::parts`], without the offsets in the file.
    pub(crate) fn ranges(file: &SourceFile, from: u64, end: u64) -> (usize, Vec<Range<u64>>) {
        let (section, parts) = FileTable::parts(file, from, end);
        (section, parts.into_iter().map(|(_, range)| range).collect())
    }

    /// Frees the segments of a file that has no cached data.
    pub(crate) fn free(&self, file: &SourceFile) {
        self.free_segments(file.take_segments());
    }

    /// Frees segments of a file that has moved to another section.
    pub(crate) fn free_segments(&self, segments: Vec<u32>) {
        let mut owners = self.owners.write().expect("no holder panics");
        for &segment in &segments {
            owners[segment as usize] = None;
        }
        drop(owners);
        self.free.lock().expect("no holder panics").extend(segments);
    }

    /// Returns the file at an address of the store, and the offset in the file.
    pub(crate) fn at(&self, offset: u64) -> Option<(Arc<SourceFile>, u64)> {
        let index = usize::try_from(offset / SEGMENT_BYTES).expect("below 2^24");
        let owners = self.owners.read().expect("no holder panics");
        let SegmentOwner { file, start } = owners.get(index)?.as_ref()?;
        Some((Arc::clone(file), start + offset % SEGMENT_BYTES))
    }

    /// Returns all files that have segments, each with the addresses at which these begin.
    pub(crate) fn files(&self) -> Vec<(Arc<SourceFile>, Vec<u64>)> {
        let owners = self.owners.read().expect("no holder panics");
        let all = owners.iter().flatten().map(|owner| (Arc::clone(&owner.file), owner.start));
        let all: Vec<_> = all.collect();
        // A thread that allocates a segment of a file locks the file before the table.
        drop(owners);
        let with_starts = |(file, start): (Arc<SourceFile>, u64)| {
            let segments = file.segments();
            let is_first = segments.first()?.0 * SEGMENT_BYTES == start;
            let starts = segments.iter().map(|&(_, segment)| u64::from(segment) * SEGMENT_BYTES);
            is_first.then(|| (file, starts.collect()))
        };
        all.into_iter().filter_map(with_starts).collect()
    }

    /// Returns the file of an operation, and the offset in it. The segment of an operation is never
    /// free.
    fn target(&self, op: &StoreOp<ArenaFrames>) -> (Arc<SourceFile>, u64) {
        self.at(op.offset).expect("operations are about segments that files have")
    }

    /// Makes all data of the directory's file system stable.
    fn flush_all(&self) -> Result<(), StoreError> {
        let failed = |error: Errno| {
            store_error(self.directory.display(), StoreOpKind::Flush, 0, 0, &error.into())
        };
        rustix::fs::syncfs(&self.root).map_err(failed)
    }
}

fn failure(file: &SourceFile, op: &StoreOp<ArenaFrames>, at: u64, error: Errno) -> StoreError {
    store_error(file.name(), op.kind, at, op.len, &error.into())
}

fn errno(error: &StoreError) -> Errno {
    match error.kind {
        StoreErrorKind::NoSpace => Errno::NOSPC,
        StoreErrorKind::ReadOnly => Errno::ROFS,
        StoreErrorKind::NotPermitted => Errno::PERM,
        _ => Errno::IO,
    }
}

impl Backing for FileTable {
    fn geometry(&self) -> Geometry {
        let length = u64::from(SEGMENTS_MAX) * SEGMENT_BYTES;
        Geometry { length, granule: 512, read_only: self.read_only }
    }

    fn begin(
        &self,
        _frames: &ArenaFrames,
        op: &mut StoreOp<ArenaFrames>,
    ) -> Option<Result<(), StoreError>> {
        if op.kind == StoreOpKind::Flush && op.len == 0 {
            return Some(self.flush_all());
        }
        let Some((file, at)) = self.at(op.offset) else {
            // The cache may read ahead for a file that is gone.
            let (directory, error) = (self.directory.display(), Errno::STALE.into());
            return Some(Err(store_error(directory, op.kind, op.offset, op.len, &error)));
        };
        let failed = |error| failure(&file, op, at, error);
        match op.kind {
            StoreOpKind::Read => None,
            StoreOpKind::Write { .. } if file.is_dead() || at >= file.size() => Some(Ok(())),
            StoreOpKind::Write { .. } => {
                file.write_begins();
                None
            }
            StoreOpKind::Flush if file.is_dead() => Some(Ok(())),
            StoreOpKind::Flush => file.flush_failed().map(|error| Err(failed(error))),
            StoreOpKind::Discard => Some(match file.take_pending_change() {
                // Data that was written meanwhile must not be dropped.
                PendingChange::Renew(writes) | PendingChange::Truncate { writes, .. }
                    if file.writes() != Some(writes) =>
                {
                    Err(failed(Errno::BUSY))
                }
                PendingChange::Forget | PendingChange::Renew(_) => Ok(()),
                PendingChange::Truncate { size, .. } => shorten(&file, size).map_err(failed),
            }),
            StoreOpKind::Zero { keep_allocated } => {
                let mode = if keep_allocated {
                    FallocateFlags::ZERO_RANGE
                } else {
                    FallocateFlags::PUNCH_HOLE
                };
                let zero = |directory_file: Arc<OwnedFd>| {
                    let mode = mode | FallocateFlags::KEEP_SIZE;
                    rustix::fs::fallocate(&directory_file, mode, at, op.len)?;
                    lengthen(&file, &directory_file, at + op.len)
                };
                Some(file.buffered(true).and_then(zero).map_err(failed))
            }
        }
    }

    fn next_transfer(
        &self,
        op: &StoreOp<ArenaFrames>,
        done: u64,
    ) -> Result<Option<Transfer>, StoreError> {
        let (file, start) = self.target(op);
        let failed = |error| failure(&file, op, start, error);
        let at = start + done;
        match op.kind {
            StoreOpKind::Read => {
                if at >= file.size() {
                    return Ok(None);
                }
                let len = op.len - done;
                let direct = file.direct(false).map_err(failed)?;
                if let Some((direct, _)) = direct.filter(|(_, align)| at.is_multiple_of(*align)) {
                    return Ok(Some(Transfer::keeping(direct, at, len)));
                }
                let buffered = file.buffered(false).map_err(failed)?;
                Ok(Some(Transfer::keeping(buffered, at, len)))
            }
            StoreOpKind::Write { .. } => {
                let end = file.size().min(start + op.len);
                if at >= end {
                    return Ok(None);
                }
                let direct = file.direct(true).map_err(failed)?;
                let (len, descriptor) =
                    match direct.map(|(file, align)| (file, piece(at, end, align))) {
                        Some((direct, (true, len))) => (len, direct),
                        Some((_, (false, len))) => (len, file.buffered(true).map_err(failed)?),
                        None => (end - at, file.buffered(true).map_err(failed)?),
                    };
                Ok(Some(Transfer::keeping(descriptor, at, len)))
            }
            StoreOpKind::Flush => {
                let any = file.buffered(false).map_err(failed)?;
                Ok(Some(Transfer::flushing(any, file.wants_metadata())))
            }
            StoreOpKind::Discard | StoreOpKind::Zero { .. } => unreachable!("done at once"),
        }
    }

    fn call_failed(&self, op: &StoreOp<ArenaFrames>, error: &io::Error) -> Option<StoreError> {
        let (file, at) = self.target(op);
        let error = Errno::from_io_error(error).unwrap_or(Errno::IO);
        // Some file systems open files for direct I/O, but do not support it.
        if error == Errno::INVAL && op.kind != StoreOpKind::Flush && file.give_up_direct() {
            return None;
        }
        if op.kind == StoreOpKind::Flush {
            file.record_flush_failure(error);
        }
        Some(failure(&file, op, at, error))
    }

    fn no_progress(&self, op: &StoreOp<ArenaFrames>) -> Option<StoreError> {
        let (file, at) = self.target(op);
        // The file is shorter in the directory than here, since the rest is not written yet.
        (op.kind != StoreOpKind::Read).then(|| failure(&file, op, at, Errno::IO))
    }

    fn finish(&self, op: &StoreOp<ArenaFrames>, result: &mut Result<(), StoreError>) {
        let Some((file, _)) = self.at(op.offset) else { return };
        let error = result.as_ref().err().map(errno);
        match op.kind {
            StoreOpKind::Write { .. } => file.write_ended(error),
            StoreOpKind::Flush => file.flush_ended(error.is_none()),
            StoreOpKind::Read | StoreOpKind::Discard | StoreOpKind::Zero { .. } => {}
        }
    }
}

/// Extends the file in the directory to its size here after bytes up to `end` were zeroed. The
/// cache never writes zeroed bytes, although they may be the ones that would extend the file. If
/// more of the file follows `end`, the cache still writes that, and may be writing it now.
fn lengthen(file: &SourceFile, directory_file: &OwnedFd, end: u64) -> Result<(), Errno> {
    let size = file.size();
    let length = u64::try_from(rustix::fs::fstat(directory_file)?.st_size).unwrap_or(0);
    if length < size && size <= end { rustix::fs::ftruncate(directory_file, size) } else { Ok(()) }
}

/// Truncates a file to at most `size`, here and in the directory.
fn shorten(file: &SourceFile, size: u64) -> Result<(), Errno> {
    if size < file.size() {
        rustix::fs::ftruncate(file.buffered(true)?, size)?;
        file.set_size(size);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{Mode, OFlags};
    use std::os::unix::fs::FileExt;

    #[test]
    fn only_whole_blocks_go_past_the_page_cache() {
        for align in [512, 4096, 65_536] {
            let step = align.max(4096);
            for (start, end) in
                [(0, 512), (512, 4096), (0, 4096), (512, 300_000), (0, 70_001), (4096, 8192)]
            {
                let mut at = start;
                while at < end {
                    let (direct, len) = piece(at, end, align);
                    assert!(len > 0 && at + len <= end, "{start}..{end} at {at}");
                    let is_whole = at % step == 0 && len % step == 0;
                    assert!(!direct || is_whole, "{start}..{end} at {at}, {len} bytes");
                    at += len;
                }
            }
        }
        assert_eq!(piece(0, 512, 512), (false, 512), "another part of the block may be under way");
        assert_eq!(piece(0, 1 << 20, 512), (true, 1 << 20));
        assert_eq!(piece(0, 20_000, 512), (false, 20_000), "one call is less than two");
        assert_eq!(piece(512, 300_000, 512), (false, 4096 - 512));
        assert_eq!(piece(4096, 300_000, 512), (true, 294_912));
        assert_eq!(piece(299_008, 300_000, 512), (false, 992));
    }

    /// Returns a table and a file of it.
    fn table_of(directory: &tempfile::TempDir) -> (FileTable, Arc<SourceFile>) {
        let name = directory.path().join("f");
        std::fs::File::create(&name).unwrap();
        let root = LockedDirectory::open(&directory.path().canonicalize().unwrap(), false).unwrap();
        let table = FileTable::new(Arc::new(root), directory.path().into(), false);
        let path = rustix::fs::open(&name, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).unwrap();
        (table, Arc::new(SourceFile::new(path, 0, true)))
    }

    #[test]
    fn reads_make_segments_only_where_a_file_has_data() {
        const GIBS: u64 = 100_000;
        // A file in memory may be that long.
        let Ok(directory) = tempfile::tempdir_in("/dev/shm") else {
            return larder_testing::skip("there is no /dev/shm");
        };
        let (table, file) = table_of(&directory);
        let data = std::fs::File::create(directory.path().join("f")).unwrap();
        data.set_len(GIBS * SEGMENT_BYTES).unwrap();
        data.write_all_at(b"text", 7 * SEGMENT_BYTES + 12_345).unwrap();
        let placed = |number| table.place_to_read(&file, number * SEGMENT_BYTES + 5);
        let with_data: Vec<u64> = (0..GIBS).filter(|&number| placed(number).is_some()).collect();
        assert_eq!((with_data, table.owners.read().unwrap().len()), (vec![7], 1));
        // A write may create data anywhere, and a read finds it.
        let written = table.place(&file, 9 * SEGMENT_BYTES).unwrap();
        assert_eq!(placed(9), Some(written + 5));
    }

    #[test]
    fn files_are_listed_while_they_get_segments() {
        let directory = tempfile::tempdir().unwrap();
        let (table, file) = table_of(&directory);
        let place = |number: u64| table.place(&file, number * SEGMENT_BYTES).unwrap();
        place(0);
        std::thread::scope(|scope| {
            let placing = scope.spawn(|| (1..2000).map(place).max());
            while !placing.is_finished() {
                assert_eq!(table.files().len(), 1);
            }
        });
        assert_eq!(table.files()[0].1.len(), 2000);
    }

    #[test]
    fn only_a_flush_that_the_kernel_failed_is_final() {
        let directory = tempfile::tempdir().unwrap();
        let (table, file) = table_of(&directory);
        let offset = table.place(&file, 0).unwrap();
        let kind = StoreOpKind::Flush;
        let op = StoreOp { tag: 0, kind, offset, len: 4096, segments: Vec::new(), queued_at: 0 };
        for error in [Errno::MFILE, Errno::ACCESS] {
            table.finish(&op, &mut Err(failure(&file, &op, 0, error)));
            assert_eq!(file.flush_failed(), None, "it could not be opened");
        }
        let error = table.call_failed(&op, &io::Error::from(Errno::IO)).unwrap();
        table.finish(&op, &mut Err(error));
        assert_eq!(file.flush_failed(), Some(Errno::IO));
    }

    #[test]
    fn what_the_kernel_wrote_by_itself_is_seen_before_a_file_is_changed() {
        let directory = tempfile::tempdir().unwrap();
        let name = directory.path().join("f");
        std::fs::write(&name, "12345").unwrap();
        let path = rustix::fs::open(&name, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).unwrap();
        let file = SourceFile::new(path, 0, true);
        assert_eq!(file.attributes().unwrap().size, 5);
        std::fs::write(&name, "1234567").unwrap();
        let alone = file.change();
        assert_eq!(file.attributes().unwrap().size, 7);
        drop(alone);
    }

    #[test]
    fn what_may_not_be_opened_again_is_written_by_what_is_open() {
        if !larder_testing::is_root() {
            return;
        }
        let directory = tempfile::tempdir().unwrap();
        let name = directory.path().join("f");
        let flags = OFlags::CREATE | OFlags::RDWR | OFlags::CLOEXEC;
        let made = rustix::fs::open(&name, flags, Mode::RUSR).unwrap();
        let path = rustix::fs::open(&name, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).unwrap();
        let file = SourceFile::new(path, 0, false);
        let other = std::thread::spawn(move || {
            // SAFETY: the call changes the user of file accesses of this thread only, until the
            // thread ends.
            unsafe { libc::setfsuid(65_534) };
            assert_eq!(file.direct(true).unwrap_err(), Errno::ACCESS, "nothing is open");
            file.give(made);
            assert!(file.direct(true).unwrap().is_none());
            rustix::io::pwrite(&*file.buffered(true).unwrap(), b"text", 0).unwrap();
        });
        other.join().unwrap();
        assert_eq!(std::fs::read(&name).unwrap(), b"text");
    }
}
