//! Checks of settings of a volume or of the pool.
//!
//! The same checks apply when a volume is added and when it is changed, so a change cannot lead to
//! a state that the options of a new volume could not have.

use crate::named::named;
use crate::tunables::TunableError;
use crate::units::{BLOCK_BYTES_U64, PAGE_BLOCKS_MAX};

/// The reason why a setting was refused. A refused setting changes nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettingError {
    /// The page size is not valid.
    #[error(
        "set the page size of {volume} to {blocks} blocks: it must be a power of two, at most \
         {PAGE_BLOCKS_MAX}"
    )]
    PageSize {
        /// The volume.
        volume: String,
        /// Blocks in a page.
        blocks: u32,
    },
    /// The floor is above the ceiling.
    #[error(
        "set the bounds of {volume}: its min of {} is above its max of {}",
        kib(*min),
        kib(*max)
    )]
    MinAboveMax {
        /// The volume.
        volume: String,
        /// Guaranteed frames.
        min: u32,
        /// Maximum frames.
        max: u32,
    },
    /// A page does not fit below the ceiling.
    #[error(
        "set the bounds of {volume}: its max of {} is below its page of {}",
        kib(*max),
        kib(*page_blocks)
    )]
    MaxBelowPage {
        /// The volume.
        volume: String,
        /// Maximum frames.
        max: u32,
        /// Blocks in a page.
        page_blocks: u32,
    },
    /// The floors and one page exceed the memory.
    #[error(
        "promise {} to volumes, with room for a page: the cache has {}",
        kib(*promised),
        kib(*frames)
    )]
    Promised {
        /// Frames of all floors and one page.
        promised: u32,
        /// Frames of the cache.
        frames: u32,
    },
    /// The memory size is not possible.
    #[error("set the memory to {}: it can be up to {}", kib(*frames), kib(*most))]
    Memory {
        /// Requested frames.
        frames: u32,
        /// Frames for which addresses are reserved.
        most: u32,
    },
    /// The store refuses writes in every mode.
    #[error("let clients write to {volume}: its store is read-only")]
    ReadOnlyStore {
        /// The volume.
        volume: String,
    },
    /// A session uses the volume.
    #[error("remove {volume}: {handles} connections use it")]
    InUse {
        /// The volume.
        volume: String,
        /// Open handles.
        handles: u32,
    },
    /// The volume has unwritten data, or its store has operations.
    #[error("remove {volume}: it is not at rest, {} are not written", kib(*unclean))]
    NotAtRest {
        /// The volume.
        volume: String,
        /// Blocks that the store does not have.
        unclean: u32,
    },
    /// The volume is removed or being removed.
    #[error("change {volume}: it has been removed")]
    Removed {
        /// The volume.
        volume: String,
    },
    /// The length of the store is 0 or exceeds the maximum length of a volume.
    #[error(
        "add {volume}: its store has {length} bytes, and a volume has 1 to {}; give the store \
         another size",
        crate::units::LENGTH_MAX
    )]
    Length {
        /// The volume.
        volume: String,
        /// Bytes of its store.
        length: u64,
    },
    /// The cache has the maximum number of volumes.
    #[error("add {volume}: 65,535 volumes are there already")]
    TooManyVolumes {
        /// The volume.
        volume: String,
    },
    /// The tunable does not exist, or its value is out of range.
    #[error(transparent)]
    Tunable(#[from] TunableError),
}

fn kib(frames: u32) -> String {
    let kib = u64::from(frames) * (BLOCK_BYTES_U64 >> 10);
    if kib.is_multiple_of(1024) { format!("{} MiB", kib >> 10) } else { format!("{kib} KiB") }
}

/// Divisors of the number of frames: the first gives the reserve of all volumes together. A reserve
/// is at least one page, unless all reserves would exceed the part that the second one gives.
const RESERVED: u32 = 64;
const RESERVED_MAX: u32 = 8;
/// Maximum number of reserved frames of a volume, unless a page is larger.
const RESERVE_MAX: u32 = 4096;

/// Guaranteed and maximum frames of one volume, with its page size.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FrameBounds<'a> {
    pub(crate) name: &'a str,
    pub(crate) min: u32,
    pub(crate) max: u32,
    pub(crate) page_blocks: u32,
}

