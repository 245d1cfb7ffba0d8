//! Who wrote what the disk writes.

use super::rig::{Bench, Watching, counts, is_written_back};
use larder_report::watch::Watch;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The share of the bytes of a disk that must carry a name, of those that are not marked as
/// metadata.
const NAMED_MIN: f64 = 0.95;

/// A process that writes a file and ends.
fn write(path: &Path, mib: u64, more: &[&str]) -> u32 {
    let mut dd = Command::new("dd");
    let (output, count) = (format!("of={}", path.display()), format!("count={mib}"));
    dd.args(["if=/dev/zero", &output, "bs=1M", &count, "conv=notrunc"]).args(more);
    let mut child = dd.stderr(Stdio::null()).spawn().unwrap();
    assert!(child.wait().unwrap().success());
    child.id()
}

/// The device of the file system, and what was written to it.
fn written(bench: &Bench, watch: &Watch) -> u64 {
    let disk = larder_host::disk::Disk::of(bench.path()).unwrap().unwrap();
    let found = watch.total.disks.iter().find(|it| it.name == disk.name);
    found.map_or(0, larder_report::watch::Disk::write_bytes)
}

#[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
fn share(part: u64, whole: u64) -> f64 {
    part as f64 / whole.max(1) as f64
}

/// Two processes write a file each, and both are gone when the kernel writes.
pub(crate) fn later(bench: &Bench) {
    let mib = 64;
    // Room is taken before, so that little else is written.
    let paths: [PathBuf; 2] = ["one", "two"].map(|name| bench.path().join(name));
    let watching = Watching::start(&[bench.path().to_str().unwrap()]);
    let writers = [write(&paths[0], mib, &[]), write(&paths[1], mib / 2, &[])];
    sync(bench.path());
    let watch = watching.end();
    // Each sync(2) of another process writes metadata again.
    let all = written(bench, &watch).saturating_sub(watch.total.unattributed.metadata_bytes);
    let mut named = 0;
    for ((path, pid), bytes) in paths.iter().zip(writers).zip([mib << 20, (mib / 2) << 20]) {
        let found = counts(&watch, path, pid);
        named += found.disk_lazy_write_bytes + found.disk_write_bytes;
        let lazily = found.disk_lazy_write_bytes;
        assert!(lazily.abs_diff(bytes) * 20 <= bytes, "{lazily}, {}: {found:?}", bench.kind);
        assert!(found.dirtied_pages * 4096 >= bytes, "{}: {found:?}", bench.kind);
    }
    println!(
        "shown: {}, written later: {:.1} % of {} bytes of the disk that are not marked as \
         metadata carry writer and file",
        bench.kind,
        100.0 * share(named, all),
        all
    );
    let unnamed = watch.total.unattributed;
    assert!(share(named, all) >= NAMED_MIN, "{}: {named} of {all}, {unnamed:?}", bench.kind);
}

/// syncfs(2) on the file system.
fn sync(path: &Path) {
    rustix::fs::syncfs(std::fs::File::open(path).unwrap()).unwrap();
}

/// A process that calls fsync(2) writes itself.
pub(crate) fn by_themselves(bench: &Bench) {
    let path = bench.path().join("itself");
    let watching = Watching::start(&[bench.path().to_str().unwrap()]);
    let pid = write(&path, 8, &["conv=notrunc,fsync"]);
    let watch = watching.end();
    let found = counts(&watch, &path, pid);
    let bytes = found.disk_write_bytes + found.disk_lazy_write_bytes;
    println!("shown: {}, fsync: {bytes} of {} bytes by the process itself", bench.kind, 8 << 20);
    assert!(bytes.abs_diff(8 << 20) * 20 <= 8 << 20, "{}: {found:?}", bench.kind);
    let itself = found.disk_write_bytes > found.disk_lazy_write_bytes;
    assert!(itself || is_written_back(&watch), "{}: {found:?}", bench.kind);
}
