//! TLS and upstream volumes with real clients: copies through TLS, through a second Larder, and
//! through one whose upstream is killed during the copy. A part of the proof `clients`.

use super::prelude::*;
use crate::daemon::Daemon;

/// Creates a certificate authority, a server certificate and a client certificate in the current
/// directory.
pub(super) const CERTIFICATES: &str = "set -e
req='openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 30'
$req -x509 -keyout ca-key.pem -out ca-cert.pem -subj /CN=authority \\
  -addext basicConstraints=critical,CA:TRUE -addext keyUsage=critical,keyCertSign
for who in server client; do
  $req -x509 -CA ca-cert.pem -CAkey ca-key.pem -keyout $who-key.pem -out $who-cert.pem \\
    -subj /CN=localhost -addext subjectAltName=DNS:localhost \\
    -addext basicConstraints=critical,CA:FALSE -addext extendedKeyUsage=${who}Auth
done
rm ca-key.pem";

pub(super) fn run(env: &Env, claims: &mut Claims) -> Result<()> {
    let mib = env.choose(512, 48);
    let source = image::create_filled(&env.file("upstream-source.img"), mib, env.options.seed)?;
    let target = env.file("upstream-target.img");
    for (statement, work) in [
        ("nbdcopy through TLS, there and back", tls as fn(&Env, &Path, &Path, u64) -> _),
        ("nbdcopy through a second Larder, there and back", second),
        ("the upstream killed with SIGKILL in the middle of a copy", killed),
    ] {
        claims.check(statement, || work(env, &source, &target, mib));
    }
    stdout_of(cmd!("rm {source} {target}")).map(drop)
}

/// Copies to the export, and back into another image.
fn copy_both_ways(env: &Env, source: &Path, uri: &str) -> Result<()> {
    let back = env.file("upstream-back.img");
    stdout_of(cmd!(300, "nbdcopy --flush {source} {uri}"))?;
    stdout_of(cmd!(300, "nbdcopy --flush {uri} {back}"))?;
    image::compare(source, &back)?;
    std::fs::remove_file(&back).context("remove the copy")
}

fn tls(env: &Env, source: &Path, target: &Path, mib: u64) -> Result<String> {
    let dir = env.file("certificates");
    std::fs::create_dir(&dir).context("make a directory for certificates")?;
    stdout_of(cmd!("sh -c {CERTIFICATES}").current_dir(&dir))?;
    let shown = dir.display();
    let options = format!("--memory 16MiB --tls {shown} --tls-verify-peer");
    let server = env.serve(&image::create_sparse(target, mib * MIB)?, &options)?;
    let in_clear = server.uri();
    let uri = format!("{}&tls-certificates={shown}", in_clear.replace("nbd+", "nbds+"));
    ensure!(!capture(cmd!(30, "nbdinfo {in_clear}"))?.ok(), "a client without TLS was served");
    copy_both_ways(env, source, &uri)?;
    // With only the certificate of the authority, the client trusts the server but is not trusted.
    std::fs::remove_file(dir.join("client-cert.pem")).context("remove the client certificate")?;
    ensure!(!capture(cmd!(30, "nbdinfo {uri}"))?.ok(), "a client without a certificate was served");
    server.stop_clean()?;
    image::compare(source, target)?;
    Ok(format!("{mib} MiB identical; refused without TLS and without a certificate"))
}

/// Starts a Larder whose volume is the export of another one.
fn near(env: &Env, upstream: &str) -> Result<Server> {
    env.larder(&[&format!("near={upstream}")], "--memory 32MiB").start(env.dir())
}

fn second(env: &Env, source: &Path, target: &Path, mib: u64) -> Result<String> {
    let origin = env.serve(&image::create_sparse(target, mib * MIB)?, "--memory 16MiB")?;
    let near = near(env, &origin.uri())?;
    copy_both_ways(env, source, &near.uri())?;
    near.stop_clean()?;
    origin.stop_clean()?;
    image::compare(source, target)?;
    Ok(format!("{mib} MiB identical"))
}

fn killed(env: &Env, source: &Path, target: &Path, mib: u64) -> Result<String> {
    let origin = env.serve(&image::create_sparse(target, mib * MIB)?, "--memory 64MiB")?;
    // A new server has a different socket; the address is a link to the running one.
    let link = env.file("origin.sock");
    let point_link_at = |server: &Server| {
        // The link does not exist the first time.
        let removed = std::fs::remove_file(&link);
        std::os::unix::fs::symlink(server.socket(), &link)
            .with_context(|| format!("link the socket, after {removed:?}"))
    };
    point_link_at(&origin)?;
    let near = near(env, &format!("nbd+unix:///?socket={}", link.display()))?;
    let uri = near.uri();
    let copy = Daemon::start("nbdcopy", env.dir(), |_| cmd!("nbdcopy --flush {source} {uri}"))?;
    std::thread::sleep(Duration::from_millis(env.choose(600, 60)));
    origin.kill()?;
    let origin = env.serve(target, "--memory 64MiB")?;
    point_link_at(&origin)?;
    let ended = copy.wait(Duration::from_mins(5))?;
    ensure!(ended.code == Some(0), "nbdcopy: exit code {:?}\n{}", ended.code, ended.stderr);
    let lost = near.0.stderr().matches("the connection is lost").count();
    near.stop_clean()?;
    origin.kill()?;
    image::compare(source, target)?;
    Ok(format!("{mib} MiB identical, {lost} connections lost on the way"))
}
