//! Breaking sessions: in the bytes, in the numbers, in the order of the messages.

use super::corpus::Session;
use crate::random::Random;

/// A session does not grow beyond this.
const BYTES_MAX: usize = 1 << 16;

/// Numbers at which arithmetic goes wrong.
const EDGES: [u64; 12] = [
    0,
    1,
    511,
    512,
    4096,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
    0x0200_0001,
    0x7fff_ffff_ffff_ffff,
    0xffff_ffff_ffff_fe00,
    u64::MAX,
];

/// A session made from one or two others by one to six changes.
pub(super) fn mutate(sessions: &[Session], random: &mut Random) -> Session {
    let mut session = sessions[random.below(sessions.len())].clone();
    for _ in 0..=random.below(6) {
        match random.below(10) {
            0 => remove(&mut session, random),
            1 => duplicate(&mut session, random),
            2 => swap(&mut session, random),
            3 => splice(&mut session, &sessions[random.below(sessions.len())], random),
            4 => session.half_close = random.below(2) == 0,
            change => message(&mut session, change, random),
        }
    }
    let mut room = BYTES_MAX;
    session.messages.retain(|message| {
        let fits = message.len() <= room;
        room = room.saturating_sub(message.len());
        fits
    });
    session
}

fn remove(session: &mut Session, random: &mut Random) {
    if session.messages.len() > 1 {
        let at = random.below(session.messages.len());
        session.messages.remove(at);
    }
}

fn duplicate(session: &mut Session, random: &mut Random) {
    if !session.messages.is_empty() {
        let at = random.below(session.messages.len());
        let message = session.messages[at].clone();
        for _ in 0..=random.below(8) {
            session.messages.insert(at, message.clone());
        }
    }
}

fn swap(session: &mut Session, random: &mut Random) {
    let count = session.messages.len();
    if count > 1 {
        session.messages.swap(random.below(count), random.below(count));
    }
}

/// The beginning of one session, the end of another.
fn splice(session: &mut Session, other: &Session, random: &mut Random) {
    session.messages.truncate(random.below(session.messages.len() + 1));
    let from = random.below(other.messages.len() + 1);
    session.messages.extend_from_slice(&other.messages[from..]);
}

/// A change within one message.
fn message(session: &mut Session, change: usize, random: &mut Random) {
    if session.messages.is_empty() {
        return;
    }
    let at = random.below(session.messages.len());
    let bytes = &mut session.messages[at];
    if bytes.is_empty() {
        return;
    }
    let place = random.below(bytes.len());
    match change {
        5 => bytes[place] ^= 1 << random.below(8),
        6 => edge(bytes, random),
        7 => bytes.truncate(place),
        8 => {
            let mut garbage = vec![0; 1 + random.below(64)];
            random.fill(&mut garbage);
            bytes.splice(place..place, garbage);
        }
        _ => bytes[place] = random.next().to_be_bytes()[0],
    }
}

/// Puts a number from the edges into a field of two, four or eight bytes, big-endian.
fn edge(bytes: &mut [u8], random: &mut Random) {
    let width = [2, 4, 8][random.below(3)];
    if bytes.len() < width {
        return;
    }
    // Fields of the protocol lie at even places.
    let place = random.below((bytes.len() - width) / 2 + 1) * 2;
    let value = EDGES[random.below(EDGES.len())].to_be_bytes();
    bytes[place..place + width].copy_from_slice(&value[8 - width..]);
}

#[cfg(test)]
mod tests {
    use super::super::corpus::valid;
    use super::*;

    #[test]
    fn the_seed_decides_and_sessions_stay_bounded() {
        let sessions = valid();
        let run = |seed| {
            let mut random = Random::seeded(seed);
            (0..2000).map(|_| mutate(&sessions, &mut random)).collect::<Vec<_>>()
        };
        assert_eq!(run(1), run(1));
        assert_ne!(run(1), run(2));
        let size = |session: &Session| session.messages.iter().map(Vec::len).sum::<usize>();
        assert!(run(3).iter().all(|session| size(session) <= BYTES_MAX));
    }
}
