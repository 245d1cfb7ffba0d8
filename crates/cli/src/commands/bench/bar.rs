//! How far a benchmark is: a bar on a terminal, a line now and then elsewhere.

use crate::progress;
use indicatif::ProgressBar;
use larder_report::{escape, format};
use std::io::IsTerminal;
use std::time::{Duration, Instant};

/// How often a line is printed where there is no terminal.
const LINE_EVERY: Duration = Duration::from_secs(10);

/// One bar, or one line that is printed again and again.
pub(super) struct Bar {
    shown: Option<ProgressBar>,
    /// None if nothing is ever shown.
    last_line: Option<Instant>,
    /// What is counted, as in "of up to {len} trials".
    counted: &'static str,
}

impl Bar {
    /// `counted` is what is counted, with `{len}` for the number of all.
    pub(super) fn new(counted: &'static str) -> Self {
        let template = format!("{{msg}} [{{bar:30}}] {{pos}} {counted}{{prefix}}");
        let shown = std::io::stderr().is_terminal().then(|| progress::bar(1, &template));
        Bar { shown, last_line: Some(Instant::now()), counted }
    }

    /// One that shows nothing.
    pub(super) fn hidden() -> Self {
        Bar { shown: None, last_line: None, counted: "" }
    }

    /// So many are done of all; what is at hand, and what follows the numbers.
    pub(super) fn show(&mut self, [done, all]: [u64; 2], doing: &str, rest: &str) {
        // The bar writes to the terminal past the guard of standard error.
        let (doing, rest) = (escape::line(doing), escape::line(rest));
        if let Some(bar) = &self.shown {
            bar.set_length(all);
            bar.set_position(done);
            bar.set_message(doing.into_owned());
            bar.set_prefix(rest.into_owned());
        } else if self.last_line.is_some_and(|last| last.elapsed() > LINE_EVERY) {
            self.last_line = Some(Instant::now());
            let counted = self.counted.replace("{len}", &all.to_string());
            eprintln!("{doing}: {done} {counted}{rest}");
        }
    }

    pub(super) fn end(&mut self) {
        if let Some(bar) = self.shown.take() {
            bar.finish_and_clear();
        }
    }
}

/// The time that is left, behind what stands before it; nothing where it cannot be said.
pub(super) fn left(left_ns: Option<u64>) -> String {
    let left = left_ns.filter(|left| *left > 0);
    left.map_or(String::new(), |left| format!(", {} left", format::duration(left)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_a_bar_do_not_control_the_terminal() {
        let shown = ProgressBar::hidden();
        let mut bar = Bar { shown: Some(shown.clone()), ..Bar::hidden() };
        let hostile = "a\u{1b}[2J\u{7}\r\n\u{7f}\u{9b}31m\u{202e}";
        bar.show([1, 2], hostile, hostile);
        for text in [shown.message(), shown.prefix()] {
            assert!(text.starts_with("a\\u001b[2J"), "{text}");
            assert!(!text.contains(escape::is_unsafe), "{text:?}");
        }
    }
}
