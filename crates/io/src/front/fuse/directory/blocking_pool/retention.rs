//! Contents of the cache for each file: pinning, discarding, moving a file to another section, and
//! changes by other processes.
//!
//! Invariant: unwritten data is discarded only if no program can reach it any more.

use super::super::Node;
use super::{BlockingWorker, Job};
use crate::store::files::{FileTable, PendingChange, SEGMENT_BYTES, SourceFile};
use rustix::io::Errno;
use std::sync::Arc;
use std::time::Duration;

/// Number of attempts to find a moment in which no write to a file is in flight.
const RENEWALS_MAX: usize = 100;
/// Pause between these attempts.
const RENEWAL_PAUSE: Duration = Duration::from_millis(1);

impl BlockingWorker {
    /// Loads and pins all of a file in the cache, if its rule says so.
    pub(super) fn pin(&mut self, file: &Arc<SourceFile>) {
        let _change_guard = file.change();
        let directory = Arc::clone(&self.directory);
        let section = directory.section(file);
        let wanted = section.options.pin && !file.is_dead();
        let Some(cached) = section.cached().filter(|_| wanted) else { return };
        let end = file.size();
        if file.pinned() >= end {
            return;
        }
        cached.note_reach(file);
        let mut at = file.pinned() / SEGMENT_BYTES * SEGMENT_BYTES;
        while at < end {
            let next = end.min(at + SEGMENT_BYTES);
            let pinned = cached.table.place(file, at).map_err(|error| error.to_string());
            let pinned = pinned.and_then(|start| {
                let range = start..start + (next - at);
                let pinned = self.cache.pin_range(cached.volume, range, self.clock.now());
                pinned.map_err(|error| error.to_string())
            });
            if let Err(reason) = pinned {
                tracing::warn!(file = file.name(), "the file is not pinned: cannot {reason}");
                // A partly pinned file would only take memory from other files.
                file.set_pinned(at);
                self.unpin(file, 0);
                return;
            }
            file.set_pinned(next);
            at = next;
        }
    }

    pub(super) fn unpin(&self, file: &SourceFile, from: u64) {
        let Some(cached) = self.directory.section(file).cached() else { return };
        let from = from.next_multiple_of(cached.volume.page_bytes());
        let end = file.pinned();
        if from >= end {
            return;
        }
        file.set_pinned(from);
        let (_, ranges) = FileTable::ranges(file, from, end);
        for range in ranges {
            let unpinned = self.cache.unpin_range(cached.volume, range, self.clock.now());
            if let Err(error) = unpinned {
                tracing::warn!(file = file.name(), %error, "the file stays pinned");
            }
        }
    }

    /// Adopts the changes of a file by other processes: writes dirty data over them, and discards
    /// the rest from the cache. Returns true if that was necessary and is done.
    pub(super) fn renew(&mut self, file: &SourceFile) -> Result<bool, Errno> {
        let _change_guard = file.change();
        if !file.take_stale() {
            return Ok(false);
        }
        tracing::info!(file = file.name(), "the file was changed behind the mount");
        let renewed = self.try_to_renew(file);
        if let Ok(true) = renewed {
            file.set_anew();
        } else {
            file.set_stale();
        }
        renewed
    }

    /// Returns true if it is done; else the caller has to try again.
    fn try_to_renew(&mut self, file: &SourceFile) -> Result<bool, Errno> {
        for _ in 0..RENEWALS_MAX {
            let Some(writes) = file.writes() else {
                std::thread::sleep(RENEWAL_PAUSE);
                continue;
            };
            self.write_out(file, 0..file.reach(), false)?;
            if !file.adopt(writes)? {
                continue;
            }
            match self.discard_cached(file, 0..file.reach(), PendingChange::Renew(writes)) {
                Ok(()) => return Ok(true),
                // New writes have to be written back first.
                Err(_) if file.writes() != Some(writes) => {}
                Err(error) => return Err(error),
            }
        }
        tracing::info!(
            file = file.name(),
            "it is written to all the time; its cached data is kept"
        );
        Ok(false)
    }

