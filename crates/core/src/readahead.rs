//! Read-ahead: reading what a client will ask for before it does.
//!
//! Each lane has a [`Detector`], which is told of requests that missed and of those that touched
//! for the first time what was read ahead; a plain hit never comes here. It knows several streams
//! at a time and answers with a [`Window`] of pages to read. The windows of all lanes go to the
//! volume's [`PendingWindows`], from where whoever drives the store takes them, bit by bit, as reads of a
//! class of their own: after what clients wait for, before the lazy writer.
//!
//! The window begins small, doubles each time that the reader comes to the one asked for last, and
//! is asked for a window early: the design of W. Fengguang, X. Hongsheng and X. Chenfeng, "On the
//! design of a new Linux readahead framework", ACM SIGOPS Operating Systems Review 42(5), 2008,
//! whose marked page is any page here that was read ahead and has not been touched. What is evicted
//! untouched makes windows smaller: the [`Feedback`] of a volume.
//!
//! Everything is counted in pages of the volume. Invariant: no window reaches beyond the volume,
//! or the part of it that is read, and none is larger than the limits say.

mod detector;
mod feedback;
mod pending_windows;
mod stream;
#[cfg(test)]
mod tests;

pub(crate) use detector::Detector;
pub(crate) use feedback::Feedback;
pub(crate) use pending_windows::PendingWindows;
pub(crate) use stream::Window;

/// What windows may be, in pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    /// The first window of a stream.
    pub(crate) min: u64,
    /// The largest one; at least `min`.
    pub(crate) max: u64,
    /// Streams that a lane follows at a time.
    pub(crate) streams: usize,
    /// Requests in a row that must agree before anything is read ahead.
    pub(crate) steps: u32,
    /// The first page that may be read ahead, where something reads backward.
    pub(crate) first: u64,
    /// The page behind the last one that may be read ahead.
    pub(crate) pages: u64,
}

/// A request as the detector sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ObservedRequest {
    /// Its pages.
    pub(crate) pages: std::ops::Range<u64>,
    /// Whether one of them had to be asked of the store.
    pub(crate) missed: bool,
    /// Pages of the volume that were evicted untouched, so far.
    pub(crate) wasted: u64,
    /// The client says that it reads in order: nothing needs to be found out.
    pub(crate) sequential: bool,
}
