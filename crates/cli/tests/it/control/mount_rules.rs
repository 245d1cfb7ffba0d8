//! `larder mount --rule`: files with settings of their own, which `larder ctl` shows as volumes;
//! and rules that are refused.
//!
//! The tests need root and FUSE; otherwise each of them reports a skip.

use super::files::{LAZY, Mountpoint};
use super::mount::{mount, source};
use super::rig::{larder, text};
use larder_testing::can_mount;
use std::fs;
use tempfile::TempDir;

#[test]
fn the_files_of_a_rule_are_a_volume_that_ctl_knows() {
    if !can_mount() {
        return;
    }
    let mountpoint = Mountpoint::new();
    let rules = ["--rule", "*.db=random,through,64KiB", "--rule", "*.raw=no-cache"];
    let more = ["--rule", "logs/**=sequential"];
    let options = [&LAZY[..], &rules, &more].concat();
    let server = mount(TempDir::new().unwrap(), &mountpoint, &options);
    fs::create_dir(mountpoint.file("logs")).unwrap();
    for name in ["a.db", "a.raw", "logs/a", "rest"] {
        fs::write(mountpoint.file(name), vec![3; 100_000]).unwrap();
    }
    let stored_len =
        |name: &str| fs::metadata(source(server.directory.path()).join(name)).unwrap().len();
    assert_eq!(["a.db", "a.raw", "logs/a", "rest"].map(stored_len), [100_000, 100_000, 0, 0]);
    let volumes = server.ctl_text(&["volumes"]);
    let line = |name: &str| {
        let mut lines = volumes.lines().filter(|line| line.starts_with(name));
        lines.next().unwrap_or_else(|| panic!("no {name}: {volumes}")).to_owned()
    };
    assert!(line("rule1").contains("through") && line("rule1").contains("64KiB"), "{volumes}");
    assert!(line("rule3").contains("back") && line("source").contains("back"), "{volumes}");
    assert!(!volumes.contains("rule2"), "what is not cached has no volume: {volumes}");
    let json = server.get("/v1/volumes").json();
    assert!(json.to_string().contains("/source/*.db"), "where they are: {json}");
    let files = server.ctl_text(&["files"]);
    for name in ["a.db ", "logs/a ", "rest "] {
        assert!(files.lines().any(|line| line.starts_with(name)), "{files}");
    }
    assert!(server.get("/v1/stats").json()["budget"].is_null(), "there are no NBD clients");
    assert!(!server.ctl_text(&["stats", "--all"]).contains("sessions"));
    let metrics = server.get("/metrics").body;
    let samples = ["larder_sessions ", "larder_budget_"];
    assert!(!metrics.lines().any(|line| samples.iter().any(|name| line.starts_with(name))));
    server.ctl_text(&["set", "rule1.write-mode=back", "rule1.page-size=16KiB"]);
    fs::write(mountpoint.file("b.db"), vec![4; 100_000]).unwrap();
    assert_eq!(stored_len("b.db"), 0, "lazily now");
    server.ctl_text(&["set", "rule1.write-mode=read-only"]);
    assert!(fs::write(mountpoint.file("c.db"), "x").is_err(), "not now");
    let refused = server.ctl(&["add", "/etc/hostname"]);
    let stderr = text(&refused.stderr);
    assert!(
        stderr.contains("a mounted directory, whose volumes are those of its rules"),
        "{stderr}"
    );
    let directory = server.stop_and_keep().0;
    for name in ["a.db", "a.raw", "logs/a", "rest", "b.db"] {
        assert_eq!(fs::metadata(source(directory.path()).join(name)).unwrap().len(), 100_000);
    }
}

#[test]
fn a_wrong_rule_is_refused_before_anything_is_mounted() {
    let cases = [
        (
            &["--rule", "*.db"][..],
            "GLOB=hint,mode,page-size,pin,no-cache,kernel-pages=off|open|keep",
        ),
        (&["--rule", "a[=pin"], "\"a[\" is not a glob"),
        (&["--rule", "*.db=random,fast"], "word 2, \"fast\": there is no rule option"),
        (&["--rule", "*=no-cache,pin"], "no-cache goes with nothing but read-only"),
        (
            &["--write-mode", "read-only", "--rule", "*.log=back"],
            "cannot write what \"*.log\" names: --write-mode read-only is of all files",
        ),
    ];
    for (args, reason) in cases {
        let mut command = larder();
        command.args(["mount", "/missing", "/missing", "--control", "none"]).args(args);
        let output = command.output().unwrap();
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{stderr}");
        assert!(stderr.contains(reason), "{args:?}: {stderr}");
    }
    let many = (0..13).flat_map(|n| ["--rule".to_owned(), format!("{n}=pin")]);
    let mut command = larder();
    command.args(["mount", "/missing", "/missing", "--control", "none"]).args(many);
    let stderr = text(&command.output().unwrap().stderr);
    assert!(stderr.contains("cannot take 13 rules: 12 are the most"), "{stderr}");
}
