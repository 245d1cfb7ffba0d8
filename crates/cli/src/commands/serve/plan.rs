//! The plan of `larder serve`: the effective settings of the server and of each volume, from the
//! flags and the configuration file.
//!
//! Invariant: a plan from [`Plan::of`] passes all checks that need no open store, so `larder
//! check-config` and a reload report the same errors as a start.

use super::{ServeArgs, stores, warm};
use crate::args::{self, ByVolume, Named, PolicyChoice, VolumeArgument};
use crate::output::DistinctFiles;
use larder_core::cache::ShareMode;
use larder_core::hint::Hint;
use larder_core::mode::{FlushMode, WriteMode};
use larder_core::tunables::Tunables;
use larder_core::units::BLOCK_BYTES_U64;
use larder_io::engine::{MEMORY_BYTES_MIN, frames_in, machine_memory_bytes};
use larder_io::nbd_client::NbdUri;
use larder_report::format;
use std::collections::{HashMap, HashSet};
use std::path::PathBuf;

/// Smallest valid maximum of a volume, in frames: less than 2 MiB is not enough for one large
/// request.
const MAX_FRAMES_MIN: u32 = 512;

/// Files of `--tls` that the server reads.
const TLS_FILES: [&str; 3] = ["server-cert.pem", "server-key.pem", "ca-cert.pem"];

/// The settings of one volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct VolumePlan {
    pub(crate) name: String,
    pub(crate) path: PathBuf,
    /// The address of an NBD export on another server, if `path` is one.
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

/// The settings of a server and its volumes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) memory_bytes: u64,
    /// True if lists of cached pages are kept.
    pub(crate) warm_lists: bool,
    /// Mode in which volumes share the memory.
    pub(crate) share: ShareMode,
    pub(crate) volumes: Vec<VolumePlan>,
}

/// An invalid setting.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub(crate) struct PlanError {
    /// Error text, a verb phrase that follows "failed to".
    pub(crate) message: String,
    /// The flag, or key of the file.
    pub(crate) key: &'static str,
    /// The volume that the setting applies to.
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
    /// Returns the plan of these arguments.
    pub(crate) fn of(arguments: &ServeArgs) -> Result<Self, PlanError> {
        check_names(arguments)?;
        check_files(arguments, None)?;
        if let Some(floor) = arguments.give_back.filter(|floor| *floor > arguments.memory) {
            let [floor, memory] = [floor, arguments.memory].map(format::bytes);
            let message = format!("give memory back down to {floor}: --memory is only {memory}");
            return refuse("give-back", None, message);
        }
        let flags = VolumeFlags::of(arguments);
        let volumes = arguments.volumes.iter().map(|volume| VolumePlan::of(&flags, volume));
        let volumes: Vec<_> = volumes.collect::<Result<_, _>>()?;
        let plan = Plan {
            memory_bytes: arguments.memory,
            warm_lists: warm::directory(arguments).is_some(),
            share: arguments.share,
            volumes,
        };
        plan.check()?;
        Ok(plan)
    }

    /// Returns the bytes of policy metadata for each frame: the maximum over the policies.
    pub(crate) fn policy_bytes(&self) -> usize {
        self.volumes.iter().map(|volume| volume.policy.bytes_per_page()).max().unwrap_or(0)
    }

    /// Checks the settings against each other.
    pub(crate) fn check(&self) -> Result<(), PlanError> {
        let memory_bytes = self.memory_bytes;
        check_memory(memory_bytes)?;
        let buffers = stores::buffer_bytes(self);
        if buffers > 0 && buffers + MEMORY_BYTES_MIN > memory_bytes {
            let message = format!(
                "serve upstream volumes with {}: their buffers alone are {}; raise --memory",
                format::bytes(memory_bytes),
                format::bytes(buffers),
            );
            return refuse("memory", None, message);
        }
        let frames = frames_in(memory_bytes - stores::reserved_bytes(self), self.policy_bytes());
        let mut reserved_frames = 0;
        for volume in &self.volumes {
            volume.check(frames)?;
            reserved_frames += u64::from(volume.min_frames);
            if reserved_frames > u64::from(frames) {
                let message = "give every volume its --min: together they are more than --memory";
                return refuse("min", Some(&volume.name), message);
            }
        }
        Ok(())
    }
}

/// Flags that may be given for one volume, by volume: a configuration may have thousands of them.
pub(super) struct VolumeFlags<'a> {
    page_size: ByVolume<'a, u32>,
    policy: ByVolume<'a, PolicyChoice>,
    write_mode: ByVolume<'a, WriteMode>,
    flush: ByVolume<'a, FlushMode>,
    hint: ByVolume<'a, Hint>,
    min: ByVolume<'a, u64>,
    max: ByVolume<'a, u64>,
    preset: ByVolume<'a, String>,
    read_ahead: ByVolume<'a, u64>,
    /// In the order of the command line; the key `None` is for all volumes.
    set: HashMap<Option<&'a str>, Vec<&'a (String, u64)>>,
}

impl<'a> VolumeFlags<'a> {
    pub(super) fn of(arguments: &'a ServeArgs) -> Self {
        let mut set: HashMap<_, Vec<_>> = HashMap::new();
        for Named { volume, value } in &arguments.set {
            set.entry(volume.as_deref()).or_default().push(value);
        }
        VolumeFlags {
            page_size: ByVolume::new(&arguments.page_size),
            policy: ByVolume::new(&arguments.policy),
            write_mode: ByVolume::new(&arguments.write_mode),
            flush: ByVolume::new(&arguments.flush),
            hint: ByVolume::new(&arguments.hint),
            min: ByVolume::new(&arguments.min),
            max: ByVolume::new(&arguments.max),
            preset: ByVolume::new(&arguments.preset),
            read_ahead: ByVolume::new(&arguments.read_ahead),
            set,
        }
    }
}

