//! The script of a plan, for bash. Its first part is made from the plan: the moves, with their
//! findings as comments; the rest is the same in each script.
//!
//! Invariant: a path occurs only as a quoted word, and any other foreign text only in a comment of
//! one line or as a quoted word.

use super::{finding_line, move_sentence, verdict};
use crate::escape::{self, shell_word};
use larder_schema::balance::{Balance, FileMove, FindingLevel, MoveLink};
use std::hash::{DefaultHasher, Hash, Hasher};

/// The part that all scripts have.
const BODY: &str = include_str!("script.sh");
/// Checks that the script makes itself, so that their findings need no consent.
const LIVE: [&str; 5] = ["destination", "hard-links", "identity", "mount-points", "open-files"];

/// Returns the script; `None` without moves, or if the files are not of this machine.
#[must_use]
pub fn to_script(balance: &Balance) -> Option<String> {
    let machine = balance.machine_id.as_ref()?;
    let moves: Option<Vec<String>> =
        (1..).zip(&balance.moves).map(|(number, each)| command(number, each)).collect();
    let moves = moves.filter(|moves| !moves.is_empty())?;
    let mut hasher = DefaultHasher::new();
    (machine, &moves).hash(&mut hasher);
    let id = format!("{:016x}", hasher.finish());
    let mut text = format!(
        "#!/bin/bash\n# {}.\n#\n# A plan of larder balance. Review it; larder does not run it. As \
         root, in this order:\n#   bash THIS_FILE check     checks, without a change\n#   bash \
         THIS_FILE measure   use of the disks, before\n#   bash THIS_FILE move      copies, \
         compares, and replaces each path\n#   bash THIS_FILE verify    compares\n#   bash \
         THIS_FILE measure   use of the disks, after\n#   bash THIS_FILE undo      brings all \
         back\n#   bash THIS_FILE finish    removes the originals, named *.larder-before\n\n\
         set -u -o pipefail\nexport LC_ALL=C\n",
        escape::line(&verdict(balance))
    );
    put_line!(text, "MACHINE={}", shell_word(machine));
    put_line!(text, "STATE=${{LARDER_BALANCE_STATE:-/var/lib/larder/balance-{id}}}");
    let disks: Vec<&str> = balance.disks.iter().map(|it| &*it.name).collect();
    put_line!(text, "DISKS={}", shell_word(&disks.join(" ")));
    let has_attributes = |it: &FileMove| {
        it.findings.iter().any(|it| ["acl", "extended-attributes"].contains(&it.check))
    };
    let needs = balance.moves.iter().any(has_attributes);
    put_line!(text, "NEEDS_ATTRIBUTES={}", if needs { "1" } else { "" });
    for finding in &balance.findings {
        put_line!(text, "# {}", finding_line(finding));
    }
    put!(text, "{}", accepted(balance));
    text.push_str("\n# Calls $1 with each move: number, kind, replacement, old path, new path,\n");
    text.push_str("# target, pattern of the old path, identity, device of the target, bytes.\n");
    put!(text, "moves() {{\n{}}}\n", functions(balance, &moves, false));
    put!(text, "moves_reversed() {{\n{}}}\n", functions(balance, &moves, true));
    text.push_str(BODY);
    Some(text)
}

/// Returns a function that fails as long as findings await consent.
fn accepted(balance: &Balance) -> String {
    let mut text =
        "\n# Remove a line that begins with refuse when its cause is gone or accepted.\n\
                    refuse() { printf 'stop: %s\\n' \"$1\" >&2; OPEN=1; }\naccepted() {\n  \
                    OPEN=0\n"
            .to_owned();
    for (number, each) in (1..).zip(&balance.moves) {
        for finding in &each.findings {
            if finding.level == FindingLevel::Stop && !LIVE.contains(&finding.check) {
                let sentence = format!("move {number}: {}", escape::line(&finding.text));
                put_line!(text, "  refuse {}", shell_word(&sentence));
            }
        }
    }
    text + "  [ \"$OPEN\" = 0 ]\n}\n"
}

fn functions(balance: &Balance, moves: &[String], is_reversed: bool) -> String {
    let mut all: Vec<(&FileMove, &String)> = balance.moves.iter().zip(moves).collect();
    if is_reversed {
        all.reverse();
    }
    let mut text = String::new();
    for (each, command) in all {
        if !is_reversed {
            put_line!(text, "  # {}", escape::line(&move_sentence(each)));
            for finding in &each.findings {
                put_line!(text, "  #   {}", finding_line(finding));
            }
        }
        put_line!(text, "  TO_PATTERN={}", shell_word(&pattern(&each.to)));
        put_line!(text, "  {command}");
    }
    text
}

/// Returns the call of a function with a move.
fn command(number: u32, each: &FileMove) -> Option<String> {
    let identity = each.identity?;
    let kind = if each.is_directory { "directory" } else { "file" };
    let link = match each.link {
        MoveLink::Symlink => "symlink",
        MoveLink::Bind => "bind",
    };
    let [from, to, target, pattern] =
        [&each.from, &each.to, &each.target, &pattern(&each.from)].map(|it| shell_word(it));
    Some(format!(
        "\"$1\" {number} {kind} {link} {from} {to} {target} {pattern} {}:{} {} {}",
        identity.device, identity.inode, identity.target_device, each.bytes
    ))
}

/// Returns a pattern of fnmatch(3) that is exactly this path.
fn pattern(path: &str) -> String {
    let mut pattern = String::with_capacity(path.len());
    for character in path.chars() {
        if "*?[]\\".contains(character) {
            pattern.push('\\');
        }
        pattern.push(character);
    }
    pattern
}
