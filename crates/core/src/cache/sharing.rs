//! Division of the pool among volumes by marginal gain: `--share auto`.
//!
//! Every few seconds the curves of all volumes, weighted by their references per second, give the
//! division with the most hits ([`crate::share`]). Each volume's *target* moves a part of the way
//! there, if the gain is large enough, and evictions take frames from volumes above their target.
//! Floors and ceilings of the user still apply, and free frames go to any volume that needs them.
//! So a new division drops no pages; it takes effect as pages are replaced.

use super::Cache;
use crate::clock::{Nanos, SECOND};
use crate::frames::Frames;
use crate::input::Input;
use crate::named::Live;
use crate::settings::ShareMode;
use crate::share::{self, Claim};
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{Arc, Mutex, lock};
use crate::units::BLOCK_BYTES_U64;
use crate::units::as_f64;
use crate::volume::Volume;
use std::collections::BTreeMap;

/// Interval between two computations of the division.
const DIVISION_INTERVAL: Nanos = 2 * SECOND;
/// Share of the distance to the best division by which targets move at a time.
const STEP_SHARE: f64 = 0.25;
/// Minimum gain of a new division, as a share of all references.
const GAIN_MIN: f64 = 0.001;
/// Weight of earlier intervals in the smoothed rate of references.
const OLD_RATE_WEIGHT: f64 = 0.75;

/// Reference rate of a volume.
#[derive(Clone, Copy, Debug, Default)]
struct ReferenceRate {
    /// Number of references up to the last computation.
    references: f64,
    /// References per second, smoothed.
    rate: f64,
}

/// State of the division of the pool.
#[derive(Debug)]
pub(super) struct Sharing {
    mode: Live<ShareMode>,
    due: AtomicU64,
    rates: Mutex<(Nanos, BTreeMap<u16, ReferenceRate>)>,
}

impl Sharing {
    pub(super) fn new() -> Self {
        Sharing {
            mode: Live::new(ShareMode::Coldest),
            due: AtomicU64::new(0),
            rates: Mutex::new((0, BTreeMap::new())),
        }
    }
}

impl<F: Frames> Cache<F> {
    /// Returns the division mode of the pool.
    #[must_use]
    pub fn share_mode(&self) -> ShareMode {
        self.sharing.mode.get()
    }

    /// Sets the division mode of the pool.
    pub fn set_share_mode(&self, mode: ShareMode) {
        let _logged = self.log.add(|| Input::Share { mode });
        // A division that was computed in the previous mode must not take effect after the change.
        let _one_at_a_time = lock(&self.settings);
        self.sharing.mode.set(mode);
        self.sharing.due.store(0, Ordering::Relaxed);
        if mode == ShareMode::Coldest {
            for volume in lock(&self.pool.volumes).iter().flatten() {
                volume.quota.set_target(None);
            }
            self.update_capacities();
        }
    }

    /// Selects the volumes that should give up a page, of those that may: with targets, those above
    /// their target, or above it with one more page for `volume`.
    pub(super) fn select_givers(
        volume: Option<u16>,
        all: Vec<&Arc<Volume<F>>>,
    ) -> Vec<&Arc<Volume<F>>> {
        let is_above_target = |other: &&&Arc<Volume<F>>| {
            let usage = u64::from(other.quota.usage()) + u64::from(Some(other.id) == volume);
            other.quota.target().is_some_and(|target| usage > u64::from(target))
        };
        let above_target: Vec<_> = all.iter().filter(is_above_target).copied().collect();
        if above_target.is_empty() { all } else { above_target }
    }

    /// Computes the division if it is due.
    pub(super) fn share(&self, now: Nanos) {
        if self.share_mode() == ShareMode::Coldest || now < self.sharing.due.load(Ordering::Relaxed)
        {
            return;
        }
        let mut rates = lock(&self.sharing.rates);
        if now < self.sharing.due.load(Ordering::Relaxed) {
            return;
        }
        self.sharing.due.store(now + DIVISION_INTERVAL, Ordering::Relaxed);
        let volumes = self.volumes();
        let seconds = as_f64(now.saturating_sub(rates.0).max(1)) / as_f64(SECOND);
        rates.0 = now;
        let claims: Vec<Claim> =
            volumes.iter().map(|volume| self.claim(volume, &mut rates.1, seconds)).collect();
        let total: f64 = rates.1.values().map(|volume_rate| volume_rate.rate).sum();
        drop(rates);
        let targets =
            targets(&claims, &self.current_targets(&volumes), self.pool.size().into(), total);
        let _one_at_a_time = lock(&self.settings);
        if self.share_mode() == ShareMode::Coldest {
            return;
        }
        for (volume, target) in volumes.iter().zip(targets) {
            volume.quota.set_target(Some(u32::try_from(target).unwrap_or(u32::MAX)));
        }
        self.update_capacities();
    }

