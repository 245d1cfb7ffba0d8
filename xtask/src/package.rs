//! `package`: the Debian package, the archive with the static binary, and the files of the
//! container image.

mod licenses;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};

pub(crate) use licenses::linked_packages;

use crate::run::{self, cmd};
use crate::{packages, tools};

/// The version of cargo-deb to install.
const CARGO_DEB: &str = "3.6.2";
/// The target of the static binary.
const STATIC_TARGET: &str = "x86_64-unknown-linux-musl";
/// Arguments of the program, and the file with their output.
const GENERATED: &[(&str, &str)] = &[
    ("man", "larder.1"),
    ("completions bash", "larder.bash"),
    ("completions zsh", "_larder"),
    ("completions fish", "larder.fish"),
];
/// Files of the repository in every package.
const COPIED: &[&str] = &["README.md", "CHANGELOG.md", "LICENSE-MIT", "LICENSE-APACHE"];

/// `package [deb|static] [--binary FILE]`.
pub(crate) fn command(args: &[String]) -> Result<()> {
    let (mut names, mut binary) = (Vec::new(), None);
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "deb" | "static" => names.push(arg.as_str()),
            "--binary" => {
                let file = args.next().context("--binary needs a file")?;
                binary = Some(fs::canonicalize(file).with_context(|| format!("find {file}"))?);
            }
            other => bail!("package: no argument '{other}'; see `cargo xtask help`"),
        }
    }
    ensure!(binary.is_none() || names.len() == 1, "package: --binary needs deb or static");
    let out = run::workspace()?.join("target/packages");
    fs::create_dir_all(&out).with_context(|| format!("make {}", out.display()))?;
    let is_wanted = |name| names.is_empty() || names.contains(&name);
    let mut made = Vec::new();
    if is_wanted("deb") {
        made.push(deb(&binary.clone().map_or_else(build, Ok)?, &out)?);
    }
    if is_wanted("static") {
        made.extend(static_archives(&binary.map_or_else(build_static, Ok)?, &out)?);
    }
    for file in made {
        println!("wrote {}", file.display());
    }
    Ok(())
}

/// Builds the program as in packages.
pub(crate) fn build() -> Result<PathBuf> {
    let options = ["build", "--profile", "dist", "--features", "full", "--package", "larder"];
    run::build_executable(&run::workspace()?, &options, "larder")
}

/// Installs the target of the static program and a C compiler for it, if they are missing.
pub(crate) fn add_static_target() -> Result<()> {
    let installed = run::stdout_of(cmd!("rustup target list --installed"))?;
    if !installed.lines().any(|line| line == STATIC_TARGET) {
        run::show(&mut cmd!("rustup target add {STATIC_TARGET}"))?;
    }
    packages::install_these(&[("musl-gcc", "musl-tools")])
}

/// Builds the static program.
pub(crate) fn build_static() -> Result<PathBuf> {
    add_static_target()?;
    #[rustfmt::skip]
    let options = [
        "build", "--profile", "dist", "--features", "full", "--package", "larder", "--target",
        STATIC_TARGET,
    ];
    run::build_executable(&run::workspace()?, &options, "larder")
}

/// Returns the version of the program.
pub(crate) fn version(root: &Path) -> Result<String> {
    let metadata = run::metadata(root)?;
    let packages = metadata["packages"].as_array().context("cargo lists no packages")?;
    let larder = packages.iter().find(|package| package["name"] == "larder");
    let version = larder.and_then(|package| package["version"].as_str());
    version.map(str::to_owned).context("cargo lists no version of larder")
}

/// Writes the files that packages contain into an empty directory.
fn stage(root: &Path, binary: &Path, dir: &Path) -> Result<()> {
    if dir.exists() {
        fs::remove_dir_all(dir).with_context(|| format!("empty {}", dir.display()))?;
    }
    fs::create_dir_all(dir).with_context(|| format!("make {}", dir.display()))?;
    let program = dir.join("larder");
    run::stdout_of(cmd!("strip --strip-unneeded -o {program} {binary}"))?;
    for (arguments, name) in GENERATED {
        let text = run::stdout_of(Command::new(binary).args(arguments.split(' ')))?;
        write(&dir.join(name), &text)?;
    }
    for name in COPIED {
        fs::copy(root.join(name), dir.join(name)).with_context(|| format!("copy {name}"))?;
    }
    write(&dir.join("THIRD-PARTY-LICENSES"), &licenses::text(root)?)
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| format!("write {}", path.display()))
}

