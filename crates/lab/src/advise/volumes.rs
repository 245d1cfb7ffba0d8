//! The traffic of each volume, and the reads in order.

use super::order::Sequences;
use super::traffic::Traffic;
use larder_core::store::StoreOpKind;
use larder_schema::share;
use larder_schema::storage_advice::ReadOrder;
use std::ops::Range;

/// The requests of a volume.
#[derive(Clone, Debug)]
pub(super) struct VolumeTraffic {
    pub(super) number: usize,
    /// Its bytes in the traffic.
    pub(super) range: Range<u64>,
    pub(super) requests: u64,
    /// Requests that begin where one of the last ones of the volume ended.
    pub(super) in_order: u64,
    pub(super) writes: u64,
    /// Writes that begin where one of the last writes of the volume ended.
    pub(super) writes_in_order: u64,
}

impl Traffic {
    /// Returns the traffic of each volume.
    pub(super) fn volumes(&self) -> Vec<VolumeTraffic> {
        let ranges = self.volume_ranges();
        let mut all = vec![(0, 0, Sequences::new(), Sequences::new()); ranges.len()];
        for request in self.requests() {
            // Of volumes without bytes the last one has this start.
            let number = ranges.partition_point(|range| range.start <= request.offset) - 1;
            let (requests, writes, sequences, of_writes) = &mut all[number];
            *requests += 1;
            sequences.include(request.offset, request.len);
            if request.kind != StoreOpKind::Read {
                *writes += 1;
                of_writes.include(request.offset, request.len);
            }
        }
        let volume = |(number, (range, counts)): (usize, (Range<u64>, _))| {
            let (requests, writes, sequences, of_writes): (u64, u64, Sequences, Sequences) = counts;
            let (in_order, writes_in_order) = (sequences.in_order, of_writes.in_order);
            VolumeTraffic { number, range, requests, in_order, writes, writes_in_order }
        };
        ranges.into_iter().zip(all).enumerate().map(volume).collect()
    }

    /// Returns the share and the runs of the reads in order.
    #[must_use]
    pub fn read_order(&self) -> ReadOrder {
        let (mut sequences, mut reads) = (Sequences::new(), 0);
        for request in self.requests().iter().filter(|it| it.kind == StoreOpKind::Read) {
            reads += 1;
            sequences.include(request.offset, request.len);
        }
        let Sequences { in_order, runs, .. } = sequences;
        ReadOrder {
            in_order_share: share(in_order, reads).unwrap_or(0.0),
            run_reads: share(in_order + runs, runs).unwrap_or(0.0),
        }
    }
}
