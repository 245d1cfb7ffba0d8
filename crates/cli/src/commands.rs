//! The subcommands, one per file.

pub(crate) mod advise;
pub(crate) mod balance;
pub(crate) mod bench;
pub(crate) mod check_config;
pub(crate) mod compare;
pub(crate) mod ctl;
pub(crate) mod demo;
pub(crate) mod docs;
pub(crate) mod frag;
pub(crate) mod help;
pub(crate) mod lab;
pub(crate) mod load;
pub(crate) mod model;
pub(crate) mod mount;
pub(crate) mod report;
pub(crate) mod resident;
pub(crate) mod serve;
pub(crate) mod sim;
mod simulated_cache;
pub(crate) mod size;
mod store_model;
pub(crate) mod take_memory;
mod temporary_cache;
pub(crate) mod top;
pub(crate) mod trace;
pub(crate) mod version;
pub(crate) mod watch;
