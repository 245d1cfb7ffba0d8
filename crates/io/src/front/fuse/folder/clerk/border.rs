//! Reads and writes that touch two segments of a file, and those of files that are not cached.

use super::super::Node;
use super::super::data;
use super::super::requests::Answered;
use super::super::sections::Cached;
use super::{Clerk, uncached};
use crate::call::Write;
use crate::front::fuse::abi::{InHeader, TransferIn, WriteOut};
use larder_core::counters::Interface;
use larder_core::request::{Assembly, WriteTask};
use rustix::io::Errno;
use std::sync::Arc;
use zerocopy::IntoBytes;

impl Clerk {
    /// A read that touches two segments.
    pub(super) fn read(&mut self, header: &InHeader, asked: &TransferIn) -> Answered {
        let node = self.folder.node(header.nodeid)?;
        let (folder, section) = (Arc::clone(&self.folder), node.file.section());
        let cached = folder.sections[section].cached();
        let Some(cached) = cached else { return uncached::read(&node.file, asked) };
        let left = node.file.size().saturating_sub(asked.offset);
        let len = left.min(u64::from(asked.size));
        let mut bytes = vec![0; usize::try_from(len).expect("at most 1 MiB")];
        cached.note_reach(&node.file);
        for (part, at) in data::segments(asked.offset..asked.offset + len) {
            let start = cached.table.place(&node.file, part.start)?;
            let len = u32::try_from(part.end - part.start).expect("at most 1 MiB");
            let mut read = Assembly::new(0, start, len).through(Interface::Copy);
            self.call(section, &mut read)?;
            read.copy_to(self.cache.frames(), &mut bytes[at..at + len as usize]);
            read.release(self.cache.frames());
        }
        Ok(bytes.into())
    }

    /// A write that touches two segments.
    pub(super) fn write(
        &mut self,
        header: &InHeader,
        asked: &TransferIn,
        payload: &[u8],
    ) -> Answered {
        let node = self.folder.node(header.nodeid)?;
        let (folder, section) = (Arc::clone(&self.folder), node.file.section());
        let cached = folder.sections[section].cached();
        let Some(cached) = cached else { return uncached::write(&node.file, asked, payload) };
        let end = asked.offset + payload.len() as u64;
        let old = node.file.grow(end);
        let written = self.write_parts(&node, section, cached, asked, payload, old);
        node.file.write_over();
        written?;
        if asked.flags & data::SYNCHRONOUS != 0 {
            self.write_out(&node.file, asked.offset..end, true)?;
        }
        let size = u32::try_from(payload.len()).expect("at most 1 MiB");
        Ok(WriteOut { size, padding: 0 }.as_bytes().to_vec().into())
    }

    /// Writes to a file that was as long as `old`.
    fn write_parts(
        &mut self,
        node: &Node,
        section: usize,
        cached: Cached<'_>,
        asked: &TransferIn,
        payload: &[u8],
        old: u64,
    ) -> Result<(), Errno> {
        let end = asked.offset + payload.len() as u64;
        cached.note_reach(&node.file);
        for (part, at) in data::segments(asked.offset..end) {
            let start = cached.table.place(&node.file, part.start)?;
            let len = usize::try_from(part.end - part.start).expect("at most 1 MiB");
            let bytes = &payload[at..at + len];
            let is_end = part.end == end && end >= old;
            for (offset, bytes) in data::padded(start, bytes, is_end, &mut [0; 512]) {
                let len = u32::try_from(bytes.len()).expect("at most 1 MiB");
                let task = WriteTask::new(0, offset, len, false);
                self.call(section, &mut Write { task, bytes })?;
            }
        }
        Ok(())
    }
}
