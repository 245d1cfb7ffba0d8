//! `larder balance`: plans from records, and scripts on real trees.

mod plan;
mod script;
