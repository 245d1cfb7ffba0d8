//! Renderings of the required cache size of a workload as text and HTML, and its extrapolation from
//! a sample. The renderings only present the measurements, so that all of them agree.

mod html;
mod scale;
mod server;
mod text;

pub use html::{to_curve_svg, to_html};
pub use scale::scaled;
pub use text::{SERVER_BYTES_MIN, SizedCache, to_text};

#[cfg(test)]
mod tests;
