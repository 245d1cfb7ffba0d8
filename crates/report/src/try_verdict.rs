//! Verdict of `larder try`: a sentence that compares the same work natively and through larder:
//! which start states are better or worse, by what factor, and for which reason.
//!
//! Invariants: better and worse are the verdicts of [`crate::compare`], for the main series of each
//! start state; a reason is given only if the counts support it, and otherwise the sentence says
//! that none is known. Larder's counts are series of its runs with the names below; each value
//! covers one trial, until all data is written back. Ratios are larder over native, inverted if
//! less is better.

use crate::compare::{self, CompareError};
use crate::quantity::speed_words;
use crate::stats::median;
use larder_schema::compare::{SeriesComparison, Verdict};
use larder_schema::format;
use larder_schema::run::Part;
use larder_schema::run::trial::Start;
use larder_schema::run::{Direction, Run};

/// Label of a part that names its side.
pub const SIDE: &str = "side";
/// Side without larder.
pub const NATIVE: &str = "native";
/// Side through larder.
pub const LARDER: &str = "larder";

/// Pages touched by reads.
pub const READ_PAGES: &str = "pages read";
/// Those pages that were in the cache, from read-ahead or otherwise.
pub const HIT_PAGES: &str = "pages read, of these in the cache";
/// Those pages from read-ahead that were touched for the first time.
pub const AHEAD_PAGES: &str = "pages read, of these read ahead";
/// Pages touched by writes.
pub const WRITTEN_PAGES: &str = "pages written";
/// Writes to the disk, until all data was written.
pub const DISK_WRITES: &str = "writes to the disk";
/// Share of pages that were in the cache, percent.
pub const HITS: &str = "hits";
/// Written pages per write to the disk.
pub const GATHERED: &str = "pages per disk write";

/// Minimum share of hits or read-ahead pages to name them as a reason.
const SHARE_MIN: f64 = 0.2;
/// Minimum number of pages per disk write to name the gathering of writes as a reason.
const GATHERED_MIN: f64 = 1.5;
/// Speed of a cold start relative to a warm one: above this share the disk is almost as fast as
/// memory; below it, the disk takes most of the time.
const FAST_DISK: f64 = 0.5;
/// Maximum share of the written bytes that the disks transferred, if memory absorbed the writes.
const MOVED_MAX: f64 = 0.1;

/// Comparison of both sides for one start state.
struct Side<'a> {
    start: Start,
    native: &'a Run,
    larder: &'a Run,
    compared: SeriesComparison,
}

/// Returns the verdict on parts that are labeled with their sides.
///
/// # Errors
/// The sides have different workloads.
pub fn verdict(parts: &[Part]) -> Result<String, CompareError> {
    let sides = sides(parts)?;
    // The sentence groups equal verdicts.
    let kinds = [Verdict::Better, Verdict::Worse, Verdict::CannotTell];
    let words =
        kinds.iter().flat_map(|kind| sides.iter().filter(|it| it.compared.verdict == *kind));
    let words: Vec<String> = words.map(|side| side.in_words(&sides)).collect();
    Ok(format!("Through larder: {}.", words.join("; ")))
}

/// Returns true if a run compares the same work natively and through larder.
pub(crate) fn is_try(run: &Run) -> bool {
    run.workload == "try" || run.parts.iter().any(|part| part.labels.contains_key(SIDE))
}

/// Returns the comparison of the main series from each start state, native first; `None` for other
/// runs.
pub(crate) fn comparisons(run: &Run) -> Option<Vec<(&'static str, SeriesComparison)>> {
    let sides = is_try(run).then(|| sides(&run.parts))?.ok()?;
    Some(sides.into_iter().map(|side| (side.start.name(), side.compared)).collect())
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

/// Returns the one of the [`comparisons`] that has the start state of a part; `None` for native
/// parts.
pub(crate) fn comparison_of<'a>(
    comparisons: &'a [(&'static str, SeriesComparison)],
    part: &Part,
) -> Option<&'a SeriesComparison> {
    if part.labels.get(SIDE)? != LARDER {
        return None;
    }
    let start = start(&part.run).name();
    comparisons.iter().find(|(of, _)| *of == start).map(|(_, compared)| compared)
}

