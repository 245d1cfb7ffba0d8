//! Findings about real trees, and about recorded configuration.

use super::*;
use larder_schema::balance::FindingLevel;
use larder_testing::{has_tool, skip};
use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;
use tempfile::TempDir;

struct Place {
    directory: TempDir,
    roots: MoveRoots,
}

impl Place {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().canonicalize().unwrap();
        for name in ["etc/exports.d", "etc/samba", "etc/apparmor.d", "var", "data", "target"] {
            fs::create_dir_all(root.join(name)).unwrap();
        }
        Place { directory, roots: MoveRoots { etc: root.join("etc"), var: root.join("var") } }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().canonicalize().unwrap().join(name)
    }

    fn findings(&self, name: &str, link: MoveLink) -> Vec<MoveFinding> {
        let (path, target) = (self.path(name), self.path("target"));
        let facts = TreeFacts::of(&path);
        check(&self.roots, &MoveCandidate { path, target, link }, &facts, None)
    }
}

fn of<'a>(findings: &'a [MoveFinding], check: &str) -> Vec<(FindingLevel, &'a str)> {
    let of_check = findings.iter().filter(|it| it.check == check);
    of_check.map(|it| (it.level, &*it.text)).collect()
}

#[test]
fn a_plain_file_that_nothing_uses_has_no_finding() {
    let place = Place::new();
    fs::write(place.path("data/file"), "x").unwrap();
    let findings = place.findings("data/file", MoveLink::Symlink);
    let others: Vec<_> = findings.iter().filter(|it| !it.text.contains("Larder cannot")).collect();
    assert!(others.is_empty(), "{findings:?}");
}

#[test]
fn an_open_file_a_hard_link_and_what_is_in_the_way_stop_a_move() {
    let place = Place::new();
    let file = place.path("data/a file");
    fs::write(&file, "x").unwrap();
    fs::hard_link(&file, place.path("data/other")).unwrap();
    let target = place.path("target");
    let candidate = MoveCandidate { path: file.clone(), target, link: MoveLink::Symlink };
    let destination = candidate.destination();
    assert!(destination.ends_with(file.strip_prefix("/").unwrap()));
    fs::create_dir_all(&destination).unwrap();
    let input = fs::File::open(&file).unwrap();
    let mut reader = Command::new("sleep").arg("1000").stdin(input).spawn().unwrap();
    let findings = place.findings("data/a file", MoveLink::Symlink);
    reader.kill().unwrap();
    reader.wait().unwrap();
    let opened = of(&findings, "open-files");
    assert!(
        opened.iter().any(|(level, text)| *level == Stop && text.contains("sleep")),
        "{opened:?}"
    );
    assert_eq!(of(&findings, "hard-links").len(), 1);
    assert_eq!(of(&findings, "destination")[0].0, Stop);
    assert_eq!(findings[0].level, Stop, "the most serious first");
    let whole = place.findings("data", MoveLink::Symlink);
    assert!(of(&whole, "hard-links").is_empty(), "both names move: {whole:?}");
}

#[test]
fn acls_and_extended_attributes_are_named() {
    let place = Place::new();
    let file = place.path("data/file");
    fs::write(&file, "x").unwrap();
    if !has_tool("setfacl") || !has_tool("setfattr") {
        return;
    }
    let run = |program: &str, words: &[&str]| {
        Command::new(program).args(words).arg(&file).status().unwrap().success()
    };
    if !run("setfacl", &["-m", "u:1234:r"]) || !run("setfattr", &["-n", "user.note", "-v", "x"]) {
        skip("the temporary directory has no ACLs or extended attributes");
        return;
    }
    let findings = place.findings("data", MoveLink::Symlink);
    let acl = of(&findings, "acl");
    assert!(acl[0].1.contains("has an ACL") && acl[0].1.contains("data/file"), "{acl:?}");
    let attributes = of(&findings, "extended-attributes");
    assert!(attributes[0].1.contains("user.note"), "{attributes:?}");
}

