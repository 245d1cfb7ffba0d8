//! Real clients: what went in comes out, byte by byte, with no error on the way.
//!
//! The cache is an eighth of the image, so that hits, fills and evictions all take part. fio
//! verifies with four connections on regions of their own; its blocks are 512 bytes to 1 MiB at
//! multiples of 512. (`bs_unaligned` would let fio's own blocks overlap, which it then reports as
//! damage with every server.)

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use super::{Claims, Lab, settings, upstream};
use crate::fio::Outcome;
use crate::image::{self, MIB};
use crate::server::Server;
use crate::{fio, run};

/// How long one client may take.
const CLIENT_MAX_S: u64 = 600;

/// Runs the proof.
pub(super) fn run(lab: &Lab, claims: &mut Claims) -> Result<()> {
    let mib = lab.either(2048, 64);
    let options = format!("--memory {}MiB", mib / 8);
    let source = image::filled(&lab.file("source.img"), mib, lab.options.seed)?;
    let target = lab.file("served.img");
    run::text(Command::new("cp").arg("--sparse=always").arg(&source).arg(&target))?;
    let server = lab.serve(&target, &options)?;
    facts(&server, mib * MIB, claims);
    reads(lab, &server, &source, claims);
    claims.tried("stops clean after reads", || {
        server.stop_clean()?;
        image::same(&source, &target)?;
        Ok("exit code 0, image untouched".into())
    });
    writes(lab, &source, &options, claims)?;
    verify(lab, &target, mib, &options, claims)?;
    for path in [&source, &target] {
        std::fs::remove_file(path).with_context(|| format!("remove {}", path.display()))?;
    }
    settings::run(lab, claims)?;
    upstream::run(lab, claims)
}

/// What the server says about itself.
fn facts(server: &Server, bytes: u64, claims: &mut Claims) {
    claims.tried("nbdinfo: length and abilities", || {
        let text = run::text(run::client(30, "nbdinfo").args(["--json", &server.uri()]))?;
        let facts: Value = serde_json::from_str(&text).context("parse what nbdinfo printed")?;
        ensure!(facts["protocol"] == "newstyle-fixed", "protocol {}", facts["protocol"]);
        ensure!(facts["structured"] == true, "no structured replies");
        let export = &facts["exports"][0];
        ensure!(export["export-size"] == bytes, "length {}", export["export-size"]);
        let abilities =
            ["can_multi_conn", "can_flush", "can_fua", "can_trim", "can_zero", "can_cache"];
        for ability in abilities {
            ensure!(export[ability] == true, "{ability} is {}", export[ability]);
        }
        ensure!(export["contexts"].to_string().contains("base:allocation"), "no base:allocation");
        Ok(format!("{} MiB, all abilities", bytes / MIB))
    });
    claims.tried("nbdinfo --list: the export by its name", || {
        let uri = server.announced().first().cloned().context("no URI was printed")?;
        run::text(run::client(30, "nbdinfo").arg(&uri)).context("the URI that was printed")?;
        let text = run::text(run::client(30, "nbdinfo").args(["--list", &server.uri()]))?;
        ensure!(text.contains("served"), "no export 'served' in the list:\n{text}");
        Ok(uri.split('?').next().unwrap_or_default().to_owned())
    });
}

