//! Reads and writes of work files with the same system calls as the original.
//!
//! The buffered mode of the original is C's stdio with its default buffer, whose size is
//! `st_blksize`. The sizes and the order of its calls follow from the block size alone, and all
//! data of one operation is contiguous in memory; so the calls are computed, and no byte is copied.
//! Sizes are bytes.

use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::ops::Range;
use std::path::Path;

/// The way in which files are read and written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IoStyle {
    /// Uses a buffer like that of stdio.
    pub(crate) buffered: bool,
    /// Bytes that the program reads at a time.
    pub(crate) read_block: usize,
    /// Bytes that the program writes at a time.
    pub(crate) write_block: usize,
    /// True if a short write is followed by one of the rest, as in stdio. A full disk is then an
    /// error and not only a short write.
    pub(crate) completes_short_writes: bool,
}

/// The purpose of opening a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OpenMode {
    Create,
    Append,
    Read,
}

impl IoStyle {
    pub(crate) fn of(config: &super::Config) -> Self {
        IoStyle {
            buffered: config.buffered,
            completes_short_writes: config.buffered,
            read_block: config.read_block as usize,
            write_block: config.write_block as usize,
        }
    }

    /// Opens a file as `fopen` or, unbuffered, as `open` of the original does.
    pub(crate) fn open(self, path: &Path, mode: OpenMode) -> Result<OwnedFd, Errno> {
        let write = OFlags::WRONLY | OFlags::CREATE;
        let (flags, permissions) = match (self.buffered, mode) {
            (true, OpenMode::Create) => (write | OFlags::TRUNC, 0o666),
            (true, OpenMode::Append) => (write | OFlags::APPEND, 0o666),
            (_, OpenMode::Read) => (OFlags::RDONLY, 0),
            (false, OpenMode::Create) => (OFlags::RDWR | OFlags::CREATE, 0o644),
            (false, OpenMode::Append) => (OFlags::RDWR | OFlags::APPEND, 0),
        };
        let file = rustix::fs::open(path, flags, Mode::from_raw_mode(permissions))?;
        if self.buffered && mode == OpenMode::Append {
            rustix::fs::seek(&file, rustix::fs::SeekFrom::End(0))?;
        }
        Ok(file)
    }

    /// Returns the length of the buffer, which stdio takes from the file at its first use.
    fn buffer_bytes(file: impl AsFd) -> usize {
        let stat = rustix::fs::fstat(file);
        stat.ok().and_then(|stat| usize::try_from(stat.st_blksize).ok()).unwrap_or(0).max(1)
    }

    /// Writes all of `data`. `step` is called for each system call and may continue after an error.
    pub(crate) fn write<E>(
        self,
        file: impl AsFd + Copy,
        data: &[u8],
        mut step: impl FnMut(Result<usize, Errno>, usize) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut write = |range: Range<usize>| {
            let requested = range.len();
            let mut done = rustix::io::write(file, &data[range.clone()]);
            while let Ok(part @ 1..) = done
                && part < requested
                && self.completes_short_writes
            {
                let rest = &data[range.start + part..range.end];
                done = rustix::io::write(file, rest).map(|more| part + more);
            }
            step(done, requested)
        };
        if self.buffered {
            let buffer = Self::buffer_bytes(file);
            buffered_writes(data.len(), self.write_block, buffer, &mut write)
        } else {
            raw_calls(data.len(), self.write_block, &mut write)
        }
    }

    /// Reads `bytes` from the beginning of a file into `buffer`, which grows as needed.
    pub(crate) fn read<E>(
        self,
        file: impl AsFd + Copy,
        bytes: usize,
        buffer: &mut Vec<u8>,
        mut step: impl FnMut(Result<usize, Errno>, usize) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut read = |requested: usize, expected: usize| {
            if buffer.len() < requested {
                buffer.resize(requested, 0);
            }
            step(rustix::io::read(file, &mut buffer[..requested]), expected)
        };
        if self.buffered {
            let buffer_len = Self::buffer_bytes(file);
            buffered_reads(bytes, self.read_block, buffer_len, &mut read)
        } else {
            raw_calls(bytes, self.read_block, &mut |range: Range<usize>| {
                read(range.len(), range.len())
            })
        }
    }
}

/// Calls `call` for whole blocks, then for the remainder, even if it has no bytes.
fn raw_calls<E>(
    bytes: usize,
    block: usize,
    call: &mut impl FnMut(Range<usize>) -> Result<(), E>,
) -> Result<(), E> {
    let whole = bytes / block * block;
    for start in (0..whole).step_by(block) {
        call(start..start + block)?;
    }
    call(whole..bytes)
}

/// Minimum size of a buffer that takes part of a large write. Every file system has at least this.
const BUFFER_DIRECT_MIN: usize = 128;

/// Returns the part of `bytes`, which did not fit into the buffer, that bypasses it.
fn direct(bytes: usize, buffer: usize) -> usize {
    if buffer >= BUFFER_DIRECT_MIN { bytes / buffer * buffer } else { bytes }
}

