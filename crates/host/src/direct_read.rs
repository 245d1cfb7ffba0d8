//! Reads past the page cache, with a buffer that every device accepts.

use crate::file_walk::WalkRoot;
use crate::syscall::move_data::set_direct;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Alignment of direct I/O that every device accepts.
const ALIGNMENT: usize = 4096;
/// Maximum bytes of a read; longer ones are divided.
const READ_MAX: usize = 1 << 20;

/// A buffer for direct I/O.
#[derive(Debug)]
pub(crate) struct AlignedBuffer {
    memory: Vec<u8>,
    start: usize,
}

impl AlignedBuffer {
    pub(crate) fn new() -> AlignedBuffer {
        let memory = vec![0; READ_MAX + ALIGNMENT];
        let start = memory.as_ptr().align_offset(ALIGNMENT);
        AlignedBuffer { memory, start }
    }

    pub(crate) fn bytes(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + READ_MAX]
    }
}

/// A file that is read past the page cache.
#[derive(Debug)]
pub struct DirectFile {
    file: File,
    buffer: AlignedBuffer,
}

impl DirectFile {
    /// Opens a regular file below a root.
    ///
    /// # Errors
    /// It cannot be opened, or its file system has no direct I/O.
    pub fn open(root: &WalkRoot, below: &Path) -> io::Result<DirectFile> {
        let file = root.open_file(below)?;
        set_direct(&file, true)?;
        Ok(DirectFile { file, buffer: AlignedBuffer::new() })
    }

    /// Reads the blocks of a range, as far as the file has them.
    ///
    /// # Errors
    /// The device fails.
    pub fn read(&mut self, offset: u64, len: u64) -> io::Result<()> {
        let alignment = ALIGNMENT as u64;
        let (mut at, end) = (offset / alignment * alignment, offset.saturating_add(len));
        let end = end.checked_next_multiple_of(alignment).unwrap_or(end);
        while at < end {
            let wanted = usize::try_from(end - at).unwrap_or(READ_MAX).min(READ_MAX);
            let done = self.file.read_at(&mut self.buffer.bytes()[..wanted], at)?;
            if done < wanted {
                return Ok(());
            }
            at += done as u64;
        }
        Ok(())
    }
}
