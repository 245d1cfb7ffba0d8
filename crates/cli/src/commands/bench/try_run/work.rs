//! What `larder try` does on both sides: one of the benchmarks, twice, on the same files.
//!
//! Files that are worked on are made natively and seen by the other side through the cache, so that
//! both find them at the same places of the disk. Files that the work makes itself (PostMark) are
//! made by each side on its own.

use crate::commands::bench::embedded::parse;
use crate::commands::bench::{fileload, postmark, probe};
use anyhow::{Result, bail};
use clap::ValueEnum;
use larder_lab::bench::{InParts, Start, Workload};
use larder_report::format;
use std::ffi::OsString;
use std::path::Path;

/// The benchmarks that can be tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Kind {
    /// Many small files: create, read, append, delete.
    Postmark,
    /// A file read in order, or at random.
    Fileload,
    /// Random records of a file, read and written.
    Probe,
}

/// What is done if no words say otherwise: enough that a trial is not over in a moment.
const POSTMARK_WORDS: [&str; 4] = ["--number", "1000", "--transactions", "5000"];
/// Files are as large as this, or as a quarter of the cache, whichever is less.
const FILE_BYTES: u64 = 64 << 20;
const CACHE_PART: u64 = 4;
/// A cache that is to hold files as a whole has room for its tables beside them.
const FITS_TENTHS: u64 = 9;

/// One of the benchmarks with its words.
pub(super) enum Work {
    Postmark(Box<postmark::Arguments>),
    Fileload(Box<fileload::Arguments>),
    Probe(Box<probe::Arguments>),
}

/// Work on both sides.
pub(super) struct Both<'a> {
    pub(super) native: &'a mut dyn Workload,
    pub(super) larder: &'a mut dyn Workload,
}

impl Work {
    /// Reads the words, as the benchmark takes them outside.
    pub(super) fn parse(kind: Kind, words: &[String]) -> Result<Work> {
        let said = words.iter().map(OsString::from);
        // Where it works is known later.
        let somewhere = || [OsString::from(".")].into_iter();
        Ok(match kind {
            Kind::Postmark if words.is_empty() => {
                let usual = POSTMARK_WORDS.iter().map(OsString::from);
                Work::Postmark(Box::new(parse("postmark", usual)?))
            }
            Kind::Postmark => Work::Postmark(Box::new(parse("postmark", said)?)),
            Kind::Fileload => {
                let arguments: fileload::Arguments = parse("fileload", somewhere().chain(said))?;
                if let Some(target) = arguments.second_target() {
                    bail!(
                        "run fileload here: larder try makes the files that it reads, so leave out \
                         the target \"{}\"",
                        target.display()
                    );
                }
                Work::Fileload(Box::new(arguments))
            }
            // It takes one target, so that a second one is refused.
            Kind::Probe => Work::Probe(Box::new(parse("probe", somewhere().chain(said))?)),
        })
    }

    /// Whether it writes.
    pub(super) fn writes(&self) -> bool {
        match self {
            Work::Postmark(_) => true,
            Work::Fileload(_) => false,
            Work::Probe(arguments) => arguments.writes(),
        }
    }

    /// The most bytes that its files take at a time.
    pub(super) fn room_bytes(&self, memory: u64) -> Result<u64> {
        Ok(match self {
            Work::Postmark(arguments) => arguments.inside(Path::new("."))?.room_bytes()?,
            Work::Fileload(arguments) => arguments.bytes_or(file_bytes(memory))?,
            Work::Probe(arguments) => arguments.bytes_or(file_bytes(memory)),
        })
    }

    /// From where it starts, and why not from elsewhere as well.
    pub(super) fn starts(&self, memory: u64) -> Result<(Vec<Start>, Option<String>)> {
        if matches!(self, Work::Postmark(_)) {
            let why = "PostMark makes what it reads, so that nothing of it could be warm before";
            return Ok((vec![Start::Cold], Some(why.to_owned())));
        }
        let bytes = self.room_bytes(memory)?;
        if bytes > memory / 10 * FITS_TENTHS {
            let (bytes, memory) = (format::bytes(bytes), format::bytes(memory));
            let why = format!("there is no warm start: {bytes} do not fit into {memory} of cache");
            return Ok((vec![Start::Cold], Some(why)));
        }
        Ok((vec![Start::Cold, Start::Warm], None))
    }

