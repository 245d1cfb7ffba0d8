//! Writes, from the call to the background writeback.
//!
//! ext4 and XFS report each write, and ext4 reports it again for each further folio; on other file
//! systems the kernel reports only pages that become dirty, so a write to a dirty page is not
//! visible.

use super::super::event::{InodeRef, Key, WritebackReason};
use super::super::lookup::FileId;
use super::{Accounting, Reference};

impl Accounting {
    pub(super) fn write(
        &mut self,
        thread: u32,
        key: Key,
        (offset, bytes): (u64, u64),
        whole: bool,
    ) -> Option<Reference> {
        if bytes == 0 {
            return None;
        }
        let (identity, file) = (self.tasks.thread_identity(thread), self.file_of(key));
        let last = offset.saturating_add(bytes);
        let page_bytes = self.machine.page_bytes;
        let state = self.thread_state(thread);
        let (previous_offset, end) = std::mem::replace(&mut state.write_progress, (offset, last));
        let same = state.writes.is_some_and(|(of, ..)| of == file) && !whole;
        // Folios start at page boundaries, so the rest of a request does.
        if same && last == end && offset > previous_offset && offset.is_multiple_of(page_bytes) {
            return None;
        }
        let first = offset / page_bytes;
        let end = last.div_ceil(page_bytes);
        self.file_mut(file).reports_writes = true;
        self.undo_access_time(thread, file);
        self.thread_state(thread).writes = Some((file, first, end));
        let counts = self.counts_mut_cached(identity, file);
        counts.write_requests += 1;
        counts.write_bytes += bytes;
        counts.write_pages += end - first;
        let process = identity.process;
        Some(Reference { file, process, offset, bytes, write: true, misses: 0, ahead: 0 })
    }

    pub(super) fn dirtied(&mut self, thread: u32, inode: InodeRef, page: u64) -> Option<Reference> {
        let file = self.file_at(inode);
        self.undo_access_time(thread, file);
        let identity = self.tasks.thread_identity(thread);
        let of = self.file(file);
        let reports_writes = of.reports_writes;
        let (first, end) =
            of.folios.at(page).map_or((page, page.saturating_add(1)), |(first, end, ())| {
                // A range may span several adjacent folios; the kernel reports the first page.
                (first.max(page), end)
            });
        let pages = end - first;
        self.lookups.written(file, first, pages);
        let written = match self.thread_state(thread).writes {
            Some((of, from, to)) if of == file => end.min(to).saturating_sub(first.max(from)),
            _ => 0,
        };
        let counts = self.counts_mut_cached(identity, file);
        counts.dirtied_pages += pages;
        counts.write_dirtied_pages += written;
        self.file_mut(file).owners.add(identity.process, pages);
        // Where the file system reports each write, this event belongs to a reported one.
        (!reports_writes).then(|| self.reference(file, identity.process, (first, pages), true))
    }

    /// Processes an inode that became dirty. If the thread was reading this file, the cause is an
    /// access time update, or a write whose own event follows.
    pub(super) fn inode_dirtied(&mut self, thread: u32, inode: InodeRef) {
        let file = self.file_at(inode);
        if self.lookups.last_file(thread) == Some(file) {
            let identity = self.tasks.thread_identity(thread);
            self.counts_mut_cached(identity, file).access_time_updates += 1;
            self.thread_state(thread).touched = Some(file);
        }
    }

    fn undo_access_time(&mut self, thread: u32, file: FileId) {
        if self.thread_state(thread).touched.take() == Some(file) {
            let identity = self.tasks.thread_identity(thread);
            let counts = self.counts_mut_cached(identity, file);
            counts.access_time_updates = counts.access_time_updates.saturating_sub(1);
        }
    }

    /// Processes the end of a background writeback of a file. The writers are charged when the
    /// pages reach the disk; this counts for the file and the thread that wrote back.
    pub(super) fn wrote(&mut self, thread: u32, inode: InodeRef, wrote: u64) {
        let file = self.file_at(inode);
        let process = self.tasks.thread_identity(thread).process;
        let state = self.thread_state(thread);
        state.writes_out = None;
        let reason = state.reason;
        if wrote == 0 {
            return;
        }
        let counts = self.counts_mut(file, process);
        counts.lazy_flushes += 1;
        let pages = match reason {
            WritebackReason::Background => &mut counts.lazy_background_pages,
            WritebackReason::Reclaim => &mut counts.lazy_reclaim_pages,
            WritebackReason::Sync => &mut counts.lazy_sync_pages,
            WritebackReason::Periodic => &mut counts.lazy_periodic_pages,
            WritebackReason::Other => &mut counts.lazy_other_pages,
        };
        *pages += wrote;
    }

    pub(super) fn throttled(&mut self, thread: u32, ms: u64) {
        // The kernel reports the event before every wait, and for waits of zero length as well.
        if ms == 0 {
            return;
        }
        let identity = self.tasks.thread_identity(thread);
        let Some((file, ..)) = self.thread_state(thread).pair else { return };
        let counts = self.counts_mut_cached(identity, file);
        counts.throttles += 1;
        counts.throttled_ms += ms;
    }
}
