//! The others, as one rank sees them.
//!
//! Invariants: when the leader says that it is over, or is gone, the flag that the player looks at
//! is raised, so that the trial at hand ends soon and cleans up; why is kept.

use super::coordinator::{ALIVE_EVERY, SILENCE_MAX};
use super::link::{self, Hello, LINE_BYTES_MAX, Link, Message};
use anyhow::{Result, bail};
use larder_lab::bench::{BenchError, Ranks};
use serde_json::Value;
use std::io::{BufRead, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How often a wish to stop is looked for while waiting.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// The way to the leader.
pub(super) struct Communicator {
    first: bool,
    shared: Arc<Shared>,
    gone_on: Mutex<Receiver<(String, Vec<Value>)>>,
}

struct Shared {
    writer: Mutex<Box<dyn Write + Send>>,
    heard: Mutex<Instant>,
    /// Why it is over, if it is and not by us.
    why: Mutex<Option<String>>,
    stop: Arc<AtomicBool>,
    /// Nothing is said any more.
    over: AtomicBool,
}

/// What a lock guards here is whole at any time.
fn lock<T>(of: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl std::fmt::Debug for Communicator {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("Company")
    }
}

impl Shared {
    fn send(&self, message: &Message) {
        if link::write(&mut *lock(&self.writer), message).is_err() {
            self.end("the rank that leads is gone");
        }
    }

    /// It is over; the first reason counts.
    fn end(&self, why: &str) {
        if !self.over.load(Ordering::Acquire) {
            lock(&self.why).get_or_insert_with(|| why.to_owned());
            self.stop.store(true, Ordering::Relaxed);
        }
    }

    fn listen(&self, mut reader: Box<dyn BufRead + Send>, gone_on: &Sender<(String, Vec<Value>)>) {
        loop {
            match link::read(&mut reader, LINE_BYTES_MAX) {
                Ok(Some(Message::Alive)) => {}
                Ok(Some(Message::Go(place, said))) => {
                    if gone_on.send((place, said)).is_err() {
                        return;
                    }
                }
                Ok(Some(Message::Ends(why))) => return self.end(&why),
                _ => return self.end("the rank that leads is gone"),
            }
            *lock(&self.heard) = Instant::now();
        }
    }

    /// Says that we are still here, until it is over.
    fn stay_alive(&self) {
        while !self.over.load(Ordering::Acquire) && lock(&self.why).is_none() {
            self.send(&Message::Alive);
            if lock(&self.heard).elapsed() > SILENCE_MAX {
                self.end("the rank that leads has said nothing for a long time");
            }
            std::thread::sleep(ALIVE_EVERY);
        }
    }
}

impl Communicator {
    /// Says who we are, and waits until all are there. `stop` is raised when it is over.
    pub(super) fn join(hello: Hello, link: Link, stop: Arc<AtomicBool>) -> Result<Self> {
        let Link { mut reader, mut writer } = link;
        let first = hello.rank == 0;
        let gone = |_| anyhow::anyhow!("meet the others: the one that leads is gone");
        link::write(&mut writer, &Message::Hello(hello)).map_err(gone)?;
        loop {
            match link::read(&mut reader, LINE_BYTES_MAX).map_err(gone)? {
                Some(Message::Alive) => {}
                Some(Message::Welcome) => break,
                Some(Message::Ends(why)) => bail!("meet the others: {why}"),
                _ => bail!("meet the others: the one that leads is gone"),
            }
        }
        let shared = Arc::new(Shared {
            writer: Mutex::new(writer),
            heard: Mutex::new(Instant::now()),
            why: Mutex::new(None),
            stop,
            over: AtomicBool::new(false),
        });
        let (sender, gone_on) = channel();
        let (listening, living) = (Arc::clone(&shared), Arc::clone(&shared));
        std::thread::spawn(move || listening.listen(reader, &sender));
        std::thread::spawn(move || living.stay_alive());
        Ok(Communicator { first, shared, gone_on: Mutex::new(gone_on) })
    }

    /// Whether this is rank 0.
    pub(super) fn is_first(&self) -> bool {
        self.first
    }

    /// Why it is over, if not by us.
    pub(super) fn reason(&self) -> Option<String> {
        lock(&self.shared.why).clone()
    }

    /// Leaves, when everything that was made here is removed; with why if it is too early, and
    /// that not because of others.
    pub(super) fn leave(&self, why: Option<&str>) {
        self.shared.over.store(true, Ordering::Release);
        self.shared.send(&why.map_or(Message::Bye, |why| Message::Ends(why.to_owned())));
    }
}

impl Ranks for Communicator {
    fn wait_at_barrier(&self, place: &str, said: Value) -> Result<Vec<Value>, BenchError> {
        self.shared.send(&Message::At(place.to_owned(), said));
        let gone_on = lock(&self.gone_on);
        loop {
            match gone_on.recv_timeout(LOOK_EVERY) {
                Ok((met, said)) if met == place => return Ok(said),
                Ok((met, _)) => {
                    self.shared.end(&format!("the others are at \"{met}\", not at \"{place}\""));
                    return Err(BenchError::Stopped);
                }
                Err(RecvTimeoutError::Timeout) if !self.shared.stop.load(Ordering::Relaxed) => {}
                Err(_) => return Err(BenchError::Stopped),
            }
        }
    }
}
