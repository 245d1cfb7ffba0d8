//! Coherence of write(2) with pages of the same file that the kernel caches for mappings while it
//! passes read(2) and write(2) through.
//!
//! A page that the kernel has read before a write(2), and that a program changes through a mapping,
//! is written back as a whole, with bytes older than the write. The kernel drops such pages before
//! it sends the write, but not pages that it reads meanwhile. So after the kernel has read a page
//! of a file, a write(2) to the file takes three steps: the range is protected from page writeback;
//! the bytes are written; then the kernel must drop its pages of the range, which first writes back
//! changes in them. Bytes that a program stores through a mapping into the range of an unfinished
//! write(2) may be lost to that write, as on any file system. A file of which the kernel has read
//! no page costs one counter update per write.

use super::SourceFile;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

/// Interval of checks for writes that began before the kernel read the first page. That happens
/// once per opening.
const CHECK_INTERVAL: Duration = Duration::from_micros(50);

/// Page writeback from the kernel.
#[derive(Debug, Default)]
struct PageWriteback {
    /// Ranges in flight, each with a number.
    in_flight: Vec<(u64, Range<u64>)>,
    next: u64,
    /// Ranges that writes are changing, which page writeback must not touch.
    covered: Vec<Range<u64>>,
}

/// State of a file's pages in the kernel's page cache.
#[derive(Debug, Default)]
pub(super) struct Pages {
    may_be_cached: AtomicBool,
    /// Number of writes in flight that began when the kernel had none.
    unaware_writes: AtomicUsize,
    writeback: Mutex<PageWriteback>,
    writeback_ended: Condvar,
}

impl Pages {
    fn writeback(&self) -> MutexGuard<'_, PageWriteback> {
        self.writeback.lock().expect("no holder panics")
    }
}

/// A write in flight, until it is dropped.
#[derive(Debug)]
pub(crate) struct WriteInFlight {
    file: Arc<SourceFile>,
    /// The number of the page writeback; none for other writes.
    page: Option<u64>,
}

impl Drop for WriteInFlight {
    fn drop(&mut self) {
        let pages = &self.file.pages;
        match self.page {
            None => {
                pages.unaware_writes.fetch_sub(1, Ordering::SeqCst);
            }
            Some(number) => {
                pages.writeback().in_flight.retain(|(other, _)| *other != number);
                pages.writeback_ended.notify_all();
            }
        }
    }
}

/// A range that a write changes and page writeback must not touch, until it is dropped.
#[derive(Debug)]
pub(crate) struct CoveredRange {
    file: Arc<SourceFile>,
    range: Range<u64>,
}

impl CoveredRange {
    pub(crate) fn range(&self) -> Range<u64> {
        self.range.clone()
    }
}

impl Drop for CoveredRange {
    fn drop(&mut self) {
        let covered = &mut self.file.pages.writeback().covered;
        let index = covered.iter().position(|range| *range == self.range);
        covered.swap_remove(index.expect("it was put there"));
    }
}

fn overlap(a: &Range<u64>, b: &Range<u64>) -> bool {
    a.start < b.end && b.start < a.end
}

/// Returns the parts of `range` that lie outside `holes`.
fn without(range: Range<u64>, holes: &[Range<u64>]) -> Vec<Range<u64>> {
    let mut left = vec![range];
    for hole in holes {
        let cut = |part: Range<u64>| {
            let before = part.start..part.end.min(hole.start);
            let after = part.start.max(hole.end)..part.end;
            [before, after].into_iter().filter(|part| !part.is_empty())
        };
        left = left.into_iter().flat_map(cut).collect();
    }
    left
}

impl SourceFile {
    /// Records that the kernel reads a page. Returns true if the read can be answered now; if not,
    /// the caller must call [`SourceFile::wait_for_unaware_writes`].
    pub(crate) fn note_page(&self) -> bool {
        if !self.pages.may_be_cached.load(Ordering::Relaxed) {
            self.pages.may_be_cached.store(true, Ordering::SeqCst);
        }
        self.pages.unaware_writes.load(Ordering::SeqCst) == 0
    }

    /// Waits for the end of writes that began when the kernel had no pages.
    pub(crate) fn wait_for_unaware_writes(&self) {
        while self.pages.unaware_writes.load(Ordering::SeqCst) > 0 {
            std::thread::sleep(CHECK_INTERVAL);
        }
    }

