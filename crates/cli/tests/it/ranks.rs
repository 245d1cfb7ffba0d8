//! Several ranks of `larder bench` from the outside: processes on this machine, which are told
//! which rank they are as `mpirun` does it, or started by `--hosts`.

mod ends;
mod results;
mod rig;
