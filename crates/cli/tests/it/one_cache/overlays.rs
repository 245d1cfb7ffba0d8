//! Overlays, whose layers the kernel only names as they were named when they were mounted.

use super::rig::{Outcome, Scene, View};
use super::{can_stage, larder, try_all};
use larder_testing::{has_tool, skip};
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};

#[test]
fn an_overlay_and_its_layers_have_one_cache() {
    if !can_stage() {
        return;
    }
    let mut scene = Scene::new();
    for name in ["lower/sub", "upper/sub", "work", "beside"] {
        scene.directory(name);
    }
    scene.image("lower/sub/a.img");
    scene.image("upper/sub/b.img");
    if !scene.overlay("lower", "upper", "work", "ov") {
        return;
    }
    let views = [
        scene.mount("overlay", "ov"),
        scene.mount("directory of it", "ov/sub"),
        scene.mount("lower layer", "lower"),
        scene.mount("upper layer", "upper/sub"),
        scene.serve("image of the upper layer", "upper/sub/b.img"),
        scene.serve("image in the overlay", "ov/sub/b.img"),
        scene.mount("directory beside", "beside"),
    ];
    let apart = |one: &View, other: &View| {
        let names = [one.name, other.name];
        // A file of the overlay counts as one of all its layers: the layer that holds it may
        // change.
        let upper = |name: &&str| name.contains("upper");
        names.contains(&"directory beside")
            || (names.contains(&"lower layer") && names.iter().any(upper))
    };
    try_all(&views, |one, other| !apart(one, other));
}

/// Returns a scene with directories for an overlay, with a file in the lower layer.
fn scene_of_layers() -> Scene {
    let scene = Scene::new();
    for name in ["lo", "up", "wk", "u,p:q\\r", "l,o:p\\q"] {
        scene.directory(name);
    }
    fs::write(scene.path("lo/f"), "lower").expect("a file");
    scene
}

#[test]
fn layers_are_found_by_names_with_commas_colons_and_backslashes() {
    if !can_stage() {
        return;
    }
    let mut scene = scene_of_layers();
    let at = scene.path("");
    let at = at.to_str().expect("text");
    let escaped = |name: &str| format!("{at}{name}");
    let lower = escaped("l\\,o\\:p\\\\q");
    let upper = escaped("u\\,p\\:q\\\\r");
    let options = format!("lowerdir={lower}:{at}lo,upperdir={upper},workdir={at}wk");
    if !scene.overlay_with(&options, "ov") {
        return;
    }
    let overlay = scene.mount("overlay", "ov");
    for layer in ["lo", "u,p:q\\r", "l,o:p\\q"] {
        try_all(&[overlay.clone(), scene.mount("layer", layer)], |_, _| true);
    }
}

#[test]
fn layers_are_found_by_relative_names_beside_the_mountpoint() {
    if !can_stage() {
        return;
    }
    let mut scene = scene_of_layers();
    if !scene.overlay_with("lowerdir=lo,upperdir=up,workdir=wk", "ov") {
        return;
    }
    let overlay = scene.mount("overlay", "ov");
    for layer in ["lo", "up"] {
        try_all(&[overlay.clone(), scene.mount("layer", layer)], |_, _| true);
    }
}

/// Checks that no cache is put on an overlay, nor on a directory in which it is mounted.
fn refuse_unknown(scene: &Scene, layer: &str) {
    let views = [
        scene.mount("overlay", "in/ov"),
        scene.serve("file", "in/ov/f"),
        scene.mount("directory in which it is mounted", "in"),
    ];
    for view in views {
        let outcome = view.attempt();
        let layer = format!("the layer {layer} of the overlay at ");
        let is_refused = matches!(&outcome, Outcome::Refused(said) if said.contains(&layer));
        assert!(is_refused, "{}: {outcome:?}", view.name);
    }
}

#[test]
fn an_overlay_whose_layers_cannot_be_found_is_not_cached() {
    if !can_stage() {
        return;
    }
    let mut scene = scene_of_layers();
    fs::write(scene.path("lo/f"), [1; 4096]).unwrap();
    if !scene.overlay("lo", "up", "wk", "in/ov") {
        return;
    }
    let upper = scene.path("up");
    fs::rename(&upper, scene.path("renamed")).unwrap();
    refuse_unknown(&scene, &upper.display().to_string());
    // Another directory has the name by now.
    fs::create_dir(&upper).unwrap();
    refuse_unknown(&scene, &upper.display().to_string());
    fs::remove_dir(&upper).unwrap();
    fs::rename(scene.path("renamed"), &upper).unwrap();
    let views: [View; 2] = [scene.mount("overlay", "in/ov"), scene.mount("layer", "up")];
    try_all(&views, |_, _| true);
    scene.unmount("in/ov");
    // Relative names lead to nothing beside the mountpoint.
    fs::create_dir(scene.path("far")).unwrap();
    for name in ["lo", "up", "wk"] {
        fs::rename(scene.path(name), scene.path("far").join(name)).unwrap();
    }
    fs::create_dir(scene.path("near")).unwrap();
    let hidden = "lowerdir=near/../far/lo,upperdir=near/../far/up,workdir=near/../far/wk";
    assert!(scene.overlay_with(hidden, "in/ov"));
    fs::remove_dir(scene.path("near")).unwrap();
    refuse_unknown(&scene, "near/../far/up");
}

/// The layers of overlays that a container sees usually lie outside of its mount namespace.
#[test]
fn a_layer_that_a_container_does_not_see_is_told_at_the_start() {
    if !can_stage() || !has_tool("unshare") {
        return;
    }
    let mut scene = scene_of_layers();
    fs::write(scene.path("lo/f"), [1; 4096]).unwrap();
    if !scene.overlay("lo", "up", "wk", "ov") {
        return;
    }
    fs::rename(scene.path("up"), scene.path("hidden")).unwrap();
    let mut command = Command::new("unshare");
    command.args(["-m", "-p", "-f", "--kill-child", "--mount-proc"]).arg(larder().get_program());
    command.arg("serve").arg(scene.path("ov/f"));
    command.arg("--listen").arg(format!("unix:{}", scene.path("nbd.sock").display()));
    command.args(["--memory", "16MiB", "--control", "none"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    child.kill().unwrap();
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    child.wait().unwrap();
    if said.contains("unshare") {
        return skip(format_args!("no container can be created: {said}"));
    }
    let note = format!("the layer {} of the overlay at ", scene.path("up").display());
    assert!(line.contains("serving") && said.contains(&note), "{line}{said}");
}
