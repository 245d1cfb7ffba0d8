//! Notifications that invalidate the kernel's cached attributes, pages and names.
//!
//! A notification may wait for requests in flight, so a thread that answers requests must not send
//! one. The attributes alone of an inode that is in use are an exception: the kernel invalidates
//! these without waiting.

use super::abi::{NotifyEntryOut, NotifyInodeOut, NotifyPruneOut, OutHeader, notice};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use std::ffi::CStr;
use std::io::IoSlice;
use std::ops::Range;
use std::sync::OnceLock;
use zerocopy::IntoBytes;

/// Maximum number of nodes in one notification, so that it fits into a page.
const PRUNE_MAX: usize = 500;

/// Sender of notifications to the kernel, once the connection exists.
#[derive(Debug, Default)]
pub(super) struct KernelNotifier(OnceLock<OwnedFd>);

impl KernelNotifier {
    pub(super) fn connect(&self, device: &OwnedFd) {
        match device.try_clone() {
            Ok(device) => {
                let is_first = self.0.set(device).is_ok();
                debug_assert!(is_first, "a directory is mounted once");
            }
            Err(error) => tracing::warn!(%error, "the kernel cannot be notified of changes"),
        }
    }

    /// Invalidates the attributes of a node, and its pages if `contents`.
    pub(super) fn invalidate_node(&self, node: u64, contents: bool) {
        // All pages from the beginning on, or none.
        self.invalidate_range(node, if contents { 0 } else { -1 }, 0);
    }

    /// Invalidates the kernel's pages of a byte range of a file: the kernel writes modified pages
    /// back, then drops all of them. Returns when that is done.
    pub(super) fn drop_pages(&self, node: u64, range: Range<u64>) {
        let number = |at: u64| i64::try_from(at).unwrap_or(i64::MAX);
        self.invalidate_range(node, number(range.start), number(range.end - range.start));
    }

    fn invalidate_range(&self, node: u64, offset: i64, length: i64) {
        let notification = NotifyInodeOut { node, offset, length };
        self.send_notification(notice::INODE, &[notification.as_bytes()]);
    }

    /// Invalidates a name in a directory, which leads to another node now, or to none.
    pub(super) fn invalidate_entry(&self, directory: u64, name: &CStr) {
        let Ok(namelen) = u32::try_from(name.count_bytes()) else { return };
        let notification = NotifyEntryOut { directory, namelen, flags: 0 };
        self.send_notification(notice::ENTRY, &[notification.as_bytes(), name.to_bytes_with_nul()]);
    }

    /// Makes the kernel forget all names of `nodes` that no program uses; false if it cannot.
    /// Unlike [`KernelNotifier::invalidate_entry`] this does not wait for requests about the
    /// directories of these names.
    pub(super) fn prune(&self, nodes: &[u64]) -> bool {
        nodes.chunks(PRUNE_MAX).all(|nodes| {
            let count = u32::try_from(nodes.len()).expect("at most PRUNE_MAX");
            let head = NotifyPruneOut { count, padding: 0, spare: 0 };
            self.send(notice::PRUNE, &[head.as_bytes(), nodes.as_bytes()]) != Err(Errno::INVAL)
        })
    }

    fn send_notification(&self, code: i32, parts: &[&[u8]]) {
        if let Err(error) = self.send(code, parts) {
            tracing::debug!(what = code, %error, "the kernel refused a notification");
        }
    }

    /// Sends a notification, if the kernel is connected and knows its subject.
    fn send(&self, code: i32, parts: &[&[u8]]) -> Result<(), Errno> {
        let Some(device) = self.0.get() else { return Ok(()) };
        let header = OutHeader::new(0, code, parts.iter().map(|part| part.len()).sum());
        let head = std::iter::once(header.as_bytes());
        let slices: Vec<_> = head.chain(parts.iter().copied()).map(IoSlice::new).collect();
        match rustix::io::writev(device, &slices) {
            Ok(_) | Err(Errno::NOENT | Errno::NOTDIR | Errno::NODEV | Errno::CONNABORTED) => Ok(()),
            Err(error) => Err(error),
        }
    }
}
