//! Changes to a running server: settings by the names of the flags, as texts, from `larder ctl set`
//! and from a configuration file that is read again.
//!
//! Invariant: all changes of one request are applied, or none. They are checked together first, as
//! a plan, as at the start; if the cache nevertheless refuses one of them, those before it are
//! reverted.

use super::plan::{Plan, VolumePlan};
use super::service::{ServedVolume, Service};
use crate::args::{self, PolicyChoice};
use larder_core::units::BLOCK_BYTES_U64;
use larder_io::engine::EngineError;
use larder_report::control::Change;

/// A value for a setting, of one volume or of all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Setting {
    /// The volume; `None` for all volumes, or for a setting of the server itself.
    pub(crate) volume: Option<String>,
    pub(crate) name: String,
    pub(crate) value: String,
}

impl Setting {
    /// Parses `[VOLUME.]NAME` and a value. The name of a volume may contain ".", that of a setting
    /// does not.
    pub(crate) fn parse(name: &str, value: &str) -> Self {
        let (volume, name) = match name.rsplit_once('.') {
            Some((volume, name)) => (Some(volume.to_owned()), name),
            None => (None, name),
        };
        Setting { volume, name: name.to_owned(), value: value.to_owned() }
    }
}

/// Settings of the server itself.
const GLOBAL: [&str; 2] = ["memory", "share"];

