//! Integration tests of the engine, its stores and its front ends.

#![expect(clippy::tests_outside_test_module, reason = "the whole crate is a test")]

mod common;
mod directory;
mod embed;
mod engine;
mod fuse;
mod live;
mod nbd_server;
mod store;
mod upstream;
