//! Front ends: the interfaces through which clients access the cache.

mod errors;
mod extents;
pub mod fuse;
pub mod listen;
pub mod nbd;
pub mod observe;
mod spin;