impl Plan {
    /// Returns the settings of the server itself, in the order of [`GLOBAL`].
    fn settings(&self) -> [(&'static str, String); 2] {
        let values = [args::size_text(self.memory_bytes), self.share.name().to_owned()];
        let mut values = values.into_iter();
        GLOBAL.map(|name| (name, values.next().expect("as many")))
    }

    /// Changes a setting of the server; returns false if there is none of this name.
    fn set(&mut self, name: &str, value: &str) -> Result<bool, String> {
        match name {
            "memory" => self.memory_bytes = args::bytes(value)?,
            "share" => self.share = args::share(value)?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Returns this plan with other settings. A setting of one volume takes precedence over the
    /// same setting of all volumes, regardless of their order.
    ///
    /// # Errors
    /// The error text is a verb phrase that follows "failed to".
    pub(crate) fn with(&self, settings: &[Setting]) -> Result<Plan, String> {
        let mut new = self.clone();
        let (for_all, for_one): (Vec<_>, Vec<_>) =
            settings.iter().partition(|setting| setting.volume.is_none());
        for Setting { volume, name, value } in for_all.into_iter().chain(for_one) {
            let prefix = volume.as_ref().map(|volume| format!("{volume}.")).unwrap_or_default();
            let failed = |reason: String| format!("set {prefix}{name}: {reason}");
            if volume.is_none() && new.set(name, value).map_err(failed)? {
                continue;
            }
            let mut found = false;
            for plan in &mut new.volumes {
                if volume.as_ref().is_none_or(|volume| *volume == plan.name) {
                    plan.set(name, value).map_err(failed)?;
                    found = true;
                }
            }
            if !found {
                let volume = volume.as_deref().unwrap_or_default();
                return Err(failed(format!("no volume is called \"{volume}\"")));
            }
        }
        new.check().map_err(|error| error.to_string())?;
        Ok(new)
    }
}

impl VolumePlan {
    /// True if a crash loses writes that a client has flushed.
    pub(super) fn loses_flushed_writes(&self) -> bool {
        super::service::loses_flushed_writes(self.write_mode, self.flush_mode)
    }

    /// Returns the settings that can be changed, as command-line values: flags, then tunables.
    pub(crate) fn settings(&self) -> Vec<(&'static str, String)> {
        let size = |frames: u32| args::size_text(u64::from(frames) * BLOCK_BYTES_U64);
        let max = if self.max_frames == u32::MAX { "all".into() } else { size(self.max_frames) };
        let mut settings = vec![
            ("page-size", size(self.page_blocks)),
            ("policy", self.policy.name().to_owned()),
            ("write-mode", self.write_mode.name().to_owned()),
            ("flush", self.flush_mode.name().to_owned()),
            ("hint", self.hint.name().to_owned()),
            ("min", size(self.min_frames)),
            ("max", max),
        ];
        let tunables = larder_core::tunables::TUNABLES.iter().zip(self.tunables.values());
        settings.extend(tunables.map(|(tunable, value)| (tunable.name, value.to_string())));
        settings
    }

    /// Changes a setting of the volume.
    pub(super) fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        let frames = |bytes: u64| u32::try_from(bytes / BLOCK_BYTES_U64).unwrap_or(u32::MAX);
        match name {
            "page-size" => self.page_blocks = args::page_blocks(value)?,
            "policy" => self.policy = args::policy_choice(value)?,
            "write-mode" => self.write_mode = args::write_mode(value)?,
            "flush" => self.flush_mode = args::flush_mode(value)?,
            "hint" => self.hint = args::hint(value)?,
            "min" => self.min_frames = frames(args::bytes(value)?),
            "max" => self.max_frames = frames(args::ceiling(value)?),
            tunable => {
                if GLOBAL.contains(&tunable) {
                    let reason = "it is one of the server, not of a volume";
                    return Err(format!("there is no setting \"{tunable}\" here: {reason}"));
                }
                let names = self.settings();
                let known = names.iter().map(|(name, _)| *name);
                if !known.clone().any(|known| known == tunable) {
                    return Err(args::unknown("setting", tunable, known.chain(GLOBAL)));
                }
                let value = args::whole_number(value)?;
                self.tunables.set(tunable, value).map_err(|error| error.to_string())?;
            }
        }
        Ok(())
    }
}

/// Returns the settings that lead from the old plan to the new one, for the same volumes.
pub(crate) fn difference(old: &Plan, new: &Plan) -> Vec<Setting> {
    let mut settings = Vec::new();
    for ((name, before), (_, now)) in old.settings().into_iter().zip(new.settings()) {
        if before != now {
            settings.push(Setting::parse(name, &now));
        }
    }
    for volume in &new.volumes {
        let Some(old_volume) = old.volumes.iter().find(|other| other.name == volume.name) else {
            continue;
        };
        for ((name, before), (_, now)) in old_volume.settings().into_iter().zip(volume.settings()) {
            if before != now {
                let volume = Some(volume.name.clone());
                settings.push(Setting { volume, name: name.to_owned(), value: now });
            }
        }
    }
    settings
}

impl Service {
    /// Changes settings, all of them or none; returns the changes.
    ///
    /// # Errors
    /// The error text is a verb phrase that follows "failed to".
    pub(crate) fn set(&self, settings: &[Setting]) -> Result<Vec<Change>, String> {
        let _change_lock = self.lock_changes();
        let volumes = self.volumes();
        let old = self.plan();
        let new = old.with(settings)?;
        if let Err(error) = self.apply(&volumes, &old, &new) {
            if let Err(revert_error) = self.apply(&volumes, &new, &old) {
                tracing::error!(
                    again = %revert_error,
                    "a change that was refused could not be taken back"
                );
            }
            return Err(error.to_string());
        }
        self.set_plan(&new);
        for (before, now) in old.volumes.iter().zip(&new.volumes) {
            if now.loses_flushed_writes() && !before.loses_flushed_writes() {
                super::service::warn_of_ignored_flushes(&now.name);
            }
        }
        Ok(changes(&old, &new))
    }

    /// Changes the cache from one plan to another. In between no volume has a minimum that the
    /// current memory cannot hold.
    fn apply(&self, volumes: &[ServedVolume], old: &Plan, new: &Plan) -> Result<(), EngineError> {
        let cache = self.engine().cache();
        let plans = || volumes.iter().zip(old.volumes.iter().zip(&new.volumes));
        for (served, (old, new)) in plans() {
            let volume = &served.volume;
            if (old.min_frames, old.max_frames) != (new.min_frames, new.max_frames) {
                let (min, max) = volume.bounds();
                cache.set_bounds(volume, min.min(new.min_frames), max.max(new.max_frames))?;
            }
            if new.page_blocks < old.page_blocks {
                cache.set_page_blocks(volume, new.page_blocks)?;
            }
            if old.write_mode != new.write_mode {
                volume.set_write_mode(new.write_mode)?;
            }
            let tunables = larder_core::tunables::TUNABLES.iter().zip(new.tunables.values());
            for ((tunable, value), before) in tunables.zip(old.tunables.values()) {
                if value != before {
                    volume.set_tunable(tunable.name, *value)?;
                }
            }
        }
        if old.memory_bytes != new.memory_bytes {
            self.engine().set_memory(new.memory_bytes - self.reserved_bytes())?;
        }
        for (served, (old, new)) in plans() {
            let volume = &served.volume;
            if (old.min_frames, old.max_frames) != (new.min_frames, new.max_frames) {
                cache.set_bounds(volume, new.min_frames, new.max_frames)?;
            }
            // The memory now has room for larger pages.
            if new.page_blocks > old.page_blocks {
                cache.set_page_blocks(volume, new.page_blocks)?;
            }
            if old.policy != new.policy {
                match new.policy {
                    PolicyChoice::Fixed(kind) => self.engine().set_policy(volume, kind)?,
                    PolicyChoice::Auto => self.engine().set_policy_auto(volume)?,
                }
            }
            if old.flush_mode != new.flush_mode {
                volume.set_flush_mode(new.flush_mode);
            }
            if old.hint != new.hint {
                volume.set_hint(new.hint);
            }
        }
        if old.share != new.share {
            cache.set_share_mode(new.share);
        }
        Ok(())
    }
}

/// Returns the differences between two plans, for the response to a client.
fn changes(old: &Plan, new: &Plan) -> Vec<Change> {
    let mut changes = Vec::new();
    for Setting { volume, name, value } in difference(old, new) {
        let from = match &volume {
            None => old.settings().to_vec(),
            Some(volume) => {
                let volume_plan = old.volumes.iter().find(|plan| plan.name == *volume);
                volume_plan.map(VolumePlan::settings).unwrap_or_default()
            }
        };
        let from = from.into_iter().find(|(other, _)| *other == name).unwrap_or_default().1;
        // The cache allocates and frees frames in the background.
        let pending = matches!(name.as_str(), "memory" | "page-size" | "max");
        let volume = volume.unwrap_or_default();
        changes.push(Change { volume, name, from, to: value, pending });
    }
    changes
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_core::cache::ShareMode;
    use larder_core::hint::Hint;
    use larder_core::mode::{FlushMode, WriteMode};
    use larder_core::policy::PolicyKind;
    use larder_core::tunables::Tunables;

    fn volume(name: &str) -> VolumePlan {
        VolumePlan {
            name: name.to_owned(),
            path: name.into(),
            upstream: None,
            page_blocks: 1,
            policy: PolicyChoice::Fixed(PolicyKind::S3Fifo),
            write_mode: WriteMode::Back,
            flush_mode: FlushMode::Keep,
            hint: Hint::Normal,
            min_frames: 0,
            max_frames: u32::MAX,
            tunables: Tunables::default(),
        }
    }

    fn plan() -> Plan {
        let volumes = vec![volume("disk"), volume("logs")];
        Plan { memory_bytes: 64 << 20, warm_lists: false, share: ShareMode::Coldest, volumes }
    }

    #[test]
    fn a_setting_of_one_volume_wins_whatever_the_order() {
        let for_one = Setting::parse("disk.policy", "arc");
        let for_all = Setting::parse("policy", "lru");
        for settings in [[for_one.clone(), for_all.clone()], [for_all, for_one]] {
            let new = plan().with(&settings).unwrap();
            let policies: Vec<_> = new.volumes.iter().map(|plan| plan.policy.name()).collect();
            assert_eq!(policies, ["arc", "lru"]);
        }
    }

    #[test]
    fn a_tunable_that_is_no_number_is_refused_in_words() {
        let error = plan().with(&[Setting::parse("age-max", "abc")]).unwrap_err();
        assert_eq!(
            error,
            "set age-max: \"abc\" is not a number; write a whole number from 0 to \
             18446744073709551615"
        );
    }

    #[test]
    fn a_read_only_volume_loses_no_write_that_was_flushed() {
        let ignore = plan().with(&[Setting::parse("flush", "ignore")]).unwrap();
        assert!(ignore.volumes[0].loses_flushed_writes());
        let read_only = ignore.with(&[Setting::parse("write-mode", "read-only")]).unwrap();
        assert!(!read_only.volumes[0].loses_flushed_writes());
        assert!(!plan().volumes[0].loses_flushed_writes());
    }
}
