//! Fuzzing of the NBD server: malformed sessions do not affect other clients.
//!
//! A seeded generator mutates the sessions in `tests/corpus` and sends them to the export `fuzz`.
//! Meanwhile a client writes and verifies the export `healthy`. A session that gets a new kind of
//! answer joins the corpus of the run. `LARDER_FUZZ_SECONDS` sets the duration, `LARDER_SEED` the
//! seed.

use super::rig::{MIB, Server, eventually};
use larder_io::nbd_client::Client;
use larder_lab::random::Random;
use larder_testing::budget;
use std::collections::BTreeSet;
use std::error::Error;
use std::fs::{read_dir, read_to_string};
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Timeout of a fuzzed session for an answer, and maximum latency of the healthy client.
const ANSWER_MAX: Duration = Duration::from_millis(20);
const HEALTHY_MAX: Duration = Duration::from_secs(10);
/// Bytes of an answer that are examined.
const ANSWER_BYTES: usize = 1 << 16;
/// Maximum growth of memory (buffers and tables of the first malformed sessions) and of open files.
const GROWTH_KIB_MAX: u64 = 32 << 10;
const GROWTH_FILES_MAX: usize = 2;
/// Sessions that are printed if the server has ended.
const LAST_SHOWN: usize = 3;
/// Maximum size of a session.
const SESSION_BYTES_MAX: usize = 1 << 16;

/// Boundary values, at which arithmetic may overflow.
#[rustfmt::skip]
const EDGES: [u64; 12] = [
    0, 1, 511, 512, 4096, 0x7fff_ffff, 0x8000_0000, 0xffff_ffff, 0x0200_0001,
    0x7fff_ffff_ffff_ffff, 0xffff_ffff_ffff_fe00, u64::MAX,
];

/// The kinds of replies in an answer.
type Form = BTreeSet<[u8; 4]>;
/// The messages that a client writes on one connection, one after the other.
type Session = Vec<Vec<u8>>;

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(default)
}

#[test]
fn malformed_sessions_do_not_affect_other_clients() {
    let seconds = number("LARDER_FUZZ_SECONDS", budget(5, 60));
    let server = Server::start(&["healthy", "fuzz"], &[]);
    // Connected before open files are counted, so that the count includes its connection.
    let (client, harmed) = (server.client(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let attack = scope.spawn(|| attack(&server, Duration::from_secs(seconds), &harmed));
        let healthy = verify(client, || attack.is_finished());
        harmed.store(true, Ordering::Relaxed);
        let (count, found) = attack.join().expect("the server survives all sessions");
        let (verified, slowest) = healthy.expect("the healthy client gets no error");
        assert!(slowest < HEALTHY_MAX, "the healthy client waited {slowest:?}");
        println!(
            "fuzzed: {count} sessions, {found} new answers; healthy: {verified} requests, slowest \
             {} ms; stops clean",
            slowest.as_millis()
        );
    });
    server.stop();
}

/// Sends sessions for `span`. Returns their number, and how many got a new kind of answer.
fn attack(server: &Server, span: Duration, harmed: &AtomicBool) -> (u64, usize) {
    let (socket, mut sessions, mut seen) = (server.path("nbd.sock"), load(), Form::new());
    for session in &sessions {
        seen.append(&mut send(&socket, session, true).expect("the server answers"));
    }
    std::thread::sleep(Duration::from_millis(200));
    let (files, memory) = (server.open_files(), resident_kib(server).expect("the server runs"));
    let mut random = Random::from_seed(number("LARDER_SEED", 1));
    let (begun, mut count, mut found, mut last) = (Instant::now(), 0, 0, Vec::new());
    while begun.elapsed() < span && !harmed.load(Ordering::Relaxed) {
        let session = mutate(&sessions, &mut random);
        count += 1;
        last.insert(0, format!("{session:02x?}"));
        last.truncate(LAST_SHOWN);
        // If the client does not shut down its side, the server may wait for more input; the client
        // then waits until its timeout.
        let Ok(mut form) = send(&socket, &session, random.below(16) > 0) else { break };
        if !form.is_subset(&seen) {
            seen.append(&mut form);
            found += 1;
            sessions.push(session);
        }
    }
    let last = last.join("\n");
    assert!(
        resident_kib(server).is_some(),
        "the server ended after {count} sessions; newest first:\n{last}"
    );
    server.client(1).disconnect().expect("the server accepts a new client");
    // The server closes the connections that the sessions left open.
    eventually("as few open files as before", || server.open_files() <= files + GROWTH_FILES_MAX);
    // The cache itself may have filled in the meantime.
    let grew = resident_kib(server).expect("the server runs").saturating_sub(memory);
    assert!(grew <= GROWTH_KIB_MAX, "memory grew by {grew} KiB");
    (count, found)
}

/// Returns the resident memory of the server, or `None` if it has ended.
fn resident_kib(server: &Server) -> Option<u64> {
    let status = read_to_string(format!("/proc/{}/status", server.pid())).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().strip_suffix(" kB")?.parse().ok()
}

/// Sends a session, shuts down the sending side if `ends` is set, and returns the form of the
/// answer.
fn send(socket: &Path, session: &Session, ends: bool) -> std::io::Result<Form> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(ANSWER_MAX))?;
    stream.set_write_timeout(Some(ANSWER_MAX))?;
    // The server may close the connection at any time; that counts as an answer.
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

