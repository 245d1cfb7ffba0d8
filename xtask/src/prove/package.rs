//! The packages, as a user installs them: the Debian package under systemd in the virtual machine,
//! from installation to purge, and the files of the container image in a chroot. The script
//! `xtask/guest/package` runs the steps in the guest and prints the claims.
//!
//! A disk of the guest is an export of a server outside.

use std::collections::BTreeMap;

use super::guest::GuestScript;
use super::prelude::*;
use crate::daemon::Daemon;
use crate::package;
use rustix::process::Signal;

/// The size of the disk of the guest.
const DISK_MIB: u64 = 128;
/// Paths in the root directory of the image.
const PROGRAM: &str = "/usr/bin/larder";
const SOCKET: &str = "run/larder/nbd.sock";
const IMAGE: &str = "var/lib/larder/data.img";

pub(super) fn run(env: &Env, claims: &mut Claims) -> Result<()> {
    require(run::unmet_requirement(&["nbdcopy", "nbdinfo", "jq", "mkfs.ext4", "e2fsck"]))?;
    in_the_guest(env, claims)?;
    in_a_chroot(env, claims)
}

/// Runs the steps of the script in the guest.
fn in_the_guest(env: &Env, claims: &mut Claims) -> Result<()> {
    let subject = "the Debian package under systemd";
    if !Path::new("/lib/systemd/systemd-udevd").exists() {
        claims.skip(subject, "systemd and udev are not installed");
        return Ok(());
    }
    let out = env.file("guest");
    std::fs::create_dir(&out).context("make a directory")?;
    let deb = package::deb(&env.larder, &out)?;
    std::fs::rename(&deb, out.join("larder.deb")).context("rename the package")?;
    let image = image::create_sparse(&env.file("disk.img"), DISK_MIB * MIB)?;
    let volume = format!("disk={}", image.display());
    let server = env.larder(&[&volume], "--memory 64MiB").start(env.dir())?;
    let script = GuestScript {
        name: "package",
        subject,
        ends: "the guest boots systemd and runs all steps",
        options: ["--systemd", "--disk", &server.uri_of("disk")].map(Into::into).to_vec(),
        out: &out,
        limit_s: 1200,
    };
    if !script.run(env, claims)? {
        return Ok(());
    }
    claims.check("the image of the virtual disk, after the server has stopped", || {
        server.stop_clean()?;
        stdout_of(cmd!("e2fsck -fn {image}"))?;
        Ok("e2fsck -fn clean".to_owned())
    });
    Ok(())
}

/// The environment variables and the user of packaging/Containerfile.
struct Recipe {
    variables: BTreeMap<String, String>,
    user: String,
}

impl Recipe {
    /// Reads the recipe of an unpacked image, and unpacks the files that it adds into `root`.
    fn unpack(dir: &Path, root: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(dir.join("Containerfile")).context("read the recipe")?;
        let values = |word: &'static str| text.lines().filter_map(move |it| it.strip_prefix(word));
        ensure!(values("FROM ").eq(["scratch"]), "the image has another base");
        for added in values("ADD ") {
            let archive = added.strip_suffix(" /").context("ADD has another target")?;
            let archive = dir.join(archive);
            stdout_of(cmd!("tar -C {root} --numeric-owner -xpf {archive}"))?;
        }
        ensure!(values("COPY ").next().is_none(), "the recipe copies other files");
        let variables = values("ENV ").flat_map(str::split_whitespace);
        let variables = variables.filter_map(|it| it.split_once('='));
        let variables = variables.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let user = values("USER ").next().context("the recipe has no user")?.to_owned();
        Ok(Self { variables: variables.collect(), user })
    }

    /// Returns the command that runs the program in `root` as the recipe says, with /proc, which
    /// container engines mount.
    fn command(&self, root: &Path, line: &str) -> Command {
        let script = "mount -t proc proc \"$1/proc\" && exec chroot \"$0\" \"$@\"";
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation", "private", "sh", "-c", script]);
        command.arg(format!("--userspec={}", self.user)).arg(root).arg(PROGRAM);
        command.args(line.split(' ')).env_clear().envs(&self.variables);
        command.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
        command
    }
}

/// Runs the program in a directory that has only the files of the image.
fn in_a_chroot(env: &Env, claims: &mut Claims) -> Result<()> {
    let binary = if package::is_static(&env.larder)? {
        env.larder.clone()
    } else {
        if let Err(error) = package::add_static_target() {
            claims.skip("image: the static program", format!("{error:#}"));
            return Ok(());
        }
        package::build_static()?
    };
    let [_, image] = package::static_archives(&binary, env.dir())?;
    let (dir, root) = (env.file("image"), env.file("root"));
    std::fs::create_dir(&dir).context("make a directory")?;
    std::fs::create_dir(&root).context("make a directory")?;
    stdout_of(cmd!("tar -C {dir} --strip-components=1 -xf {image}"))?;
    let recipe = Recipe::unpack(&dir, &root)?;
    let files = stdout_of(cmd!("find {root} -type f"))?;
    claims.check("image: larder version, without any other file of a system", || {
        let version = stdout_of(recipe.command(&root, "version"))?;
        Ok(format!("{}, {} files", version.trim(), files.lines().count()))
    });
    claims.check("image: larder demo", || {
        let demo = stdout_of(recipe.command(&root, "demo --for 1s --directory /tmp"))?;
        let gain = demo.lines().rfind(|line| line.starts_with("gain")).context("no gain")?;
        Ok(gain.split_whitespace().collect::<Vec<_>>().join(" "))
    });
    claims.check("image: larder serve, and a client outside", || serve(env, &recipe, &root));
    Ok(())
}

/// Serves an image in `root`, and reads and writes it from outside.
fn serve(env: &Env, recipe: &Recipe, root: &Path) -> Result<String> {
    let store = image::create_filled(&root.join(IMAGE), 16, env.options.seed)?;
    let user = &recipe.user;
    stdout_of(cmd!("chown {user} {store}"))?;
    let line = format!("serve data=/{IMAGE} --memory 16MiB --listen unix:/{SOCKET}");
    let mut server = Daemon::start("larder", env.dir(), |_| recipe.command(root, &line))?;
    let socket = root.join(SOCKET);
    server.wait_until(|_| std::os::unix::net::UnixStream::connect(&socket).is_ok())?;
    let uri = format!("nbd+unix:///data?socket={}", socket.display());
    let (copy, new) = (env.file("copy"), env.file("new"));
    stdout_of(cmd!(60, "nbdcopy {uri} {copy}"))?;
    image::compare(&copy, &store)?;
    image::create_filled(&new, 16, env.options.seed + 1)?;
    stdout_of(cmd!(60, "nbdcopy {new} {uri}"))?;
    stdout_of(recipe.command(root, "ctl volumes"))?;
    server.end_with_success(Signal::TERM)?;
    image::compare(&new, &store)?;
    Ok(format!("16 MiB read and written as user {user}"))
}
