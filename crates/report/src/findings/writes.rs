//! Rules about writes: throttled writers, dirty limits that do not match the disk, access time
//! updates.

use super::observation::{bytes, share};
use super::{Observation, Rule};
use larder_schema::format;
use larder_schema::watch::Confidence;

/// Minimum share of the time of one process: users notice it, and no healthy run reaches it. The
/// kernel pauses a writer for at most 200 ms at a time (`MAX_PAUSE`, mm/page-writeback.c).
const THROTTLED_MIN: f64 = 0.01;

pub(super) const THROTTLED: Rule = Rule {
    name: "throttled-writers",
    when: "for at least 1 % of the time the kernel made a process wait, because too much data was \
           dirty",
    source: "the kernel pauses a writer for up to 200 ms at a time (MAX_PAUSE of \
             mm/page-writeback.c), which users notice if it happens often",
    why: "Programs write faster than the disk, and the cache may not hold more unwritten data.",
    attempt: &[
        "larder bench probe DIRECTORY",
        "larder serve IMAGE --memory SIZE --listen unix:SOCKET",
    ],
    sure: Confidence::Certain,
    seen: throttled,
};

fn worst_throttled(observation: &Observation) -> Option<(&str, f64)> {
    let waited = observation.processes.iter().filter_map(|process| {
        Some((process.process.as_str(), process.throttled_s? / observation.seconds))
    });
    waited.max_by(|a, b| a.1.total_cmp(&b.1)).filter(|(_, fraction)| *fraction >= THROTTLED_MIN)
}

fn throttled(observation: &Observation) -> Option<String> {
    let (process, fraction) = worst_throttled(observation)?;
    Some(format!("{process} was made to wait for {} of the time", format::percent(fraction)))
}

/// Time within which dirty data should reach the disk: the kernel's default expiry
/// (`vm.dirty_expire_centisecs` 3000).
const EXPIRE_S: f64 = 30.0;
/// Period of the kernel's flusher threads (`vm.dirty_writeback_centisecs` 500): a limit below the
/// disk's writes in this time stops writers between two periods.
const FLUSH_PERIOD_S: f64 = 5.0;

/// Minimum utilization of a disk for a valid measurement of its speed.
const BUSY_MIN: f64 = 0.5;

pub(super) const TOO_HIGH: Rule = Rule {
    name: "dirty-limit-high",
    when: "writing all dirty data would take more than 30 s at the highest write rate that the \
           disk reached while it was at least 50 % busy",
    source: "30 s is the age at which Linux writes dirty data (vm.dirty_expire_centisecs 3000)",
    why: "A flush or a stop has to write data for half a minute and more, and a loss of power \
          loses it.",
    attempt: &["larder serve IMAGE --set dirty-limit=100 --set age-max=5000 --listen unix:SOCKET"],
    sure: Confidence::Likely,
    seen: too_high,
};

pub(super) const TOO_LOW: Rule = Rule {
    name: "dirty-limit-low",
    when: "the kernel makes writers wait, and its limit is less than the disk writes in 5 s",
    source: "the lazy writer of Linux runs every 5 s (vm.dirty_writeback_centisecs 500)",
    why: "Writers wait although the disk is fast enough: bursts that would fit into memory are \
          not absorbed.",
    attempt: &["larder serve IMAGE --memory SIZE --set dirty-limit=900 --listen unix:SOCKET"],
    sure: Confidence::Likely,
    seen: too_low,
};

fn too_high(observation: &Observation) -> Option<String> {
    let speed = observation.write_speed_busy(BUSY_MIN)?;
    let dirty = observation.values(|moment| moment.dirty_bytes);
    let most = dirty.into_iter().max_by(f64::total_cmp)?;
    let write_seconds = most / speed;
    (write_seconds > EXPIRE_S).then(|| {
        format!(
            "up to {} were dirty, for which this disk needs {} s at the {}/s it wrote at best",
            bytes(most),
            format::number(write_seconds),
            bytes(speed)
        )
    })
}

fn too_low(observation: &Observation) -> Option<String> {
    let (process, fraction) = worst_throttled(observation)?;
    let speed = observation.write_speed()?;
    let limits = observation.values(|moment| moment.dirty_limit_bytes);
    let limit = limits.into_iter().min_by(f64::total_cmp)?;
    (limit < FLUSH_PERIOD_S * speed).then(|| {
        format!(
            "{process} waited for {} of the time at a limit of {}, which this disk writes in {} s",
            format::percent(fraction),
            bytes(limit),
            format::number(limit / speed)
        )
    })
}

/// Inodes per second: with relatime the kernel updates a file once a day, so the threshold
/// corresponds to many thousands of files or a mount with strictatime.
const UPDATES_PER_S_MIN: f64 = 1.0;
/// Share of all inodes and pages that became dirty.
const DIRTY_SHARE_MIN: f64 = 0.05;

pub(super) const ACCESS_TIMES: Rule = Rule {
    name: "access-times",
    when: "reading alone made at least 1 inode a second dirty, and at least 5 % of all inodes that \
           became dirty",
    source: "with relatime, the default of Linux, a file is written at most once a day for being \
             read",
    why: "Reads that are answered from memory still cause writes of inodes and of the journal.",
    attempt: &[
        "larder bench matrix --workload postmark --variant a=;relatime --variant b=;noatime",
    ],
    sure: Confidence::Certain,
    seen: access_times,
};

fn access_times(observation: &Observation) -> Option<String> {
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
