//! Directories that other machines use: exports of NFS and shares of Samba.

use super::MoveCandidate;
use crate::holders::quoted;
use crate::proc;
use larder_schema::balance::FindingLevel::{Stop, Warning};
use larder_schema::balance::{MoveFinding, MoveLink};
use std::path::{Path, PathBuf};

/// Maximum number of exports and shares that are compared.
const SHARES_MAX: usize = 10_000;

/// A shared directory, and the file that names it.
struct Share {
    path: PathBuf,
    kind: &'static str,
    named_in: PathBuf,
}

/// Reports shares that contain the path, or that are in it.
pub(super) fn check(
    etc: &Path,
    var: &Path,
    candidate: &MoveCandidate,
    findings: &mut Vec<MoveFinding>,
) {
    for share in shares(etc, var).into_iter().take(SHARES_MAX) {
        let is_above = candidate.path.starts_with(&share.path);
        if !is_above && !share.path.starts_with(&candidate.path) {
            continue;
        }
        let relation = if is_above { "is in" } else { "contains" };
        let (level, effect) = match (candidate.link, share.kind) {
            (MoveLink::Symlink, "NFS") => (
                Stop,
                "its clients follow a symbolic link on their own machines: use --link bind, and \
                 export the new place with crossmnt",
            ),
            (MoveLink::Symlink, _) => (
                Stop,
                "Samba follows no link out of a share unless wide links are on: use --link bind",
            ),
            (MoveLink::Bind, "NFS") => {
                (Warning, "export it with crossmnt, and run exportfs -ra after the move")
            }
            (MoveLink::Bind, _) => (Warning, "its clients must connect again after the move"),
        };
        let text = format!(
            "{} {relation} {}, which {} shares over {}: {effect}",
            quoted(&candidate.path),
            quoted(&share.path),
            quoted(&share.named_in),
            share.kind
        );
        findings.push(MoveFinding::new("exports", level, text));
    }
}

fn shares(etc: &Path, var: &Path) -> Vec<Share> {
    let mut tables = vec![etc.join("exports"), var.join("lib/nfs/etab")];
    let mut further: Vec<PathBuf> = proc::entries(etc.join("exports.d")).collect();
    further.retain(|path| path.extension().is_some_and(|it| it == "exports"));
    further.sort();
    tables.extend(further);
    let mut found = Vec::new();
    for table in tables {
        let text = proc::read(&table).unwrap_or_default();
        let paths = text.lines().filter_map(exported);
        let share = |path| Share { path, kind: "NFS", named_in: table.clone() };
        found.extend(paths.map(share));
    }
    let table = etc.join("samba/smb.conf");
    let text = proc::read(&table).unwrap_or_default();
    let share = |path| Share { path, kind: "SMB", named_in: table.clone() };
    found.extend(text.lines().filter_map(shared).map(share));
    found
}

/// Returns the directory of a line of exports(5): up to a space, or in quotation marks, with octal
/// escapes.
fn exported(line: &str) -> Option<PathBuf> {
    let line = line.trim_start();
    let path = match line.strip_prefix('"') {
        Some(rest) => rest.split('"').next()?,
        None => line.split_whitespace().next()?,
    };
    let path = crate::mounts::unescaped_path(path.as_bytes());
    path.is_absolute().then_some(path)
}

/// Returns the directory of a line of smb.conf(5), such as `path = /srv/share`; `directory` is the
/// same option.
fn shared(line: &str) -> Option<PathBuf> {
    let (name, value) = line.split_once('=')?;
    let name = name.trim().to_ascii_lowercase();
    let path = PathBuf::from(value.trim());
    (["path", "directory"].contains(&&*name) && path.is_absolute()).then_some(path)
}
