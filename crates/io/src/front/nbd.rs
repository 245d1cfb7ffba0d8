//! The NBD server: fixed newstyle, structured replies, many requests per system call, replies
//! gathered from cache memory.
//!
//! One thread serves a connection: it receives what has come, answers hits at once, and sends all
//! answers of a batch in one call. Misses, flushes and throttled writes come back through the
//! lane's inbox. What a client can make the server hold is limited: a receive buffer of fixed size,
//! a number of connections, a time for the handshake.

mod exports;
pub mod handshake;
mod input;
mod options;
mod output;
mod server;
mod session;
mod socket;
mod transport;
pub mod wire;

pub use crate::front::listen::{ListenAddress, ListenError};
pub use exports::{Export, NameTaken};
pub use options::{ServerOptions, TlsOptions};
pub use server::{Server, ServerLimits};
