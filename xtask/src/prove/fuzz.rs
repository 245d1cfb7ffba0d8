//! Garbage on the socket: a malformed client never harms another. (Wrong calls of `larder serve`
//! are tests of the program, `crates/cli/tests/it/refused.rs`.)
//!
//! Sessions made by a seed from those in `xtask/corpus` go to the export `fuzz` of a server whose
//! other export, `healthy`, is written and verified all the time. A session that the server answers
//! in a new way joins the corpus of the run.

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};

use super::prelude::*;
use crate::daemon::until;
use crate::nbd::Client;
use crate::random::Random;

/// Time that a fuzzed session waits for an answer, and the longest wait of the healthy client.
const ANSWER_MAX: Duration = Duration::from_millis(20);
const HEALTHY_MAX: Duration = Duration::from_secs(10);
/// Bytes of an answer that are looked at.
const ANSWER_BYTES: usize = 1 << 16;
/// Growth of memory (buffers and tables of the first broken sessions) and of open files.
const GROWTH_BYTES_MAX: u64 = 32 * MIB;
const GROWTH_FILES_MAX: usize = 2;
/// Sessions that are shown if the server ended.
const LAST_SHOWN: usize = 3;
/// Time until the server gives up a silent client in the handshake.
const SETTLE_MAX: Duration = Duration::from_mins(1);
/// Bytes of a session.
const SESSION_BYTES_MAX: usize = 1 << 16;

/// Numbers at which arithmetic goes wrong.
#[rustfmt::skip]
const EDGES: [u64; 12] = [
    0, 1, 511, 512, 4096, 0x7fff_ffff, 0x8000_0000, 0xffff_ffff, 0x0200_0001,
    0x7fff_ffff_ffff_ffff, 0xffff_ffff_ffff_fe00, u64::MAX,
];

/// The kinds of replies in an answer.
type Form = BTreeSet<[u8; 4]>;
/// The messages that a client writes on one connection, one after the other.
type Session = Vec<Vec<u8>>;

/// Runs the fuzzer.
pub(super) fn run(env: &Env, claims: &mut Claims) -> Result<()> {
    let (seconds, seed) = (env.fuzz_seconds(), env.options.seed);
    let volume = |name: &str| -> Result<String> {
        Ok(format!("{name}={}", image::sparse(&env.file(name), 16 * MIB)?.display()))
    };
    let volumes = [volume("healthy")?, volume("fuzz")?];
    let mut server = env.larder(&[&volumes[0], &volumes[1]], "--memory 16MiB").start(env.dir())?;
    claims.tried(format!("garbage on the socket for {seconds} s, seed {seed}"), || {
        fuzz(env, &mut server, Duration::from_secs(seconds))
    });
    let what = "after the garbage: stops clean";
    claims.tried(what, || server.stop_clean().map(|_| "exit code 0".into()));
    Ok(())
}

fn fuzz(env: &Env, server: &mut Server, span: Duration) -> Result<String> {
    let sessions = load(&env.root)?;
    // Connected before open files are counted, so that its connection is among them.
    let (client, stop) = (Client::connect(&server.socket(), "healthy")?, AtomicBool::new(false));
    std::thread::scope(|scope| {
        let healthy = scope.spawn(|| healthy(client, &stop));
        let outcome = attack(env, server, sessions, span, || healthy.is_finished());
        stop.store(true, Ordering::Relaxed);
        let healthy = healthy.join().ok().context("the healthy client panicked")?;
        let (count, found) = outcome?;
        let (verified, slowest) = healthy.context("the healthy client")?;
        let ms = slowest.as_millis();
        ensure!(slowest < HEALTHY_MAX, "the healthy client waited {ms} ms");
        Ok(format!(
            "{count} sessions, {found} new answers; healthy: {verified} requests, slowest {ms} ms"
        ))
    })
}

