//! Both transports of requests, through the device and by io_uring: the notes on them, and complete
//! transfers of the largest and the smallest requests.

use super::{MIB, Service, can_mount};
use crate::common::{
    TIMEOUT,
    rig::{Memory, engine, eventually, volume},
};
use larder_io::front::fuse::VolumeMount;
use larder_io::store::SolidMap;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

/// The kernel's switch for io_uring, which not all kernels have.
const SWITCH: &str = "/sys/module/fuse/parameters/enable_uring";

#[test]
fn what_could_be_faster_is_said_with_the_way_to_have_it() {
    if !can_mount() {
        return;
    }
    let service = Service::new(16 * MIB, MIB, Memory::new(MIB));
    match std::fs::read_to_string(SWITCH) {
        Ok(state) if state.trim() == "N" => {
            let note = service.mount().notes().pop().expect("it is switched off");
            assert!(note.contains(&format!("echo Y > {SWITCH}")), "{note}");
        }
        _ => assert!(service.mount().notes().is_empty()),
    }
    service.end();
}

#[test]
fn requests_of_all_sizes_come_whole_by_either_way() {
    if !can_mount() {
        return;
    }
    for plain in [false, true] {
        let (engine, memory) = (engine(16 * MIB), Memory::new(4 * MIB));
        let disk = volume(&engine, "disk", 4 * MIB, memory.clone());
        let directory = tempfile::tempdir().expect("a directory");
        let volumes = vec![(Arc::clone(&disk), Arc::new(SolidMap) as _)];
        let mount = VolumeMount::start(Arc::clone(&engine), directory.path(), volumes, None, plain);
        let mount = mount.expect("a mount");
        assert!(!plain || mount.notes().is_empty(), "it was asked for");
        let mut options = std::fs::OpenOptions::new();
        let file =
            options.read(true).write(true).open(directory.path().join("disk")).expect("there");
        let bytes: Vec<u8> = (0..3 * MIB).map(|at| u8::try_from(at % 251).unwrap()).collect();
        file.write_all_at(&bytes, 1).expect("room");
        let threads: Vec<_> = [1, 4095, 4096, 100_000, 2 * MIB]
            .into_iter()
            .map(|len| {
                let (file, bytes) = (file.try_clone().expect("a descriptor"), bytes.clone());
                let len = usize::try_from(len).unwrap();
                std::thread::spawn(move || {
                    for at in (0..bytes.len() - len).step_by(len.max(70_000)) {
                        let mut read = vec![0; len];
                        file.read_exact_at(&mut read, at as u64 + 1).expect("a read");
                        assert!(read == bytes[at..at + len], "{len} bytes at {at}");
                    }
                })
            })
            .collect();
        for thread in threads {
            thread.join().expect("no reader fails");
        }
        file.sync_all().expect("a flush");
        assert!(memory.bytes(1, bytes.len()) == bytes, "all of it is in the store");
        drop(file);
        assert!(mount.remove("disk", TIMEOUT));
        eventually("it is not in use", || mount.unmount(false).is_ok());
        mount.close();
        crate::common::rig::end(&engine);
    }
}
