//! A hash map for numeric keys at rates of hundreds of thousands of accesses per second.
//!
//! The keys are small numbers of the kernel or of this process, so no attacker can choose colliding
//! ones.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A map with numeric keys.
pub(crate) type Map<K, V> = HashMap<K, V, BuildHasherDefault<MultiplyHasher>>;

/// An odd factor without a bit pattern: 2^64 divided by the golden ratio.
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

/// A hasher that multiplies.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct MultiplyHasher(u64);

impl Hasher for MultiplyHasher {
    fn finish(&self) -> u64 {
        // The hash table uses the high and the low bits.
        self.0 ^ (self.0 >> 32)
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(u64::from(byte));
        }
    }

    fn write_u8(&mut self, value: u8) {
        self.write_u64(u64::from(value));
    }

    fn write_u16(&mut self, value: u16) {
        self.write_u64(u64::from(value));
    }

    fn write_u32(&mut self, value: u32) {
        self.write_u64(u64::from(value));
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = (self.0.rotate_left(5) ^ value).wrapping_mul(FACTOR);
    }
}
