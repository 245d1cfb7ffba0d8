//! Models of disks and workloads that need neither root privileges nor hardware.
//!
//! * [`model`]: timing models of stores. A model wraps a store that holds the data and decides the
//!   completion time of each operation, so the same cache runs against a slow disk on a virtual
//!   clock (simulation) or on a real clock (demo).
//! * [`workload`]: workload generators, and the evaluation of their response times.
//! * [`cache_simulation`]: the production cache on a virtual clock under such a workload.
//! * [`advise`]: advice on the storage below a cache, from its traffic.
//! * [`sim`]: hit ratios of a trace, by cache size and policy.
//! * [`trace`]: block traces, recorded by Larder or by other tools.
//! * [`mod@bench`]: the benchmark runner, which runs workloads on a machine so that their results
//!   are valid.
//! * [`balance`]: moves of files that balance the load of disks.
//! * [`fragmentation`]: the cost of fragmented files for requests to them.
//! * [`load`]: a load on an export that verifies what it reads, and a check after a crash.
//! * [`connection`]: the connections of a load and of a replay.
//! * [`locked_path`]: locked files and directories of a benchmark, and the removal of those of
//!   killed runs.
//! * [`fitted`]: synthetic traces that are fitted to another one.
//! * [`replay`]: a trace sent to exports.
//! * [`inputs`]: logs of all inputs of a serving cache, and their replay.
//! * [`ranks`]: a benchmark in several processes, on one or several machines.
//! * [`random`]: the random distributions of the workloads, generated from a given seed.
//!
//! Invariants: time is an argument, randomness comes from a seed that the caller passes in, and no
//! module does I/O (except [`trace`], [`load`] and [`mod@bench`], which read and write files,
//! [`workload::postmark`], and [`ranks`], which has sockets and child processes) or starts a thread
//! (except [`advise`], [`experiment`], [`sim::sweep`], [`sim::study`], [`replay`], [`load`],
//! [`bench::worker_pool`] and [`ranks`]). Times are nanoseconds, sizes are bytes.

#![forbid(unsafe_code)]

pub mod advise;
pub mod balance;
pub mod bench;
pub mod cache_simulation;
pub mod connection;
pub mod experiment;
pub mod file_system;
pub mod fitted;
pub mod fragmentation;
pub mod inputs;
pub mod load;
pub mod locked_path;
pub mod model;
pub mod random;
pub mod ranks;
pub mod replay;
pub mod sim;
mod steps;
pub mod trace;
pub mod workload;
