//! Images that are truncated, full or deleted while they are served.

use super::rig::{MIB, Server, text};
use rustix::process::Signal;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::process::Stdio;

/// Settings that delay writeback until a test requests it.
const LAZY: [&str; 4] = ["--set", "first-delay=60000", "--set", "age-max=60000"];

#[test]
fn a_stop_that_cannot_write_names_the_reason_and_ends_when_the_data_is_given_up() {
    let mut server = Server::start(&["left", "cut"], &LAZY);
    server.client(0).write_at(0, &[6; 4096], false).expect("it is accepted");
    let mut client = server.client(1);
    client.write_at(8 * MIB, &[7; 16_384], false).expect("it is accepted");
    let cut = File::options().write(true).open(server.path("cut.img")).expect("it is there");
    cut.set_len(MIB).expect("it is cut");
    server.signal(Signal::TERM);
    let log = server.wait_for_line(|line| line.contains("--give-up"));
    assert!(log.contains("cut.img"), "the reason: {log}");
    server.signal(Signal::TERM);
    server.wait_for_line(|line| line.contains("still writing") && line.contains("cut.img"));
    let refused = server.ctl(&["remove", "cut", "--disconnect"]);
    assert!(text(&refused.stderr).contains("--give-up"), "{refused:?}");
    assert_eq!(server.ctl(&["remove", "none", "--give-up"]).status.code(), Some(2));
    let mut stop = server.ctl_command(&["stop"]);
    let mut stop = stop.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    let mut reason = String::new();
    BufReader::new(stop.stderr.take().expect("piped")).read_line(&mut reason).expect("UTF-8");
    assert!(reason.contains("cut.img"), "{reason}");
    server.ctl_text(&["remove", "cut", "--give-up"]);
    // The server may already have closed the connection.
    assert!(client.write_at(0, &[8; 4096], false).is_err(), "acknowledged and discarded");
    let left = server.path("left.img");
    let (directory, code, log) = server.end_with(Signal::TERM);
    assert_eq!(code, Some(0), "{log}");
    let stopped = stop.wait_with_output().expect("it ends");
    let expected = "stopped; 16 KiB of unwritten data of volumes that were given up is lost; ";
    assert!(text(&stopped.stdout).starts_with(expected), "{stopped:?}");
    assert!(!log.contains("cannot use"), "what was given up is no failure: {log}");
    let name = left.file_name().expect("an image");
    let stored = std::fs::read(directory.path().join(name)).expect("it is there");
    assert_eq!(stored[0], 6, "the other volume was written");
}

#[test]
fn the_log_says_once_that_a_store_cannot_be_written_to_and_that_it_can_again() {
    let mut server = Server::start(&["cut"], &["--set", "first-delay=10"]);
    let cut = File::options().write(true).open(server.path("cut.img")).expect("it is there");
    cut.set_len(MIB).expect("it is cut");
    server.client(0).write_at(8 * MIB, &[7; 16_384], false).expect("it is accepted");
    let log = server.wait_for_line(|line| line.contains("WARN"));
    assert!(log.contains("stays in memory") && log.contains("cut.img"), "{log}");
    let at_risk = server.ctl(&["at-risk"]);
    assert_eq!(at_risk.status.code(), Some(1), "{at_risk:?}");
    cut.set_len(16 * MIB).expect("it is long again");
    let log = server.wait_for_line(|line| line.contains("WARN"));
    assert!(log.contains("can be written to again"), "{log}");
    server.stop();
}

#[test]
fn a_deleted_image_is_reported_while_it_is_served() {
    let mut server = Server::start(&["del", "other"], &[]);
    let mut client = server.client(0);
    client.write_at(0, &[7; 16_384], false).expect("it is accepted");
    std::fs::remove_file(server.path("del.img")).expect("it is there");
    let log = server.wait_for_line(|line| line.contains("WARN"));
    assert!(log.contains("del.img was deleted or replaced"), "{log}");
    client.flush().expect("a deleted file can be written");
    let flushed = server.ctl(&["flush"]);
    assert_eq!(flushed.status.code(), Some(2), "{flushed:?}");
    assert!(text(&flushed.stderr).contains("del.img was deleted"), "{flushed:?}");
    server.ctl_text(&["flush", "other"]);
    let at_risk = server.ctl(&["at-risk"]);
    assert_eq!(at_risk.status.code(), Some(1), "{at_risk:?}");
    assert!(text(&at_risk.stdout).contains("del.img was deleted"), "{at_risk:?}");
    drop(client);
    let stopped = server.ctl(&["stop"]);
    assert_eq!(stopped.status.code(), Some(2), "{stopped:?}");
    assert!(text(&stopped.stderr).contains("del.img was deleted"), "{stopped:?}");
    let (_directory, code, log) = server.end_with(Signal::TERM);
    assert_eq!(code, Some(2), "{log}");
    assert_eq!(log.matches("WARN").count(), 0, "once: {log}");
}
