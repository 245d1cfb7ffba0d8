//! The check finds what is lost, and only that.

use super::super::log::Log;
use super::*;
use tempfile::TempDir;

const SEED: u64 = 5;
const SECTORS: u64 = 16;

/// A log and an image made by hand.
struct Scene {
    directory: TempDir,
    log: Log,
    image: Vec<u8>,
}

impl Scene {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let log = Log::create(&directory.path().join("log"), SEED, SECTORS).unwrap();
        Scene { directory, log, image: vec![0; index(SECTORS) * SECTOR_BYTES] }
    }

    fn log(&self, record: Record) {
        self.log.add(record).unwrap();
    }

    /// Announces a write of four sectors from 8 on.
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

    /// Puts so many sectors of a write into the image.
    fn store(&mut self, id: u64, sectors: usize) {
        let bytes = 8 * SECTOR_BYTES..(8 + sectors) * SECTOR_BYTES;
        sector::fill(SEED, id, 8, &mut self.image[bytes]);
    }

    fn check(&self) -> Verdict {
        let (image, log) = (self.directory.path().join("image"), self.directory.path().join("log"));
        std::fs::write(&image, &self.image).unwrap();
        check(&image, &log).unwrap()
    }

    /// Promised and missing.
    fn count(&self) -> (u64, u64) {
        let verdict = self.check();
        assert_eq!(verdict.missing == 0, verdict.findings.is_empty(), "{verdict:?}");
        (verdict.promised, verdict.missing)
    }
}

#[test]
fn a_sector_older_than_promised_is_found() {
    let mut scene = Scene::new();
    let old = scene.write(1, false);
    scene.flush(1);
    let new = scene.write(2, false);
    scene.store(new, 4);
    assert_eq!(scene.count(), (1, 0));
    scene.store(old, 1);
    assert_eq!(scene.count(), (1, 0), "nobody was promised the second write");
    scene.flush(2);
    let verdict = scene.check();
    assert_eq!((verdict.promised, verdict.missing), (2, 1));
    let text = "sectors 8 to 8: write 1.1; promised was write 1.2 (4 sectors from 8 on), sent last \
                was write 1.2";
    assert_eq!(verdict.findings, [text]);
}

#[test]
fn a_promised_write_that_never_came_is_found() {
    let mut scene = Scene::new();
    let id = scene.write(1, false);
    assert_eq!(scene.count(), (0, 0));
    scene.flush(1);
    assert_eq!(scene.count(), (1, 1));
    scene.store(id, 3);
    assert_eq!(scene.count(), (1, 1));
    scene.store(id, 4);
    assert_eq!(scene.count(), (1, 0));
}

#[test]
fn a_torn_sector_is_found_promised_or_not() {
    for promised in [false, true] {
        let mut scene = Scene::new();
        let old = scene.write(1, promised);
        let new = scene.send(2, false);
        scene.store(old, 4);
        let tail: Vec<u8> = scene.image[8 * SECTOR_BYTES + 256..9 * SECTOR_BYTES].to_vec();
        scene.store(new, 4);
        assert_eq!(scene.count(), (u64::from(promised), 0));
        scene.image[8 * SECTOR_BYTES + 256..9 * SECTOR_BYTES].copy_from_slice(&tail);
        assert_eq!(scene.count(), (u64::from(promised), 1));
    }
}

#[test]
fn a_later_write_is_accepted_answered_or_not_but_never_one_that_was_not_sent() {
    let mut scene = Scene::new();
    scene.write(1, true);
    let later = scene.send(2, false);
    scene.store(later, 4);
    assert_eq!(scene.count(), (1, 0));
    scene.store(sector::id(1, 3), 4);
    assert_eq!(scene.count(), (1, 1));
}

#[test]
fn only_what_was_answered_before_the_flush_was_sent_is_promised() {
    let scene = Scene::new();
    let id = scene.send(1, false);
    let flush = sector::id(2, 1);
    scene.log(Record::Flush { id: flush });
    scene.log(Record::Written { id });
    scene.log(Record::Flushed { id: flush });
    assert_eq!(scene.count(), (0, 0));
    scene.log(Record::Flush { id: flush });
    assert_eq!(scene.count(), (0, 0), "it was not answered");
    scene.log(Record::Flushed { id: flush });
    assert_eq!(scene.count(), (1, 1));
}

#[test]
fn a_fua_write_is_promised_by_its_own_answer() {
    let mut scene = Scene::new();
    let id = scene.send(1, true);
    assert_eq!(scene.count(), (0, 0));
    scene.log(Record::Written { id });
    assert_eq!(scene.count(), (1, 1));
    scene.store(id, 4);
    assert_eq!(scene.count(), (1, 0));
}

#[test]
fn data_where_nobody_wrote_them_are_found() {
    let mut scene = Scene::new();
    let id = scene.write(1, true);
    scene.store(id, 4);
    sector::fill(SEED, id, 12, &mut scene.image[12 * SECTOR_BYTES..13 * SECTOR_BYTES]);
    assert_eq!(scene.count(), (1, 1));
    sector::fill(SEED, id, 8, &mut scene.image[12 * SECTOR_BYTES..13 * SECTOR_BYTES]);
    assert_eq!(scene.count(), (1, 1), "right data in a wrong place");
}

#[test]
fn a_short_image_is_an_error() {
    let mut scene = Scene::new();
    scene.image.pop();
    let image = scene.directory.path().join("image");
    std::fs::write(&image, &scene.image).unwrap();
    let error = check(&image, &scene.directory.path().join("log")).unwrap_err();
    assert!(error.to_string().contains("read 16 sectors"), "{error:#}");
}