/// Performs the writes of `fwrite` in blocks and of the `fclose` after them. A block first fills
/// the buffer; a full buffer is written, then whole buffers directly from the block, and the rest
/// is buffered. Before its first use the buffer has no free space.
fn buffered_writes<E>(
    bytes: usize,
    block: usize,
    buffer: usize,
    write: &mut impl FnMut(Range<usize>) -> Result<(), E>,
) -> Result<(), E> {
    let (mut kept_from, mut at, mut free) = (0, 0, 0);
    while at < bytes {
        let end = bytes.min(at.saturating_add(block));
        let fits = free.min(end - at);
        at += fits;
        free -= fits;
        if at == end {
            continue;
        }
        if kept_from < at {
            write(kept_from..at)?;
        }
        let direct_len = direct(end - at, buffer);
        if direct_len > 0 {
            write(at..at + direct_len)?;
        }
        kept_from = at + direct_len;
        free = buffer - (end - kept_from);
        at = end;
    }
    if kept_from < at { write(kept_from..at) } else { Ok(()) }
}

/// Performs the reads of `fread` in blocks, with the requested and the expected length of each.
/// Requests beyond the buffered bytes bypass the buffer in whole buffers; less than that is read
/// through it.
fn buffered_reads<E>(
    bytes: usize,
    block: usize,
    buffer: usize,
    read: &mut impl FnMut(usize, usize) -> Result<(), E>,
) -> Result<(), E> {
    let (mut at, mut buffered, mut done) = (0, 0, 0);
    while at < bytes {
        let mut remaining = block.min(bytes - at);
        at += remaining;
        while remaining > buffered {
            remaining -= buffered;
            buffered = 0;
            if remaining < buffer {
                buffered = buffer.min(bytes - done);
                read(buffer, buffered)?;
                done += buffered;
            } else {
                let direct_len = direct(remaining, buffer);
                read(direct_len, direct_len)?;
                done += direct_len;
                remaining -= direct_len;
            }
        }
        buffered -= remaining;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;

    fn writes(bytes: usize, block: usize) -> Vec<usize> {
        let (mut lengths, mut end) = (Vec::new(), 0);
        let Ok(()) = buffered_writes(bytes, block, 4096, &mut |range: Range<usize>| {
            assert_eq!(range.start, end);
            end = range.end;
            lengths.push(range.len());
            Ok::<(), Infallible>(())
        });
        assert_eq!(end, bytes);
        lengths
    }

    fn reads(bytes: usize, block: usize) -> Vec<(usize, usize)> {
        let mut calls = Vec::new();
        let Ok(()) = buffered_reads(bytes, block, 4096, &mut |requested, expected| {
            calls.push((requested, expected));
            Ok::<(), Infallible>(())
        });
        calls
    }

    #[test]
    fn buffered_writes_are_those_of_stdio() {
        assert_eq!(writes(9000, 512), [4096, 4096, 808]);
        assert_eq!(writes(9000, 5000), [4096, 4096, 808]);
        assert_eq!(writes(9000, 4096), [4096, 4096, 808]);
        assert_eq!(writes(20_000, 8192), [8192, 4096, 4096, 3616]);
        assert_eq!(writes(90_000, 100_000), [86_016, 3984]);
        assert_eq!(writes(500, 512), [500]);
        assert_eq!(writes(4096, 4096), [4096]);
    }

    #[test]
    fn buffered_reads_are_those_of_stdio() {
        assert_eq!(reads(9000, 512), [(4096, 4096), (4096, 4096), (4096, 808)]);
        assert_eq!(reads(9000, 4096), [(4096, 4096), (4096, 4096), (4096, 808)]);
        assert_eq!(reads(20_000, 8192), [(8192, 8192), (8192, 8192), (4096, 3616)]);
        assert_eq!(reads(90_000, 100_000), [(86_016, 86_016), (4096, 3984)]);
        assert_eq!(reads(8192, 8192), [(8192, 8192)]);
    }

    #[test]
    fn every_byte_is_read_and_written_once_whatever_the_blocks_are() {
        for bytes in (1..20_000).step_by(379) {
            for block in [1, 7, 511, 4095, 4096, 4097, 8191, 12_289, 70_000] {
                assert_eq!(writes(bytes, block).iter().sum::<usize>(), bytes);
                assert_eq!(reads(bytes, block).iter().map(|call| call.1).sum::<usize>(), bytes);
            }
        }
    }

    #[test]
    fn raw_calls_end_with_the_remainder_even_if_it_is_nothing() {
        let mut calls = Vec::new();
        for bytes in [20, 21, 3] {
            let Ok(()) = raw_calls(bytes, 10, &mut |range: Range<usize>| {
                calls.push(range.len());
                Ok::<(), Infallible>(())
            });
        }
        assert_eq!(calls, [10, 10, 0, 10, 10, 1, 3]);
    }
}
