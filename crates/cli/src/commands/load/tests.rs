//! The load against a server in this process, without a crash and with a simulated one.

use super::*;
use larder_core::mode::FlushMode;
use larder_core::policy::PolicyKind;
use larder_core::volume::VolumeOptions;
use larder_io::engine::{Engine, EngineOptions};
use larder_io::front::nbd::{Export, ListenAddress, Server, ServerLimits};
use larder_io::store;
use std::sync::Arc;

const IMAGE_BYTES: u64 = 24 << 20;

/// Loads an image for one second and checks it before the remaining dirty data is written, as after
/// a crash.
fn run_load(flush_mode: FlushMode) -> load::CheckResult {
    let directory = tempfile::tempdir().unwrap();
    let (image, log) = (directory.path().join("image"), directory.path().join("log"));
    std::fs::File::create(&image).unwrap().set_len(IMAGE_BYTES).unwrap();
    let options = EngineOptions {
        memory_bytes: 8 << 20,
        huge_pages: false,
        lock: false,
        threads: 2,
        policy_bytes: PolicyKind::S3Fifo.bytes_per_page(),
    };
    let engine = Arc::new(Engine::new(options).unwrap());
    let options = store::OpenOptions { read_only: false, plain: false };
    let opened = store::open(&image, options, engine.clock()).unwrap();
    let mut options = VolumeOptions::new("image", opened.store.geometry());
    options.flush_mode = flush_mode;
    let volume = engine.add_volume(options, opened.store).unwrap();
    let limits = ServerLimits::default();
    let export = Export::new(volume, opened.map, true, &limits);
    let address = ListenAddress::Unix(directory.path().join("socket"));
    let server = Server::start(Arc::clone(&engine), &address, vec![export], limits).unwrap();
    let arguments = LoadArgs {
        uri: None,
        seed: 1,
        connections: 4,
        depth: 8,
        time: Some(Duration::from_secs(1)),
        log: Some(log.clone()),
        check: None,
    };
    super::load(&arguments, &server.uri("image").parse().unwrap()).unwrap();
    let result = load::check(&image, &log).unwrap();
    server.close();
    engine.shut_down();
    result
}

#[test]
fn what_a_flush_covers_is_in_the_image_without_a_drain() {
    let result = run_load(FlushMode::Keep);
    assert!(result.promised > 0);
    assert_eq!(result.missing, 0, "{:?}", result.findings);
}

#[test]
fn a_server_that_ignores_flushes_is_found_out() {
    let result = run_load(FlushMode::Ignore);
    assert!(result.missing > 0, "{} writes promised", result.promised);
}

#[test]
fn a_time_has_its_unit() {
    assert_eq!(time("10s"), Ok(Duration::from_secs(10)));
    for wrong in ["10", "s", "1.5h"] {
        assert!(time(wrong).unwrap_err().contains("10s"), "{wrong}");
    }
}
