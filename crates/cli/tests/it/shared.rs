//! Helpers that several tests of this crate share.

pub(crate) mod program;
