//! Signals as a channel: what was asked for, one after the other. Or, for a command that works
//! until it is done, as a flag that the first one raises.

use anyhow::{Context, Result};
use larder_io::fault::{self, Thread, report_failed_part};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1};
use signal_hook::flag;
use signal_hook::iterator::{Handle, Signals};
use signal_hook::low_level::emulate_default_handler;
use std::fmt;
use std::io::Read;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

/// Makes a write beyond the limit on the size of files fail with EFBIG, like other write errors. By
/// default SIGXFSZ would end the process and lose unwritten data.
///
/// Uses a handler instead of `SIG_IGN`, which child processes would inherit.
pub(crate) fn outlive_file_size_limit() -> Result<()> {
    flag::register(libc::SIGXFSZ, Arc::default()).context("handle SIGXFSZ")?;
    Ok(())
}

/// What a signal asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SignalAction {
    /// SIGTERM, SIGINT or SIGPWR.
    Stop,
    /// SIGUSR1: a table of counters.
    Report,
    /// SIGHUP: the configuration file, again.
    Reload,
}

/// Asks as a signal does.
#[derive(Clone)]
pub(crate) struct Asker {
    sender: Sender<SignalAction>,
    stop: Arc<AtomicBool>,
}

impl Asker {
    /// Sends a request; returns whether the program can still receive it.
    pub(crate) fn request(&self, asked: SignalAction) -> bool {
        if asked == SignalAction::Stop {
            self.stop.store(true, Ordering::Release);
        }
        self.sender.send(asked).is_ok()
    }

    /// Returns whether a stop was requested, also before the program receives the request.
    pub(crate) fn is_stop_asked(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }
}

/// Signals received by a thread, until dropped.
pub(crate) struct SignalChannel {
    handle: Handle,
    thread: Option<Thread>,
    asked: Mutex<Receiver<SignalAction>>,
    asker: Asker,
    error: Arc<OnceLock<String>>,
}

impl SignalChannel {
    /// Returns the error that has ended the thread. No signal is received any more.
    pub(crate) fn error(&self) -> Option<&str> {
        self.error.get().map(String::as_str)
    }

    /// For those who ask as a signal does.
    pub(crate) fn requester(&self) -> Asker {
        self.asker.clone()
    }

    /// What was asked for next, if anything comes within `timeout`.
    pub(crate) fn wait(&self, timeout: Duration) -> Option<SignalAction> {
        self.asked.lock().expect("no holder panics").recv_timeout(timeout).ok()
    }
}

/// Starts receiving signals.
pub(crate) fn channel_of_signals() -> Result<SignalChannel> {
    let mut signals = Signals::new([SIGHUP, SIGINT, SIGTERM, libc::SIGPWR, SIGUSR1])
        .context("receive signals")?;
    let handle = signals.handle();
    let (sender, receiver) = channel();
    let asker = Asker { sender, stop: Arc::default() };
    let signalled = asker.clone();
    let to_stop = asker.clone();
    let error = Arc::new(OnceLock::new());
    let to = Arc::clone(&error);
    let forward = move || {
        for signal in signals.forever() {
            fault::point("signals", "process");
            let meant = match signal {
                SIGUSR1 => SignalAction::Report,
                SIGHUP => SignalAction::Reload,
                _ => SignalAction::Stop,
            };
            if !signalled.request(meant) {
                return;
            }
        }
    };
    // Without this thread no signal would have an effect, not even the next SIGTERM.
    let failed = move |error: &dyn fmt::Display| {
        report_failed_part("no more signals are received, so that the program stops", error);
        // The thread fails once.
        let _is_first = to.set(error.to_string()).is_ok();
        // The program does not receive it only if it has ended.
        let _is_received = to_stop.request(SignalAction::Stop);
    };
    let thread = fault::spawn("signals", None, forward, failed)?;
    Ok(SignalChannel { handle, thread: Some(thread), asked: Mutex::new(receiver), asker, error })
}

impl Drop for SignalChannel {
    fn drop(&mut self) {
        self.handle.close();
        if let Some(thread) = self.thread.take() {
            thread.join();
        }
    }
}

/// Returns when standard input ends, which it does when whoever started us is gone, however that
/// came about.
pub(crate) fn wait_for_end_of_input() {
    let mut nothing = [0];
    // Nobody writes to it; it ends, or fails, when the other side is gone.
    while matches!(std::io::stdin().read(&mut nothing), Ok(1..)) {}
}

/// A flag that every signal raises by which a program at a terminal is ended: for one that looks at
/// it often, and has the terminal to restore.
pub(crate) fn ended() -> Result<Arc<AtomicBool>> {
    let ended = Arc::default();
    for number in [SIGHUP, SIGINT, SIGQUIT, SIGTERM] {
        flag::register(number, Arc::clone(&ended)).context("receive signals")?;
    }
    Ok(ended)
}

/// Raised by the first signal that asks for an end; the second one ends the process at once. It may
/// be raised by others too, and then the first signal still is the first.
pub(crate) struct Stop {
    stopped: Arc<AtomicBool>,
    signal: Arc<AtomicUsize>,
}

/// Whether whoever started this process has it ignore a signal, as nohup(1) does.
fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    mask >> (signal - 1) & 1 == 1
}

impl Stop {
    pub(crate) fn listen() -> Result<Self> {
        let (stopped, signalled) = (Arc::default(), Arc::new(AtomicBool::new(false)));
        let signal = Arc::default();
        // Who was told to go on without a terminal does.
        let hang_up = (!is_ignored(SIGHUP)).then_some(SIGHUP);
        for number in [SIGINT, SIGTERM].into_iter().chain(hang_up) {
            let value = usize::try_from(number).expect("signals are positive");
            flag::register_conditional_default(number, Arc::clone(&signalled))
                .and_then(|_| flag::register(number, Arc::clone(&signalled)))
                .and_then(|_| flag::register_usize(number, Arc::clone(&signal), value))
                .and_then(|_| flag::register(number, Arc::clone(&stopped)))
                .context("receive signals")?;
        }
        Ok(Stop { stopped, signal })
    }

    /// The flag.
    pub(crate) fn flag(&self) -> &AtomicBool {
        &self.stopped
    }

    /// The same, to be raised by others.
    pub(crate) fn raised(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.stopped)
    }

    /// Ends the process as the signal would have, if there was one.
    pub(crate) fn end(&self) -> Result<()> {
        let signal = i32::try_from(self.signal.load(Ordering::Acquire)).expect("it was an i32");
        if signal != 0 {
            emulate_default_handler(signal).context("end as the signal asks")?;
        }
        Ok(())
    }
}
