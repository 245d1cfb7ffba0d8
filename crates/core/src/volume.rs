//! A volume: one store behind the cache, with its page size, policy, modes and share of the pool.

mod handle;
mod live;
mod quota;
mod switches;

pub(crate) use quota::{AllVolumes, Quota};
pub use switches::PolicySwitch;

pub use crate::units::LENGTH_MAX;
pub use crate::volume_options::VolumeOptions;
pub(crate) use handle::VolumeHandle;

use crate::clock::Nanos;
use crate::completion::{CompletionQueue, Notify};
use crate::counters::{Recorder, Totals};
use crate::curve::locked_tracker::LockedTracker;
use crate::curve::tracker::Tracker;
use crate::frames::Frames;
use crate::hint::Hint;
use crate::input::{Input, InputLog, LogGuard, Setting};
use crate::mode::{FlushMode, WriteMode, effective};
use crate::page::{Key, Paging};
use crate::pinned::PinnedRanges;
use crate::policy::PolicyKind;
use crate::queue::Queue;
use crate::readahead::{Feedback, Limits};
use crate::store::{Geometry, StoreError};
use crate::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use crate::sync::{Arc, CachePadded, Mutex, lock};
use crate::tunables::{LiveTunables, Tunable};
use crate::units::BLOCK_BYTES_U64;
use crate::write_order::LockedWriteOrder;
use crate::writeback::Writer;
use std::ops::Range;
use std::sync::OnceLock;
use switches::Switches;

/// Number of windows that fit into the share of memory for read-ahead: two for each of several
/// streams.
const WINDOWS: u64 = 32;

/// Blocks that are mapped for change, and the queue of the handle that has mapped them.
pub(crate) type MappedRange<F> = (Range<u64>, Arc<CompletionQueue<F>>);

/// A number that no volume has. The next number would give the key of an empty frame.
pub(crate) const NO_VOLUME: u16 = u16::MAX - 1;

/// One volume.
pub struct Volume<F: Frames> {
    pub(crate) id: u16,
    name: String,
    geometry: Geometry,
    /// Number of blocks; the last one may be shorter than a block.
    pub(crate) blocks: u64,
    page_blocks: AtomicU32,
    /// Requested page size; 0 if no change is pending.
    requested_page_blocks: AtomicU32,
    write_mode: AtomicU8,
    flush_mode: AtomicU8,
    hint: AtomicU8,
    stopping: AtomicBool,
    /// Number of open handles, or [`CLOSED`].
    handles: AtomicU32,
    removed: AtomicBool,
    /// The internal error that has ended the volume, if any.
    broken: OnceLock<StoreError>,
    /// Key of the first block in look-ups of [`crate::request::Session::read_hit`]: that of `id`,
    /// or that of [`NO_VOLUME`] if the volume is broken or inputs are logged, so that the look-up
    /// finds no block. So a hit needs no extra check.
    pub(crate) lookup_key: AtomicU64,
    frozen: AtomicBool,
    policy: AtomicU8,
    pub(crate) tunables: LiveTunables,
    pub(crate) quota: Quota,
    /// Number of frames to which ratios refer: the ceiling of the volume or the size of the pool.
    capacity: AtomicU64,
    pub(crate) all: Arc<AllVolumes>,
    /// Bytes of frames that sessions have leased for reads, in addition to their own shares.
    pub(crate) leased_for_reads: Arc<AtomicU64>,
    /// Blocks newer than the store and not being written.
    pub(crate) dirty: CachePadded<AtomicU64>,
    /// Blocks being written.
    pub(crate) writing: CachePadded<AtomicU64>,
    /// Blocks whose last write failed.
    pub(crate) failing: AtomicU64,
    /// Tracker of its references, if there is one.
    pub(crate) locked_tracker: Option<LockedTracker>,
    policy_auto: AtomicBool,
    /// True if most recent references would miss in a cache of any size.
    pub(crate) is_scan_dominated: AtomicBool,
    pub(crate) switches: Switches,
    /// Target number of frames, if the cache divides the pool automatically; otherwise the maximum.
    pub(crate) target: AtomicU32,
    /// Number of flushes so far; each page records the value at which it became dirty.
    pub(crate) epoch: AtomicU64,
    /// Number of failed writes.
    pub(crate) errors: AtomicU64,
    pub(crate) last_error: Mutex<Option<StoreError>>,
    last_request: CachePadded<AtomicU64>,
    /// Number of ranges that are being discarded or zeroed; if it is 0, no lock is needed.
    pub(crate) exclusives: AtomicU64,
    /// True if windows are pending; otherwise no lock is needed.
    pub(crate) has_pending_windows: AtomicBool,
    /// The same for blocks of a warm restart, and for pages behind readers.
    pub(crate) has_warm: AtomicBool,
    pub(crate) has_drop_behind: AtomicBool,
    pub(crate) feedback: Feedback,
    pub(crate) queue: CachePadded<Mutex<Queue<F>>>,
    pub(crate) writer: CachePadded<Mutex<Writer>>,
    pub(crate) write_order: LockedWriteOrder,
    pub(crate) pinned: PinnedRanges,
    /// Blocks that are mapped for change, with the queue of the handle of each range.
    pub(crate) maps: Mutex<Vec<MappedRange<F>>>,
    pub(crate) notify: Box<dyn Notify>,
    pub(crate) recorders: Mutex<Vec<Arc<Recorder>>>,
    /// Recorder of the thread that runs maintenance.
    pub(crate) maintenance_recorder: Arc<Recorder>,
    pub(crate) retired: Mutex<Totals>,
    /// The log of the cache's inputs, if there is one.
    pub(crate) log: Option<Arc<InputLog>>,
}

