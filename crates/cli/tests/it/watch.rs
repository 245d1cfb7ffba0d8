//! `larder watch` reports the true hits and misses: page for page, as cachestat(2) sees them right
//! before each read, on real file systems.
//!
//! The file systems are created in images on loop devices, which takes root, tracefs and their
//! tools. Tests whose requirements are missing are skipped. `LARDER_BUDGET=long` selects the
//! numbers of requests of the proof, and `LARDER_BINARY` names another program to test. Each figure
//! is a line that begins with `shown: `.

#![expect(clippy::print_stdout, reason = "the proof reads the figures")]

mod attribution;
mod group;
mod limits;
mod manners;
mod reads;
mod rig;
mod sick;
mod squeezed;
mod uncounted;
mod without;

use rig::{TestFs, file_systems};

/// Maximum share of the pages that the watch may report wrongly.
const WRONG_MAX: f64 = 0.01;

#[test]
fn hits_and_misses_are_those_that_cachestat_sees() {
    for kind in file_systems() {
        let Some(test_fs) = TestFs::on(kind) else { continue };
        for (name, workload) in reads::WORKLOADS {
            test_fs.compare(name, *workload);
        }
    }
}

#[test]
fn every_way_to_read_is_seen() {
    for kind in file_systems() {
        let Some(test_fs) = TestFs::on(kind) else { continue };
        for (name, workload) in manners::READ_METHODS {
            test_fs.compare(name, *workload);
        }
        manners::check_processes(&test_fs);
        manners::check_io_uring(&test_fs);
        manners::check_direct_io(&test_fs);
        manners::check_read_past_end(&test_fs);
        manners::check_inode_reuse(&test_fs);
        manners::check_write_sizes(&test_fs);
    }
}

#[test]
fn what_is_written_later_carries_its_writers_name() {
    for kind in file_systems() {
        let Some(test_fs) = TestFs::on(kind) else { continue };
        attribution::check_late_writes(&test_fs);
        attribution::check_own_writes(&test_fs);
    }
}

#[test]
fn nothing_is_left_behind() {
    let Some(_bench) = TestFs::on("ext4") else { return };
    rig::check_cleanup_after_kill();
}

#[test]
fn a_disk_that_is_not_counted_is_not_shown_as_idle() {
    let Some(test_fs) = TestFs::on("ext4") else { return };
    uncounted::check(&test_fs);
}

#[test]
fn what_is_missing_is_said_and_the_rest_is_shown() {
    without::without_root();
    if !without::can_hide() {
        return;
    }
    without::in_a_container();
    without::in_memory();
    without::without_an_event();
    without::without_types();
}

#[test]
fn a_directory_whose_server_is_dead_holds_nobody_up() {
    let Some(test_fs) = TestFs::on("xfs") else { return };
    without::check_dead_directory(&test_fs);
}

#[test]
fn findings_fire_on_what_is_sick_and_on_nothing_that_is_healthy() {
    let Some(test_fs) = TestFs::on("ext4") else { return };
    sick::all(&test_fs);
    squeezed::all(&test_fs);
    if larder_testing::is_long() {
        limits::all(&test_fs);
    }
    sick::none(&test_fs);
}

#[test]
fn who_goes_into_a_group_is_watched_from_then_on() {
    let Some(test_fs) = TestFs::on("ext4") else { return };
    manners::check_group_entry(&test_fs);
}

#[test]
fn what_is_done_in_a_group() {
    squeezed::run_task();
}
