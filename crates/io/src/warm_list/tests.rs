//! Saved lists are read back; truncated or changed ones are refused; other stores are detected.

use super::file::{HEADER_BYTES, UnusableList, VERSION, from_bytes, to_bytes};
use super::{ListError, StaleReason, StoreIdentity, StoreKind, load, save};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use std::ops::Range;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, SystemTime};

fn store() -> StoreIdentity {
    StoreIdentity {
        kind: StoreKind::File,
        place: b"/srv/disk.img".to_vec(),
        length: 1 << 40,
        device: 7,
        inode: 1234,
        changed_ns: 1_700_000_000_000_000_000,
    }
}

/// Returns ranges as a cache saves them, and some that no cache saves: of any length, in any order.
fn anything(random: &mut impl Rng) -> Vec<Range<u64>> {
    let count = random.next_u64() % 200;
    let scale = random.next_u64() % 48;
    let range = |_| {
        let start = random.next_u64() >> (63 - scale);
        start..start + 1 + random.next_u64() % (1 << (random.next_u64() % 40))
    };
    (0..count).map(range).filter(|range| range.end <= 1 << 48).collect()
}

#[test]
fn what_is_saved_is_read_back() {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(0x11);
    for _ in 0..500 {
        let ranges = anything(&mut random);
        let bytes = to_bytes(&store(), &ranges).unwrap();
        assert_eq!(from_bytes(&bytes, &store(), usize::MAX).unwrap(), ranges);
        let few = usize::try_from(random.next_u64() % 20).unwrap();
        let first = from_bytes(&bytes, &store(), few).unwrap();
        assert_eq!(first, ranges[..few.min(ranges.len())], "the hottest, if there is room for few");
    }
}

#[test]
fn a_list_is_small() {
    // Every second page of a gibibyte, in eight parts by heat.
    let part = |heat: u64| (0..16_384).map(move |i| i * 16 + heat * 2).map(|at| at..at + 1);
    let ranges: Vec<_> = (0..8).flat_map(part).collect();
    let bytes = to_bytes(&store(), &ranges).unwrap();
    assert!(bytes.len() < ranges.len() / 10, "{} bytes, {} ranges", bytes.len(), ranges.len());
    let mut random = Xoshiro256PlusPlus::seed_from_u64(0x12);
    let scattered: Vec<_> = (0..100_000).map(|_| random.next_u64() >> 38).collect();
    let ranges: Vec<_> = scattered.iter().map(|&at| at..at + 1).collect();
    let bytes = to_bytes(&store(), &ranges).unwrap();
    assert!(bytes.len() < ranges.len() * 5, "{} bytes, {} ranges", bytes.len(), ranges.len());
}

#[test]
fn every_truncation_and_every_changed_bit_is_refused() {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(0x13);
    let ranges = anything(&mut random);
    let bytes = to_bytes(&store(), &ranges).unwrap();
    let refused = |bytes: &[u8]| from_bytes(bytes, &store(), usize::MAX).unwrap_err();
    for length in 0..bytes.len() {
        let error = refused(&bytes[..length]);
        assert!(
            matches!(error, UnusableList::Foreign | UnusableList::Damaged(_)),
            "{length}: {error:?}"
        );
    }
    for bit in 0..bytes.len() * 8 {
        let mut changed = bytes.clone();
        changed[bit / 8] ^= 1 << (bit % 8);
        let error = refused(&changed);
        let is_expected = match bit / 8 {
            0..8 => matches!(error, UnusableList::Foreign),
            8..10 => matches!(error, UnusableList::Version(_)),
            _ => matches!(error, UnusableList::Damaged(_)),
        };
        assert!(is_expected, "bit {bit}: {error:?}");
    }
    let mut longer = bytes;
    longer.push(0);
    assert!(matches!(refused(&longer), UnusableList::Damaged(_)));
}

/// Returns a list with this payload, compressed, and correct checksums.
fn with_payload(raw: &[u8]) -> Vec<u8> {
    let payload = zstd::encode_all(raw, 1).unwrap();
    let mut bytes = to_bytes(&store(), &[]).unwrap();
    bytes.truncate(HEADER_BYTES);
    bytes.extend_from_slice(&payload);
    bytes[12..16].copy_from_slice(&u32::try_from(payload.len()).unwrap().to_le_bytes());
    bytes[16..20].copy_from_slice(&crc32c::crc32c(&payload).to_le_bytes());
    let crc = crc32c::crc32c(&bytes[..28]);
    bytes[28..32].copy_from_slice(&crc.to_le_bytes());
    bytes
}

#[test]
fn payloads_of_another_form_are_refused_and_harm_nobody() {
    let whole = to_bytes(&store(), &[5..9, 2..3, 1 << 47..1 << 48]).unwrap();
    let raw = zstd::decode_all(&whole[HEADER_BYTES..]).unwrap();
    assert!(from_bytes(&with_payload(&raw), &store(), 9).is_ok());
    for length in 0..raw.len() {
        let error = from_bytes(&with_payload(&raw[..length]), &store(), 9).unwrap_err();
        assert!(matches!(error, UnusableList::Damaged(_)), "{length}: {error:?}");
    }
    let mut random = Xoshiro256PlusPlus::seed_from_u64(0x14);
    for _ in 0..5000 {
        let mut changed = raw.clone();
        for _ in 0..=random.next_u64() % 3 {
            let at = usize::try_from(random.next_u64() % changed.len() as u64).unwrap();
            changed[at] = random.next_u64().to_le_bytes()[0];
        }
        if let Ok(ranges) = from_bytes(&with_payload(&changed), &store(), 1000) {
            assert!(ranges.len() <= 1000);
            assert!(ranges.iter().all(|range| range.start < range.end && range.end <= 1 << 48));
        }
    }
}

