//! One plan with an ACL, an exported directory, an open file and symbolic links in its way.

use super::plan::{Rig, text};
use super::script::{fill, snapshot};
use larder_testing::{has_tool, skip};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

/// An entry of exports(5), removed when dropped.
struct Export {
    file: PathBuf,
    directory: Option<&'static Path>,
}

impl Export {
    fn of(path: &Path) -> Export {
        let exports = Path::new("/etc/exports.d");
        let directory = fs::create_dir(exports).is_ok().then_some(exports);
        let file = exports.join(format!("larder-test-{}.exports", std::process::id()));
        fs::write(&file, format!("{} localhost(ro)\n", path.display())).unwrap();
        Export { file, directory }
    }
}

impl Drop for Export {
    fn drop(&mut self) {
        fs::remove_file(&self.file).unwrap();
        if let Some(directory) = self.directory {
            // Another test may have an entry as well.
            drop(fs::remove_dir(directory));
        }
    }
}

/// A process that is killed when dropped.
struct Reader(Child);

impl Reader {
    fn of(path: &Path) -> Reader {
        let mut sleep = Command::new("sleep");
        Reader(sleep.arg("1000").stdin(fs::File::open(path).unwrap()).spawn().unwrap())
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

/// Returns the findings of the move of a directory.
fn findings(plan: &Value, name: &str) -> String {
    let moves = plan["moves"].as_array().unwrap();
    let is_it = |it: &&Value| it["from"].as_str().unwrap().ends_with(name);
    let found = moves.iter().find(is_it).unwrap_or_else(|| panic!("no move of {name}: {plan:#}"));
    found["findings"].to_string()
}

/// Returns the new path of one, after making the directories above it with the rights of the old.
fn new_path(target: &Path, old: &Path) -> PathBuf {
    let of = |path: &Path| target.join(path.strip_prefix("/").unwrap());
    let mut above: Vec<&Path> = old.ancestors().skip(1).collect();
    above.pop();
    for old in above.into_iter().rev() {
        fs::create_dir(of(old)).unwrap();
        fs::set_permissions(of(old), fs::metadata(old).unwrap().permissions()).unwrap();
    }
    of(old)
}

#[test]
fn a_plan_says_all_that_is_in_its_way_and_moves_when_it_is_gone() {
    let Some(rig) = Rig::new() else { return };
    if !["bash", "getfattr", "tar"].iter().all(|tool| has_tool(tool)) {
        return;
    }
    let names = ["acl", "exported", "open", "linked", "target"];
    for name in names {
        fs::create_dir(rig.file(name)).unwrap();
        fs::write(rig.file(name).join("one"), name).unwrap();
    }
    if !fill(&rig.file("acl")) {
        skip("no ACLs or extended attributes");
        return;
    }
    symlink("../open/one", rig.file("linked/out")).unwrap();
    let rows = names.iter().map(|name| rig.row(&format!("{name}/one"), 180)).collect();
    rig.record(rows);
    let before = snapshot(rig.file_systems[0].path());
    let new = new_path(rig.file_systems[1].path(), &rig.file("target"));
    symlink("/nowhere", &new).unwrap();
    let export = Export::of(&rig.file("exported"));
    let reader = Reader::of(&rig.file("open/one"));
    let plan = rig.plan_with(&["--by", "directory", "--script", "plan.sh"], "iops:100000");
    for (name, part) in [
        ("/acl", "\"acl\""),
        ("/acl", "\"extended-attributes\""),
        ("/exported", "exports.d/larder-test"),
        ("/open", "\"open-files\""),
        ("/linked", "relative target is outside"),
        ("/target", "is there already"),
    ] {
        let found = findings(&plan, name);
        assert!(found.contains(part), "{name}: {found}");
    }
    let refused = rig.act("move");
    let message = text(&refused.stderr);
    for part in ["exports.d/larder-test", "has it open", "relative target", "exists already"] {
        assert!(message.contains(part), "{message}");
    }
    assert!(!refused.status.success());
    assert_eq!(snapshot(rig.file_systems[0].path()), before, "nothing was changed");

    drop((reader, export));
    fs::remove_file(&new).unwrap();
    let script = rig.directory.path().join("plan.sh");
    let lines = fs::read_to_string(&script).unwrap();
    let accepted = lines.lines().filter(|line| !line.starts_with("  refuse "));
    fs::write(&script, accepted.flat_map(|line| [line, "\n"]).collect::<String>()).unwrap();
    let act = |action: &str| {
        let output = rig.act(action);
        assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
        text(&output.stdout)
    };
    act("move");
    for name in names {
        assert!(rig.file(name).is_symlink(), "{name}");
        assert_eq!(fs::read(rig.file(name).join("two")).is_ok(), name == "acl");
    }
    assert_eq!(act("verify").matches("unchanged since the move").count(), names.len());
    act("undo");
    assert_eq!(snapshot(rig.file_systems[0].path()), before);
}
