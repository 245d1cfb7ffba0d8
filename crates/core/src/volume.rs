//! A volume: one store behind the cache, with its page size, policy, modes and share of the pool.

use crate::clock::Nanos;
use crate::counters::{Recorder, Totals};
use crate::frames::Frames;
use crate::hint::Hint;
use crate::lane::{Mailbox, Notify};
use crate::mode::{FlushMode, WriteMode, effective};
use crate::policy::PolicyKind;
use crate::queue::Queue;
use crate::readahead::{Feedback, Limits};
use crate::store::{Geometry, StoreError};
use crate::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use crate::sync::{Arc, Mutex, lock};
use crate::tunables::{Tunable, Tunables};
use crate::units::{BLOCK_BYTES_U64, PAGE_BLOCKS_MAX};
use crate::writeback::Writer;

/// What a volume is made with.
#[derive(Clone, Debug)]
pub struct VolumeOptions {
    /// Its name in messages and tables.
    pub name: String,
    /// What its store is.
    pub geometry: Geometry,
    /// Blocks in a page: a power of two up to [`PAGE_BLOCKS_MAX`].
    pub page_blocks: u32,
    /// Replacement policy.
    pub policy: PolicyKind,
    /// Write mode.
    pub write_mode: WriteMode,
    /// Flush mode.
    pub flush_mode: FlushMode,
    /// Frames that other volumes cannot take.
    pub min_frames: u32,
    /// Frames that it never exceeds.
    pub max_frames: u32,
    /// Constants of the lazy writer, the dirty limit and read-ahead.
    pub tunables: Tunables,
    /// How it will be read, where a request says nothing else.
    pub hint: Hint,
}

impl VolumeOptions {
    /// The defaults for a store: 4 KiB pages, S3-FIFO, write-back, flushes kept, no floor and no
    /// ceiling.
    #[must_use]
    pub fn new(name: impl Into<String>, geometry: Geometry) -> Self {
        VolumeOptions {
            name: name.into(),
            geometry,
            page_blocks: 1,
            policy: PolicyKind::S3Fifo,
            write_mode: if geometry.read_only { WriteMode::ReadOnly } else { WriteMode::Back },
            flush_mode: FlushMode::Keep,
            min_frames: 0,
            max_frames: u32::MAX,
            tunables: Tunables::default(),
            hint: Hint::Normal,
        }
    }
}

/// Windows that fit into the share of memory for reads ahead: two for each of some streams.
const WINDOWS: u64 = 32;

/// The room of a volume in the pool.
#[derive(Debug)]
pub(crate) struct Quota {
    pub(crate) min: u32,
    pub(crate) max: u32,
    /// Frames that hold the volume's data, or that wait to be given back.
    pub(crate) usage: crate::sync::atomic::AtomicU32,
    /// Per shard, when the page evicted last had been touched last: where the cold end is. The
    /// maximum where nothing can be evicted.
    pub(crate) coldest: Box<[AtomicU64]>,
}

/// One volume.
pub struct Volume<F: Frames> {
    pub(crate) id: u16,
    name: String,
    geometry: Geometry,
    /// Blocks, the last one possibly shorter than a block.
    pub(crate) blocks: u64,
    pub(crate) page_blocks: u32,
    write_mode: AtomicU8,
    flush_mode: AtomicU8,
    hint: AtomicU8,
    stopping: AtomicBool,
    pub(crate) tunables: Tunables,
    pub(crate) quota: Quota,
    /// Frames that ratios of memory refer to.
    pub(crate) capacity: u64,
    /// Blocks newer than the store and not being written.
    pub(crate) dirty: AtomicU64,
    /// Blocks being written.
    pub(crate) writing: AtomicU64,
    /// Blocks whose last write failed.
    pub(crate) failing: AtomicU64,
    /// Counts flushes: a page remembers at which it became dirty.
    pub(crate) epoch: AtomicU64,
    /// Counts failed writes.
    pub(crate) errors: AtomicU64,
    pub(crate) last_error: Mutex<Option<StoreError>>,
    last_request: AtomicU64,
    /// Ranges that are being discarded or zeroed; so that the common case need not lock.
    pub(crate) exclusives: AtomicU64,
    /// Whether there are windows to read ahead; so that the common case need not lock.
    pub(crate) has_wishes: AtomicBool,
    /// The same for blocks to be read back after a restart, and for pages behind readers.
    pub(crate) has_warm: AtomicBool,
    pub(crate) has_behind: AtomicBool,
    pub(crate) feedback: Feedback,
    pub(crate) queue: Mutex<Queue<F>>,
    pub(crate) writer: Mutex<Writer>,
    pub(crate) notify: Box<dyn Notify>,
    pub(crate) recorders: Mutex<Vec<Arc<Recorder>>>,
    pub(crate) retired: Mutex<Totals>,
}

