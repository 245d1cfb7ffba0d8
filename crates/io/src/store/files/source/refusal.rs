//! Writes that are refused because a late write has failed.
//!
//! Data that the source file system does not accept stays in the cache, and counts against the
//! limit of unwritten data, which all users of a mount share. A user must not be able to add more
//! of it: after a late write of a file has failed, new writes to the file are refused for a while,
//! and if there was no space, so are those that need space on the same file system. The cache
//! retries the late writes meanwhile; each failure extends the refusal, and a successful fsync(2)
//! ends it.

use super::SourceFile;
use rustix::io::Errno;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::Instant;

/// Duration of a refusal after the last failure, in milliseconds: longer than the default interval
/// of the retries, so that it ends only if no write fails any more.
const REFUSAL_MS: u64 = 11_000;
/// Maximum number of file systems that are remembered as full.
const FULL_MAX: usize = 64;

/// Full file systems of this machine.
static FULL: FullDevices =
    FullDevices { until_ms: AtomicU64::new(0), list: Mutex::new(Vec::new()) };

struct FullDevices {
    /// Maximum of the times in the list, so that the common case needs no lock.
    until_ms: AtomicU64,
    /// Device numbers, and the times until which they are taken to be full.
    list: Mutex<Vec<(u64, u64)>>,
}

/// Returns the milliseconds since a fixed time in the past.
fn now_ms() -> u64 {
    static ORIGIN: LazyLock<Instant> = LazyLock::new(Instant::now);
    // The clock begins at 1, since 0 stands for no time.
    u64::try_from(ORIGIN.elapsed().as_millis()).map_or(u64::MAX, |elapsed| elapsed + 1)
}

impl FullDevices {
    fn add(&self, device: u64, until_ms: u64) {
        let mut list = self.list.lock().unwrap_or_else(PoisonError::into_inner);
        list.retain(|(other, _)| *other != device);
        if list.len() == FULL_MAX {
            list.remove(0);
        }
        list.push((device, until_ms));
        self.until_ms.fetch_max(until_ms, Ordering::Release);
    }

    fn remove(&self, device: u64) {
        self.list
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .retain(|(other, _)| *other != device);
    }

    fn contains(&self, device: u64, now_ms: u64) -> bool {
        let list = self.list.lock().unwrap_or_else(PoisonError::into_inner);
        list.iter().any(|&(other, until_ms)| other == device && now_ms < until_ms)
    }
}

/// Returns true if a write to any file system has recently failed because it was full.
pub(crate) fn is_some_device_full() -> bool {
    now_ms() < FULL.until_ms.load(Ordering::Acquire)
}

impl SourceFile {
    /// Begins or extends the refusal after a late write has failed with `error`, which
    /// [`SourceFile::failure`] returns as well.
    pub(super) fn begin_refusal(&self, error: Errno) {
        let until_ms = now_ms() + REFUSAL_MS;
        self.refused_until_ms.store(until_ms, Ordering::Release);
        if error == Errno::NOSPC
            && let Ok(stat) = rustix::fs::fstat(&self.path)
        {
            FULL.add(stat.st_dev, until_ms);
        }
    }

    /// Ends the refusal: all data of the file is written, or discarded.
    pub(super) fn end_refusal(&self) {
        if self.refused_until_ms.swap(0, Ordering::AcqRel) != 0
            && let Ok(stat) = rustix::fs::fstat(&self.path)
        {
            FULL.remove(stat.st_dev);
        }
    }

    /// Returns the error with which a write that ends at `end` must be refused, if any.
    #[inline]
    pub(crate) fn write_refusal(&self, end: u64) -> Option<Errno> {
        let until_ms = self.refused_until_ms.load(Ordering::Acquire);
        let full_until_ms = FULL.until_ms.load(Ordering::Acquire);
        if until_ms == 0 && full_until_ms == 0 {
            return None;
        }
        self.current_refusal(end, now_ms())
    }

    #[cold]
    fn current_refusal(&self, end: u64, now_ms: u64) -> Option<Errno> {
        if now_ms < self.refused_until_ms.load(Ordering::Acquire) {
            return self.failure();
        }
        if now_ms >= FULL.until_ms.load(Ordering::Acquire) {
            return None;
        }
        let stat = rustix::fs::fstat(&self.path).ok()?;
        let [size, blocks] =
            [stat.st_size, stat.st_blocks].map(|value| u64::try_from(value).unwrap_or(0));
        let has_space = end <= size && blocks * 512 >= size;
        (!has_space && FULL.contains(stat.st_dev, now_ms)).then_some(Errno::NOSPC)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{Mode, OFlags};

    fn file_of(bytes: usize) -> (tempfile::NamedTempFile, SourceFile) {
        let named = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(named.path(), vec![1; bytes]).unwrap();
        named.as_file().sync_all().unwrap();
        let path = rustix::fs::open(named.path(), OFlags::PATH, Mode::empty()).unwrap();
        (named, SourceFile::new(path, 0, true))
    }

    fn fail(file: &SourceFile, error: Errno) {
        file.write_begins();
        file.write_ended(Some(error));
    }

    #[test]
    fn a_failure_refuses_writes_to_its_file_until_a_flush_succeeds() {
        let (_named, file) = file_of(8192);
        assert_eq!(file.write_refusal(10), None);
        fail(&file, Errno::IO);
        assert_eq!(file.write_refusal(10), Some(Errno::IO));
        let other = file_of(8192).1;
        assert_eq!(other.write_refusal(1 << 20), None, "space was not the reason");
        file.flush_ended(true);
        assert_eq!(file.write_refusal(10), None);
        fail(&file, Errno::IO);
        assert_eq!(file.current_refusal(10, now_ms() + REFUSAL_MS + 1), None);
    }

    #[test]
    fn only_devices_that_are_remembered_are_full_and_not_for_ever() {
        let full = FullDevices { until_ms: AtomicU64::new(0), list: Mutex::new(Vec::new()) };
        full.add(1, 100);
        full.add(2, 200);
        assert!(full.contains(1, 99) && !full.contains(1, 100) && full.contains(2, 100));
        assert_eq!(full.until_ms.load(Ordering::Relaxed), 200);
        full.remove(2);
        assert!(!full.contains(2, 100));
        for device in 10..200 {
            full.add(device, 300);
        }
        assert_eq!(full.list.lock().unwrap().len(), FULL_MAX);
        assert!(full.contains(199, 250) && !full.contains(10, 250));
    }
}
