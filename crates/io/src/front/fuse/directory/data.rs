//! Requests about the data of files: reads, writes and flushes. The workers of the mount answer
//! them as those of volumes, at the address of the store where the file lies.
//!
//! Invariants: a write that clears setuid, setgid or capabilities of a file clears them before its
//! bytes are visible. In the cache, all bytes from the end of a file to the end of its last block
//! are zeros. So a write that ends at the end of the file can be padded to whole sectors, and need
//! not read the old data.

use super::super::abi::{self, InHeader, TransferIn};
use super::answer::Answer;
use super::sections::Section;
use super::{Directory, Node};
use crate::store::files::{SEGMENT_BYTES, SourceFile, WriteInFlight};
use larder_core::units::{BLOCK_BYTES_U64, SECTOR_BYTES};
use rustix::io::Errno;
use std::ops::Range;
use std::sync::{Arc, Weak};

pub(super) const BLOCK: u64 = BLOCK_BYTES_U64;
/// The flag of open(2) for direct I/O.
const DIRECT: u32 = libc::O_DIRECT.cast_unsigned();
/// Number of nodes that a thread finds without a lock.
const RECENT_NODES: usize = 64;

/// Recently used nodes of a thread. A node's number is never reused, so an entry is right as long
/// as the kernel sends requests for it. The references are weak: a node is dropped with its last
/// other reference.
#[derive(Debug)]
pub(crate) struct RecentNodes(Vec<(u64, Weak<Node>)>);

impl Default for RecentNodes {
    fn default() -> Self {
        RecentNodes(vec![(0, Weak::new()); RECENT_NODES])
    }
}

impl RecentNodes {
    pub(crate) fn find(&mut self, directory: &Directory, id: u64) -> Result<Arc<Node>, Errno> {
        let slot = &mut self.0[usize::try_from(id % RECENT_NODES as u64).expect("small")];
        if slot.0 == id
            && let Some(node) = slot.1.upgrade()
        {
            return Ok(node);
        }
        let node = directory.node(id)?;
        *slot = (id, Arc::downgrade(&node));
        Ok(node)
    }
}

/// Returns the bytes of the store beyond which nothing is read ahead: those of a file of `size`
/// bytes in the segment in which its byte `offset` lies at `start`.
pub(crate) fn read_bound(start: u64, offset: u64, size: u64) -> Range<u64> {
    let begin = offset % SEGMENT_BYTES;
    let segment = start - begin;
    segment..segment + (size - (offset - begin)).min(SEGMENT_BYTES)
}

/// Splits a range of a file at segments; returns each part with its offset in the range.
pub(crate) fn segments(range: Range<u64>) -> impl Iterator<Item = (Range<u64>, usize)> {
    let first = range.start;
    let mut position = range.start;
    std::iter::from_fn(move || {
        let end = range.end.min((position / SEGMENT_BYTES + 1) * SEGMENT_BYTES);
        let part = position..end;
        position = end;
        let begin = usize::try_from(part.start - first).expect("a request");
        (!part.is_empty()).then_some((part, begin))
    })
}

/// Returns the parts of a write of `bytes` at `offset`. If it ends at the end of the file, its
/// bytes of the last sector are padded with zeros to a whole one in `sector`.
pub(crate) fn pad_to_sector<'a>(
    offset: u64,
    bytes: &'a [u8],
    is_end: bool,
    sector: &'a mut [u8; SECTOR_BYTES],
) -> impl Iterator<Item = (u64, &'a [u8])> {
    let end = offset + bytes.len() as u64;
    let tail_len = usize::try_from(end % SECTOR_BYTES as u64).expect("less than a sector");
    let tail_len = if is_end && tail_len <= bytes.len() { tail_len } else { 0 };
    let (whole, rest) = bytes.split_at(bytes.len() - tail_len);
    sector[..tail_len].copy_from_slice(rest);
    let last: &[u8] = if tail_len > 0 { sector } else { &[] };
    let parts = [(offset, whole), (end - tail_len as u64, last)];
    parts.into_iter().filter(|(_, bytes)| !bytes.is_empty())
}

