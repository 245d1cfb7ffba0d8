//! Dirty limits that do not match the disk.

use super::observation::bytes;
use super::{Observation, Rule, throttled};
use larder_schema::format;
use larder_schema::watch::Confidence;

/// Time within which dirty data should reach the disk: the kernel's default expiry
/// (`vm.dirty_expire_centisecs` 3000).
const EXPIRE_S: f64 = 30.0;
/// Period of the kernel's flusher threads (`vm.dirty_writeback_centisecs` 500): a limit below the
/// disk's writes in this time stops writers between two periods.
const FLUSH_PERIOD_S: f64 = 5.0;

/// Minimum utilisation of a disk for a valid measurement of its speed.
const BUSY_MIN: f64 = 0.5;

pub(super) const TOO_HIGH: Rule = Rule {
    name: "dirty-limit-high",
    when: "more is dirty than the disk writes in 30 s, by the fastest part of the time in which it \
           was busy for at least half",
    source: "30 s is the age at which Linux writes dirty data (vm.dirty_expire_centisecs 3000)",
    why: "A flush, a stop or a loss of power meets so much data that it takes, or costs, half a \
          minute and more.",
    attempt: &["larder serve IMAGE --set dirty-limit=100 --set age-max=5000 --listen unix:SOCKET"],
    sure: Confidence::Likely,
    seen: too_high,
};

pub(super) const TOO_LOW: Rule = Rule {
    name: "dirty-limit-low",
    when: "writers are made to wait, and the limit is less than the disk writes in 5 s",
    source: "5 s lie between two rounds of the lazy writer of Linux \
             (vm.dirty_writeback_centisecs 500)",
    why: "Writers wait although the disk would take what they write: bursts that fit into memory \
          are not absorbed.",
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
    let (process, fraction) = throttled::worst(observation)?;
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