    /// Records that the kernel has no pages in use: no program had the file open, so none has it
    /// mapped. The kernel drops the remaining pages at the next opening.
    pub(super) fn forget_pages(&self) {
        self.pages.may_be_cached.store(false, Ordering::SeqCst);
    }

    /// Begins a write, if the kernel has no pages.
    pub(crate) fn begin_write(self: &Arc<Self>) -> Option<WriteInFlight> {
        self.pages.unaware_writes.fetch_add(1, Ordering::SeqCst);
        let begun = WriteInFlight { file: Arc::clone(self), page: None };
        // A thread that reads the first page either sees this write, or this write sees the page.
        (!self.pages.may_be_cached.load(Ordering::SeqCst)).then_some(begun)
    }

    /// Begins a page writeback; returns the parts that may be written.
    pub(crate) fn begin_pages(
        self: &Arc<Self>,
        range: Range<u64>,
    ) -> (WriteInFlight, Vec<Range<u64>>) {
        let mut writeback = self.pages.writeback();
        let number = writeback.next;
        writeback.next += 1;
        writeback.in_flight.push((number, range.clone()));
        let parts = without(range, &writeback.covered);
        drop(writeback);
        (WriteInFlight { file: Arc::clone(self), page: Some(number) }, parts)
    }

    /// Protects a range from page writeback. Waits for writeback of the range that is in flight.
    pub(crate) fn cover(self: &Arc<Self>, range: Range<u64>) -> CoveredRange {
        let mut writeback = self.pages.writeback();
        writeback.covered.push(range.clone());
        let before = writeback.next;
        let is_in_flight = |writeback: &mut PageWriteback| {
            let mut in_flight = writeback.in_flight.iter();
            in_flight.any(|(number, other)| *number < before && overlap(other, &range))
        };
        drop(
            self.pages
                .writeback_ended
                .wait_while(writeback, is_in_flight)
                .expect("no holder panics"),
        );
        CoveredRange { file: Arc::clone(self), range }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{Mode, OFlags};

    fn file() -> Arc<SourceFile> {
        let path = rustix::fs::open("/", OFlags::PATH, Mode::empty()).unwrap();
        Arc::new(SourceFile::new(path, 0, true))
    }

    #[test]
    fn ranges_are_cut_out() {
        let cut = |holes: &[(u64, u64)]| {
            let holes: Vec<_> = holes.iter().map(|&(start, end)| start..end).collect();
            let left = without(10..20, &holes);
            left.into_iter().map(|part| (part.start, part.end)).collect::<Vec<_>>()
        };
        assert_eq!(cut(&[]), [(10, 20)]);
        assert_eq!(cut(&[(12, 14)]), [(10, 12), (14, 20)]);
        assert_eq!(cut(&[(0, 12), (18, 30)]), [(12, 18)]);
        assert_eq!(cut(&[(12, 14), (13, 16)]), [(10, 12), (16, 20)]);
        assert!(cut(&[(0, 15), (15, 20)]).is_empty());
    }

    #[test]
    fn the_first_page_waits_for_writes_that_do_not_know_of_it() {
        let file = file();
        let write = file.begin_write().unwrap();
        assert!(!file.note_page());
        assert!(file.begin_write().is_none(), "the kernel has a page now");
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| file.wait_for_unaware_writes());
            assert!(!waits.is_finished());
            drop(write);
        });
        assert!(file.note_page());
        file.forget_pages();
        assert!(file.begin_write().is_some());
    }

    #[test]
    fn pages_do_not_touch_what_a_write_changes() {
        let file = file();
        let (early, parts) = file.begin_pages(0..4096);
        assert_eq!(parts, vec![0..4096]);
        let (elsewhere, _) = file.begin_pages(8192..12_288);
        std::thread::scope(|scope| {
            let covering = scope.spawn(|| file.cover(100..200));
            while file.pages.writeback().covered.is_empty() {
                std::thread::yield_now();
            }
            assert!(!covering.is_finished(), "what came before is under way");
            let (late, parts) = file.begin_pages(0..4096);
            assert_eq!(parts, vec![0..100, 200..4096]);
            drop(early);
            let covered = covering.join().unwrap();
            drop((late, covered));
        });
        drop(elsewhere);
        assert_eq!(file.begin_pages(0..4096).1, vec![0..4096]);
    }
}