/// Makes the Debian package of a binary in the directory `out`.
pub(crate) fn deb(binary: &Path, out: &Path) -> Result<PathBuf> {
    let root = run::workspace()?;
    let cargo_deb = tools::install("cargo-deb", CARGO_DEB, &[])?;
    // The manifest of the program names the files in this directory.
    stage(&root, binary, &root.join("target/package"))?;
    let manifest = root.join("crates/cli/Cargo.toml");
    let mut command = cmd!("{cargo_deb} --no-build --no-strip --manifest-path {manifest}");
    command.arg("--output").arg(out).env("SOURCE_DATE_EPOCH", commit_time(&root)?);
    let printed = run::stdout_of(command.current_dir(&root))?;
    let path = printed.lines().last().map(|line| PathBuf::from(line.trim()));
    path.filter(|path| path.is_file()).context("cargo-deb names no package")
}

/// Returns the time of the last commit, in seconds since 1970.
fn commit_time(root: &Path) -> Result<String> {
    let time = run::stdout_of(cmd!("git log -1 --format=%ct").current_dir(root))?;
    Ok(time.trim().to_owned())
}

/// Makes the archive with a static binary, and the files of the container image.
pub(crate) fn static_archives(binary: &Path, out: &Path) -> Result<[PathBuf; 2]> {
    let root = run::workspace()?;
    ensure!(is_static(binary)?, "{} is not static", binary.display());
    let name = format!("larder-{}-x86_64-linux-static", version(&root)?);
    let dir = root.join("target").join(&name);
    stage(&root, binary, &dir)?;
    let packaging = dir.join("packaging");
    run::stdout_of(cmd!("cp -r packaging {packaging}").current_dir(&root))?;
    let archive = out.join(format!("{name}.tar.gz"));
    pack(&root, &root.join("target"), &name, &archive)?;
    let image = format!("larder-{}-image", version(&root)?);
    let image_archive = out.join(format!("{image}.tar.gz"));
    make_image_files(&root, &dir, &root.join("target").join(&image))?;
    pack(&root, &root.join("target"), &image, &image_archive)?;
    Ok([archive, image_archive])
}

/// Returns true if a program needs no loader and no libraries.
pub(crate) fn is_static(binary: &Path) -> Result<bool> {
    Ok(!run::stdout_of(cmd!("readelf --program-headers --wide {binary}"))?.contains(" INTERP "))
}

/// Writes `Containerfile`, and `rootfs.tar` with the files that it adds.
fn make_image_files(root: &Path, staged: &Path, dir: &Path) -> Result<()> {
    let files = dir.join("rootfs");
    run::stdout_of(cmd!("rm -rf {dir}"))?;
    run::stdout_of(cmd!("mkdir -p {files}/usr/bin {files}/usr/share/doc/larder"))?;
    run::stdout_of(cmd!("mkdir -p {files}/proc {files}/dev {files}/run/larder"))?;
    run::stdout_of(cmd!("mkdir -p {files}/var/lib/larder {files}/tmp"))?;
    run::stdout_of(cmd!("chmod 1777 {files}/tmp"))?;
    run::stdout_of(cmd!("chmod 700 {files}/run/larder {files}/var/lib/larder"))?;
    run::stdout_of(cmd!("cp {staged}/larder {files}/usr/bin"))?;
    for name in ["LICENSE-MIT", "LICENSE-APACHE", "THIRD-PARTY-LICENSES"] {
        run::stdout_of(cmd!("cp {staged}/{name} {files}/usr/share/doc/larder"))?;
    }
    let (tar, time) = (dir.join("rootfs.tar"), commit_time(root)?);
    // The directories that the server writes to belong to its user; see the Containerfile.
    let user = ["--owner=65534", "--group=65534"];
    let writable = ["run/larder", "var/lib/larder"];
    let order = ["--sort=name", "--numeric-owner"];
    let skipped = writable.map(|directory| format!("--exclude={directory}"));
    let root_user = ["--owner=0", "--group=0"];
    run::stdout_of(cmd!(
        "tar -C {files} {order...} --mtime=@{time} {root_user...} {skipped...} -cf {tar} ."
    ))?;
    run::stdout_of(cmd!(
        "tar -C {files} {order...} --mtime=@{time} {user...} -rf {tar} {writable...}"
    ))?;
    run::stdout_of(cmd!("rm -rf {files}"))?;
    let recipe = root.join("packaging/Containerfile");
    fs::copy(recipe, dir.join("Containerfile")).context("copy the Containerfile")?;
    Ok(())
}

/// Packs a directory; the archive depends on the contents and the last commit alone.
fn pack(root: &Path, parent: &Path, name: &str, archive: &Path) -> Result<()> {
    let time = commit_time(root)?;
    let order = ["--sort=name", "--owner=0", "--group=0", "--numeric-owner"];
    let mut tar =
        cmd!("tar -C {parent} {order...} --mtime=@{time} -I 'gzip -n' -cf {archive} {name}");
    run::stdout_of(&mut tar).map(drop)
}
