//! 100,000 sessions from a fixed seed: valid options, among them STARTTLS, after which the input
//! stands for the decrypted bytes; then truncated, bit-flipped and extended. No session panics,
//! none depends on the pieces in which its bytes are fed, and none exceeds its limits.

use super::{option, run_with_tls};
use crate::front::nbd::handshake::HandshakeLimits;
use crate::tls::TlsMode;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

const SESSIONS: u32 = 100_000;

fn below(random: &mut Xoshiro256PlusPlus, bound: u32) -> u32 {
    random.next_u32() % bound
}

/// Returns valid or invalid option data.
fn data(random: &mut Xoshiro256PlusPlus) -> Vec<u8> {
    let parts: [&[u8]; 10] = [
        b"",
        b"disk",
        b"\0\0\0\x04disk",
        b"\0\0\0\0",
        b"\0\0",
        b"\0\x02\0\x01\0\x03",
        b"\0\0\0\x01\0\0\0\x0fbase:allocation",
        b"\0\0\0\x05base:",
        b"\xff\xff\xff\xff",
        b"\x80\0\0\0",
    ];
    let mut bytes = Vec::new();
    for _ in 0..below(random, 4) {
        bytes.extend(parts[below(random, 10) as usize]);
    }
    bytes
}

fn session(random: &mut Xoshiro256PlusPlus) -> Vec<u8> {
    let mut bytes = below(random, 4).to_be_bytes().to_vec();
    if below(random, 4) > 0 {
        bytes[3] |= 1;
    }
    for _ in 0..below(random, 6) {
        bytes.extend(option(below(random, 13), &data(random)));
    }
    for _ in 0..below(random, 3) {
        let at = below(random, u32::try_from(bytes.len()).unwrap()) as usize;
        bytes[at] ^= 1 << below(random, 8);
    }
    if below(random, 4) == 0 {
        let len = below(random, u32::try_from(bytes.len()).unwrap()) as usize;
        bytes.truncate(len);
    }
    if below(random, 16) == 0 {
        let mut noise = vec![0; below(random, 64) as usize];
        random.fill_bytes(&mut noise);
        bytes.extend(noise);
    }
    bytes
}

#[test]
fn random_sessions_end_the_same_in_pieces_and_never_panic() {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(0x4c61_7264_6572);
    let limits = HandshakeLimits {
        option_bytes_max: 64,
        options_max: 5,
        name_bytes_max: 8,
        output_bytes_max: 400,
    };
    let mut ends = [0_u32; 2];
    for round in 0..SESSIONS {
        let input = session(&mut random);
        let piece = 1 + below(&mut random, 7) as usize;
        let modes = [TlsMode::Off, TlsMode::Allowed, TlsMode::Required];
        let tls = modes[below(&mut random, 3) as usize];
        let whole = run_with_tls(limits, tls, &input, usize::MAX);
        let pieces = run_with_tls(limits, tls, &input, piece);
        assert_eq!(whole, pieces, "round {round}: {input:02x?} in pieces of {piece}");
        assert!(whole.0.len() <= limits.output_bytes_max);
        ends[usize::from(whole.1.is_ok())] += 1;
    }
    assert!(ends.iter().all(|&count| count > SESSIONS / 10), "both ends are reached: {ends:?}");
}
