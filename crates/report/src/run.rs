//! Runs: renderings as text, CSV and HTML, combination of several, stress point of a server.
//!
//! A ratio states how many times better Larder is: above 1 is better, whatever the unit.

mod html;
mod join;
mod parts;
pub mod stress;
mod text;
mod verdict;

pub use crate::setting::series_in_words;
pub use html::to_html;
pub use join::join;
pub use parts::{combine, gathered, together};
pub use text::{latencies, starts_in_words, to_csv, to_text};
pub(crate) use verdict::capitalized;