/// Returns words for the trials of some parts of a comparison, as in "the cold trials of both and
/// the warm trials of larder"; `None` for other runs.
pub(crate) fn trials_in_words(some: &[&Part], all: &[Part]) -> Option<String> {
    let is_of = |part: &Part, side: &str| part.labels.get(SIDE).is_some_and(|it| it == side);
    if !all.iter().all(|part| is_of(part, NATIVE) || is_of(part, LARDER)) {
        return None;
    }
    let side_of = |part: &Part| if is_of(part, NATIVE) { NATIVE } else { LARDER };
    let side = side_of(some.first()?);
    let of_side = all.iter().filter(|part| is_of(part, side)).count();
    if some.len() == of_side && some.iter().all(|part| is_of(part, side)) {
        return Some(format!("the trials of {side}"));
    }
    let of_start = |wanted: Start| {
        let sides: Vec<&str> = some
            .iter()
            .filter(|part| start(&part.run) == wanted)
            .map(|part| side_of(part))
            .collect();
        let side = match sides.as_slice() {
            [] => return None,
            [side] => side,
            _ => "both",
        };
        Some(format!("the {} trials of {side}", wanted.name()))
    };
    Some(Start::ALL.into_iter().filter_map(of_start).collect::<Vec<_>>().join(" and "))
}

fn start(run: &Run) -> Start {
    run.trials.first().map_or(Start::AsIs, |trial| trial.started.start)
}

/// Returns the sum of a series over all trials, or `None` if it was not counted.
fn series_sum(run: &Run, series: &str) -> Option<f64> {
    Some(run.sample(series)?.values.iter().sum())
}

fn main_median(run: &Run) -> Option<f64> {
    median(&run.main_sample()?.values)
}

/// Returns a share of the pages that were read through larder, or `None` if there were none: the
/// median of the trials, as in the table.
fn page_share(run: &Run, series: &str) -> Option<f64> {
    let values = |series| run.sample(series).map(|sample| sample.values.iter());
    let trials = values(series)?.zip(values(READ_PAGES)?);
    let shares: Vec<f64> = trials
        .filter(|(_, pages)| **pages > 0.0)
        .map(|(of_series, pages)| of_series / pages)
        .collect();
    median(&shares)
}

