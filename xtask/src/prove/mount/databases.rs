//! sqlite in WAL mode: locks, and a shared mapping that all writers look at.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail, ensure};

use super::World;
use crate::prove::Claims;
use crate::prove::fuse_volume::mounted::PATIENCE_S;
use crate::run;

const WRITERS: usize = 4;

/// Rounds in which all writers switch a new database to WAL at once.
const SWITCHES: usize = 40;

pub(super) fn run(world: &World<'_>, claims: &mut Claims) {
    let inserts = world.lab.either(2000, 300);
    claims.tried(format!("sqlite, WAL, {WRITERS} writers of {inserts} transactions each"), || {
        world.mounted("sqlite", |place| writers(place, inserts))
    });
    claims.tried("sqlite, a rollback journal, the same", || {
        world.mounted("rollback", |place| rollback(place, inserts / 4))
    });
    switches(world, claims);
}

/// What sqlite says to a script.
fn sqlite(base: &Path, script: &str) -> Result<String> {
    run::text(run::client(PATIENCE_S, "sqlite3").arg("-bail").arg(base).arg(script))
}

fn checked(base: &Path, inserts: usize) -> Result<()> {
    let said = sqlite(base, "PRAGMA integrity_check; SELECT count(*), count(DISTINCT n) FROM t;")?;
    let all = WRITERS * inserts;
    ensure!(said.trim() == format!("ok\n{all}|{all}"), "after {all} rows it says {said}");
    Ok(())
}

/// Each writer's rows, every one in a transaction of its own, some with a large one.
fn script(writer: usize, inserts: usize) -> String {
    let rows = (0..inserts).map(|row| {
        let (number, bytes) = (writer * inserts + row, if row % 16 == 0 { 20_000 } else { 300 });
        format!("INSERT INTO t VALUES ({number}, randomblob({bytes}));\n")
    });
    format!(".timeout 60000\n{}", rows.collect::<String>())
}

/// All writers at once.
fn write(base: &Path, inserts: usize) -> Result<()> {
    let outs = together(|writer| {
        let file = base.with_extension(format!("script-{writer}"));
        std::fs::write(&file, script(writer, inserts)).context("write a script for sqlite")?;
        let mut sqlite = run::client(PATIENCE_S, "sqlite3");
        sqlite.arg("-bail").arg(base).arg(format!(".read {}", file.display()));
        Ok(sqlite)
    })?;
    for (ok, words) in outs {
        ensure!(ok, "a writer failed: {words}");
    }
    Ok(())
}

/// Starts a command for each writer and waits for all; whether each ended well, and its words.
fn together(command: impl Fn(usize) -> Result<Command>) -> Result<Vec<(bool, String)>> {
    let commands = (0..WRITERS).map(command).collect::<Result<Vec<_>>>()?;
    let start = |mut command: Command| {
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        command.spawn().context("start sqlite3")
    };
    let children = commands.into_iter().map(start).collect::<Result<Vec<_>>>()?;
    let end = |child: std::process::Child| {
        let out = child.wait_with_output().context("wait for sqlite3")?;
        Ok((out.status.success(), String::from_utf8_lossy(&out.stderr).trim().to_owned()))
    };
    children.into_iter().map(end).collect()
}

fn writers(place: &Path, inserts: usize) -> Result<String> {
    let base = place.join("base");
    let mode = sqlite(&base, "PRAGMA journal_mode=WAL; CREATE TABLE t (n INTEGER, x BLOB);")?;
    ensure!(mode.trim() == "wal", "it says {mode}");
    write(&base, inserts)?;
    checked(&base, inserts)?;
    Ok(format!("{} rows, integrity_check ok", WRITERS * inserts))
}

fn rollback(place: &Path, inserts: usize) -> Result<String> {
    let base = place.join("base");
    sqlite(&base, "CREATE TABLE t (n INTEGER, x BLOB);")?;
    write(&base, inserts)?;
    checked(&base, inserts)?;
    Ok(format!("{} rows, integrity_check ok", WRITERS * inserts))
}

/// sqlite may answer "database is locked" to some of those who switch to WAL at once, whatever
/// they are willing to wait: it needs a lock that nobody shares, and gives up where waiting could
/// be for ever. So it does on ext4 alone; through the mount nothing else may happen.
fn switches(world: &World<'_>, claims: &mut Claims) {
    let what = format!("sqlite, {WRITERS} switch to WAL at once: refused as on ext4 alone");
    let of = WRITERS * SWITCHES;
    let tried = || -> Result<(usize, usize)> {
        let alone = world.folder("switches")?;
        let bare = refused(&alone)?;
        std::fs::remove_dir_all(&alone).context("remove what was made")?;
        let mut through = 0;
        world.mounted("switches", |place| {
            through = refused(place)?;
            Ok(String::new())
        })?;
        Ok((through, bare))
    };
    match tried() {
        Ok((through, bare)) => {
            let holds = bare > 0 || through == 0;
            let (figure, peer) = (format!("{through} of {of}"), format!("ext4: {bare} of {of}"));
            claims.against(what, figure, peer, holds);
        }
        Err(error) => claims.tried(what, || Err(error)),
    }
}

/// How many of those who switch at once without waiting are refused; any other error is one.
fn refused(place: &Path) -> Result<usize> {
    let mut refused = 0;
    for round in 0..SWITCHES {
        let base = place.join(format!("base-{round}"));
        sqlite(&base, "CREATE TABLE t (n INTEGER);")?;
        let outs = together(|_| {
            let mut sqlite = run::client(PATIENCE_S, "sqlite3");
            sqlite.arg("-bail").arg(&base).arg("PRAGMA journal_mode=WAL;");
            Ok(sqlite)
        })?;
        for (ok, words) in outs {
            match (ok, words.contains("database is locked")) {
                (true, _) => {}
                (false, true) => refused += 1,
                (false, false) => bail!("sqlite says: {words}"),
            }
        }
        let said = sqlite(&base, "PRAGMA integrity_check;")?;
        ensure!(said.trim() == "ok", "integrity_check says {said}");
    }
    Ok(refused)
}
