//! The control interface, `larder ctl`, the configuration file and the systemd integration, tested
//! from outside the program.

mod api;
mod changes;
mod ctl;
mod documents;
mod faults;
pub(crate) mod files;
mod fuzz;
mod keep;
mod limits;
mod lost_stores;
mod manager;
pub(crate) mod mount;
mod mount_faults;
mod mount_rules;
mod openmetrics;
pub(crate) mod rig;
mod security;
mod tuning;
mod upstreams;
mod volumes;
mod warm;
