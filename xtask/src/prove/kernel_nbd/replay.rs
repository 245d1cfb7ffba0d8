//! Replays a log of the kernel's device-mapper target log-writes. Writes that a flush covers
//! precede the flush in the log, in the order in which they completed. Format: struct
//! `log_write_super` and struct `log_write_entry` in the kernel's drivers/md/dm-log-writes.c, all
//! little-endian.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::FileExt as _;

use crate::prove::prelude::*;

const MAGIC: u64 = 0x006a_7366_7773_6872;
const FLUSH: u64 = 1;
const FUA: u64 = 2;
const DISCARD: u64 = 4;
const MARK: u64 = 8;
/// Bytes of an entry before the text of a mark.
const ENTRY_BYTES: usize = 32;
/// The mark that completes a log, when its device is removed.
pub(super) const END: &str = "dm-log-writes-end";

/// An entry of the log; after each the disk may have lost power.
pub(super) enum Point {
    /// A write or discard.
    Write,
    /// A flush, or a write with FUA: all earlier writes of the log are on stable storage.
    Flush,
    /// A text that was added to the log.
    Mark(String),
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

/// Writes the entries of a log to an image, and calls `check` after each.
pub(super) fn replay(
    log: &Path,
    image: &Path,
    mut check: impl FnMut(Point) -> Result<()>,
) -> Result<()> {
    let mut log = File::open(log).context("open the log")?;
    let disk = File::options().write(true).open(image).context("open the image")?;
    let mut head = vec![0; 512];
    log.read_exact(&mut head).context("read the log")?;
    ensure!(u64_at(&head, 0) == MAGIC && u64_at(&head, 8) == 1, "this is no log of dm-log-writes");
    let (count, sector_bytes) = (u64_at(&head, 16), u64_at(&head, 24) & u64::from(u32::MAX));
    let mut entry = vec![0; usize::try_from(sector_bytes)?];
    let mut data = Vec::new();
    log.seek(SeekFrom::Start(sector_bytes)).context("seek the log")?;
    for _ in 0..count {
        log.read_exact(&mut entry).context("read an entry")?;
        let [sector, sectors, flags, text] = [0, 8, 16, 24].map(|at| u64_at(&entry, at));
        data.clear();
        data.resize(usize::try_from(sectors * sector_bytes)?, 0);
        if flags & DISCARD == 0 {
            log.read_exact(&mut data).context("read the data of an entry")?;
        }
        disk.write_all_at(&data, sector * sector_bytes).context("write the image")?;
        check(if flags & MARK != 0 {
            let text = entry.get(ENTRY_BYTES..ENTRY_BYTES + usize::try_from(text)?);
            let text = String::from_utf8_lossy(text.context("a mark is too long")?);
            Point::Mark(text.trim_end_matches('\0').to_owned())
        } else if flags & (FLUSH | FUA) != 0 {
            Point::Flush
        } else {
            Point::Write
        })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(words: [u64; 4], text: &[u8]) -> Vec<u8> {
        let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        bytes.extend(text);
        bytes.resize(512, 0);
        bytes
    }

    #[test]
    fn entries_are_replayed_in_order_and_discarded_sectors_read_as_zeros() {
        let dir = tempfile::tempdir().unwrap();
        let (log, image) = (dir.path().join("log"), dir.path().join("image"));
        let bytes = [
            entry([MAGIC, 1, 5, 512], b""),
            entry([2, 1, 0, 0], b""),
            vec![7; 512],
            entry([0, 0, FLUSH, 0], b""),
            entry([2, 1, FUA, 0], b""),
            vec![8; 512],
            entry([0, 0, MARK, 4], b"made"),
            entry([2, 1, DISCARD, 0], b""),
        ];
        std::fs::write(&log, bytes.concat()).unwrap();
        std::fs::write(&image, vec![0; 2048]).unwrap();
        let mut seen = Vec::new();
        replay(&log, &image, |point| {
            let name = match point {
                Point::Write => "write".to_owned(),
                Point::Flush => "flush".to_owned(),
                Point::Mark(text) => text,
            };
            seen.push((name, std::fs::read(&image).unwrap()[1024]));
            Ok(())
        })
        .unwrap();
        let expected = [("write", 7), ("flush", 7), ("flush", 8), ("made", 8), ("write", 0)];
        assert_eq!(seen, expected.map(|(name, byte)| (name.to_owned(), byte)));
        std::fs::write(&log, vec![0; 512]).unwrap();
        assert!(replay(&log, &image, |_| Ok(())).is_err());
    }
}
