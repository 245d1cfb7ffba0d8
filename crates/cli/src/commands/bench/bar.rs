//! Progress of a benchmark: a bar on a terminal, periodic lines elsewhere.

use crate::progress;
use indicatif::ProgressBar;
use larder_report::escape;
use larder_schema::format;
use std::time::{Duration, Instant};

/// Interval between lines if standard error is not a terminal.
const LINE_EVERY: Duration = Duration::from_secs(10);

/// A progress bar, or periodic progress lines.
pub(super) struct Bar {
    line: Option<ProgressBar>,
    /// Time of the last line; `None` for a hidden bar.
    last_line: Option<Instant>,
    /// Description of the count, as in "of up to {len} trials".
    label: &'static str,
}

impl Bar {
    /// Creates a bar; `label` describes the count, with `{len}` for the total.
    pub(super) fn new(label: &'static str) -> Self {
        let template = format!("{{msg}} [{{bar:30}}] {{pos}} {label}{{prefix}}");
        let bar = crate::output::shows_progress().then(|| progress::bar(1, &template));
        Bar { line: bar, last_line: Some(Instant::now()), label }
    }

    /// Returns a bar without output.
    pub(super) fn hidden() -> Self {
        Bar { line: None, last_line: None, label: "" }
    }

    /// Shows the count and the total, the current task, and a suffix for the numbers.
    pub(super) fn show(&mut self, [done, total]: [u64; 2], task: &str, suffix: &str) {
        // The bar writes to the terminal without the escaping of standard error.
        let (task, suffix) = (escape::line(task), escape::line(suffix));
        if let Some(bar) = &self.line {
            bar.set_length(total);
            bar.set_position(done);
            bar.set_message(task.into_owned());
            bar.set_prefix(suffix.into_owned());
        } else if self.last_line.is_some_and(|last| last.elapsed() > LINE_EVERY) {
            self.last_line = Some(Instant::now());
            let label = self.label.replace("{len}", &total.to_string());
            eprintln!("{task}: {done} {label}{suffix}");
        }
    }

    pub(super) fn end(&mut self) {
        if let Some(bar) = self.line.take() {
            bar.finish_and_clear();
        }
    }
}

/// Formats the remaining time as a suffix; empty if it is unknown.
pub(super) fn remaining_time(left_ns: Option<u64>) -> String {
    let left = left_ns.filter(|left| *left > 0);
    left.map_or(String::new(), |left| format!(", {} left", format::duration(left)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_a_bar_do_not_control_the_terminal() {
        let progress_bar = ProgressBar::hidden();
        let mut bar = Bar { line: Some(progress_bar.clone()), ..Bar::hidden() };
        let hostile = "a\u{1b}[2J\u{7}\r\n\u{7f}\u{9b}31m\u{202e}";
        bar.show([1, 2], hostile, hostile);
        for text in [progress_bar.message(), progress_bar.prefix()] {
            assert!(text.starts_with("a\\u001b[2J"), "{text}");
            assert!(!text.contains(escape::is_unsafe), "{text:?}");
        }
    }
}
