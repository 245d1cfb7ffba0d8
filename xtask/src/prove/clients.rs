//! Real clients: every byte that they write is read back, without an error.
//!
//! The cache is an eighth of the image. (With `bs_unaligned` fio's own blocks would overlap, which
//! fio reports as corruption with any server.)

use super::prelude::*;
use super::upstream;
use crate::fio::LoadResult;

/// The timeout of one client in seconds.
const CLIENT_MAX_S: u64 = 600;

const PAGE_SIZES: [&str; 3] = ["4KiB", "64KiB", "1MiB"];
const POLICIES: [&str; 2] = ["lru", "s3fifo"];
/// Policies that are tested once each, in the long form.
const OTHER_POLICIES: [&str; 11] = [
    "random", "fifo", "clock", "2q", "slru", "arc", "lirs", "sieve", "wtinylfu", "clock2q+",
    "linux",
];
const WRITE_MODES: [&str; 3] = ["back", "through", "around"];
/// The size of the image for the tests of settings, four times the cache.
const SETTINGS_MIB: u64 = 64;

pub(super) fn run(env: &Env, claims: &mut Claims) -> Result<()> {
    let mib = env.choose(2048, 64);
    let options = format!("--memory {}MiB", mib / 8);
    let source = image::create_filled(&env.file("source.img"), mib, env.options.seed)?;
    let target = env.file("served.img");
    stdout_of(cmd!("cp --sparse=always {source} {target}"))?;
    let server = env.serve(&target, &options)?;
    check_export_info(&server, mib * MIB, claims);
    check_reads(env, &server, &source, claims);
    claims.check("stops clean after reads", || {
        server.stop_clean()?;
        image::compare(&source, &target)?;
        Ok("exit code 0, image untouched".into())
    });
    check_writes(env, &source, &options, claims)?;
    let (seconds, server) = (env.choose(60, 4), env.serve(&target, &options)?);
    let statement = format!("fio verify, 4 connections, 512 B to 1 MiB, {seconds} s");
    claims.check(statement, || Ok(fio_verify(&server.uri(), mib, seconds)?.summary()));
    let statement = "after fio: the image is identical to the export";
    claims.check(statement, || verify_image(env, server, &target).map(|()| "identical".into()));
    for path in [&source, &target] {
        std::fs::remove_file(path).with_context(|| format!("remove {}", path.display()))?;
    }
    check_settings(env, claims)?;
    upstream::run(env, claims)
}

/// Checks the description of the export that clients receive.
fn check_export_info(server: &Server, bytes: u64, claims: &mut Claims) {
    let uri = server.uri();
    claims.check("nbdinfo: length and abilities", || {
        let info = json_of(cmd!(30, "nbdinfo --json {uri}"))?;
        ensure!(info["protocol"] == "newstyle-fixed", "protocol {}", info["protocol"]);
        ensure!(info["structured"] == true, "no structured replies");
        let export = &info["exports"][0];
        ensure!(export["export-size"] == bytes, "length {}", export["export-size"]);
        for ability in ["multi_conn", "flush", "fua", "trim", "zero", "cache"] {
            let ability = format!("can_{ability}");
            ensure!(export[&ability] == true, "{ability} is {}", export[&ability]);
        }
        ensure!(export["contexts"].to_string().contains("base:allocation"), "no base:allocation");
        Ok(format!("{} MiB, all abilities", bytes / MIB))
    });
    claims.check("nbdinfo --list: the export by its name", || {
        let printed = server.announced().first().cloned().context("no URI was printed")?;
        stdout_of(cmd!(30, "nbdinfo {printed}")).context("use the printed URI")?;
        let list = stdout_of(cmd!(30, "nbdinfo --list {uri}"))?;
        ensure!(list.contains("served"), "no export 'served' in the list:\n{list}");
        Ok(printed.split('?').next().unwrap_or_default().to_owned())
    });
}

/// Runs clients that read the whole export.
fn check_reads(env: &Env, server: &Server, source: &Path, claims: &mut Claims) {
    let (uri, target) = (server.uri(), env.file("copied.img"));
    for (statement, words) in [
        ("nbdcopy from the export", "nbdcopy"),
        ("qemu-img convert from the export", "qemu-img convert -f raw -O raw"),
    ] {
        claims.check(statement, || {
            let mut words = words.split(' ');
            let program = words.next().unwrap_or_default();
            stdout_of(cmd!(CLIENT_MAX_S, "{program} {words...} {uri} {target}"))?;
            image::compare(source, &target)?;
            std::fs::remove_file(&target).context("remove the copy")?;
            Ok("identical".into())
        });
    }
    claims.check("qemu-img compare", || {
        stdout_of(cmd!(CLIENT_MAX_S, "qemu-img compare -f raw -F raw {source} {uri}"))?;
        Ok("identical".into())
    });
    claims.check("qemu-img bench, reads, depth 32", || {
        let count = env.choose("200000", "5000");
        stdout_of(cmd!(
            CLIENT_MAX_S,
            "qemu-img bench -f raw -t none -d 32 -s 4096 -c {count} {uri}"
        ))?;
        Ok("no error".into())
    });
}