impl<F: Frames> std::fmt::Debug for Volume<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Volume").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Value of `handles` for a closed volume: no handle can be opened.
const CLOSED: u32 = u32::MAX;

pub(crate) fn index_in<T: PartialEq>(all: &[T], one: &T) -> u8 {
    let index = all.iter().position(|other| other == one).expect("one of all");
    u8::try_from(index).expect("few modes")
}

impl<F: Frames> Volume<F> {
    pub(crate) fn new(
        id: u16,
        options: VolumeOptions,
        all: Arc<AllVolumes>,
        shards: usize,
        tracker: Option<Tracker>,
        notify: Box<dyn Notify>,
        log: Option<Arc<InputLog>>,
    ) -> Self {
        let VolumeOptions { name, geometry, page_blocks, tunables, .. } = options;
        assert!(geometry.length > 0 && geometry.length <= LENGTH_MAX, "length of the store");
        let quota = Quota::new(options.min_frames, options.max_frames, shards);
        let maintenance_recorder = Arc::new(Recorder::default());
        Volume {
            id,
            name,
            geometry,
            blocks: geometry.length.div_ceil(BLOCK_BYTES_U64),
            page_blocks: AtomicU32::new(page_blocks),
            requested_page_blocks: AtomicU32::new(0),
            write_mode: AtomicU8::new(index_in(WriteMode::ALL, &options.write_mode)),
            flush_mode: AtomicU8::new(index_in(FlushMode::ALL, &options.flush_mode)),
            hint: AtomicU8::new(index_in(Hint::ALL, &options.hint)),
            stopping: AtomicBool::new(false),
            handles: AtomicU32::new(0),
            removed: AtomicBool::new(false),
            broken: OnceLock::new(),
            lookup_key: AtomicU64::new(Key::first_of(if log.is_some() { NO_VOLUME } else { id })),
            frozen: AtomicBool::new(false),
            policy: AtomicU8::new(index_in(&PolicyKind::ALL, &options.policy)),
            capacity: AtomicU64::new(
                u64::from(options.max_frames).min(all.frames.load(Ordering::Relaxed)),
            ),
            all,
            leased_for_reads: Arc::default(),
            tunables: LiveTunables::new(&tunables),
            quota,
            dirty: CachePadded::default(),
            writing: CachePadded::default(),
            failing: AtomicU64::new(0),
            locked_tracker: tracker.map(LockedTracker::new),
            policy_auto: AtomicBool::new(options.policy_auto),
            is_scan_dominated: AtomicBool::new(false),
            switches: Switches::default(),
            target: AtomicU32::new(u32::MAX),
            epoch: AtomicU64::new(1),
            errors: AtomicU64::new(0),
            last_error: Mutex::new(None),
            last_request: CachePadded::default(),
            exclusives: AtomicU64::new(0),
            has_pending_windows: AtomicBool::new(false),
            has_warm: AtomicBool::new(false),
            has_drop_behind: AtomicBool::new(false),
            feedback: Feedback::default(),
            queue: CachePadded::new(Mutex::new(Queue::new())),
            writer: CachePadded::default(),
            write_order: LockedWriteOrder::default(),
            pinned: PinnedRanges::default(),
            maps: Mutex::new(Vec::new()),
            notify,
            recorders: Mutex::new(vec![Arc::clone(&maintenance_recorder)]),
            maintenance_recorder,
            retired: Mutex::new(Totals::default()),
            log,
        }
    }

