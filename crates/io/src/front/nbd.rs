//! The NBD server: fixed newstyle, structured replies, many requests per system call, replies
//! gathered from cache memory.
//!
//! One thread serves a connection: it receives the available bytes, answers hits at once, and sends
//! all replies of a batch in one call. Misses, flushes and throttled writes complete through the
//! completion queue of the session. The memory and time that a client can occupy are limited by a
//! receive buffer of fixed size, a maximum number of connections, and a time limit of the
//! handshake.

mod connection;
mod exports;
pub mod handshake;
mod input;
mod options;
mod output;
mod server;
mod session;
mod shared;
mod socket;

pub use crate::front::listen::{ListenAddress, ListenError};
pub use exports::{Export, ExportNameInUse};
pub use options::{ServerLimits, ServerOptions, TlsOptions};
pub use server::Server;