/// Runs clients that write the whole export.
fn check_writes(env: &Env, source: &Path, options: &str, claims: &mut Claims) -> Result<()> {
    let bytes = source.metadata().context("look at the source")?.len();
    let target = env.file("target.img");
    for (statement, words) in [
        ("nbdcopy to the export, flushed", "nbdcopy --flush"),
        ("qemu-img convert to the export", "qemu-img convert -n -f raw -O raw"),
    ] {
        let server = env.serve(&image::create_sparse(&target, bytes)?, options)?;
        claims.check(statement, || {
            let (mut words, uri) = (words.split(' '), server.uri());
            let program = words.next().unwrap_or_default();
            stdout_of(cmd!(CLIENT_MAX_S, "{program} {words...} {source} {uri}"))?;
            let ended = server.stop_clean()?;
            image::compare(source, &target)?;
            Ok(format!("identical, stopped in {:.1} s", ended.took.as_secs_f64()))
        });
    }
    let server = env.serve(&target, options)?;
    claims.check("qemu-img bench, writes with flushes", || {
        let (count, uri) = (env.choose("200000", "5000"), server.uri());
        let arguments = "-w -f raw -t none -d 32 -s 4096 --flush-interval=256".split(' ');
        stdout_of(cmd!(CLIENT_MAX_S, "qemu-img bench {arguments...} -c {count} {uri}"))?;
        server.stop_clean()?;
        Ok("no error".into())
    });
    std::fs::remove_file(&target).context("remove the target")
}

/// Copies the export, stops the server, and compares the copy with the image.
pub(super) fn verify_image(env: &Env, server: Server, image: &Path) -> Result<()> {
    let (last, uri) = (env.file("last.img"), server.uri());
    stdout_of(cmd!(CLIENT_MAX_S, "nbdcopy {uri} {last}"))?;
    server.stop_clean()?;
    image::compare(&last, image)?;
    std::fs::remove_file(&last).context("remove the copy")
}

/// Runs fio on an export of `mib` MiB, with four connections on separate regions.
pub(super) fn fio_verify(uri: &str, mib: u64, seconds: u64) -> Result<LoadResult> {
    let region = mib / 4;
    let options = format!(
        "--rw=randrw --bsrange=512-1m --blockalign=512 --iodepth=8 --numjobs=4 --verify=crc32c \
         --verify_fatal=1 --verify_state_save=0 --size={region}m --offset_increment={region}m"
    );
    fio::run(uri, seconds, &options.split_whitespace().collect::<Vec<_>>())
}

/// Returns every combination of page size, write mode and two very different policies, and each
/// other policy once. The short form has each page size, each write mode and the two policies at
/// least once.
fn combinations(quick: bool) -> Vec<String> {
    let short = (0..3).map(|n| (n, POLICIES[n % 2], n));
    let all = (0..18).map(|n| (n / 6, POLICIES[n / 3 % 2], n % 3));
    let other = (0..).zip(OTHER_POLICIES).map(|(n, policy)| (n % 3, policy, n % 2));
    let chosen: Vec<_> = if quick { short.collect() } else { all.chain(other).collect() };
    let words = |(page, policy, mode): (usize, _, usize)| {
        let (page, mode) = (PAGE_SIZES[page], WRITE_MODES[mode]);
        format!("--page-size {page} --policy {policy} --write-mode {mode}")
    };
    chosen.into_iter().map(words).collect()
}

/// Tests combinations of page size, policy and write mode, then a read-only export.
fn check_settings(env: &Env, claims: &mut Claims) -> Result<()> {
    let source = image::create_filled(&env.file("small.img"), SETTINGS_MIB, env.options.seed)?;
    let (target, back) = (env.file("settings.img"), env.file("back.img"));
    for options in combinations(env.options.quick) {
        let all = format!("--memory {}MiB {options}", SETTINGS_MIB / 4);
        let server = env.serve(&image::create_sparse(&target, SETTINGS_MIB * MIB)?, &all)?;
        claims.check(options, || {
            let uri = server.uri();
            stdout_of(cmd!(120, "nbdcopy --flush {source} {uri}"))?;
            stdout_of(cmd!(120, "nbdcopy {uri} {back}"))?;
            image::compare(&source, &back)?;
            let figure = fio_verify(&uri, SETTINGS_MIB, env.choose(3, 1))?.summary();
            stdout_of(cmd!(120, "nbdcopy {uri} {back}"))?;
            server.stop_clean()?;
            image::compare(&target, &back)?;
            Ok(figure)
        });
    }
    let server = env.serve(&source, "--memory 16MiB --write-mode read-only")?;
    claims.check("--write-mode read-only: announced to clients, writes refused", || {
        let uri = server.uri();
        stdout_of(cmd!(30, "nbdinfo --is read-only {uri}"))?;
        ensure!(!capture(cmd!(30, "nbdcopy {target} {uri}"))?.ok(), "a client could write");
        server.stop_clean()?;
        Ok("refused".into())
    });
    Ok(())
}
