//! Reading and writing work files with the same system calls as the original.
//!
//! The buffered mode of the original is C's stdio with its default buffer, which is as long as
//! `st_blksize` says. The sizes and the order of its calls follow from the block size alone, and
//! all data of one operation lies in one piece of memory; so they are worked out and no byte is
//! copied. Sizes are bytes.

use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::ops::Range;
use std::path::Path;

/// How files are read and written.
#[derive(Clone, Copy, Debug)]
pub(super) struct Style {
    /// Through a buffer of stdio.
    pub(super) buffered: bool,
    /// Bytes that the program reads at a time.
    pub(super) read_block: usize,
    /// Bytes that the program writes at a time.
    pub(super) write_block: usize,
    /// Whether a write that did less is followed by one of the rest, as stdio does. Then a full
    /// disk is an error and not only a short write.
    pub(super) insist: bool,
}

/// What a file is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OpenMode {
    Create,
    Append,
    Read,
}

impl Style {
    pub(super) fn of(config: &super::Config) -> Self {
        Style {
            buffered: config.buffered,
            insist: config.buffered,
            read_block: config.read_block as usize,
            write_block: config.write_block as usize,
        }
    }

    /// Opens a file as `fopen` or, unbuffered, as `open` of the original does.
    pub(super) fn open(self, path: &Path, purpose: OpenMode) -> Result<OwnedFd, Errno> {
        let write = OFlags::WRONLY | OFlags::CREATE;
        let (flags, mode) = match (self.buffered, purpose) {
            (true, OpenMode::Create) => (write | OFlags::TRUNC, 0o666),
            (true, OpenMode::Append) => (write | OFlags::APPEND, 0o666),
            (_, OpenMode::Read) => (OFlags::RDONLY, 0),
            (false, OpenMode::Create) => (OFlags::RDWR | OFlags::CREATE, 0o644),
            (false, OpenMode::Append) => (OFlags::RDWR | OFlags::APPEND, 0),
        };
        let file = rustix::fs::open(path, flags, Mode::from_raw_mode(mode))?;
        if self.buffered && purpose == OpenMode::Append {
            rustix::fs::seek(&file, rustix::fs::SeekFrom::End(0))?;
        }
        Ok(file)
    }

    /// The length of the buffer: what stdio asks the file for at its first use.
    fn buffer_bytes(file: impl AsFd) -> usize {
        let stat = rustix::fs::fstat(file);
        stat.ok().and_then(|stat| usize::try_from(stat.st_blksize).ok()).unwrap_or(0).max(1)
    }

    /// Writes all of `data`. `step` is called for each system call and may go on after an error.
    pub(super) fn write<E>(
        self,
        file: impl AsFd + Copy,
        data: &[u8],
        mut step: impl FnMut(Result<usize, Errno>, usize) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut write = |range: Range<usize>| {
            let asked = range.len();
            let mut done = rustix::io::write(file, &data[range.clone()]);
            while let Ok(part @ 1..) = done
                && part < asked
                && self.insist
            {
                let rest = &data[range.start + part..range.end];
                done = rustix::io::write(file, rest).map(|more| part + more);
            }
            step(done, asked)
        };
        if self.buffered {
            let buffer = Self::buffer_bytes(file);
            buffered_writes(data.len(), self.write_block, buffer, &mut write)
        } else {
            raw_calls(data.len(), self.write_block, &mut write)
        }
    }

    /// Reads `bytes` from the beginning of a file into `memory`, which grows as it has to.
    pub(super) fn read<E>(
        self,
        file: impl AsFd + Copy,
        bytes: usize,
        memory: &mut Vec<u8>,
        mut step: impl FnMut(Result<usize, Errno>, usize) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut read = |asked: usize, expected: usize| {
            if memory.len() < asked {
                memory.resize(asked, 0);
            }
            step(rustix::io::read(file, &mut memory[..asked]), expected)
        };
        if self.buffered {
            let buffer = Self::buffer_bytes(file);
            buffered_reads(bytes, self.read_block, buffer, &mut read)
        } else {
            raw_calls(bytes, self.read_block, &mut |range: Range<usize>| {
                read(range.len(), range.len())
            })
        }
    }
}

/// Whole blocks, then the remainder, even one of no bytes.
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

/// A buffer as small as this takes no part of a large write. No file system has one.
const BUFFER_DIRECT_MIN: usize = 128;

/// How much of `bytes`, which did not fit into the buffer, goes past it.
fn direct(bytes: usize, buffer: usize) -> usize {
    if buffer >= BUFFER_DIRECT_MIN { bytes / buffer * buffer } else { bytes }
}

/// The writes of `fwrite` in blocks and of the `fclose` after them. A block first fills the buffer;
/// when that is full it is written, then whole buffers straight from the block, and the rest is
/// kept. Before its first use the buffer has no room.
fn buffered_writes<E>(
    bytes: usize,
    block: usize,
    buffer: usize,
    write: &mut impl FnMut(Range<usize>) -> Result<(), E>,
) -> Result<(), E> {
    let (mut kept_from, mut at, mut room) = (0, 0, 0);
    while at < bytes {
        let end = bytes.min(at.saturating_add(block));
        let fits = room.min(end - at);
        at += fits;
        room -= fits;
        if at == end {
            continue;
        }
        if kept_from < at {
            write(kept_from..at)?;
        }
        let past = direct(end - at, buffer);
        if past > 0 {
            write(at..at + past)?;
        }
        kept_from = at + past;
        room = buffer - (end - kept_from);
        at = end;
    }
    if kept_from < at { write(kept_from..at) } else { Ok(()) }
}

/// The reads of `fread` in blocks: the length that is asked for, and the one that comes. What is
/// wanted beyond the buffer is read past it in whole buffers, less than that through it.
fn buffered_reads<E>(
    bytes: usize,
    block: usize,
    buffer: usize,
    read: &mut impl FnMut(usize, usize) -> Result<(), E>,
) -> Result<(), E> {
    let (mut at, mut kept, mut done) = (0, 0, 0);
    while at < bytes {
        let mut want = block.min(bytes - at);
        at += want;
        while want > kept {
            want -= kept;
            kept = 0;
            if want < buffer {
                kept = buffer.min(bytes - done);
                read(buffer, kept)?;
                done += kept;
            } else {
                let past = direct(want, buffer);
                read(past, past)?;
                done += past;
                want -= past;
            }
        }
        kept -= want;
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
        let Ok(()) = buffered_reads(bytes, block, 4096, &mut |asked, expected| {
            calls.push((asked, expected));
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
