//! PostMark: many small files that are created, read, appended to and deleted (Katcher, 1997).
//!
//! Written from the behavior of versions 1.5 to 1.53, not from their source. `engine.rs` draws the
//! operations from `generator.rs` over a table of files, and executes them through the traits in
//! `files.rs`. [`Session`] is the original program, with script, prompt, messages and system calls.
//! `bench/postmark.rs` is a modern run; [`Script`] reads scripts for it. Invariant: the same
//! configuration and seed give the same operations, to the byte, as the original.

mod classic;
mod command;
pub mod config;
mod counts;
pub(crate) mod disk;
mod engine;
mod files;
mod generator;
mod lines;
mod report;
mod script;
mod session;
mod show;
mod table;

pub use command::Command;
pub use config::{Config, Location};
pub(crate) use counts::Counts;
pub(crate) use engine::Engine;
pub(crate) use files::{File, Files, Model, SpaceUse};
pub use script::{Script, ScriptError, Step};
pub use session::Session;
pub use show::{ShownConfiguration, help, show};
