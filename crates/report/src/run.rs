//! Runs: renderings as text, CSV and HTML, combination of several, stress point of a server.
//!
//! A ratio states how many times better Larder is: above 1 is better, whatever the unit.

mod html;
mod join;
mod parts;
pub mod stress;
mod text;
mod verdict;

pub use html::to_html;
pub use join::join;
pub use parts::{combine, gathered, together};
pub use text::{latencies, starts_in_words, to_csv, to_text};
pub(crate) use verdict::capitalized;

use larder_schema::run::Run;

/// Returns the median speed of all trials, or `None` if it was not measured.
#[must_use]
pub fn speed(run: &Run) -> Option<f64> {
    let speeds: Vec<f64> = run.trials.iter().filter_map(|trial| trial.speed).collect();
    crate::stats::median(&speeds)
}
