//! The log on standard error: warnings and errors, or the levels that `LARDER_LOG` selects, and
//! panics.
//!
//! `LARDER_LOG` is a level (`info`) or a list of levels by module (`warn,larder_io::store=debug`).

use std::backtrace::{Backtrace, BacktraceStatus};
use std::io::{self, Write};
use std::panic::PanicHookInfo;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// The environment variable that selects levels.
const VARIABLE: &str = "LARDER_LOG";

/// Writes each entry as one line.
struct Lines;

impl Write for Lines {
    /// Receives a whole entry, which the layer writes in one call.
    fn write(&mut self, entry: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(entry);
        crate::output::error_line(text.strip_suffix('\n').unwrap_or(&text));
        Ok(entry.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Prints a panic as one line. The hook of the standard library would pass control characters in
/// the message and in the thread name to the terminal.
fn print_panic(panic: &PanicHookInfo<'_>) {
    let thread = std::thread::current();
    let name = thread.name().unwrap_or("without a name");
    let at = panic.location().map_or_else(String::new, |location| format!(" at {location}"));
    let message = panic.payload_as_str().unwrap_or("no message");
    crate::output::error_line(&format!("larder: the thread {name} panicked{at}: {message}"));
    let backtrace = Backtrace::capture();
    if backtrace.status() == BacktraceStatus::Captured {
        backtrace.to_string().lines().for_each(crate::output::error_line);
    }
}

/// Starts the log of this process.
pub(crate) fn start() {
    std::panic::set_hook(Box::new(print_panic));
    let value = std::env::var(VARIABLE).ok().filter(|text| !text.is_empty());
    let parsed = value.as_deref().map(str::parse::<Targets>);
    let is_invalid = matches!(parsed, Some(Err(_)));
    let warnings = Targets::new().with_default(LevelFilter::WARN);
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(|| Lines)
        // ANSI colors are escape sequences, and would look the same as escape sequences in
        // names.
        .with_ansi(false)
        // An internal error would be reported on standard error, which has just failed.
        .log_internal_errors(false);
    let filter = parsed.and_then(Result::ok).unwrap_or(warnings);
    tracing_subscriber::registry().with(lines).with(filter).init();
    if is_invalid {
        tracing::warn!(
            "cannot parse {VARIABLE}; logging warnings and errors (set a level such as info, or \
             MODULE=LEVEL,...)"
        );
    }
}
