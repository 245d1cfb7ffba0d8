//! PostMark: many small files that are created, read, appended to and deleted (Katcher, 1997).
//!
//! Written from what versions 1.5 to 1.53 do, not from how they are made. [`engine`] draws the
//! operations from [`generator`] over a table of files; who carries them out is behind [`files`].
//! [`session`] is the original as it was, script, prompt, messages and system calls included.
//! [`trial`] is a run of today: the same operations by any number of threads, timed one by one,
//! with every result looked at; [`script`] reads scripts for it. Invariant: the same configuration
//! and seed give the same operations, to the byte, as the original's.

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
