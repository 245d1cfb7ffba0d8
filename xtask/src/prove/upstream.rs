//! TLS and upstream volumes with real clients: what went in comes out, through TLS, through a
//! second Larder, and through one whose upstream is killed in the middle. A part of the proof
//! `clients`.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use rcgen::{
    BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};

use super::{Claims, Lab};
use crate::image::{self, MIB};
use crate::run;
use crate::server::{Larder, Server};

/// How long one copy may take.
const COPY_MAX_S: u64 = 300;

/// Runs this part of the proof.
pub(super) fn run(lab: &Lab, claims: &mut Claims) -> Result<()> {
    let mib = lab.either(512, 48);
    let source = image::filled(&lab.file("upstream-source.img"), mib, lab.options.seed)?;
    let target = lab.file("upstream-target.img");
    claims.tried("nbdcopy through TLS, there and back", || tls(lab, &source, &target, mib));
    claims.tried("nbdcopy through a second Larder, there and back", || {
        second(lab, &source, &target, mib)
    });
    claims.tried("the upstream killed with SIGKILL in the middle of a copy", || {
        killed(lab, &source, &target, mib)
    });
    std::fs::remove_file(&source).context("remove the source")?;
    std::fs::remove_file(&target).context("remove the target")
}

/// Writes a folder of certificates for a server and its clients.
fn certificates(folder: &Path) -> Result<()> {
    std::fs::create_dir(folder).context("make a folder for certificates")?;
    let write = |name: &str, pem: String| {
        std::fs::write(folder.join(name), pem).with_context(|| format!("write {name}"))
    };
    let mut params = CertificateParams::new(Vec::new())?;
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    let key = KeyPair::generate()?;
    write("ca-cert.pem", params.self_signed(&key)?.pem())?;
    let authority = Issuer::new(params, key);
    for (who, usage) in [
        ("server", ExtendedKeyUsagePurpose::ServerAuth),
        ("client", ExtendedKeyUsagePurpose::ClientAuth),
    ] {
        let mut params = CertificateParams::new(vec!["localhost".to_owned()])?;
        params.extended_key_usages = vec![usage];
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &authority)?;
        write(&format!("{who}-cert.pem"), certificate.pem())?;
        write(&format!("{who}-key.pem"), key.serialize_pem())?;
    }
    Ok(())
}

fn copy(from: &str, to: &str) -> Result<()> {
    run::text(run::client(COPY_MAX_S, "nbdcopy").args(["--flush", from, to])).map(drop)
}

fn text(path: &Path) -> Result<&str> {
    path.to_str().context("a path that is UTF-8")
}

/// Copies there, and back into another image.
fn there_and_back(lab: &Lab, source: &Path, uri: &str) -> Result<()> {
    copy(text(source)?, uri)?;
    let back = lab.file("upstream-back.img");
    copy(uri, text(&back)?)?;
    image::same(source, &back)?;
    std::fs::remove_file(&back).context("remove the copy")
}

fn tls(lab: &Lab, source: &Path, target: &Path, mib: u64) -> Result<String> {
    let folder = lab.file("certificates");
    certificates(&folder)?;
    let options = format!("--memory 16MiB --tls {} --tls-verify-peer", folder.display());
    let server = lab.serve(&image::sparse(target, mib * MIB)?, &options)?;
    let in_clear = server.uri();
    let uri = format!("{}&tls-certificates={}", in_clear.replace("nbd+", "nbds+"), text(&folder)?);
    let refused = run::keep(run::client(30, "nbdinfo").arg(&in_clear))?;
    ensure!(!refused.ok(), "a client without TLS was served");
    there_and_back(lab, source, &uri)?;
    // Whoever has the authority's certificate only believes the server, and is not believed.
    std::fs::remove_file(folder.join("client-cert.pem")).context("take the certificate away")?;
    let refused = run::keep(run::client(30, "nbdinfo").arg(&uri))?;
    ensure!(!refused.ok(), "a client without a certificate was served");
    server.stop_clean()?;
    image::same(source, target)?;
    std::fs::remove_dir_all(&folder).context("remove the certificates")?;
    Ok(format!("{mib} MiB identical; refused without TLS and without a certificate"))
}

/// A Larder whose volume is what another one serves.
fn near(lab: &Lab, upstream: &str) -> Result<Server> {
    let recipe = Larder {
        binary: lab.binary.clone(),
        volumes: vec![format!("near={upstream}")],
        options: vec!["--memory".into(), "32MiB".into()],
    };
    Server::start(&recipe, lab.dir())
}

fn second(lab: &Lab, source: &Path, target: &Path, mib: u64) -> Result<String> {
    let origin = lab.serve(&image::sparse(target, mib * MIB)?, "--memory 16MiB")?;
    let near = near(lab, &origin.uri())?;
    there_and_back(lab, source, &near.uri())?;
    near.stop_clean()?;
    origin.stop_clean()?;
    image::same(source, target)?;
    Ok(format!("{mib} MiB identical"))
}

fn killed(lab: &Lab, source: &Path, target: &Path, mib: u64) -> Result<String> {
    let origin = lab.serve(&image::sparse(target, mib * MIB)?, "--memory 64MiB")?;
    // A new server has a socket of its own; the address is a link to the one that runs.
    let link = lab.file("origin.sock");
    let lead_to = |server: &Server| {
        // None is there the first time.
        let removed = std::fs::remove_file(&link);
        std::os::unix::fs::symlink(server.socket(), &link)
            .with_context(|| format!("link the socket, after {removed:?}"))
    };
    lead_to(&origin)?;
    let near = near(lab, &format!("nbd+unix:///?socket={}", text(&link)?))?;
    let mut copy = run::client(COPY_MAX_S, "nbdcopy");
    copy.args(["--flush", text(source)?, &near.uri()]).stdin(Stdio::null());
    let mut copy = copy.spawn().context("start nbdcopy")?;
    std::thread::sleep(Duration::from_millis(lab.either(600, 60)));
    origin.kill()?;
    let origin = lab.serve(target, "--memory 64MiB")?;
    lead_to(&origin)?;
    let status = copy.wait().context("wait for nbdcopy")?;
    ensure!(status.success(), "nbdcopy ended with {status}");
    let lost = near.stderr().matches("the connection is lost").count();
    near.stop_clean()?;
    origin.kill()?;
    image::same(source, target)?;
    std::fs::remove_file(&link).context("remove the link")?;
    Ok(format!("{mib} MiB identical, {lost} connections lost on the way"))
}
