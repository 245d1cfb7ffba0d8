//! sqlite in WAL mode: locks, and a shared mapping that all writers access.

use super::SourceFileSystem;
use crate::daemon::{Daemon, ProgramResult};
use crate::disk::WORK_MAX_S;
use crate::prove::prelude::*;

const WRITERS: usize = 4;
/// Rounds in which all writers switch a new database to WAL concurrently.
const SWITCHES: usize = 40;
const TABLE: &str = "CREATE TABLE t (n INTEGER, x BLOB);";

pub(super) fn run(world: &SourceFileSystem<'_>, claims: &mut Claims) {
    let inserts = world.env.choose(2000, 300);
    let wal = format!("PRAGMA journal_mode=WAL; {TABLE}");
    claims.check(format!("sqlite, WAL, {WRITERS} writers of {inserts} transactions each"), || {
        world.on_mount("sqlite", |place| writers(world.env, place, inserts, &wal, "wal"))
    });
    claims.check("sqlite, a rollback journal, the same", || {
        world.on_mount("rollback", |place| writers(world.env, place, inserts / 4, TABLE, ""))
    });
    switches(world, claims);
}

/// Runs an sqlite script.
fn sqlite(base: &Path, script: &str) -> Result<String> {
    stdout_of(cmd!(WORK_MAX_S, "sqlite3 -bail {base} {script}"))
}

/// Runs the scripts of all writers concurrently.
fn at_once(env: &Env, base: &Path, script: impl Fn(usize) -> String) -> Result<Vec<ProgramResult>> {
    let start = |writer| {
        let script = script(writer);
        Daemon::start("sqlite3", env.dir(), |_| cmd!("sqlite3 -bail {base} {script}"))
    };
    let started = (0..WRITERS).map(start).collect::<Result<Vec<_>>>()?;
    let limit = Duration::from_secs(WORK_MAX_S);
    started.into_iter().map(|sqlite| sqlite.wait(limit)).collect()
}

/// Inserts rows from all writers concurrently, each in its own transaction, some of them large.
fn writers(env: &Env, place: &Path, inserts: usize, make: &str, mode: &str) -> Result<String> {
    let base = place.join("base");
    let output = sqlite(&base, make)?;
    ensure!(output.trim() == mode, "sqlite says {output}");
    for writer in 0..WRITERS {
        let row = |row: usize| {
            let bytes = if row.is_multiple_of(16) { 20_000 } else { 300 };
            format!("INSERT INTO t VALUES ({}, randomblob({bytes}));\n", writer * inserts + row)
        };
        let script = format!(".timeout 60000\n{}", (0..inserts).map(row).collect::<String>());
        std::fs::write(place.join(format!("script-{writer}")), script)
            .context("write a script for sqlite")?;
    }
    let read = |writer| format!(".read {}/script-{writer}", place.display());
    for ended in at_once(env, &base, read)? {
        ensure!(ended.code == Some(0), "a writer failed: {}", ended.stderr);
    }
    let output =
        sqlite(&base, "PRAGMA integrity_check; SELECT count(*), count(DISTINCT n) FROM t;")?;
    let all = WRITERS * inserts;
    ensure!(output.trim() == format!("ok\n{all}|{all}"), "after {all} rows sqlite says {output}");
    Ok(format!("{all} rows, integrity_check ok"))
}

/// If several clients switch to WAL at the same time, sqlite may fail some with "database is
/// locked", whatever their timeout: the switch needs an exclusive lock, and sqlite gives up if
/// waiting could deadlock. This happens on ext4 alone as well; through the mount no other error may
/// occur.
fn switches(world: &SourceFileSystem<'_>, claims: &mut Claims) {
    let statement = format!("sqlite, {WRITERS} switch to WAL at once: refused as on ext4 alone");
    let of = WRITERS * SWITCHES;
    claims.check(statement, || {
        let alone = world.directory("switches")?;
        let bare = refused(world.env, &alone)?;
        std::fs::remove_dir_all(&alone).context("remove what was made")?;
        let through =
            world.on_mount("switches", |place| Ok(refused(world.env, place)?.to_string()));
        let through = through?;
        ensure!(bare > 0 || through == "0", "{through} of {of}, on ext4 alone none");
        Ok(format!("{through} of {of}, on ext4 alone {bare}"))
    });
}

/// Returns the number of clients whose concurrent switch without waiting is refused; fails at any
/// other error.
fn refused(env: &Env, place: &Path) -> Result<usize> {
    let mut refused = 0;
    for round in 0..SWITCHES {
        let base = place.join(format!("base-{round}"));
        sqlite(&base, "CREATE TABLE t (n INTEGER);")?;
        for ended in at_once(env, &base, |_| "PRAGMA journal_mode=WAL;".to_owned())? {
            let is_refused = ended.code != Some(0);
            let is_locked = ended.stderr.contains("database is locked");
            ensure!(!is_refused || is_locked, "sqlite says: {}", ended.stderr);
            refused += usize::from(is_refused);
        }
        let output = sqlite(&base, "PRAGMA integrity_check;")?;
        ensure!(output.trim() == "ok", "integrity_check says {output}");
    }
    Ok(refused)
}