/// Clients that read everything.
fn reads(lab: &Lab, server: &Server, source: &Path, claims: &mut Claims) {
    let uri = server.uri();
    let target = lab.file("copied.img");
    for (what, program, args) in [
        ("nbdcopy from the export", "nbdcopy", vec![]),
        ("qemu-img convert from the export", "qemu-img", vec!["convert", "-f", "raw", "-O", "raw"]),
    ] {
        claims.tried(what, || {
            run::text(run::client(CLIENT_MAX_S, program).args(args).arg(&uri).arg(&target))?;
            image::same(source, &target)?;
            std::fs::remove_file(&target).context("remove the copy")?;
            Ok("identical".into())
        });
    }
    claims.tried("qemu-img compare", || {
        let mut client = run::client(CLIENT_MAX_S, "qemu-img");
        run::text(client.args(["compare", "-f", "raw", "-F", "raw"]).arg(source).arg(&uri))?;
        Ok("identical".into())
    });
    claims.tried("qemu-img bench, reads, depth 32", || {
        let mut client = run::client(CLIENT_MAX_S, "qemu-img");
        client.args(["bench", "-f", "raw", "-t", "none", "-d", "32", "-s", "4096", "-c"]);
        run::text(client.args([lab.either("200000", "5000"), &uri]))?;
        Ok("no error".into())
    });
}

/// Clients that write everything.
fn writes(lab: &Lab, source: &Path, options: &str, claims: &mut Claims) -> Result<()> {
    let bytes = source.metadata().context("look at the source")?.len();
    let target = lab.file("target.img");
    for (what, program, args) in [
        ("nbdcopy to the export, flushed", "nbdcopy", vec!["--flush"]),
        (
            "qemu-img convert to the export",
            "qemu-img",
            vec!["convert", "-n", "-f", "raw", "-O", "raw"],
        ),
    ] {
        let server = lab.serve(&image::sparse(&target, bytes)?, options)?;
        claims.tried(what, || {
            let mut client = run::client(CLIENT_MAX_S, program);
            run::text(client.args(args).arg(source).arg(server.uri()))?;
            let ended = server.stop_clean()?;
            image::same(source, &target)?;
            Ok(format!("identical, stopped in {:.1} s", ended.took.as_secs_f64()))
        });
    }
    let server = lab.serve(&target, options)?;
    claims.tried("qemu-img bench, writes with flushes", || {
        let mut client = run::client(CLIENT_MAX_S, "qemu-img");
        client.args(["bench", "-w", "-f", "raw", "-t", "none", "-d", "32", "-s", "4096"]);
        client.args(["--flush-interval=256", "-c", lab.either("200000", "5000")]);
        run::text(client.arg(server.uri()))?;
        server.stop_clean()?;
        Ok("no error".into())
    });
    std::fs::remove_file(&target).context("remove the target")
}

/// fio writes and verifies, and the image is what fio read at the end.
fn verify(lab: &Lab, image: &Path, mib: u64, options: &str, claims: &mut Claims) -> Result<()> {
    let seconds = lab.either(60, 4);
    let server = lab.serve(image, options)?;
    let what = format!("fio verify, 4 connections, 512 B to 1 MiB, {seconds} s");
    claims.tried(what, || Ok(fio_verify(&server.uri(), mib, seconds)?.in_words()));
    claims.tried("after fio: the image is what the export was", || {
        verified_image(lab, server, image)?;
        Ok("identical".into())
    });
    Ok(())
}

/// Copies the export, stops the server, and compares the copy with the image.
pub(super) fn verified_image(lab: &Lab, server: Server, image: &Path) -> Result<()> {
    let last = lab.file("last.img");
    run::text(run::client(CLIENT_MAX_S, "nbdcopy").arg(server.uri()).arg(&last))?;
    server.stop_clean()?;
    image::same(&last, image)?;
    std::fs::remove_file(&last).context("remove the copy")
}

/// fio on an export of `mib` MiB, four connections on regions of their own.
pub(super) fn fio_verify(uri: &str, mib: u64, seconds: u64) -> Result<Outcome> {
    let size = format!("--size={}m", mib / 4);
    let offset = format!("--offset_increment={}m", mib / 4);
    fio::run(
        uri,
        seconds,
        &[
            "--rw=randrw",
            "--bsrange=512-1m",
            "--blockalign=512",
            "--iodepth=8",
            "--numjobs=4",
            "--verify=crc32c",
            "--verify_fatal=1",
            "--verify_state_save=0",
            &size,
            &offset,
        ],
    )
}
