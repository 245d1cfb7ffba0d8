//! Every short sequence of operations.
