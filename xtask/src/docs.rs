//! Documents printed by the product itself, so that they cannot drift from the code.

mod examples;

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail, ensure};

use crate::run::cmd;
use crate::{TaskStatus, nextest, run, tools};

/// Topics of `larder docs`, and the files for their output.
const DOCUMENTS: &[(&str, &str)] = &[
    ("metrics", "docs/METRICS.md"),
    ("tunables", "docs/TUNABLES.md"),
    ("saw-tooth", "docs/img/saw-tooth.svg"),
    ("leak", "docs/img/leak.svg"),
    ("curve", "docs/img/curve.svg"),
];

/// `docs [--check]`, `docs examples [--check] [--binary FILE] [PAGE]`, or `docs site`.
pub(crate) fn command(args: &[String]) -> Result<TaskStatus> {
    match args {
        [topic, args @ ..] if topic == "examples" => return examples_command(args),
        [topic] if topic == "site" => return site().map(|()| TaskStatus::Passed),
        _ => {}
    }
    let check = args == ["--check"];
    ensure!(check || args.is_empty(), "docs: the arguments are --check, examples, or site");
    let (root, larder) = (run::workspace()?, nextest::binary()?);
    let mut same = true;
    for (topic, path) in DOCUMENTS {
        let fresh = run::stdout_of(cmd!("{larder} docs {topic}"))?;
        if check {
            same &= matches(&root, path, &fresh)?;
        } else {
            std::fs::write(root.join(path), fresh).with_context(|| format!("write {path}"))?;
            println!("wrote {path}");
        }
    }
    if !check {
        run::show(nextest::command(EXAMPLES)?.env("LARDER_WRITE_DOCS", "1"))?;
    }
    same &= examples::run(&larder, "", !check)?;
    Ok(status(same))
}

fn status(passed: bool) -> TaskStatus {
    if passed { TaskStatus::Passed } else { TaskStatus::Failed }
}

/// Runs the examples of some pages, with a binary that is built already if one is given.
fn examples_command(args: &[String]) -> Result<TaskStatus> {
    let (mut write, mut binary, mut filter) = (true, None, "");
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--check" => write = false,
            "--binary" => binary = Some(args.next().context("--binary needs a file")?),
            option if option.starts_with('-') => {
                bail!("docs examples: the arguments are [--check] [--binary FILE] [PAGE]")
            }
            page => filter = page,
        }
    }
    let larder = binary.map_or_else(nextest::binary, |file| existing(file))?;
    Ok(status(examples::run(&larder, filter, write)?))
}

/// The version of mdbook to install.
const MDBOOK: &str = "0.4.52";

/// Files and directories of the site: the documents, and what they link to.
const SITE: [&str; 8] = [
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "LICENSE-APACHE",
    "LICENSE-MIT",
    "SECURITY.md",
    "bench-runs",
    "docs",
];

/// Builds the README and the pages of docs/ as a site in target/site. It has the directories of the
/// repository, so that all links between documents hold.
fn site() -> Result<()> {
    let root = run::workspace()?;
    // The site needs no server, and no watching of files.
    let options = ["--no-default-features", "--features", "search"];
    let mdbook = tools::install("mdbook", MDBOOK, &options)?;
    let source = root.join("target/site-source");
    run::stdout_of(cmd!("rm -rf {source}"))?;
    let files = run::stdout_of(cmd!("git ls-files {SITE...}").current_dir(&root))?;
    for file in files.lines() {
        let copy = source.join(indexed(file));
        let directory = copy.parent().context("a file in a directory")?;
        std::fs::create_dir_all(directory).context("make the directories of the site")?;
        let text = std::fs::read_to_string(root.join(file));
        let text = text.with_context(|| format!("read {file}"))?;
        let is_page = Path::new(file).extension().is_some_and(|it| it == "md");
        let text = if is_page { indexed(&text) } else { text };
        std::fs::write(&copy, text).with_context(|| format!("write {}", copy.display()))?;
    }
    let pages = std::fs::read_to_string(root.join("docs/SUMMARY.md")).context("read SUMMARY.md")?;
    std::fs::write(source.join("SUMMARY.md"), summary(&pages)).context("write SUMMARY.md")?;
    let mut build = std::process::Command::new(mdbook);
    run::show(build.arg("build").env("MDBOOK_BOOK__SRC", "target/site-source").current_dir(root))?;
    println!("wrote target/site/index.html");
    Ok(())
}

/// Returns a path or text with the name that mdbook gives to the page of a directory.
fn indexed(text: &str) -> String {
    let text = text.replace("README.md)", "index.md)").replace("README.md#", "index.md#");
    text.strip_suffix("README.md").map(|path| format!("{path}index.md")).unwrap_or(text)
}

/// Returns the table of contents of the site for that of docs/.
fn summary(pages: &str) -> String {
    let pages = indexed(pages).replace("](", "](docs/");
    pages.replacen("# Summary\n", "# Summary\n\n[Larder](index.md)\n", 1)
        + "- [Recorded runs](bench-runs/index.md)\n\
           - [Contribute](CONTRIBUTING.md)\n\
           - [Report a vulnerability](SECURITY.md)\n\
           - [Changes](CHANGELOG.md)\n"
}

fn existing(file: &str) -> Result<PathBuf> {
    std::fs::canonicalize(file).with_context(|| format!("find {file}"))
}

/// `captures [BINARY]`: writes the screens of docs/top.md with a script.
pub(crate) fn captures(args: &[String]) -> Result<()> {
    let root = run::workspace()?;
    let binary = match args {
        [] => nextest::binary()?,
        [binary] => existing(binary)?,
        _ => bail!("captures: the only argument is a binary"),
    };
    let reason = run::unmet_requirement(&["tmux", "unshare"]);
    ensure!(reason.is_none(), "captures: {}", reason.unwrap_or_default());
    run::show(cmd!("bash xtask/captures.sh {binary}").current_dir(&root))
}

/// The tests that check the examples, and write them if `LARDER_WRITE_DOCS` is set.
const EXAMPLES: &str = "package(larder-report) and test(documents)";

/// Returns true if a file contains this text; prints the difference if not.
fn matches(root: &Path, path: &str, fresh: &str) -> Result<bool> {
    if std::fs::read_to_string(root.join(path)).is_ok_and(|old| old == fresh) {
        println!("{path}: up to date");
        return Ok(true);
    }
    println!("{path}: differs from what the code prints; run `cargo xtask docs`");
    let (shell, old) = (run::shell(), root.join(path));
    let arguments = ["--new-file", "--unified=1", "--label", path, "--label", "printed"];
    let diff = xshell::cmd!(shell, "diff {arguments...} {old} -");
    // diff reports differences by its exit code.
    diff.quiet().stdin(fresh).ignore_status().run().context("run diff")?;
    Ok(false)
}