#[test]
fn links_that_lead_out_break_behind_a_symbolic_link_only() {
    let place = Place::new();
    fs::create_dir_all(place.path("data/below")).unwrap();
    symlink("../sibling", place.path("data/below/inside")).unwrap();
    symlink("/absolute", place.path("data/absolute")).unwrap();
    let findings = place.findings("data", MoveLink::Symlink);
    assert!(of(&findings, "symbolic-links").is_empty(), "{findings:?}");
    symlink("../../outside", place.path("data/below/out")).unwrap();
    let findings = place.findings("data", MoveLink::Symlink);
    let links = of(&findings, "symbolic-links");
    assert!(links[0].0 == Stop && links[0].1.contains("data/below/out"), "{links:?}");
    assert!(of(&place.findings("data", MoveLink::Bind), "symbolic-links").is_empty());
    symlink(place.path("data"), place.path("other")).unwrap();
    let findings = place.findings("other/below", MoveLink::Bind);
    assert!(of(&findings, "symbolic-links")[0].1.contains("leads through"), "{findings:?}");
}

#[test]
fn exports_and_shares_are_found_with_their_files() {
    let place = Place::new();
    let (etc, data) = (&place.roots.etc, place.path("data"));
    let quoted = format!("\"{}\" *(rw)\n# /comment *(rw)\n", data.display());
    fs::write(etc.join("exports.d/a.exports"), quoted).unwrap();
    let below = format!("[share]\n\tPath = {}/below\n", data.display());
    fs::write(etc.join("samba/smb.conf"), below).unwrap();
    let findings = place.findings("data", MoveLink::Symlink);
    let exports = of(&findings, "exports");
    assert!(exports[0].1.contains("a.exports") && exports[0].1.contains("NFS"), "{exports:?}");
    assert!(exports[1].1.contains("contains") && exports[1].1.contains("SMB"), "{exports:?}");
    assert!(exports.iter().all(|it| it.0 == Stop), "{exports:?}");
    let bind = place.findings("data", MoveLink::Bind);
    assert!(of(&bind, "exports").iter().all(|it| it.0 == Warning), "{bind:?}");
    assert!(of(&place.findings("target", MoveLink::Symlink), "exports").is_empty());
}

#[test]
fn configuration_that_names_the_path_is_found_by_line() {
    let place = Place::new();
    let (etc, data) = (&place.roots.etc, place.path("data"));
    let data = data.display();
    fs::write(etc.join("db.conf"), format!("# {data}\nx=1\ndatadir={data}/db\n")).unwrap();
    fs::write(etc.join("other.conf"), format!("dir={data}-old\ndir=/x{data}\n")).unwrap();
    fs::write(etc.join("apparmor.d/db"), format!("  {data}/** rw,\n")).unwrap();
    let findings = place.findings("data", MoveLink::Symlink);
    let named = of(&findings, "configuration");
    assert_eq!(named.len(), 2, "{named:?}");
    assert!(named[0].0 == Stop && named[0].1.contains("apparmor.d/db, line 1"), "{named:?}");
    assert!(named[1].0 == Note && named[1].1.contains("db.conf, line 3"), "{named:?}");
}

#[test]
fn the_last_backup_is_that_of_the_newest_stamp() {
    let place = Place::new();
    assert_eq!(last_backup(&place.roots, None).unwrap(), None);
    let timers = place.roots.var.join("lib/systemd/timers");
    fs::create_dir_all(&timers).unwrap();
    fs::write(timers.join("stamp-fstrim.timer"), "").unwrap();
    assert_eq!(last_backup(&place.roots, None).unwrap(), None);
    fs::write(timers.join("stamp-Restic-home.timer"), "").unwrap();
    let mut backup = last_backup(&place.roots, None).unwrap().unwrap();
    assert!(backup.stamp.ends_with("stamp-Restic-home.timer"));
    assert_eq!(backup.age_finding().level, Note);
    backup.at -= std::time::Duration::from_hours(100);
    assert_eq!(backup.age_finding().level, Warning);
    let changed = backup.check(&TreeFacts::of(&place.path("data"))).unwrap();
    assert!(changed.text.contains("has changed"), "{changed:?}");
    assert!(last_backup(&place.roots, Some(&place.path("none"))).is_err());
}
