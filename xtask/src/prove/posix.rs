//! Test suites of other projects on every kind of mount and volume: `prove posix`.
//!
//! A cell is a suite on a variant. The script `xtask/posix/cell` runs a cell in separate mount and
//! process namespaces, on loop devices of bounded size. For comparison, the same cell runs on the
//! underlying file system, without Larder, and on examples of libfuse. A failure that does not
//! occur on the underlying file system must be listed, with its reason, in docs/HARDENING.md.
//! Results accumulate in bench-runs/hardening.json. Requires root.

mod cells;

use std::ops::Range;

use super::prelude::*;
use super::{Options, selected};
use crate::cleanup::Cleanup;
use crate::daemon::Daemon;
use crate::ledger::{self, Ledger, SeedResults};
use crate::table;
use cells::{SUITES, Suite, VARIANTS, Variant};

/// Programs or files that the suites need, and their Debian packages.
const NEEDS: [(&str, &str); 17] = [
    ("stress-ng", "stress-ng"),
    ("sqlite3", "sqlite3"),
    ("pgbench", "postgresql"),
    ("xorriso", "xorriso"),
    ("exportfs", "nfs-kernel-server"),
    ("mount.cifs", "cifs-utils"),
    ("smbd", "samba"),
    ("autoconf", "autoconf"),
    ("aclocal", "automake"),
    ("libtoolize", "libtool"),
    ("bc", "bc"),
    ("pkg-config", "pkg-config"),
    ("/usr/include/fuse3/fuse.h", "libfuse3-dev"),
    ("/usr/include/xfs/xfs.h", "xfslibs-dev"),
    ("/usr/include/sys/acl.h", "libacl1-dev"),
    ("/usr/include/uuid/uuid.h", "uuid-dev"),
    ("/usr/include/libaio.h", "libaio-dev"),
];
/// Detaches the loop devices that a script has listed in a file.
const DETACH: &str = "while read -r device; do losetup --detach \"$device\"; done < \"$1\"";
/// The table of known failures.
const KNOWN: &str = "docs/HARDENING.md";
/// The state that all cells share.
struct Matrix<'a> {
    env: &'a Env,
    tools: PathBuf,
    ledger: Ledger,
    /// Code hashes of the cells with Larder, and of those without.
    codes: [String; 2],
    known: String,
}

/// A cell of the table: results, or the reason for having none.
type Cell = std::result::Result<SeedResults, String>;

pub(super) fn run(env: &Env, claims: &mut Claims) -> Result<()> {
    let Options { suite, variant, .. } = &env.options;
    let suites = selected("--suite", suite.as_deref(), SUITES, |suite| suite.name)?;
    let variants = selected("--variant", variant.as_deref(), VARIANTS, |variant| variant.name)?;
    require(run::unmet_requirement(&["losetup", "unshare", "mkfs.ext4"]))?;
    if let Err(error) = crate::packages::install_these(&NEEDS) {
        outln!("{error:#}; the suites that need them are not run");
    }
    let tools = run::target_dir()?.join("tools");
    let (script, sources) = (env.root.join("xtask/posix/tools"), &env.options.xfstests);
    run::show(&mut cmd!("{script} {tools} {sources...}"))?;
    let kernel = Path::new("/proc/sys/kernel/osrelease");
    let larder = ledger::code_hash(&env.root, env.options.binary.as_deref())?;
    let codes = [larder, ledger::code_hash(&env.root, Some(kernel))?];
    let known = std::fs::read_to_string(env.root.join(KNOWN)).context(KNOWN)?;
    let ledger = Ledger::open(&env.root, "hardening")?;
    let mut matrix = Matrix { env, tools, ledger, codes, known };
    for suite in suites {
        for variant in &variants {
            matrix.run_cell(suite, variant, claims)?;
        }
    }
    matrix.show();
    Ok(())
}

