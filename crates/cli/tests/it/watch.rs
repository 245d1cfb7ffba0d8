//! What `larder watch` says is what happened: page for page, by cachestat(2) right before each
//! read, on real file systems.
//!
//! File systems are made in images on loop devices, which takes root, tracefs and their tools.
//! Tests whose requirements are missing are skipped. `LARDER_BUDGET=long` selects the numbers of
//! requests of the proof, and `LARDER_BINARY` names another program to test. Each figure is a line
//! that begins with `shown: `.

#![expect(clippy::print_stdout, reason = "the proof reads the figures")]

mod attribution;
mod group;
mod limits;
mod manners;
mod reads;
mod rig;
mod sick;
mod squeezed;
mod without;

use rig::{Bench, file_systems};

/// A share of the pages that may be told wrongly.
const WRONG_MAX: f64 = 0.01;

#[test]
fn hits_and_misses_are_those_that_cachestat_sees() {
    for kind in file_systems() {
        let Some(bench) = Bench::on(kind) else { continue };
        for (name, workload) in reads::WORKLOADS {
            bench.compare(name, *workload);
        }
    }
}

#[test]
fn every_way_to_read_is_seen() {
    for kind in file_systems() {
        let Some(bench) = Bench::on(kind) else { continue };
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
fn a_directory_whose_server_is_dead_holds_nobody_up() {
    let Some(bench) = Bench::on("xfs") else { return };
    without::beside_a_dead_directory(&bench);
}

#[test]
fn findings_fire_on_what_is_sick_and_on_nothing_that_is_healthy() {
    let Some(bench) = Bench::on("ext4") else { return };
    sick::all(&bench);
    squeezed::all(&bench);
    if larder_testing::is_long() {
        limits::all(&bench);
    }
    sick::none(&bench);
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
