//! Garbage on the socket: a malformed client never hurts another.
//!
//! Sessions are lists of messages; valid ones come from `xtask/corpus`, and from each the fuzzer
//! makes broken ones by a seed. They go to the export `fuzz` of a server whose other export,
//! `healthy`, is written and verified by a client all the time. The server must live, the healthy
//! client must meet no error, no wrong byte and no long wait, and at the end the server must hold
//! no more files open and hardly more memory than before.
//!
//! A session is interesting if the server answers it in a way not seen before; such sessions join
//! the corpus of the run, and with `--keep` the one in the tree.

mod corpus;
mod mutate;

use std::collections::{BTreeSet, VecDeque};
use std::io::{Read as _, Write as _};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

use self::corpus::Session;
use super::{Claims, Lab};
use crate::image::{self, MIB};
use crate::nbd::Client;
use crate::random::Random;
use crate::server::{Larder, Server};

/// How long a fuzzed session may wait for an answer that may never come.
const ANSWER_MAX: Duration = Duration::from_millis(20);

/// How long the healthy client may wait for one answer.
const HEALTHY_MAX: Duration = Duration::from_secs(10);

/// More of an answer is not looked at.
const ANSWER_BYTES: usize = 1 << 16;

/// How much memory may grow: buffers and tables that the first broken sessions made.
const GROWTH_BYTES_MAX: u64 = 32 * MIB;

/// How many more files may be open than before.
const GROWTH_FILES_MAX: usize = 2;

/// So many sessions are shown if the server ended.
const LAST_SHOWN: usize = 3;

/// The handshake may last so long before the server gives a silent client up.
const SETTLE_MAX: Duration = Duration::from_mins(1);

/// The kinds of replies in an answer.
type Form = BTreeSet<[u8; 4]>;

/// Runs the fuzzer for the time that was asked for.
pub(super) fn run(lab: &Lab, claims: &mut Claims) -> Result<()> {
    let long = lab.either(Duration::from_hours(1), Duration::from_secs(5));
    let span = lab.options.fuzz.unwrap_or(long);
    let what = format!("garbage on the socket for {} s, seed {}", span.as_secs(), lab.options.seed);
    let dir = lab.file("fuzz-images");
    std::fs::create_dir(&dir).context("make a directory")?;
    let volume = |name: &str| -> Result<String> {
        let path = image::sparse(&dir.join(name), 16 * MIB)?;
        Ok(format!("{name}={}", path.display()))
    };
    let recipe = Larder {
        binary: lab.binary.clone(),
        volumes: vec![volume("healthy")?, volume("fuzz")?],
        options: vec!["--memory".into(), "16MiB".into()],
    };
    let mut server = Server::start(&recipe, lab.dir())?;
    claims.tried(what, || fuzz(lab, &mut server, span));
    claims.tried("after the garbage: stops clean", || {
        server.stop_clean()?;
        Ok("exit code 0".into())
    });
    Ok(())
}

fn fuzz(lab: &Lab, server: &mut Server, span: Duration) -> Result<String> {
    let sessions = corpus::load(&lab.root)?;
    let socket = server.socket();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let healthy = scope.spawn(|| healthy(&socket, &stop));
        let outcome = attack(lab, server, sessions, span, || healthy.is_finished());
        stop.store(true, Ordering::Relaxed);
        let healthy = healthy.join().ok().context("the healthy client panicked")?;
        let (count, found) = outcome?;
        let (verified, slowest) = healthy.context("the healthy client")?;
        ensure!(slowest < HEALTHY_MAX, "the healthy client waited {} ms", slowest.as_millis());
        Ok(format!(
            "{count} sessions, {found} new answers; healthy: {verified} requests, slowest {} ms",
            slowest.as_millis()
        ))
    })
}

