//! Helpers that several tests of this crate share.

pub(crate) mod examples;
pub(crate) mod masked;
pub(crate) mod program;
