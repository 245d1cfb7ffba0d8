//! `larder balance`: plans from records, and scripts on real trees.

mod attack;
mod obstacles;
mod plan;
mod script;
