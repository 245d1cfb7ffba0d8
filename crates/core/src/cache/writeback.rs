//! Writeback: the way of dirty data to the store.
//!
//! The steps are one file each. `decide` starts the lazy writer, which `lazy` runs; `collect` finds
//! the pages; `write` makes the operations for them; `complete` processes their results. Two kinds
//! of requests cause writeback: flushes, of the volume (`flush`) or of a range (`flush_range`), and
//! writes that wait for the store (`sync`).

mod collect;
mod complete;
mod decide;
mod flush;
mod flush_range;
mod lazy;
mod sync;
mod write;
