//! Volumes as block devices, `/dev/ublkbN`, where the kernel has ublk (its admin guide:
//! Documentation/block/ublk.rst).
//!
//! * `abi`: the structures and numbers of `linux/ublk_cmd.h`.
//! * `driver`: the traits `driver::Driver` and `driver::Queue`, which hide the kernel; `kernel`
//!   implements them.
//! * `device`: creates, runs and removes a device.
//! * `worker`: the thread of a queue; like the threads of FUSE it has its own `Desk`.
//!
//! Data goes between the frames of the cache and the kernel's requests by pread(2) and pwrite(2)
//! on the device of the server (`UBLK_F_USER_COPY`): one copy, and none in between.
//!
//! Invariants: what was made is undone when a later step fails; every request is answered once;
//! after [`BlockDevice::close`] no thread runs and the device is gone.

mod abi;
mod device;
mod driver;
mod kernel;
#[cfg(test)]
mod pretended;
#[cfg(test)]
mod tests;
mod worker;

pub use device::{BlockDevice, DeviceOptions, left_behind};
pub use driver::{Driver, UblkError};
pub use kernel::KernelDriver;
