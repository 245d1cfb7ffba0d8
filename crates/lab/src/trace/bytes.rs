//! Numbers in byte slices. Each function decodes the bytes at `at`; the caller ensures that the
//! slice is long enough.

/// Returns `N` bytes at `at`.
pub(super) fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes[at..at + N].try_into().expect("a slice of that length")
}

/// Returns 16 bits, little-endian.
pub(super) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(array(bytes, at))
}

/// Returns 32 bits, little-endian.
pub(super) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(array(bytes, at))
}

/// Returns 64 bits, little-endian.
pub(super) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(array(bytes, at))
}

/// Returns the hash of a name, spread over 64 bits. It is part of file formats (the keys of the
/// Twitter traces), so it never changes: eight bytes at a time, little-endian and padded with
/// zeros, are multiplied by a number that depends on the previous bytes, and the halves of the
/// product are folded.
pub(super) fn hash(bytes: &[u8]) -> u64 {
    // Odd numbers without a pattern: digits of pi.
    const SEEDS: [u64; 2] = [0x243f_6a88_85a3_08d3, 0x1319_8a2e_0370_7345];
    let fold = |a: u64, b: u64| {
        let [low, high] = halves(u128::from(a) * u128::from(b));
        low ^ high
    };
    let mut state = SEEDS[0] ^ bytes.len() as u64;
    let chunks = bytes.chunks_exact(8);
    let tail = chunks.remainder();
    for chunk in chunks {
        state = fold(state ^ u64_at(chunk, 0), SEEDS[1]);
    }
    let mut last = [0; 8];
    last[..tail.len()].copy_from_slice(tail);
    state = fold(state ^ u64::from_le_bytes(last), SEEDS[1]);
    fold(state ^ SEEDS[0], SEEDS[1])
}

fn halves(x: u128) -> [u64; 2] {
    [u64::try_from(x & u128::from(u64::MAX)), u64::try_from(x >> 64)]
        .map(|half| half.expect("a half of 128 bits"))
}
