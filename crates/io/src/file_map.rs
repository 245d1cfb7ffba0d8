//! A file mapped into memory: read and written by copies, as programs do that map their files.
//!
//! Invariants: the mapping covers `len` bytes from `base` until it is dropped, and no reference
//! into it escapes. Other processes may map the same file and write to it at any time, so atomic
//! operations load and store one word at a time, and a copy of several words may mix old and new
//! ones. If a file is truncated under its mapping, an access to the missing part ends the process
//! (SIGBUS), as in every program that maps files. Offsets and lengths are in bytes.

use rustix::mm::{MapFlags, MsyncFlags, ProtFlags, mmap, msync, munmap};
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

const WORD: usize = size_of::<u64>();

/// A file, or the start of one, in memory.
#[derive(Debug)]
pub struct FileMap {
    base: NonNull<u8>,
    len: usize,
    writable: bool,
}

// SAFETY: a mapping belongs to the process, not to a thread.
unsafe impl Send for FileMap {}

impl FileMap {
    /// Maps the first `len` bytes of a file, shared with all other users of the file; `len` is
    /// above 0 and not beyond the end of the file. With `writable`, the file must be open for
    /// writing.
    ///
    /// # Errors
    /// The file is shorter, or the system cannot map it.
    pub fn new(file: &File, len: u64, writable: bool) -> io::Result<FileMap> {
        let invalid = |message| io::Error::new(io::ErrorKind::InvalidInput, message);
        let metadata = file.metadata()?;
        if len == 0 || (metadata.is_file() && metadata.len() < len) {
            return Err(invalid("only what a file holds can be mapped"));
        }
        let len = usize::try_from(len).map_err(io::Error::other)?;
        let protection =
            if writable { ProtFlags::READ | ProtFlags::WRITE } else { ProtFlags::READ };
        // SAFETY: the kernel chooses an address range that is not in use.
        let base = unsafe {
            mmap(std::ptr::null_mut(), len, protection, MapFlags::SHARED, file.as_fd(), 0)
        }?;
        let base = NonNull::new(base.cast::<u8>()).expect("the kernel maps nothing at 0 unasked");
        Ok(FileMap { base, len, writable })
    }

    /// Returns the offset and the number of bytes before the first whole word, if the range lies
    /// inside the mapping.
    fn checked_range(&self, offset: u64, len: usize) -> io::Result<(usize, usize)> {
        let offset = usize::try_from(offset).ok();
        let fits =
            offset.filter(|offset| offset.checked_add(len).is_some_and(|end| end <= self.len));
        let Some(offset) = fits else {
            let error = io::ErrorKind::UnexpectedEof;
            return Err(io::Error::new(error, "beyond the end of the mapping"));
        };
        // A mapping begins at a page, so words are aligned where their offsets are.
        Ok((offset, (offset.next_multiple_of(WORD) - offset).min(len)))
    }

    /// Copies bytes out of the mapping.
    ///
    /// # Errors
    /// The range does not lie inside the mapping.
    #[expect(clippy::host_endian_bytes, reason = "bytes stay in the order in which they lie")]
    pub fn read(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let (start, head) = self.checked_range(offset, buffer.len())?;
        let (first, rest) = buffer.split_at_mut(head);
        let (words, last) = rest.as_chunks_mut::<WORD>();
        let tail = start + head + words.len() * WORD;
        for (index, word) in (start + head..).step_by(WORD).zip(words) {
            *word = self.word(index).load(Ordering::Relaxed).to_ne_bytes();
        }
        for (index, byte) in (start..).zip(first).chain((tail..).zip(last)) {
            *byte = self.byte(index).load(Ordering::Relaxed);
        }
        Ok(())
    }