impl<F: Frames> std::fmt::Debug for Volume<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Volume").field("name", &self.name).finish_non_exhaustive()
    }
}

fn mode_index<T: PartialEq>(all: &[T], one: &T) -> u8 {
    let index = all.iter().position(|other| other == one).expect("one of all");
    u8::try_from(index).expect("few modes")
}

impl<F: Frames> Volume<F> {
    pub(crate) fn new(
        id: u16,
        options: VolumeOptions,
        pool_frames: u32,
        shards: usize,
        notify: Box<dyn Notify>,
    ) -> Self {
        let VolumeOptions { name, geometry, page_blocks, tunables, .. } = options;
        assert!(page_blocks.is_power_of_two() && page_blocks <= PAGE_BLOCKS_MAX, "page size");
        assert!(geometry.length > 0 && geometry.length < 1 << 60, "length of the store");
        assert!(options.min_frames <= options.max_frames, "min above max");
        // A page that can never be there as a whole would be waited for for ever.
        assert!(options.max_frames >= options.page_blocks, "max below one page");
        let quota = Quota {
            min: options.min_frames,
            max: options.max_frames,
            usage: crate::sync::atomic::AtomicU32::new(0),
            coldest: (0..shards).map(|_| AtomicU64::new(u64::MAX)).collect(),
        };
        Volume {
            id,
            name,
            geometry,
            blocks: geometry.length.div_ceil(BLOCK_BYTES_U64),
            page_blocks,
            write_mode: AtomicU8::new(mode_index(WriteMode::ALL, &options.write_mode)),
            flush_mode: AtomicU8::new(mode_index(FlushMode::ALL, &options.flush_mode)),
            hint: AtomicU8::new(mode_index(Hint::ALL, &options.hint)),
            stopping: AtomicBool::new(false),
            capacity: u64::from(quota.max.min(pool_frames)),
            tunables,
            quota,
            dirty: AtomicU64::new(0),
            writing: AtomicU64::new(0),
            failing: AtomicU64::new(0),
            epoch: AtomicU64::new(1),
            errors: AtomicU64::new(0),
            last_error: Mutex::new(None),
            last_request: AtomicU64::new(0),
            exclusives: AtomicU64::new(0),
            has_wishes: AtomicBool::new(false),
            has_warm: AtomicBool::new(false),
            has_behind: AtomicBool::new(false),
            feedback: Feedback::default(),
            queue: Mutex::new(Queue::new()),
            writer: Mutex::new(Writer::default()),
            notify,
            recorders: Mutex::new(Vec::new()),
            retired: Mutex::new(Totals::default()),
        }
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What its store is.
    #[must_use]
    pub fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// Bytes in a page.
    #[must_use]
    pub fn page_bytes(&self) -> u64 {
        u64::from(self.page_blocks) * BLOCK_BYTES_U64
    }

    /// The write mode that a write meets now.
    #[must_use]
    pub fn write_mode(&self) -> WriteMode {
        let mode = WriteMode::from_index(self.write_mode.load(Ordering::Relaxed));
        effective(mode, self.stopping.load(Ordering::Acquire))
    }

    /// The flush mode.
    #[must_use]
    pub fn flush_mode(&self) -> FlushMode {
        FlushMode::from_index(self.flush_mode.load(Ordering::Relaxed))
    }

    /// How it will be read, where a request says nothing else.
    #[must_use]
    pub fn hint(&self) -> Hint {
        Hint::from_index(self.hint.load(Ordering::Relaxed))
    }

    /// Changes what [`Volume::hint`] says; it counts from the next request on.
    pub fn set_hint(&self, hint: Hint) {
        self.hint.store(mode_index(Hint::ALL, &hint), Ordering::Relaxed);
    }

    /// What may be read ahead, in pages, as things stand; none where nothing may.
    pub(crate) fn ahead_limits(&self) -> Option<Limits> {
        // So small a part of the memory that the windows of many streams stay until they are used,
        // also where a policy has a tenth of its pages on trial.
        let share = self.tunables.share(Tunable::ReadAheadShare, self.capacity) / WINDOWS;
        let share = (share / u64::from(self.page_blocks)).max(1);
        let max = (self.tunables.get(Tunable::ReadAheadMax) / self.page_bytes()).min(share);
        if max == 0 || self.is_stopping() {
            return None;
        }
        let min = self.tunables.get(Tunable::ReadAheadMin) / self.page_bytes();
        let [steps, streams] = [Tunable::ReadAheadSteps, Tunable::ReadAheadStreams]
            .map(|tunable| u32::try_from(self.tunables.get(tunable)).expect("in its range"));
        let pages = self.page_of(self.blocks - 1) + 1;
        let min = min.clamp(1, max);
        let streams = streams as usize;
        Some(self.feedback.apply(Limits { min, max, streams, steps, pages }))
    }

    /// Whether it is being stopped.
    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// From now on writes go through, so that what is dirty only becomes less.
    pub fn begin_stop(&self) {
        self.stopping.store(true, Ordering::Release);
        self.notify.notify();
    }

    /// Blocks that the store does not have yet, written now or not.
    #[must_use]
    pub fn unclean_blocks(&self) -> u64 {
        self.dirty.load(Ordering::Acquire) + self.writing.load(Ordering::Acquire)
    }

    /// More unclean blocks than this are never made.
    #[must_use]
    pub fn dirty_limit_blocks(&self) -> u64 {
        self.tunables.share(Tunable::DirtyLimit, self.capacity).max(u64::from(self.page_blocks))
    }

    /// The last error of a write or flush, while writes are failing.
    #[must_use]
    pub fn failure(&self) -> Option<StoreError> {
        let failing = self.failing.load(Ordering::Acquire) > 0;
        failing.then(|| lock(&self.last_error).clone()).flatten()
    }

    /// Notes a failed write or flush, to be reported to the next flush of every lane.
    pub(crate) fn note_error(&self, error: &StoreError) {
        *lock(&self.last_error) = Some(error.clone());
        self.errors.fetch_add(1, Ordering::AcqRel);
    }

    /// The error that `mailbox` has not been told of, which it is now.
    pub(crate) fn untold_error(&self, mailbox: &Mailbox<F>) -> Option<StoreError> {
        let errors = self.errors.load(Ordering::Acquire);
        let seen = mailbox.errors_seen.swap(errors, Ordering::AcqRel);
        (seen < errors).then(|| lock(&self.last_error).clone()).flatten()
    }

    /// Notes that a client asked for something. Written at most once a millisecond, so that lanes
    /// do not fight for the cache line.
    pub(crate) fn touch(&self, now: Nanos) {
        if now > self.last_request.load(Ordering::Relaxed) + crate::clock::MILLISECOND {
            self.last_request.store(now, Ordering::Relaxed);
        }
    }

    pub(crate) fn last_request(&self) -> Nanos {
        self.last_request.load(Ordering::Relaxed)
    }

    /// The blocks of page `page`.
    pub(crate) fn blocks_of(&self, page: u64) -> std::ops::Range<u64> {
        let first = page * u64::from(self.page_blocks);
        first..(first + u64::from(self.page_blocks)).min(self.blocks)
    }

    pub(crate) fn page_of(&self, block: u64) -> u64 {
        block / u64::from(self.page_blocks)
    }

    /// Bytes of `block` that the volume has: a whole block but for the last.
    pub(crate) fn bytes_of(&self, block: u64) -> u32 {
        let left = self.geometry.length - block * BLOCK_BYTES_U64;
        u32::try_from(left.min(BLOCK_BYTES_U64)).expect("at most a block")
    }

    /// All counters of the volume so far.
    #[must_use]
    pub fn totals(&self) -> Totals {
        let mut totals = lock(&self.retired).clone();
        for recorder in lock(&self.recorders).iter() {
            recorder.add_to(&mut totals);
        }
        totals
    }

    /// Takes a recorder in, so that its numbers count.
    pub(crate) fn enroll(&self) -> Arc<Recorder> {
        let recorder = Arc::new(Recorder::default());
        lock(&self.recorders).push(Arc::clone(&recorder));
        recorder
    }

    /// Keeps the numbers of a recorder whose thread is gone.
    pub(crate) fn retire(&self, recorder: &Arc<Recorder>) {
        let mut recorders = lock(&self.recorders);
        recorders.retain(|other| !Arc::ptr_eq(other, recorder));
        recorder.add_to(&mut lock(&self.retired));
    }
}
