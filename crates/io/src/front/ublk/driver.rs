//! The seams behind which the kernel is: commands about devices, and the queues of one.

use super::abi::{Control, DeviceInfo, IoDescriptor};
use crate::wake::Waker;
use rustix::io::Errno;
use std::io::{self, IoSlice};
use std::time::Duration;

/// Why there is no block device. Every message can follow "failed to".
#[derive(Debug, thiserror::Error)]
pub enum UblkError {
    /// The kernel has no ublk, or hides it.
    #[error(
        "make a block device: there is no /dev/ublk-control; that takes Linux 6.5 or newer with \
         CONFIG_BLK_DEV_UBLK and its module (modprobe ublk_drv); without it, --fuse DIR and a loop \
         device on its files, or an NBD client, do the same"
    )]
    NotThere,
    /// It cannot be opened or asked.
    #[error("use /dev/ublk-control: {source}")]
    Refused {
        /// What the system said.
        source: io::Error,
    },
    /// The kernel is too old.
    #[error(
        "make a block device: ublk of this kernel cannot copy as larder does (UBLK_F_USER_COPY); \
         that takes Linux 6.5 or newer; --fuse DIR and a loop device on its files do the same"
    )]
    TooOld,
    /// A command was refused.
    #[error("{what}: {source}")]
    Command {
        /// What it was for.
        what: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
    /// A queue could not be served.
    #[error("serve queue {queue} of a block device: {source}")]
    Queue {
        /// Its number, from 0.
        queue: u16,
        /// What the system said.
        source: io::Error,
    },
    /// What a write-back cache loses in a kill nobody would notice.
    #[error(
        "take over {path}: those who use it would not notice what a write-back cache loses; serve \
         the volume in the write mode that it had"
    )]
    KeepsBack {
        /// Its path.
        path: String,
    },
    /// Somebody uses it.
    #[error("hide {path}: it is in use")]
    InUse {
        /// Its path.
        path: String,
    },
}

/// The kernel's side of devices.
pub trait Driver: Send + Sync {
    /// Carries out a command on a device. `data` goes with it, `buffer` is read or written by the
    /// kernel as the command has it.
    ///
    /// # Errors
    /// What the kernel said.
    fn command(
        &self,
        control: Control,
        device: u32,
        data: u64,
        buffer: &mut [u8],
    ) -> Result<(), Errno>;

    /// A queue of a device. It belongs to the thread that opens it.
    ///
    /// # Errors
    /// What the system said.
    fn queue(&self, device: &DeviceInfo, queue: u16) -> io::Result<Box<dyn Queue>>;

    /// Whether somebody else has the block device open for himself: a mount, swap, or the like.
    fn is_used(&self, device: u32) -> bool;
}

/// The kernel's side of one queue.
pub trait Queue {
    /// Asks for the first request of a tag.
    fn fetch(&mut self, tag: u16);

    /// Answers the request of a tag with bytes that were moved, or an errno below 0, and asks for
    /// the next one.
    fn commit(&mut self, tag: u16, result: i32);

    /// Hands over what was asked and answered, and takes in which tags have come: 0 with a request,
    /// anything else for the last time.
    ///
    /// # Errors
    /// The kernel takes nothing any more.
    fn exchange(&mut self, came: &mut Vec<(u16, i32)>) -> io::Result<()>;

    /// The request of a tag that has come.
    fn descriptor(&self, tag: u16) -> IoDescriptor;

    /// Fetches the data of a write.
    ///
    /// # Errors
    /// What the system said; too little is an error as well.
    fn take_data(&self, tag: u16, to: &mut [u8]) -> io::Result<()>;

    /// Hands over the data of a read.
    ///
    /// # Errors
    /// As above.
    fn give_data(&self, tag: u16, from: &mut [IoSlice<'_>]) -> io::Result<()>;

    /// Sleeps until a tag comes, the waker is notified, or `timeout` has passed.
    ///
    /// # Errors
    /// The kernel refuses to wait.
    fn sleep(&self, waker: &Waker, timeout: Option<Duration>) -> io::Result<()>;
}
