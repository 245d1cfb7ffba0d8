//! The connection of a rank to the leader.
//!
//! Invariants: when the leader announces the end, or is disconnected, the stop flag of the
//! benchmark is set, so that the current trial ends soon and cleans up; the reason is kept.

use super::coordinator::{KEEP_ALIVE_INTERVAL, SILENCE_MAX};
use super::link::{self, Hello, LINE_BYTES_MAX, Link, Message};
use anyhow::{Result, bail};
use larder_lab::bench::{BenchError, Ranks};
use serde_json::Value;
use std::io::{BufRead, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Interval at which a waiting rank checks for a stop.
const STOP_CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// The connection of a rank to the leader.
pub(in super::super) struct Communicator {
    is_rank_0: bool,
    shared: Arc<Shared>,
    released: Mutex<Receiver<(String, Vec<Value>)>>,
}

struct Shared {
    writer: Mutex<Box<dyn Write + Send>>,
    last_message_at: Mutex<Instant>,
    /// Reason for the end of the run, unless this rank ended it.
    end_reason: Mutex<Option<String>>,
    stop: Arc<AtomicBool>,
    /// True once this rank sends no more messages.
    is_over: AtomicBool,
}

/// Locks a mutex whose data is consistent even if a holder has panicked.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
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

    /// Ends the run; the first reason is kept.
    fn end(&self, reason: &str) {
        if !self.is_over.load(Ordering::Acquire) {
            lock(&self.end_reason).get_or_insert_with(|| reason.to_owned());
            self.stop.store(true, Ordering::Relaxed);
        }
    }

    fn listen(&self, mut reader: Box<dyn BufRead + Send>, released: &Sender<(String, Vec<Value>)>) {
        loop {
            match link::read(&mut reader, LINE_BYTES_MAX) {
                Ok(Some(Message::Alive)) => {}
                Ok(Some(Message::Go(barrier, values))) => {
                    if released.send((barrier, values)).is_err() {
                        return;
                    }
                }
                Ok(Some(Message::Ends(reason))) => return self.end(&reason),
                _ => return self.end("the rank that leads is gone"),
            }
            *lock(&self.last_message_at) = Instant::now();
        }
    }

    /// Sends keep-alive messages until the run is over.
    fn send_keep_alives(&self) {
        while !self.is_over.load(Ordering::Acquire) && lock(&self.end_reason).is_none() {
            self.send(&Message::Alive);
            if lock(&self.last_message_at).elapsed() > SILENCE_MAX {
                self.end("the rank that leads has said nothing for a long time");
            }
            std::thread::sleep(KEEP_ALIVE_INTERVAL);
        }
    }
}

impl Communicator {
    /// Sends the first message of this rank, and waits until all ranks have joined. `stop` is set
    /// at the end of the run.
    pub(super) fn join(hello: Hello, link: Link, stop: Arc<AtomicBool>) -> Result<Self> {
        let Link { mut reader, mut writer } = link;
        let is_rank_0 = hello.rank == 0;
        let disconnected = |_| anyhow::anyhow!("meet the others: the one that leads is gone");
        link::write(&mut writer, &Message::Hello(hello)).map_err(disconnected)?;
        loop {
            match link::read(&mut reader, LINE_BYTES_MAX).map_err(disconnected)? {
                Some(Message::Alive) => {}
                Some(Message::Welcome) => break,
                Some(Message::Ends(reason)) => bail!("meet the others: {reason}"),
                _ => bail!("meet the others: the one that leads is gone"),
            }
        }
        let shared = Arc::new(Shared {
            writer: Mutex::new(writer),
            last_message_at: Mutex::new(Instant::now()),
            end_reason: Mutex::new(None),
            stop,
            is_over: AtomicBool::new(false),
        });
        let (sender, released) = channel();
        let (listener, keep_alive) = (Arc::clone(&shared), Arc::clone(&shared));
        std::thread::spawn(move || listener.listen(reader, &sender));
        std::thread::spawn(move || keep_alive.send_keep_alives());
        Ok(Communicator { is_rank_0, shared, released: Mutex::new(released) })
    }

    /// Returns true for rank 0.
    pub(in super::super) fn is_rank_0(&self) -> bool {
        self.is_rank_0
    }

    /// Returns the reason for the end of the run, unless this rank ended it.
    pub(in super::super) fn reason(&self) -> Option<String> {
        lock(&self.shared.end_reason).clone()
    }

    /// Leaves the run, after this rank has cleaned up; with the reason if it is premature, and not
    /// caused by another rank.
    pub(in super::super) fn leave(&self, reason: Option<&str>) {
        self.shared.is_over.store(true, Ordering::Release);
        self.shared.send(&reason.map_or(Message::Bye, |reason| Message::Ends(reason.to_owned())));
    }
}

impl Ranks for Communicator {
    fn wait_at_barrier(&self, barrier: &str, value: Value) -> Result<Vec<Value>, BenchError> {
        self.shared.send(&Message::At(barrier.to_owned(), value));
        let released = lock(&self.released);
        loop {
            match released.recv_timeout(STOP_CHECK_INTERVAL) {
                Ok((reached, values)) if reached == barrier => return Ok(values),
                Ok((reached, _)) => {
                    self.shared
                        .end(&format!("the others are at \"{reached}\", not at \"{barrier}\""));
                    return Err(BenchError::Stopped);
                }
                Err(RecvTimeoutError::Timeout) if !self.shared.stop.load(Ordering::Relaxed) => {}
                Err(_) => return Err(BenchError::Stopped),
            }
        }
    }
}
