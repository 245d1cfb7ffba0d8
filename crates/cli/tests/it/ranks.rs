//! Several ranks of `larder bench` from outside the program: processes on this machine that get
//! their rank as from `mpirun`, or that `--hosts` starts.

mod ends;
mod results;
mod rig;
