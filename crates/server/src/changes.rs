//! Changes to a running server: settings by the names of the flags, as texts, from `larder ctl set`
//! and from a configuration file that is read again.
//!
//! Invariant: all changes of one request are applied, or none. They are checked together first, as
//! a plan, as at the start; if the cache nevertheless refuses one of them, those before it are
//! reverted.

use crate::plan::{Plan, VolumeValues, refuse_value};
use crate::service::{
    ServedVolume, Service, loses_flushed_writes, shortage, warn_of_ignored_flushes,
};
use crate::settings::{Assignment, READ_AHEAD, READ_AHEAD_TUNABLE, SETTINGS, find};
use crate::value::{unknown, unknown_setting};
use crate::volume_plan::VolumePlan;
use larder_core::curve::choice::PolicyChoice;
use larder_core::tunables::TUNABLES;
use larder_io::engine::EngineError;
use larder_schema::control::Change;

/// Names of settings with their values.
type Values = Vec<(&'static str, String)>;

impl Plan {
    /// Returns the settings of the server itself that can be changed, with their values.
    fn settings(&self) -> Values {
        let live = SETTINGS.iter().filter(|setting| setting.is_live);
        live.filter_map(|it| Some((it.name, it.of_server(&self.server)?))).collect()
    }

    /// Returns this plan with other values. A value for one volume takes precedence over the value
    /// for all volumes, regardless of their order.
    pub(crate) fn with(&self, assignments: &[Assignment]) -> Result<Plan, String> {
        let mut new = self.clone();
        for assignment in assignments {
            let failed = |reason: String| refuse_value(assignment, &reason).to_string();
            new.check_live(assignment).map_err(failed)?;
            if let (None, Some(setting)) = (&assignment.volume, find(&assignment.name))
                && !setting.is_of_volumes()
            {
                setting.set_server(&mut new.server, &assignment.value).map_err(failed)?;
            }
        }
        let values = VolumeValues::new(assignments);
        for plan in &mut new.volumes {
            values.assign(plan).map_err(|error| error.message_of_keys)?;
        }
        new.check().map_err(|error| error.message_of_keys)?;
        Ok(new)
    }

    /// Fails if a setting or its volume does not exist, or if the setting cannot be changed.
    fn check_live(&self, Assignment { volume, name, .. }: &Assignment) -> Result<(), String> {
        let Some(setting) = find(name) else {
            let known = SETTINGS.iter().filter(|setting| setting.is_live);
            return Err(unknown_setting("setting", name, known.map(|setting| setting.name)));
        };
        if let Some(volume) = volume
            && !self.volumes.iter().any(|plan| plan.name == *volume)
        {
            let known = self.volumes.iter().map(|plan| plan.name.as_str());
            return Err(unknown("volume", volume, known));
        }
        if !setting.is_live {
            return Err("it is read at the start; restart the server to change it".to_owned());
        }
        Ok(())
    }
}

impl VolumePlan {
    /// True if a crash loses writes that a client has flushed.
    pub(super) fn loses_flushed_writes(&self) -> bool {
        loses_flushed_writes(self.write_mode, self.flush_mode)
    }

    /// Returns the settings with their values, as texts: first flags, then tunables.
    pub(crate) fn settings(&self) -> Values {
        SETTINGS.iter().filter_map(|it| Some((it.name, it.of_volume(self)?))).collect()
    }
}

/// Returns the differences of the settings between two plans, in the volumes that both have.
pub(crate) fn difference(old: &Plan, new: &Plan) -> Vec<Change> {
    let mut changes = Vec::new();
    let mut compare = |volume: &str, old: Values, new: Values| {
        for ((name, from), (_, to)) in old.into_iter().zip(new).filter(|(old, new)| old != new) {
            // The cache allocates and frees frames in the background.
            let pending = matches!(name, "memory" | "page-size" | "max");
            let (volume, name) = (volume.to_owned(), name.to_owned());
            changes.push(Change { volume, name, from, to, pending });
        }
    };
    compare("", old.settings(), new.settings());
    for volume in &new.volumes {
        if let Some(old) = old.volumes.iter().find(|other| other.name == volume.name) {
            compare(&volume.name, old.settings(), volume.settings());
        }
    }
    changes
}

/// Returns the assignment that makes a change.
pub(crate) fn assignment(Change { volume, name, to, .. }: Change) -> Assignment {
    let volume = (!volume.is_empty()).then_some(volume);
    Assignment { volume, name, value: to.into() }
}

impl Service {
    /// Changes settings, all of them or none; returns the changes, and notes on them.
    pub(crate) fn set(
        &self,
        settings: &[Assignment],
    ) -> Result<(Vec<Change>, Vec<String>), String> {
        let _change_lock = self.lock_changes();
        let volumes = self.volumes();
        let old = self.plan();
        let new = old.with(settings)?;
        if let Err(error) = self.apply(&volumes, &old, &new) {
            if let Err(again) = self.apply(&volumes, &new, &old) {
                tracing::error!(%again, "a change failed, and the old settings were not restored");
            }
            return Err(error.to_string());
        }
        self.set_plan(&new);
        for (before, now) in old.volumes.iter().zip(&new.volumes) {
            if now.loses_flushed_writes() && !before.loses_flushed_writes() {
                warn_of_ignored_flushes(&now.name);
            }
        }
        let mut changes = difference(&old, &new);
        // The change has the name that the request uses.
        let has = |name| settings.iter().any(|setting| setting.name == name);
        if has(READ_AHEAD) && !has(READ_AHEAD_TUNABLE) {
            for change in changes.iter_mut().filter(|change| change.name == READ_AHEAD_TUNABLE) {
                READ_AHEAD.clone_into(&mut change.name);
            }
        }
        let grows = new.server.memory_bytes > old.server.memory_bytes;
        let note = grows.then(|| shortage::note(new.server.memory_bytes)).flatten();
        Ok((changes, note.into_iter().collect()))
    }

    /// Changes the cache from one plan to another. In between no volume has a minimum that the
    /// current memory cannot hold.
    fn apply(&self, volumes: &[ServedVolume], old: &Plan, new: &Plan) -> Result<(), EngineError> {
        let cache = self.engine.cache();
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
            let tunables = TUNABLES.iter().zip(new.tunables.values());
            for ((tunable, value), before) in tunables.zip(old.tunables.values()) {
                if value != before {
                    volume.set_tunable(tunable.name, *value)?;
                }
            }
        }
        if old.server.memory_bytes != new.server.memory_bytes {
            self.engine.set_memory(new.server.memory_bytes - self.reserved_bytes())?;
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
                    PolicyChoice::Fixed(kind) => self.engine.set_policy(volume, kind)?,
                    PolicyChoice::Auto => self.engine.set_policy_auto(volume)?,
                }
            }
            if old.flush_mode != new.flush_mode {
                volume.set_flush_mode(new.flush_mode);
            }
            if old.hint != new.hint {
                volume.set_hint(new.hint);
            }
        }
        if old.server.share != new.server.share {
            cache.set_share_mode(new.server.share);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::ServerSettings;

    fn plan() -> Plan {
        let volume = |name: &str| VolumePlan { name: name.to_owned(), ..VolumePlan::default() };
        let volumes = vec![volume("disk"), volume("logs")];
        let server = ServerSettings { memory_bytes: 64 << 20, ..ServerSettings::default() };
        Plan { server, warm_lists: false, volumes }
    }

    #[test]
    fn a_setting_of_one_volume_wins_whatever_the_order() {
        let for_one = Assignment::parse("disk.policy", "arc");
        let for_all = Assignment::parse("policy", "lru");
        for settings in [[for_one.clone(), for_all.clone()], [for_all, for_one]] {
            let new = plan().with(&settings).unwrap();
            let policies: Vec<_> = new.volumes.iter().map(|plan| plan.policy.name()).collect();
            assert_eq!(policies, ["arc", "lru"]);
        }
    }

    #[test]
    fn a_tunable_that_is_no_number_is_refused_in_words() {
        let error = plan().with(&[Assignment::parse("age-max", "abc")]).unwrap_err();
        assert_eq!(
            error,
            "set age-max: \"abc\" is not a time; write one from 10ms to 1h, or a number of \
             milliseconds"
        );
    }

    #[test]
    fn a_refusal_names_settings_as_the_request_does() {
        for (setting, value, expected) in [
            (
                "disk.max",
                "1KiB",
                "set max of \"disk\": it is below 2MiB, which one large request needs",
            ),
            (
                "disk.min",
                "1GiB",
                "set min of \"disk\": it is more than the cache has; raise memory",
            ),
            ("min", "40MiB", "give every volume its min: together they are more than memory"),
            ("read-ahead", "1GiB", "set read-ahead: it is more than 16MiB"),
        ] {
            let error = plan().with(&[Assignment::parse(setting, value)]).unwrap_err();
            assert_eq!(error, expected);
        }
    }

    #[test]
    fn a_read_only_volume_loses_no_write_that_was_flushed() {
        let ignore = plan().with(&[Assignment::parse("flush", "ignore")]).unwrap();
        assert!(ignore.volumes[0].loses_flushed_writes());
        let read_only = ignore.with(&[Assignment::parse("write-mode", "read-only")]).unwrap();
        assert!(!read_only.volumes[0].loses_flushed_writes());
        assert!(!plan().volumes[0].loses_flushed_writes());
    }
}