/// Returns the kinds and errors of the replies in an answer, without handles and data.
fn form(answer: &[u8]) -> Form {
    let kind = |bytes: &[u8]| match bytes[..4] {
        // The option (all unknown ones count as one), and the type of its reply.
        [0x00, 0x03, 0xe8, 0x89] => Some([1, bytes[11].min(11), bytes[12], bytes[15]]),
        // A simple reply with its error; a chunk with its flags and type.
        [0x67, 0x44, 0x66, 0x98] => Some([2, bytes[7], 0, 0]),
        [0x66, 0x8e, 0x33, 0xef] => Some([3, bytes[5], bytes[6], bytes[7]]),
        _ => None,
    };
    answer.windows(16).filter_map(kind).collect()
}

/// Writes, flushes and verifies until `is_over`. Returns the number of requests and the highest
/// latency.
fn verify(
    mut client: Client,
    is_over: impl Fn() -> bool,
) -> Result<(u64, Duration), Box<dyn Error>> {
    let (mut count, mut slowest, mut random) = (0, Duration::ZERO, Random::from_seed(42));
    let (mut written, mut read) = (vec![0; 8192], vec![0; 8192]);
    while !is_over() {
        random.fill(&mut written);
        let offset = random.below(16 * MIB / 8192) * 8192;
        let begun = Instant::now();
        client.write_at(offset, &written, false)?;
        if count % 300 == 0 {
            client.flush()?;
        }
        client.read_at(offset, &mut read)?;
        if read != written {
            return Err(format!("wrong data at {offset}").into());
        }
        slowest = slowest.max(begun.elapsed());
        count += 2;
        std::thread::sleep(Duration::from_micros(200));
    }
    Ok((count, slowest))
}

/// Parses a file of the corpus: one message per line, in hex with blanks. `5a*512` is a byte
/// repeated 512 times; `#` begins a comment.
fn parse(text: &str) -> Session {
    let word = |word: &str| -> Vec<u8> {
        let (digits, times) = word.split_once('*').unwrap_or((word, "1"));
        assert!(digits.len() % 2 == 0, "not hex: {digits}");
        let pair = |pair: &[u8]| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap();
        let bytes: Vec<u8> = digits.as_bytes().chunks(2).map(pair).collect();
        bytes.repeat(times.parse().expect("a count"))
    };
    let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default().trim());
    let lines = lines.filter(|line| !line.is_empty());
    lines.map(|line| line.split_whitespace().flat_map(word).collect()).collect()
}

/// Loads the sessions of the corpus.
fn load() -> Vec<Session> {
    let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/corpus");
    let mut paths: Vec<_> = read_dir(corpus).unwrap().map(|it| it.unwrap().path()).collect();
    // The sessions of a seed depend on this order.
    paths.sort();
    paths.iter().map(|path| parse(&read_to_string(path).unwrap())).collect()
}

fn below(random: &mut Random, end: usize) -> usize {
    usize::try_from(random.below(end as u64)).expect("below a usize")
}

/// Derives a session from one or two others by one to six changes.
fn mutate(sessions: &[Session], random: &mut Random) -> Session {
    let mut session = sessions[below(random, sessions.len())].clone();
    for _ in 0..=below(random, 6) {
        let count = session.len();
        match below(random, 9) {
            // A message is left out, repeated, or swapped with another.
            0 if count > 1 => drop(session.remove(below(random, count))),
            1 if count > 0 => {
                let at = below(random, count);
                let copies = vec![session[at].clone(); 1 + below(random, 8)];
                session.splice(at..at, copies);
            }
            2 if count > 1 => session.swap(below(random, count), below(random, count)),
            // The beginning of one session, the end of another.
            3 => {
                let other = &sessions[below(random, sessions.len())];
                session.truncate(below(random, count + 1));
                session.extend_from_slice(&other[below(random, other.len() + 1)..]);
            }
            change if count > 0 => {
                break_message(&mut session[below(random, count)], change, random);
            }
            _ => {}
        }
    }
    let mut remaining = SESSION_BYTES_MAX;
    session.retain(|message| {
        let fits = message.len() <= remaining;
        remaining = remaining.saturating_sub(message.len());
        fits
    });
    session
}

/// Applies a change within one message.
fn break_message(bytes: &mut Vec<u8>, change: usize, random: &mut Random) {
    if bytes.is_empty() {
        return;
    }
    let place = below(random, bytes.len());
    match change {
        4 => bytes[place] ^= 1 << below(random, 8),
        5 => {
            // A boundary value in a big-endian field of two, four or eight bytes. Fields of the
            // protocol have even offsets.
            let width = [2, 4, 8][below(random, 3)];
            if bytes.len() >= width {
                let place = below(random, (bytes.len() - width) / 2 + 1) * 2;
                let value = EDGES[below(random, EDGES.len())].to_be_bytes();
                bytes[place..place + width].copy_from_slice(&value[8 - width..]);
            }
        }
        6 => bytes.truncate(place),
        7 => {
            let mut garbage = vec![0; 1 + below(random, 64)];
            random.fill(&mut garbage);
            bytes.splice(place..place, garbage);
        }
        _ => bytes[place] = random.bits().to_be_bytes()[0],
    }
}

#[test]
fn corpus_files_are_parsed() {
    assert_eq!(parse("# what\n00ff 01*3 # why\n\n"), [[0, 255, 1, 1, 1]]);
    assert!(["0", "xy"].iter().all(|invalid| std::panic::catch_unwind(|| parse(invalid)).is_err()));
}

#[test]
fn sessions_depend_only_on_the_seed_and_have_a_maximum_size() {
    let sessions = load();
    let run = |seed| {
        let mut random = Random::from_seed(seed);
        (0..2000).map(|_| mutate(&sessions, &mut random)).collect::<Vec<_>>()
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
    let size = |session: &Session| session.iter().map(Vec::len).sum::<usize>();
    assert!(run(3).iter().all(|session| size(session) <= SESSION_BYTES_MAX));
}
