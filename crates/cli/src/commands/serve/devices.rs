//! Volumes as block devices (`--ublk`), and how they end.
//!
//! Invariants: the devices are those of the volumes that are served; none is hidden from those who
//! use it unless that is asked for a second time. A server that was built without them says so.

#[cfg(feature = "ublk")]
pub(super) use with::Devices;
#[cfg(not(feature = "ublk"))]
pub(super) use without::Devices;

use super::service::Service;
use crate::signals::SignalChannel;

/// How an attempt to hide something went wrong.
pub(super) enum Refused {
    /// Somebody uses it: by what it is known.
    InUse(std::path::PathBuf),
    /// Anything else, as a sentence.
    Failed(String),
}

impl Service {
    /// Hides the block devices, after those who use them are gone or a second signal came; whether
    /// anything may have been written while it waited for that.
    pub(crate) fn hide_devices(&self, signals: &SignalChannel) -> bool {
        self.cut_off_when_free(signals, &|anyway| self.devices().hide(anyway))
    }
}

#[cfg(feature = "ublk")]
mod with {
    use super::super::Arguments;
    use super::super::service::Served;
    use super::Refused;
    use anyhow::Result;
    use larder_core::mode::WriteMode;
    use larder_io::engine::Engine;
    use larder_io::front::ublk::{
        BlockDevice, DeviceOptions, Driver, KernelDriver, UblkError, left_behind,
    };
    use std::hash::{DefaultHasher, Hash, Hasher};
    use std::path::{Path, PathBuf};
    use std::sync::{Arc, Mutex, MutexGuard};

    /// The devices, by the names of their volumes; none without the flag.
    pub(in super::super) struct Devices {
        driver: Option<Arc<dyn Driver>>,
        engine: Arc<Engine>,
        shown: Mutex<Vec<(String, BlockDevice)>>,
    }

    /// What tells a volume's device from others, over a restart.
    fn mark(served: &Served) -> u64 {
        let mut hasher = DefaultHasher::new();
        let path: &Path = served.plan.path.as_ref();
        path.canonicalize().unwrap_or_else(|_| path.to_owned()).hash(&mut hasher);
        hasher.finish()
    }

    impl Devices {
        /// Shows all volumes, if that was asked for.
        pub(in super::super) fn start(
            arguments: &Arguments,
            engine: &Arc<Engine>,
            volumes: &[Served],
        ) -> Result<Self> {
            let driver: Option<Arc<dyn Driver>> =
                if arguments.ublk { Some(Arc::new(KernelDriver::open()?)) } else { None };
            let engine = Arc::clone(engine);
            let devices = Devices { driver, engine, shown: Mutex::default() };
            volumes.iter().try_for_each(|served| devices.add(served))?;
            Ok(devices)
        }

        fn shown(&self) -> MutexGuard<'_, Vec<(String, BlockDevice)>> {
            self.shown.lock().expect("no holder panics")
        }

        /// Shows one more volume, or serves again what a killed server had left.
        pub(in super::super) fn add(&self, served: &Served) -> Result<()> {
            let Some(driver) = &self.driver else { return Ok(()) };
            let (volume, mark) = (&served.volume, mark(served));
            let taken_over = left_behind(&**driver, mark);
            let outlives = volume.write_mode() != WriteMode::Back;
            let options = DeviceOptions { mark, outlives, taken_over, ..DeviceOptions::default() };
            let device = BlockDevice::start(&self.engine, volume, Arc::clone(driver), options)?;
            if taken_over.is_some() {
                let path = device.path();
                eprintln!("larder: note: {path} was left by a larder that was killed; it goes on");
            }
            self.shown().push((volume.name().to_owned(), device));
            Ok(())
        }

        /// Hides a volume, whoever uses it.
        pub(in super::super) fn remove(&self, name: &str) {
            let mut shown = self.shown();
            let Some(place) = shown.iter().position(|(known, _)| known == name) else { return };
            let (_, mut device) = shown.swap_remove(place);
            if let Err(error) = device.close(true) {
                eprintln!("larder: WARNING: failed to {error}");
            }
        }

        /// Where a volume is shown, if it is.
        pub(in super::super) fn path(&self, name: &str) -> Option<PathBuf> {
            let shown = self.shown();
            let device = shown.iter().find(|(known, _)| known == name);
            device.map(|(_, device)| device.path().into())
        }

        /// Hides all of them; those in use only if `anyway`. Nothing if there are none.
        pub(in super::super) fn hide(&self, anyway: bool) -> Option<Result<(), Refused>> {
            let mut shown = self.shown();
            if shown.is_empty() {
                return None;
            }
            while let Some((_, device)) = shown.last_mut() {
                match device.close(anyway) {
                    Ok(()) => drop(shown.pop()),
                    Err(UblkError::InUse { path }) => {
                        return Some(Err(Refused::InUse(path.into())));
                    }
                    Err(error) => {
                        drop(shown.pop());
                        return Some(Err(Refused::Failed(error.to_string())));
                    }
                }
            }
            Some(Ok(()))
        }
    }
}

#[cfg(not(feature = "ublk"))]
mod without {
    use super::super::Arguments;
    use super::super::service::Served;
    use super::Refused;
    use anyhow::{Result, ensure};
    use larder_io::engine::Engine;
    use std::path::PathBuf;
    use std::sync::Arc;

    /// No devices at all.
    pub(in super::super) struct Devices;

    #[expect(clippy::unused_self, clippy::unnecessary_wraps, reason = "as where there are some")]
    impl Devices {
        pub(in super::super) fn start(
            arguments: &Arguments,
            _: &Arc<Engine>,
            _: &[Served],
        ) -> Result<Self> {
            ensure!(
                !arguments.ublk,
                "make a block device: this larder was built without ublk (cargo build --features \
                 ublk); --fuse DIR and a loop device on its files, or an NBD client, do the same"
            );
            Ok(Devices)
        }

        pub(in super::super) fn add(&self, _: &Served) -> Result<()> {
            Ok(())
        }

        pub(in super::super) fn remove(&self, _: &str) {}

        pub(in super::super) fn path(&self, _: &str) -> Option<PathBuf> {
            None
        }

        pub(in super::super) fn hide(&self, _: bool) -> Option<Result<(), Refused>> {
            None
        }
    }
}
