//! A device from its making to its end.
//!
//! The steps: `ADD_DEV` makes it, `SET_PARAMS` says what it is like, the thread of each queue asks
//! for requests, `START_DEV` shows it. `STOP_DEV` hides it and lets what is under way end, then the
//! threads end, and `DEL_DEV` removes it. A device whose server was killed can be taken over
//! instead of made: `START_USER_RECOVERY`, the threads, `END_USER_RECOVERY`.
//!
//! Invariants: whatever step fails, what the steps before it made is undone; a device that may hold
//! what was acknowledged and is not in its store yet is never one that outlives its server, since
//! those who use it would not notice that it is lost.

use super::abi::{
    ANY_DEVICE, Basic, Control, DeviceInfo, Discard, Parameters, SECTOR_BYTES, attribute, feature,
    parameter, state,
};
use super::driver::{Driver, UblkError};
use super::worker::{IO_BYTES_MAX, Worker};
use crate::engine::{ArenaVolume, Engine};
use crate::fault::{self, Panicked, Thread, report_failed_part};
use crate::front::desk::{Desk, Owner};
use crate::wake::Waker;
use larder_core::mode::WriteMode;
use larder_core::units::BLOCK_BYTES_U64;
use rustix::io::Errno;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use zerocopy::{FromBytes, IntoBytes};

/// More queues than this do not make it faster.
const QUEUES_MAX: u16 = 8;
/// Requests of a queue at a time.
const DEPTH: u16 = 32;
/// Sectors of a discard or zeroing at the most, 1 GiB: each is over soon.
const EXCLUDE_SECTORS_MAX: u32 = 1 << 21;
/// Numbers that are looked at for devices that were left behind.
const NUMBERS_MAX: u32 = 64;

/// How a device is made.
#[derive(Clone, Copy, Debug, Default)]
pub struct DeviceOptions {
    /// Queues, each with a thread; one for each processor, up to eight, if not given.
    pub queues: Option<u16>,
    /// What tells the device from others after a kill; see [`left_behind`].
    pub mark: u64,
    /// Whether it outlives this process if that is killed. Only where every write is in the store
    /// when it is acknowledged; else this is passed over.
    pub outlives: bool,
    /// The number of one that outlived its server, to be taken over instead of made.
    pub taken_over: Option<u32>,
}

/// A volume as a block device.
pub struct BlockDevice {
    driver: Arc<dyn Driver>,
    id: u32,
    threads: Vec<Thread>,
    is_closed: bool,
}

impl fmt::Debug for BlockDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BlockDevice").field("id", &self.id).finish_non_exhaustive()
    }
}

fn path_of(id: u32) -> String {
    format!("/dev/ublkb{id}")
}

/// Carries out a command; its errors say what it was for.
fn command(
    driver: &dyn Driver,
    control: Control,
    device: u32,
    data: u64,
    buffer: &mut [u8],
) -> Result<(), UblkError> {
    driver
        .command(control, device, data, buffer)
        .map_err(|errno| UblkError::Command { what: control.in_words(), source: errno.into() })
}

/// The number of the device with this mark whose server is gone, if there is one.
pub fn left_behind(driver: &dyn Driver, mark: u64) -> Option<u32> {
    (0..NUMBERS_MAX).find(|id| {
        let mut info = DeviceInfo::default();
        let known = driver.command(Control::GetDevInfo, *id, 0, info.as_mut_bytes());
        known.is_ok() && info.state == state::QUIESCED && info.mark == mark
    })
}

impl BlockDevice {
    /// Shows a volume as a block device.
    ///
    /// # Errors
    /// The kernel cannot do it, or refuses: one sentence. Nothing is left then.
    pub fn start(
        engine: &Arc<Engine>,
        volume: &Arc<ArenaVolume>,
        driver: Arc<dyn Driver>,
        options: DeviceOptions,
    ) -> Result<Self, UblkError> {
        let mut features = 0_u64;
        let asked = driver.command(Control::GetFeatures, ANY_DEVICE, 0, features.as_mut_bytes());
        let needed = feature::USER_COPY | feature::CMD_IOCTL_ENCODE;
        if asked.is_err() || features & needed != needed {
            return Err(UblkError::TooOld);
        }
        let info = match options.taken_over {
            Some(id) if !keeps_nothing_back(volume.write_mode()) => {
                return Err(UblkError::KeepsBack { path: path_of(id) });
            }
            Some(id) => take_over(&*driver, id)?,
            None => make(&*driver, volume, &options)?,
        };
        // From here on it is undone when this is dropped.
        let mut device = BlockDevice { driver, id: info.id, threads: Vec::new(), is_closed: false };
        device.start_threads(engine, volume, info)?;
        let show = match options.taken_over {
            Some(_) => Control::EndUserRecovery,
            None => Control::StartDev,
        };
        let server = u64::from(std::process::id());
        command(&*device.driver, show, info.id, server, &mut [])?;
        Ok(device)
    }

