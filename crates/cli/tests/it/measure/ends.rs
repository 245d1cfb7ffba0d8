//! Interrupted measurements.

use super::rig::{MIB, Rig};
use crate::try_command::rig::{can_run, directory, mounts, text, until};
use larder_testing::is_root;
use rustix::mount::{UnmountFlags, unmount};
use rustix::process::{Pid, Signal, kill_process};

#[test]
fn an_interrupted_measurement_ends_the_command_and_unmounts() {
    if !can_run() {
        return;
    }
    for signals in [&[Signal::INT][..], &[Signal::TERM], &[Signal::INT, Signal::INT]] {
        let rig = Rig::new(MIB);
        // Two processes in the mount, one of which ignores the signal.
        let script = "cat rows; touch begun; (trap '' TERM; exec sleep 1000) & sleep 1000";
        let child = rig.command(&["--sizes", "8MiB"], script).spawn().unwrap();
        until("the command runs", || rig.data.path().join("begun").exists());
        for signal in signals {
            let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
            kill_process(pid, *signal).unwrap();
        }
        let output = child.wait_with_output().unwrap();
        let stderr = text(&output.stderr);
        assert!(!output.status.success(), "{stderr}");
        assert!(stderr.contains("stopped before there was a result"), "{stderr}");
        rig.expect_nothing_left();
    }
}

#[test]
fn mounts_of_the_command_are_left_alone_and_those_of_the_cache_are_not() {
    if !can_run() || !is_root() {
        return;
    }
    let (rig, other) = (Rig::new(MIB), directory());
    let kept = other.path().join("directory/kept");
    std::fs::create_dir(other.path().join("directory")).unwrap();
    std::fs::write(&kept, "kept").unwrap();
    let options = ["--sizes", "8MiB"];
    let over = format!("cat rows; mount --bind {} $LARDER_MOUNT; false", other.path().display());
    let output = rig.run(&options, &over);
    let stderr = text(&output.stderr);
    assert!(!output.status.success() && stderr.contains("unmount it"), "{stderr}");
    assert_eq!(std::fs::read_to_string(&kept).unwrap(), "kept");
    for mount in mounts(rig.temporary.path()).iter().rev() {
        let point = mount.split(' ').nth(4).unwrap();
        unmount(point, UnmountFlags::DETACH).unwrap();
    }
    assert!(rig.data.path().join("rows").exists());

    let rig = Rig::new(MIB);
    let output = rig.run(&options, "cat rows; mount --bind $LARDER_MOUNT $LARDER_MOUNT; false");
    assert!(!output.status.success());
    rig.expect_nothing_left();
}
