//! Attribution of disk writes to the processes and files that cause them.

use super::rig::{TestFs, Watcher, counts, is_written_back};
use larder_schema::watch::Watch;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Minimum share of the bytes written to a disk that must carry a name, without those marked as
/// metadata.
const NAMED_MIN: f64 = 0.95;

/// Runs a process that writes a file and ends. Returns its process ID.
fn write(path: &Path, mib: u64, more: &[&str]) -> u32 {
    let mut dd = Command::new("dd");
    let (output, count) = (format!("of={}", path.display()), format!("count={mib}"));
    dd.args(["if=/dev/zero", &output, "bs=1M", &count, "conv=notrunc"]).args(more);
    let mut child = dd.stderr(Stdio::null()).spawn().unwrap();
    assert!(child.wait().unwrap().success());
    child.id()
}

/// Returns the number of bytes written to the device of the file system.
fn written_bytes(test_fs: &TestFs, watch: &Watch) -> u64 {
    let disk = larder_host::disk::Disk::of(test_fs.path()).unwrap().unwrap();
    let found = watch.total.disks.iter().find(|it| it.name == disk.name);
    found.map_or(0, larder_schema::watch::Disk::write_bytes)
}

#[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
fn share(part: u64, whole: u64) -> f64 {
    part as f64 / whole.max(1) as f64
}

/// Two processes write a file each, and both have ended when the kernel writes the data.
pub(crate) fn check_late_writes(test_fs: &TestFs) {
    let mib = 64;
    let paths: [PathBuf; 2] = ["one", "two"].map(|name| test_fs.path().join(name));
    let watcher = Watcher::start(&[test_fs.path().to_str().unwrap()]);
    let writers = [write(&paths[0], mib, &[]), write(&paths[1], mib / 2, &[])];
    sync(test_fs.path());
    let watch = watcher.end();
    // Each sync(2) of another process writes metadata again.
    let all =
        written_bytes(test_fs, &watch).saturating_sub(watch.total.unattributed.metadata_bytes);
    let mut named = 0;
    for ((path, pid), bytes) in paths.iter().zip(writers).zip([mib << 20, (mib / 2) << 20]) {
        let found = counts(&watch, path, pid);
        named += found.disk_lazy_write_bytes + found.disk_write_bytes;
        let lazily = found.disk_lazy_write_bytes;
        assert!(lazily.abs_diff(bytes) * 20 <= bytes, "{lazily}, {}: {found:?}", test_fs.kind);
        assert!(found.dirtied_pages * 4096 >= bytes, "{}: {found:?}", test_fs.kind);
    }
    println!(
        "shown: {}, written later: {:.1} % of {} bytes of the disk that are not marked as \
         metadata carry writer and file",
        test_fs.kind,
        100.0 * share(named, all),
        all
    );
    let unnamed = watch.total.unattributed;
    assert!(share(named, all) >= NAMED_MIN, "{}: {named} of {all}, {unnamed:?}", test_fs.kind);
}

/// Calls syncfs(2) on the file system.
fn sync(path: &Path) {
    rustix::fs::syncfs(std::fs::File::open(path).unwrap()).unwrap();
}

/// A process that calls fsync(2) writes its data itself.
pub(crate) fn check_own_writes(test_fs: &TestFs) {
    let path = test_fs.path().join("itself");
    let watcher = Watcher::start(&[test_fs.path().to_str().unwrap()]);
    let pid = write(&path, 8, &["conv=notrunc,fsync"]);
    let watch = watcher.end();
    let found = counts(&watch, &path, pid);
    let bytes = found.disk_write_bytes + found.disk_lazy_write_bytes;
    println!("shown: {}, fsync: {bytes} of {} bytes by the process itself", test_fs.kind, 8 << 20);
    assert!(bytes.abs_diff(8 << 20) * 20 <= 8 << 20, "{}: {found:?}", test_fs.kind);
    let by_process = found.disk_write_bytes > found.disk_lazy_write_bytes;
    assert!(by_process || is_written_back(&watch), "{}: {found:?}", test_fs.kind);
}
