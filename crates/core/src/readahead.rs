//! Read-ahead: reads of pages before a client requests them.
//!
//! Each handle has a [`StreamDetector`], and so has each file of a volume with several files, as
//! its requests arrive on several handles: see [`FileDetectors`]. A detector observes requests that
//! missed, and requests that touched read-ahead pages for the first time; other hits do not reach
//! it. It tracks several streams at a time and answers with a [`Window`] of pages to read. All
//! windows go to the volume's [`PendingWindows`], from which the driver of the store takes them
//! piece by piece, as reads of their own class: after reads of clients, before the lazy writer.
//!
//! The first window is small. Each time that the reader reaches the last requested window, the next
//! one is requested, twice as large. This is the design of W. Fengguang, X. Hongsheng and X.
//! Chenfeng, "On the design of a new Linux readahead framework", ACM SIGOPS Operating Systems
//! Review 42(5), 2008; their marked page is here any page that was read ahead and not touched.
//! Evictions of untouched pages make windows smaller: see the [`Feedback`] of a volume.
//!
//! All amounts are pages of the volume. Invariant: no window exceeds the volume, the part of it
//! that may be read ahead, or the limits.

mod detector;
mod feedback;
mod file_detectors;
mod pending_windows;
mod stream;
#[cfg(test)]
mod tests;

pub(crate) use detector::StreamDetector;
pub(crate) use feedback::Feedback;
pub(crate) use file_detectors::FileDetectors;
pub(crate) use pending_windows::PendingWindows;
pub(crate) use stream::Window;

/// Limits of windows, in pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WindowLimits {
    /// Size of the first window of a stream.
    pub(crate) min: u64,
    /// Maximum size of a window; at least `min`.
    pub(crate) max: u64,
    /// Maximum number of streams that a detector tracks.
    pub(crate) streams: usize,
    /// Number of consecutive requests that must match a stream before anything is read ahead.
    pub(crate) steps: u32,
    /// First page that may be read ahead by a backward stream.
    pub(crate) first: u64,
    /// End of the pages that may be read ahead.
    pub(crate) pages: u64,
}

/// A request as the detector observes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ObservedRequest {
    /// Pages of the request.
    pub(crate) pages: std::ops::Range<u64>,
    /// True if one of the pages had to be read from the store.
    pub(crate) missed: bool,
    /// Number of pages of the volume that were evicted untouched so far.
    pub(crate) wasted: u64,
    /// True if the client has declared sequential reads, so that no detection is needed.
    pub(crate) sequential: bool,
}
