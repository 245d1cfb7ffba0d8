//! The load balance of disks as text, as a page, and as a shell script.

mod html;
mod script;
#[cfg(test)]
mod tests;

pub use html::to_html;
pub use script::to_script;

use crate::escape;
use crate::table::{Cell, Column, Field, Table};
use larder_schema::balance::{Balance, BalanceDisk, FileLoad, FileMove, MoveFinding, MoveLink};
use larder_schema::{as_f64, as_u64, format};

/// Renders the balance as tables and sentences.
#[must_use]
pub fn to_text(balance: &Balance) -> String {
    let mut text = format!("{}.\n\n{}", verdict(balance), disks_table(balance).to_text());
    if !balance.loads.is_empty() {
        put!(text, "\n{}", loads_table(balance).to_text());
    }
    for (index, each) in balance.moves.iter().enumerate() {
        put_line!(text, "\nMove {}: {}", index + 1, move_sentence(each));
        for finding in &each.findings {
            put_line!(text, "  {}", finding_line(finding));
        }
    }
    let sections = [
        ("Plan", balance.findings.iter().map(finding_line).collect()),
        ("Alternatives", escaped(&balance.alternatives)),
        ("Notes", escaped(&balance.notes)),
    ];
    for (title, lines) in sections {
        let lines: Vec<String> = lines;
        if !lines.is_empty() {
            put_line!(text, "\n{title}");
            for line in &lines {
                put_line!(text, "  {line}");
            }
        }
    }
    text
}

fn escaped(lines: &[String]) -> Vec<String> {
    lines.iter().map(|line| escape::line(line).into_owned()).collect()
}

/// Returns the answer in one sentence, without a period.
fn verdict(balance: &Balance) -> String {
    let (before, after) = (&balance.before, &balance.after);
    if before.disk.is_empty() && balance.loads.is_empty() {
        return "The records have no load of a disk".to_owned();
    }
    if before.disk.is_empty() {
        return "There is no plan, since no disk with load has known service times: name models \
                with --disk NAME=MODEL"
            .to_owned();
    }
    let busiest = format!(
        "{} is the busiest disk, at {}",
        escape::text(&before.disk),
        format::percent(before.utilization)
    );
    if balance.moves.is_empty() {
        return format!("{busiest}; no move of a file would lower that");
    }
    let moves = format::counted(balance.moves.len() as u64, "move");
    let stopped = match balance.stopped_moves() {
        0 => String::new(),
        1 => "; 1 move must wait, see its findings".to_owned(),
        count => format!("; {count} moves must wait, see their findings"),
    };
    format!(
        "{busiest}; {moves} of {} would lower the highest utilization to {} and the mean response \
         time from {} to {}{stopped}",
        format::bytes(balance.moved_bytes()),
        format::percent(after.utilization),
        format::duration(before.response_ns),
        format::duration(after.response_ns)
    )
}

fn finding_line(finding: &MoveFinding) -> String {
    format!("{}: {} ({})", finding.level.word(), escape::line(&finding.text), finding.check)
}

fn move_sentence(each: &FileMove) -> String {
    let kind = if each.is_directory { "directory" } else { "file" };
    let link = match each.link {
        MoveLink::Symlink => "symbolic link",
        MoveLink::Bind => "bind mount",
    };
    format!(
        "{kind} {} ({}, {} of {}) to {} on {}, with a {link}",
        escape::text(&each.from),
        format::bytes(each.bytes),
        format::percent(each.utilization),
        each.from_disks.join(" and "),
        escape::text(&each.to),
        each.to_disks.join(" and ")
    )
}

fn disks_table(balance: &Balance) -> Table {
    let response = |ns: u64| Some(ns).filter(|ns| *ns > 0);
    let fields = [
        Field::word("disk", "disk", |it: &BalanceDisk| &it.name),
        Field::text("file_systems", "file systems", |it| it.file_systems.join(" ")),
        Field::number("before_requests_per_s", "requests/s", |it| it.before.requests_per_s),
        Field::percent("before_utilization", "busy", |it| it.before.utilization),
        Field::of(Column::numbers("before_response_ns", "response"), move |it: &BalanceDisk| {
            Cell::duration(response(it.before.response_ns))
        }),
        Field::number("after_requests_per_s", "requests/s after", |it| it.after.requests_per_s),
        Field::percent("after_utilization", "busy after", |it| it.after.utilization),
        Field::of(
            Column::numbers("after_response_ns", "response after"),
            move |it: &BalanceDisk| Cell::duration(response(it.after.response_ns)),
        ),
    ];
    Table::of("Disks", &balance.disks, fields)
}

fn loads_table(balance: &Balance) -> Table {
    let title = match balance.loads_all - balance.loads.len() as u64 {
        0 => "Load".to_owned(),
        others => format!("Load, the largest ones; {} more", format::count(others)),
    };
    let fields = [
        Field::word("disk", "disk", |it: &FileLoad| &it.disk),
        Field::percent("utilization", "busy", |it| it.utilization),
        Field::word("file", "file", |it| &it.file),
        Field::text("process", "process", |it| match it.pid {
            0 => it.process.clone(),
            pid => format!("{} {pid}", it.process),
        }),
        Field::number("reads_per_s", "reads/s", |it| it.reads_per_s),
        Field::mean_bytes("read_bytes_per_s", "bytes read/s", |it| it.read_bytes_per_s),
        Field::number("writes_per_s", "writes/s", |it| it.writes_per_s),
        Field::mean_bytes("write_bytes_per_s", "bytes written/s", |it| it.write_bytes_per_s),
    ];
    Table::of(&title, &balance.loads, fields)
}

fn services_table(balance: &Balance) -> Table {
    let fields = [
        Field::word("disk", "disk", |it: &BalanceDisk| &it.name),
        Field::word("service", "service times", |it| &it.service),
        Field::percent("unattributed_utilization", "without a file", |it| {
            it.unattributed_utilization
        }),
        Field::text("stacks", "devices", |it| it.stacks.join("; ")),
    ];
    Table::of("", &balance.disks, fields)
}

/// Returns nanoseconds of seconds.
#[must_use]
pub fn nanoseconds(seconds: f64) -> u64 {
    as_u64(seconds * as_f64(1_000_000_000))
}
