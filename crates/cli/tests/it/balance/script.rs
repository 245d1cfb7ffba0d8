//! The script of a plan on a real tree: it moves, verifies and undoes byte by byte, and refuses a
//! tree that is not that of the plan.

use larder_report::balance::to_script;
use larder_schema::balance::{
    Balance, FileMove, FindingLevel, MoveFinding, MoveIdentity, MoveLink,
};
use larder_testing::{can_mount, has_tool, is_root, skip};
use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tempfile::TempDir;

/// Two directories, and a script.
pub(super) struct Rig {
    directory: TempDir,
}

impl Rig {
    /// Returns `None`, with a reported skip, if this machine cannot run scripts.
    pub(super) fn new() -> Option<Rig> {
        if !is_root() || !["bash", "getfattr", "tar"].iter().all(|tool| has_tool(tool)) {
            return None;
        }
        let rig = Rig { directory: tempfile::tempdir().unwrap() };
        for name in ["data", "target"] {
            fs::create_dir(rig.path(name)).unwrap();
        }
        Some(rig)
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().canonicalize().unwrap().join(name)
    }

    pub(super) fn file_move(&self, name: &str, link: MoveLink) -> FileMove {
        let (from, target) = (self.path(name), self.path("target"));
        let found = fs::symlink_metadata(&from).unwrap();
        let to = target.join(from.strip_prefix("/").unwrap());
        FileMove {
            from: from.to_str().unwrap().to_owned(),
            to: to.to_str().unwrap().to_owned(),
            target: target.to_str().unwrap().to_owned(),
            is_directory: found.is_dir(),
            bytes: 1 << 20,
            link,
            identity: Some(MoveIdentity {
                device: found.dev(),
                inode: found.ino(),
                target_device: fs::metadata(&target).unwrap().dev(),
            }),
            ..FileMove::default()
        }
    }

    pub(super) fn write(&self, moves: Vec<FileMove>) {
        let machine = fs::read_to_string("/etc/machine-id").unwrap_or_default();
        let balance =
            Balance { machine_id: Some(machine.trim().to_owned()), moves, ..Balance::default() };
        fs::write(self.path("plan.sh"), to_script(&balance).unwrap()).unwrap();
    }

    fn run(&self, action: &str) -> Output {
        self.command(action).output().unwrap()
    }

    pub(super) fn command(&self, action: &str) -> Command {
        let mut command = Command::new("bash");
        command.arg(self.path("plan.sh")).arg(action);
        command.env("LARDER_BALANCE_STATE", self.path("state"));
        command.env("LARDER_BALANCE_INTERVAL", "0.1");
        command
    }

    pub(super) fn succeed(&self, action: &str) -> String {
        let output = self.run(action);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert!(
            output.status.success(),
            "{action}: {}{}",
            text(&output.stdout),
            text(&output.stderr)
        );
        text(&output.stdout)
    }

    /// Runs an action that must fail, and returns its message.
    pub(super) fn refuse(&self, action: &str) -> String {
        let output = self.run(action);
        assert!(!output.status.success(), "{action} did not fail");
        String::from_utf8_lossy(&output.stderr).into_owned()
    }

    pub(super) fn snapshot(&self, name: &str) -> String {
        snapshot(&self.path(name))
    }
}

