//! Windows of all handles of a volume that have been requested and not read yet.
//!
//! Their number is bounded: if the store is too slow, the oldest ones are dropped. Their readers
//! have most likely passed them.

use super::Window;
use std::collections::VecDeque;
use std::ops::Range;

/// Maximum number of windows.
const WINDOWS_MAX: usize = 64;

/// The windows, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct PendingWindows {
    windows: VecDeque<Window>,
}

impl PendingWindows {
    /// Adds a window. Returns the number of pages that were dropped for it.
    pub(crate) fn push(&mut self, window: Window) -> u64 {
        let full = self.windows.len() >= WINDOWS_MAX;
        let forgotten = if full { self.windows.pop_front() } else { None };
        self.windows.push_back(window);
        forgotten.map_or(0, |window| window.pages())
    }

    /// Takes the next pages to read: adjacent ones, at most `pages_max`.
    pub(crate) fn take(&mut self, pages_max: u64) -> Option<Range<u64>> {
        while let Some(window) = self.windows.front_mut() {
            if let Some(run) = window.take(pages_max) {
                return Some(run);
            }
            self.windows.pop_front();
        }
        None
    }

    /// Drops the windows that overlap `pages`. Returns the number of their pages.
    pub(crate) fn forget(&mut self, pages: &Range<u64>) -> u64 {
        let before: u64 = self.windows.iter().map(Window::pages).sum();
        self.windows.retain(|window| {
            let span = window.span();
            span.end <= pages.start || pages.end <= span.start
        });
        before - self.windows.iter().map(Window::pages).sum::<u64>()
    }

    /// Drops all windows. Returns the number of their pages.
    pub(crate) fn clear(&mut self) -> u64 {
        self.windows.drain(..).map(|window| window.pages()).sum()
    }
}
