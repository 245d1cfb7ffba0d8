//! Access time updates caused by reads.

use super::observation::share;
use super::{Observation, Rule};
use larder_schema::format;
use larder_schema::watch::Confidence;

/// Inodes per second: with relatime the kernel updates a file once a day, so the threshold
/// corresponds to many thousands of files or a mount with strictatime.
const UPDATES_PER_S_MIN: f64 = 1.0;
/// Share of all inodes and pages that became dirty.
const DIRTY_SHARE_MIN: f64 = 0.05;

pub(super) const RULE: Rule = Rule {
    name: "access-times",
    when: "reading alone made at least 1 inode a second dirty, 5 % of all that became so",
    source: "with relatime, the default of Linux, a file is written at most once a day for being \
             read",
    why: "Each read that is answered from memory still costs a write, of the inode and of the \
          journal.",
    attempt: &[
        "larder bench matrix --workload postmark --variant a=;relatime --variant b=;noatime",
    ],
    sure: Confidence::Certain,
    seen,
};

fn seen(observation: &Observation) -> Option<String> {
    let updates = observation.access_time_updates?;
    let dirtied = observation.dirtied_pages.unwrap_or(0);
    let per_s = larder_schema::as_f64(updates) / observation.seconds;
    let fraction = share(updates, updates.saturating_add(dirtied));
    (per_s >= UPDATES_PER_S_MIN && fraction >= DIRTY_SHARE_MIN).then(|| {
        format!(
            "reading made {} inodes a second dirty, {} of all that became dirty",
            format::number(per_s),
            format::percent(fraction)
        )
    })
}
