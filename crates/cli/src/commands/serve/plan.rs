//! The plan: what the flags and the configuration file of `larder serve` come to, each volume with
//! everything that holds for it.
//!
//! Invariant: a plan that [`Plan::of`] gives can be served as far as can be told without opening
//! anything, so `larder check-config` and a reload find what a start would find.

use super::{Arguments, stores, warm};
use crate::args::{Named, PolicyChoice, VolumeArgument, value_of};
use larder_core::cache::ShareMode;
use larder_core::hint::Hint;
use larder_core::mode::{FlushMode, WriteMode};
use larder_core::tunables::Tunables;
use larder_core::units::BLOCK_BYTES_U64;
use larder_io::engine::{MEMORY_BYTES_MIN, frames_in, machine_memory_bytes};
use larder_io::nbd_client::NbdUri;
use larder_report::format;
use std::path::PathBuf;

/// The least ceiling of a volume, in frames: less than 2 MiB is not enough for one large request.
const MAX_FRAMES_MIN: u32 = 512;

/// What holds for one volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct VolumePlan {
    pub(crate) name: String,
    pub(crate) path: PathBuf,
    /// An export of another server, where the path is the address of one.
    pub(crate) upstream: Option<NbdUri>,
    pub(crate) page_blocks: u32,
    pub(crate) policy: PolicyChoice,
    pub(crate) write_mode: WriteMode,
    pub(crate) flush_mode: FlushMode,
    pub(crate) hint: Hint,
    pub(crate) min_frames: u32,
    pub(crate) max_frames: u32,
    pub(crate) tunables: Tunables,
}

/// What is to be served, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) memory_bytes: u64,
    /// Whether lists of what is cached are kept.
    pub(crate) warm_lists: bool,
    /// How volumes share it.
    pub(crate) share: ShareMode,
    pub(crate) volumes: Vec<VolumePlan>,
}

/// Why there is no plan, and which flag or key says so.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub(crate) struct PlanError {
    /// A sentence that can follow "failed to".
    pub(crate) message: String,
    /// The flag, or key of the file.
    pub(crate) key: &'static str,
    /// The volume that it is about.
    pub(crate) volume: Option<String>,
}

fn refuse<T>(
    key: &'static str,
    volume: Option<&str>,
    message: impl Into<String>,
) -> Result<T, PlanError> {
    Err(PlanError { message: message.into(), key, volume: volume.map(str::to_owned) })
}

impl Plan {
    /// The plan that these arguments ask for.
    pub(crate) fn of(arguments: &Arguments) -> Result<Self, PlanError> {
        if arguments.volumes.is_empty() {
            return refuse("volume", None, "serve: no volume is named");
        }
        check_names(arguments)?;
        let volumes = arguments.volumes.iter();
        let volumes: Vec<_> =
            volumes.map(|volume| VolumePlan::of(arguments, volume)).collect::<Result<_, _>>()?;
        let plan = Plan {
            memory_bytes: arguments.memory,
            warm_lists: warm::folder(arguments).is_some(),
            share: arguments.share,
            volumes,
        };
        plan.check()?;
        Ok(plan)
    }

    /// Bytes of policy metadata for each frame: as much as the neediest policy wants.
    pub(crate) fn policy_bytes(&self) -> usize {
        self.volumes.iter().map(|volume| volume.policy.bytes_per_page()).max().unwrap_or(0)
    }

    /// Whether everything in it goes together.
    pub(crate) fn check(&self) -> Result<(), PlanError> {
        let (wanted, has) = (self.memory_bytes, machine_memory_bytes());
        if wanted < MEMORY_BYTES_MIN {
            let least = MEMORY_BYTES_MIN >> 20;
            let message = format!("use {} KiB of memory: {least} MiB are the least", wanted >> 10);
            return refuse("memory", None, message);
        }
        if wanted > has {
            let (wanted, has) = (wanted >> 20, has >> 20);
            let message = format!("use {wanted} MiB of memory: this machine has {has} MiB");
            return refuse("memory", None, message);
        }
        let buffers = stores::buffer_bytes(self);
        if buffers > 0 && buffers + MEMORY_BYTES_MIN > wanted {
            let message = format!(
                "serve upstream volumes with {}: their buffers alone are {}; raise --memory",
                format::bytes(wanted),
                format::bytes(buffers),
            );
            return refuse("memory", None, message);
        }
        let frames = frames_in(wanted - stores::bytes_beside(self), self.policy_bytes());
        let mut promised = 0;
        for volume in &self.volumes {
            volume.check(frames)?;
            promised += u64::from(volume.min_frames);
            if promised > u64::from(frames) {
                let message = "give every volume its --min: together they are more than --memory";
                return refuse("min", Some(&volume.name), message);
            }
        }
        Ok(())
    }
}

