//! Listings of directories: entries of the directory in its order and with its offsets.

use super::super::abi::{Dirent, EntryOut, InHeader, OpenOut, TransferIn};
use super::answer::AnswerResult;
use super::{Directory, Node};
use rustix::fs::{OFlags, RawDir, SeekFrom};
use rustix::io::Errno;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use zerocopy::{FromZeros, IntoBytes};

const ENTRIES_BYTES_MAX: u32 = 64 << 10;
/// Bytes that are read of the directory at a time.
const BUFFER_BYTES: usize = 32 << 10;
/// Offset of no entry.
const UNKNOWN_POSITION: u64 = u64::MAX;

/// A directory that is open for listing, with its current offset.
pub(super) type Listing = Mutex<(OwnedFd, u64)>;

impl Directory {
    pub(super) fn opendir(&self, header: &InHeader) -> AnswerResult {
        let node = self.node(header.nodeid)?;
        let directory = node.file.open(OFlags::RDONLY | OFlags::DIRECTORY)?;
        let fh = self.next_listing.fetch_add(1, Ordering::Relaxed);
        let listing = Arc::new(Mutex::new((directory, 0)));
        self.listings.lock().expect("no holder panics").insert(fh, listing);
        Ok(OpenOut { fh, open_flags: 0, backing_id: 0 }.as_bytes().to_vec().into())
    }

    /// Returns the entries from an offset on; if `plus`, with their attributes.
    pub(super) fn readdir(&self, header: &InHeader, args: &TransferIn, plus: bool) -> AnswerResult {
        let node = self.node(header.nodeid)?;
        let listings = self.listings.lock().expect("no holder panics");
        let listing = Arc::clone(listings.get(&args.fh).ok_or(Errno::BADF)?);
        drop(listings);
        let bytes_max = args.size.min(ENTRIES_BYTES_MAX) as usize;
        let mut open = listing.lock().expect("no holder panics");
        let (directory, position) = &mut *open;
        if *position != args.offset {
            rustix::fs::seek(&*directory, SeekFrom::Start(args.offset))?;
        }
        let mut buffer = vec![MaybeUninit::uninit(); BUFFER_BYTES];
        let mut entries = RawDir::new(&*directory, &mut buffer);
        let mut bytes = Vec::with_capacity(bytes_max);
        let mut cookie = args.offset;
        let mut is_full = false;
        while let Some(entry) = entries.next() {
            let entry = entry?;
            let name = entry.file_name();
            let attributes = if plus { size_of::<EntryOut>() } else { 0 };
            if bytes.len() + attributes + Dirent::len(name.to_bytes()) > bytes_max {
                is_full = true;
                break;
            }
            if plus {
                bytes.extend_from_slice(self.look_up_entry(&node, name).as_bytes());
            }
            cookie = entry.next_entry_cookie();
            let kind = entry.file_type().as_raw_mode() >> 12;
            Dirent::push(&mut bytes, entry.ino(), cookie, kind, name.to_bytes());
        }
        // The next request reads the unused entries again.
        *position = if is_full || !entries.is_buffer_empty() { UNKNOWN_POSITION } else { cookie };
        Ok(bytes.into())
    }

    /// Looks up an entry. Returns an empty one if the entry was removed, or must not count as
    /// looked up.
    fn look_up_entry(&self, parent: &Node, name: &std::ffi::CStr) -> EntryOut {
        let is_dot = matches!(name.to_bytes(), b"." | b"..");
        // A listing must not use up the file descriptors that open files need.
        let is_skipped = is_dot || self.descriptor_limit.exceeds_target(self.nodes.len());
        let looked_up = if is_skipped { Err(Errno::NOENT) } else { self.look_up(parent, name) };
        match looked_up {
            Ok((node, attributes)) => self.entry(&node, &attributes),
            Err(_) => EntryOut::new_zeroed(),
        }
    }
}
