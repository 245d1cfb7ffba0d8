//! Another user exchanges their directories for symbolic links while root runs the script: before
//! each program that reads or changes files by name, for good or until the next one.

use super::script::Rig;
use larder_schema::balance::MoveLink;
use larder_testing::budget;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};

/// The user who owns the directories.
const USER: u32 = 1234;
/// Lines of the script, run by bash before each command of the real one. All are what the owner of
/// the directories may do.
const TRAP: &str = r#"
set -T
attack() {
  if [ -n "$ATTACK_NEW" ] && [ -d "$ATTACK_NEW" ] && [ ! -L "$ATTACK_NEW" ]; then
    mv -T "$ATTACK_NEW" "$ATTACK_NEW.mine" && ln -s "$ATTACK_VICTIM" "$ATTACK_NEW"
    return
  fi
  local all word=${BASH_COMMAND%% *}
  case $word in
    cd | cp | ln | mkdir | mv | rm | rmdir | rsync | tar) ;;
    *) return ;;
  esac
  echo >> "$ATTACK_COUNT"
  mapfile all < "$ATTACK_COUNT"
  if [ "${#all[@]}" = "$ATTACK_AT" ]; then
    mv -T "$ATTACK_PLACE" "$ATTACK_PLACE.mine" && ln -s "$ATTACK_VICTIM" "$ATTACK_PLACE"
  elif [ -n "$ATTACK_IS_BRIEF" ] && [ -L "$ATTACK_PLACE" ] && [ -e "$ATTACK_PLACE.mine" ]; then
    rm "$ATTACK_PLACE" && mv -T "$ATTACK_PLACE.mine" "$ATTACK_PLACE"
  fi
}
trap attack DEBUG
"#;

#[derive(Clone, Copy, Debug)]
struct Attack {
    is_directory: bool,
    /// Actions of the script before the attacked one, and the attacked one; "write" changes the
    /// moved file.
    actions: &'static [&'static str],
    /// True to exchange the directory above the new path, not that above the old one.
    is_at_target: bool,
    is_brief: bool,
}

/// Makes a file or a directory with a file.
fn item(path: &Path, is_directory: bool, content: &str, owner: u32) {
    if is_directory {
        fs::create_dir(path).unwrap();
    }
    let file = if is_directory { path.join("file") } else { path.to_owned() };
    fs::write(&file, content).unwrap();
    let mode = if owner == 0 { 0o600 } else { 0o644 };
    fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
    for path in [&file, path] {
        chown(path, Some(owner), Some(owner)).unwrap();
    }
}

/// Returns the files below a directory, without following links.
fn files(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap());
    let below = entries.flat_map(|entry| match entry.file_type().unwrap() {
        kind if kind.is_dir() => files(&entry.path()),
        kind if kind.is_file() => vec![entry.path()],
        _ => Vec::new(),
    });
    below.collect()
}

/// Attacks before the program with a number; returns false if the script starts fewer.
fn is_attacked(attack: Attack, at: usize) -> Option<bool> {
    let rig = Rig::new()?;
    fs::create_dir(rig.path("victim")).unwrap();
    for name in ["victim/item", "victim/item.larder-before"] {
        item(&rig.path(name), attack.is_directory, "secret", 0);
    }
    for name in ["data/user", "data/user/place"] {
        fs::create_dir(rig.path(name)).unwrap();
        chown(rig.path(name), Some(USER), Some(USER)).unwrap();
    }
    item(&rig.path("data/user/place/item"), attack.is_directory, "mine", USER);
    let planned = rig.file_move("data/user/place/item", MoveLink::Symlink);
    rig.write(vec![planned.clone()]);
    let (attacked, before) = attack.actions.split_last().unwrap();
    for action in before {
        if *action == "write" {
            let item = rig.path("data/user/place/item");
            let file = if attack.is_directory { item.join("file") } else { item };
            fs::write(file, "mine, changed").unwrap();
        } else {
            rig.succeed(action);
        }
    }
    let old = rig.path("data/user/place");
    let new = Path::new(&planned.to).parent().unwrap().to_owned();
    let place = if attack.is_at_target { new } else { old };
    let victim = rig.snapshot("victim");
    fs::write(rig.path("count"), "").unwrap();
    fs::write(rig.path("trap.sh"), TRAP).unwrap();
    let mut command = rig.command(attacked);
    command.env("BASH_ENV", rig.path("trap.sh")).env("ATTACK_AT", at.to_string());
    command.env("ATTACK_COUNT", rig.path("count")).env("ATTACK_VICTIM", rig.path("victim"));
    command.env("ATTACK_PLACE", &place);
    command.env("ATTACK_IS_BRIEF", if attack.is_brief { "1" } else { "" }).env("ATTACK_NEW", "");
    let output = command.output().unwrap();
    let shown = format!("{attack:?} before program {at}: {output:?}");
    assert_eq!(rig.snapshot("victim"), victim, "{shown}");
    let moved = [rig.path("data"), rig.path("target")];
    for file in moved.iter().flat_map(|directory| files(directory)) {
        let found = fs::symlink_metadata(&file).unwrap();
        let is_private = found.uid() == 0 && found.mode() & 0o7777 == 0o600;
        let is_secret = fs::read_to_string(&file).unwrap() == "secret";
        assert!(!is_secret || is_private, "{}: {shown}", file.display());
    }
    let mine = moved.iter().flat_map(|directory| files(directory));
    let mine = mine.filter(|file| fs::read_to_string(file).unwrap().starts_with("mine"));
    assert!(mine.count() > 0, "the data is lost: {shown}");
    Some(fs::read_to_string(rig.path("count")).unwrap().lines().count() >= at)
}

