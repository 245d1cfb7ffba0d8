//! Shared by the tests of this crate.

pub(crate) mod examples;
pub(crate) mod masked;
pub(crate) mod program;
