//! Interrupted measurements.

use super::rig::{MIB, Rig};
use crate::try_command::rig::{can_run, text, until};
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
