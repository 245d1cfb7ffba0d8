//! A combination of settings of a server.

use super::workload::Workload;
use crate::prove::prelude::*;

/// The minimum memory at each depth: a client of a simulation needs 1 MiB of it.
const MEMORY_MIN: [u64; 3] = [8 * MIB, 12 * MIB, 48 * MIB];
/// The settings of a server, and the number of requests in flight.
#[derive(Clone, Copy, Debug)]
pub(super) struct Combination {
    /// Memory as a share of the footprint, in percent.
    percent: u64,
    policy: &'static str,
    page: &'static str,
    read_ahead: bool,
    write_mode: &'static str,
    /// Index of the number of requests in flight in [`super::calibration::DEPTHS`].
    pub(super) depth: usize,
}

const BASE: Combination = Combination {
    percent: 10,
    policy: "s3fifo",
    page: "4KiB",
    read_ahead: true,
    write_mode: "write-back",
    depth: 0,
};

impl Combination {
    /// Returns the combinations of a workload.
    pub(super) fn of(workload: &Workload) -> Vec<Combination> {
        let large = Combination { percent: 33, ..BASE };
        let mut all = vec![
            BASE,
            large,
            Combination { read_ahead: false, ..BASE },
            Combination { policy: "lru", ..BASE },
            Combination { policy: "arc", read_ahead: false, ..large },
            Combination { page: "64KiB", ..large },
        ];
        if workload.is_direct() {
            all.extend([
                Combination { policy: "2q", ..large },
                Combination { write_mode: "write-through", read_ahead: false, ..large },
                Combination { depth: 1, read_ahead: false, ..BASE },
                Combination { depth: 2, read_ahead: false, ..large },
            ]);
        }
        all
    }

    /// Returns the base with another index of [`super::calibration::DEPTHS`].
    pub(super) fn base(depth: usize) -> Combination {
        Combination { depth, ..BASE }
    }

    /// Returns the memory of the server in bytes.
    pub(super) fn memory(&self, footprint_bytes: u64) -> u64 {
        (footprint_bytes * self.percent / 100).max(MEMORY_MIN[self.depth])
    }

    /// Returns the options that the server and the simulation have in common.
    pub(super) fn common(&self) -> String {
        let Combination { policy, page, write_mode, .. } = self;
        let read_ahead = if self.read_ahead { "" } else { " --read-ahead off" };
        format!("--policy {policy} --page-size {page} --write-mode {write_mode}{read_ahead}")
    }
}
