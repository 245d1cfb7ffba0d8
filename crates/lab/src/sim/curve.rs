//! The hit-ratio curve: hit ratio as a function of cache size.
//!
//! * [`stack`]: LRU stack distances, what all curves of LRU come from;
//! * [`exact`]: every size of LRU in one pass.
//!
//! A reference with stack distance `d` (so many other pages were referenced since this one was)
//! hits in an LRU cache of more than `d` pages (Mattson, Gecsei, Slutz, Traiger, "Evaluation
//! techniques for storage hierarchies", IBM Systems Journal 9(2), 1970).

pub mod exact;
pub mod stack;
