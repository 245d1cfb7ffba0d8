//! The seam between what PostMark does and where it does it.
//!
//! [`Files`] is a real file system in a run, and a model without I/O where only counts are wanted:
//! in tests, and before a run, to know how much room it needs. Sizes are bytes.

use std::path::Path;

/// A work file.
#[derive(Clone, Copy, Debug)]
pub struct File<'a> {
    /// Where it is.
    pub path: &'a Path,
    /// In which location, by its place in the list; 0 without one.
    pub location: usize,
    /// Its size before the operation; 0 before its creation.
    pub bytes: u32,
}

/// Who carries out the operations.
///
/// Each answers whether it was done. What was not done is not counted, and the run goes on; an
/// error stops it.
pub trait Files {
    /// Why the run has to stop.
    type Stop;

    /// Makes a file with this content.
    ///
    /// # Errors
    /// The run has to stop.
    fn create(&mut self, file: File<'_>, data: &mut [u8]) -> Result<bool, Self::Stop>;

    /// Adds this content at the end of a file.
    ///
    /// # Errors
    /// The run has to stop.
    fn append(&mut self, file: File<'_>, data: &mut [u8]) -> Result<bool, Self::Stop>;

    /// Reads a whole file.
    ///
    /// # Errors
    /// The run has to stop.
    fn read(&mut self, file: File<'_>) -> Result<bool, Self::Stop>;

    /// Removes a file.
    ///
    /// # Errors
    /// The run has to stop.
    fn delete(&mut self, file: File<'_>) -> Result<bool, Self::Stop>;
}

/// Files that are only counted: how much room they take, with everything done at once.
#[derive(Clone, Debug)]
pub struct Model {
    /// For each location.
    pub rooms: Vec<SpaceUse>,
}

/// What files in a location take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpaceUse {
    pub(super) blocks: u64,
    pub(super) files: u64,
    /// The most blocks of 4 KiB that were in use at a time.
    pub blocks_max: u64,
    /// The most files that there were at a time.
    pub files_max: u64,
}

impl SpaceUse {
    /// The most bytes that were in use at a time.
    #[must_use]
    pub fn bytes_max(&self) -> u64 {
        self.blocks_max * u64::from(BLOCK_BYTES)
    }

    /// What two take at the most, if both take their most at once.
    pub(super) fn add(&mut self, other: &SpaceUse) {
        self.blocks_max += other.blocks_max;
        self.files_max += other.files_max;
    }
}

/// What file systems give at the least.
const BLOCK_BYTES: u32 = 4096;

impl Model {
    /// Files in so many locations, at least one.
    #[must_use]
    pub fn new(locations: usize) -> Self {
        Model { rooms: vec![SpaceUse::default(); locations.max(1)] }
    }

    fn resize(&mut self, location: usize, from: u32, to: u32) {
        let room = &mut self.rooms[location];
        let blocks = |bytes: u32| u64::from(bytes.div_ceil(BLOCK_BYTES));
        room.blocks = room.blocks + blocks(to) - blocks(from);
        room.blocks_max = room.blocks_max.max(room.blocks);
    }
}

impl Files for Model {
    type Stop = std::convert::Infallible;

    fn create(&mut self, file: File<'_>, data: &mut [u8]) -> Result<bool, Self::Stop> {
        self.resize(file.location, 0, length(data));
        let room = &mut self.rooms[file.location];
        room.files += 1;
        room.files_max = room.files_max.max(room.files);
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
        self.rooms[file.location].files -= 1;
        Ok(true)
    }
}

/// The length of what is written, which is at most [`super::config::SIZE_MAX`].
pub(super) fn length(data: &[u8]) -> u32 {
    u32::try_from(data.len()).expect("at most a GiB")
}