/// Sends sessions until the time is over; how many, and how many met a new answer.
fn attack(
    env: &Env,
    server: &mut Server,
    mut sessions: Vec<Session>,
    span: Duration,
    is_harmed: impl Fn() -> bool,
) -> Result<(u64, usize)> {
    let socket = server.socket();
    let mut seen = Form::new();
    for session in &sessions {
        seen.append(&mut send(&socket, session, true)?);
    }
    std::thread::sleep(Duration::from_millis(200));
    let (files, memory) = (server.open_files()?, server.memory_bytes("VmRSS")?);
    let mut random = Random::seeded(env.options.seed);
    let (begun, mut count, mut found) = (Instant::now(), 0_u64, 0);
    let mut last = Vec::new();
    while begun.elapsed() < span && !is_harmed() {
        let session = mutate(&sessions, &mut random);
        count += 1;
        last.insert(0, format!("{session:02x?}"));
        last.truncate(LAST_SHOWN);
        // Where a client stays, the server may wait for more, and so does this one.
        let Ok(mut form) = send(&socket, &session, random.below(16) > 0) else { break };
        if !form.is_subset(&seen) {
            seen.append(&mut form);
            found += 1;
            sessions.push(session);
        }
    }
    let last = last.join("\n");
    let met = || format!("the server ended after {count} sessions, last first\n{last}");
    server.0.check_alive().with_context(met)?;
    Client::connect(&socket, "fuzz").context("the server takes no new client")?;
    // The server closes what the sessions left open.
    until("as few open files as before", SETTLE_MAX, || {
        Ok(server.open_files()? <= files + GROWTH_FILES_MAX)
    })?;
    let now = server.memory_bytes("VmRSS")?;
    // The cache itself may have filled in the meantime.
    let grew = now.saturating_sub(memory);
    ensure!(grew <= GROWTH_BYTES_MAX, "memory grew by {} MiB", grew / MIB);
    Ok((count, found))
}

/// Sends a session, and shuts down the sending side if it `ends`; the form of what came back.
fn send(socket: &Path, session: &Session, ends: bool) -> Result<Form> {
    let mut stream = UnixStream::connect(socket).context("connect to the server")?;
    stream.set_read_timeout(Some(ANSWER_MAX)).context("set a timeout")?;
    stream.set_write_timeout(Some(ANSWER_MAX)).context("set a timeout")?;
    // The server may hang up at any time: that is an answer too.
    let _is_sent = session.iter().all(|message| stream.write_all(message).is_ok());
    if ends {
        drop(stream.shutdown(Shutdown::Write));
    }
    let (mut answer, mut part) = (Vec::new(), vec![0; 1 << 14]);
    while answer.len() < ANSWER_BYTES {
        match stream.read(&mut part) {
            Ok(0) | Err(_) => break,
            Ok(count) => answer.extend_from_slice(&part[..count]),
        }
    }
    Ok(form(&answer))
}

/// What distinguishes answers: the kinds and errors that occur, without handles and data.
fn form(answer: &[u8]) -> Form {
    let kind = |here: &[u8]| match here[..4] {
        // Which option (unknown ones are all the same), and how it was answered.
        [0x00, 0x03, 0xe8, 0x89] => Some([1, here[11].min(11), here[12], here[15]]),
        // A simple reply with its error; a chunk with its flags and type.
        [0x67, 0x44, 0x66, 0x98] => Some([2, here[7], 0, 0]),
        [0x66, 0x8e, 0x33, 0xef] => Some([3, here[5], here[6], here[7]]),
        _ => None,
    };
    answer.windows(16).filter_map(kind).collect()
}

/// Writes, flushes and verifies until it is stopped; requests and the longest wait.
fn healthy(mut client: Client, stop: &AtomicBool) -> Result<(u64, Duration)> {
    ensure!(client.bytes() == 16 * MIB, "the export has {} bytes", client.bytes());
    let (mut count, mut slowest) = (0, Duration::ZERO);
    let mut random = Random::seeded(42);
    let (mut written, mut read) = (vec![0; 8192], vec![0; 8192]);
    while !stop.load(Ordering::Relaxed) {
        random.fill(&mut written);
        let offset = random.next() % (16 * MIB / 8192) * 8192;
        let begun = Instant::now();
        ensure!(client.write(offset, &written)?.is_ok(), "a write was refused");
        if count % 300 == 0 {
            ensure!(client.flush()?.is_ok(), "a flush was refused");
        }
        ensure!(client.read(offset, &mut read)?.is_ok(), "a read was refused");
        ensure!(read == written, "wrong data at {offset}");
        slowest = slowest.max(begun.elapsed());
        count += 2;
        std::thread::sleep(Duration::from_micros(200));
    }
    Ok((count, slowest))
}

