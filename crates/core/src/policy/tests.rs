//! Tests of the policies.
