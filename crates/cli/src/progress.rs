//! Progress on standard error: a bar on a terminal, a line now and then elsewhere.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use larder_io::engine::StopProgress;
use larder_report::{escape, format};
use std::io::IsTerminal;
use std::time::{Duration, Instant};

/// How often a line is printed where there is no terminal.
const LINE_EVERY: Duration = Duration::from_secs(2);

/// A bar that counts to `total`; hidden where there is no terminal.
pub(crate) fn bar(total: u64, template: &str) -> ProgressBar {
    let style = ProgressStyle::with_template(template).expect("our own template");
    let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::stderr());
    bar.set_style(style.progress_chars("=> "));
    bar
}

/// Progress of writing everything out: how much, how fast, how long.
#[derive(Debug)]
pub(crate) struct WriteOut {
    /// What is being done, as in "writing".
    doing: &'static str,
    volume: String,
    total: u64,
    /// Of these, written when it was first looked at.
    before: u64,
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
            self.started = Instant::now();
            self.last_line = None;
            self.bar = None;
            if self.total > 0 && std::io::stderr().is_terminal() {
                let template = "{prefix} [{bar:30}] {bytes} of {total_bytes}, \
                                {binary_bytes_per_sec}, {eta} left";
                self.bar = Some(
                    bar(self.total, template)
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
        if let Some(bar) = &self.bar {
            bar.set_position(written);
        } else if self.total > 0 && self.last_line.unwrap_or(self.started).elapsed() > LINE_EVERY {
            self.last_line = Some(Instant::now());
            self.line(written);
        }
    }

    fn line(&self, written: u64) {
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
        let (done, total) = (format::bytes(written), format::bytes(self.total));
        let rate = format::byte_rate(rate);
        eprintln!("{} {}: {done} of {total}, {rate}{left}", self.doing, self.volume);
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