/// Begins a write to a byte range of a file, if the write must be tracked while it is in flight.
/// Returns the thread that has to handle it if this one cannot.
pub(crate) fn begin_write(
    section: &Section,
    file: &Arc<SourceFile>,
    args: &TransferIn,
    range: Range<u64>,
) -> Result<Option<WriteInFlight>, Answer> {
    if !section.is_direct_io() {
        return Ok(None);
    }
    if args.transfer_flags & abi::LOCKOWNER != 0 {
        return file.begin_write().map(Some).ok_or(Answer::PageWriter);
    }
    let (page, parts) = file.begin_pages(range.clone());
    if parts == [range] { Ok(Some(page)) } else { Err(Answer::BlockingWorker) }
}

/// Clears the privileges (setuid, setgid, capabilities) of a file that a write has to clear.
///
/// For each write(2) that it passes through, the kernel reports whether the writer keeps setuid and
/// setgid. Where the kernel caches pages it has already cleared them, except setgid on a file
/// without the group's execute permission. It does not report which process changed a page: then
/// setuid and setgid are cleared if a user other than root has opened the file for writing.
pub(crate) fn clear_privileges(
    directory: &Directory,
    node: &Node,
    header: &InHeader,
    args: &TransferIn,
) -> Result<(), Errno> {
    let is_page = args.transfer_flags & abi::WRITE_CACHE != 0;
    let is_passed_through = args.transfer_flags & abi::LOCKOWNER != 0;
    let clears_mode_bits = if is_page {
        node.file.others_write()
    } else if is_passed_through && directory.section(&node.file).is_direct_io() {
        args.transfer_flags & abi::WRITE_KILL_SUIDGID != 0
    } else {
        header.uid != 0
    };
    node.file.take_rights(clears_mode_bits, |group| !is_page && is_member(header, group))
}

/// Returns true if the requesting process is a member of a group.
pub(super) fn is_member(header: &InHeader, group: u32) -> bool {
    if header.gid == group {
        return true;
    }
    // FUSE sends only the primary group; without /proc the process counts as no member.
    let status = std::fs::read(format!("/proc/{}/status", header.pid));
    status.is_ok_and(|status| has_group(&status, group))
}

/// Returns true if the text of /proc/PID/status names a supplementary group. Its first line, the
/// name of the process, may have any bytes.
fn has_group(status: &[u8], group: u32) -> bool {
    let status = String::from_utf8_lossy(status);
    let groups = status.lines().find_map(|line| line.strip_prefix("Groups:")).unwrap_or_default();
    groups.split_whitespace().any(|word| word.parse() == Ok(group))
}

/// Returns the bytes of a read up to the end of the last block; file systems do not check the rest.
pub(crate) fn to_last_block(node: &Node, args: &TransferIn) -> u64 {
    let end = node.file.size().next_multiple_of(BLOCK);
    u64::from(args.size).min(end.saturating_sub(args.offset))
}

/// Refuses direct I/O of `len` bytes that SOURCE's file system would refuse. The alignment of the
/// buffer in memory is not known here.
pub(crate) fn check_alignment(node: &Node, args: &TransferIn, len: u64) -> Result<(), Errno> {
    if args.flags & DIRECT == 0 {
        return Ok(());
    }
    let align = node.file.alignment_wanted();
    let is_aligned = args.offset.is_multiple_of(align) && len.is_multiple_of(align);
    if is_aligned { Ok(()) } else { Err(Errno::INVAL) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_found_whatever_the_name_of_the_process_is() {
        let status = b"Name:\th\xffdden\nPid:\t7\nGroups:\t4 2000 \n";
        assert!(has_group(status, 2000) && has_group(status, 4));
        assert!(!has_group(status, 7) && !has_group(b"Groups:\t\n", 0));
    }
}