    pub(super) fn handle_change(&mut self, node: &Node, contents: bool) {
        if contents && node.is_regular() {
            node.file.set_stale();
            if let Err(error) = self.renew(&node.file) {
                tracing::warn!(file = node.file.name(), %error, "its cached data is kept");
            }
        }
        self.directory.kernel.invalidate_node(node.id, contents);
    }

    /// Checks whether other processes have changed an open file, or one that is being opened, and
    /// adopts the changes. Blocks until the server of a network file system answers.
    pub(super) fn check_for_changes(&mut self, node: &Arc<Node>) -> Result<(), Errno> {
        let now = self.clock.now();
        node.file.refresh()?;
        match self.renew(&node.file) {
            Ok(true) => {
                // The program that waits for the reply may read the new size next.
                self.directory.kernel.invalidate_node(node.id, false);
                self.directory.pool.queue_notification(Job::InvalidateNode(Arc::clone(node)));
            }
            Ok(false) => {}
            Err(error) => {
                tracing::warn!(file = node.file.name(), %error, "its cached data is kept");
            }
        }
        node.file.note_check(now);
        Ok(())
    }

    /// Discards the cached data of a node and drops the node, unless it is used again.
    pub(super) fn retire(&mut self, node: &Node) {
        let file = &node.file;
        let openings = file.openings();
        if file.is_open() {
            return;
        }
        let _change_guard = file.change();
        // A process that writes to it has looked it up again: then the node stays.
        let Some(writes) = file.writes() else { return };
        if !file.is_dead() && self.write_out(file, 0..file.reach(), false).is_err() {
            // The data stays cached until it can be written.
            return;
        }
        self.unpin(file, 0);
        let change =
            if file.is_dead() { PendingChange::Forget } else { PendingChange::Renew(writes) };
        if let Err(error) = self.discard_cached(file, 0..file.reach(), change) {
            tracing::info!(file = file.name(), %error, "the cache keeps data of no request");
            return;
        }
        let directory = Arc::clone(&self.directory);
        let Some(table) = &directory.section(file).table else { return };
        self.directory.nodes.drop_unused(node, openings, || table.free(file));
    }

    /// Writes the remaining data of a file that no program has open, and closes it.
    pub(super) fn close(&mut self, node: &Node) {
        if self.write_out(&node.file, 0..node.file.reach(), false).is_ok() && !node.file.is_open() {
            node.file.close_data();
        }
    }

    /// Moves a file to the section of its name, unless a program has it open; then the last close
    /// moves it.
    pub(super) fn relocate(&mut self, node: &Node) {
        let file = &node.file;
        let _change_guard = file.change();
        if !file.moves() || file.is_open() || file.is_dead() {
            return;
        }
        let openings = file.openings();
        // A process that opens the file now closes it again, and this close repeats the attempt.
        let Some(writes) = file.writes() else { return };
        let section = self.directory.nodes.rules.section(&file.link());
        let discarded = self.write_out(file, 0..file.reach(), true).and_then(|()| {
            self.unpin(file, 0);
            // Data that is written in the meantime must not be dropped.
            self.discard_cached(file, 0..file.reach(), PendingChange::Renew(writes))
        });
        if let Err(error) = discarded {
            tracing::info!(file = file.name(), %error, "a renamed file keeps its old rule");
            return;
        }
        let directory = Arc::clone(&self.directory);
        let before = &directory.section(file).table;
        let Some(segments) = file.move_to(section, openings) else { return };
        file.has_moved();
        // Another rename in the meantime waits to move the file, and must not take this move for
        // its own.
        if self.directory.nodes.rules.section(&file.link()) != section {
            file.set_moves();
        }
        if let Some(table) = before {
            table.free_segments(segments);
        }
    }
}
