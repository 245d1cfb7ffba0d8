//! `larder serve --record` and `larder trace replay` as real processes: a recording holds the
//! replayed requests, a killed recorder leaves a readable file, and each error is one message.

mod inputs;
mod recording;
mod replaying;
mod rig;
