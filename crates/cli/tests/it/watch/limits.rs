//! Findings about limits on dirty data. These limits apply to the whole machine, so the tests
//! change them only for the proof, and restore them however they end.

use super::rig::TestFs;
use super::sick;
use larder_testing::{Cleanup, skip};
use std::fmt::Write;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const VM: &str = "/proc/sys/vm";
/// Of each pair, one setting is in force and the other reads as 0.
const PAIRS: [(&str, &str); 2] =
    [("dirty_background_ratio", "dirty_background_bytes"), ("dirty_ratio", "dirty_bytes")];
/// An amount that a disk of any kind writes in a short time.
const LOW_BYTES: u64 = 8 << 20;
/// Bytes per second that a slow disk writes, and the amount of dirty data for it.
const SLOW_BYTES: u64 = 1 << 20;
const DIRTY_BYTES: u64 = 96 << 20;
const BLKIO: &str = "/sys/fs/cgroup/blkio/blkio.throttle.write_bps_device";

pub(crate) fn all(test_fs: &TestFs) {
    check_limit_low(test_fs);
    check_limit_high(test_fs);
}

/// Restores the current settings when dropped.
fn restore_on_drop() -> Cleanup {
    let mut script = String::new();
    for (ratio, bytes) in PAIRS {
        for name in [ratio, bytes] {
            let value = std::fs::read_to_string(Path::new(VM).join(name)).unwrap();
            if value.trim() != "0" {
                write!(script, "echo {} > {VM}/{name};", value.trim()).unwrap();
            }
        }
    }
    Cleanup::with(&script, &[])
}

fn write(file: &File, bytes: u64) {
    let block = vec![1; 1 << 20];
    for number in 0..bytes >> 20 {
        file.write_all_at(&block, number << 20).unwrap();
    }
}

/// Writers wait although the disk would take more.
fn check_limit_low(test_fs: &TestFs) {
    let path = test_fs.path().join("flood");
    let restore = restore_on_drop();
    for (name, bytes) in [("dirty_background_bytes", LOW_BYTES / 2), ("dirty_bytes", LOW_BYTES)] {
        std::fs::write(Path::new(VM).join(name), bytes.to_string()).unwrap();
    }
    sick::expect(&[], "dirty-limit-low", || {
        let file = File::create(&path).unwrap();
        for _ in 0..3 {
            write(&file, DIRTY_BYTES);
        }
    });
    drop(restore);
    std::fs::remove_file(&path).unwrap();
}

fn text(command: &str, args: &[&str]) -> String {
    let out = Command::new(command).args(args).output().unwrap();
    assert!(out.status.success(), "{command}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).unwrap().trim().to_owned()
}

/// Much data is dirty for a slow disk. The disk is a loop device over another one that the kernel
/// throttles, so that requests wait in it as in a disk.
fn check_limit_high(test_fs: &TestFs) {
    if !Path::new(BLKIO).exists() {
        skip("dirty-limit-high: no blkio controller (version 1)");
        return;
    }
    let (image, directory) = (test_fs.path().join("slow.img"), test_fs.path().join("slow"));
    std::fs::create_dir(&directory).unwrap();
    File::create(&image).unwrap().set_len(2 * DIRTY_BYTES).unwrap();
    let (image_name, directory_name) = (image.to_str().unwrap(), directory.to_str().unwrap());
    let attach = |of: &str| text("losetup", &["--find", "--show", "--direct-io=on", of]);
    let below = attach(image_name);
    let first = Cleanup::with("losetup --detach \"$1\"", &[&below]);
    let device = attach(&below);
    let second = Cleanup::with("losetup --detach \"$1\"", &[&device]);
    text("mkfs.ext4", &["-q", "-E", "lazy_itable_init=0,lazy_journal_init=0", &device]);
    text("mount", &[&device, directory_name]);
    let third = Cleanup::with("umount \"$1\"", &[directory_name]);
    let numbers = format!("/sys/block/{}/dev", below.trim_start_matches("/dev/"));
    let numbers = std::fs::read_to_string(numbers).unwrap().trim().to_owned();
    let lift = Cleanup::with(&format!("echo \"$1 0\" > {BLKIO}"), &[&numbers]);
    std::fs::write(BLKIO, format!("{numbers} {SLOW_BYTES}")).unwrap();
    let file = File::create(directory.join("file")).unwrap();
    std::thread::scope(|scope| {
        let mut lift = Some(lift);
        sick::expect(&[], "dirty-limit-high", || {
            write(&file, DIRTY_BYTES);
            scope.spawn(|| file.sync_data().unwrap());
            std::thread::sleep(Duration::from_secs(3));
        });
        drop(lift.take());
    });
    drop(file);
    drop((third, second, first));
    std::fs::remove_file(&image).unwrap();
}
