//! The requests that one thread of a mount has in flight on one volume.

use super::files::VolumeFile;
use crate::engine::{ArenaCache, ArenaSession, ArenaVolume};
use crate::front::observe::RequestRecorder;
use crate::store::files::{FsyncGuard, SourceFile, WriteInFlight};
use crate::waker::Waker;
use larder_core::clock::Nanos;
use larder_core::request::{RequestOp, Session, SessionLimit};
use larder_core::settings::SettingError;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The files through which programs access the volume of a session.
pub(super) enum VolumeFiles {
    /// A file that shows the whole volume.
    Volume(Arc<VolumeFile>),
    /// The files of a mounted directory that belong to the section with this index.
    Section(usize),
}

#[derive(Debug)]
pub(super) struct InFlight {
    pub(super) unique: u64,
    pub(super) op: RequestOp,
    pub(super) arrived_at: Nanos,
    /// First byte of the volume.
    pub(super) offset: u64,
    /// Number of bytes that the reply reports.
    pub(super) len: u64,
    /// The file of a request to a mounted directory.
    pub(super) file: Option<Arc<SourceFile>>,
    /// Held until the reply to a write to that file.
    pub(super) write_guard: Option<WriteInFlight>,
    /// Held until the reply to an fsync(2) of a file.
    pub(super) metadata: Option<FsyncGuard>,
}

impl InFlight {
    /// Returns the record of a request for `bytes` of the volume.
    pub(super) fn new(unique: u64, op: RequestOp, arrived_at: Nanos, bytes: Range<u64>) -> Self {
        let (offset, len) = (bytes.start, bytes.end - bytes.start);
        InFlight {
            unique,
            op,
            arrived_at,
            offset,
            len,
            file: None,
            write_guard: None,
            metadata: None,
        }
    }

    /// Records in the file of a write that the write is complete.
    pub(super) fn record_end(&self) {
        if let Some(file) = self.file.as_ref().filter(|_| self.op == RequestOp::Write) {
            file.write_over();
        }
    }
}

/// A session on a volume, with its files and its observer.
pub(super) struct VolumeSession {
    pub(super) owner: VolumeFiles,
    pub(super) requests: ArenaSession<InFlight>,
    /// Recorder of answered requests, if the mount has an observer.
    pub(super) recorder: Option<RequestRecorder>,
}

impl VolumeSession {
    /// Opens a session on a volume. The session wakes `waker`.
    pub(super) fn open(
        cache: &ArenaCache,
        volume: &Arc<ArenaVolume>,
        waker: &Waker,
        owner: VolumeFiles,
    ) -> Result<Self, SettingError> {
        // Each read of a mount is one piece.
        let requests =
            Session::open(cache, volume, Box::new(waker.clone()), SessionLimit::Own(u64::MAX))?;
        if let VolumeFiles::Volume(file) = &owner {
            file.sessions.fetch_add(1, Ordering::AcqRel);
        }
        Ok(VolumeSession { owner, requests, recorder: None })
    }

    pub(super) fn file(&self) -> &Arc<VolumeFile> {
        let VolumeFiles::Volume(file) = &self.owner else {
            unreachable!("the volume of a section has no file of its own")
        };
        file
    }

    pub(super) fn is_idle(&self) -> bool {
        self.requests.in_flight() == 0
    }

    /// Cancels the requests in flight and closes the session. Returns the requests without a reply.
    pub(super) fn close(self, cache: &ArenaCache) -> Vec<u64> {
        let requests = self.requests.close(cache);
        if let VolumeFiles::Volume(file) = self.owner {
            file.sessions.fetch_sub(1, Ordering::AcqRel);
        }
        requests.into_iter().inspect(InFlight::record_end).map(|request| request.unique).collect()
    }
}
