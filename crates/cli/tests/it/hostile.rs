//! Hostile input: names that control terminals, and files that use up memory.

mod memory;
mod names;
mod serving;
mod upstream;
