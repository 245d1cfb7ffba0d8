//! A trial without a cache: each request goes directly to the store.

use super::DemoContext;
use super::disk::Disk;
use super::runner::{Rate, Runner};
use anyhow::{Result, anyhow};
use larder_core::clock::Clock;
use larder_core::frames::Frames;
use larder_core::store::{Buffer, Segment, StoreDone, StoreOp, StoreOpKind};
use larder_io::frames::ArenaFrames;
use larder_io::waker::Waker;
use larder_lab::workload::probe::{Action, Probe, ProbeRequest};
use larder_mem::{Arena, ArenaOptions};

pub(super) fn trial(context: &DemoContext, disk: Disk, probe: &Probe, title: &str) -> Result<Rate> {
    let arena = Arena::new(ArenaOptions { frames: 1, huge_pages: false, lock: false })?;
    let frames = ArenaFrames::new(arena);
    let waker = Waker::new()?;
    let mut store = disk.store;
    let mut runner = Runner::new(context, probe, &format!("{title}, without"));
    let mut done = Vec::new();
    while let Some(request) = runner.next()? {
        let now = context.clock.now();
        store.submit(now, &frames, operation(&frames, &request, now));
        while done.is_empty() {
            store.reap(context.clock.now(), &frames, &mut done);
            if done.is_empty() {
                store.wait(&waker, None)?;
            }
        }
        for StoreDone { op, result, .. } in done.drain(..) {
            for segment in op.segments {
                match segment.buffer {
                    Buffer::Owned(pin) => frames.release_write_pin(pin),
                    Buffer::Pinned(pin) => frames.unpin(pin),
                }
            }
            result.map_err(|error| anyhow!("{error}"))?;
        }
        runner.record_completion(&request);
    }
    runner.rate()
}

fn operation(frames: &ArenaFrames, request: &ProbeRequest, now: u64) -> StoreOp<ArenaFrames> {
    let pin = frames.try_write_pin(0).expect("one request at a time");
    let (kind, buffer) = match request.action {
        Action::Read => (StoreOpKind::Read, Buffer::Owned(pin)),
        Action::Write => (StoreOpKind::Write { fua: false }, Buffer::Pinned(frames.downgrade(pin))),
    };
    let len = u32::try_from(request.len).expect("a record");
    StoreOp {
        tag: 0,
        kind,
        offset: request.offset,
        len: request.len,
        segments: vec![Segment { buffer, offset: 0, len }],
        queued_at: now,
    }
}
