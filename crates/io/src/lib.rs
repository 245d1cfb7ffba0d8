//! Connection of the cache to a machine: stores on io_uring and plain calls, front ends, and the
//! engine that turns threads and timers into calls on core.
//!
//! Only this crate uses kernel interfaces. With `mem`, it is the only crate with `unsafe`, all of
//! it in `store::uring` and `store::file`, for memory that the kernel reads and writes while an
//! operation is in flight, in `file_map`, in one call each of `front::fuse::device`, `reclaim` and
//! `claim::machine`, and in one line each of `socket_activation` and `store::backing`.

#![expect(unsafe_code, reason = "the kernel uses memory during an operation")]

pub mod blocking;
pub mod claim;
pub mod clock;
pub mod embed;
pub mod engine;
pub mod fault;
pub mod file_map;
pub mod frames;
pub mod front;
mod log_limit;
mod mount_table;
pub mod nbd_client;
pub mod nbd_wire;
pub mod owned_file;
pub mod pressure;
pub mod reclaim;
pub mod runtime_directory;
pub mod socket_activation;
pub mod store;
mod time_slice;
pub mod tls;
pub mod waker;
pub mod warm_list;
