//! What block workloads work on: bytes by place, behind a path, an export, or an engine in process.
//!
//! A [`Target`] is opened once for each worker. That of a path is here; exports and engines are the
//! business of whoever runs the player, since this crate knows neither.

use super::error::BenchError;
use super::workload::Footing;
use larder_core::units::BLOCK_BYTES_U64;
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Opened by one worker. Offsets and lengths are bytes.
pub trait Target: Send {
    /// Reads all of `buffer` from `offset` on.
    ///
    /// # Errors
    /// What the system or the server said; too little is an error as well.
    fn read_at(&mut self, offset: u64, buffer: &mut [u8]) -> io::Result<()>;

    /// Writes all of `bytes` from `offset` on.
    ///
    /// # Errors
    /// As above.
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()>;

    /// Makes what was written stable.
    ///
    /// # Errors
    /// As above.
    fn flush(&mut self) -> io::Result<()>;
}

/// Where targets are opened.
pub trait Place: fmt::Debug + Sync {
    /// What it is, for people and records; no path of the machine.
    fn what(&self) -> String;

    /// Its length.
    fn bytes(&self) -> u64;

    /// Opens it for one worker.
    ///
    /// # Errors
    /// It cannot be opened.
    fn open(&self) -> Result<Box<dyn Target>, BenchError>;

    /// What of it is cold or warm.
    fn footing(&mut self) -> Footing<'_>;

    /// Paths whose disks and settings matter; none where they are on another machine.
    fn paths(&self) -> Vec<PathBuf>;
}

/// How a path is read and written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Buffering {
    /// Through the page cache.
    #[default]
    Buffered,
    /// Past it (`O_DIRECT`).
    Unbuffered,
}

/// A file or block device that is there already.
#[derive(Clone, Debug)]
pub struct AtPath {
    path: PathBuf,
    bytes: u64,
    buffering: Buffering,
    writes: bool,
}

impl AtPath {
    /// A file of so many bytes; with `writes` it is opened for writing as well.
    #[must_use]
    pub fn new(path: &Path, bytes: u64, buffering: Buffering, writes: bool) -> Self {
        AtPath { path: path.to_path_buf(), bytes, buffering, writes }
    }
}

impl Place for AtPath {
    fn what(&self) -> String {
        match self.buffering {
            Buffering::Buffered => "a file through the page cache".to_owned(),
            Buffering::Unbuffered => "a file past the page cache".to_owned(),
        }
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn open(&self) -> Result<Box<dyn Target>, BenchError> {
        let mut options = OpenOptions::new();
        options.read(true).write(self.writes);
        if self.buffering == Buffering::Unbuffered {
            options.custom_flags(O_DIRECT);
        }
        let failed = BenchError::io(format!("open {}", self.path.display()));
        let file = options.open(&self.path).map_err(failed)?;
        let bounce = (self.buffering == Buffering::Unbuffered).then(Aligned::default);
        Ok(Box::new(AtFile { file, bounce }))
    }

    fn footing(&mut self) -> Footing<'_> {
        Footing::Files(vec![self.path.clone()])
    }

    fn paths(&self) -> Vec<PathBuf> {
        vec![self.path.clone()]
    }
}

/// `O_DIRECT` of Linux, which the standard library does not name (include/uapi/asm-generic/fcntl.h;
/// the architectures that differ have their own).
#[cfg(not(any(target_arch = "arm", target_arch = "aarch64", target_arch = "powerpc64")))]
const O_DIRECT: i32 = 0o40000;
#[cfg(any(target_arch = "arm", target_arch = "aarch64"))]
const O_DIRECT: i32 = 0o200_000;
#[cfg(target_arch = "powerpc64")]
const O_DIRECT: i32 = 0o400_000;

#[derive(Debug)]
struct AtFile {
    file: File,
    /// Past the page cache the kernel wants memory at a multiple of the block.
    bounce: Option<Aligned>,
}

impl Target for AtFile {
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

/// Memory that begins at a multiple of a block, found inside of more memory than is needed.
#[derive(Debug, Default)]
struct Aligned(Vec<u8>);

impl Aligned {
    fn of(&mut self, len: usize) -> &mut [u8] {
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

    #[test]
    fn a_file_is_read_and_written_both_ways() {
        let folder = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, vec![1; 3 * 4096]).unwrap();
        for buffering in [Buffering::Buffered, Buffering::Unbuffered] {
            let mut place = AtPath::new(&path, 3 * 4096, buffering, true);
            let Ok(mut target) = place.open() else {
                println!("skipped: this file system has no direct I/O");
                continue;
            };
            target.write_at(4096, &[7; 4096]).unwrap();
            target.flush().unwrap();
            let mut bytes = vec![0; 8192];
            target.read_at(0, &mut bytes).unwrap();
            assert_eq!((bytes[4095], bytes[4096]), (1, 7), "{buffering:?}");
            assert!(target.read_at(2 * 4096, &mut bytes).is_err(), "beyond the end");
            assert_eq!(place.bytes(), 3 * 4096);
            assert!(matches!(place.footing(), Footing::Files(files) if files == [path.clone()]));
        }
    }

    #[test]
    fn a_path_that_is_only_read_is_not_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, [1; 8]).unwrap();
        let mut target = AtPath::new(&path, 8, Buffering::Buffered, false).open().unwrap();
        assert!(target.write_at(0, &[2]).is_err());
        let absent = AtPath::new(&folder.path().join("absent"), 8, Buffering::Buffered, false);
        let error = absent.open().err().unwrap().to_string();
        assert!(error.starts_with("open ") && error.contains("absent"), "{error}");
    }
}
