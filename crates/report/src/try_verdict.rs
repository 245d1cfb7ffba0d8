//! The verdict of `larder try`: the same work natively and through larder, in one sentence that
//! says what is better, what is worse, by how much, and in what that lies.
//!
//! Invariants: better and worse are those of [`crate::compare`], series by series and start by
//! start; a reason is only given if what was counted bears it out, and where nothing does, that is
//! said. What larder counted stands in series of its runs, whose names are here; they count what
//! happened in one trial, up to when everything was written. Ratios are larder's side over the
//! native one, turned round where less is better.

use crate::compare::{self, CompareError, Compared, Verdict};
use crate::format;
use crate::run::parts::Part;
use crate::run::trial::Start;
use crate::run::{Direction, Run};
use crate::stats::median;

/// The label of a part that says on which side it is.
pub const SIDE: &str = "side";
/// Past larder.
pub const NATIVE: &str = "native";
/// Through larder.
pub const LARDER: &str = "larder";

/// Pages that reads touched.
pub const READ_PAGES: &str = "pages read";
/// Those of them that were in the cache, read ahead or not.
pub const HIT_PAGES: &str = "pages read, of these in the cache";
/// Those of them that had been read ahead and were touched for the first time.
pub const AHEAD_PAGES: &str = "pages read, of these read ahead";
/// Pages that writes touched.
pub const WRITTEN_PAGES: &str = "pages written";
/// Writes to the disk, until everything was written.
pub const DISK_WRITES: &str = "writes to the disk";
/// The share of pages that were in the cache, per cent.
pub const HITS: &str = "hits";
/// How many written pages went to the disk with one write.
pub const GATHERED: &str = "pages per disk write";

/// From this share on hits, or what was read ahead, are a reason.
const MANY: f64 = 0.2;
/// From so many pages on that go with one write, gathering is a reason.
const FEW_WRITES: f64 = 1.5;
/// If a cold start is this fast beside a warm one, the disk is nearly as fast as memory; if it is
/// slower, most of the time is the disk's.
const FAST_DISK: f64 = 0.5;
/// If disks moved less than this share of what was written, memory had it all.
const LITTLE: f64 = 0.1;

/// What can be said of one start.
struct Side<'a> {
    start: Start,
    native: &'a Run,
    larder: &'a Run,
    compared: Compared,
}

/// The verdict on parts that are labelled with their sides.
///
/// # Errors
/// The sides measured different things.
pub fn verdict(parts: &[Part]) -> Result<String, CompareError> {
    let sides = sides(parts)?;
    // Those that are alike are said together.
    let kinds = [Verdict::Better, Verdict::Worse, Verdict::CannotTell];
    let said = kinds.iter().flat_map(|kind| sides.iter().filter(|it| it.compared.verdict == *kind));
    let said: Vec<String> = said.map(|side| side.in_words(&sides)).collect();
    Ok(format!("Through larder: {}.", said.join("; ")))
}

fn sides(parts: &[Part]) -> Result<Vec<Side<'_>>, CompareError> {
    let of = |side: &'static str| {
        let is_of = move |part: &&Part| part.labels.get(SIDE).is_some_and(|it| it == side);
        parts.iter().filter(is_of).map(|part| &part.run)
    };
    let mut sides = Vec::new();
    for native in of(NATIVE) {
        let start = start(native);
        let Some(larder) = of(LARDER).find(|run| self::start(run) == start) else { continue };
        let compared = compare::compare(native, larder, compare::THRESHOLD)?.series.remove(0);
        sides.push(Side { start, native, larder, compared });
    }
    Ok(sides)
}

fn start(run: &Run) -> Start {
    run.trials.first().map_or(Start::AsIs, |trial| trial.started.start)
}

/// The sum of a series over all trials; nothing where it was not counted.
fn sum(run: &Run, series: &str) -> Option<f64> {
    Some(run.sample(series)?.values.iter().sum())
}

fn main_median(run: &Run) -> Option<f64> {
    median(&run.main_sample()?.values)
}

/// A share of the pages that were read through larder; nothing if none was.
fn share(run: &Run, series: &str) -> Option<f64> {
    let pages = sum(run, READ_PAGES).filter(|pages| *pages > 0.0)?;
    Some(sum(run, series)? / pages)
}

fn rounded(value: f64) -> String {
    format::count(crate::advise::as_u64(value))
}

