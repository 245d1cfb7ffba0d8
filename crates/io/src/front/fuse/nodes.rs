//! Requests about names, attributes and opens of the files of volumes; none of them blocks.

use super::abi::{
    self, AttrOut, EntryOut, InHeader, OpenIn, OpenOut, StatfsOut, TransferIn, opcode,
};
use super::abi::{Attr, open_flag};
use super::files::NAME_BYTES_MAX;
use super::worker::Worker;
use rustix::io::Errno;
use std::sync::atomic::Ordering;
use zerocopy::IntoBytes;

const ENTRIES_BYTES_MAX: u32 = 64 << 10;

impl Worker {
    pub(super) fn take_node_request(&mut self, header: &InHeader, body: &[u8]) {
        let result = match header.opcode {
            // These have no reply.
            opcode::FORGET | opcode::BATCH_FORGET | opcode::INTERRUPT => return,
            opcode::LOOKUP => self.lookup(header, body),
            opcode::GETATTR => self.attributes(header.nodeid),
            opcode::SETATTR => self.change(header.nodeid, body),
            opcode::OPEN => self.open(header.nodeid, abi::head_of(body)),
            opcode::RELEASE => {
                self.release(header.nodeid);
                Ok(Vec::new())
            }
            opcode::OPENDIR => Ok(open_out(0)),
            opcode::READDIR => self.entries(header.nodeid, &abi::head_of(body)),
            opcode::STATFS => Ok(statfs_out()),
            // Closing a file guarantees no durability, as with a disk; fsync(2) does.
            opcode::FLUSH | opcode::RELEASEDIR | opcode::FSYNCDIR | opcode::DESTROY => {
                Ok(Vec::new())
            }
            code if opcode::NAMES.contains(&code) => Err(Errno::PERM),
            _ => Err(Errno::NOSYS),
        };
        self.link.answer(header.unique, result.as_deref().map_err(|errno| *errno));
    }

    fn attr(&self, node: u64) -> Result<Attr, Errno> {
        if node == abi::ROOT {
            return Ok(self.shared.files().attr());
        }
        let file = self.shared.files().by_node(node).ok_or(Errno::STALE)?;
        Ok(file.attr(&*self.clock))
    }

    fn attributes(&self, node: u64) -> Result<Vec<u8>, Errno> {
        let attr = self.attr(node)?;
        Ok(AttrOut { attr, ..AttrOut::default() }.as_bytes().to_vec())
    }

    fn lookup(&self, header: &InHeader, body: &[u8]) -> Result<Vec<u8>, Errno> {
        if header.nodeid != abi::ROOT {
            return Err(Errno::NOTDIR);
        }
        let file =
            self.shared.files().by_name(abi::parse_name(body)?.to_bytes()).ok_or(Errno::NOENT)?;
        let attr = file.attr(&*self.clock);
        let entry = EntryOut { nodeid: file.node, attr, ..EntryOut::default() };
        Ok(entry.as_bytes().to_vec())
    }

    fn change(&self, node: u64, body: &[u8]) -> Result<Vec<u8>, Errno> {
        if node == abi::ROOT {
            return Err(Errno::PERM);
        }
        let file = self.shared.files().by_node(node).ok_or(Errno::STALE)?;
        file.change(&abi::head_of(body))?;
        self.attributes(node)
    }

    fn open(&self, node: u64, args: OpenIn) -> Result<Vec<u8>, Errno> {
        let file = self.shared.files().by_node(node).ok_or(Errno::STALE)?;
        let access = libc::c_int::try_from(args.flags).unwrap_or(0) & libc::O_ACCMODE;
        if access != libc::O_RDONLY && file.is_read_only() {
            return Err(Errno::ROFS);
        }
        file.opens.fetch_add(1, Ordering::AcqRel);
        Ok(open_out(open_flag::DIRECT_IO | open_flag::PARALLEL_DIRECT_WRITES))
    }

    fn release(&self, node: u64) {
        if let Some(file) = self.shared.files().by_node(node) {
            file.opens.fetch_sub(1, Ordering::AcqRel);
        }
    }

    fn entries(&self, node: u64, args: &TransferIn) -> Result<Vec<u8>, Errno> {
        if node != abi::ROOT {
            return Err(Errno::NOTDIR);
        }
        let bytes_max = args.size.min(ENTRIES_BYTES_MAX) as usize;
        Ok(self.shared.files().entries(args.offset, bytes_max))
    }
}

fn open_out(open_flags: u32) -> Vec<u8> {
    OpenOut { fh: 0, open_flags, backing_id: 0 }.as_bytes().to_vec()
}

/// Returns empty space figures: the volumes have their space already.
fn statfs_out() -> Vec<u8> {
    let namelen = u32::try_from(NAME_BYTES_MAX).expect("small");
    let statfs = StatfsOut { bsize: 4096, namelen, frsize: 4096, ..StatfsOut::default() };
    statfs.as_bytes().to_vec()
}
