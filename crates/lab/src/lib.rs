//! The laboratory: models of disks and workloads that need neither root nor hardware.
//!
//! * [`model`]: timing models of stores. They are wrapped around a store that holds the data and
//!   say when each operation is done, so the same cache runs against a slow disk on a virtual clock
//!   (simulation) or on a real one (demo).
//! * [`workload`]: who asks for what, and how its answer times are judged.
//! * [`rehearsal`]: the production cache on a virtual clock under such a workload.
//! * [`sim`]: how many references of a trace hit, at which size, under which policy.
//! * [`trace`]: what was asked, recorded here or elsewhere.
//! * [`mod@bench`]: the player, which runs workloads on a machine so that their numbers are
//!   true.
//! * [`inputs`]: logs of everything that a serving cache was given, and their replay.
//! * [`random`]: the few distributions they need, over a named seed.
//!
//! Invariants: time is an argument, randomness comes from a seed that is passed in, and nothing
//! here does I/O (but for [`trace`] and [`mod@bench`], which read and write files) or starts a
//! thread (but for [`sim::sweep`] and [`bench::crew`]). [`workload::postmark`] and
//! [`workload::iozone`] are the other exceptions: they have real files, and the first has clocks
//! and threads of its own. Times are nanoseconds, sizes are bytes.

#![forbid(unsafe_code)]

pub mod bench;
pub mod cache_simulation;
pub mod inputs;
pub mod model;
pub mod random;
pub mod sim;
pub mod trace;
pub mod workload;
