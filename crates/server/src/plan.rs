//! The plan of a server: the effective settings of it and of each volume.
//!
//! Invariant: a plan from [`Configuration::plan`] passes all checks that need no open store, so
//! `larder check-config` and a reload report the same errors as a start.

use crate::output::{DistinctFiles, real_path};
use crate::settings::{Assignment, ServerSettings, find};
use crate::value::{OptionalPath, shortened, unknown, unknown_setting};
use crate::volume_plan::VolumePlan;
use crate::volume_source::VolumeSource;
use crate::{settings, warm};
use anyhow::anyhow;
use larder_io::engine::{MEMORY_BYTES_MIN, frames_in, machine_memory_bytes};
use larder_io::front::fuse::{FileRule, MountRestrictions};
use larder_io::front::nbd::ListenAddress;
use larder_schema::format;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::PathBuf;
use std::time::Duration;

/// Smallest valid maximum of a volume, in frames: less than 2 MiB is not enough for one large
/// request.
const MAX_FRAMES_MIN: u32 = 512;

/// Files of `--tls` that the server reads.
const TLS_FILES: [&str; 3] = ["server-cert.pem", "server-key.pem", "ca-cert.pem"];

/// The mount of a directory.
#[derive(Clone, Debug)]
pub struct MountOptions {
    /// The directory to cache.
    pub source: PathBuf,
    /// The mount point.
    pub mountpoint: PathBuf,
    /// Maximum age of names and attributes that are used without asking the directory.
    pub ttl: Duration,
    /// True if changes of the directory by other programs are observed.
    pub shared: bool,
    /// True if all users have access.
    pub allow_other: bool,
    /// Restrictions in addition to those of the mount that contains the directory.
    pub restrictions: MountRestrictions,
    /// Options for some files.
    pub rules: Vec<FileRule>,
}

/// The volumes and values that a command line and a configuration file give.
#[derive(Clone, Debug, Default)]
pub struct Configuration {
    /// The volumes.
    pub volumes: Vec<VolumeSource>,
    /// The values; of several for the same setting and volume the last applies.
    pub assignments: Vec<Assignment>,
    /// The configuration file.
    pub file: Option<PathBuf>,
    /// The directory to mount, in place of a server for the volumes.
    pub mount: Option<MountOptions>,
}

/// The settings of a server and its volumes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The settings of the server.
    pub server: ServerSettings,
    /// True if lists of cached pages are kept.
    pub(crate) warm_lists: bool,
    /// The settings of the volumes.
    pub volumes: Vec<VolumePlan>,
}

/// An invalid setting.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct PlanError {
    /// Error text, a verb phrase that follows "cannot"; it names settings by their flags.
    pub message: String,
    /// The same text with the keys of a configuration file, which `larder ctl set` uses as well.
    pub(crate) message_of_keys: String,
    /// The setting.
    pub key: String,
    /// The volume that the setting applies to.
    pub volume: Option<String>,
}

impl PlanError {
    /// Returns an error of a setting; `message` gets what precedes the name of a setting: `--` for
    /// a flag.
    fn new(key: &str, volume: Option<&str>, message: impl Fn(&str) -> String) -> Self {
        let (message, message_of_keys) = (message("--"), message(""));
        PlanError {
            message,
            message_of_keys,
            key: key.to_owned(),
            volume: volume.map(str::to_owned),
        }
    }
}

/// Refuses a setting with a message that names no other one.
fn refuse<T>(key: &str, volume: Option<&str>, message: impl Into<String>) -> Result<T, PlanError> {
    let message = message.into();
    Err(PlanError::new(key, volume, |_| message.clone()))
}

/// Returns the error of a value that a setting refuses.
pub(crate) fn refuse_value(assignment: &Assignment, reason: &str) -> PlanError {
    let Assignment { volume, name, .. } = assignment;
    let full_name =
        volume.iter().chain([name]).map(|it| shortened(it)).collect::<Vec<_>>().join(".");
    PlanError::new(name, volume.as_deref(), |_| format!("set {full_name}: {reason}"))
}