impl VolumePlan {
    /// Returns the plan of a volume according to the flags.
    pub(super) fn of(flags: &VolumeFlags<'_>, volume: &VolumeArgument) -> Result<Self, PlanError> {
        let name = volume.name.as_str();
        let frames = |bytes: &u64| u32::try_from(bytes / BLOCK_BYTES_U64).unwrap_or(u32::MAX);
        Ok(VolumePlan {
            name: name.to_owned(),
            path: volume.path.clone(),
            upstream: volume.upstream.clone(),
            page_blocks: flags.page_size.of(name).copied().unwrap_or(1),
            policy: flags.policy.of(name).copied().unwrap_or_default(),
            write_mode: flags.write_mode.of(name).copied().unwrap_or(WriteMode::Back),
            flush_mode: flags.flush.of(name).copied().unwrap_or(FlushMode::Keep),
            hint: flags.hint.of(name).copied().unwrap_or(Hint::Normal),
            min_frames: flags.min.of(name).map_or(0, frames),
            max_frames: flags.max.of(name).map_or(u32::MAX, frames),
            tunables: tunables(flags, name)?,
        })
    }

    fn check(&self, frames: u32) -> Result<(), PlanError> {
        let VolumePlan { name, min_frames, max_frames, .. } = self;
        let refuse =
            |key, reason: &str| refuse(key, Some(name), format!("set {key} of {name}: {reason}"));
        if min_frames > max_frames {
            return refuse("min", "it is above its max");
        }
        if *min_frames > frames {
            return refuse("min", "it is more than the cache has; raise memory");
        }
        if *max_frames < MAX_FRAMES_MIN {
            return refuse("max", "it is below 2MiB, less than one large request needs");
        }
        Ok(())
    }
}

/// Returns the tunables of a volume: the preset, overridden by settings for all volumes, by
/// settings for this one, and by the flag for read-ahead.
fn tunables(flags: &VolumeFlags<'_>, volume: &str) -> Result<Tunables, PlanError> {
    let preset = flags.preset.of(volume).map_or("larder", String::as_str);
    let Some(mut tunables) = Tunables::preset(preset) else {
        let message = format!("use preset \"{preset}\": there are larder and nt");
        return refuse("preset", Some(volume), message);
    };
    for scope in [None, Some(volume)] {
        for (name, value) in flags.set.get(&scope).into_iter().flatten().copied() {
            if let Err(error) = args::set_tunable(&mut tunables, name, *value) {
                return refuse("set", scope, format!("set {name}: {error}"));
            }
        }
    }
    if let Some(&bytes) = flags.read_ahead.of(volume)
        && let Err(error) = tunables.set("read-ahead-max", bytes)
    {
        return refuse("read-ahead", Some(volume), format!("set --read-ahead: {error}"));
    }
    Ok(tunables)
}

/// Refuses a size of the cache that is below the minimum or above the memory of the machine.
pub(crate) fn check_memory(bytes: u64) -> Result<(), PlanError> {
    let machine_bytes = machine_memory_bytes();
    if bytes < MEMORY_BYTES_MIN {
        let least = MEMORY_BYTES_MIN >> 20;
        let message = format!("use {} of memory: {least} MiB are the least", format::bytes(bytes));
        return refuse("memory", None, message);
    }
    if bytes > machine_bytes {
        let (mib, machine_mib) = (bytes >> 20, machine_bytes >> 20);
        let message = format!("use {mib} MiB of memory: this machine has {machine_mib} MiB");
        return refuse("memory", None, message);
    }
    Ok(())
}

/// Refuses files that the server reads and would replace: with an option that writes a file, or
/// with the warm list of a volume.
pub(super) fn check_files(
    arguments: &ServeArgs,
    added: Option<&VolumeArgument>,
) -> Result<(), PlanError> {
    // A volume of the start that was removed may be added again under its name.
    let is_other = |volume: &&VolumeArgument| added.is_none_or(|added| added.name != volume.name);
    let volumes = || arguments.volumes.iter().filter(is_other).chain(added);
    let others = [&arguments.config, &arguments.control_token].into_iter().flatten().cloned();
    let tls = arguments.tls.iter().flat_map(|directory| TLS_FILES.map(|name| directory.join(name)));
    let read = volumes().filter_map(VolumeArgument::file).chain(others).chain(tls);
    let mut files = DistinctFiles::of_inputs(read);
    for (key, file) in arguments.output_files() {
        files.add_output(file).or_else(|error| refuse(key, None, error.to_string()))?;
    }
    let Some(directory) = warm::directory(arguments) else { return Ok(()) };
    for volume in volumes() {
        let added = files.add_output(&warm::list(&directory, &volume.name));
        added.or_else(|error| refuse("warm-list", None, error.to_string()))?;
    }
    Ok(())
}

fn check_names(arguments: &ServeArgs) -> Result<(), PlanError> {
    let mut names = HashSet::new();
    for name in arguments.volumes.iter().map(|volume| volume.name.as_str()) {
        if arguments.fuse.is_some()
            && let Err(error) = larder_io::front::fuse::check_name(name)
        {
            return refuse("name", Some(name), error.to_string());
        }
        if !names.insert(name) {
            let message =
                format!("serve two volumes called \"{name}\": name one of them with NAME=PATH");
            return refuse("name", Some(name), message);
        }
    }
    for (key, volume) in arguments.named_volumes() {
        if !names.contains(volume.as_str()) {
            let message = format!("set --{key} of \"{volume}\": no volume is called so");
            return refuse(key, Some(&volume), message);
        }
    }
    Ok(())
}
