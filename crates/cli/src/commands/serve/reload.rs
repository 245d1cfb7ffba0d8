//! The configuration file, at the start and again on SIGHUP.
//!
//! What differs between the file as it was read last and as it is now is changed while it serves;
//! so what `larder ctl set` changed stays, unless the file says something new about it. Invariant:
//! a file with anything wrong changes nothing.

use super::Arguments;
use super::changes;
use super::config::ConfigFile;
use super::plan::{Plan, VolumePlan};
use super::service::Service;
use crate::output::sentence;
use anyhow::{Result, anyhow, ensure};
use std::ffi::OsString;

/// What was read last, and where it came from.
pub(crate) struct Reloader {
    /// The words of the command line after `serve`.
    command_line: Vec<OsString>,
    /// As at the start, but for the plan.
    arguments: Arguments,
    plan: Plan,
}

/// The arguments and the plan of a command line, and of the file that it names.
fn read(arguments: &Arguments, command_line: &[OsString]) -> Result<(Arguments, Plan)> {
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
    pub(crate) fn new(arguments: &Arguments, command_line: Vec<OsString>) -> Result<Self> {
        let (arguments, plan) = read(arguments, &command_line)?;
        Ok(Reloader { command_line, arguments, plan })
    }

    /// The arguments of the command line and the file together, as they were at the start.
    pub(crate) fn arguments(&self) -> &Arguments {
        &self.arguments
    }

    /// The plan as it was read last.
    pub(crate) fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Reads the file again and changes what it says anew. What came of it is said on standard
    /// error.
    pub(crate) fn reload(&mut self, service: &Service) {
        match self.change(service) {
            Ok(()) => eprintln!("larder: read again"),
            Err(error) => eprintln!("larder: failed to {}; nothing has changed", sentence(&error)),
        }
    }

    fn change(&mut self, service: &Service) -> Result<()> {
        let (arguments, mut plan) = read(&self.arguments, &self.command_line)?;
        let is_in = |plan: &Plan, one: &VolumePlan| {
            let same = |other: &VolumePlan| (&other.name, &other.path) == (&one.name, &one.path);
            plan.volumes.iter().any(same)
        };
        // What changes comes first: a file that cannot be has no effect at all.
        let mut settings = changes::difference(&self.plan, &plan);
        settings.retain(|setting| match &setting.volume {
            Some(name) => {
                let same = |one: &&VolumePlan| one.name == *name && is_in(&self.plan, one);
                service.volume(name).is_some() && plan.volumes.iter().any(|one| same(&one))
            }
            None => true,
        });
        for change in service.set(&settings).map_err(|error| anyhow!(error))? {
            let volume = if change.volume.is_empty() { "" } else { "." };
            let name = format!("{}{volume}{}", change.volume, change.name);
            eprintln!("larder: {name} was {} and is {}", change.from, change.to);
        }
        let mut stay = Vec::new();
        for gone in self.plan.volumes.iter().filter(|one| !is_in(&plan, one)) {
            // It may have been removed in another way.
            let is_served =
                service.volume(&gone.name).is_some_and(|now| now.plan.path == gone.path);
            match if is_served {
                service.remove(&gone.name, (false, false), |_| {})
            } else {
                Ok(())
            } {
                Ok(()) => eprintln!("larder: {} is not served any more", gone.name),
                Err(error) => {
                    eprintln!(
                        "larder: note: failed to {}; the next reload tries again",
                        sentence(&error)
                    );
                    stay.push(gone.clone());
                }
            }
        }
        let came: Vec<_> =
            plan.volumes.iter().filter(|one| !is_in(&self.plan, one)).cloned().collect();
        for volume in came {
            match service.add_planned(&volume) {
                Ok(served) => eprintln!("larder: {}", service.line_about(&served.volume)),
                Err(error) => {
                    eprintln!(
                        "larder: note: failed to {}; the next reload tries again",
                        sentence(&error)
                    );
                    plan.volumes.retain(|one| one.name != volume.name);
                }
            }
        }
        for name in fixed(&self.arguments, &arguments) {
            eprintln!("larder: note: {name} cannot be changed while it serves; start it anew");
        }
        plan.volumes.extend(stay);
        self.plan = plan;
        Ok(())
    }
}

/// Flags that differ and that need a new start.
fn fixed(old: &Arguments, new: &Arguments) -> Vec<&'static str> {
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