    /// Starts a thread for each queue, and waits until all of them have asked for requests.
    fn start_threads(
        &mut self,
        engine: &Arc<Engine>,
        volume: &Arc<ArenaVolume>,
        info: DeviceInfo,
    ) -> Result<(), UblkError> {
        let (sender, ready) = channel();
        for queue in 0..info.queues {
            let failed = |source| UblkError::Queue { queue, source };
            let opening = Opening {
                engine: Arc::clone(engine),
                volume: Arc::clone(volume),
                driver: Arc::clone(&self.driver),
                info,
                queue,
            };
            let ready = sender.clone();
            // When the thread ends, the kernel fails requests in flight and later ones.
            let device = format!("the block device of {} has failed", volume.name());
            let panicked = move |error: &dyn fmt::Display| report_failed_part(&device, error);
            let serve = move || opening.serve(&ready);
            let thread = fault::spawn_fallible("ublk", Some(engine.cache()), serve, panicked);
            let thread = thread.map_err(failed)?;
            self.threads.push(thread);
        }
        drop(sender);
        wait_for(&ready, info.queues)
    }

    /// Its path.
    #[must_use]
    pub fn path(&self) -> String {
        path_of(self.id)
    }

    /// Hides and removes it. What is under way is answered first.
    ///
    /// # Errors
    /// Somebody uses it, unless `anyway`; or the kernel refuses.
    pub fn close(&mut self, anyway: bool) -> Result<(), UblkError> {
        if self.is_closed {
            return Ok(());
        }
        if !anyway && self.driver.is_used(self.id) {
            return Err(UblkError::InUse { path: self.path() });
        }
        let stopped = command(&*self.driver, Control::StopDev, self.id, 0, &mut []);
        if stopped.is_ok() {
            // The kernel has taken back all tags, so that they end.
            for thread in self.threads.drain(..) {
                thread.join();
            }
        }
        self.is_closed = true;
        let removed = command(&*self.driver, Control::DelDev, self.id, 0, &mut []);
        stopped.and(removed)
    }
}

impl Drop for BlockDevice {
    fn drop(&mut self) {
        if let Err(error) = self.close(true) {
            tracing::error!(%error, "a block device was left behind");
        }
    }
}

fn wait_for(ready: &Receiver<Result<(), UblkError>>, queues: u16) -> Result<(), UblkError> {
    let gone = || io::Error::other("its thread is gone");
    for queue in 0..queues {
        ready.recv().unwrap_or_else(|_| Err(UblkError::Queue { queue, source: gone() }))?;
    }
    Ok(())
}

/// Whether every write is in the store when it is acknowledged.
fn keeps_nothing_back(mode: WriteMode) -> bool {
    match mode {
        WriteMode::Through | WriteMode::Around | WriteMode::ReadOnly => true,
        WriteMode::Back => false,
    }
}

/// Makes a device and says what it is like.
fn make(
    driver: &dyn Driver,
    volume: &ArenaVolume,
    options: &DeviceOptions,
) -> Result<DeviceInfo, UblkError> {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let cores = u16::try_from(cores).unwrap_or(QUEUES_MAX).min(QUEUES_MAX);
    let outlives = options.outlives && keeps_nothing_back(volume.write_mode());
    let recovery = feature::USER_RECOVERY | feature::USER_RECOVERY_REISSUE;
    let mut info = DeviceInfo {
        queues: options.queues.unwrap_or(cores),
        depth: DEPTH,
        max_io_bytes: IO_BYTES_MAX,
        id: ANY_DEVICE,
        flags: feature::USER_COPY | feature::CMD_IOCTL_ENCODE | if outlives { recovery } else { 0 },
        mark: options.mark,
        ..DeviceInfo::default()
    };
    command(driver, Control::AddDev, ANY_DEVICE, 0, info.as_mut_bytes())?;
    let mut bytes = parameters(volume).as_bytes()[..Parameters::GIVEN_BYTES].to_vec();
    let set = command(driver, Control::SetParams, info.id, 0, &mut bytes);
    if let Err(error) = set {
        // It has no threads yet.
        if let Err(again) = command(driver, Control::DelDev, info.id, 0, &mut []) {
            tracing::error!(%again, "a block device was left behind");
        }
        return Err(error);
    }
    Ok(info)
}

