//! The check reports lost data, and nothing else.

use super::super::log::Log;
use super::*;
use tempfile::TempDir;

const SEED: u64 = 5;
const SECTORS: u64 = 16;

/// A synthetic log and image.
struct Fixture {
    directory: TempDir,
    log: Log,
    image: Vec<u8>,
}

impl Fixture {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let file = File::create(directory.path().join("log")).unwrap();
        let log = Log::begin(file, SEED, SECTORS * SECTOR_BYTES as u64).unwrap();
        Fixture { directory, log, image: vec![0; sector_index(SECTORS) * SECTOR_BYTES] }
    }

    fn log(&self, record: Record) {
        self.log.add(record).unwrap();
    }

    /// Logs the sending of a write of four sectors from 8 on.
    fn send(&self, count: u64, fua: bool) -> u64 {
        let id = sector::id(1, count);
        self.log(Record::Write { id, first: 8, sectors: 4, fua });
        id
    }

    fn write(&self, count: u64, fua: bool) -> u64 {
        let id = self.send(count, fua);
        self.log(Record::Written { id });
        id
    }

    fn flush(&self, count: u64) {
        let id = sector::id(2, count);
        self.log(Record::Flush { id });
        self.log(Record::Flushed { id });
    }

    /// Stores the first `sectors` sectors of a write in the image.
    fn store(&mut self, id: u64, sectors: usize) {
        let bytes = 8 * SECTOR_BYTES..(8 + sectors) * SECTOR_BYTES;
        sector::fill(SEED, id, 8, &mut self.image[bytes]);
    }

    fn check(&self) -> CheckResult {
        let (image, log) = (self.directory.path().join("image"), self.directory.path().join("log"));
        std::fs::write(&image, &self.image).unwrap();
        check(&image, &log).unwrap()
    }

    /// Returns the numbers of promised and missing writes.
    fn count(&self) -> (u64, u64) {
        let result = self.check();
        assert_eq!(result.missing == 0, result.findings.is_empty(), "{result:?}");
        (result.promised, result.missing)
    }
}

#[test]
fn a_sector_older_than_promised_is_found() {
    let mut fixture = Fixture::new();
    let old = fixture.write(1, false);
    fixture.flush(1);
    let new = fixture.write(2, false);
    fixture.store(new, 4);
    assert_eq!(fixture.count(), (1, 0));
    fixture.store(old, 1);
    assert_eq!(fixture.count(), (1, 0), "the second write was not acknowledged");
    fixture.flush(2);
    let result = fixture.check();
    assert_eq!((result.promised, result.missing), (2, 1));
    let text = "sectors 8 to 8: write 1.1; promised was write 1.2 (4 sectors from 8 on), sent last \
                was write 1.2";
    assert_eq!(result.findings, [text]);
}

#[test]
fn a_promised_write_that_never_came_is_found() {
    let mut fixture = Fixture::new();
    let id = fixture.write(1, false);
    assert_eq!(fixture.count(), (0, 0));
    fixture.flush(1);
    assert_eq!(fixture.count(), (1, 1));
    fixture.store(id, 3);
    assert_eq!(fixture.count(), (1, 1));
    fixture.store(id, 4);
    assert_eq!(fixture.count(), (1, 0));
}

#[test]
fn a_torn_sector_is_found_promised_or_not() {
    for promised in [false, true] {
        let mut fixture = Fixture::new();
        let old = fixture.write(1, promised);
        let new = fixture.send(2, false);
        fixture.store(old, 4);
        let tail: Vec<u8> = fixture.image[8 * SECTOR_BYTES + 256..9 * SECTOR_BYTES].to_vec();
        fixture.store(new, 4);
        assert_eq!(fixture.count(), (u64::from(promised), 0));
        fixture.image[8 * SECTOR_BYTES + 256..9 * SECTOR_BYTES].copy_from_slice(&tail);
        assert_eq!(fixture.count(), (u64::from(promised), 1));
    }
}

#[test]
fn a_later_write_is_accepted_answered_or_not_but_never_one_that_was_not_sent() {
    let mut fixture = Fixture::new();
    fixture.write(1, true);
    let later = fixture.send(2, false);
    fixture.store(later, 4);
    assert_eq!(fixture.count(), (1, 0));
    fixture.store(sector::id(1, 3), 4);
    assert_eq!(fixture.count(), (1, 1));
}

#[test]
fn only_what_was_answered_before_the_flush_was_sent_is_promised() {
    let fixture = Fixture::new();
    let id = fixture.send(1, false);
    let flush = sector::id(2, 1);
    fixture.log(Record::Flush { id: flush });
    fixture.log(Record::Written { id });
    fixture.log(Record::Flushed { id: flush });
    assert_eq!(fixture.count(), (0, 0));
    fixture.log(Record::Flush { id: flush });
    assert_eq!(fixture.count(), (0, 0), "it was not answered");
    fixture.log(Record::Flushed { id: flush });
    assert_eq!(fixture.count(), (1, 1));
}

#[test]
fn a_fua_write_is_promised_by_its_own_answer() {
    let mut fixture = Fixture::new();
    let id = fixture.send(1, true);
    assert_eq!(fixture.count(), (0, 0));
    fixture.log(Record::Written { id });
    assert_eq!(fixture.count(), (1, 1));
    fixture.store(id, 4);
    assert_eq!(fixture.count(), (1, 0));
}

#[test]
fn data_where_nobody_wrote_them_are_found() {
    let mut fixture = Fixture::new();
    let id = fixture.write(1, true);
    fixture.store(id, 4);
    sector::fill(SEED, id, 12, &mut fixture.image[12 * SECTOR_BYTES..13 * SECTOR_BYTES]);
    assert_eq!(fixture.count(), (1, 1));
    sector::fill(SEED, id, 8, &mut fixture.image[12 * SECTOR_BYTES..13 * SECTOR_BYTES]);
    assert_eq!(fixture.count(), (1, 1), "right data in a wrong place");
}

#[test]
fn a_short_image_is_an_error() {
    let mut fixture = Fixture::new();
    fixture.image.pop();
    let image = fixture.directory.path().join("image");
    std::fs::write(&image, &fixture.image).unwrap();
    let error = check(&image, &fixture.directory.path().join("log")).unwrap_err();
    assert!(error.to_string().contains("read 16 sectors"), "{error:#}");
}