#[test]
fn other_stores_are_told_apart() {
    let saved = store();
    let check = |now: StoreIdentity| saved.check(&now);
    assert_eq!(check(store()), Ok(()));
    // A renamed file; a device with another number after a boot.
    assert_eq!(check(StoreIdentity { place: b"/srv/new.img".to_vec(), ..store() }), Ok(()));
    assert_eq!(check(StoreIdentity { device: 8, ..store() }), Ok(()));
    assert_eq!(check(StoreIdentity { changed_ns: 0, ..store() }), Ok(()));
    assert_eq!(saved.in_use().check(&StoreIdentity { changed_ns: 5, ..store() }), Ok(()));
    assert_eq!(check(StoreIdentity { changed_ns: 5, ..store() }), Err(StaleReason::Changed));
    assert_eq!(check(StoreIdentity { inode: 5, ..store() }), Err(StaleReason::Replaced));
    let grown = StoreIdentity { length: 2 << 40, ..store() };
    assert_eq!(check(grown), Err(StaleReason::Length { was: 1 << 40, is: 2 << 40 }));
    let other = StoreIdentity { place: b"/srv/new.img".to_vec(), device: 8, ..store() };
    assert_eq!(check(other), Err(StaleReason::Other { was: "/srv/disk.img".into() }));
    let export = StoreIdentity::of_export("nbd://host/disk", 1 << 40);
    assert!(matches!(check(export.clone()), Err(StaleReason::Kind { .. })));
    let elsewhere = StoreIdentity::of_export("nbd://host/other", 1 << 40);
    assert_eq!(export.check(&export), Ok(()));
    assert_eq!(export.check(&elsewhere), Err(StaleReason::Other { was: "nbd://host/disk".into() }));
}

#[test]
fn a_file_that_others_changed_or_replaced_is_noticed() {
    let directory = tempfile::tempdir().unwrap();
    let (image, list) = (directory.path().join("disk.img"), directory.path().join("disk.warm"));
    std::fs::write(&image, [0; 4096]).unwrap();
    let now = || StoreIdentity::of_path(&image, 4096).unwrap();
    assert!(load(&list, &now(), 9).unwrap().is_none(), "there is none yet");
    save(&list, &now(), &[0..1, 4..6]).unwrap();
    assert_eq!(load(&list, &now(), 9).unwrap(), Some(vec![0..1, 4..6]));
    let mode = std::fs::metadata(&list).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "requests are private");
    let file = std::fs::File::options().write(true).open(&image).unwrap();
    file.set_modified(SystemTime::now() + Duration::from_secs(5)).unwrap();
    let stale = |expected: &StaleReason| match load(&list, &now(), 9) {
        Err(ListError::Unusable { reason: UnusableList::Stale(reason), .. }) => {
            assert_eq!(reason, *expected);
        }
        other => panic!("{other:?}"),
    };
    stale(&StaleReason::Changed);
    // A list that was saved while the file was being written does not detect changes.
    save(&list, &now().in_use(), &[0..1, 4..6]).unwrap();
    file.set_modified(SystemTime::now() + Duration::from_secs(9)).unwrap();
    assert!(load(&list, &now(), 9).unwrap().is_some());
    let other = directory.path().join("other.img");
    std::fs::write(&other, [0; 4096]).unwrap();
    std::fs::rename(&other, &image).unwrap();
    stale(&StaleReason::Replaced);
}

#[test]
fn what_cannot_be_used_is_said_in_a_sentence() {
    let directory = tempfile::tempdir().unwrap();
    let list = directory.path().join("disk.warm");
    let message = |bytes: &[u8]| {
        std::fs::write(&list, bytes).unwrap();
        load(&list, &store(), 9).unwrap_err().to_string()
    };
    let prefix = format!("use the list {}: ", list.display());
    assert_eq!(
        message(b"memory = \"1GiB\""),
        format!("{prefix}it is not a list of resident blocks")
    );
    assert_eq!(message(b""), format!("{prefix}it is not a list of resident blocks"));
    let mut bytes = to_bytes(&store(), &[3..4, 8..9]).unwrap();
    assert_eq!(message(&bytes[..31]), format!("{prefix}it is damaged: it is cut short"));
    bytes[8..10].copy_from_slice(&(VERSION + 1).to_le_bytes());
    assert_eq!(
        message(&bytes),
        format!("{prefix}its version is 2, and 1 is the latest known here")
    );
    std::fs::remove_file(&list).unwrap();
    std::fs::create_dir(&list).unwrap();
    let error = load(&list, &store(), 9).unwrap_err().to_string();
    assert!(
        error.starts_with(&format!("read the list {}: it is not a regular file", list.display())),
        "{error}"
    );
}

#[test]
fn a_list_that_cannot_be_written_leaves_the_old_one() {
    let directory = tempfile::tempdir().unwrap();
    let list = directory.path().join("disk.warm");
    save(&list, &store(), &[3..4, 8..9]).unwrap();
    let occupied = directory.path().join("list");
    std::fs::create_dir(&occupied).unwrap();
    let error = save(&occupied, &store(), &[5..6, 8..9]).unwrap_err().to_string();
    assert!(error.starts_with(&format!("write the list {}: ", occupied.display())), "{error}");
    assert_eq!(load(&list, &store(), 9).unwrap(), Some(vec![3..4, 8..9]));
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 2, "nothing is left");
    let nowhere = directory.path().join("none/disk.warm");
    assert!(matches!(save(&nowhere, &store(), &[]), Err(ListError::Write { .. })));
}
