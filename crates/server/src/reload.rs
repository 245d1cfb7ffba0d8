//! The configuration file, at the start and again on SIGHUP.
//!
//! A reload applies the differences between the file as it was read last and its current contents;
//! so the changes of `larder ctl set` stay, unless the file changes the same setting. Invariant: a
//! file with an error changes nothing.

use crate::changes::{assignment, difference};
use crate::config::ConfigFile;
use crate::output::sentence;
use crate::plan::{Configuration, Plan};
use crate::service::Service;
use crate::settings::{SETTINGS, ServerSettings};
use crate::volume_plan::VolumePlan;
use anyhow::{Result, anyhow, ensure};
use larder_schema::control::Change;

/// The configuration at the start, and the plan of the last read.
#[derive(Debug)]
pub struct Reloader {
    command_line: Configuration,
    /// That of the command line and the file together, at the start.
    configuration: Configuration,
    /// The settings of the server at the start.
    server: ServerSettings,
    plan: Plan,
}

/// Returns the configuration of a command line and of the file that it names, and its plan.
fn read(command_line: &Configuration) -> Result<(Configuration, Plan)> {
    let Some(path) = &command_line.file else {
        return Ok((command_line.clone(), command_line.plan()?));
    };
    let file = ConfigFile::read(path)?;
    let configuration = file.with(command_line);
    let plan = file.plan(&configuration)?;
    ensure!(
        !plan.volumes.is_empty(),
        "serve {}: it names no volume, and neither does the command line",
        path.display()
    );
    Ok((configuration, plan))
}

impl Reloader {
    /// Reads the file that the command line names, if it names one.
    ///
    /// # Errors
    /// The configuration is invalid.
    pub fn new(command_line: Configuration) -> Result<Self> {
        let (configuration, plan) = read(&command_line)?;
        Ok(Reloader { command_line, configuration, server: plan.server.clone(), plan })
    }

    /// Returns the configuration of the command line and the file together, at the start.
    #[must_use]
    pub fn configuration(&self) -> &Configuration {
        &self.configuration
    }

    /// Returns the plan of the last read.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Reads the file again and applies its changes. Prints the result on standard error.
    pub fn reload(&mut self, service: &Service) {
        match self.change(service) {
            Ok(()) => eprintln!("larder: the configuration is reloaded"),
            Err(error) => eprintln!("larder: cannot {}; nothing has changed", sentence(&error)),
        }
    }

    fn change(&mut self, service: &Service) -> Result<()> {
        let (_, mut plan) = read(&self.command_line)?;
        // Settings are changed first: an invalid file then has no effect at all.
        self.change_settings(service, &plan)?;
        let mut retained = Vec::new();
        for removed in self.plan.volumes.iter().filter(|volume| !serves(&plan, volume)) {
            // Another client may have removed the volume.
            let is_served =
                service.find_volume(&removed.name).is_some_and(|now| now.plan.path == removed.path);
            let remove = || service.remove(&removed.name, (false, false), |_| {});
            match if is_served { remove() } else { Ok(()) } {
                Ok(()) => eprintln!("larder: removed {}", removed.name),
                Err(error) => {
                    report_failure(&error);
                    retained.push(removed.clone());
                }
            }
        }
        plan.volumes.retain(|volume| {
            if serves(&self.plan, volume) {
                return true;
            }
            let added = service.add_planned(volume).inspect_err(report_failure);
            let served = added.as_ref().map(|served| service.serving_line(&served.volume));
            served.inspect(|line| eprintln!("larder: {line}")).is_ok()
        });
        for name in restart_required(&self.server, &plan.server) {
            eprintln!("larder: note: {name} cannot be changed while the server runs; restart it");
        }
        plan.volumes.extend(retained);
        self.plan = plan;
        Ok(())
    }

    /// Changes the settings of the server and of the volumes that both plans have and that are
    /// served.
    fn change_settings(&self, service: &Service, plan: &Plan) -> Result<()> {
        let is_kept = |name: &str| {
            let same = |volume: &VolumePlan| volume.name == name && serves(&self.plan, volume);
            service.find_volume(name).is_some() && plan.volumes.iter().any(same)
        };
        let changes = difference(&self.plan, plan).into_iter();
        let changes = changes.filter(|it| it.volume.is_empty() || is_kept(&it.volume));
        let settings: Vec<_> = changes.map(assignment).collect();
        let (changes, notes) = service.set(&settings).map_err(|error| anyhow!(error))?;
        for Change { volume, name, from, to, .. } in changes {
            let dot = if volume.is_empty() { "" } else { "." };
            eprintln!("larder: {volume}{dot}{name}: {from} -> {to}");
        }
        for note in notes {
            eprintln!("larder: note: {note}");
        }
        Ok(())
    }
}

/// Returns true if a plan has this volume, with the same store.
fn serves(plan: &Plan, volume: &VolumePlan) -> bool {
    plan.volumes.iter().any(|it| (&it.name, &it.path) == (&volume.name, &volume.path))
}

fn report_failure(error: &anyhow::Error) {
    eprintln!("larder: note: cannot {}; the next reload tries again", sentence(error));
}

fn restart_required<'a>(
    old: &'a ServerSettings,
    new: &'a ServerSettings,
) -> impl Iterator<Item = &'static str> + 'a {
    let changed = SETTINGS.iter().filter(|setting| !setting.is_live);
    let changed = changed.filter(|setting| setting.of_server(old) != setting.of_server(new));
    changed.map(|setting| setting.name)
}
