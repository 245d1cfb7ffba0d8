//! Warm lists with an engine in this process.

use super::*;
use larder_core::policy::PolicyKind;
use larder_core::volume::VolumeOptions;
use larder_io::engine::EngineOptions;
use larder_io::store;

#[test]
fn a_list_that_is_still_being_read_back_is_kept() {
    let directory = tempfile::tempdir().unwrap();
    let (image, list) = (directory.path().join("one.img"), directory.path().join("one.warm"));
    std::fs::File::create(&image).unwrap().set_len(16 << 20).unwrap();
    let identity = StoreIdentity::of_path(&image, 16 << 20).unwrap();
    let ranges = vec![100..200, 7..8];
    warm_list::save(&list, &identity, &ranges).unwrap();
    let options = EngineOptions {
        memory_bytes: 16 << 20,
        huge_pages: false,
        lock: false,
        threads: 2,
        policy_bytes: PolicyKind::S3Fifo.bytes_per_page(),
    };
    let engine = Arc::new(Engine::new(options).unwrap());
    let opened = store::open(&image, store::OpenOptions::default(), engine.clock()).unwrap();
    let options = VolumeOptions::new("one", opened.store.geometry());
    let volume = engine.add_volume(options, opened.store).unwrap();
    // A freeze prevents that the list is read back during the checks.
    engine.cache().freeze(&volume, true);
    let lists = WarmLists::start(
        directory.path().into(),
        Some(Duration::from_millis(1)),
        16 << 20,
        &engine,
    )
    .unwrap();
    lists.add(&volume, identity.clone());
    while !engine.cache().is_warming(&volume) {
        std::thread::yield_now();
    }
    assert_eq!(engine.cache().gauge(&volume, Gauge::Warming), 101 * BLOCK_BYTES_U64);
    lists.before_stop();
    // A stop ends reading back; the listed pages are hot regardless.
    engine.begin_stop();
    engine.cache().freeze(&volume, false);
    while engine.cache().is_warming(&volume) {
        std::thread::yield_now();
    }
    assert_eq!(lists.collect().len(), 0);
    engine.shut_down();
    let now = StoreIdentity { changed_ns: 1, ..identity };
    let loaded = warm_list::load(&list, &now, 9).unwrap();
    assert_eq!(loaded, Some(ranges), "and our changes of the file do not make it stale");
}
