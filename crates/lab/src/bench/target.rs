//! Targets of block workloads: bytes by offset, behind a path, an export, or an engine in process.
//!
//! A [`Target`] is opened once for each worker. The target of a path is here; the caller implements
//! those of exports and engines, since this crate knows neither.

use super::error::BenchError;
use super::workload::{Space, StartState, TrialContext};
use crate::locked_path::{LockedPath, clear_up_siblings};
use crate::random::Random;
use larder_core::units::BLOCK_BYTES_U64;
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// A target as one worker has opened it. Offsets and lengths are bytes.
pub trait Target: Send {
    /// Reads from `offset` until `buffer` is full.
    ///
    /// # Errors
    /// The error of the system or the server; too few bytes are an error as well.
    fn read_at(&mut self, offset: u64, buffer: &mut [u8]) -> io::Result<()>;

    /// Writes all of `bytes` at `offset`.
    ///
    /// # Errors
    /// As above.
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()>;

    /// Makes written data stable.
    ///
    /// # Errors
    /// As above.
    fn flush(&mut self) -> io::Result<()>;
}

/// A source of targets, one for each worker.
pub trait TargetSource: fmt::Debug + Sync {
    /// Returns a description for people and records, without paths of the machine.
    fn description(&self) -> String;

    /// Returns the length of the target.
    fn bytes(&self) -> u64;

    /// Returns the space that it needs, if it does not exist yet.
    fn space(&self) -> Vec<Space> {
        Vec::new()
    }

    /// Creates it, if it does not exist yet.
    ///
    /// # Errors
    /// It cannot be created.
    fn prepare(&mut self, _context: &TrialContext<'_>) -> Result<(), BenchError> {
        Ok(())
    }

    /// Removes what [`TargetSource::prepare`] made.
    ///
    /// # Errors
    /// It cannot be removed.
    fn clean_up(&mut self) -> Result<(), BenchError> {
        Ok(())
    }

    /// Opens it for one worker.
    ///
    /// # Errors
    /// It cannot be opened.
    fn open(&self) -> Result<Box<dyn Target>, BenchError>;

    /// Returns the objects whose cache state a start sets.
    fn start_state(&mut self) -> StartState<'_>;

    /// Returns the paths whose disks and settings matter; none if they are on another machine.
    fn paths(&self) -> Vec<PathBuf> {
        Vec::new()
    }
}

/// Use of the page cache for a path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Buffering {
    /// Through the page cache.
    #[default]
    Buffered,
    /// Past the page cache (`O_DIRECT`).
    Unbuffered,
}

/// A file, or an existing block device.
#[derive(Clone, Debug)]
pub struct TargetPath {
    path: PathBuf,
    bytes: u64,
    buffering: Buffering,
    writes: bool,
    /// True if the file is created for the run, and removed after it.
    new: bool,
    held: Option<LockedPath>,
}

impl TargetPath {
    /// Returns an existing file or block device of `bytes` bytes; with `writes` it is opened for
    /// writing as well.
    #[must_use]
    pub fn existing(path: &Path, bytes: u64, buffering: Buffering, writes: bool) -> Self {
        let path = path.to_path_buf();
        TargetPath { path, bytes, buffering, writes, new: false, held: None }
    }

    /// Returns a file of `bytes` bytes that is created for the run, with data that cannot be
    /// compressed, and removed after it. The path must not exist.
    #[must_use]
    pub fn new(path: &Path, bytes: u64, buffering: Buffering) -> Self {
        TargetPath { new: true, ..TargetPath::existing(path, bytes, buffering, true) }
    }

    /// Returns the path.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn open_file(&self) -> Result<File, BenchError> {
        let mut options = OpenOptions::new();
        options.read(true).write(self.writes);
        if self.buffering == Buffering::Unbuffered {
            options.custom_flags(O_DIRECT);
        }
        options.open(&self.path).map_err(BenchError::io(format!("open {}", self.path.display())))
    }

    fn make(&mut self, context: &TrialContext<'_>) -> Result<(), BenchError> {
        let failed = || BenchError::io(format!("make {}", self.path.display()));
        let create = || File::create_new(&self.path).map(drop);
        self.held = Some(LockedPath::make(&self.path, create).map_err(failed())?);
        let mut file = OpenOptions::new().write(true).open(&self.path).map_err(failed())?;
        let mut random = Random::from_seed(context.seed);
        let mut piece = vec![0; PIECE_BYTES];
        let mut left = self.bytes;
        while left > 0 {
            context.check()?;
            random.fill(&mut piece);
            let len = usize::try_from(left).map_or(PIECE_BYTES, |left| left.min(PIECE_BYTES));
            file.write_all(&piece[..len]).map_err(failed())?;
            left -= len as u64;
        }
        file.sync_all().map_err(failed())
    }
}

/// Bytes of one write when a file is created.
const PIECE_BYTES: usize = 1 << 20;

