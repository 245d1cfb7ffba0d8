//! Disks whose I/O counters are switched off.

use super::rig::{TestFs, Watcher};
use larder_host::stack::{Roots, Stack};
use std::fs;
use std::path::PathBuf;

/// A disk whose counters are switched off until the value is dropped. A loop device keeps the
/// setting when its file is detached.
struct SwitchedOff(PathBuf);

impl SwitchedOff {
    fn new(disk: &str) -> SwitchedOff {
        let setting = PathBuf::from(format!("/sys/block/{disk}/queue/iostats"));
        fs::write(&setting, "0").unwrap();
        SwitchedOff(setting)
    }
}

impl Drop for SwitchedOff {
    fn drop(&mut self) {
        // The test has ended; the device may be gone.
        drop(fs::write(&self.0, "1"));
    }
}

pub(crate) fn check(test_fs: &TestFs) {
    let disk = Stack::of_path(&Roots::default(), test_fs.path()).unwrap().name;
    let write = |name: &str| {
        let path = test_fs.path().join(name);
        fs::write(&path, vec![7; 4 << 20]).unwrap();
        fs::File::open(path).unwrap().sync_all().unwrap();
    };
    let watcher = Watcher::start(&[]);
    write("counted");
    let watch = watcher.end();
    assert!(watch.total.uncounted.iter().all(|it| *it != disk), "{:?}", watch.total.uncounted);
    assert!(watch.total.disks.iter().any(|it| it.name == disk), "{:?}", watch.total.disks);

    let off = SwitchedOff::new(&disk);
    let watcher = Watcher::start(&[]);
    write("uncounted");
    // Switched on again, it was counted in part at most.
    drop(off);
    write("later");
    let watch = watcher.end();
    assert!(watch.total.uncounted.contains(&disk), "{:?}", watch.total.uncounted);
    assert!(watch.total.disks.iter().all(|it| it.name != disk), "{:?}", watch.total.disks);
}