/// Sends sessions until the time is over; answers how many, and how many met a new answer.
fn attack(
    lab: &Lab,
    server: &mut Server,
    mut sessions: Vec<Session>,
    span: Duration,
    hurt: impl Fn() -> bool,
) -> Result<(u64, usize)> {
    let socket = server.socket();
    let mut seen = Form::new();
    for session in &sessions {
        seen.append(&mut send(&socket, session)?);
    }
    settle(server, usize::MAX)?;
    let (files, memory) = (server.open_files()?, server.memory_bytes("VmRSS")?);
    let mut random = Random::seeded(lab.options.seed);
    let (begun, mut count, mut found) = (Instant::now(), 0_u64, 0);
    let mut last = VecDeque::new();
    while begun.elapsed() < span && !hurt() {
        let session = mutate::mutate(&sessions, &mut random);
        count += 1;
        last.push_back(session.to_hex());
        if last.len() > LAST_SHOWN {
            last.pop_front();
        }
        let Ok(mut form) = send(&socket, &session) else {
            break;
        };
        if !form.is_subset(&seen) {
            seen.append(&mut form);
            found += 1;
            if lab.options.keep {
                corpus::keep(&lab.root, &session)?;
            }
            sessions.push(session);
        }
    }
    server.check_alive().with_context(|| {
        let last = last.make_contiguous().join("\n");
        format!("the server ended after {count} sessions; the last were\n{last}")
    })?;
    Client::connect(&socket, "fuzz").context("the server takes no new client")?;
    settle(server, files + GROWTH_FILES_MAX)?;
    let now = server.memory_bytes("VmRSS")?;
    // The cache itself may have filled in the meantime.
    let most = memory + GROWTH_BYTES_MAX;
    ensure!(now <= most, "memory grew from {} to {} MiB", memory / MIB, now / MIB);
    Ok((count, found))
}

/// Waits until the server has closed what the sessions left open.
fn settle(server: &Server, files_max: usize) -> Result<()> {
    let begun = Instant::now();
    std::thread::sleep(Duration::from_millis(200));
    loop {
        let open = server.open_files()?;
        if open <= files_max {
            return Ok(());
        }
        ensure!(begun.elapsed() < SETTLE_MAX, "{open} files open, at most {files_max} before");
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Sends a session and answers the form of what came back.
fn send(socket: &Path, session: &Session) -> Result<Form> {
    let mut stream = UnixStream::connect(socket).context("connect to the server")?;
    stream.set_read_timeout(Some(ANSWER_MAX)).context("set a timeout")?;
    stream.set_write_timeout(Some(ANSWER_MAX)).context("set a timeout")?;
    let mut answer = Vec::new();
    for message in &session.messages {
        // The server may hang up at any time: that is an answer too.
        if stream.write_all(message).is_err() {
            break;
        }
    }
    if session.half_close {
        drop(stream.shutdown(Shutdown::Write));
    }
    let mut part = vec![0; 1 << 14];
    while answer.len() < ANSWER_BYTES {
        match stream.read(&mut part) {
            Ok(0) | Err(_) => break,
            Ok(count) => answer.extend_from_slice(&part[..count]),
        }
    }
    Ok(form(&answer))
}

/// What distinguishes answers: which kinds and errors occur, without handles and data.
fn form(answer: &[u8]) -> Form {
    const OPTION_REPLY: [u8; 4] = [0x00, 0x03, 0xe8, 0x89];
    const SIMPLE: [u8; 4] = [0x67, 0x44, 0x66, 0x98];
    const CHUNK: [u8; 4] = [0x66, 0x8e, 0x33, 0xef];
    let mut form = Form::new();
    for here in answer.windows(16) {
        if here.starts_with(&OPTION_REPLY) {
            // Which option (unknown ones are all the same), and how it was answered.
            form.insert([1, here[11].min(11), here[12], here[15]]);
        } else if here.starts_with(&SIMPLE) {
            form.insert([2, here[7], 0, 0]);
        } else if here.starts_with(&CHUNK) {
            form.insert([3, here[5], here[6], here[7]]);
        }
    }
    form
}

/// Writes, flushes and verifies until told to stop; answers requests and the longest wait.
fn healthy(socket: &Path, stop: &AtomicBool) -> Result<(u64, Duration)> {
    let mut client = Client::connect(socket, "healthy")?;
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
