//! Checks of the server's writes to a store with ext4, and of their order, by the records from the
//! guest: at every flush of the store and at many writes, the file system needs no repair beyond
//! its journal, and contains every file that was fsynced before.

use super::replay::{self, Point};
use crate::prove::prelude::*;

/// The size of a store and of the record of its writes.
const STORE_MIB: u64 = 48;
const LOG_MIB: u64 = 1024;
/// The servers whose writes the script records, in its order, and true if they perform flushes.
const SERVERS: [(&str, bool); 3] =
    [("write-back", true), ("write-through", true), ("--flush ignore", false)];
/// The number of files that the script fsyncs on each store.
const FSYNCED_FILES: usize = 60;
/// The file system is also checked after every write whose number is a multiple of this.
const WRITES_PER_CHECK: u64 = 16;
/// The number of fsynced files that each check compares: a lost write affects the last ones.
const COMPARED_FILES: usize = 4;

/// Creates the disks of the guest: for each server its store and the disk for the record.
pub(super) fn disks(env: &Env) -> Result<Vec<PathBuf>> {
    let mut disks = Vec::new();
    for (number, _) in SERVERS.iter().enumerate() {
        disks.push(image::create_sparse(&env.file(&format!("store-{number}")), STORE_MIB * MIB)?);
        disks.push(image::create_sparse(&log(env, number), LOG_MIB * MIB)?);
    }
    Ok(disks)
}

fn log(env: &Env, number: usize) -> PathBuf {
    env.file(&format!("log-{number}"))
}

/// Adds a claim for each record. A server that ignores flushes proves that the checks detect
/// losses.
pub(super) fn check(env: &Env, claims: &mut Claims) {
    for (number, (name, keeps_flushes)) in SERVERS.into_iter().enumerate() {
        let checked = || check_record(env, &log(env, number));
        if !keeps_flushes {
            claims.check(format!("{name}: the same checks find the loss"), || {
                checked()?.1.context("the checks found no damage")
            });
            continue;
        }
        claims.check(format!("{name}: ext4 and its fsynced files in every state"), || {
            let (figure, damage) = checked()?;
            damage.map_or(Ok(figure), |damage| bail!(damage))
        });
    }
}

/// Replays a record, and checks the file system in between. Returns the figure, and the first
/// damage.
fn check_record(env: &Env, log: &Path) -> Result<(String, Option<String>)> {
    let (image, copy) = (env.file("replayed"), env.file("checked"));
    image::create_sparse(&image, STORE_MIB * MIB)?;
    let (mut writes, mut flushes, mut checks, mut files) = (0_u64, 0_u64, 0_u64, Vec::new());
    let (mut is_made, mut is_complete, mut damage) = (false, false, None);
    replay::replay(log, &image, |point| {
        match &point {
            Point::Write => writes += 1,
            Point::Flush => flushes += 1,
            Point::Mark(text) if text == "made" => is_made = true,
            Point::Mark(text) if text == replay::END => is_complete = true,
            Point::Mark(text) => files.push(text.clone()),
        }
        let is_due = !matches!(point, Point::Write) || writes.is_multiple_of(WRITES_PER_CHECK);
        if is_made && !is_complete && is_due && damage.is_none() {
            checks += 1;
            stdout_of(cmd!("cp --sparse=always {image} {copy}"))?;
            let last = &files[files.len().saturating_sub(COMPARED_FILES)..];
            damage = find_damage(&copy, last)?
                .map(|found| format!("with {} files fsynced, {found}", files.len()));
        }
        Ok(())
    })?;
    let count = files.len();
    ensure!(
        is_complete && count == FSYNCED_FILES,
        "the record contains {count} of {FSYNCED_FILES} fsynced files"
    );
    let figure =
        format!("{writes} writes, {flushes} flushes, {count} fsynced files, {checks} checks");
    Ok((figure, damage))
}

/// Repairs the journal of a file system in an image, and returns the first damage: another
/// necessary repair, or a file, given as NAME:SHA256, with other contents.
fn find_damage(image: &Path, files: &[String]) -> Result<Option<String>> {
    let checked = capture(cmd!("e2fsck -f -p {image}"))?;
    let damage = checked.stdout.lines().find(|line| line.contains("FIXED"));
    if damage.is_some() || checked.code.is_none_or(|code| code > 1) {
        let printed = run::tail(&checked.stdout);
        return Ok(Some(format!("e2fsck: {}", damage.unwrap_or(printed.trim()))));
    }
    for file in files {
        let (name, sum) = file.split_once(':').context("a mark is not NAME:SHA256")?;
        let script = "debugfs -R \"cat /$1\" \"$0\" 2>/dev/null | sha256sum | cut -d ' ' -f 1";
        let found = stdout_of(cmd!("sh -c {script} {image} {name}"))?;
        if found.trim() != sum {
            return Ok(Some(format!("{name} does not contain what was fsynced")));
        }
    }
    Ok(None)
}