impl Matrix<'_> {
    fn key<'a>(&'a self, suite: &'a Suite, variant: &'a Variant) -> [&'a str; 3] {
        let code = usize::from(!variant.has_larder());
        [suite.name, variant.name, &self.codes[code]]
    }

    /// Returns the reason why a cell does not run here.
    fn reason(&self, suite: &Suite, variant: &Variant) -> Option<String> {
        let has = |file: &str| self.tools.join(file).exists();
        let quick = ["native-ext4", "mount-ext4", "volume-ext4"];
        if let Some(reason) = cells::not_selected(suite, variant) {
            Some(reason.into())
        } else if self.env.options.quick && (suite.units[1] == 0 || !quick.contains(&variant.name))
        {
            Some("not part of the short form".into())
        } else if suite.name == "xfstests" && !has("xfstests/.built") {
            Some("no sources: --xfstests DIR or LARDER_XFSTESTS".into())
        } else if variant.kind == "passthrough" && !has(variant.options) {
            Some(cells::PASSTHROUGH_MISSING.into())
        } else if variant.has_rings() {
            crate::rings::unavailable_reason().map(str::to_owned)
        } else {
            run::unmet_requirement(suite.needs)
        }
    }

    /// Runs the next seeds of a cell, with the underlying file system for comparison, and evaluates
    /// all recorded results of the cell.
    fn run_cell(&mut self, suite: &Suite, variant: &Variant, claims: &mut Claims) -> Result<()> {
        let statement = format!("{} on {}", suite.name, variant.name);
        if let Some(reason) = self.reason(suite, variant) {
            // The table shows every cell; claims are made only for those that were selected.
            if cells::not_selected(suite, variant).is_none() && !self.env.options.quick {
                claims.skip(statement, reason);
            }
            return Ok(());
        }
        let [step, quick_step, goal] = suite.units;
        let seeds = if self.env.options.quick {
            0..quick_step
        } else {
            let first = self.ledger.next_seed(self.key(suite, variant));
            first..(first + step).min(goal)
        };
        let below = variant.below().filter(|it| self.reason(suite, it).is_none());
        let native = below.map(|it| self.results(suite, it, &seeds)).transpose()?;
        let native = native.and_then(Cell::ok);
        let cell = self.results(suite, variant, &seeds)?;
        let outcome = match cell {
            Ok(outcome) => outcome,
            Err(reason) => {
                claims.skip(statement, reason);
                return Ok(());
            }
        };
        if !variant.has_larder() {
            return Ok(());
        }
        let fails_below =
            |name: &String| native.as_ref().is_some_and(|native| native.failed.contains_key(name));
        let is_known = |name: &str| is_listed(&self.known, suite.name, variant.name, name);
        let own: Vec<_> = outcome.failed.iter().filter(|(name, _)| !fails_below(name)).collect();
        let new: Vec<_> = own.iter().filter(|(name, _)| !is_known(name)).collect();
        for (name, reason) in &new {
            outln!("   not listed in {KNOWN}: {} {name}: {reason}", suite.name);
        }
        let (known, new_count) = (own.len() - new.len(), new.len());
        let figure = format!(
            "{}, {known} known, {new_count} new; {} seeds on earlier code",
            summary(&outcome),
            outcome.earlier
        );
        let peers = VARIANTS.iter().filter(|it| it.kind == "passthrough");
        let peers = variant.below().into_iter().chain(peers);
        let peers: Vec<_> = peers.filter_map(|it| self.peer(suite, it)).collect();
        claims.add_with_peer(statement, figure, peers.join("; "), new.is_empty());
        Ok(())
    }

    /// Returns the recorded results of a cell, after running the seeds that are not recorded yet.
    fn results(&mut self, suite: &Suite, variant: &Variant, seeds: &Range<u64>) -> Result<Cell> {
        let key = self.key(suite, variant).map(str::to_owned);
        let key = [&*key[0], &*key[1], &*key[2]];
        let is_recorded = !self.env.options.quick;
        let first = if is_recorded { self.ledger.next_seed(key) } else { seeds.start };
        if first < seeds.end {
            let outcome = self.execute(suite, variant, &(first..seeds.end))?;
            let Ok(outcome) = outcome else { return Ok(outcome) };
            // An incomplete cell is run again.
            if !is_recorded || outcome.failed.contains_key("cell") {
                return Ok(Ok(outcome));
            }
            self.ledger.add(key, first..seeds.end, &outcome)?;
        }
        Ok(self.ledger.outcome(key).context("no results").map_err(|error| error.to_string()))
    }

    /// Runs a cell.
    fn execute(&self, suite: &Suite, variant: &Variant, seeds: &Range<u64>) -> Result<Cell> {
        outln!("   {} on {}, from {} to {}", suite.name, variant.name, seeds.start, seeds.end);
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        let mut work = tempfile::Builder::new();
        let work = work.prefix("cell-").permissions(mode).tempdir_in(self.env.dir());
        let work = work.context("make a directory for a cell")?;
        let file = |name: &str| work.path().join(name);
        let read = |name: &str| std::fs::read_to_string(file(name)).unwrap_or_default();
        let _rings = if variant.has_rings() { crate::rings::on()? } else { None };
        let _loops = Cleanup::start(DETACH, &[&file("loops").to_string_lossy()])?;
        let factor = run::time_factor()?;
        let limit_s = suite.limit_s * factor * if variant.is_in_guest() { 4 } else { 1 };
        let started = Daemon::start(suite.name, self.env.dir(), |_| {
            let (script, name) = (self.env.root.join("xtask/posix/run"), suite.name);
            let [first, count] = [seeds.start, seeds.end - seeds.start].map(|it| it.to_string());
            let mut command = cmd!("{script} {name} {first} {count}");
            command.env("WORK", work.path()).env("TOOLS", &self.tools);
            command.env("LARDER", &self.env.larder).env("LIMIT", limit_s.to_string());
            command.env("KIND", variant.kind).env("FS", variant.fs);
            command.env("OPTIONS", variant.options).env("LENGTH", self.env.choose("5", "1"));
            command.env("FACTOR", factor.to_string());
            command
        })?;
        let ended = started.wait(Duration::from_secs(limit_s + 60));
        let outcome = parse(&read("results"));
        if outcome.as_ref().is_ok_and(|outcome| !outcome.failed.is_empty()) {
            outln!("{}", run::tail(&read("stderr")));
            ended.err().into_iter().for_each(|error| outln!("{error:#}"));
        }
        Ok(outcome)
    }

    /// Returns the recorded figures of a variant without Larder.
    fn peer(&self, suite: &Suite, variant: &Variant) -> Option<String> {
        let outcome = self.ledger.outcome(self.key(suite, variant))?;
        Some(format!("{}: {}", variant.name, summary(&outcome)))
    }

    /// Prints the whole table: passed, failed and not run of every cell, as recorded.
    fn show(&self) {
        let (mut reasons, mut rows) = (Vec::new(), Vec::new());
        for variant in VARIANTS {
            let mut row = vec![variant.name.to_owned()];
            for suite in SUITES {
                row.push(self.ledger.outcome(self.key(suite, variant)).map_or_else(
                    || {
                        let reason = self.reason(suite, variant);
                        let reason = reason.unwrap_or_else(|| "not run yet on this code".into());
                        if !reasons.contains(&reason) {
                            reasons.push(reason.clone());
                        }
                        let at = reasons.iter().position(|it| *it == reason).unwrap_or(0);
                        format!("not run ({})", at + 1)
                    },
                    |outcome| summary(&outcome),
                ));
            }
            rows.push(row);
        }
        outln!("\npassed / failed / not run, of all seeds recorded for this code:");
        let names = SUITES.iter().map(|suite| suite.name);
        table::print(&["variant"].into_iter().chain(names).collect::<Vec<_>>(), &rows);
        for (number, reason) in (1..).zip(&reasons) {
            outln!("({number}) {reason}");
        }
    }
}

