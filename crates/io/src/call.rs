//! Calls on the cache in one form, whatever they ask for: those who make them keep a call until it
//! has come to its end, tell it what arrives in its lane's mailbox, and ask it again where it found
//! no room.
//!
//! Invariant: a call that is pending is told every completion with its token, and none after it has
//! ended.

use crate::engine::{ArenaCache, ArenaLane};
use crate::frames::ArenaFrames;
use crate::wake::Waker;
use larder_core::clock::Nanos;
use larder_core::lane::Completion;
use larder_core::request::{Assembly, Status, WriteTask};
use larder_core::store::{StoreError, StoreOpKind};
use std::io;
use std::ops::Range;
use std::time::Duration;

/// A call that waits for room is made again after this, told or not.
const RETRY: Duration = Duration::from_millis(20);

/// What arrives in a mailbox.
pub(crate) type Mail = Completion<ArenaFrames>;

/// What a call is made of: asked, asked again when it was stalled, told of what has come.
pub(crate) trait Call {
    fn ask(&mut self, cache: &ArenaCache, lane: &mut ArenaLane, now: Nanos) -> Status;
    fn tell(&mut self, cache: &ArenaCache, lane: &mut ArenaLane, now: Nanos, mail: Mail) -> Status;
}

/// A read.
impl Call for Assembly<ArenaFrames> {
    fn ask(&mut self, cache: &ArenaCache, lane: &mut ArenaLane, now: Nanos) -> Status {
        cache.read(lane, now, self)
    }

    fn tell(&mut self, cache: &ArenaCache, lane: &mut ArenaLane, now: Nanos, mail: Mail) -> Status {
        match self.absorb(cache.frames(), mail) {
            // What had to come first has come: the rest can be asked for now.
            Status::Stalled => cache.read(lane, now, self),
            status => status,
        }
    }
}

/// A write, and its bytes for as long as they are not in the cache.
#[derive(Debug)]
pub(crate) struct Write<B> {
    pub(crate) task: WriteTask,
    pub(crate) bytes: B,
}

impl<B: AsRef<[u8]>> Call for Write<B> {
    fn ask(&mut self, cache: &ArenaCache, lane: &mut ArenaLane, now: Nanos) -> Status {
        cache.write(lane, now, &mut self.task, self.bytes.as_ref())
    }

    fn tell(&mut self, cache: &ArenaCache, lane: &mut ArenaLane, now: Nanos, mail: Mail) -> Status {
        match mail {
            Completion::Continue { .. } => self.ask(cache, lane, now),
            mail => cache.write_completed(lane, now, &mut self.task, mail),
        }
    }
}

/// A flush.
#[derive(Debug)]
pub(crate) struct Flush {
    pub(crate) token: u64,
}

impl Call for Flush {
    fn ask(&mut self, cache: &ArenaCache, lane: &mut ArenaLane, now: Nanos) -> Status {
        cache.flush(lane, now, self.token)
    }

    fn tell(&mut self, _: &ArenaCache, _: &mut ArenaLane, _: Nanos, mail: Mail) -> Status {
        finished(mail)
    }
}

/// A flush of a part of the volume, or only its writing out.
#[derive(Debug)]
pub(crate) struct FlushRange {
    pub(crate) token: u64,
    pub(crate) blocks: Range<u64>,
    /// Whether it must be on stable storage.
    pub(crate) stable: bool,
}

impl Call for FlushRange {
    fn ask(&mut self, cache: &ArenaCache, lane: &mut ArenaLane, now: Nanos) -> Status {
        cache.flush_range(lane, now, self.blocks.clone(), self.stable, self.token)
    }

    fn tell(&mut self, _: &ArenaCache, _: &mut ArenaLane, _: Nanos, mail: Mail) -> Status {
        finished(mail)
    }
}

/// A discard or zeroing of whole blocks.
#[derive(Debug)]
pub(crate) struct Exclude {
    pub(crate) token: u64,
    pub(crate) kind: StoreOpKind,
    pub(crate) blocks: Range<u64>,
}

impl Call for Exclude {
    fn ask(&mut self, cache: &ArenaCache, lane: &mut ArenaLane, now: Nanos) -> Status {
        cache.exclude(lane, now, self.kind, self.blocks.clone(), self.token)
    }

    fn tell(&mut self, _: &ArenaCache, _: &mut ArenaLane, _: Nanos, mail: Mail) -> Status {
        finished(mail)
    }
}

/// Makes a call and waits for its end, where nothing else is pending on the lane. `waker` is that
/// of the lane.
///
/// # Errors
/// If the kernel refuses to wait; inside, the error of the call.
pub(crate) fn wait(
    call: &mut dyn Call,
    cache: &ArenaCache,
    lane: &mut ArenaLane,
    waker: &Waker,
    now: &dyn Fn() -> Nanos,
) -> io::Result<Result<(), StoreError>> {
    let mut mail = Vec::new();
    // What says only that there may be room, from before.
    lane.collect(&mut mail);
    mail.clear();
    let mut status = call.ask(cache, lane, now());
    loop {
        match status {
            Status::Done => return Ok(Ok(())),
            Status::DoneAt(at) => {
                std::thread::sleep(Duration::from_nanos(at.saturating_sub(now())));
                return Ok(Ok(()));
            }
            Status::Failed(error) => return Ok(Err(error)),
            Status::Pending | Status::Stalled => {}
        }
        lane.collect(&mut mail);
        if mail.is_empty() {
            waker.sleep(None, Some(RETRY))?;
            lane.collect(&mut mail);
        }
        let is_stalled = status == Status::Stalled;
        for completion in mail.drain(..) {
            if !matches!(completion, Completion::Unstalled) {
                status = call.tell(cache, lane, now(), completion);
            }
        }
        if is_stalled && status == Status::Stalled {
            status = call.ask(cache, lane, now());
        }
    }
}

fn finished(mail: Mail) -> Status {
    match mail {
        Completion::Finished { result, .. } => {
            result.map_or_else(Status::Failed, |()| Status::Done)
        }
        other => panic!("{other:?} is not the end of a flush or a discard"),
    }
}