impl Configuration {
    /// Returns the plan of this configuration.
    ///
    /// # Errors
    /// A setting is invalid, or they contradict each other.
    pub fn plan(&self) -> Result<Plan, PlanError> {
        self.check_names()?;
        let mut server = ServerSettings::default();
        for assignment in &self.assignments {
            if let Some(setting) = find(&assignment.name).filter(|it| !it.is_of_volumes()) {
                self.check_required(setting)?;
                let set = setting.set_server(&mut server, &assignment.value);
                set.map_err(|reason| refuse_value(assignment, &reason))?;
            }
        }
        self.check_files(&server, None)?;
        self.check_outside_mounts(&server)?;
        if let Some(floor) = server.give_back.filter(|floor| *floor > server.memory_bytes) {
            let [floor, memory] = [floor, server.memory_bytes].map(format::bytes);
            return Err(PlanError::new("give-back", None, |flag| {
                format!("give memory back down to {floor}: {flag}memory is only {memory}")
            }));
        }
        let values = VolumeValues::new(&self.assignments);
        let volumes = self.volumes.iter().map(|source| values.plan(source));
        let volumes = volumes.collect::<Result<_, _>>()?;
        let warm_lists = warm::directory(&server).is_some();
        let plan = Plan { server, warm_lists, volumes };
        plan.check()?;
        Ok(plan)
    }

    /// Returns the plan of a volume that is to be added with these settings, to a server that was
    /// started with `server`.
    pub(crate) fn plan_added(
        &self,
        server: &ServerSettings,
        volume: &str,
        settings: &BTreeMap<String, String>,
    ) -> anyhow::Result<VolumePlan> {
        let source =
            VolumeSource::parse(volume).map_err(|error| anyhow!("add {volume}: {error}"))?;
        self.check_files(server, Some(&source))?;
        let mut plan = VolumeValues::new(&self.assignments).plan(&source)?;
        let assignments: Vec<_> = settings
            .iter()
            .map(|(name, value)| Assignment {
                volume: Some(source.name.clone()),
                name: name.clone(),
                value: value.into(),
            })
            .collect();
        plan.assign(assignments.iter())?;
        Ok(plan)
    }

    fn check_required(&self, setting: &settings::Setting) -> Result<(), PlanError> {
        let Some(required) = setting.requires else { return Ok(()) };
        if self.assignments.iter().any(|assignment| assignment.name == required) {
            return Ok(());
        }
        let name = setting.name;
        let message = |flag: &str| format!("set {flag}{name}: it needs {flag}{required}");
        Err(PlanError::new(name, None, message))
    }

    /// Returns the settings that name an output file, with the file.
    fn output_files(server: &ServerSettings) -> impl Iterator<Item = (&'static str, &PathBuf)> {
        let files = [
            ("counters", &server.counters),
            ("record", &server.record),
            ("record-inputs", &server.record_inputs),
        ];
        files.into_iter().filter_map(|(name, file)| Some((name, file.as_ref()?)))
    }

    /// Refuses files that the server reads and would replace: with an option that writes a file, or
    /// with the warm list of a volume.
    fn check_files(
        &self,
        server: &ServerSettings,
        added: Option<&VolumeSource>,
    ) -> Result<(), PlanError> {
        // A volume of the start that was removed may be added again under its name.
        let is_other = |volume: &&VolumeSource| added.is_none_or(|added| added.name != volume.name);
        let volumes = || self.volumes.iter().filter(is_other).chain(added);
        let others = [&self.file, &server.control_token].into_iter().flatten().cloned();
        let tls =
            server.tls.iter().flat_map(|directory| TLS_FILES.map(|name| directory.join(name)));
        let read = volumes().filter_map(VolumeSource::file).chain(others).chain(tls);
        let mut files = DistinctFiles::of_inputs(read);
        for (key, file) in Self::output_files(server) {
            files.add_output(file).or_else(|error| refuse(key, None, error.to_string()))?;
        }
        let Some(directory) = warm::directory(server) else { return Ok(()) };
        for volume in volumes() {
            let added = files.add_output(&warm::list(&directory, &volume.name));
            added.or_else(|error| refuse("warm-list", None, error.to_string()))?;
        }
        Ok(())
    }

    /// Refuses outputs and sockets in a directory that is cached or mounted at: they would replace
    /// files behind the cache, or keep the mount in use.
    fn check_outside_mounts(&self, server: &ServerSettings) -> Result<(), PlanError> {
        let mount = self.mount.iter().flat_map(|mount| [&mount.source, &mount.mountpoint]);
        let directories: Vec<_> =
            mount.chain(&server.fuse).filter_map(|it| real_path(it)).collect();
        if directories.is_empty() {
            return Ok(());
        }
        let listen = match &server.listen {
            Some(ListenAddress::Unix(path)) => Some(path),
            _ => None,
        };
        let others = [
            ("control", server.control.as_ref().and_then(OptionalPath::path)),
            ("listen", listen),
            ("warm-list", server.warm_list.as_ref().and_then(OptionalPath::path)),
        ];
        let others = others.into_iter().filter_map(|(key, path)| Some((key, path?)));
        for (key, path) in Self::output_files(server).chain(others) {
            let Some(own) = real_path(path) else { continue };
            if let Some(directory) = directories.iter().find(|it| own.starts_with(it)) {
                let (path, directory) = (path.display(), directory.display());
                return Err(PlanError::new(key, None, |flag| {
                    format!(
                        "use {path} for {flag}{key}: it is in {directory}, which is mounted; name \
                         a path outside"
                    )
                }));
            }
        }
        Ok(())
    }