/// Checks that `frames` suffice for all guaranteed frames and a page of each volume.
pub(crate) fn check_bounds<'a>(
    all_bounds: impl IntoIterator<Item = FrameBounds<'a>>,
    frames: u32,
) -> Result<(), SettingError> {
    let (mut floors, mut page) = (0u64, 0u64);
    for FrameBounds { name, min, max, page_blocks } in all_bounds {
        let volume = || name.to_owned();
        if !page_blocks.is_power_of_two() || page_blocks > PAGE_BLOCKS_MAX {
            return Err(SettingError::PageSize { volume: volume(), blocks: page_blocks });
        }
        if min > max {
            return Err(SettingError::MinAboveMax { volume: volume(), min, max });
        }
        if max < page_blocks {
            return Err(SettingError::MaxBelowPage { volume: volume(), max, page_blocks });
        }
        floors += u64::from(min);
        page = page.max(u64::from(page_blocks.saturating_sub(min)));
    }
    let promised = u32::try_from(floors + page).unwrap_or(u32::MAX);
    if promised > frames {
        return Err(SettingError::Promised { promised, frames });
    }
    Ok(())
}

/// Returns the frames of each volume that other volumes cannot take, beyond the frames that the
/// user has guaranteed, if `frames` are shared. All are 0 if the reserves would take too much from
/// other volumes. So a volume whose store is blocked, and that fills the memory with data that
/// cannot be written, does not block other volumes.
pub(crate) fn reserves(all_bounds: &[FrameBounds<'_>], frames: u32) -> Vec<u32> {
    let part = frames / RESERVED / u32::try_from(all_bounds.len().max(1)).expect("few volumes");
    let wanted =
        |bounds: &FrameBounds<'_>| part.min(RESERVE_MAX).max(bounds.page_blocks).min(bounds.max);
    let wanted: Vec<u32> = all_bounds.iter().map(wanted).collect();
    let extra =
        |(bounds, reserve): (&FrameBounds<'_>, &u32)| u64::from(reserve.saturating_sub(bounds.min));
    let extra: u64 = all_bounds.iter().zip(&wanted).map(extra).sum();
    let reserved = all_bounds.iter().zip(&wanted);
    let reserved =
        reserved.map(|(bounds, &reserve)| FrameBounds { min: bounds.min.max(reserve), ..*bounds });
    let fits = extra <= u64::from(frames / RESERVED_MAX) && check_bounds(reserved, frames).is_ok();
    if all_bounds.len() > 1 && fits { wanted } else { vec![0; all_bounds.len()] }
}

/// Division of the pool among volumes within their floors and ceilings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum ShareMode {
    /// Evictions take the page that was not referenced for the longest time, of any volume.
    #[default]
    Coldest,
    /// Each volume has its own part, and parts change to maximize hits.
    Auto,
}

named!(ShareMode: Coldest = "coldest", Auto = "auto");

#[cfg(test)]
mod tests {
    use super::*;

    fn bounds(min: u32, max: u32, page_blocks: u32) -> FrameBounds<'static> {
        FrameBounds { name: "v", min, max, page_blocks }
    }

    #[test]
    fn each_of_several_volumes_has_a_page_or_a_part_reserved() {
        let two = [bounds(0, u32::MAX, 1), bounds(0, u32::MAX, 16)];
        assert_eq!(reserves(&two, 1 << 16), [512, 512]);
        assert_eq!(reserves(&two, 1 << 30), [RESERVE_MAX, RESERVE_MAX]);
        assert_eq!(reserves(&two, 136), [1, 16]);
        assert_eq!(reserves(&two, 135), [0, 0]);
        // The guarantees of the user leave no frames for reserves.
        assert_eq!(reserves(&[bounds(50, 99, 1), bounds(0, 99, 16)], 66), [0, 0]);
        assert_eq!(reserves(&two[..1], 1 << 16), [0]);
    }

    #[test]
    fn floors_leave_room_for_a_page() {
        assert_eq!(check_bounds([bounds(10, 20, 1), bounds(10, 20, 1)], 20), Ok(()));
        let refused = check_bounds([bounds(10, 20, 1), bounds(0, 20, 1)], 10).unwrap_err();
        assert_eq!(refused, SettingError::Promised { promised: 11, frames: 10 });
        assert_eq!(check_bounds([bounds(10, 99, 1), bounds(0, 99, 16)], 26), Ok(()));
        assert!(check_bounds([bounds(10, 99, 1), bounds(0, 99, 16)], 25).is_err());
    }

    #[test]
    fn what_is_refused_is_said_in_one_sentence() {
        let refused = |one| check_bounds([one], 1000).unwrap_err().to_string();
        assert_eq!(
            refused(bounds(512, 256, 1)),
            "set the bounds of v: its min of 2 MiB is above its max of 1 MiB"
        );
        assert_eq!(
            refused(bounds(0, 3, 16)),
            "set the bounds of v: its max of 12 KiB is below its page of 64 KiB"
        );
        assert_eq!(
            refused(bounds(0, 3, 3)),
            "set the page size of v to 3 blocks: it must be a power of two, at most 256"
        );
    }
}
