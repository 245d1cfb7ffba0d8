//! Front ends: how clients reach the cache.

pub mod listen;
pub mod nbd;
pub mod observe;
