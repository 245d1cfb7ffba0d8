//! Pages of a file that the kernel keeps for mappings while it passes read(2) and write(2) on, and
//! how writes and pages are kept from undoing each other.
//!
//! A page that the kernel has filled before a write(2) and that a program changes through a mapping
//! comes back as a whole, with bytes that are older than the write. The kernel drops such pages
//! before it sends the write, but not those that come in meanwhile. So, as soon as the kernel has
//! asked for a page of a file, a write(2) to it is done in three steps: from its beginning on, what
//! comes back of pages does not touch its bytes; they are written; then the kernel drops its pages
//! of that range, which sends back what was changed in them. What a program stores through a
//! mapping into the bytes of a write(2) that has not returned may be lost to that write, as
//! anywhere. A file of which the kernel has asked for no page pays one count for each write.

use super::SourceFile;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

/// How long to sleep until writes that do not know of pages are looked at again. They have begun
/// before the first page was asked for, so it happens once for an opening.
const PAUSE: Duration = Duration::from_micros(50);

/// What the kernel sends back of pages.
#[derive(Debug, Default)]
struct Returning {
    /// Ranges with a number each, under way.
    under_way: Vec<(u64, Range<u64>)>,
    next: u64,
    /// Ranges that writes are changing, which pages must not touch.
    covered: Vec<Range<u64>>,
}

/// What is known of the kernel's pages of a file.
#[derive(Debug, Default)]
pub(super) struct Pages {
    /// The kernel may have some.
    kept: AtomicBool,
    /// Writes under way that have begun when it had none.
    unaware: AtomicUsize,
    returning: Mutex<Returning>,
    /// Something that was under way is not any more.
    returned: Condvar,
}

impl Pages {
    fn returning(&self) -> MutexGuard<'_, Returning> {
        self.returning.lock().expect("no holder panics")
    }
}

/// A write under way, until it is dropped.
#[derive(Debug)]
pub(crate) struct WriteUnderWay {
    file: Arc<SourceFile>,
    /// The number of what comes back of pages; none of another write.
    page: Option<u64>,
}

impl Drop for WriteUnderWay {
    fn drop(&mut self) {
        let pages = &self.file.pages;
        match self.page {
            None => {
                pages.unaware.fetch_sub(1, Ordering::SeqCst);
            }
            Some(number) => {
                pages.returning().under_way.retain(|(other, _)| *other != number);
                pages.returned.notify_all();
            }
        }
    }
}

/// A range that a write changes and pages must not touch, until it is dropped.
#[derive(Debug)]
pub(crate) struct Covered {
    file: Arc<SourceFile>,
    range: Range<u64>,
}

impl Covered {
    pub(crate) fn range(&self) -> Range<u64> {
        self.range.clone()
    }
}

impl Drop for Covered {
    fn drop(&mut self) {
        let covered = &mut self.file.pages.returning().covered;
        let own = covered.iter().position(|range| *range == self.range);
        covered.swap_remove(own.expect("it was put there"));
    }
}

fn overlap(a: &Range<u64>, b: &Range<u64>) -> bool {
    a.start < b.end && b.start < a.end
}

/// What of `range` is in none of `holes`.
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
    /// The kernel asks for a page. Whether that can be answered now; else it has to wait for
    /// [`SourceFile::wait_for_unaware_writes`].
    pub(crate) fn note_page(&self) -> bool {
        if !self.pages.kept.load(Ordering::Relaxed) {
            self.pages.kept.store(true, Ordering::SeqCst);
        }
        self.pages.unaware.load(Ordering::SeqCst) == 0
    }

    /// Waits for the end of writes that have begun when the kernel had no pages.
    pub(crate) fn wait_for_unaware_writes(&self) {
        while self.pages.unaware.load(Ordering::SeqCst) > 0 {
            std::thread::sleep(PAUSE);
        }
    }

    /// The kernel has no pages of it that are in use: nobody had it open, so nobody has it mapped.
    /// When it is opened now the kernel drops the others.
    pub(super) fn forget_pages(&self) {
        self.pages.kept.store(false, Ordering::SeqCst);
    }

    /// Begins a write, if the kernel has no pages.
    pub(crate) fn begin_write(self: &Arc<Self>) -> Option<WriteUnderWay> {
        self.pages.unaware.fetch_add(1, Ordering::SeqCst);
        let begun = WriteUnderWay { file: Arc::clone(self), page: None };
        // Who asks for the first page sees either this write or that it waits.
        (!self.pages.kept.load(Ordering::SeqCst)).then_some(begun)
    }

    /// Begins to take back what the kernel sends of pages; the parts that may be written.
    pub(crate) fn begin_pages(
        self: &Arc<Self>,
        range: Range<u64>,
    ) -> (WriteUnderWay, Vec<Range<u64>>) {
        let mut returning = self.pages.returning();
        let number = returning.next;
        returning.next += 1;
        returning.under_way.push((number, range.clone()));
        let parts = without(range, &returning.covered);
        drop(returning);
        (WriteUnderWay { file: Arc::clone(self), page: Some(number) }, parts)
    }

    /// Keeps what comes back of pages from touching a range. What was on its way is waited for.
    pub(crate) fn cover(self: &Arc<Self>, range: Range<u64>) -> Covered {
        let mut returning = self.pages.returning();
        returning.covered.push(range.clone());
        let before = returning.next;
        let is_in_the_way = |returning: &mut Returning| {
            let mut under_way = returning.under_way.iter();
            under_way.any(|(number, other)| *number < before && overlap(other, &range))
        };
        drop(self.pages.returned.wait_while(returning, is_in_the_way).expect("no holder panics"));
        Covered { file: Arc::clone(self), range }
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
            while file.pages.returning().covered.is_empty() {
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