impl Side<'_> {
    /// Describes the comparison, as in "better from a cold start (3.1 times as fast, 2.9 to 3.3),
    /// since ...".
    fn in_words(&self, all: &[Side<'_>]) -> String {
        let from = if all.len() == 1 {
            String::new()
        } else {
            format!(" from a {} start", self.start.name())
        };
        let SeriesComparison { verdict, why, .. } = &self.compared;
        let (words, times) = (format!("{}{from}", verdict.words()), self.times());
        match verdict {
            Verdict::Better => format!("{words} ({times}), since {}", self.gain()),
            Verdict::Worse => format!("{words} ({times}), since {}", self.loss(all)),
            // A result that looks better needs no reason for a loss.
            Verdict::CannotTell if self.looks_better() => format!("{words} ({times}; {why})"),
            Verdict::CannotTell => format!("{words} ({times}; {why}): {}", self.loss(all)),
        }
    }

    /// Returns true if less is better.
    fn is_time(&self) -> bool {
        self.native.main_sample().and_then(|main| main.better) == Some(Direction::Lower)
    }

    fn looks_better(&self) -> bool {
        let more = 1.0 + compare::THRESHOLD;
        let is_time = self.is_time();
        self.compared.ratio.is_some_and(|it| if is_time { it * more < 1.0 } else { it > more })
    }

    /// Formats the speed factor, with the bounds of its interval.
    fn times(&self) -> String {
        let SeriesComparison {
            ratio: Some(ratio),
            ratio_low: Some(low),
            ratio_high: Some(high),
            ..
        } = self.compared
        else {
            return "no ratio".to_owned();
        };
        if self.native.trials.len().min(self.larder.trials.len()) < 2 {
            // The bounds of one value each are not those of an interval.
            return speed_words(if self.is_time() { 1.0 / ratio } else { ratio });
        }
        let [ratio, low, high] =
            if self.is_time() { [1.0 / ratio, 1.0 / high, 1.0 / low] } else { [ratio, low, high] };
        if low < 1.0 && high > 1.0 {
            let [ratio, low, high] = [ratio, low, high].map(speed_words);
            return format!("{ratio}, from {low} to {high}");
        }
        let (factors, words) = if high <= 1.0 {
            ([ratio, high, low].map(f64::recip), "slower")
        } else {
            ([ratio, low, high], "as fast")
        };
        let [ratio, low, high] = factors.map(format::number);
        format!("{ratio} times {words}, {low} to {high}")
    }

    /// Returns the reasons for a gain, as far as the counts show them.
    fn gain(&self) -> String {
        let mut reasons = Vec::new();
        let ahead = page_share(self.larder, AHEAD_PAGES).unwrap_or(0.0);
        let mut reused = page_share(self.larder, HIT_PAGES).unwrap_or(0.0);
        if ahead >= SHARE_MIN {
            reasons
                .push(format!("{} of the pages read had been read ahead", format::percent(ahead)));
            reused -= ahead;
        }
        if reused >= SHARE_MIN {
            reasons
                .push(format!("{} of the pages read were in its cache", format::percent(reused)));
        }
        reasons.extend(self.gathered_writes());
        let written = series_sum(self.larder, WRITTEN_PAGES).filter(|pages| *pages > 0.0);
        match (reasons.is_empty(), written) {
            (false, _) => reasons.join(" and "),
            (true, Some(_)) => "writes were acknowledged from memory and written later".to_owned(),
            (true, None) => "no counter explains it".to_owned(),
        }
    }

    /// Describes the reduction of disk writes, if there is one.
    fn gathered_writes(&self) -> Option<String> {
        let pages = median(&self.larder.sample(GATHERED)?.values)?;
        let pages_text = format::number(pages);
        (pages >= GATHERED_MIN)
            .then(|| format!("each write of the disk had {pages_text} written pages"))
    }

    /// Returns true if the work deliberately bypasses the page cache.
    fn bypasses_cache(&self) -> bool {
        let words = |name: &str| self.native.settings.get(name).and_then(|value| value.as_str());
        words("hint") == Some("no-buffering")
            || words("target").is_some_and(|target| target.contains("past the page cache"))
    }

    /// Returns the reason for the lack of a gain.
    fn loss(&self, all: &[Side<'_>]) -> String {
        let through = "every call passes through a second program (FUSE)";
        if self.bypasses_cache() {
            return format!("through larder {through}");
        }
        if self.start == Start::Warm {
            return format!("the kernel's own cache holds all of it, and through larder {through}");
        }
        let trials = &self.native.trials;
        let written = series_sum(self.native, "bytes written");
        let moved: u64 = trials.iter().filter_map(|trial| trial.disk_bytes).sum();
        if let Some(written) = written {
            // The workload reads its files again, and soon removes them.
            if larder_schema::as_f64(moved) < written * MOVED_MAX {
                return format!(
                    "the kernel's own cache holds all of it (the disk moved {} of {} that were \
                     written), and through larder {through}",
                    format::bytes(moved),
                    format::bytes(larder_schema::as_u64(written))
                );
            }
            return format!("the disk creates and removes the names in both cases, and {through}");
        }
        let warm = all.iter().find(|side| side.start == Start::Warm);
        let share_of_warm = |run: for<'a> fn(&'a Side<'a>) -> &'a Run| {
            Some(main_median(run(self))? / main_median(run(warm?))?)
        };
        if let Some(part) = share_of_warm(|side| side.native)
            && part >= FAST_DISK
        {
            let nearly = format!("nearly as fast as memory here ({} of it)", format::percent(part));
            let speed = if part < 1.0 { &nearly } else { "as fast as memory here" };
            return format!("the disk is {speed}, and through larder {through}");
        }
        let hits = page_share(self.larder, HIT_PAGES).unwrap_or(0.0);
        if hits < SHARE_MIN {
            return format!(
                "both wait for the same disk: {} of the pages that were read were in the cache",
                format::percent(hits)
            );
        }
        if let Some(part) = share_of_warm(|side| side.larder)
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