#[test]
fn a_user_who_exchanges_directories_gains_nothing() {
    let actions: [(&[&str], bool); 6] = [
        (&["move"], false),
        (&["move", "undo"], false),
        (&["move", "undo"], true),
        (&["move", "finish"], true),
        (&["move", "write", "undo"], false),
        (&["move", "write", "undo"], true),
    ];
    let steps = budget(5, 1);
    for (number, (actions, is_at_target)) in (1..).zip(actions) {
        for (is_directory, is_brief) in [(false, true), (true, false)] {
            let attack = Attack { is_directory, actions, is_at_target, is_brief };
            let programs = (number.min(steps)..).step_by(steps);
            let attacked = programs.map_while(|at| is_attacked(attack, at).filter(|it| *it));
            println!("{attack:?}: {} programs", attacked.count());
        }
    }
}

#[test]
fn a_link_in_place_of_the_private_directory_is_not_followed() {
    let Some(rig) = Rig::new() else { return };
    for name in ["above", "above/victim", "data/user"] {
        fs::create_dir(rig.path(name)).unwrap();
    }
    fs::set_permissions(rig.path("above/victim"), fs::Permissions::from_mode(0o700)).unwrap();
    fs::write(rig.path("above/item"), "secret").unwrap();
    chown(rig.path("data/user"), Some(USER), Some(USER)).unwrap();
    item(&rig.path("data/user/item"), false, "mine", USER);
    rig.write(vec![rig.file_move("data/user/item", MoveLink::Symlink)]);
    rig.succeed("move");
    fs::write(rig.path("data/user/item"), "mine, changed").unwrap();
    fs::write(rig.path("count"), "").unwrap();
    fs::write(rig.path("trap.sh"), TRAP).unwrap();
    let mut command = rig.command("undo");
    command.env("BASH_ENV", rig.path("trap.sh")).env("ATTACK_AT", "0");
    command.env("ATTACK_COUNT", rig.path("count")).env("ATTACK_PLACE", "/nonexistent");
    command.env("ATTACK_IS_BRIEF", "").env("ATTACK_VICTIM", rig.path("above/victim"));
    command.env("ATTACK_NEW", rig.path("data/user/item.larder-new"));
    let output = command.output().unwrap();
    assert!(rig.path("data/user/item.larder-new").is_symlink(), "it was not attacked: {output:?}");
    assert!(!output.status.success(), "{output:?}");
    assert_eq!(fs::read_dir(rig.path("above/victim")).unwrap().count(), 0);
    assert_eq!(fs::read_to_string(rig.path("above/item")).unwrap(), "secret", "{output:?}");
    assert_eq!(fs::read_to_string(rig.path("data/user/item")).unwrap(), "mine, changed");
}

#[test]
fn a_directory_of_another_user_in_place_of_the_original_is_kept() {
    let Some(rig) = Rig::new() else { return };
    fs::create_dir(rig.path("data/user")).unwrap();
    item(&rig.path("data/user/item"), true, "mine", USER);
    rig.write(vec![rig.file_move("data/user/item", MoveLink::Symlink)]);
    rig.succeed("move");
    let before = rig.path("data/user/item.larder-before");
    fs::rename(&before, rig.path("data/user/mine")).unwrap();
    item(&before, true, "of another", 4321);
    let message = rig.refuse("finish");
    assert!(message.contains("is not the original, and was kept"), "{message}");
    assert_eq!(fs::read_to_string(before.join("file")).unwrap(), "of another");
}

#[test]
fn a_link_in_the_target_is_not_followed() {
    let Some(rig) = Rig::new() else { return };
    fs::create_dir(rig.path("victim")).unwrap();
    fs::create_dir(rig.path("data/user")).unwrap();
    fs::write(rig.path("data/user/item"), "mine").unwrap();
    let planned = rig.file_move("data/user/item", MoveLink::Symlink);
    rig.write(vec![planned.clone()]);
    let above = Path::new(&planned.to).parent().unwrap();
    fs::create_dir_all(above.parent().unwrap()).unwrap();
    symlink(rig.path("victim"), above).unwrap();
    rig.refuse("move");
    assert_eq!(fs::read_dir(rig.path("victim")).unwrap().count(), 0);
    assert!(!rig.path("data/user/item").is_symlink());
}

#[test]
fn a_target_that_others_can_replace_is_refused() {
    let Some(rig) = Rig::new() else { return };
    fs::write(rig.path("data/item"), "mine").unwrap();
    rig.write(vec![rig.file_move("data/item", MoveLink::Symlink)]);
    let refused = |what: &str| {
        let message = rig.refuse("move");
        assert!(message.contains("other users can replace"), "{what}: {message}");
    };
    chown(rig.path("target"), Some(USER), None).unwrap();
    refused("the target of a user");
    chown(rig.path("target"), Some(0), None).unwrap();
    fs::set_permissions(rig.path("target"), fs::Permissions::from_mode(0o775)).unwrap();
    refused("the target of a group");
    fs::set_permissions(rig.path("target"), fs::Permissions::from_mode(0o755)).unwrap();
    fs::create_dir(rig.path("state")).unwrap();
    chown(rig.path("state"), Some(USER), None).unwrap();
    refused("the state");
    chown(rig.path("state"), Some(0), None).unwrap();
    chown(rig.path("data"), Some(USER), None).unwrap();
    rig.write(vec![rig.file_move("data/item", MoveLink::Bind)]);
    refused("the directory of the bind mount");
    assert_eq!(fs::read_dir(rig.path("target")).unwrap().count(), 0);
}