impl Side<'_> {
    /// As in "better from a cold start (3.1 times as fast, 2.9 to 3.3), since ...".
    fn in_words(&self, all: &[Side<'_>]) -> String {
        let from = if all.len() == 1 {
            String::new()
        } else {
            format!(" from a {} start", self.start.name())
        };
        let Compared { verdict, why, .. } = &self.compared;
        let (said, times) = (format!("{}{from}", verdict.words()), self.times());
        match verdict {
            Verdict::Better => format!("{said} ({times}), since {}", self.gain()),
            Verdict::Worse => format!("{said} ({times}), since {}", self.loss(all)),
            // Why it would not be better is no answer if it looks so.
            Verdict::CannotTell if self.looks_better() => format!("{said} ({times}; {why})"),
            Verdict::CannotTell => format!("{said} ({times}; {why}): {}", self.loss(all)),
        }
    }

    /// Whether less is better.
    fn is_time(&self) -> bool {
        self.native.main_sample().and_then(|main| main.better) == Some(Direction::Lower)
    }

    fn looks_better(&self) -> bool {
        let more = 1.0 + compare::THRESHOLD;
        let is_time = self.is_time();
        self.compared.ratio.is_some_and(|it| if is_time { it * more < 1.0 } else { it > more })
    }

    /// How many times as fast, with the ends of the interval.
    fn times(&self) -> String {
        let Compared { ratio: Some(ratio), ratio_low: Some(low), ratio_high: Some(high), .. } =
            self.compared
        else {
            return "no ratio".to_owned();
        };
        let [ratio, low, high] =
            if self.is_time() { [1.0 / ratio, 1.0 / high, 1.0 / low] } else { [ratio, low, high] };
        let [ratio, low, high] = [ratio, low, high].map(format::number);
        format!("{ratio} times as fast, {low} to {high}")
    }

    /// What made it faster, as far as it was counted.
    fn gain(&self) -> String {
        let mut reasons = Vec::new();
        let ahead = share(self.larder, AHEAD_PAGES).unwrap_or(0.0);
        let again = share(self.larder, HIT_PAGES).unwrap_or(0.0) - ahead;
        if ahead >= MANY {
            reasons.push(format!("{} of the pages had been read ahead", format::percent(ahead)));
        }
        if again >= MANY {
            reasons.push(format!("{} of the pages were in its cache", format::percent(again)));
        }
        reasons.extend(self.gathered());
        let written = sum(self.larder, WRITTEN_PAGES).filter(|pages| *pages > 0.0);
        match (reasons.is_empty(), written) {
            (false, _) => reasons.join(" and "),
            (true, Some(_)) => "writes were answered from memory and done later".to_owned(),
            (true, None) => "of what it counted nothing tells why".to_owned(),
        }
    }

    /// Writes that became fewer, if they did.
    fn gathered(&self) -> Option<String> {
        let (pages, writes) = (sum(self.larder, WRITTEN_PAGES)?, sum(self.larder, DISK_WRITES)?);
        let is_gathered = pages > 0.0 && pages >= writes * FEW_WRITES;
        is_gathered.then(|| {
            format!(
                "{} written pages became {} writes of the disk",
                rounded(pages),
                rounded(writes)
            )
        })
    }

    /// Whether the work goes past the kernel's cache on purpose.
    fn is_past_cache(&self) -> bool {
        let said = |name: &str| self.native.settings.get(name).and_then(|value| value.as_str());
        said("hint") == Some("no-buffering")
            || said("target").is_some_and(|target| target.contains("past the page cache"))
    }

    /// Why it is not faster.
    fn loss(&self, all: &[Side<'_>]) -> String {
        let through = "every call of a program goes through another one (FUSE)";
        if self.is_past_cache() {
            return format!("through larder {through}");
        }
        if self.start == Start::Warm {
            return format!("the kernel's own cache has it all, and through larder {through}");
        }
        let trials = &self.native.trials;
        let written = sum(self.native, "bytes written");
        let moved: u64 = trials.iter().filter_map(|trial| trial.disk_bytes).sum();
        if let Some(written) = written {
            // What is made here is read again, and gone before long.
            if crate::advise::as_f64(moved) < written * LITTLE {
                return format!(
                    "the kernel's own cache has it all (the disk moved {} of {} that were \
                     written), and through larder {through}",
                    format::bytes(moved),
                    format::bytes(crate::advise::as_u64(written))
                );
            }
            return format!("names are made and removed by the disk all the same, and {through}");
        }
        let warm = all.iter().find(|side| side.start == Start::Warm);
        let warm = warm.and_then(|side| main_median(side.native));
        if let Some(part) = main_median(self.native).zip(warm).map(|(cold, warm)| cold / warm)
            && part >= FAST_DISK
        {
            return format!(
                "the disk is nearly as fast as memory here ({} of it), and through larder \
                 {through}",
                format::percent(part)
            );
        }
        let hits = share(self.larder, HIT_PAGES).unwrap_or(0.0);
        if hits < MANY {
            return format!(
                "both wait for the same disk: {} of the pages that were read were in the cache",
                format::percent(hits)
            );
        }
        let warm = all.iter().find(|side| side.start == Start::Warm);
        let warm = warm.and_then(|side| main_median(side.larder));
        if let Some(part) = main_median(self.larder).zip(warm).map(|(cold, warm)| cold / warm)
            && part < FAST_DISK
        {
            return format!(
                "through larder most of the time is spent waiting for the disk ({} of the speed of \
                 a warm start): the kernel reads ahead better here",
                format::percent(part)
            );
        }
        format!("through larder {through}, which outweighs {} hits", format::percent(hits))
    }
}

#[cfg(test)]
mod tests;
