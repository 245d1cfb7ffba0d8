//! Front ends: how clients reach the cache.

mod desk;
mod extents;
pub mod fuse;
pub mod listen;
pub mod nbd;
pub mod observe;
mod spare;
mod spin;
