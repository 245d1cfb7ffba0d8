//! Reads and writes that touch two segments of a file, or a file that is not cached, reads of a
//! part of a file without a segment, and writes to files that have pages in the kernel's page
//! cache.

use super::super::Node;
use super::super::answer::{Answer, AnswerResult};
use super::super::data;
use super::super::sections::CachedSection;
use super::drops::CoveredWrite;
use super::{BlockingWorker, PAGE_WRITER, uncached};
use crate::front::fuse::abi::{self, InHeader, TransferIn, WriteOut};
use crate::store::files::SourceFile;
use larder_core::request::{Request, RequestOp};
use rustix::io::Errno;
use std::ops::Range;
use std::sync::Arc;
use zerocopy::IntoBytes;

/// Extends a file in the directory if a write up to `end` makes it longer than `deferred_size_max`,
/// beyond which the file system may not support the size.
fn extend_early(file: &SourceFile, end: u64, deferred_size_max: u64) -> Result<(), Errno> {
    if end <= deferred_size_max || end <= file.size() {
        return Ok(());
    }
    let _change_guard = file.change();
    if end > file.size() {
        rustix::fs::ftruncate(file.buffered(true)?, end)?;
        file.raise_size(end);
    }
    Ok(())
}

impl BlockingWorker {
    /// Handles a read that touches two segments or a part without one, fills the kernel's first
    /// page of a file, or needs a check for changes by other processes.
    pub(super) fn read(&mut self, header: &InHeader, args: &TransferIn) -> AnswerResult {
        let node = self.directory.node(header.nodeid)?;
        let (directory, section) = (Arc::clone(&self.directory), node.file.section());
        let cached = directory.sections[section].cached();
        let is_page = args.transfer_flags & abi::LOCKOWNER == 0;
        if is_page && directory.sections[section].is_direct_io() {
            node.file.wait_for_unaware_writes();
        }
        let Some(cached) = cached else { return uncached::read(&node.file, args) };
        if directory.must_check(&node, self.clock.now()) {
            self.check_for_changes(&node)?;
        }
        let size = node.file.size();
        let len = size.saturating_sub(args.offset).min(u64::from(args.size));
        let mut bytes = vec![0; usize::try_from(len).expect("at most 1 MiB")];
        cached.note_reach(&node.file);
        for (part, at) in data::segments(args.offset..args.offset + len) {
            let len = usize::try_from(part.end - part.start).expect("at most 1 MiB");
            let bytes = &mut bytes[at..at + len];
            let Some(start) = cached.table.place_to_read(&node.file, part.start) else {
                // Zeros follow the data of the file in the directory.
                uncached::fill(&node.file, part.start, bytes)?;
                continue;
            };
            let bound = data::read_bound(start, part.start, size);
            self.read_to(section, (start, bound), bytes)?;
        }
        Ok(bytes.into())
    }

    /// Handles a write to two segments, to a file that is not cached, or to one with pages in the
    /// kernel.
    pub(super) fn write(
        &mut self,
        header: &InHeader,
        args: &TransferIn,
        payload: &[u8],
    ) -> AnswerResult {
        let node = self.directory.node(header.nodeid)?;
        let directory = Arc::clone(&self.directory);
        let section = directory.section(&node.file);
        let cached = section.cached();
        let range = args.offset..args.offset + payload.len() as u64;
        let mut covered = None;
        if !section.is_direct_io() {
            self.write_range(&node, cached, range.clone(), payload)?;
        } else if args.transfer_flags & abi::LOCKOWNER == 0 {
            let (_under_way, parts) = node.file.begin_pages(range.clone());
            for part in parts {
                let from = usize::try_from(part.start - range.start).expect("at most 1 MiB");
                let len = usize::try_from(part.end - part.start).expect("at most 1 MiB");
                self.write_range(&node, cached, part, &payload[from..from + len])?;
            }
        } else if let Some(_under_way) = node.file.begin_write() {
            self.write_range(&node, cached, range.clone(), payload)?;
        } else if self.thread_name != PAGE_WRITER {
            return Ok(Answer::PageWriter);
        } else {
            covered = Some(node.file.cover(range.clone()));
            self.write_range(&node, cached, range.clone(), payload)?;
        }
        if args.flags & abi::SYNCHRONOUS != 0 {
            match cached {
                Some(_) => self.write_out(&node.file, range, true)?,
                None => rustix::fs::fdatasync(&*node.file.buffered(true)?)?,
            }
        }
        let size = u32::try_from(payload.len()).expect("at most 1 MiB");
        let answer = WriteOut { size, padding: 0 }.as_bytes().to_vec();
        Ok(match covered {
            Some(covered) => Answer::WhenDropped(CoveredWrite { node: node.id, covered, answer }),
            None => answer.into(),
        })
    }

    fn write_range(
        &mut self,
        node: &Node,
        cached: Option<CachedSection<'_>>,
        range: Range<u64>,
        bytes: &[u8],
    ) -> Result<(), Errno> {
        let Some(cached) = cached else { return uncached::write(&node.file, range.start, bytes) };
        if let Some(error) = node.file.write_refusal(range.end) {
            return Err(error);
        }
        extend_early(&node.file, range.end, self.directory.nodes.deferred_size_max(node))?;
        let old_size = node.file.grow(range.end);
        let written = self.write_parts(node, cached, range, bytes, old_size);
        node.file.write_over();
        written
    }

    /// Writes to a file that had the length `old_size`.
    fn write_parts(
        &mut self,
        node: &Node,
        cached: CachedSection<'_>,
        range: Range<u64>,
        payload: &[u8],
        old_size: u64,
    ) -> Result<(), Errno> {
        let (section, end) = (node.file.section(), range.end);
        cached.note_reach(&node.file);
        for (part, at) in data::segments(range) {
            let start = cached.table.place(&node.file, part.start)?;
            let len = usize::try_from(part.end - part.start).expect("at most 1 MiB");
            let bytes = &payload[at..at + len];
            let is_end = part.end == end && end >= old_size;
            for (offset, bytes) in data::pad_to_sector(start, bytes, is_end, &mut [0; 512]) {
                let range = offset..offset + bytes.len() as u64;
                self.submit(section, Request::uncounted(RequestOp::Write, range), bytes)?;
            }
        }
        Ok(())
    }
}
