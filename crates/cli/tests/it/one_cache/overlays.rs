//! Overlays: the kernel names their layers only by the paths at the time of the mount.

use super::rig::{Outcome, Target, TestStorage};
use super::{can_create_storage, larder, try_all};
use larder_testing::{has_tool, skip};
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};

#[test]
fn an_overlay_and_its_layers_have_one_cache() {
    if !can_create_storage() {
        return;
    }
    let mut storage = TestStorage::new();
    for name in ["lower/sub", "upper/sub", "work", "beside"] {
        storage.directory(name);
    }
    storage.image("lower/sub/a.img");
    storage.image("upper/sub/b.img");
    if !storage.overlay("lower", "upper", "work", "ov") {
        return;
    }
    let targets = [
        storage.mount("overlay", "ov"),
        storage.mount("directory of it", "ov/sub"),
        storage.mount("lower layer", "lower"),
        storage.mount("upper layer", "upper/sub"),
        storage.serve("image of the upper layer", "upper/sub/b.img"),
        storage.serve("image in the overlay", "ov/sub/b.img"),
        storage.mount("directory beside", "beside"),
    ];
    let are_disjoint = |one: &Target, other: &Target| {
        let names = [one.name, other.name];
        // A file of the overlay counts as one of all its layers: the layer that holds it may
        // change.
        let is_upper = |name: &&str| name.contains("upper");
        names.contains(&"directory beside")
            || (names.contains(&"lower layer") && names.iter().any(is_upper))
    };
    try_all(&targets, |one, other| !are_disjoint(one, other));
}

/// Creates storage with directories for an overlay and with a file in the lower layer.
fn storage_with_layers() -> TestStorage {
    let storage = TestStorage::new();
    for name in ["lo", "up", "wk", "u,p:q\\r", "l,o:p\\q"] {
        storage.directory(name);
    }
    fs::write(storage.path("lo/f"), "lower").expect("a file");
    storage
}

#[test]
fn layers_are_found_by_names_with_commas_colons_and_backslashes() {
    if !can_create_storage() {
        return;
    }
    let mut storage = storage_with_layers();
    let base = storage.path("");
    let base = base.to_str().expect("text");
    let in_base = |name: &str| format!("{base}{name}");
    let lower = in_base("l\\,o\\:p\\\\q");
    let is_upper = in_base("u\\,p\\:q\\\\r");
    let options = format!("lowerdir={lower}:{base}lo,upperdir={is_upper},workdir={base}wk");
    if !storage.overlay_with(&options, "ov") {
        return;
    }
    let overlay = storage.mount("overlay", "ov");
    for layer in ["lo", "u,p:q\\r", "l,o:p\\q"] {
        try_all(&[overlay.clone(), storage.mount("layer", layer)], |_, _| true);
    }
}

#[test]
fn layers_are_found_by_relative_names_beside_the_mountpoint() {
    if !can_create_storage() {
        return;
    }
    let mut storage = storage_with_layers();
    if !storage.overlay_with("lowerdir=lo,upperdir=up,workdir=wk", "ov") {
        return;
    }
    let overlay = storage.mount("overlay", "ov");
    for layer in ["lo", "up"] {
        try_all(&[overlay.clone(), storage.mount("layer", layer)], |_, _| true);
    }
}

/// Checks that no cache starts on an overlay, nor on a directory in which it is mounted.
fn refuse_unknown(storage: &TestStorage, layer: &str) {
    let targets = [
        storage.mount("overlay", "in/ov"),
        storage.serve("file", "in/ov/f"),
        storage.mount("directory in which it is mounted", "in"),
    ];
    for target in targets {
        let outcome = target.attempt();
        let layer = format!("the layer {layer} of the overlay at ");
        let is_refused = matches!(&outcome, Outcome::Refused(stderr) if stderr.contains(&layer));
        assert!(is_refused, "{}: {outcome:?}", target.name);
    }
}

#[test]
fn an_overlay_whose_layers_cannot_be_found_is_not_cached() {
    if !can_create_storage() {
        return;
    }
    let mut storage = storage_with_layers();
    fs::write(storage.path("lo/f"), [1; 4096]).unwrap();
    if !storage.overlay("lo", "up", "wk", "in/ov") {
        return;
    }
    let is_upper = storage.path("up");
    fs::rename(&is_upper, storage.path("renamed")).unwrap();
    refuse_unknown(&storage, &is_upper.display().to_string());
    // Another directory has this name now.
    fs::create_dir(&is_upper).unwrap();
    refuse_unknown(&storage, &is_upper.display().to_string());
    fs::remove_dir(&is_upper).unwrap();
    fs::rename(storage.path("renamed"), &is_upper).unwrap();
    let targets: [Target; 2] = [storage.mount("overlay", "in/ov"), storage.mount("layer", "up")];
    try_all(&targets, |_, _| true);
    storage.unmount("in/ov");
    // The relative paths of the layers do not resolve next to the mountpoint.
    fs::create_dir(storage.path("far")).unwrap();
    for name in ["lo", "up", "wk"] {
        fs::rename(storage.path(name), storage.path("far").join(name)).unwrap();
    }
    fs::create_dir(storage.path("near")).unwrap();
    let hidden = "lowerdir=near/../far/lo,upperdir=near/../far/up,workdir=near/../far/wk";
    assert!(storage.overlay_with(hidden, "in/ov"));
    fs::remove_dir(storage.path("near")).unwrap();
    refuse_unknown(&storage, "near/../far/up");
}

/// A container usually does not see the layers of its overlays: they are outside its mount
/// namespace.
#[test]
fn a_layer_that_a_container_does_not_see_is_told_at_the_start() {
    if !can_create_storage() || !has_tool("unshare") {
        return;
    }
    let mut storage = storage_with_layers();
    fs::write(storage.path("lo/f"), [1; 4096]).unwrap();
    if !storage.overlay("lo", "up", "wk", "ov") {
        return;
    }
    fs::rename(storage.path("up"), storage.path("hidden")).unwrap();
    let mut command = Command::new("unshare");
    command.args(["-m", "-p", "-f", "--kill-child", "--mount-proc"]).arg(larder().get_program());
    command.arg("serve").arg(storage.path("ov/f"));
    command.arg("--listen").arg(format!("unix:{}", storage.path("nbd.sock").display()));
    command.args(["--memory", "16MiB", "--control", "none"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    child.kill().unwrap();
    let mut stderr = String::new();
    child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
    child.wait().unwrap();
    if stderr.contains("unshare") {
        return skip(format_args!("no container can be created: {stderr}"));
    }
    let note = format!("the layer {} of the overlay at ", storage.path("up").display());
    assert!(line.contains("serving") && stderr.contains(&note), "{line}{stderr}");
}
