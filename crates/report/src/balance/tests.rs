//! Tests of the renderings of a balance.

use super::*;
use larder_schema::balance::{BalanceSummary, BalanceUse, FindingLevel, MoveIdentity};
use std::process::Command;

fn balance() -> Balance {
    let usage =
        |utilization| BalanceUse { requests_per_s: 90.0, utilization, response_ns: 5_000_000 };
    let disk = |name: &str, before, after| BalanceDisk {
        name: name.to_owned(),
        file_systems: vec!["/srv".to_owned()],
        stacks: vec!["sda1 (partition) on sda (disk)".to_owned()],
        service: "measured: 10 ms a read, 10 ms a write".to_owned(),
        before: usage(before),
        after: usage(after),
        ..BalanceDisk::default()
    };
    let summary = |disk: &str, utilization, response_ns| BalanceSummary {
        disk: disk.to_owned(),
        utilization,
        response_ns,
    };
    let stop = MoveFinding::new("exports", FindingLevel::Stop, "it is in /srv, \n<shared>");
    let note = MoveFinding::new("acl", FindingLevel::Note, "it has an ACL");
    Balance {
        records: vec!["load.json".to_owned()],
        duration_ns: 60_000_000_000,
        machine_id: Some("abc".to_owned()),
        disks: vec![disk("sda", 0.9, 0.5), disk("sdb", 0.0, 0.4)],
        loads: vec![FileLoad {
            disk: "sda".to_owned(),
            file: "/srv/<a>\u{1b}[31m".to_owned(),
            process: "db".to_owned(),
            pid: 7,
            utilization: 0.4,
            ..FileLoad::default()
        }],
        loads_all: 3,
        moves: vec![FileMove {
            from: "/srv/it's\n$(id)".to_owned(),
            to: "/mnt/srv/it's\n$(id)".to_owned(),
            target: "/mnt".to_owned(),
            bytes: 1 << 20,
            from_disks: vec!["sda".to_owned()],
            to_disks: vec!["sdb".to_owned()],
            utilization: 0.4,
            identity: Some(MoveIdentity { device: 1, inode: 2, target_device: 3 }),
            findings: vec![stop, note],
            ..FileMove::default()
        }],
        before: summary("sda", 0.9, 100_000_000),
        after: summary("sda", 0.5, 20_000_000),
        findings: vec![MoveFinding::new("backup", FindingLevel::Warning, "no backup is known")],
        alternatives: vec!["pvmove".to_owned()],
        notes: vec!["a note".to_owned()],
    }
}

#[test]
fn text_has_the_answer_first_and_all_findings_and_no_control_characters() {
    let text = to_text(&balance());
    let first = "sda is the busiest disk, at 90.0 %; 1 move of 1 MiB would lower the highest \
                 utilization to 50.0 % and the mean response time from 100 ms to 20.0 ms; 1 move \
                 must wait, see its findings.";
    assert_eq!(text.lines().next(), Some(first), "{text}");
    assert!(text.contains("Load, the largest ones; 2 more"), "{text}");
    assert!(text.contains("\n  stop: it is in /srv, \\n<shared> (exports)\n"), "{text}");
    assert!(text.contains("note: it has an ACL (acl)") && text.contains("pvmove"), "{text}");
    assert!(!text.contains('\u{1b}') && !text.contains("it's\n"), "{text}");
}

#[test]
fn without_moves_the_answer_says_so() {
    let none = Balance { moves: Vec::new(), ..balance() };
    let text = to_text(&none);
    assert!(text.starts_with("sda is the busiest disk, at 90.0 %; no move"), "{text}");
    assert!(to_text(&Balance::default()).starts_with("The records have no load of a disk"));
    let loads = vec![FileLoad::default()];
    let unknown = to_text(&Balance { loads, loads_all: 1, ..Balance::default() });
    assert!(unknown.starts_with("There is no plan"), "{unknown}");
    assert_eq!(to_script(&none), None);
    assert_eq!(to_script(&Balance { machine_id: None, ..balance() }), None);
}

#[test]
fn the_page_has_the_answer_two_bars_for_each_disk_and_no_foreign_markup() {
    let page = to_html(&balance());
    assert!(page.contains("<h1>sda is the busiest disk, at 90.0&#160;%"), "{page}");
    // Each chart is drawn for wide and for narrow screens.
    assert_eq!(page.matches("<rect class=\"without\"").count(), 4);
    assert_eq!(page.matches("<rect class=\"bar\"").count(), 4);
    assert!(page.contains("Before the moves") && page.contains("&lt;shared&gt;"), "{page}");
    assert!(!page.contains("<shared>") && !page.contains("<a>") && !page.contains('\u{1b}'));
}

#[test]
fn the_script_is_valid_and_quotes_every_name() {
    let script = to_script(&balance()).unwrap();
    let checked = Command::new("bash").args(["-n", "-c", &script]).status().unwrap();
    assert!(checked.success());
    assert!(script.contains("$'/srv/it\\'s\\n$(id)'"), "{script}");
    assert!(script.contains("  refuse 'move 1: it is in /srv, \\n<shared>'"), "{script}");
    let others = script.lines().filter(|line| line.starts_with("$(id)"));
    assert_eq!(others.count(), 0, "no line begins inside of a name");
    assert_eq!(to_script(&balance()).unwrap(), script);
}

#[test]
fn a_pattern_is_exactly_its_path() {
    let mut balance = balance();
    balance.moves[0].from = "/a*[b]?\\".to_owned();
    let script = to_script(&balance).unwrap();
    assert!(script.contains("'/a\\*\\[b\\]\\?\\\\'"), "{script}");
}
