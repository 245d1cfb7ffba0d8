//! PostMark: many small files that are created, read, appended to and deleted (Katcher, 1997).
//!
//! Written from the behavior of versions 1.5 to 1.53, not from their source. [`engine`] draws the
//! operations from [`generator`] over a table of files, and executes them through the traits in
//! [`files`]. [`session`] is the original program, with script, prompt, messages and system calls.
//! [`trial`] is a modern run: the same operations in any number of threads, each timed, with every
//! result checked; [`script`] reads scripts for it. Invariant: the same configuration and seed give
//! the same operations, to the byte, as the original.

mod checked;
mod classic;
pub mod command;
pub mod config;
pub mod counts;
mod disk;
pub mod engine;
pub mod error;
pub mod files;
pub mod generator;
mod lines;
pub mod options;
mod place;
pub mod report;
pub mod script;
pub mod session;
pub mod show;
mod table;
pub mod trial;

pub use checked::Operation;
pub use command::{Command, ParameterError};
pub use config::{Config, Location, ReportFormat};
pub use counts::{Counts, Sum};
pub use engine::{Engine, TooLarge};
pub use error::PostmarkError;
pub use files::{File, Files, Model, SpaceUse};
pub use options::{Control, Data, Fsync, Options, Phase};
pub use script::{Script, ScriptError, Step};
pub use session::Session;
pub use show::{help, show};
pub use trial::{Outcome, clear_up, room_bytes, run};