    fn check_names(&self) -> Result<(), PlanError> {
        let mut names = HashSet::new();
        let has_files = self.assignments.iter().any(|assignment| assignment.name == "fuse");
        for name in self.volumes.iter().map(|volume| volume.name.as_str()) {
            if has_files && let Err(error) = larder_io::front::fuse::check_name(name) {
                return refuse("name", Some(name), error.to_string());
            }
            if !names.insert(name) {
                return Err(PlanError::new("name", Some(name), |flag| {
                    let how = if flag.is_empty() { "a \"name\" key" } else { "NAME=PATH" };
                    format!("serve two volumes called \"{name}\": name one of them with {how}")
                }));
            }
        }
        for assignment in &self.assignments {
            let Assignment { volume: Some(volume), name, .. } = assignment else { continue };
            if !names.contains(volume.as_str()) {
                let reason = unknown("volume", volume, names.iter().copied());
                return Err(PlanError::new(name, Some(volume), |flag| {
                    format!("set {flag}{name}: {reason}")
                }));
            }
        }
        Ok(())
    }
}

/// The values for volumes, by volume, of which there may be thousands. The key `None` is for all
/// volumes.
pub(crate) struct VolumeValues<'a>(HashMap<Option<&'a str>, Vec<&'a Assignment>>);

impl<'a> VolumeValues<'a> {
    pub(crate) fn new(assignments: &'a [Assignment]) -> Self {
        let mut values: HashMap<_, Vec<_>> = HashMap::new();
        for assignment in assignments {
            values.entry(assignment.volume.as_deref()).or_default().push(assignment);
        }
        VolumeValues(values)
    }

    /// Sets the values for a volume: those for all volumes first.
    pub(crate) fn assign(&self, plan: &mut VolumePlan) -> Result<(), PlanError> {
        let name = plan.name.clone();
        let of = |volume| self.0.get(&volume).into_iter().flatten().copied();
        plan.assign(of(None).chain(of(Some(&name))))
    }

    fn plan(&self, source: &VolumeSource) -> Result<VolumePlan, PlanError> {
        let VolumeSource { name, path, upstream } = source.clone();
        let mut plan = VolumePlan { name, path, upstream, ..VolumePlan::default() };
        self.assign(&mut plan)?;
        Ok(plan)
    }
}

impl VolumePlan {
    /// Sets values: presets first, which set all tunables; then the others in their order. Values
    /// for settings of the server are passed over.
    fn assign<'a>(
        &mut self,
        assignments: impl Iterator<Item = &'a Assignment> + Clone,
    ) -> Result<(), PlanError> {
        let is_preset = |assignment: &&Assignment| assignment.name == "preset";
        let presets = assignments.clone().filter(is_preset);
        for assignment in presets.chain(assignments.filter(|it| !is_preset(it))) {
            let name = &assignment.name;
            let Some(setting) = find(name) else {
                let known = settings::SETTINGS.iter().map(|setting| setting.name);
                return Err(refuse_value(assignment, &unknown_setting("setting", name, known)));
            };
            if !setting.is_of_volumes() && assignment.volume.is_none() {
                continue;
            }
            let set = setting.set_volume(self, &assignment.value);
            set.map_err(|reason| refuse_value(assignment, &reason))?;
        }
        Ok(())
    }

    fn check(&self, frames: u32) -> Result<(), PlanError> {
        let VolumePlan { name, min_frames, max_frames, .. } = self;
        let refuse = |key, reason: fn(&str) -> String| {
            Err(PlanError::new(key, Some(name), |flag| {
                format!("set {flag}{key} of \"{name}\": {}", reason(flag))
            }))
        };
        if min_frames > max_frames {
            return refuse("min", |flag| format!("it is above the {flag}max of the volume"));
        }
        if *min_frames > frames {
            return refuse("min", |flag| {
                format!("it is more than the cache has; raise {flag}memory")
            });
        }
        if *max_frames < MAX_FRAMES_MIN {
            return refuse("max", |_| "it is below 2MiB, which one large request needs".to_owned());
        }
        Ok(())
    }
}

impl Plan {
    /// Returns the bytes of `--memory` that upstream volumes use for their buffers.
    fn buffer_bytes(&self) -> u64 {
        self.volumes.iter().map(|volume| volume.buffer_bytes(self.server.memory_bytes)).sum()
    }

