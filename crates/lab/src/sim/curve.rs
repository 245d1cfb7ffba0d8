//! The hit-ratio curve: hit ratio as a function of cache size.
//!
//! * [`stack`]: LRU stack distances, the basis of all LRU curves;
//! * [`exact`]: every size of LRU in one pass;
//! * [`sampled`]: every size of LRU from a sample of fixed size, with error bars;
//! * [`miniature`]: other policies from small caches over samples, with error bars.
//!
//! A reference with stack distance `d` (`d` other pages were referenced since the last reference to
//! this page) hits in an LRU cache of more than `d` pages (Mattson, Gecsei, Slutz, Traiger,
//! "Evaluation techniques for storage hierarchies", IBM Systems Journal 9(2), 1970).

pub mod exact;
pub mod miniature;
pub mod sampled;

pub use larder_core::curve::{estimate, stack};
