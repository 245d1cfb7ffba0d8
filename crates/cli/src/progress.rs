//! Progress on standard error: a bar on a terminal, a line now and then elsewhere.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use larder_io::engine::StopProgress;
use larder_report::{escape, format};
use std::io::IsTerminal;
use std::time::{Duration, Instant};

/// How often a line is printed where there is no terminal.
const LINE_EVERY: Duration = Duration::from_secs(2);

/// Time without a byte written after which a failed write shows as waiting.
const WAITING_AFTER: Duration = Duration::from_secs(1);

/// Bar of a volume that is being written.
const WRITING: &str = "{prefix} [{bar:30}] {bytes} of {total_bytes}, {binary_bytes_per_sec}, {eta} \
                       left";

/// Bar of a volume that cannot be written now.
const WAITING: &str = "{prefix} [{bar:30}] {bytes} of {total_bytes}, waiting: {msg}";

/// A bar that counts to `total`; hidden where there is no terminal.
pub(crate) fn bar(total: u64, template: &str) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::stderr());
    bar.set_style(style(template));
    bar
}

fn style(template: &str) -> ProgressStyle {
    let style = ProgressStyle::with_template(template).expect("our own template");
    style.progress_chars("=> ")
}

/// Returns the reason in an error of a store, without the operation that failed and the number of
/// the error: both have been printed before.
fn reason(error: &str) -> &str {
    let reason = error.rsplit_once(": ").map_or(error, |(_, reason)| reason);
    reason.split_once(" (os error ").map_or(reason, |(reason, _)| reason)
}

/// Progress of writing everything out: how much, how fast, how long.
#[derive(Debug)]
pub(crate) struct WriteOut {
    /// What is being done, as in "writing".
    doing: &'static str,
    volume: String,
    total: u64,
    /// Of these, written when it was first looked at, or when writing began again after a wait.
    before: u64,
    /// Of these, written when it was last looked at.
    written: u64,
    /// Time of the last look that found more written.
    grown_at: Instant,
    /// True while nothing can be written.
    is_waiting: bool,
    bar: Option<ProgressBar>,
    started: Instant,
    last_line: Option<Instant>,
    last_error: Option<String>,
}

impl WriteOut {
    pub(crate) fn new(doing: &'static str) -> Self {
        WriteOut {
            doing,
            volume: String::new(),
            total: 0,
            before: 0,
            written: 0,
            grown_at: Instant::now(),
            is_waiting: false,
            bar: None,
            started: Instant::now(),
            last_line: None,
            last_error: None,
        }
    }

    /// Shows where a stop is.
    pub(crate) fn show(&mut self, progress: &StopProgress) {
        if self.volume != progress.volume {
            self.finish();
            self.volume.clone_from(&progress.volume);
            self.total = progress.total_bytes;
            self.before = self.total.saturating_sub(progress.left_bytes);
            self.written = self.before;
            self.started = Instant::now();
            self.grown_at = self.started;
            self.is_waiting = false;
            self.last_line = None;
            self.bar = None;
            if self.total > 0 && std::io::stderr().is_terminal() {
                self.bar = Some(
                    bar(self.total, WRITING)
                        .with_prefix(format!("{} {}", self.doing, escape::text(&self.volume)))
                        .with_position(self.before),
                );
            }
        }
        if progress.error != self.last_error {
            if let Some(error) = &progress.error {
                eprintln!("larder: failed to {error}; trying again");
            }
            self.last_error.clone_from(&progress.error);
        }
        let written = self.total.saturating_sub(progress.left_bytes);
        self.look_for_growth(written, progress.error.as_deref());
        if let Some(bar) = &self.bar {
            bar.set_position(written);
        } else if self.total > 0 && self.last_line.unwrap_or(self.started).elapsed() > LINE_EVERY {
            self.last_line = Some(Instant::now());
            self.line(written);
        }
    }

    /// Finds out whether the store takes data: `error` is that of the last attempt, if it failed.
    fn look_for_growth(&mut self, written: u64, error: Option<&str>) {
        let was_waiting = self.is_waiting;
        if written > self.written {
            if was_waiting {
                // The rate is that of writing, without the wait.
                (self.before, self.started) = (self.written, Instant::now());
            }
            self.grown_at = Instant::now();
        }
        self.written = written;
        self.is_waiting = error.is_some() && self.grown_at.elapsed() >= WAITING_AFTER;
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
        eprintln!("{}", self.line_text(written));
    }

    fn line_text(&self, written: u64) -> String {
        let (doing, volume) = (self.doing, &self.volume);
        let (done, total) = (format::bytes(written), format::bytes(self.total));
        if let Some(error) = self.last_error.as_deref().filter(|_| self.is_waiting) {
            return format!("{doing} {volume}: {done} of {total}, waiting: {}", reason(error));
        }
        let seconds = self.started.elapsed().as_secs_f64();
        #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
        let rate = written.saturating_sub(self.before) as f64 / seconds.max(0.001);
        let left = if rate > 0.0 {
            #[expect(clippy::cast_precision_loss, reason = "a time for people")]
            let seconds = (self.total - written) as f64 / rate;
            format!(", {} left", format::duration(nanoseconds(seconds)))
        } else {
            String::new()
        };
        let rate = format::byte_rate(rate);
        format!("{doing} {volume}: {done} of {total}, {rate}{left}")
    }

    /// Ends the bar of the volume at hand.
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

    fn at(left_bytes: u64, error: Option<&str>) -> StopProgress {
        let (volume, error) = ("full".to_owned(), error.map(str::to_owned));
        StopProgress { volume, total_bytes: 24 << 20, left_bytes, error }
    }

    #[test]
    fn a_store_that_takes_nothing_is_waited_for_without_an_estimate() {
        const FULL: &str = "write 4096 bytes at 0 of /srv/full/big2: No space left on device (os \
                            error 28) (larder ctl remove full --give-up discards the data)";
        let mut shown = WriteOut::new("writing");
        shown.show(&at(24 << 20, None));
        shown.bar = None;
        shown.show(&at(22 << 20, Some(FULL)));
        let line = shown.line_text(2 << 20);
        assert!(line.contains(" left"), "something has just been written: {line}");
        let long_ago = Instant::now().checked_sub(WAITING_AFTER).expect("not just after a boot");
        shown.grown_at = long_ago;
        shown.show(&at(22 << 20, Some(FULL)));
        let waiting = "writing full: 2 MiB of 24 MiB, waiting: No space left on device";
        assert_eq!(shown.line_text(2 << 20), waiting);
        shown.show(&at(20 << 20, Some(FULL)));
        let line = shown.line_text(4 << 20);
        assert!(line.contains(" left") && !line.contains("waiting"), "{line}");
        assert!(shown.started > long_ago, "the rate does not count the wait");
    }
}