    /// Returns the bytes of `--memory` that the cache cannot use: upstream volumes and lists take
    /// them.
    pub(crate) fn reserved_bytes(&self) -> u64 {
        let memory_bytes = self.server.memory_bytes;
        let lists = if self.warm_lists { warm::reserved_bytes(memory_bytes) } else { 0 };
        self.buffer_bytes() + lists
    }

    /// Returns the bytes of policy metadata for each frame: the maximum over the policies.
    pub(crate) fn policy_bytes(&self) -> usize {
        self.volumes.iter().map(|volume| volume.policy.bytes_per_page()).max().unwrap_or(0)
    }

    /// Checks the settings against each other.
    pub(crate) fn check(&self) -> Result<(), PlanError> {
        let memory_bytes = self.server.memory_bytes;
        check_memory(memory_bytes)?;
        let buffers = self.buffer_bytes();
        if buffers > 0 && buffers + MEMORY_BYTES_MIN > memory_bytes {
            let [memory, buffers] = [memory_bytes, buffers].map(format::bytes);
            return Err(PlanError::new("memory", None, |flag| {
                format!(
                    "serve upstream volumes with {memory}: their buffers alone are {buffers}; \
                     raise {flag}memory"
                )
            }));
        }
        let frames = frames_in(memory_bytes - self.reserved_bytes(), self.policy_bytes());
        let mut reserved_frames = 0;
        for volume in &self.volumes {
            volume.check(frames)?;
            reserved_frames += u64::from(volume.min_frames);
            if reserved_frames > u64::from(frames) {
                return Err(PlanError::new("min", Some(&volume.name), |flag| {
                    format!(
                        "give every volume its {flag}min: together they are more than {flag}memory"
                    )
                }));
            }
        }
        Ok(())
    }
}

/// Refuses a size of the cache that is below the minimum or above the memory of the machine.
///
/// # Errors
/// The size, with the bound.
pub fn check_memory(bytes: u64) -> Result<(), PlanError> {
    let machine_bytes = machine_memory_bytes();
    if bytes < MEMORY_BYTES_MIN {
        let least = MEMORY_BYTES_MIN >> 20;
        // A number without a unit is bytes, which was hardly meant.
        let is_bare = !bytes.is_multiple_of(1024) && !bytes.is_multiple_of(1000);
        let unit = if (1..1 << 16).contains(&bytes) && is_bare {
            format!("; add a unit, as in {}MiB", bytes.max(least))
        } else {
            String::new()
        };
        let bytes = format::bytes(bytes);
        let message = format!("use {bytes} of memory: the minimum is {least} MiB{unit}");
        return refuse("memory", None, message);
    }
    if bytes > machine_bytes {
        let [bytes, machine_bytes] = [bytes, machine_bytes].map(format::bytes);
        let message = format!("use {bytes} of memory: this machine has {machine_bytes}; use less");
        return refuse("memory", None, message);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    /// Returns the configuration of a mount of `source` at `mountpoint` with one more setting.
    fn mounted(root: &Path, name: &str, value: &str) -> Configuration {
        let [source, mountpoint] = ["source", "mountpoint"].map(|name| root.join(name));
        let volumes =
            vec![VolumeSource { name: "all".into(), path: source.clone(), upstream: None }];
        let value = value.replace("ROOT", root.to_str().expect("UTF-8"));
        Configuration {
            volumes,
            assignments: vec![Assignment::parse(name, &value)],
            file: None,
            mount: Some(MountOptions {
                source,
                mountpoint,
                ttl: Duration::ZERO,
                shared: false,
                allow_other: false,
                restrictions: MountRestrictions::NONE,
                rules: Vec::new(),
            }),
        }
    }

    #[test]
    fn nothing_is_written_into_a_directory_that_is_cached_or_mounted_at() {
        let root = tempfile::tempdir().expect("room");
        for name in ["source", "mountpoint", "source/sub"] {
            std::fs::create_dir(root.path().join(name)).expect("room");
        }
        std::os::unix::fs::symlink("source/sub", root.path().join("link")).expect("room");
        for (name, value) in [
            ("counters", "ROOT/source/a"),
            ("counters", "ROOT/link/a"),
            ("counters", "ROOT/mountpoint/a"),
            ("record-inputs", "ROOT/source/sub/a"),
            ("control", "ROOT/mountpoint/c.sock"),
        ] {
            let error = mounted(root.path(), name, value).plan().expect_err(value);
            assert_eq!(error.key, name);
            assert!(error.message.contains("name a path outside"), "{error}");
        }
        for value in ["ROOT/a", "ROOT/source.json", "ROOT/missing/a"] {
            assert!(mounted(root.path(), "counters", value).plan().is_ok(), "{value}");
        }
    }
}
