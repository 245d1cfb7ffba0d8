//! Changes to a running server: settings by the names of the flags, as texts, from `larder ctl set`
//! and from a configuration file that is read again.
//!
//! Invariant: all changes of one request are applied, or none. They are checked together first, as
//! a plan, as at the start; if the cache nevertheless refuses one of them, those before it are
//! reverted.

use crate::plan::{Plan, VolumeValues, refuse_value};
use crate::policy_choice::PolicyChoice;
use crate::service::{ServedVolume, Service};
use crate::settings::{Assignment, SETTINGS, find};
use crate::value::unknown;
use crate::volume_plan::VolumePlan;
use larder_io::engine::EngineError;
use larder_schema::control::Change;

impl Plan {
    /// Returns the settings of the server itself that can be changed, with their values.
    fn settings(&self) -> Vec<(&'static str, String)> {
        let live = SETTINGS.iter().filter(|setting| setting.is_live);
        live.filter_map(|it| Some((it.name, it.of_server(&self.server)?))).collect()
    }

    /// Returns this plan with other values. A value for one volume takes precedence over the value
    /// for all volumes, regardless of their order.
    ///
    /// # Errors
    /// The error text is a verb phrase that follows "failed to".
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
            values.assign(plan).map_err(|error| error.to_string())?;
        }
        new.check().map_err(|error| error.to_string())?;
        Ok(new)
    }

    /// Fails if a setting or its volume does not exist, or if the setting cannot be changed.
    fn check_live(&self, Assignment { volume, name, .. }: &Assignment) -> Result<(), String> {
        let Some(setting) = find(name) else {
            let known = SETTINGS.iter().filter(|setting| setting.is_live);
            return Err(unknown("setting", name, known.map(|setting| setting.name)));
        };
        if let Some(volume) = volume
            && !self.volumes.iter().any(|plan| plan.name == *volume)
        {
            return Err(format!("no volume is called \"{volume}\""));
        }
        if !setting.is_live {
            return Err("it is read at the start; start the server anew to change it".to_owned());
        }
        Ok(())
    }
}

impl VolumePlan {
    /// True if a crash loses writes that a client has flushed.
    pub(super) fn loses_flushed_writes(&self) -> bool {
        crate::service::loses_flushed_writes(self.write_mode, self.flush_mode)
    }

    /// Returns the settings with their values, as texts: first flags, then tunables.
    pub(crate) fn settings(&self) -> Vec<(&'static str, String)> {
        SETTINGS.iter().filter_map(|it| Some((it.name, it.of_volume(self)?))).collect()
    }
}

/// Returns the settings that lead from the old plan to the new one, for the same volumes.
pub(crate) fn difference(old: &Plan, new: &Plan) -> Vec<Assignment> {
    let mut settings = Vec::new();
    for ((name, before), (_, now)) in old.settings().into_iter().zip(new.settings()) {
        if before != now {
            settings.push(Assignment::parse(name, &now));
        }
    }
    for volume in &new.volumes {
        let Some(old_volume) = old.volumes.iter().find(|other| other.name == volume.name) else {
            continue;
        };
        for ((name, before), (_, now)) in old_volume.settings().into_iter().zip(volume.settings()) {
            if before != now {
                let volume = Some(volume.name.clone());
                settings.push(Assignment { volume, name: name.to_owned(), value: now.into() });
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
    pub(crate) fn set(&self, settings: &[Assignment]) -> Result<Vec<Change>, String> {
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
                crate::service::warn_of_ignored_flushes(&now.name);
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
        if old.server.memory_bytes != new.server.memory_bytes {
            self.engine().set_memory(new.server.memory_bytes - self.reserved_bytes())?;
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
        if old.server.share != new.server.share {
            cache.set_share_mode(new.server.share);
        }
        Ok(())
    }
}

/// Returns the differences between two plans, for the response to a client.
fn changes(old: &Plan, new: &Plan) -> Vec<Change> {
    let mut changes = Vec::new();
    for Assignment { volume, name, value } in difference(old, new) {
        let from = match &volume {
            None => old.settings().clone(),
            Some(volume) => {
                let volume_plan = old.volumes.iter().find(|plan| plan.name == *volume);
                volume_plan.map(VolumePlan::settings).unwrap_or_default()
            }
        };
        let from = from.into_iter().find(|(other, _)| *other == name).unwrap_or_default().1;
        // The cache allocates and frees frames in the background.
        let pending = matches!(name.as_str(), "memory" | "page-size" | "max");
        let volume = volume.unwrap_or_default();
        let to = value.to_string_lossy().into_owned();
        changes.push(Change { volume, name, from, to, pending });
    }
    changes
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
            "set age-max: \"abc\" is not a number; write a whole number from 0 to \
             18446744073709551615"
        );
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
