//! `larder serve --record` and `larder trace replay` as real processes: what is replayed is
//! recorded, killed recorders leave readable files, and what is wrong is one sentence.

mod inputs;
mod recording;
mod replaying;
mod rig;
