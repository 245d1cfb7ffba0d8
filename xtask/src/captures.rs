//! Screens of `larder top` for docs/top.md, as tmux shows them.
//!
//! The view runs in namespaces of its own, where it sees nothing but a server, a benchmark and
//! itself, so that nothing of the machine at hand gets into the page but the names of its disks.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, anyhow, bail, ensure};

use crate::run::{self, cmd};

/// Where the page keeps its screens.
const PAGE: &str = "docs/top.md";

/// Columns, lines, view.
const SCREENS: [(u32, u32, &str); 7] = [
    (80, 24, "files"),
    (80, 24, "processes"),
    (80, 24, "disks"),
    (80, 24, "caches"),
    (80, 24, "uses"),
    (200, 50, "files"),
    (200, 50, "uses"),
];
/// The view that needs the kernel's own numbers of processes.
const USES: &str = "uses";

/// What goes on while it is looked at; `$0` is the program, `$1` the folder for everything. The
/// screens that `$1/asked` names are written to `$1/screens`.
const SCENE: &str = r#"
set -eu
mount --bind "$1" /srv
mount -t tmpfs none /run
cd /srv
# What the caller has open is nobody's business here.
for fd in 3 4 5 6 7 8 9; do eval "exec $fd>&-"; done
exec >scene.out 2>&1
export TMPDIR=/srv/tmp HOME=/srv
mkdir -p tmp screens
truncate -s 256M disk.img
"$0" serve disk.img --memory 64MiB --listen unix:/run/larder-disk.sock 2>serve.log >serve.out &
"$0" trace synth mix mix.ltr --requests 2000000 --pages 32768 --rate 2000
until [ -S /run/larder-disk.sock ]; do sleep 0.1; done
export_of_it='nbd+unix:///disk?socket=/run/larder-disk.sock'
"$0" trace replay mix.ltr --to "$export_of_it" --wrap --speed 1 >replay.out 2>&1 &
"$0" bench probe /srv --size 512MiB --length 20s >probe.out 2>&1 &
sleep 5
echo 'set -g status off' >tmux.conf
while read -r columns lines view; do
  server="larder-$columns-$view"
  tmux -L "$server" -f tmux.conf new-session -d -x "$columns" -y "$lines" "'$0' top --view $view"
  sleep 6
  tmux -L "$server" capture-pane -p >"screens/$columns-$lines-$view"
  tmux -L "$server" kill-server
done <asked
"#;

/// The same for the view of uses, outside of namespaces, since events number processes as the
/// machine does. A filter leaves nothing but what is done here.
const USES_SCENE: &str = r#"
set -eu
cd "$1"
exec >uses.out 2>&1
mkdir -p screens
"$0" bench probe "$1" --size 256MiB --length 20s >probe.out 2>&1 &
echo 'set -g status off' >tmux.conf
while read -r columns lines view; do
  server="larder-$columns-$view"
  tmux -L "$server" -f tmux.conf new-session -d -x "$columns" -y "$lines" "'$0' top --view $view"
  sleep 2
  tmux -L "$server" send-keys / larder-probe Enter
  sleep 6
  tmux -L "$server" capture-pane -p >"screens/$columns-$lines-$view"
  tmux -L "$server" kill-server
done <asked
kill $!
"#;

/// `captures [BINARY]`.
pub(crate) fn command(args: &[String]) -> Result<()> {
    ensure!(run::is_root(), "captures needs root, for namespaces of its own");
    for program in ["tmux", "unshare"] {
        ensure!(run::installed(program), "captures needs {program}");
    }
    let root = run::workspace()?;
    let binary = match args {
        [] => {
            let mut cargo = run::cargo(&root);
            run::show(cargo.args(["build", "--release", "--package", "larder"]))?;
            run::target_dir()?.join("release/larder")
        }
        [binary] => std::fs::canonicalize(binary).with_context(|| format!("find {binary}"))?,
        _ => bail!("captures takes a binary or nothing"),
    };
    // A short name, and one that says nothing of the machine.
    std::fs::create_dir_all("/srv").context("make /srv")?;
    let folder = tempfile::Builder::new().prefix("larder-").tempdir_in("/srv");
    let folder = folder.context("make a folder")?;
    // The program is called larder in lists of processes, and lies where the scene can see it.
    let program = folder.path().join("larder");
    std::fs::copy(&binary, &program).context("copy the program")?;
    let asked = |of_uses: bool| -> Result<()> {
        let screens = SCREENS.into_iter().filter(|(.., view)| (*view == USES) == of_uses);
        let lines = screens.map(|(columns, lines, view)| format!("{columns} {lines} {view}\n"));
        let lines: String = lines.collect();
        std::fs::write(folder.path().join("asked"), lines).context("say which screens")
    };
    asked(false)?;
    let dir = folder.path();
    let own = "--mount --pid --fork --mount-proc --kill-child --".split(' ');
    let scene = cmd!("unshare {own...} bash -c {SCENE} /srv/larder {dir}");
    play(scene, &dir.join("scene.out"))?;
    asked(true)?;
    play(cmd!("bash -c {USES_SCENE} {program} {dir}"), &dir.join("uses.out"))?;
    write(&root, folder.path())
}

/// Plays a scene; if that fails, the end of what it said is told.
fn play(mut scene: Command, said: &Path) -> Result<()> {
    run::show(&mut scene).map_err(|error| {
        let said = std::fs::read_to_string(said).unwrap_or_default();
        anyhow!("{error}\n{}", run::tail(&said))
    })
}

/// Puts the screens into their places on the page.
fn write(root: &Path, folder: &Path) -> Result<()> {
    let path = root.join(PAGE);
    let mut page = std::fs::read_to_string(&path).with_context(|| format!("read {PAGE}"))?;
    for (columns, lines, view) in SCREENS {
        let name = format!("{columns}-{lines}-{view}");
        let screen = std::fs::read_to_string(folder.join("screens").join(&name))
            .with_context(|| format!("find the screen {name}"))?;
        ensure!(screen.contains("q quit"), "the screen {name} shows no view:\n{screen}");
        page = placed(&page, &format!("{columns}x{lines} {view}"), &screen)?;
    }
    std::fs::write(&path, page).with_context(|| format!("write {PAGE}"))
}

/// The page with one of its screens made anew.
fn placed(page: &str, name: &str, screen: &str) -> Result<String> {
    let begin = format!("<!-- screen {name} -->\n");
    let (before, rest) = page.split_once(&begin).with_context(|| format!("no place for {name}"))?;
    let (_, after) = rest.split_once("<!-- end -->").context("a screen has no end")?;
    let lines: Vec<&str> = screen.lines().map(str::trim_end).collect();
    let text = lines.join("\n");
    Ok(format!("{before}{begin}```\n{}\n```\n<!-- end -->{after}", text.trim_end()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_screen_takes_the_place_of_the_one_before() {
        let page = "a\n<!-- screen x -->\nold\n<!-- end -->\nb\n";
        let new = placed(page, "x", "one  \ntwo\n\n").expect("a place");
        assert_eq!(new, "a\n<!-- screen x -->\n```\none\ntwo\n```\n<!-- end -->\nb\n");
        assert_eq!(placed(&new, "x", "one\ntwo").expect("a place"), new);
        assert!(placed(page, "y", "").is_err());
    }
}