/// A file of the corpus: a message on a line, in hex with blanks; `5a*512` is a byte so often; `#`
/// begins a comment.
fn parse(text: &str) -> Result<Session> {
    let message = |line: &str| -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        for word in line.split_whitespace() {
            let (digits, times) = word.split_once('*').unwrap_or((word, "1"));
            let pair = |pair: &[u8]| u8::from_str_radix(str::from_utf8(pair).ok()?, 16).ok();
            let made: Option<Vec<u8>> = digits.as_bytes().chunks(2).map(pair).collect();
            let made = made.filter(|_| digits.len() % 2 == 0);
            let made = made.with_context(|| format!("not hex: '{line}'"))?;
            bytes.extend(made.repeat(times.parse().context("not a count")?));
        }
        Ok(bytes)
    };
    let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default().trim());
    lines.filter(|line| !line.is_empty()).map(message).collect()
}

/// The sessions of the tree.
fn load(root: &Path) -> Result<Vec<Session>> {
    let entries = std::fs::read_dir(root.join("xtask/corpus")).context("list xtask/corpus")?;
    let mut paths: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    // The order decides what a seed means.
    paths.sort();
    let read = |path: &PathBuf| -> Result<Session> { parse(&std::fs::read_to_string(path)?) };
    paths.iter().map(|path| read(path).with_context(|| path.display().to_string())).collect()
}

/// A session made from one or two others by one to six changes.
fn mutate(sessions: &[Session], random: &mut Random) -> Session {
    let mut session = sessions[random.below(sessions.len())].clone();
    for _ in 0..=random.below(6) {
        let count = session.len();
        match random.below(9) {
            // A message is left out, repeated, or swapped with another.
            0 if count > 1 => drop(session.remove(random.below(count))),
            1 if count > 0 => {
                let at = random.below(count);
                let copies = vec![session[at].clone(); 1 + random.below(8)];
                session.splice(at..at, copies);
            }
            2 if count > 1 => session.swap(random.below(count), random.below(count)),
            // The beginning of one session, the end of another.
            3 => {
                let other = &sessions[random.below(sessions.len())];
                session.truncate(random.below(count + 1));
                session.extend_from_slice(&other[random.below(other.len() + 1)..]);
            }
            change if count > 0 => break_message(&mut session[random.below(count)], change, random),
            _ => {}
        }
    }
    let mut room = SESSION_BYTES_MAX;
    session.retain(|message| {
        let fits = message.len() <= room;
        room = room.saturating_sub(message.len());
        fits
    });
    session
}

/// A change within one message.
fn break_message(bytes: &mut Vec<u8>, change: usize, random: &mut Random) {
    if bytes.is_empty() {
        return;
    }
    let place = random.below(bytes.len());
    match change {
        4 => bytes[place] ^= 1 << random.below(8),
        5 => {
            // A number from the edges in a field of two, four or eight bytes, big-endian. Fields of
            // the protocol lie at even places.
            let width = [2, 4, 8][random.below(3)];
            if bytes.len() >= width {
                let place = random.below((bytes.len() - width) / 2 + 1) * 2;
                let value = EDGES[random.below(EDGES.len())].to_be_bytes();
                bytes[place..place + width].copy_from_slice(&value[8 - width..]);
            }
        }
        6 => bytes.truncate(place),
        7 => {
            let mut garbage = vec![0; 1 + random.below(64)];
            random.fill(&mut garbage);
            bytes.splice(place..place, garbage);
        }
        _ => bytes[place] = random.next().to_be_bytes()[0],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_read_from_its_file() {
        let text = "# what\n00ff 01*3 # why\n\n";
        assert_eq!(parse(text).unwrap(), [[0, 255, 1, 1, 1]]);
        assert!(parse("0").is_err() && parse("xy").is_err());
    }

    #[test]
    fn the_seed_decides_and_sessions_stay_bounded() {
        let sessions = load(&run::workspace().unwrap()).unwrap();
        let run = |seed| {
            let mut random = Random::seeded(seed);
            (0..2000).map(|_| mutate(&sessions, &mut random)).collect::<Vec<_>>()
        };
        assert_eq!(run(1), run(1));
        assert_ne!(run(1), run(2));
        let size = |session: &Session| session.iter().map(Vec::len).sum::<usize>();
        assert!(run(3).iter().all(|session| size(session) <= SESSION_BYTES_MAX));
    }
}
