//! An array as a store without content: its members are stores with a timing of their own.
//!
//! A request reads what it needs from the members, and when all of that has been read it writes.
//! The model has no stripe cache: two requests to the same stripe do not wait for each other and do
//! not share their reads. A flush goes to all members.

use super::layout::{ArrayLayout, MemberOps, MemberRange, Part};
use super::level::ArrayLevel;
use larder_core::clock::Nanos;
use larder_core::frames::NoFrames;
use larder_core::store::{Geometry, Store, StoreCompletion, StoreOp, StoreOpKind};
use std::collections::HashMap;
use std::fmt;

struct Member {
    store: Box<dyn Store<NoFrames>>,
    /// End of its last operation.
    head: u64,
}

/// A request in progress.
#[derive(Debug)]
struct Request {
    op: StoreOp<NoFrames>,
    started_at: Nanos,
    /// Operations of members that are not complete.
    left: usize,
    /// Operations that follow the reads.
    writes: Vec<MemberRange>,
}

/// An array of stores.
pub struct ArrayStore {
    geometry: Geometry,
    layout: ArrayLayout,
    members: Vec<Member>,
    requests: HashMap<u64, Request>,
    next_number: u64,
    completed: Vec<StoreCompletion<NoFrames>>,
    done: Vec<StoreCompletion<NoFrames>>,
}

impl fmt::Debug for ArrayStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ArrayStore").field("layout", &self.layout).finish_non_exhaustive()
    }
}

impl ArrayStore {
    /// Creates an array; `member` returns a store with a geometry, for the member of a number.
    pub fn new(
        geometry: Geometry,
        layout: ArrayLayout,
        member: impl Fn(Geometry, u32) -> Box<dyn Store<NoFrames>>,
    ) -> Self {
        let of_member = Geometry { length: layout.member_bytes(geometry.length), ..geometry };
        let member = |number| Member { store: member(of_member, number), head: 0 };
        ArrayStore {
            geometry,
            layout,
            members: (0..layout.members).map(member).collect(),
            requests: HashMap::new(),
            next_number: 0,
            completed: Vec::new(),
            done: Vec::new(),
        }
    }

    /// Returns the operations of the members for a request.
    fn member_ops(&self, op: &StoreOp<NoFrames>) -> MemberOps {
        let bytes = op.offset..op.offset + op.len;
        match op.kind {
            StoreOpKind::Read => {
                let parts = self.layout.parts(self.geometry.length, bytes);
                let parts: Vec<MemberRange> = parts.iter().map(|part| self.choose(part)).collect();
                self.layout.read(&parts)
            }
            StoreOpKind::Write { .. } | StoreOpKind::Zero { .. } => {
                self.layout.write(self.geometry.length, bytes)
            }
            StoreOpKind::Discard => self.layout.discard(self.geometry.length, bytes),
            StoreOpKind::Flush => {
                let flush = |member| MemberRange { member, offset: 0, len: 0 };
                MemberOps { reads: Vec::new(), writes: self.layout.alive().map(flush).collect() }
            }
        }
    }

    /// Chooses the copy that is read: the one that continues the last operation of its member, else
    /// that of the member with the fewest operations in flight, else the nearest. Of far and offset
    /// copies, the one at the lower offset (`read_balance` in drivers/md/raid10.c).
    fn choose(&self, part: &Part) -> MemberRange {
        if matches!(self.layout.level, ArrayLevel::FarMirrors | ArrayLevel::OffsetMirrors) {
            let first = part.places.iter().copied().min_by_key(|(_, offset)| *offset);
            return part.range(first.expect("a part has a place"));
        }
        let rank = |&(member, offset): &(usize, u64)| {
            let Member { store, head } = &self.members[member];
            (*head != offset, store.in_flight(), head.abs_diff(offset))
        };
        let place = part.places.iter().copied().min_by_key(rank);
        part.range(place.expect("a part has a place"))
    }

    fn submit_all(
        &mut self,
        now: Nanos,
        frames: &NoFrames,
        (number, kind): (u64, StoreOpKind),
        ranges: &[MemberRange],
    ) {
        for &MemberRange { member, offset, len } in ranges {
            let segments = Vec::new();
            let op = StoreOp { tag: number, kind, offset, len, segments, queued_at: now };
            let member = &mut self.members[member];
            if len > 0 {
                member.head = offset + len;
            }
            member.store.submit(now, frames, op);
        }
    }

    /// Processes the completions of the members up to `now` in order of time.
    fn advance(&mut self, now: Nanos, frames: &NoFrames) {
        while let Some(at) = self.next_of_members().filter(|&at| at <= now) {
            let mut completed = std::mem::take(&mut self.completed);
            for member in &mut self.members {
                member.store.reap(at, frames, &mut completed);
            }
            for StoreCompletion { op, .. } in completed.drain(..) {
                self.complete(at, frames, op.tag);
            }
            self.completed = completed;
        }
    }

    /// Records that an operation of a member is complete.
    fn complete(&mut self, at: Nanos, frames: &NoFrames, number: u64) {
        let request = self.requests.get_mut(&number).expect("a request in progress");
        request.left -= 1;
        if request.left > 0 {
            return;
        }
        let writes = std::mem::take(&mut request.writes);
        if !writes.is_empty() {
            request.left = writes.len();
            let kind = request.op.kind;
            self.submit_all(at, frames, (number, kind), &writes);
            return;
        }
        let Request { op, started_at, .. } = self.requests.remove(&number).expect("just found");
        self.end(op, started_at, at);
    }

    fn end(&mut self, op: StoreOp<NoFrames>, started_at: Nanos, finished_at: Nanos) {
        self.done.push(StoreCompletion { op, result: Ok(()), started_at, finished_at });
    }

    fn next_of_members(&self) -> Option<Nanos> {
        self.members.iter().filter_map(|member| member.store.next_event()).min()
    }
}

impl Store<NoFrames> for ArrayStore {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn submit(&mut self, now: Nanos, frames: &NoFrames, op: StoreOp<NoFrames>) {
        self.advance(now, frames);
        let MemberOps { reads, writes } = self.member_ops(&op);
        let (number, kind) = (self.next_number, op.kind);
        self.next_number += 1;
        let (first, kind, writes) = if reads.is_empty() {
            (writes, kind, Vec::new())
        } else {
            (reads, StoreOpKind::Read, writes)
        };
        if first.is_empty() {
            // A discard of less than a stripe with parity, or an empty request.
            return self.end(op, now, now);
        }
        let request = Request { op, started_at: now, left: first.len(), writes };
        self.requests.insert(number, request);
        self.submit_all(now, frames, (number, kind), &first);
    }

    fn reap(&mut self, now: Nanos, frames: &NoFrames, done: &mut Vec<StoreCompletion<NoFrames>>) {
        self.advance(now, frames);
        done.append(&mut self.done);
    }

    fn in_flight(&self) -> usize {
        self.requests.len() + self.done.len()
    }

    fn next_event(&self) -> Option<Nanos> {
        let done = self.done.iter().map(|done| done.finished_at);
        done.chain(self.next_of_members()).min()
    }
}