/// Returns all that a tree is: kinds, rights, owners, times, links, content, attributes.
pub(super) fn snapshot(directory: &Path) -> String {
    let script = "cd \"$1\" && find . ! -name . -printf '%y %m %U %G %s %T@ %n %l %p\\n' \
                  | sort && find . -type f -print0 | sort -z | xargs -0 -r sha256sum && \
                  find . -print0 | sort -z | xargs -0 getfattr -h -d -m - -e hex";
    let mut command = Command::new("bash");
    command.args(["-c", script, "snapshot"]).arg(directory);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Fills a directory with all that a copy may lose. Returns false if ACLs are missing.
pub(super) fn fill(directory: &Path) -> bool {
    fs::create_dir_all(directory.join("-a dir/\u{1b}[31m")).unwrap();
    fs::write(directory.join("-a dir/*?[x]\\"), "glob").unwrap();
    fs::write(directory.join("it's \"$(touch pwned)\"\n`id`"), "quotes").unwrap();
    fs::write(directory.join("one"), "linked").unwrap();
    fs::hard_link(directory.join("one"), directory.join("two")).unwrap();
    symlink("one", directory.join("relative")).unwrap();
    symlink("/nowhere", directory.join("dangling")).unwrap();
    // The copy has no socket, and an undo brings the original back.
    drop(UnixListener::bind(directory.join("socket")).unwrap());
    let sparse = fs::File::create(directory.join("sparse")).unwrap();
    sparse.write_all_at(b"end", 10 << 20).unwrap();
    let private = directory.join("private");
    fs::write(&private, "secret").unwrap();
    fs::set_permissions(&private, fs::Permissions::from_mode(0o4640)).unwrap();
    std::os::unix::fs::chown(&private, Some(1234), Some(5678)).unwrap();
    let run = |program: &str, words: &[&str]| {
        let status = Command::new(program).args(words).arg(directory.join("one")).status();
        status.is_ok_and(|it| it.success())
    };
    run("setfacl", &["-m", "u:1234:rw"]) && run("setfattr", &["-n", "user.note", "-v", "kept"])
}

#[test]
fn a_tree_moves_is_verified_and_comes_back_byte_by_byte() {
    for link in [MoveLink::Symlink, MoveLink::Bind] {
        let Some(rig) = Rig::new() else { return };
        if link == MoveLink::Bind && !can_mount() {
            continue;
        }
        fs::create_dir(rig.path("data/tree")).unwrap();
        if !fill(&rig.path("data/tree")) {
            skip("the temporary directory has no ACLs or extended attributes");
            return;
        }
        let odd = "data/-odd 'na\nme*";
        fs::write(rig.path(odd), "single file").unwrap();
        let before = rig.snapshot("data");
        rig.write(vec![rig.file_move("data/tree", link), rig.file_move(odd, link)]);
        assert!(rig.succeed("check").contains("all checks passed"));
        assert_eq!(rig.snapshot("data"), before, "a check changes nothing");
        rig.succeed("move");
        let target = rig.file_move("data", link).to;
        let moved = Path::new(&target).join("tree");
        assert_eq!(fs::read(moved.join("private")).unwrap(), b"secret");
        assert_eq!(rig.path("data/tree").is_symlink(), link == MoveLink::Symlink);
        assert_eq!(fs::read(rig.path(odd)).unwrap(), b"single file");
        assert!(!rig.path("data/tree/pwned").exists() && !Path::new("pwned").exists());
        let verified = rig.succeed("verify");
        assert_eq!(verified.matches("unchanged since the move").count(), 2, "{verified}");
        rig.succeed("measure");
        assert!(rig.path("state/measured-after").exists());
        rig.succeed("undo");
        assert_eq!(rig.snapshot("data"), before, "{link:?}");
        assert_eq!(fs::read_dir(rig.path("target")).unwrap().count(), 0, "the copies are gone");
    }
}

#[test]
fn what_programs_write_after_the_move_comes_back_too() {
    for link in [MoveLink::Symlink, MoveLink::Bind] {
        let Some(rig) = Rig::new() else { return };
        if link == MoveLink::Bind && !can_mount() {
            continue;
        }
        fs::create_dir(rig.path("data/tree")).unwrap();
        fs::write(rig.path("data/tree/kept"), "kept").unwrap();
        fs::write(rig.path("data/tree/removed"), "old").unwrap();
        fs::write(rig.path("data/file"), "before").unwrap();
        rig.write(vec![rig.file_move("data/tree", link), rig.file_move("data/file", link)]);
        rig.succeed("move");
        fs::write(rig.path("data/file"), "after the move").unwrap();
        fs::remove_file(rig.path("data/tree/removed")).unwrap();
        fs::write(rig.path("data/tree/new"), "new").unwrap();
        assert!(rig.succeed("verify").contains("programs have changed it"));
        rig.succeed("undo");
        let file = rig.path("data/file");
        assert!(!file.is_symlink() && fs::read(&file).unwrap() == b"after the move");
        let mut names: Vec<_> = fs::read_dir(rig.path("data/tree")).unwrap().flatten().collect();
        names.sort_by_key(fs::DirEntry::file_name);
        assert_eq!(names.iter().map(fs::DirEntry::file_name).collect::<Vec<_>>(), ["kept", "new"]);
        let left: Vec<_> = fs::read_dir(rig.path("data")).unwrap().flatten().collect();
        assert_eq!(left.len(), 2, "{left:?}");
    }
}

#[test]
fn finish_removes_the_originals() {
    for link in [MoveLink::Symlink, MoveLink::Bind] {
        let Some(rig) = Rig::new() else { return };
        if link == MoveLink::Bind && !can_mount() {
            continue;
        }
        fs::create_dir(rig.path("data/tree")).unwrap();
        fs::write(rig.path("data/tree/file"), "x").unwrap();
        rig.write(vec![rig.file_move("data/tree", link)]);
        rig.succeed("move");
        rig.succeed("finish");
        assert_eq!(fs::read(rig.path("data/tree/file")).unwrap(), b"x");
        assert!(!rig.path("data/tree.larder-before").exists());
        if link == MoveLink::Bind {
            let unmounted = Command::new("umount").arg(rig.path("data/tree")).status().unwrap();
            assert!(unmounted.success());
            assert!(!rig.path("data/tree/file").exists(), "the hidden original is gone");
        }
    }
}

#[test]
fn a_tree_that_has_changed_is_refused_and_stays_as_it_is() {
    let Some(rig) = Rig::new() else { return };
    let file = rig.path("data/file");
    fs::write(&file, "x").unwrap();
    let planned = rig.file_move("data/file", MoveLink::Symlink);
    rig.write(vec![planned.clone()]);
    rig.succeed("check");
    // Another file of the same name; the old one keeps its inode number in use.
    fs::rename(&file, rig.path("data/old")).unwrap();
    fs::write(&file, "y").unwrap();
    assert!(rig.refuse("move").contains("another file than that of the plan"));
    fs::remove_file(&file).unwrap();
    assert!(rig.refuse("move").contains("missing"));
    symlink(rig.path("data/old"), &file).unwrap();
    assert!(rig.refuse("move").contains("missing"));
    fs::rename(rig.path("data/old"), &file).unwrap();
    fs::hard_link(&file, rig.path("data/other")).unwrap();
    assert!(rig.refuse("move").contains("hard links"));
    fs::remove_file(rig.path("data/other")).unwrap();
    let input = fs::File::open(&file).unwrap();
    let mut reader = Command::new("sleep").arg("1000").stdin(input).spawn().unwrap();
    let message = rig.refuse("move");
    assert!(message.contains("has it open"), "{message}");
    reader.kill().unwrap();
    reader.wait().unwrap();
    fs::create_dir_all(&planned.to).unwrap();
    assert!(rig.refuse("move").contains("the new path exists already"));
    fs::remove_dir(&planned.to).unwrap();
    fs::write(&file, vec![7; 4 << 20]).unwrap();
    assert!(rig.refuse("move").contains("it has grown"));
    let identity = planned.identity.map(|it| MoveIdentity { target_device: 0, ..it });
    rig.write(vec![FileMove { identity, ..planned.clone() }]);
    assert!(rig.refuse("move").contains("another file system"));
    let text = fs::read_to_string(rig.path("plan.sh")).unwrap();
    let other = text.replacen("\nMACHINE='", "\nMACHINE='x", 1);
    fs::write(rig.path("plan.sh"), other).unwrap();
    assert!(rig.refuse("move").contains("another machine"));
    assert!(!file.is_symlink() && fs::metadata(&file).unwrap().len() == 4 << 20);
}

#[test]
fn a_directory_in_use_and_a_finding_without_consent_are_refused() {
    let Some(rig) = Rig::new() else { return };
    let tree = rig.path("data/a[b]*");
    fs::create_dir(&tree).unwrap();
    fs::write(tree.join("file"), "x").unwrap();
    fs::write(rig.path("data/out"), "x").unwrap();
    let mut planned = rig.file_move("data/a[b]*", MoveLink::Symlink);
    rig.write(vec![planned.clone()]);
    rig.succeed("check");
    for user in [
        Command::new("sleep").arg("1000").current_dir(&tree),
        Command::new("sleep").arg("1000").stdin(fs::File::open(tree.join("file")).unwrap()),
    ] {
        let mut user = user.spawn().unwrap();
        let message = rig.refuse("move");
        user.kill().unwrap();
        user.wait().unwrap();
        assert!(message.contains("has it open"), "{message}");
    }
    fs::hard_link(rig.path("data/out"), tree.join("linked")).unwrap();
    assert!(rig.refuse("move").contains("hard links"));
    fs::remove_file(tree.join("linked")).unwrap();
    let text = "it is in /srv, which /etc/exports shares over NFS: `id` $(id)";
    planned.findings = vec![MoveFinding::new("exports", FindingLevel::Stop, text)];
    rig.write(vec![planned]);
    let message = rig.refuse("move");
    assert!(message.contains(text), "{message}");
    assert!(!tree.is_symlink());
    let script = fs::read_to_string(rig.path("plan.sh")).unwrap();
    let without = script.lines().filter(|line| !line.starts_with("  refuse "));
    let without: String = without.flat_map(|line| [line, "\n"]).collect();
    fs::write(rig.path("plan.sh"), without).unwrap();
    rig.succeed("move");
    assert!(tree.is_symlink());
    assert!(rig.refuse("nonsense").contains("usage"));
}

#[test]
fn a_write_between_the_copy_and_its_place_ends_the_move() {
    let Some(rig) = Rig::new() else { return };
    let original = rig.path("data/log");
    fs::write(&original, "first\n").unwrap();
    rig.write(vec![rig.file_move("data/log", MoveLink::Symlink)]);
    let (bin, ln) = (rig.path("bin"), rig.path("bin/ln"));
    fs::create_dir(&bin).unwrap();
    let script = format!("#!/bin/sh\necho late >> '{}'\nexec /bin/ln \"$@\"\n", original.display());
    fs::write(&ln, script).unwrap();
    fs::set_permissions(&ln, fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let output = rig.command("move").env("PATH", path).output().unwrap();
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && message.contains("a program used it"), "{message}");
    assert!(original.symlink_metadata().unwrap().is_file());
    assert!(fs::read_to_string(&original).unwrap().starts_with("first\nlate\n"));
    assert!(!rig.path("data/log.larder-before").exists());
    assert_eq!(fs::read_dir(rig.path("target")).unwrap().count(), 0, "the copy was removed");
    rig.succeed("move");
}

#[test]
fn a_write_to_the_original_after_the_move_is_not_lost() {
    for is_directory in [false, true] {
        let Some(rig) = Rig::new() else { return };
        let name = if is_directory { "data/logs" } else { "data/log" };
        let inside = if is_directory { "logs/log" } else { "log" };
        if is_directory {
            fs::create_dir(rig.path(name)).unwrap();
        }
        fs::write(rig.path("data").join(inside), "first\n").unwrap();
        rig.write(vec![rig.file_move(name, MoveLink::Symlink)]);
        rig.succeed("move");
        let before = rig.path(&format!("{name}.larder-before"));
        let late = if is_directory { before.join("log") } else { before };
        fs::write(&late, "first\nlate\n").unwrap();
        let message = rig.refuse("finish");
        assert!(message.contains("has changed the original since it was copied"), "{message}");
        let copy = rig.path("data").join(inside);
        fs::write(&copy, "first\nother\n").unwrap();
        let message = rig.refuse("undo");
        assert!(message.contains("changed both the original and its copy"), "{message}");
        assert_eq!(fs::read_to_string(&late).unwrap(), "first\nlate\n");
    }
}
