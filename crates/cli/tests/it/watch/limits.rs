//! Findings about what may be dirty. The limits are those of the whole machine, so this is done
//! only where the proof asks for it, and they are put back whatever happens.

use super::rig::Bench;
use super::sick;
use larder_testing::{Cleanup, skip};
use std::fmt::Write;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const VM: &str = "/proc/sys/vm";
/// Of each pair one is in force, and the other reads as 0.
const PAIRS: [(&str, &str); 2] =
    [("dirty_background_ratio", "dirty_background_bytes"), ("dirty_ratio", "dirty_bytes")];
/// What a disk of any kind writes in a moment.
const LOW_BYTES: u64 = 8 << 20;
/// A disk that writes so much in a second, and what is dirty then.
const SLOW_BYTES: u64 = 1 << 20;
const DIRTY_BYTES: u64 = 96 << 20;
const BLKIO: &str = "/sys/fs/cgroup/blkio/blkio.throttle.write_bps_device";

pub(crate) fn all(bench: &Bench) {
    low(bench);
    high(bench);
}

/// Puts back what is in force now, when dropped.
fn keep() -> Cleanup {
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
    for place in 0..bytes >> 20 {
        file.write_all_at(&block, place << 20).unwrap();
    }
}

/// Writers wait for a disk that would take more.
fn low(bench: &Bench) {
    let path = bench.path().join("flood");
    let kept = keep();
    for (name, bytes) in [("dirty_background_bytes", LOW_BYTES / 2), ("dirty_bytes", LOW_BYTES)] {
        std::fs::write(Path::new(VM).join(name), bytes.to_string()).unwrap();
    }
    sick::expect(&[], "dirty-limit-low", || {
        let file = File::create(&path).unwrap();
        for _ in 0..3 {
            write(&file, DIRTY_BYTES);
        }
    });
    drop(kept);
    std::fs::remove_file(&path).unwrap();
}

fn text(command: &str, words: &[&str]) -> String {
    let out = Command::new(command).args(words).output().unwrap();
    assert!(out.status.success(), "{command}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).unwrap().trim().to_owned()
}

/// Much is dirty of a disk that is slow. The disk is a loop device over one that the kernel holds
/// back, so that requests wait in it as in a disk.
fn high(bench: &Bench) {
    if !Path::new(BLKIO).exists() {
        skip("dirty-limit-high: no blkio controller (version 1)");
        return;
    }
    let (image, directory) = (bench.path().join("slow.img"), bench.path().join("slow"));
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