impl VolumePlan {
    /// What the arguments say of a volume.
    pub(super) fn of(arguments: &Arguments, volume: &VolumeArgument) -> Result<Self, PlanError> {
        let name = volume.name.as_str();
        let frames = |bytes: &u64| u32::try_from(bytes / BLOCK_BYTES_U64).unwrap_or(u32::MAX);
        let of = |bounds: &[Named<u64>]| value_of(bounds, name).map(frames);
        Ok(VolumePlan {
            name: name.to_owned(),
            path: volume.path.clone(),
            upstream: volume.upstream.clone(),
            page_blocks: value_of(&arguments.page_size, name).copied().unwrap_or(1),
            policy: value_of(&arguments.policy, name).copied().unwrap_or_default(),
            write_mode: value_of(&arguments.write_mode, name).copied().unwrap_or(WriteMode::Back),
            flush_mode: value_of(&arguments.flush, name).copied().unwrap_or(FlushMode::Keep),
            hint: value_of(&arguments.hint, name).copied().unwrap_or(Hint::Normal),
            min_frames: of(&arguments.min).unwrap_or(0),
            max_frames: of(&arguments.max).unwrap_or(u32::MAX),
            tunables: tunables(arguments, name)?,
        })
    }

    fn check(&self, frames: u32) -> Result<(), PlanError> {
        let VolumePlan { name, min_frames, max_frames, .. } = self;
        let refuse = |key, what: &str| refuse(key, Some(name), format!("serve {name}: {what}"));
        if min_frames > max_frames {
            return refuse("min", "its --min is above its --max");
        }
        if *min_frames > frames {
            return refuse("min", "its --min is more than the cache has; raise --memory");
        }
        if *max_frames < MAX_FRAMES_MIN {
            return refuse("max", "its --max is below 2MiB, less than one large request needs");
        }
        Ok(())
    }
}

/// The preset, then what is set for all volumes, then what is set for this one; the flag for
/// read-ahead goes before them.
fn tunables(arguments: &Arguments, volume: &str) -> Result<Tunables, PlanError> {
    let preset = value_of(&arguments.preset, volume).map_or("larder", String::as_str);
    let Some(mut tunables) = Tunables::preset(preset) else {
        let message = format!("use preset \"{preset}\": there are larder and nt");
        return refuse("preset", Some(volume), message);
    };
    let all = arguments.set.iter().filter(|named| named.volume.is_none());
    let own = arguments.set.iter().filter(|named| named.volume.as_deref() == Some(volume));
    for Named { volume: of, value: (name, value) } in all.chain(own) {
        if let Err(error) = tunables.set(name, *value) {
            return refuse("set", of.as_deref(), format!("set {name}: {error}"));
        }
    }
    if let Some(&bytes) = value_of(&arguments.read_ahead, volume)
        && let Err(error) = tunables.set("read-ahead-max", bytes)
    {
        return refuse("read-ahead", Some(volume), format!("set --read-ahead: {error}"));
    }
    Ok(tunables)
}

fn check_names(arguments: &Arguments) -> Result<(), PlanError> {
    let names: Vec<_> = arguments.volumes.iter().map(|volume| &volume.name).collect();
    for (i, name) in names.iter().enumerate() {
        if arguments.fuse.is_some()
            && let Err(error) = larder_io::front::fuse::check_name(name)
        {
            return refuse("name", Some(name), error.to_string());
        }
        if names[..i].contains(name) {
            let message =
                format!("serve two volumes called \"{name}\": name one of them with NAME=PATH");
            return refuse("name", Some(name), message);
        }
    }
    for (key, volume) in arguments.named_volumes() {
        if !names.iter().any(|name| **name == volume) {
            let message = format!("set --{key} of \"{volume}\": no volume is called so");
            return refuse(key, Some(&volume), message);
        }
    }
    Ok(())
}