fn summary(outcome: &SeedResults) -> String {
    format!("{} / {} / {}", outcome.count("passed"), outcome.failed.len(), outcome.not_run.len())
}

/// Parses the script's results, or the reason why the variant is impossible.
fn parse(text: &str) -> Cell {
    let mut outcome = SeedResults::default();
    let mut is_complete = false;
    for line in text.lines() {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        let (name, reason) = rest.split_once(' ').unwrap_or((rest, ""));
        let put = |map: &mut serde_json::Map<_, _>| {
            map.insert(name.to_owned(), reason.into());
        };
        match word {
            "passed" => outcome.add_count("passed", 1),
            "failed" => put(&mut outcome.failed),
            "skipped" => put(&mut outcome.not_run),
            "impossible" => return Err(reason.to_owned()),
            "complete" => is_complete = true,
            _ => {}
        }
    }
    if !is_complete {
        outcome.failed.insert("cell".to_owned(), "it broke off before its end".into());
    }
    outcome.add_count("executions", outcome.count("passed") + to_u64(outcome.failed.len()));
    Ok(outcome)
}

fn to_u64(count: usize) -> u64 {
    count.try_into().unwrap_or(u64::MAX)
}

/// Returns true if a test is listed in the section `### SUITE` of the document: a row of a table
/// with the test and the variants, where `*` is all variants and `mount-*` those with this prefix.
fn is_listed(document: &str, suite: &str, variant: &str, test: &str) -> bool {
    let matches = |pattern: &str, name: &str| match pattern.strip_suffix('*') {
        Some(start) => name.starts_with(start),
        None => pattern == name,
    };
    let heading = format!("### {suite}");
    let section = document.lines().skip_while(|line| *line != heading).skip(1);
    let mut rows = section.take_while(|line| !line.starts_with('#'));
    rows.any(|row| {
        let cells: Vec<&str> = row.split('|').map(|it| it.trim().trim_matches('`')).collect();
        let [_, tests, variants, ..] = cells[..] else { return false };
        let any = |list: &str, name: &str| {
            list.split(',').any(|it| matches(it.trim().trim_matches('`'), name))
        };
        any(tests, test) && any(variants, variant)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_counted_and_a_cell_that_breaks_off_has_failed() {
        let text = "passed a\nfailed b::c no such file\nskipped d requires x\ncomplete\n";
        let outcome = parse(text).unwrap();
        assert_eq!(summary(&outcome), "1 / 1 / 1");
        assert_eq!(outcome.failed["b::c"], "no such file");
        assert_eq!(outcome.not_run["d"], "requires x");
        assert!(parse("passed a\n").unwrap().failed.contains_key("cell"));
        assert_eq!(parse("impossible - no NFS\n").unwrap_err(), "no NFS");
    }

    #[test]
    fn a_failure_is_known_in_its_suite_and_on_its_variants() {
        let document = "### a\n\n| test | variants | reason |\n|---|---|---|\n\
            | `x::y`, `z` | `mount-*`, `volume-xfs` | because |\n\n### b\n| `v` | `*` | so |\n";
        assert!(is_listed(document, "a", "mount-ext4", "x::y"));
        assert!(is_listed(document, "a", "volume-xfs", "z"));
        assert!(!is_listed(document, "a", "volume-ext4", "z"));
        assert!(!is_listed(document, "a", "mount-ext4", "v"));
        assert!(is_listed(document, "b", "mount-ext4", "v"));
        assert!(!is_listed(document, "c", "mount-ext4", "v"));
    }
}
