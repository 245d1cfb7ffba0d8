//! Sizes of caches and pages on the command line.

use crate::args;
use anyhow::{Context, Result};
use larder_schema::format;

/// The size of a cache on the command line.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Size {
    /// Per cent of the footprint.
    Percent(f64),
    /// Bytes.
    Bytes(u64),
    /// Pages.
    Pages(u64),
}

impl Size {
    /// Returns true if the size depends on the footprint, which requires a pass over the trace.
    pub(super) fn is_relative(self) -> bool {
        matches!(self, Size::Percent(_))
    }

    /// Returns the size in pages, at least one, rounded down. Without a page size, sizes in bytes
    /// are refused.
    pub(super) fn pages(self, page_bytes: Option<u32>, footprint: u64) -> Result<u64> {
        let pages = match self {
            Size::Pages(pages) => pages,
            Size::Bytes(bytes) => {
                let page = page_bytes.context(
                    "simulate a size in bytes: without pages only 5% or 1000p have a meaning",
                )?;
                bytes / u64::from(page)
            }
            Size::Percent(percent) => {
                #[expect(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    clippy::cast_precision_loss,
                    reason = "footprints stay below 2^53, and per cent are positive"
                )]
                let pages = (footprint as f64 * percent / 100.0) as u64;
                pages
            }
        };
        Ok(pages.max(1))
    }
}

/// Parses `5%`, `64MiB` or `1000p`.
pub(super) fn size(text: &str) -> Result<Size, String> {
    let error = || format!("\"{text}\" is not a size; write 5%, 64MiB or 1000p");
    if let Some(percent) = text.strip_suffix('%') {
        let percent = percent.parse().ok().filter(|percent| (0.0..=1e6).contains(percent));
        return percent.filter(|&percent| percent > 0.0).map(Size::Percent).ok_or_else(error);
    }
    if let Some(pages) = text.strip_suffix('p') {
        let pages = pages.parse().ok().filter(|&pages| pages > 0);
        return pages.map(Size::Pages).ok_or_else(error);
    }
    args::bytes(text).ok().filter(|&bytes| bytes > 0).map(Size::Bytes).ok_or_else(error)
}

/// Returns the capacity of a simulated cache of `pages` pages.
///
/// # Errors
/// The simulation cannot number so many pages.
pub(super) fn capacity(pages: u64) -> Result<u32> {
    u32::try_from(pages).ok().with_context(|| {
        let pages = format::count(pages);
        format!(
            "simulate a cache of {pages} pages: the most is 4,294,967,295 (use larger pages, with \
             --page-size, or a smaller --size)"
        )
    })
}

/// Parses the size of a page: a power of two from 512 bytes to 1 MiB.
pub(super) fn page_bytes(text: &str) -> Result<u32, String> {
    let bytes = args::bytes(text)?;
    u32::try_from(bytes)
        .ok()
        .filter(|bytes| bytes.is_power_of_two() && (512..=1 << 20).contains(bytes))
        .ok_or_else(|| format!("a page of {text}: must be a power of two from 512 to 1MiB"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_per_cent_bytes_or_pages() {
        let pages = |text: &str| size(text).unwrap().pages(Some(4096), 48_974).unwrap();
        assert_eq!(pages("10%"), 4_897);
        assert_eq!(pages("0.001%"), 1);
        assert_eq!(pages("64MiB"), 16_384);
        assert_eq!(pages("1000p"), 1_000);
        for wrong in ["", "%", "-1%", "0%", "nan%", "0p", "xp", "0B", "1e99%", "many"] {
            assert!(size(wrong).is_err(), "{wrong}");
        }
        assert!(Size::Bytes(4096).pages(None, 10).is_err());
        assert!(size("5%").unwrap().is_relative());
        assert!(["64MiB", "1000p"].iter().all(|text| !size(text).unwrap().is_relative()));
        assert_eq!(Size::Percent(50.0).pages(None, 10).unwrap(), 5);
    }

    #[test]
    fn a_cache_of_too_many_pages_is_refused_with_the_most() {
        assert_eq!(capacity(7).unwrap(), 7);
        assert_eq!(
            format!("{:#}", capacity(1 << 48).unwrap_err()),
            "simulate a cache of 281,474,976,710,656 pages: the most is 4,294,967,295 (use larger \
             pages, with --page-size, or a smaller --size)"
        );
    }

    #[test]
    fn pages_are_powers_of_two() {
        assert_eq!(page_bytes("64KiB"), Ok(65_536));
        assert!(["256B", "3KiB", "2MiB", "x"].iter().all(|text| page_bytes(text).is_err()));
    }
}
