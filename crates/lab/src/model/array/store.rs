//! An array as a store without content: its members are stores with a timing of their own.
//!
//! A request reads what it needs from the members, and when all of that has been read it writes.
//! The model has no stripe cache: two requests to the same stripe do not wait for each other and do
//! not share their reads. A flush goes to all members.
//!
//! A member that is rebuilt has failed for the reads of a request that extends beyond its complete
//! part; it receives all writes.

use super::layout::{ArrayLayout, MemberOps, MemberRange, Part};
use super::level::ArrayLevel;
use super::rebuild::Rebuild;
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

/// The cause of a request.
#[derive(Debug)]
enum Cause {
    /// An operation of the array, and the time of its submission.
    Op(StoreOp<NoFrames>, Nanos),
    /// The window of the rebuild that starts here.
    Window(u64),
}

/// A request in progress.
#[derive(Debug)]
struct Request {
    cause: Cause,
    /// Operations of members that are not complete.
    left: usize,
    /// Operations that follow the reads, and their kind.
    writes: Vec<MemberRange>,
    write_kind: StoreOpKind,
}

/// An array of stores.
pub struct ArrayStore {
    geometry: Geometry,
    layout: ArrayLayout,
    members: Vec<Member>,
    rebuild: Option<Rebuild>,
    requests: HashMap<u64, Request>,
    /// Operations of the array that are not complete.
    ops_in_flight: usize,
    member_operations: u64,
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
        let member_bytes = layout.member_bytes(geometry.length);
        let of_member = Geometry { length: member_bytes, ..geometry };
        let member = |number| Member { store: member(of_member, number), head: 0 };
        ArrayStore {
            geometry,
            layout,
            members: (0..layout.members).map(member).collect(),
            rebuild: layout.rebuilt.map(|number| Rebuild::new(&layout, number, member_bytes)),
            requests: HashMap::new(),
            ops_in_flight: 0,
            member_operations: 0,
            next_number: 0,
            completed: Vec::new(),
            done: Vec::new(),
        }
    }

    /// Returns the number of operations of the members so far.
    #[must_use]
    pub fn member_operations(&self) -> u64 {
        self.member_operations
    }

    /// Processes everything up to `now` and returns the bytes of the rebuilt member that are
    /// complete, from the first one on; `None` if no member is rebuilt any more. A rebuild begins
    /// at the first call of any method with a time.
    pub fn rebuilt_bytes(&mut self, now: Nanos) -> Option<u64> {
        self.advance(now, &NoFrames::new(0));
        self.rebuild.as_ref().map(Rebuild::complete_to)
    }

    /// Returns the operations of the members for a request.
    pub(super) fn member_ops(&self, op: &StoreOp<NoFrames>) -> MemberOps {
        let (length, bytes) = (self.geometry.length, op.offset..op.offset + op.len);
        let is_incomplete =
            |rebuild: &&Rebuild| self.layout.member_end(length, &bytes) > rebuild.complete_to();
        let Some(rebuild) = self.rebuild.as_ref().filter(is_incomplete) else {
            return self.ops_of(&self.layout, op);
        };
        let member = u32::try_from(rebuild.member).expect("a number of a member");
        let mut ops = self.ops_of(&self.layout.without(member), op);
        if op.kind != StoreOpKind::Read {
            let of_all = self.ops_of(&self.layout, op).writes.into_iter();
            ops.writes.extend(of_all.filter(|range| range.member == rebuild.member));
        }
        ops
    }

    /// Returns the operations of a request with this layout.
    fn ops_of(&self, layout: &ArrayLayout, op: &StoreOp<NoFrames>) -> MemberOps {
        let bytes = op.offset..op.offset + op.len;
        match op.kind {
            StoreOpKind::Read => {
                let parts = layout.parts(self.geometry.length, bytes);
                let parts: Vec<MemberRange> = parts.iter().map(|part| self.choose(part)).collect();
                layout.read(&parts)
            }
            StoreOpKind::Write { .. } | StoreOpKind::Zero { .. } => {
                layout.write(self.geometry.length, bytes)
            }
            StoreOpKind::Discard => layout.discard(self.geometry.length, bytes),
            StoreOpKind::Flush => {
                let flush = |member| MemberRange { member, offset: 0, len: 0 };
                MemberOps { reads: Vec::new(), writes: layout.alive().map(flush).collect() }
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
        self.member_operations += ranges.len() as u64;
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

    /// Begins a request whose operations are `ops`, of which there is one at least.
    fn begin(
        &mut self,
        now: Nanos,
        frames: &NoFrames,
        (cause, write_kind): (Cause, StoreOpKind),
        ops: MemberOps,
    ) {
        let MemberOps { reads, writes } = ops;
        let (first, kind, writes) = if reads.is_empty() {
            (writes, write_kind, Vec::new())
        } else {
            (reads, StoreOpKind::Read, writes)
        };
        let number = self.next_number;
        self.next_number += 1;
        let request = Request { cause, left: first.len(), writes, write_kind };
        self.requests.insert(number, request);
        self.submit_all(now, frames, (number, kind), &first);
    }

    /// Processes the completions of the members up to `now` in order of time.
    fn advance(&mut self, now: Nanos, frames: &NoFrames) {
        if self.rebuild.as_ref().is_some_and(|rebuild| !rebuild.has_begun()) {
            self.continue_rebuild(now, frames);
        }
        while let Some(at) = self.next_inner().filter(|&at| at <= now) {
            let mut completed = std::mem::take(&mut self.completed);
            for member in &mut self.members {
                member.store.reap(at, frames, &mut completed);
            }
            for StoreCompletion { op, .. } in completed.drain(..) {
                self.complete(at, frames, op.tag);
            }
            self.completed = completed;
            self.continue_rebuild(at, frames);
        }
    }

    /// Begins as many windows of the rebuild as may be in flight.
    fn continue_rebuild(&mut self, now: Nanos, frames: &NoFrames) {
        while let Some(rebuild) = &mut self.rebuild
            && let Some(window) = rebuild.begin_window(now)
        {
            let (member, kind) = (rebuild.member, StoreOpKind::Write { fua: false });
            let cause = Cause::Window(window.start);
            let ops = self.layout.rebuild(self.geometry.length, member, window);
            self.begin(now, frames, (cause, kind), ops);
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
            let kind = request.write_kind;
            self.submit_all(at, frames, (number, kind), &writes);
            return;
        }
        match self.requests.remove(&number).expect("just found").cause {
            Cause::Op(op, started_at) => self.end(op, started_at, at),
            Cause::Window(start) => {
                let rebuild = self.rebuild.as_mut().expect("a window belongs to a rebuild");
                rebuild.end_window(start);
                if rebuild.is_complete() {
                    self.rebuild = None;
                }
            }
        }
    }

    fn end(&mut self, op: StoreOp<NoFrames>, started_at: Nanos, finished_at: Nanos) {
        self.ops_in_flight -= 1;
        self.done.push(StoreCompletion { op, result: Ok(()), started_at, finished_at });
    }

    /// Returns the time of the next event of the members and of the rebuild.
    fn next_inner(&self) -> Option<Nanos> {
        let of_members = self.members.iter().filter_map(|member| member.store.next_event());
        let rebuild = self.rebuild.as_ref();
        of_members.chain(rebuild.and_then(Rebuild::pause_end)).min()
    }
}

impl Store<NoFrames> for ArrayStore {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn submit(&mut self, now: Nanos, frames: &NoFrames, op: StoreOp<NoFrames>) {
        self.advance(now, frames);
        let (ops, kind) = (self.member_ops(&op), op.kind);
        self.ops_in_flight += 1;
        if ops.reads.is_empty() && ops.writes.is_empty() {
            // A discard of less than a stripe with parity, or an empty request.
            return self.end(op, now, now);
        }
        if let Some(rebuild) = &mut self.rebuild {
            ops.reads.iter().chain(&ops.writes).for_each(|range| rebuild.count_other(range));
        }
        self.begin(now, frames, (Cause::Op(op, now), kind), ops);
    }

    fn reap(&mut self, now: Nanos, frames: &NoFrames, done: &mut Vec<StoreCompletion<NoFrames>>) {
        self.advance(now, frames);
        done.append(&mut self.done);
    }

    fn in_flight(&self) -> usize {
        self.ops_in_flight + self.done.len()
    }

    /// A rebuild alone has no events: the store processes it at the next call.
    fn next_event(&self) -> Option<Nanos> {
        let done = self.done.iter().map(|done| done.finished_at);
        let inner = Some(self.ops_in_flight).filter(|&ops| ops > 0).and_then(|_| self.next_inner());
        done.chain(inner).min()
    }
}