    /// Copies bytes into the mapping.
    ///
    /// # Errors
    /// The range does not lie inside the mapping, or the mapping is read-only.
    #[expect(clippy::host_endian_bytes, reason = "bytes stay in the order in which they lie")]
    pub fn write(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        if !self.writable {
            let error = io::ErrorKind::PermissionDenied;
            return Err(io::Error::new(error, "it is mapped for reading only"));
        }
        let (start, head) = self.checked_range(offset, bytes.len())?;
        let (first, rest) = bytes.split_at(head);
        let (words, last) = rest.as_chunks::<WORD>();
        let tail = start + head + words.len() * WORD;
        for (index, word) in (start + head..).step_by(WORD).zip(words) {
            self.word(index).store(u64::from_ne_bytes(*word), Ordering::Relaxed);
        }
        for (index, byte) in (start..).zip(first).chain((tail..).zip(last)) {
            self.byte(index).store(*byte, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Makes written bytes stable.
    ///
    /// # Errors
    /// The system cannot write them.
    pub fn flush(&self) -> io::Result<()> {
        // SAFETY: the range is exactly the mapping; the call changes nothing in it.
        unsafe { msync(self.base.as_ptr().cast(), self.len, MsyncFlags::SYNC) }?;
        Ok(())
    }

    fn byte(&self, index: usize) -> &AtomicU8 {
        assert!(index < self.len, "a place inside of the mapping");
        // SAFETY: the assertion has checked the bounds.
        let at = unsafe { self.base.add(index) };
        // SAFETY: the byte lives as long as the mapping, and all code of this process accesses it
        // by atomic operations only.
        unsafe { AtomicU8::from_ptr(at.as_ptr()) }
    }

    /// Returns a word of the mapping, at a multiple of the length of a word.
    fn word(&self, index: usize) -> &AtomicU64 {
        let fits = self.len.checked_sub(WORD).is_some_and(|last| index <= last);
        assert!(fits && index.is_multiple_of(WORD), "a whole word inside of the mapping");
        // SAFETY: the assertion has checked the bounds.
        let at = unsafe { self.base.add(index) }.cast::<u64>();
        // SAFETY: as for a byte; the base is page-aligned and `index` is a multiple of the word
        // length.
        unsafe { AtomicU64::from_ptr(at.as_ptr()) }
    }
}

impl Drop for FileMap {
    fn drop(&mut self) {
        // SAFETY: the range is exactly the mapping, and no reference into it exists.
        let unmapped = unsafe { munmap(self.base.as_ptr().cast(), self.len) };
        debug_assert!(unmapped.is_ok(), "what was mapped can be unmapped");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand_xoshiro::Xoshiro256PlusPlus;
    use rand_xoshiro::rand_core::{Rng, SeedableRng};
    use std::os::unix::fs::FileExt;

    const LEN: usize = 3 * 4096 + 100;

    fn file() -> File {
        let file = tempfile::tempfile().unwrap();
        file.set_len(LEN as u64).unwrap();
        file
    }

    #[test]
    fn reads_and_writes_of_any_place_and_length_agree_with_an_array() {
        let file = file();
        let mut map = FileMap::new(&file, LEN as u64, true).unwrap();
        let mut model = vec![0_u8; LEN];
        let mut random = Xoshiro256PlusPlus::seed_from_u64(7);
        let mut below = |end: usize| usize::try_from(random.next_u64() % end as u64).unwrap();
        for round in 0..4_000_u32 {
            let at = below(LEN + 1);
            let len = below((LEN - at).min(70) + 1);
            if round % 2 == 0 {
                let value = u8::try_from(round % 251).unwrap();
                let bytes: Vec<u8> = (0..len).map(|i| value ^ u8::try_from(i).unwrap()).collect();
                map.write(at as u64, &bytes).unwrap();
                model[at..at + len].copy_from_slice(&bytes);
            } else {
                let mut bytes = vec![0; len];
                map.read(at as u64, &mut bytes).unwrap();
                assert_eq!(bytes, model[at..at + len], "{len} bytes at {at}");
            }
        }
        map.flush().unwrap();
        let mut whole = vec![0; LEN];
        file.read_exact_at(&mut whole, 0).unwrap();
        assert!(whole == model, "what is in the mapping is in the file");
    }

    #[test]
    fn what_others_write_to_the_file_is_seen() {
        let file = file();
        let map = FileMap::new(&file, LEN as u64, false).unwrap();
        file.write_all_at(b"seen", 5000).unwrap();
        let mut bytes = [0; 4];
        map.read(5000, &mut bytes).unwrap();
        assert_eq!(&bytes, b"seen");
    }

    #[test]
    fn nothing_beyond_the_mapping_is_touched() {
        let file = file();
        let mut map = FileMap::new(&file, 4096, true).unwrap();
        map.write(4096, &[]).unwrap();
        for (offset, len) in [(4096, 1), (4095, 2), (u64::MAX, 1), (u64::MAX, 0)] {
            assert!(map.read(offset, &mut vec![0; len]).is_err(), "{len} at {offset}");
            assert!(map.write(offset, &vec![1; len]).is_err(), "{len} at {offset}");
        }
        for len in [0, LEN as u64 + 1] {
            let error = FileMap::new(&file, len, true).unwrap_err().to_string();
            assert_eq!(error, "only what a file holds can be mapped");
        }
    }

    #[test]
    fn a_mapping_for_reading_is_not_written() {
        let error = FileMap::new(&file(), 4096, false).unwrap().write(0, &[1]).unwrap_err();
        assert_eq!(error.to_string(), "it is mapped for reading only");
    }
}
