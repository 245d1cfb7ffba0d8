//! Progress on standard error: a bar on a terminal, periodic lines elsewhere.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};
use larder_io::engine::StopProgress;
use larder_lab::sim::sizing::Progress;
use larder_report::escape;
use larder_schema::{as_f64, as_u64, format};
use std::fmt;
use std::time::{Duration, Instant};

/// Interval between lines if standard error is not a terminal.
const LINE_EVERY: Duration = Duration::from_secs(2);

/// Time after which a bar shows a rate.
const RATE_AFTER: Duration = Duration::from_millis(500);

/// Time without progress after which a failed write is shown as waiting.
const WAITING_AFTER: Duration = Duration::from_secs(1);

/// Template for a volume that is being written.
const WRITING: &str = "{prefix} [{bar:30}] {bytes} of {total_bytes}, {binary_bytes_per_sec}, {eta} \
                       left";

/// Template for a volume whose store accepts no writes.
const WAITING: &str = "{prefix} [{bar:30}] {bytes} of {total_bytes}, waiting: {msg}";

/// Returns a bar that counts to `total`; hidden if there is no progress to show.
pub(crate) fn bar(total: u64, template: &str) -> ProgressBar {
    let is_shown = crate::output::shows_progress();
    let target = if is_shown { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
    let bar = ProgressBar::with_draw_target(Some(total), target);
    bar.set_style(style(template));
    bar
}

/// Returns a bar of bytes with their rate and the remaining time; hidden if there is no progress to
/// show.
pub(crate) fn byte_bar(total: u64, verb: &str) -> ProgressBar {
    let rest = "[{bar:30}] {bytes} of {total_bytes}, {binary_bytes_per_sec}, {eta} left";
    bar(total, &format!("{verb} {rest}"))
}

fn style(template: &str) -> ProgressStyle {
    let style = ProgressStyle::with_template(template).expect("our own template");
    style
        .with_key("count", |state: &ProgressState, text: &mut dyn fmt::Write| {
            write(text, &format::short_count(state.pos()));
        })
        .with_key("total", |state: &ProgressState, text: &mut dyn fmt::Write| {
            write(text, &format::short_count(state.len().unwrap_or(0)));
        })
        .with_key("rate", write_rate)
        .progress_chars("=> ")
}

fn write(text: &mut dyn fmt::Write, part: &str) {
    let is_written = text.write_str(part);
    debug_assert!(is_written.is_ok(), "a bar is written into memory");
}

/// Writes the mean rate of a bar and the remaining time; the first moments tell nothing about them.
fn write_rate(state: &ProgressState, text: &mut dyn fmt::Write) {
    if state.elapsed() < RATE_AFTER {
        return;
    }
    let rate = as_u64(as_f64(state.pos()) / state.elapsed().as_secs_f64());
    write(text, &format!(", {}/s", format::short_count(rate)));
    if state.len().is_some_and(|len| len > 0) {
        write(text, &format!(", {} s left", state.eta().as_secs()));
    }
}

/// Returns the reason in an error of a store, without the failed operation and the error number:
/// both have been printed before.
fn reason(error: &str) -> &str {
    let reason = error.rsplit_once(": ").map_or(error, |(_, reason)| reason);
    reason.split_once(" (os error ").map_or(reason, |(reason, _)| reason)
}

/// A bar for each step of a simulation; hidden if standard error is not a terminal.
#[derive(Debug, Default)]
pub(crate) struct StepBar {
    step: &'static str,
    bar: Option<ProgressBar>,
}

impl StepBar {
    pub(crate) fn show(&mut self, progress: Progress) {
        if !crate::output::shows_progress() {
            return;
        }
        if self.step != progress.step {
            self.end();
            self.step = progress.step;
            let template = if progress.total > 0 {
                "{msg} [{wide_bar}] {count} of {total} references{rate}"
            } else {
                "{msg}: {count} references{rate}"
            };
            self.bar = Some(bar(progress.total, template).with_message(progress.step));
        }
        if let Some(bar) = &self.bar {
            bar.set_length(progress.total);
            bar.set_position(progress.done);
        }
    }

    fn end(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}

impl Drop for StepBar {
    fn drop(&mut self) {
        self.end();
    }
}

/// Progress of writing all dirty data of a volume: bytes, rate, remaining time.
#[derive(Debug)]
pub(crate) struct WritebackProgress {
    /// Verb in the output, as in "writing".
    verb: &'static str,
    volume: String,
    total: u64,
    /// Bytes written at the first report, or when writing resumed after a wait: the rate counts
    /// from here.
    rate_base: u64,
    /// Bytes written at the last report.
    written: u64,
    /// Time of the last report with progress.
    progressed_at: Instant,
    /// True while the store accepts no writes.
    is_waiting: bool,
    bar: Option<ProgressBar>,
    started: Instant,
    last_line: Option<Instant>,
    last_error: Option<String>,
}

impl WritebackProgress {
    pub(crate) fn new(verb: &'static str) -> Self {
        WritebackProgress {
            verb,
            volume: String::new(),
            total: 0,
            rate_base: 0,
            written: 0,
            progressed_at: Instant::now(),
            is_waiting: false,
            bar: None,
            started: Instant::now(),
            last_line: None,
            last_error: None,
        }
    }

    pub(crate) fn show(&mut self, progress: &StopProgress) {
        if self.volume != progress.volume {
            self.finish();
            self.volume.clone_from(&progress.volume);
            self.total = progress.total_bytes;
            self.rate_base = self.total.saturating_sub(progress.left_bytes);
            self.written = self.rate_base;
            self.started = Instant::now();
            self.progressed_at = self.started;
            self.is_waiting = false;
            self.last_line = None;
            self.bar = None;
            if self.total > 0 && crate::output::shows_progress() {
                self.bar = Some(
                    bar(self.total, WRITING)
                        .with_prefix(format!("{} {}", self.verb, escape::text(&self.volume)))
                        .with_position(self.rate_base),
                );
            }
        }
        if progress.error != self.last_error {
            if let Some(error) = &progress.error {
                eprintln!("larder: cannot {error}; trying again");
            }
            self.last_error.clone_from(&progress.error);
        }
        let written = self.total.saturating_sub(progress.left_bytes);
        self.update_waiting(written, progress.error.as_deref());
        if let Some(bar) = &self.bar {
            bar.set_position(written);
        } else if self.total > 0 && self.last_line.unwrap_or(self.started).elapsed() > LINE_EVERY {
            self.last_line = Some(Instant::now());
            self.line(written);
        }
    }

    /// Detects from the bytes written whether the store accepts writes; `error` is that of the last
    /// attempt, if it failed.
    fn update_waiting(&mut self, written: u64, error: Option<&str>) {
        let was_waiting = self.is_waiting;
        if written > self.written {
            if was_waiting {
                // The rate is that of writing, without the wait.
                (self.rate_base, self.started) = (self.written, Instant::now());
            }
            self.progressed_at = Instant::now();
        }
        self.written = written;
        self.is_waiting = error.is_some() && self.progressed_at.elapsed() >= WAITING_AFTER;
        if let Some(bar) = &self.bar {
            if let Some(error) = error.filter(|_| self.is_waiting) {
                bar.set_message(escape::text(reason(error)).to_string());
            }
            if self.is_waiting != was_waiting {
                bar.set_style(style(if self.is_waiting { WAITING } else { WRITING }));
                bar.reset_eta();
            }
        }
    }

    fn line(&self, written: u64) {
        crate::output::progress_line(&self.line_text(written));
    }

    fn line_text(&self, written: u64) -> String {
        let (verb, volume) = (self.verb, &self.volume);
        let (done, total) = (format::bytes(written), format::bytes(self.total));
        if let Some(error) = self.last_error.as_deref().filter(|_| self.is_waiting) {
            return format!("{verb} {volume}: {done} of {total}, waiting: {}", reason(error));
        }
        let seconds = self.started.elapsed().as_secs_f64();
        #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
        let rate = written.saturating_sub(self.rate_base) as f64 / seconds.max(0.001);
        let left = if rate > 0.0 && written < self.total {
            #[expect(clippy::cast_precision_loss, reason = "a time for people")]
            let seconds = (self.total - written) as f64 / rate;
            format!(", {} left", format::duration(nanoseconds(seconds)))
        } else {
            String::new()
        };
        let rate = format::byte_rate(rate);
        format!("{verb} {volume}: {done} of {total}, {rate}{left}")
    }

    /// Ends the bar of the current volume.
    pub(crate) fn finish(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish();
        }
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a time for people")]
fn nanoseconds(seconds: f64) -> u64 {
    (seconds * 1e9) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn progress(left_bytes: u64, error: Option<&str>) -> StopProgress {
        let (volume, error) = ("full".to_owned(), error.map(str::to_owned));
        StopProgress { volume, total_bytes: 24 << 20, left_bytes, error }
    }

    #[test]
    fn a_store_that_takes_nothing_is_waited_for_without_an_estimate() {
        const FULL: &str = "write 4096 bytes at 0 of /srv/full/big2: No space left on device (os \
                            error 28) (larder ctl remove full --give-up discards the data)";
        let mut display = WritebackProgress::new("writing");
        display.show(&progress(24 << 20, None));
        display.bar = None;
        display.show(&progress(22 << 20, Some(FULL)));
        let line = display.line_text(2 << 20);
        assert!(line.contains(" left"), "something has just been written: {line}");
        let long_ago = Instant::now().checked_sub(WAITING_AFTER).expect("not just after a boot");
        display.progressed_at = long_ago;
        display.show(&progress(22 << 20, Some(FULL)));
        let waiting = "writing full: 2 MiB of 24 MiB, waiting: No space left on device";
        assert_eq!(display.line_text(2 << 20), waiting);
        display.show(&progress(20 << 20, Some(FULL)));
        let line = display.line_text(4 << 20);
        assert!(line.contains(" left") && !line.contains("waiting"), "{line}");
        assert!(display.started > long_ago, "the rate does not count the wait");
        assert!(!display.line_text(24 << 20).contains(" left"), "all has been written");
    }
}
