//! Progress of a benchmark: a bar on a terminal, periodic lines elsewhere.

use crate::progress;
use indicatif::ProgressBar;
use larder_lab::bench::{Progress, Step, WorkPart};
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
            crate::output::progress_line(&format!("{task}: {done} {label}{suffix}"));
        }
    }

    pub(super) fn end(&mut self) {
        if let Some(bar) = self.line.take() {
            bar.finish_and_clear();
        }
    }
}

/// Progress of a run: its trials, or its parts if they have names.
pub(super) struct RunProgress {
    bar: Bar,
    /// Prefix of the task; may be empty.
    prefix: String,
    parts: Vec<WorkPart>,
    started_at: Instant,
}

impl RunProgress {
    /// Returns the progress of a run with these parts; `name` is that of the run among several, or
    /// empty.
    pub(super) fn new(name: &str, parts: Vec<WorkPart>) -> Self {
        let is_named = parts.iter().any(|part| !part.what.is_empty());
        let bar = Bar::new(if is_named { "of {len} tests" } else { "of up to {len} trials" });
        let prefix = if name.is_empty() { String::new() } else { format!("{name}: ") };
        RunProgress { bar, prefix, parts, started_at: Instant::now() }
    }

    /// Returns the same without output.
    pub(super) fn hidden(self) -> Self {
        RunProgress { bar: Bar::hidden(), ..self }
    }

    pub(super) fn show(&mut self, progress: Progress) {
        let (part, parts) = (progress.part, self.parts.len());
        let what = &self.parts[part].what;
        if !what.is_empty() {
            let left = self.left_by_bytes(part);
            return self.bar.show([part as u64, parts as u64], what, &remaining_time(left));
        }
        let of_parts =
            if parts > 1 { format!("part {} of {parts}: ", part + 1) } else { String::new() };
        let task = format!("{}{of_parts}{}", self.prefix, task(progress.step));
        let half = progress.half_width.map(|half| format!(", +-{}", format::percent(half)));
        let suffix = half.unwrap_or_default() + &remaining_time(progress.left);
        self.bar.show([progress.done, progress.most], &task, &suffix);
    }

    /// Estimates the time that is left from the bytes of the parts.
    fn left_by_bytes(&self, part: usize) -> Option<u64> {
        let bytes =
            |parts: &[WorkPart]| parts.iter().map(|part| u128::from(part.bytes)).sum::<u128>();
        let (done, left) = (bytes(&self.parts[..part]), bytes(&self.parts[part..]));
        let left_ns = (self.started_at.elapsed().as_nanos() * left).checked_div(done)?;
        u64::try_from(left_ns).ok()
    }

    pub(super) fn end(mut self) {
        self.bar.end();
    }
}

/// Returns a step in words.
pub(super) fn task(step: Step) -> &'static str {
    match step {
        Step::Preparing => "preparing",
        Step::Starting => "preparing the start state",
        Step::Waiting => "waiting until the machine is at full speed",
        Step::Running => "running",
        Step::CleaningUp => "removing its files",
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
