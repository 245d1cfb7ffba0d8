//! An assignment of items to file systems, with the utilization of each disk.

use super::{BalanceProblem, DiskLoad, DiskUse, UTILIZATION_MAX, busy_share, mean_response};
use std::cmp::Ordering;

/// Differences of utilization below this are none.
const EPSILON: f64 = 1e-9;

/// An assignment.
#[derive(Clone, Debug)]
pub(super) struct Placement<'a> {
    problem: &'a BalanceProblem,
    /// File system of each item.
    pub(super) place: Vec<usize>,
    /// Load of each disk.
    load: Vec<DiskLoad>,
    /// Bytes that have come to each file system. Leaving items free nothing until the last move is
    /// confirmed.
    added_bytes: Vec<u64>,
}

/// The utilization of all disks in descending order, and then the mean response time.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Score {
    sorted: Vec<f64>,
    pub(super) response: f64,
}

impl Score {
    pub(super) fn peak(&self) -> f64 {
        self.sorted.first().copied().unwrap_or(0.0)
    }

    /// Returns true if this score is better than another one.
    pub(super) fn is_better(&self, other: &Score) -> bool {
        let mut pairs = self.sorted.iter().zip(&other.sorted);
        let different = pairs.find(|(a, b)| (**a - **b).abs() > EPSILON);
        match different {
            Some((a, b)) => a < b,
            None => self.response < other.response - EPSILON,
        }
    }
}

impl<'a> Placement<'a> {
    /// Returns the present assignment.
    pub(super) fn present(problem: &'a BalanceProblem) -> Self {
        let mut placement = Placement {
            problem,
            place: problem.items.iter().map(|item| item.place).collect(),
            load: problem.disks.iter().map(|disk| disk.fixed).collect(),
            added_bytes: vec![0; problem.places.len()],
        };
        for item in 0..problem.items.len() {
            placement.add(item, problem.items[item].place, 1.0);
        }
        placement
    }

    fn add(&mut self, item: usize, place: usize, factor: f64) {
        for &(disk, read, write) in &self.problem.places[place].shares {
            self.load[disk] += self.problem.items[item].load.scaled(factor * read, factor * write);
        }
    }

    /// Returns true if an item may move to a file system other than its present one.
    pub(super) fn can_move(&self, item: usize, to: usize) -> bool {
        let (moved, place) = (&self.problem.items[item], &self.problem.places[to]);
        if to == self.place[item] || !moved.is_movable {
            return false;
        }
        to == moved.place
            || (place.is_target
                && self.added_bytes[to].saturating_add(moved.bytes) <= place.free_bytes)
    }

    /// Moves an item; [`Placement::can_move`] has returned true, or this reverts a move.
    pub(super) fn set(&mut self, item: usize, to: usize) {
        let (from, home) = (self.place[item], self.problem.items[item].place);
        let bytes = self.problem.items[item].bytes;
        if from != home {
            self.added_bytes[from] -= bytes;
        }
        if to != home {
            self.added_bytes[to] += bytes;
        }
        self.add(item, from, -1.0);
        self.add(item, to, 1.0);
        self.place[item] = to;
    }

    fn utilization(&self, disk: usize) -> f64 {
        busy_share(&self.problem.disks[disk].limits, &self.load[disk])
    }

    /// Returns the disk with the highest utilization.
    pub(super) fn busiest(&self) -> Option<usize> {
        let disks = 0..self.problem.disks.len();
        disks.max_by(|&a, &b| {
            let by_use = self.utilization(a).partial_cmp(&self.utilization(b));
            by_use.unwrap_or(Ordering::Equal).then(b.cmp(&a))
        })
    }

    /// Returns the utilization of a disk that an item causes.
    pub(super) fn part(&self, item: usize, disk: usize) -> f64 {
        let shares = &self.problem.places[self.place[item]].shares;
        let Some((_, read, write)) = shares.iter().find(|share| share.0 == disk) else {
            return 0.0;
        };
        let load = self.problem.items[item].load.scaled(*read, *write);
        busy_share(&self.problem.disks[disk].limits, &load)
    }

    pub(super) fn uses(&self) -> Vec<DiskUse> {
        (0..self.load.len()).map(|disk| self.disk_use(disk)).collect()
    }

    fn disk_use(&self, disk: usize) -> DiskUse {
        // Loads that were added and subtracted again leave rounding errors.
        let requests_per_s = self.load[disk].requests().max(0.0);
        let utilization = self.utilization(disk);
        if requests_per_s < EPSILON {
            return DiskUse { requests_per_s: 0.0, utilization, response_s: 0.0 };
        }
        let service = utilization / requests_per_s;
        let overload = (utilization / UTILIZATION_MAX).max(1.0);
        let response_s = service * overload / (1.0 - utilization.min(UTILIZATION_MAX));
        DiskUse { requests_per_s, utilization, response_s }
    }

    pub(super) fn score(&self) -> Score {
        let uses = self.uses();
        let mut sorted: Vec<f64> = uses.iter().map(|it| it.utilization).collect();
        sorted.sort_by(|a, b| b.partial_cmp(a).unwrap_or(Ordering::Equal));
        Score { sorted, response: mean_response(&uses) }
    }

    /// Returns the moved items and their bytes.
    pub(super) fn moved(&self) -> (Vec<usize>, u64) {
        let items = self.problem.items.iter().enumerate();
        let moved: Vec<usize> =
            items.filter(|(item, it)| self.place[*item] != it.place).map(|(it, _)| it).collect();
        let bytes = moved.iter().map(|&it| self.problem.items[it].bytes);
        let bytes = bytes.fold(0_u64, u64::saturating_add);
        (moved, bytes)
    }
}
