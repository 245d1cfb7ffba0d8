//! Signals as a channel: what was asked for, one after the other.

use anyhow::{Context, Result};
use signal_hook::consts::{SIGINT, SIGTERM, SIGUSR1};
use signal_hook::iterator::{Handle, Signals};
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// What a signal asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    /// SIGTERM, SIGINT or SIGPWR.
    Stop,
    /// SIGUSR1: a table of counters.
    Report,
}

/// Signals received by a thread, until dropped.
pub(crate) struct SignalChannel {
    handle: Handle,
    thread: Option<JoinHandle<()>>,
    asked: Mutex<Receiver<Asked>>,
}

impl SignalChannel {
    /// What was asked for next, if anything comes within `timeout`.
    pub(crate) fn wait(&self, timeout: Duration) -> Option<Asked> {
        self.asked.lock().expect("no holder panics").recv_timeout(timeout).ok()
    }
}

/// Starts receiving signals.
pub(crate) fn channel_of_signals() -> Result<SignalChannel> {
    let mut signals =
        Signals::new([SIGINT, SIGTERM, libc::SIGPWR, SIGUSR1]).context("receive signals")?;
    let handle = signals.handle();
    let (sender, asked) = channel();
    let forward = move || {
        for signal in signals.forever() {
            let asked = if signal == SIGUSR1 { Asked::Report } else { Asked::Stop };
            if sender.send(asked).is_err() {
                return;
            }
        }
    };
    let thread = std::thread::Builder::new().name("signals".into()).spawn(forward)?;
    Ok(SignalChannel { handle, thread: Some(thread), asked: Mutex::new(asked) })
}

impl Drop for SignalChannel {
    fn drop(&mut self) {
        self.handle.close();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            eprintln!("larder: the thread that receives signals panicked");
        }
    }
}
