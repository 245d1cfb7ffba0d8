//! The configuration file, at the start and again on SIGHUP.
//!
//! A reload applies the differences between the file as it was read last and its current contents;
//! so the changes of `larder ctl set` stay, unless the file changes the same setting. Invariant: a
//! file with an error changes nothing.

use super::ServeArgs;
use super::changes;
use super::config::ConfigFile;
use super::plan::{Plan, VolumePlan};
use super::service::Service;
use crate::output::sentence;
use anyhow::{Result, anyhow, ensure};
use std::ffi::OsString;

/// The arguments and the plan of the last read.
pub(crate) struct Reloader {
    /// The words of the command line after `serve`.
    command_line: Vec<OsString>,
    /// The arguments at the start.
    arguments: ServeArgs,
    plan: Plan,
}

/// Returns the arguments and the plan of a command line, and of the file that it names.
fn read(arguments: &ServeArgs, command_line: &[OsString]) -> Result<(ServeArgs, Plan)> {
    let Some(path) = &arguments.config else {
        return Ok((arguments.clone(), Plan::of(arguments)?));
    };
    let file = ConfigFile::read(path)?;
    let arguments = file.arguments(command_line)?;
    let plan = file.plan(&arguments)?;
    ensure!(
        !plan.volumes.is_empty(),
        "serve {}: it names no volume, and neither does the command line",
        path.display()
    );
    Ok((arguments, plan))
}

impl Reloader {
    /// Reads the file that the arguments name, if they name one.
    pub(crate) fn new(arguments: &ServeArgs, command_line: Vec<OsString>) -> Result<Self> {
        let (arguments, plan) = read(arguments, &command_line)?;
        Ok(Reloader { command_line, arguments, plan })
    }

    /// Returns the arguments of the command line and the file together, as they were at the start.
    pub(crate) fn arguments(&self) -> &ServeArgs {
        &self.arguments
    }

    /// Returns the plan of the last read.
    pub(crate) fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Reads the file again and applies its changes. Prints the result on standard error.
    pub(crate) fn reload(&mut self, service: &Service) {
        match self.change(service) {
            Ok(()) => eprintln!("larder: read again"),
            Err(error) => eprintln!("larder: failed to {}; nothing has changed", sentence(&error)),
        }
    }

    fn change(&mut self, service: &Service) -> Result<()> {
        let (arguments, mut plan) = read(&self.arguments, &self.command_line)?;
        let is_in = |plan: &Plan, volume_plan: &VolumePlan| {
            let same = |other: &VolumePlan| {
                (&other.name, &other.path) == (&volume_plan.name, &volume_plan.path)
            };
            plan.volumes.iter().any(same)
        };
        // Settings are changed first: an invalid file then has no effect at all.
        let mut settings = changes::difference(&self.plan, &plan);
        settings.retain(|setting| match &setting.volume {
            Some(name) => {
                let same = |volume_plan: &&VolumePlan| {
                    volume_plan.name == *name && is_in(&self.plan, volume_plan)
                };
                service.volume(name).is_some()
                    && plan.volumes.iter().any(|volume_plan| same(&volume_plan))
            }
            None => true,
        });
        for change in service.set(&settings).map_err(|error| anyhow!(error))? {
            let volume = if change.volume.is_empty() { "" } else { "." };
            let name = format!("{}{volume}{}", change.volume, change.name);
            eprintln!("larder: {name} was {} and is {}", change.from, change.to);
        }
        let mut retained = Vec::new();
        for removed in self.plan.volumes.iter().filter(|volume_plan| !is_in(&plan, volume_plan)) {
            // Another client may have removed the volume.
            let is_served =
                service.volume(&removed.name).is_some_and(|now| now.plan.path == removed.path);
            match if is_served {
                service.remove(&removed.name, (false, false), |_| {})
            } else {
                Ok(())
            } {
                Ok(()) => eprintln!("larder: {} is not served any more", removed.name),
                Err(error) => {
                    eprintln!(
                        "larder: note: failed to {}; the next reload tries again",
                        sentence(&error)
                    );
                    retained.push(removed.clone());
                }
            }
        }
        let added: Vec<_> = plan
            .volumes
            .iter()
            .filter(|volume_plan| !is_in(&self.plan, volume_plan))
            .cloned()
            .collect();
        for added_plan in added {
            match service.add_planned(&added_plan) {
                Ok(served) => eprintln!("larder: {}", service.serving_line(&served.volume)),
                Err(error) => {
                    eprintln!(
                        "larder: note: failed to {}; the next reload tries again",
                        sentence(&error)
                    );
                    plan.volumes.retain(|volume_plan| volume_plan.name != added_plan.name);
                }
            }
        }
        for name in restart_required(&self.arguments, &arguments) {
            eprintln!("larder: note: {name} cannot be changed while it serves; start it anew");
        }
        plan.volumes.extend(retained);
        self.plan = plan;
        Ok(())
    }
}

/// Returns the changed flags that require a restart.
fn restart_required(old: &ServeArgs, new: &ServeArgs) -> Vec<&'static str> {
    let flags = [
        ("listen", old.listen != new.listen),
        ("fuse", old.fuse != new.fuse),
        ("tls", old.tls != new.tls),
        ("tls-mode", old.tls_mode != new.tls_mode),
        ("tls-verify-peer", old.tls_verify_peer != new.tls_verify_peer),
        ("record", old.record != new.record),
        ("record-inputs", old.record_inputs != new.record_inputs),
        ("give-back", old.give_back != new.give_back),
        ("lock", old.lock != new.lock),
        ("counters", old.counters != new.counters),
        ("send-timeout", old.send_timeout != new.send_timeout),
        ("control", old.control != new.control),
        ("control-tcp", old.control_tcp != new.control_tcp),
        ("control-token", old.control_token != new.control_token),
        ("warm-list", old.warm_list != new.warm_list),
        ("warm-list-every", old.warm_list_every != new.warm_list_every),
        ("plain-io", old.plain_io != new.plain_io),
    ];
    flags.into_iter().filter(|(_, differs)| *differs).map(|(name, _)| name).collect()
}
