//! What `larder watch` says is what happened: page for page, by cachestat(2) right before each
//! read, on real file systems.
//!
//! File systems are made in images on loop devices, which takes root, tracefs and their tools. What
//! cannot be tried is said and passed over. `LARDER_BUDGET=long` makes the numbers of requests
//! those of the proof, and `LARDER_BINARY` is started instead of the one that was built along. Each
//! figure is a line that begins with `shown: `.

#![expect(clippy::print_stdout, reason = "the figures are read by the proof")]

mod attribution;
mod group;
mod limits;
mod manners;
mod reads;
mod rig;
mod sick;
mod squeezed;
mod without;

use larder_testing::MachineLock;
use rig::{Bench, file_systems};

/// A share of the pages that may be told wrongly.
const WRONG_MAX: f64 = 0.01;

/// Seven workloads on one kind of file system. A kind is a test of its own, since much of its time
/// is the start and the end of commands that watch.
fn hits_and_misses_on(kind: &'static str) {
    let Some(bench) = Bench::on(kind) else { return };
    for (name, workload) in reads::WORKLOADS {
        bench.compare(name, *workload);
    }
}

#[test]
fn hits_and_misses_are_those_that_cachestat_sees_on_ext4() {
    hits_and_misses_on("ext4");
}

#[test]
fn hits_and_misses_are_those_that_cachestat_sees_on_xfs() {
    hits_and_misses_on("xfs");
}

#[test]
fn hits_and_misses_are_those_that_cachestat_sees_on_btrfs() {
    hits_and_misses_on("btrfs");
}

fn every_way_to_read_on(kind: &'static str) {
    let Some(bench) = Bench::on(kind) else { return };
    for (name, workload) in manners::WAYS {
        bench.compare(name, *workload);
    }
    manners::several_processes(&bench);
    manners::a_ring(&bench);
    manners::past_the_cache(&bench);
    manners::past_the_end(&bench);
    manners::the_same_number(&bench);
    manners::writes_of_any_size(&bench);
}

#[test]
fn every_way_to_read_is_seen_on_ext4() {
    every_way_to_read_on("ext4");
}

#[test]
fn every_way_to_read_is_seen_on_xfs() {
    every_way_to_read_on("xfs");
}

#[test]
fn every_way_to_read_is_seen_on_btrfs() {
    every_way_to_read_on("btrfs");
}

#[test]
fn what_is_written_later_carries_its_writers_name() {
    for kind in file_systems() {
        let Some(bench) = Bench::on(kind) else { continue };
        attribution::later(&bench);
        attribution::by_themselves(&bench);
    }
}

#[test]
fn nothing_is_left_behind() {
    let Some(_bench) = Bench::on("ext4") else { return };
    rig::nothing_stays_after_a_kill();
}

#[test]
fn what_is_missing_is_said_and_the_rest_is_shown() {
    without::without_root();
    if !without::may_hide() {
        return;
    }
    without::in_a_container();
    without::in_memory();
    without::without_an_event();
    without::without_types();
}

#[test]
fn a_folder_whose_server_is_dead_holds_nobody_up() {
    let Some(bench) = Bench::on("xfs") else { return };
    without::beside_a_dead_folder(&bench);
}

#[test]
fn findings_fire_on_what_is_sick_and_on_nothing_that_is_healthy() {
    let Some(bench) = Bench::on("ext4") else { return };
    sick::all(&bench);
    if larder_testing::is_long() {
        limits::all(&bench);
    }
    // While no other test makes memory short.
    let _healthy = MachineLock::exclusive("short-of-memory");
    sick::none(&bench);
}

#[test]
fn findings_fire_on_a_machine_that_is_short_of_memory() {
    let Some(bench) = Bench::on("ext4") else { return };
    let _short = MachineLock::shared("short-of-memory");
    squeezed::all(&bench);
}

#[test]
fn who_goes_into_a_group_is_watched_from_then_on() {
    let Some(bench) = Bench::on("ext4") else { return };
    manners::into_a_group(&bench);
}

#[test]
fn what_is_done_in_a_group() {
    squeezed::in_a_group();
}
