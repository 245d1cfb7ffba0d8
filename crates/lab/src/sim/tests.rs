//! Tests of replacement, samples and miniatures of the engine over whole traces.

mod miniature;
mod replace;
mod sampled;