    /// Does something with the work on both sides: in a directory, and where that is seen through the
    /// cache. What it made is not removed: the directory will be.
    pub(super) fn on_both_sides<T>(
        &self,
        [files, mount]: [&Path; 2],
        memory: u64,
        play: impl FnOnce(Both<'_>) -> T,
    ) -> Result<T> {
        let directories = [files, mount];
        Ok(match self {
            Work::Postmark(arguments) => {
                let [mut native, mut larder] = [arguments.inside(files)?, arguments.inside(mount)?];
                play(Both { native: &mut native, larder: &mut larder })
            }
            Work::Fileload(arguments) => {
                let [mut native, mut larder] = arguments.twice(directories, file_bytes(memory))?;
                let (mut native, mut larder) = (native.part(0), larder.part(0));
                play(Both { native: native.as_mut(), larder: larder.as_mut() })
            }
            Work::Probe(arguments) => {
                let bytes = arguments.bytes_or(file_bytes(memory));
                let [mut native, mut larder] = arguments.twice(directories, bytes)?;
                play(Both { native: &mut native, larder: &mut larder })
            }
        })
    }
}

/// Bytes of a file if nobody says: of whole pages, so that nothing of it is a special case.
fn file_bytes(memory: u64) -> u64 {
    const PAGE_BYTES: u64 = 4096;
    let bytes = (memory / CACHE_PART).min(FILE_BYTES);
    (bytes - bytes % PAGE_BYTES).max(PAGE_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEMORY: u64 = 256 << 20;

    fn work(kind: Kind, line: &str) -> Work {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        Work::parse(kind, &words).unwrap()
    }

    #[test]
    fn files_fit_the_cache_unless_words_say_otherwise() {
        let probe = work(Kind::Probe, "");
        assert_eq!(probe.room_bytes(MEMORY).unwrap(), 64 << 20);
        assert_eq!(probe.room_bytes(32 << 20).unwrap(), 8 << 20);
        assert_eq!(probe.starts(MEMORY).unwrap(), (vec![Start::Cold, Start::Warm], None));
        let large = work(Kind::Probe, "--size 512MiB --pattern R");
        let (starts, why) = large.starts(MEMORY).unwrap();
        assert_eq!(starts, [Start::Cold]);
        let why = why.unwrap();
        assert_eq!(why, "there is no warm start: 512 MiB do not fit into 256 MiB of cache");
        assert!(probe.writes() && !large.writes());
        let users = work(Kind::Fileload, "--users 3 --size 8MiB");
        assert_eq!(users.room_bytes(MEMORY).unwrap(), 24 << 20);
    }

    #[test]
    fn a_target_is_refused() {
        let refusal = |line: &str| {
            let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
            Work::parse(Kind::Fileload, &words).err().unwrap().to_string()
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
        let postmark = work(Kind::Postmark, "");
        let (starts, why) = postmark.starts(MEMORY).unwrap();
        assert_eq!(starts, [Start::Cold]);
        assert!(why.unwrap().starts_with("PostMark makes what it reads"));
        let bytes = postmark.room_bytes(MEMORY).unwrap();
        assert!((4 << 20..16 << 20).contains(&bytes), "{bytes}");
        let more = work(Kind::Postmark, "--number 10000").room_bytes(MEMORY).unwrap();
        assert!(more > 5 * bytes, "{more}");
    }

    #[test]
    fn both_sides_do_the_same_on_the_same_files() {
        let directory = tempfile::tempdir().unwrap();
        let [files, mount] = ["files", "mount"].map(|name| directory.path().join(name));
        for kind in [Kind::Fileload, Kind::Probe] {
            let same = work(kind, "").on_both_sides([&files, &mount], MEMORY, |both| {
                let names = [both.native.paths(), both.larder.paths()];
                assert!(names[0][0].starts_with(&files) && names[1][0].starts_with(&mount));
                let names = names.map(|paths| paths[0].file_name().unwrap().to_owned());
                names[0] == names[1] && both.native.description() == both.larder.description()
            });
            assert!(same.unwrap(), "{kind:?}");
        }
    }
}
