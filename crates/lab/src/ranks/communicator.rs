//! The connection of a rank to the leader.
//!
//! Invariants: when the leader announces the end, or is disconnected, the stop flag of the
//! benchmark is set, so that the current trial ends soon and cleans up; the reason is kept.

use super::coordinator::{KEEP_ALIVE_INTERVAL, RESULT, SILENCE_MAX};
use super::link::{self, Hello, LINE_BYTES_MAX, Link, Message};
use crate::bench::{BenchError, Ranks, RunResult};
use serde_json::Value;
use std::io::{BufRead, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Interval at which a waiting rank checks for a stop.
const STOP_CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// The connection of a rank to the leader.
pub struct Communicator {
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
        out.write_str("Communicator")
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
                self.end("the rank that leads has sent nothing for a long time");
            }
            std::thread::sleep(KEEP_ALIVE_INTERVAL);
        }
    }
}

impl Communicator {
    /// Sends the first message of this rank, and waits until all ranks have joined. `stop` is set
    /// at the end of the run.
    ///
    /// # Errors
    /// The leader is gone, or ends the run; the text is a verb phrase that follows "cannot".
    pub fn join(hello: Hello, link: Link, stop: Arc<AtomicBool>) -> Result<Self, String> {
        let Link { mut reader, mut writer } = link;
        let is_rank_0 = hello.rank == 0;
        let disconnected = "meet the others: the one that leads is gone";
        link::write(&mut writer, &Message::Hello(hello)).map_err(|_closed| disconnected)?;
        loop {
            match link::read(&mut reader, LINE_BYTES_MAX) {
                Ok(Some(Message::Alive)) => {}
                Ok(Some(Message::Welcome)) => break,
                Ok(Some(Message::Ends(reason))) => {
                    return Err(format!("meet the others: {reason}"));
                }
                _ => return Err(disconnected.to_owned()),
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
    pub fn is_rank_0(&self) -> bool {
        self.is_rank_0
    }

    /// Hands over the result of this rank after it has cleaned up, and leaves the run. All ranks
    /// must have a result: a run that was stopped is an error.
    ///
    /// # Errors
    /// The reason for which there is no result.
    pub fn finish(&self, result: Result<RunResult, BenchError>) -> Result<(), RankError> {
        let result = result.and_then(|RunResult { run, stopped }| {
            if stopped {
                return Err(BenchError::Stopped);
            }
            let run = serde_json::to_value(&run);
            let run = run.map_err(|error| BenchError::Failed(format!("hand over: {error}")))?;
            self.wait_at_barrier(RESULT, run)
        });
        let Err(error) = result else {
            self.leave(None);
            return Ok(());
        };
        let by_others = lock(&self.shared.end_reason).clone();
        let own_reason =
            if error.is_stop() { "it was stopped".to_owned() } else { error.to_string() };
        self.leave(by_others.is_none().then_some(own_reason));
        Err(by_others.map_or(RankError::Own(error), RankError::Others))
    }

    /// Leaves the run; with the reason if it is premature, and not caused by another rank.
    fn leave(&self, reason: Option<String>) {
        self.shared.is_over.store(true, Ordering::Release);
        self.shared.send(&reason.map_or(Message::Bye, Message::Ends));
    }
}

/// The reason for which a rank has no result.
#[derive(Debug)]
pub enum RankError {
    /// The rank itself failed or was stopped.
    Own(BenchError),
    /// Another rank or the leader ended the run, for this reason.
    Others(String),
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