/// Begins to serve one whose server is gone.
fn take_over(driver: &dyn Driver, id: u32) -> Result<DeviceInfo, UblkError> {
    let mut info = DeviceInfo::default();
    command(driver, Control::GetDevInfo, id, 0, info.as_mut_bytes())?;
    let info = DeviceInfo::read_from_bytes(info.as_bytes()).expect("of its own length");
    command(driver, Control::StartUserRecovery, id, 0, &mut [])?;
    Ok(info)
}

/// What a volume is like as a device.
fn parameters(volume: &ArenaVolume) -> Parameters {
    let geometry = volume.geometry();
    let shift = |bytes: u64| u8::try_from(bytes.trailing_zeros()).expect("below 64");
    let mut attributes = attribute::VOLATILE_CACHE | attribute::FUA;
    if volume.write_mode() == WriteMode::ReadOnly {
        attributes |= attribute::READ_ONLY;
    }
    Parameters {
        len: u32::try_from(Parameters::GIVEN_BYTES).expect("small"),
        types: parameter::BASIC | parameter::DISCARD,
        basic: Basic {
            attributes,
            // Smaller writes than the granule of the store are filled by the cache.
            logical_shift: shift(SECTOR_BYTES),
            physical_shift: shift(BLOCK_BYTES_U64),
            optimal_shift: shift(BLOCK_BYTES_U64),
            least_shift: shift(BLOCK_BYTES_U64),
            max_sectors: IO_BYTES_MAX / u32::try_from(SECTOR_BYTES).expect("512"),
            sectors: geometry.length / SECTOR_BYTES,
            ..Basic::default()
        },
        discard: Discard {
            granularity: u32::try_from(BLOCK_BYTES_U64).expect("4,096"),
            max_sectors: EXCLUDE_SECTORS_MAX,
            max_zero_sectors: EXCLUDE_SECTORS_MAX,
            max_segments: 1,
            ..Discard::default()
        },
        ..Parameters::default()
    }
}

/// What the thread of a queue is made of.
struct Opening {
    engine: Arc<Engine>,
    volume: Arc<ArenaVolume>,
    driver: Arc<dyn Driver>,
    info: DeviceInfo,
    queue: u16,
}

impl Opening {
    /// Serves the queue to its end, once `ready` is told that it can.
    fn serve(self, ready: &Sender<Result<(), UblkError>>) -> Result<(), Panicked> {
        let queue = self.queue;
        let failed = |source| UblkError::Queue { queue, source };
        let opened = self.open().and_then(|mut worker| match worker.fetch() {
            Ok(()) => Ok(worker),
            Err(error) => {
                worker.abandon();
                Err(error)
            }
        });
        let (told, worker) = match opened {
            Ok(worker) => (Ok(()), Some(worker)),
            Err(source) => (Err(failed(source)), None),
        };
        // Who started us may have given up already; then the device is stopped in a moment.
        let _is_heard = ready.send(told).is_ok();
        worker.map_or(Ok(()), Worker::run)
    }

    fn open(self) -> io::Result<Worker> {
        let Opening { engine, volume, driver, info, queue } = self;
        let cache = Arc::clone(engine.cache());
        let queue = driver.queue(&info, queue)?;
        let waker = Waker::new()?;
        let lane = cache.try_open_lane(&volume, Box::new(waker.clone()));
        let lane = lane.map_err(|_closed| io::Error::from(Errno::SHUTDOWN))?;
        let length = volume.geometry().length;
        Ok(Worker {
            queue,
            waker,
            cache,
            clock: engine.clock(),
            desk: Desk::new(Owner::Device, lane, None),
            mode: Box::new(move || volume.write_mode()),
            length,
            tags: info.depth,
        })
    }
}