    /// Logs an input if inputs are logged. The cache processes no other input until the caller
    /// drops the guard.
    #[inline]
    pub(crate) fn log_input(&self, input: impl FnOnce() -> Input) -> Option<LogGuard<'_>> {
        self.log.as_ref().map(|log| log.add(input()))
    }

    /// Locks the log of the cache's inputs, if there is one.
    #[must_use]
    pub fn pause_inputs(&self) -> Option<LogGuard<'_>> {
        self.log.as_ref().map(|log| log.pause())
    }

    /// Logs a change of a setting, as [`Volume::log_input`].
    pub(crate) fn log_setting(&self, setting: impl FnOnce() -> Setting) -> Option<LogGuard<'_>> {
        self.log_input(|| Input::Set { volume: self.id, setting: setting() })
    }

    /// Returns the name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the number in a log of inputs. A number is reused after its volume was removed.
    #[must_use]
    pub fn number(&self) -> u16 {
        self.id
    }

    /// Returns the properties of the store.
    #[must_use]
    pub fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// Returns the bytes in a page.
    #[must_use]
    pub fn page_bytes(&self) -> u64 {
        u64::from(self.page_blocks()) * BLOCK_BYTES_U64
    }

    /// Returns the write mode in effect.
    #[must_use]
    pub fn write_mode(&self) -> WriteMode {
        self.effective(self.modes().0)
    }

    /// Returns the mode in effect for a write of `mode`: a volume that stops makes no block dirty.
    pub(crate) fn effective(&self, mode: WriteMode) -> WriteMode {
        effective(mode, self.stopping.load(Ordering::Acquire))
    }

    /// Returns the modes as set.
    pub(crate) fn modes(&self) -> (WriteMode, FlushMode) {
        let write_mode = WriteMode::from_index(self.write_mode.load(Ordering::Acquire));
        (write_mode, self.flush_mode())
    }

    /// Returns the flush mode.
    #[must_use]
    pub fn flush_mode(&self) -> FlushMode {
        FlushMode::from_index(self.flush_mode.load(Ordering::Acquire))
    }

    /// Returns true if the cache may switch to a policy with more hits.
    #[must_use]
    pub fn policy_auto(&self) -> bool {
        self.policy_auto.load(Ordering::Relaxed)
    }

    /// Returns true if pages of a stream are evicted first once the stream has passed them: the
    /// cache may choose the policy, and most references are to pages that are referenced only once.
    #[inline]
    pub(crate) fn bypasses_scans(&self) -> bool {
        self.is_scan_dominated.load(Ordering::Relaxed) && self.policy_auto()
    }

    /// Returns the policy switches that the cache decided on, oldest first; only the latest ones if
    /// there were many.
    #[must_use]
    pub fn policy_switches(&self) -> Vec<PolicySwitch> {
        self.switches.list()
    }

    /// Sets if the cache may switch to a policy with more hits.
    pub fn set_policy_auto(&self, auto: bool) {
        let _logged = self.log_setting(|| Setting::PolicyAuto(auto));
        self.policy_auto.store(auto, Ordering::Relaxed);
    }

    /// Returns the target number of frames, if the cache divides the pool automatically.
    #[must_use]
    pub fn target_frames(&self) -> Option<u32> {
        let target = self.target.load(Ordering::Relaxed);
        (target < u32::MAX).then_some(target)
    }

    /// Returns the access pattern of requests without a hint.
    #[must_use]
    pub fn hint(&self) -> Hint {
        Hint::from_index(self.hint.load(Ordering::Relaxed))
    }

    /// Sets the access pattern of requests without a hint, from the next request on.
    pub fn set_hint(&self, hint: Hint) {
        let _logged = self.log_setting(|| Setting::Hint(hint));
        self.hint.store(index_in(Hint::ALL, &hint), Ordering::Relaxed);
    }

    /// Returns the present limits of read-ahead in pages of this paging; none if read-ahead is off.
    pub(crate) fn ahead_limits(&self, paging: Paging) -> Option<Limits> {
        // The windows take such a small part of the memory that those of many streams stay resident
        // until they are used, even under a policy with a probation part of a tenth.
        let share = self.tunables.share(Tunable::ReadAheadShare, self.capacity()) / WINDOWS;
        let share = (share / u64::from(paging.page_blocks)).max(1);
        let page_bytes = u64::from(paging.page_blocks) * BLOCK_BYTES_U64;
        let max = (self.tunables.get(Tunable::ReadAheadMax) / page_bytes).min(share);
        if max == 0 || self.is_stopping() || self.is_frozen() {
            return None;
        }
        let min = self.tunables.get(Tunable::ReadAheadMin) / page_bytes;
        let [steps, streams] = [Tunable::ReadAheadSteps, Tunable::ReadAheadStreams]
            .map(|tunable| u32::try_from(self.tunables.get(tunable)).expect("in its range"));
        let pages = paging.page_of(self.blocks - 1) + 1;
        let min = min.clamp(1, max);
        let streams = streams as usize;
        Some(self.feedback.apply(Limits { min, max, streams, steps, first: 0, pages }))
    }

    /// Returns true if the volume is being stopped.
    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// Makes writes write-through from now on, so that the number of dirty blocks only falls.
    pub fn begin_stop(&self) {
        let _logged = self.log_setting(|| Setting::Stopping(true));
        self.stopping.store(true, Ordering::Release);
        self.notify.notify();
    }

    /// Cancels [`Volume::begin_stop`].
    pub fn cancel_stop(&self) {
        let _logged = self.log_setting(|| Setting::Stopping(false));
        self.stopping.store(false, Ordering::Release);
    }

    /// Returns the number of blocks that the store does not have yet, dirty or being written. A
    /// block that changes from one to the other during the call may be counted twice.
    #[must_use]
    pub fn unclean_blocks(&self) -> u64 {
        let dirty = self.dirty.load(Ordering::Acquire);
        let writing = self.writing.load(Ordering::Acquire);
        // The blocks of a write that has just failed are dirty again.
        dirty.max(self.dirty.load(Ordering::Acquire)) + writing
    }

    /// Returns true if the store has all data. Blocks whose write has failed count as failing
    /// before they are dirty again, and until a write of them succeeds.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.unclean_blocks() == 0 && self.failing.load(Ordering::Acquire) == 0
    }

    /// Returns the bytes that the store does not have yet, dirty or being written, in whole blocks.
    #[must_use]
    pub fn unclean_bytes(&self) -> u64 {
        self.unclean_blocks() * BLOCK_BYTES_U64
    }

    /// Returns the maximum number of unclean blocks, not counting some that cannot be written. The
    /// unclean blocks of all volumes together leave a tenth of the memory to reads, but each volume
    /// may have half of its reserve.
    #[must_use]
    pub fn dirty_limit_blocks(&self) -> u64 {
        let volume_limit = self.own_dirty_limit_blocks();
        let others = self.unclean_blocks_of_others();
        if others == 0 {
            return volume_limit;
        }
        let frames = self.all.frames.load(Ordering::Relaxed);
        let frames_left = (frames - frames / 10).saturating_sub(others);
        let least = u64::from(self.page_blocks().max(self.quota.floor() / 2));
        volume_limit.min(frames_left.max(least))
    }

    /// Returns the maximum number of unclean blocks while other volumes have none.
    fn own_dirty_limit_blocks(&self) -> u64 {
        self.tunables.share(Tunable::DirtyLimit, self.capacity()).max(u64::from(self.page_blocks()))
    }

    fn unclean_blocks_of_others(&self) -> u64 {
        self.all.unclean.load(Ordering::Acquire).saturating_sub(self.unclean_blocks())
    }

    /// Returns true if writes must wait: the unclean blocks reach the dirty limit.
    pub(crate) fn is_at_dirty_limit(&self) -> bool {
        let (unclean, limit) = (self.unclean_blocks(), self.dirty_limit_blocks());
        unclean >= limit && self.limited_blocks(unclean, limit) >= limit
    }

    /// Returns the number of `unclean` blocks that count against the dirty limit of `limit`. Blocks
    /// that cannot be written do not count, up to half of the limit and half of the memory beyond
    /// it: they may belong to one file of many, and must not block writes of the others.
    pub(crate) fn limited_blocks(&self, unclean: u64, limit: u64) -> u64 {
        let beyond = self.blocks_beyond_limit(limit);
        unclean.saturating_sub(self.failing.load(Ordering::Acquire).min(beyond))
    }

    /// Returns the number of blocks that cannot be written and do not count against the dirty limit
    /// of `limit`.
    fn blocks_beyond_limit(&self, limit: u64) -> u64 {
        let beyond = self.own_blocks_beyond_limit(limit);
        let others = self.unclean_blocks_of_others();
        if others == 0 {
            return beyond;
        }
        let frames = self.all.frames.load(Ordering::Relaxed);
        beyond.min((frames - frames / 20).saturating_sub(others + limit))
    }

    /// Returns the number of blocks, dirty or being written, at which every write that needs one
    /// more stalls or fails, whatever the store does.
    pub(crate) fn unclean_blocks_max(&self) -> u64 {
        let limit = self.own_dirty_limit_blocks();
        limit + self.own_blocks_beyond_limit(limit)
    }

    /// Returns the same as [`Volume::blocks_beyond_limit`] while other volumes have no unclean
    /// blocks.
    fn own_blocks_beyond_limit(&self, limit: u64) -> u64 {
        limit.min(self.capacity().saturating_sub(limit)) / 2
    }

    /// Returns the error of the last write if the unwritten blocks are almost only those whose
    /// write has failed: others are at most an eighth of the dirty limit. Then no space can be
    /// expected. With more others, the lazy writer has yet to try some of them, or the store to
    /// complete them.
    pub(crate) fn failure_at_limit(&self) -> Option<StoreError> {
        let others = self.unclean_blocks().saturating_sub(self.failing.load(Ordering::Acquire));
        if others > self.dirty_limit_blocks() / 8 { None } else { self.failure() }
    }

    /// Returns true if writes of blocks that are not dirty fail now: the dirty limit is reached,
    /// and the store has failed to write nearly all dirty blocks.
    #[must_use]
    pub fn is_refusing_writes(&self) -> bool {
        self.is_at_dirty_limit() && self.failure_at_limit().is_some()
    }

    /// Returns the last error of a write or flush, while writes are failing.
    #[must_use]
    pub fn failure(&self) -> Option<StoreError> {
        let failing = self.failing.load(Ordering::Acquire) > 0;
        failing.then(|| lock(&self.last_error).clone()).flatten()
    }

    /// Records a failed write or flush. The next flush of every handle reports it.
    pub(crate) fn note_error(&self, error: &StoreError) {
        *lock(&self.last_error) = Some(error.clone());
        self.errors.fetch_add(1, Ordering::AcqRel);
    }

    /// Returns the error that the owner of `completions` has not reported yet, and marks it as
    /// reported.
    pub(crate) fn take_unreported_error(
        &self,
        completions: &CompletionQueue<F>,
    ) -> Option<StoreError> {
        let errors = self.errors.load(Ordering::Acquire);
        let seen = completions.errors_seen.swap(errors, Ordering::AcqRel);
        (seen < errors).then(|| lock(&self.last_error).clone()).flatten()
    }

    /// Records the time of a client request. It writes at most once a millisecond, to avoid
    /// contention of handles for the cache line.
    pub(crate) fn note_request(&self, now: Nanos) {
        if now > self.last_request.load(Ordering::Relaxed) + crate::clock::MILLISECOND {
            self.last_request.store(now, Ordering::Relaxed);
        }
    }

    pub(crate) fn last_request(&self) -> Nanos {
        self.last_request.load(Ordering::Relaxed)
    }

    /// Returns the bytes of `block`: a whole block, except for the last one.
    pub(crate) fn bytes_of(&self, block: u64) -> u32 {
        let bytes_left = self.geometry.length - block * BLOCK_BYTES_U64;
        u32::try_from(bytes_left.min(BLOCK_BYTES_U64)).expect("at most a block")
    }

    /// Returns all counters since the volume was added.
    #[must_use]
    pub fn totals(&self) -> Totals {
        let mut totals = lock(&self.retired).clone();
        for recorder in lock(&self.recorders).iter() {
            recorder.add_to(&mut totals);
        }
        totals
    }

    /// Adds a recorder whose counters are part of the totals.
    pub(crate) fn add_recorder(&self) -> Arc<Recorder> {
        let recorder = Arc::new(Recorder::default());
        lock(&self.recorders).push(Arc::clone(&recorder));
        recorder
    }

    /// Adds the counters of a recorder to the totals, and removes it.
    pub(crate) fn remove_recorder(&self, recorder: &Arc<Recorder>) {
        let mut recorders = lock(&self.recorders);
        recorders.retain(|other| !Arc::ptr_eq(other, recorder));
        recorder.add_to(&mut lock(&self.retired));
    }
}
