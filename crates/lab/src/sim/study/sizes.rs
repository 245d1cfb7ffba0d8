//! Sizes of caches: relative to the footprint, in bytes, or in pages.

use super::{StudyError, refused};
use larder_schema::format;

/// The size of a cache.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Size {
    /// Per cent of the footprint.
    Percent(f64),
    /// Bytes.
    Bytes(u64),
    /// Pages.
    Pages(u64),
}

impl Size {
    /// Returns the size in pages, at least one, rounded down. Without a page size, sizes in bytes
    /// are refused.
    pub(super) fn pages(self, page_bytes: Option<u32>, footprint: u64) -> Result<u64, StudyError> {
        const NO_PAGES: &str = "simulate a size in bytes: it needs pages; write 5% or 1000p";
        let pages = match self {
            Size::Pages(pages) => pages,
            Size::Bytes(bytes) => bytes / u64::from(page_bytes.ok_or_else(|| refused(NO_PAGES))?),
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

    /// Returns the size in pages, as far as the simulation can number them.
    pub(super) fn capacity(
        self,
        page_bytes: Option<u32>,
        footprint: u64,
    ) -> Result<u32, StudyError> {
        let pages = self.pages(page_bytes, footprint)?;
        u32::try_from(pages).ok().ok_or_else(|| {
            let pages = format::count(pages);
            refused(format!(
                "simulate a cache of {pages} pages: the most is 4,294,967,295 (use larger pages, \
                 with --page-size, or a smaller --size)"
            ))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_per_cent_bytes_or_pages() {
        let pages = |size: Size| size.pages(Some(4096), 48_974).unwrap();
        assert_eq!(pages(Size::Percent(10.0)), 4_897);
        assert_eq!(pages(Size::Percent(0.001)), 1);
        assert_eq!(pages(Size::Bytes(64 << 20)), 16_384);
        assert_eq!(pages(Size::Pages(1_000)), 1_000);
        assert!(Size::Bytes(4096).pages(None, 10).is_err());
        assert_eq!(Size::Percent(50.0).pages(None, 10).unwrap(), 5);
    }

    #[test]
    fn a_cache_of_too_many_pages_is_refused_with_the_most() {
        assert_eq!(Size::Pages(7).capacity(None, 0).unwrap(), 7);
        assert_eq!(
            Size::Pages(1 << 48).capacity(None, 0).unwrap_err().to_string(),
            "simulate a cache of 281,474,976,710,656 pages: the most is 4,294,967,295 (use larger \
             pages, with --page-size, or a smaller --size)"
        );
    }
}
