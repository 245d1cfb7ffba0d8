//! The workload of `larder try` on both sides: one of the benchmarks, twice, on the same files.
//!
//! Files that the benchmark reads are created natively, and the other side accesses them through
//! the cache, so that both sides use the same blocks of the disk. Files that the benchmark itself
//! creates (PostMark) are created by each side.

use crate::commands::bench::embedded::parse;
use crate::commands::bench::{fileload, postmark, probe};
use anyhow::{Result, bail};
use clap::ValueEnum;
use larder_lab::bench::{Start, Workload};
use larder_schema::format;
use std::ffi::OsString;
use std::path::Path;

/// The supported benchmarks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Benchmark {
    /// Random records of a file, read and written.
    Probe,
    /// A file read in order, or at random.
    Fileload,
    /// Many small files: create, read, append, delete.
    Postmark,
}

/// Default arguments for PostMark: a trial is long enough to be measured.
const POSTMARK_ARGUMENTS: [&str; 4] = ["--number", "1000", "--transactions", "5000"];
/// Default arguments for Probe: it bypasses the page cache, since a cache gains nothing where the
/// page cache holds the same data.
const PROBE_ARGUMENTS: [&str; 1] = ["--unbuffered"];
/// Maximum default size of files; the other limit is a quarter of the cache.
const FILE_BYTES: u64 = 64 << 20;
const CACHE_DIVISOR: u64 = 4;
/// Tenths of the cache that files may take to fit as a whole; its metadata takes memory too.
const FITS_TENTHS: u64 = 9;

/// One of the benchmarks with its arguments.
pub(super) enum Work {
    Postmark(Box<postmark::PostmarkArgs>),
    Fileload(Box<fileload::FileloadArgs>),
    Probe(Box<probe::ProbeArgs>),
}

impl Work {
    /// Parses the arguments, as the benchmark itself does.
    pub(super) fn parse(kind: Benchmark, words: &[String]) -> Result<Work> {
        let defaults: &[&str] = match kind {
            Benchmark::Postmark => &POSTMARK_ARGUMENTS,
            Benchmark::Probe => &PROBE_ARGUMENTS,
            Benchmark::Fileload => &[],
        };
        let given = words.iter().map(String::as_str);
        let defaults = if words.is_empty() { defaults } else { &[] };
        let arguments = given.chain(defaults.iter().copied()).map(OsString::from);
        // The working directory is determined later.
        let placeholder = || [OsString::from(".")].into_iter();
        Ok(match kind {
            Benchmark::Postmark => Work::Postmark(Box::new(parse("postmark", arguments)?)),
            Benchmark::Fileload => {
                let fileload: fileload::FileloadArgs =
                    parse("fileload", placeholder().chain(arguments))?;
                if let Some(target) = fileload.second_target() {
                    bail!(
                        "run fileload here: larder try makes the files that it reads, so leave out \
                         the target \"{}\"",
                        target.display()
                    );
                }
                Work::Fileload(Box::new(fileload))
            }
            // The benchmark takes one target, so a second one is refused.
            Benchmark::Probe => {
                Work::Probe(Box::new(parse("probe", placeholder().chain(arguments))?))
            }
        })
    }

    /// Returns true if the workload writes.
    pub(super) fn writes(&self) -> bool {
        match self {
            Work::Postmark(_) => true,
            Work::Fileload(_) => false,
            Work::Probe(arguments) => arguments.writes(),
        }
    }

    /// Returns the maximum bytes that its files take at a time.
    pub(super) fn needed_bytes(&self, memory: u64) -> Result<u64> {
        Ok(match self {
            Work::Postmark(arguments) => arguments.in_directory(Path::new("."))?.room_bytes()?,
            Work::Fileload(arguments) => arguments.bytes_or(file_bytes(memory))?,
            Work::Probe(arguments) => arguments.bytes_or(file_bytes(memory)),
        })
    }

    /// Returns the starts, and the reason if there is only one.
    pub(super) fn starts(&self, memory: u64) -> Result<(Vec<Start>, Option<String>)> {
        if matches!(self, Work::Postmark(_)) {
            let reason = "PostMark makes what it reads, so that nothing of it could be warm before";
            return Ok((vec![Start::Cold], Some(reason.to_owned())));
        }
        let bytes = self.needed_bytes(memory)?;
        if bytes > memory / 10 * FITS_TENTHS {
            let (bytes, memory) = (format::bytes(bytes), format::bytes(memory));
            let reason =
                format!("there is no warm start: {bytes} do not fit into {memory} of cache");
            return Ok((vec![Start::Cold], Some(reason)));
        }
        Ok((vec![Start::Cold, Start::Warm], None))
    }