    /// Returns the gain of a volume from frames, in hits per second.
    fn claim(
        &self,
        volume: &Volume<F>,
        rates: &mut BTreeMap<u16, ReferenceRate>,
        seconds: f64,
    ) -> Claim {
        let (floor, ceiling) = (volume.quota.floor(), volume.quota.max().min(self.pool.size()));
        let (floor, ceiling) = (u64::from(floor), u64::from(ceiling));
        let Some(locked_tracker) = &volume.tuning.tracker else {
            return Claim { points: Vec::new(), floor, ceiling };
        };
        let tracker = locked_tracker.tracker();
        let curve = tracker.curve(volume.page_bytes());
        let references = tracker.references();
        drop(tracker);
        let volume_rate = rates.entry(volume.id).or_default();
        let rate = (references - volume_rate.references) / seconds;
        let first = volume_rate.references == 0.0;
        volume_rate.rate = if first {
            rate
        } else {
            volume_rate.rate * OLD_RATE_WEIGHT + rate * (1.0 - OLD_RATE_WEIGHT)
        };
        volume_rate.references = references;
        let point = |p: &crate::curve::report::CurvePoint| {
            (p.bytes / BLOCK_BYTES_U64, p.estimate.hit_ratio * volume_rate.rate)
        };
        Claim { points: curve.iter().map(point).collect(), floor, ceiling }
    }

    /// Returns the present targets; volumes without one get equal parts.
    fn current_targets(&self, volumes: &[Arc<Volume<F>>]) -> Vec<u64> {
        let equal = u64::from(self.pool.size()) / (volumes.len().max(1) as u64);
        let target = |volume: &Arc<Volume<F>>| volume.target_frames().map_or(equal, u64::from);
        volumes.iter().map(target).collect()
    }
}

/// Returns the next targets: a part of the way from the present ones to the best division, if its
/// gain is large enough relative to `references` per second. Their sum is `total`, unless the
/// ceilings are lower.
fn targets(claims: &[Claim], current_targets: &[u64], total: u64, references: f64) -> Vec<u64> {
    let best = share::divide(claims, total);
    let gained = |given: &[u64]| -> f64 {
        claims.iter().zip(given).map(|(claim, &given)| share::gain(&claim.points, given)).sum()
    };
    let goal = if gained(&best) - gained(current_targets) > GAIN_MIN * references {
        &best
    } else {
        current_targets
    };
    let step_toward = |(&from, &to): (&u64, &u64)| {
        let distance = as_f64(to.abs_diff(from)) * STEP_SHARE;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "frames")]
        let distance = distance.ceil() as u64;
        if to > from { from + distance } else { from - distance.min(from) }
    };
    let mut next: Vec<u64> = current_targets.iter().zip(goal).map(step_toward).collect();
    for (target, claim) in next.iter_mut().zip(claims) {
        *target = (*target).clamp(claim.floor.min(claim.ceiling), claim.ceiling);
    }
    balance(&mut next, claims, total);
    next
}

/// Distributes the rest of `total` evenly, or subtracts the excess, within floors and ceilings.
fn balance(targets: &mut [u64], claims: &[Claim], total: u64) {
    loop {
        let sum: u64 = targets.iter().sum();
        let margin = |(target, claim): (&u64, &Claim)| {
            if sum < total {
                claim.ceiling.saturating_sub(*target)
            } else {
                target.saturating_sub(claim.floor)
            }
        };
        let margins: Vec<u64> = targets.iter().zip(claims).map(margin).collect();
        let adjustable = margins.iter().filter(|&&margin| margin > 0).count() as u64;
        if sum == total || adjustable == 0 {
            return;
        }
        let mut left = sum.abs_diff(total);
        let each = left.div_ceil(adjustable);
        for (target, margin) in targets.iter_mut().zip(margins) {
            let part = each.min(margin).min(left);
            left -= part;
            *target = if sum < total { *target + part } else { *target - part };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(points: &[(u64, f64)], floor: u64, ceiling: u64) -> Claim {
        Claim { points: points.to_vec(), floor, ceiling }
    }

    #[test]
    fn targets_go_to_where_memory_hits_and_add_up() {
        let hot = claim(&[(600, 90.0)], 0, 1000);
        let scan = claim(&[(1000, 0.0)], 100, 1000);
        let mut targets_now = vec![500, 500];
        for _ in 0..40 {
            targets_now = targets(&[hot.clone(), scan.clone()], &targets_now, 1000, 100.0);
            assert_eq!(targets_now.iter().sum::<u64>(), 1000);
            assert!(targets_now[1] >= 100);
        }
        assert!(targets_now[0] >= 590, "{targets_now:?}");
    }

    #[test]
    fn a_gain_that_is_not_worth_it_moves_nothing() {
        let flat = claim(&[(500, 50.0), (1000, 50.05)], 0, 1000);
        let other = claim(&[(500, 50.0)], 0, 1000);
        assert_eq!(targets(&[flat, other], &[500, 500], 1000, 100.0), [500, 500]);
    }

    #[test]
    fn ceilings_and_floors_hold_whatever_is_left() {
        let small = claim(&[(10, 1.0)], 0, 50);
        let other = claim(&[(10, 1.0)], 30, 60);
        let made = targets(&[small.clone(), other.clone()], &[500, 500], 1000, 100.0);
        assert_eq!(made, [50, 60]);
        let made = targets(&[small, other], &[40, 40], 60, 100.0);
        assert_eq!(made.iter().sum::<u64>(), 60);
        assert!(made[1] >= 30);
    }
}
