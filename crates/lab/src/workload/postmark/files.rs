//! The interface between the operations of PostMark and their execution.
//!
//! [`Files`] is a real file system in a run, and a model without I/O where only counts are needed:
//! in tests, and before a run, to compute the space that it needs. Sizes are bytes.

use std::path::Path;

/// A work file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct File<'a> {
    /// Its path.
    pub(crate) path: &'a Path,
    /// The index of its location in the list; 0 without locations.
    pub(crate) location: usize,
    /// Its size before the operation; 0 before its creation.
    pub(crate) bytes: u32,
}

/// Executes the operations.
///
/// Each method returns true if the operation was done. An operation that was not done is not
/// counted, and the run continues; an error stops it.
pub(crate) trait Files {
    /// The reason for which the run stops.
    type Stop;

    /// Creates a file with this content.
    fn create(&mut self, file: File<'_>, data: &mut [u8]) -> Result<bool, Self::Stop>;

    /// Appends this content to a file.
    fn append(&mut self, file: File<'_>, data: &mut [u8]) -> Result<bool, Self::Stop>;

    /// Reads a whole file.
    fn read(&mut self, file: File<'_>) -> Result<bool, Self::Stop>;

    /// Removes a file.
    fn delete(&mut self, file: File<'_>) -> Result<bool, Self::Stop>;
}

/// Files that are only counted: the space that they use, with immediate allocation.
#[derive(Clone, Debug)]
pub(crate) struct Model {
    /// The space used in each location.
    pub(crate) space_uses: Vec<SpaceUse>,
}

/// Space that files in a location use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SpaceUse {
    blocks: u64,
    pub(super) files: u64,
    /// Maximum number of blocks of 4 KiB in use at a time.
    pub(crate) blocks_max: u64,
    /// Maximum number of files at a time.
    pub(crate) files_max: u64,
}

impl SpaceUse {
    /// Returns the maximum number of bytes in use at a time.
    pub(crate) fn bytes_max(&self) -> u64 {
        self.blocks_max * u64::from(BLOCK_BYTES)
    }

    /// Adds the maxima of another location, as if both occurred at the same time.
    pub(crate) fn add(&mut self, other: &SpaceUse) {
        self.blocks_max += other.blocks_max;
        self.files_max += other.files_max;
    }
}

/// Smallest allocation of file systems.
const BLOCK_BYTES: u32 = 4096;

impl Model {
    /// Returns a model of `locations` locations, at least one.
    pub(crate) fn new(locations: usize) -> Self {
        Model { space_uses: vec![SpaceUse::default(); locations.max(1)] }
    }

    fn resize(&mut self, location: usize, from: u32, to: u32) {
        let space_use = &mut self.space_uses[location];
        let blocks = |bytes: u32| u64::from(bytes.div_ceil(BLOCK_BYTES));
        space_use.blocks = space_use.blocks + blocks(to) - blocks(from);
        space_use.blocks_max = space_use.blocks_max.max(space_use.blocks);
    }
}

impl Files for Model {
    type Stop = std::convert::Infallible;

    fn create(&mut self, file: File<'_>, data: &mut [u8]) -> Result<bool, Self::Stop> {
        self.resize(file.location, 0, length(data));
        let space_use = &mut self.space_uses[file.location];
        space_use.files += 1;
        space_use.files_max = space_use.files_max.max(space_use.files);
        Ok(true)
    }

    fn append(&mut self, file: File<'_>, data: &mut [u8]) -> Result<bool, Self::Stop> {
        self.resize(file.location, file.bytes, file.bytes + length(data));
        Ok(true)
    }

    fn read(&mut self, _: File<'_>) -> Result<bool, Self::Stop> {
        Ok(true)
    }

    fn delete(&mut self, file: File<'_>) -> Result<bool, Self::Stop> {
        self.resize(file.location, file.bytes, 0);
        self.space_uses[file.location].files -= 1;
        Ok(true)
    }
}

/// Returns the length of the data, which is at most [`super::config::SIZE_MAX`].
pub(super) fn length(data: &[u8]) -> u32 {
    u32::try_from(data.len()).expect("at most a GiB")
}
