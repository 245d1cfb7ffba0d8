//! Front ends: how clients reach the cache.

pub mod nbd;
pub mod observe;
