//! Renderings of a `larder watch` result, and the observation that it provides.

mod disks;
mod html;
mod observation;
mod text;

pub use disks::not_counted;
pub use html::to_html;
pub use text::{interval_to_text, line_cells, line_header, line_notes, to_text};

#[cfg(test)]
mod tests;
