//! Input that somebody wrote to do harm: names that control terminals, files that take memory.

mod memory;
mod names;
mod serving;
