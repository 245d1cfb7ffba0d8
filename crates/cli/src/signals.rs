//! Signals as a channel of requests for a server; or, for a command that runs to completion, as a
//! flag that the first signal sets.

use anyhow::{Context, Result};
use larder_io::fault::{self, Thread, report_failed_part};
use larder_server::requests::{RequestReceiver, RequestSender, ServerRequest, request_channel};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1};
use signal_hook::flag;
use signal_hook::iterator::{Handle, Signals};
use signal_hook::low_level::emulate_default_handler;
use std::fmt;
use std::io::{self, Read};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

/// Makes a write beyond the limit on the size of files fail with EFBIG, like other write errors. By
/// default SIGXFSZ would end the process and lose unwritten data.
///
/// Uses a handler instead of `SIG_IGN`, which child processes would inherit.
pub(crate) fn outlive_file_size_limit() -> Result<()> {
    flag::register(libc::SIGXFSZ, Arc::default()).context("handle SIGXFSZ")?;
    Ok(())
}

/// Signals received by a thread, until dropped.
pub(crate) struct SignalChannel {
    handle: Handle,
    thread: Option<Thread>,
    receiver: RequestReceiver,
    sender: RequestSender,
    error: Arc<OnceLock<String>>,
}

impl SignalChannel {
    /// Returns the error that ended the thread. No more signals are received after it.
    pub(crate) fn error(&self) -> Option<&str> {
        self.error.get().map(String::as_str)
    }

    /// Returns a sender for other threads.
    pub(crate) fn sender(&self) -> RequestSender {
        self.sender.clone()
    }

    /// Returns the requests of signals and other threads.
    pub(crate) fn receiver(&self) -> &RequestReceiver {
        &self.receiver
    }
}

/// Starts receiving signals.
pub(crate) fn channel_of_signals() -> Result<SignalChannel> {
    let mut signals = Signals::new([SIGHUP, SIGINT, SIGTERM, libc::SIGPWR, SIGUSR1])
        .context("receive signals")?;
    let handle = signals.handle();
    let (sender, receiver) = request_channel();
    let forward_to = sender.clone();
    let to_stop = sender.clone();
    let error = Arc::new(OnceLock::new());
    let error_cell = Arc::clone(&error);
    let forward = move || {
        for signal in signals.forever() {
            fault::point("signals", "process");
            let action = match signal {
                SIGUSR1 => ServerRequest::Report,
                SIGHUP => ServerRequest::Reload,
                _ => ServerRequest::Stop,
            };
            if !forward_to.send(action) {
                return;
            }
        }
    };
    // Without this thread no signal would have an effect, not even the next SIGTERM.
    let failed = move |error: &dyn fmt::Display| {
        report_failed_part("no more signals are received, so that the program stops", error);
        // The failure handler runs once.
        let _is_first = error_cell.set(error.to_string()).is_ok();
        // A failed send means that the program has ended.
        let _is_received = to_stop.send(ServerRequest::Stop);
    };
    let thread = fault::spawn("signals", None, forward, failed)?;
    Ok(SignalChannel { handle, thread: Some(thread), receiver, sender, error })
}

impl Drop for SignalChannel {
    fn drop(&mut self) {
        self.handle.close();
        if let Some(thread) = self.thread.take() {
            thread.join();
        }
    }
}

/// Blocks until standard input ends, which happens when the parent process exits for any reason.
pub(crate) fn wait_for_end_of_input() {
    let mut nothing = [0];
    // The parent writes nothing; the read returns 0 or fails when the other end is closed.
    while matches!(std::io::stdin().read(&mut nothing), Ok(1..)) {}
}

/// Returns a flag that every signal sets that terminates an interactive program: for a program that
/// polls the flag and must restore the terminal.
pub(crate) fn termination_flag() -> Result<Arc<AtomicBool>> {
    let terminated = Arc::default();
    for number in [SIGHUP, SIGINT, SIGQUIT, SIGTERM] {
        flag::register(number, Arc::clone(&terminated)).context("receive signals")?;
    }
    Ok(terminated)
}

/// A flag that the first terminating signal sets. Other threads may set the flag too; a signal
/// after that still counts as the first.
pub(crate) struct Stop {
    flag: Arc<AtomicBool>,
    signal: Arc<AtomicUsize>,
}

/// Returns true if the parent made this process ignore a signal, as nohup(1) does.
fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    mask >> (signal - 1) & 1 == 1
}

impl Stop {
    /// Listens for signals; the second one ends the process at once.
    pub(crate) fn listen() -> Result<Self> {
        Stop::listen_with(|number, signaled| {
            flag::register_conditional_default(number, Arc::clone(signaled))
                .and_then(|_| flag::register(number, Arc::clone(signaled)))
                .map(drop)
        })
    }

    /// Listens for signals, none of which ends the process: for a command whose end leaves a mount
    /// behind. SIGQUIT still ends it at once.
    pub(crate) fn listen_only() -> Result<Self> {
        Stop::listen_with(|_, _| Ok(()))
    }

    /// Listens for signals; `on_second` registers the effect of the second one.
    fn listen_with(on_second: impl Fn(i32, &Arc<AtomicBool>) -> io::Result<()>) -> Result<Self> {
        let (flag, signaled) = (Arc::default(), Arc::new(AtomicBool::new(false)));
        let signal = Arc::default();
        // Under nohup(1) the process continues without a terminal.
        let hang_up = (!is_ignored(SIGHUP)).then_some(SIGHUP);
        for number in [SIGINT, SIGTERM].into_iter().chain(hang_up) {
            let value = usize::try_from(number).expect("signals are positive");
            on_second(number, &signaled)
                .and_then(|()| flag::register_usize(number, Arc::clone(&signal), value))
                .and_then(|_| flag::register(number, Arc::clone(&flag)))
                .context("receive signals")?;
        }
        Ok(Stop { flag, signal })
    }

    pub(crate) fn flag(&self) -> &AtomicBool {
        &self.flag
    }

    /// Returns a shared handle of the flag, for other threads that set it.
    pub(crate) fn shared_flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.flag)
    }

    /// Ends the process with the default action of the received signal, if there was one.
    pub(crate) fn reraise_signal(&self) -> Result<()> {
        let signal = i32::try_from(self.signal.load(Ordering::Acquire)).expect("it was an i32");
        if signal != 0 {
            emulate_default_handler(signal).context("end as the signal asks")?;
        }
        Ok(())
    }
}