impl TargetSource for TargetPath {
    fn description(&self) -> String {
        match self.buffering {
            Buffering::Buffered => "a file through the page cache".to_owned(),
            Buffering::Unbuffered => "a file past the page cache".to_owned(),
        }
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn space(&self) -> Vec<Space> {
        let directory = self.path.parent().filter(|_| self.new && self.held.is_none());
        let directory = directory.map(|directory| {
            if directory.as_os_str().is_empty() { Path::new(".") } else { directory }
        });
        let directory = directory.map(Path::to_path_buf);
        directory.map(|directory| Space { directory, bytes: self.bytes }).into_iter().collect()
    }

    fn prepare(&mut self, context: &TrialContext<'_>) -> Result<(), BenchError> {
        if self.new && self.held.is_none() { self.make(context) } else { Ok(()) }
    }

    fn clean_up(&mut self) -> Result<(), BenchError> {
        if self.held.is_none() {
            return Ok(());
        }
        let failed = BenchError::io(format!("remove {}", self.path.display()));
        std::fs::remove_file(&self.path).map_err(failed)?;
        self.held = None;
        // Another rank may have been killed.
        clear_up_siblings(&self.path);
        Ok(())
    }

    fn open(&self) -> Result<Box<dyn Target>, BenchError> {
        Ok(Box::new(OpenTarget::over(self.open_file()?, self.buffering)))
    }

    fn start_state(&mut self) -> StartState<'_> {
        StartState::Files(vec![self.path.clone()])
    }

    fn paths(&self) -> Vec<PathBuf> {
        vec![self.path.clone()]
    }
}

/// `O_DIRECT` of Linux, which the standard library does not name (include/uapi/asm-generic/fcntl.h;
/// the architectures that differ have their own).
#[cfg(not(any(target_arch = "arm", target_arch = "aarch64", target_arch = "powerpc64")))]
pub(crate) const O_DIRECT: i32 = 0o40000;
#[cfg(any(target_arch = "arm", target_arch = "aarch64"))]
pub(crate) const O_DIRECT: i32 = 0o200_000;
#[cfg(target_arch = "powerpc64")]
pub(crate) const O_DIRECT: i32 = 0o400_000;

#[derive(Debug)]
pub(super) struct OpenTarget {
    file: File,
    /// Buffer for unbuffered I/O, for which the kernel requires memory aligned to a block.
    bounce: Option<AlignedBuffer>,
}

impl OpenTarget {
    /// Returns the target over a file that was opened with this buffering.
    pub(super) fn over(file: File, buffering: Buffering) -> Self {
        let bounce = (buffering == Buffering::Unbuffered).then(AlignedBuffer::default);
        OpenTarget { file, bounce }
    }
}

impl Target for OpenTarget {
    fn read_at(&mut self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        match &mut self.bounce {
            None => self.file.read_exact_at(buffer, offset),
            Some(bounce) => {
                let aligned = bounce.of(buffer.len());
                self.file.read_exact_at(aligned, offset)?;
                buffer.copy_from_slice(aligned);
                Ok(())
            }
        }
    }

    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        match &mut self.bounce {
            None => self.file.write_all_at(bytes, offset),
            Some(bounce) => {
                let aligned = bounce.of(bytes.len());
                aligned.copy_from_slice(bytes);
                self.file.write_all_at(aligned, offset)
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.sync_data()
    }
}

/// Memory aligned to a block, within a larger allocation.
#[derive(Debug, Default)]
pub(crate) struct AlignedBuffer(Vec<u8>);

impl AlignedBuffer {
    pub(crate) fn of(&mut self, len: usize) -> &mut [u8] {
        let block = usize::try_from(BLOCK_BYTES_U64).expect("a block is small");
        if self.0.len() < len + block {
            self.0.resize(len + block, 0);
        }
        let skip = self.0.as_ptr().align_offset(block);
        &mut self.0[skip..skip + len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_testing::skip;

    #[test]
    fn a_file_is_read_and_written_both_ways() {
        let directory = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let path = directory.path().join("file");
        std::fs::write(&path, vec![1; 3 * 4096]).unwrap();
        for buffering in [Buffering::Buffered, Buffering::Unbuffered] {
            let mut place = TargetPath::existing(&path, 3 * 4096, buffering, true);
            let Ok(mut target) = place.open() else {
                skip("this file system does not support direct I/O");
                continue;
            };
            target.write_at(4096, &[7; 4096]).unwrap();
            target.flush().unwrap();
            let mut bytes = vec![0; 8192];
            target.read_at(0, &mut bytes).unwrap();
            assert_eq!((bytes[4095], bytes[4096]), (1, 7), "{buffering:?}");
            assert!(target.read_at(2 * 4096, &mut bytes).is_err(), "beyond the end");
            assert_eq!(place.bytes(), 3 * 4096);
            assert!(
                matches!(place.start_state(), StartState::Files(files) if files == [path.clone()])
            );
        }
    }

    #[test]
    fn a_path_that_is_only_read_is_not_written() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        std::fs::write(&path, [1; 8]).unwrap();
        let mut target = TargetPath::existing(&path, 8, Buffering::Buffered, false).open().unwrap();
        assert!(target.write_at(0, &[2]).is_err());
        let absent =
            TargetPath::existing(&directory.path().join("absent"), 8, Buffering::Buffered, false);
        let error = absent.open().err().unwrap().to_string();
        assert!(error.starts_with("open ") && error.contains("absent"), "{error}");
    }
}
