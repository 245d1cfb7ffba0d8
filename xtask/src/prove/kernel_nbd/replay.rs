//! Replays a log of the kernel's device-mapper target log-writes: the writes to a disk in their
//! order, up to every flush. Format: struct `log_write_super` and struct `log_write_entry` in the
//! kernel's drivers/md/dm-log-writes.c, all little-endian.

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

/// A place in the log at which the disk may have lost power.
pub(super) enum Point {
    /// Everything that was written until here is on stable storage.
    Flushed,
    /// A text that was put into the log.
    Mark(String),
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

/// Writes the log to an image, and calls `check` at every flush, write with FUA and mark; the
/// number of entries.
pub(super) fn replay(
    log: &Path,
    image: &Path,
    mut check: impl FnMut(&Point) -> Result<()>,
) -> Result<u64> {
    let mut log = File::open(log).context("open the log")?;
    let disk = File::options().write(true).open(image).context("open the image")?;
    let mut head = vec![0; 512];
    log.read_exact(&mut head).context("read the log")?;
    ensure!(u64_at(&head, 0) == MAGIC && u64_at(&head, 8) == 1, "no log of dm-log-writes");
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
        if flags & MARK != 0 {
            let text = entry.get(ENTRY_BYTES..ENTRY_BYTES + usize::try_from(text)?);
            let text = String::from_utf8_lossy(text.context("a mark is too long")?);
            check(&Point::Mark(text.trim_end_matches('\0').to_owned()))?;
        } else if flags & (FLUSH | FUA) != 0 {
            check(&Point::Flushed)?;
        }
    }
    Ok(count)
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
    fn writes_are_replayed_in_order_up_to_each_flush() {
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
        let entries = replay(&log, &image, |point| {
            let name = match point {
                Point::Flushed => "flushed",
                Point::Mark(text) => text,
            };
            seen.push((name.to_owned(), std::fs::read(&image).unwrap()[1024]));
            Ok(())
        });
        assert_eq!(entries.unwrap(), 5);
        let expected = [("flushed", 7), ("flushed", 8), ("made", 8)];
        assert_eq!(seen, expected.map(|(name, byte)| (name.to_owned(), byte)));
        assert_eq!(std::fs::read(&image).unwrap()[1024], 0, "discarded sectors read as zeros");
        std::fs::write(&log, vec![0; 512]).unwrap();
        assert!(replay(&log, &image, |_| Ok(())).is_err());
    }
}
