//! Entry points for the fuzz targets of larder-fuzz: configuration files, and connections of the
//! control interface. They open no files and run no service.

use crate::config::ConfigFile;
use crate::output::sentence;
use crate::plan::{Configuration, Plan};
use crate::settings::ServerSettings;
use larder_core::tunables::TUNABLES;
use larder_report::escape;
use std::fmt::Write as _;
use std::path::Path;

pub use crate::control::fuzzing::{Conversation, converse};

/// A configuration that `larder check-config` accepts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValidPlan(Plan);

impl ValidPlan {
    /// Returns the parts of a plan that [`ValidPlan::to_toml`] prints.
    fn of(plan: Plan) -> Self {
        let ServerSettings { memory_bytes, share, .. } = plan.server;
        let server = ServerSettings { memory_bytes, share, ..ServerSettings::default() };
        ValidPlan(Plan { server, ..plan })
    }

    /// Parses the text of a configuration file.
    ///
    /// # Errors
    /// The error message that `larder check-config` prints.
    pub fn read(text: &str) -> Result<Self, String> {
        let plan = || {
            let file = ConfigFile::parse(Path::new("fuzz.toml"), text)?;
            file.plan(&file.with(&Configuration::default()))
        };
        plan().map(ValidPlan::of).map_err(|error| escape::line(&sentence(&error.into())).into())
    }

    /// Returns names and paths of its volumes.
    pub fn volumes(&self) -> impl Iterator<Item = (&str, &Path)> {
        self.0.volumes.iter().map(|volume| (volume.name.as_str(), volume.path.as_path()))
    }

    /// Returns an equivalent configuration file; `None` if a path is not UTF-8.
    #[must_use]
    pub fn to_toml(&self) -> Option<String> {
        let Plan { server: ServerSettings { memory_bytes, share, .. }, warm_lists, volumes } =
            &self.0;
        let lists = if *warm_lists { "/lists" } else { "none" };
        let mut text = format!("memory = \"{memory_bytes}B\"\nshare = \"{share}\"\n");
        writeln!(text, "warm-list = \"{lists}\"").expect("memory takes it");
        for volume in volumes {
            let (name, path) = (quoted(&volume.name), quoted(volume.path.to_str()?));
            write!(text, "\n[[volume]]\nname = {name}\npath = {path}\n").expect("memory takes it");
            for (name, value) in volume.settings().into_iter().filter(|(name, _)| !is_tunable(name))
            {
                writeln!(text, "{name} = {}", quoted(&value)).expect("memory takes it");
            }
            let tunables = TUNABLES.iter().zip(volume.tunables.values());
            let set: Vec<_> =
                tunables.map(|(tunable, value)| format!("{} = {value}", tunable.name)).collect();
            writeln!(text, "set = {{ {} }}", set.join(", ")).expect("memory takes it");
        }
        Some(text)
    }
}

fn is_tunable(name: &str) -> bool {
    TUNABLES.iter().any(|tunable| tunable.name == name)
}

/// Returns a text as a TOML string.
fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for character in text.chars() {
        match character {
            '"' | '\\' => quoted.extend(['\\', character]),
            _ if character.is_control() => {
                write!(quoted, "\\U{:08x}", u32::from(character)).expect("memory takes it");
            }
            _ => quoted.push(character),
        }
    }
    quoted.push('"');
    quoted
}
