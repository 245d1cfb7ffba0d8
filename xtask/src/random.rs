//! Numbers from a named seed: `SplitMix64` (Steele, Lea, Flood 2014), the same on every machine.

/// A stream of numbers that depends on its seed alone.
#[derive(Debug, Clone)]
pub(crate) struct Random {
    state: u64,
}

impl Random {
    /// The stream of this seed.
    pub(crate) fn seeded(seed: u64) -> Self {
        Self { state: seed }
    }

    /// The next number, any of 2^64.
    pub(crate) fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// An index below `count`, which is not 0.
    pub(crate) fn below(&mut self, count: usize) -> usize {
        let count = u64::try_from(count).expect("a usize fits in 64 bits");
        assert!(count > 0, "nothing to choose from");
        usize::try_from(self.next() % count).expect("below a usize")
    }

    /// Fills a buffer with the bytes of the stream, little-endian.
    pub(crate) fn fill(&mut self, bytes: &mut [u8]) {
        for part in bytes.chunks_mut(8) {
            part.copy_from_slice(&self.next().to_le_bytes()[..part.len()]);
        }
    }
}