    /// Returns the workloads of both sides: in a directory, and in its mount through the cache.
    pub(super) fn both_sides(
        &self,
        directories: [&Path; 2],
        memory: u64,
    ) -> Result<[Box<dyn Workload>; 2]> {
        fn boxed<W: Workload + 'static>(sides: [W; 2]) -> [Box<dyn Workload>; 2] {
            sides.map(|side| Box::new(side) as Box<dyn Workload>)
        }
        let bytes = file_bytes(memory);
        Ok(match self {
            Work::Postmark(arguments) => {
                let [native, larder] = directories.map(|path| arguments.in_directory(path));
                boxed([native?, larder?])
            }
            Work::Fileload(arguments) => boxed(arguments.native_and_cached(directories, bytes)?),
            Work::Probe(arguments) => {
                boxed(arguments.native_and_cached(directories, arguments.bytes_or(bytes))?)
            }
        })
    }
}

/// Returns the default bytes of a file: a multiple of the page size, to avoid a partial last page.
fn file_bytes(memory: u64) -> u64 {
    const PAGE_BYTES: u64 = 4096;
    let bytes = (memory / CACHE_DIVISOR).min(FILE_BYTES);
    (bytes - bytes % PAGE_BYTES).max(PAGE_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEMORY: u64 = 256 << 20;

    fn work(kind: Benchmark, line: &str) -> Work {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        Work::parse(kind, &words).unwrap()
    }

    #[test]
    fn files_fit_the_cache_unless_words_say_otherwise() {
        let probe = work(Benchmark::Probe, "");
        assert_eq!(probe.needed_bytes(MEMORY).unwrap(), 64 << 20);
        assert_eq!(probe.needed_bytes(32 << 20).unwrap(), 8 << 20);
        assert_eq!(probe.starts(MEMORY).unwrap(), (vec![Start::Cold, Start::Warm], None));
        let large = work(Benchmark::Probe, "--size 512MiB --pattern R");
        let (starts, reason) = large.starts(MEMORY).unwrap();
        assert_eq!(starts, [Start::Cold]);
        let reason = reason.unwrap();
        assert_eq!(reason, "there is no warm start: 512 MiB do not fit into 256 MiB of cache");
        assert!(probe.writes() && !large.writes());
        let users = work(Benchmark::Fileload, "--users 3 --size 8MiB");
        assert_eq!(users.needed_bytes(MEMORY).unwrap(), 24 << 20);
    }

    #[test]
    fn probe_bypasses_the_page_cache_unless_words_say_otherwise() {
        let is_unbuffered = |line: &str| {
            let Work::Probe(arguments) = work(Benchmark::Probe, line) else { panic!("no probe") };
            arguments.file_options().unbuffered
        };
        assert!(is_unbuffered("") && !is_unbuffered("--size 1MiB"));
    }

    #[test]
    fn a_target_is_refused() {
        let refusal = |line: &str| {
            let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
            Work::parse(Benchmark::Fileload, &words).err().unwrap().to_string()
        };
        assert_eq!(
            refusal("foo"),
            "run fileload here: larder try makes the files that it reads, so leave out the target \
             \"foo\""
        );
        assert!(refusal("--size 8MiB /no/file").ends_with("leave out the target \"/no/file\""));
    }

    #[test]
    fn postmark_has_one_start_and_says_why() {
        let postmark = work(Benchmark::Postmark, "");
        let (starts, reason) = postmark.starts(MEMORY).unwrap();
        assert_eq!(starts, [Start::Cold]);
        assert!(reason.unwrap().starts_with("PostMark makes what it reads"));
        let bytes = postmark.needed_bytes(MEMORY).unwrap();
        assert!((4 << 20..16 << 20).contains(&bytes), "{bytes}");
        let more = work(Benchmark::Postmark, "--number 10000").needed_bytes(MEMORY).unwrap();
        assert!(more > 5 * bytes, "{more}");
    }

    #[test]
    fn both_sides_do_the_same_on_the_same_files() {
        let directory = tempfile::tempdir().unwrap();
        let [files, mount] = ["files", "mount"].map(|name| directory.path().join(name));
        for kind in [Benchmark::Fileload, Benchmark::Probe] {
            let [native, larder] = work(kind, "").both_sides([&files, &mount], MEMORY).unwrap();
            let paths = [native.paths(), larder.paths()];
            assert!(paths[0][0].starts_with(&files) && paths[1][0].starts_with(&mount));
            let names = paths.map(|paths| paths[0].file_name().unwrap().to_owned());
            assert_eq!(names[0], names[1], "{kind:?}");
            assert_eq!(native.description(), larder.description());
        }
    }
}
