//! The table of all settings of a server and its volumes.
//!
//! Each setting has one row: its name, scope, form, default and meaning, whether it can be changed
//! while the server runs, and how a text becomes its value. The flags of the command line, the keys
//! of the configuration file, `larder ctl set`, completions and docs/TUNABLES.md are derived from
//! this table. The tunables of a volume are rows of larder-core ([`TUNABLES`]).

mod table;

use crate::value::{self, OptionalPath};
use crate::volume_plan::VolumePlan;
use larder_core::cache::ShareMode;
use larder_core::tunables::TUNABLES;
use larder_io::front::nbd::ListenAddress;
use std::ffi::{OsStr, OsString};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::LazyLock;
use std::time::Duration;

/// The settings of a server as a whole; the table has their meanings.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a setting")]
pub struct ServerSettings {
    /// Bytes of memory of the cache, with its metadata.
    pub memory_bytes: u64,
    pub(crate) share: ShareMode,
    /// `None` for a socket in the runtime directory.
    pub(crate) listen: Option<ListenAddress>,
    pub(crate) send_timeout: Option<Duration>,
    pub(crate) fuse: Option<PathBuf>,
    /// Directory with certificates.
    pub(crate) tls: Option<PathBuf>,
    /// True if clients without TLS are served.
    pub(crate) allows_plain_clients: bool,
    /// True if clients need a certificate.
    pub(crate) tls_verify_peer: bool,
    pub(crate) record: Option<PathBuf>,
    pub(crate) record_inputs: Option<PathBuf>,
    /// Bytes down to which memory is returned to a system that is short of it.
    pub(crate) give_back: Option<u64>,
    /// True if the memory is locked.
    pub lock: bool,
    pub(crate) counters: Option<PathBuf>,
    /// `None` for a socket in the runtime directory.
    pub(crate) control: Option<OptionalPath>,
    pub(crate) control_tcp: Option<SocketAddr>,
    pub(crate) control_token: Option<PathBuf>,
    /// `None` for the directory of the service manager.
    pub(crate) warm_list: Option<OptionalPath>,
    /// `None` if the lists are saved at the end only.
    pub(crate) warm_list_interval: Option<Duration>,
    pub(crate) plain_io: bool,
}

impl Default for ServerSettings {
    fn default() -> Self {
        ServerSettings {
            memory_bytes: 256 << 20,
            share: ShareMode::Coldest,
            listen: None,
            send_timeout: Some(Duration::from_mins(1)),
            fuse: None,
            tls: None,
            allows_plain_clients: false,
            tls_verify_peer: false,
            record: None,
            record_inputs: None,
            give_back: None,
            lock: false,
            counters: None,
            control: None,
            control_tcp: None,
            control_token: None,
            warm_list: None,
            warm_list_interval: Some(Duration::from_mins(5)),
            plain_io: false,
        }
    }
}

/// The form of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueForm {
    /// A text, with the placeholder that help shows.
    Text(&'static str),
    /// A text, or none at all, which means `missing`.
    Optional {
        /// The placeholder that help shows.
        placeholder: &'static str,
        /// The text that a missing value means.
        missing: &'static str,
    },
    /// `true` or `false`; on the command line a flag without a value.
    Switch,
    /// The path of a directory or a file that is read.
    Path(&'static str),
    /// The path of a socket or directory, or `none`.
    PathOrNone(&'static str),
    /// The path of a file that is written.
    OutputFile,
    /// A whole number.
    Number,
}

/// Part of the help and of the documentation in which a setting is listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SettingGroup {
    /// The server itself.
    Server,
    /// TLS.
    Tls,
    /// Memory and replacement.
    Cache,
    /// Writes and flushes.
    Writes,
    /// The control interface.
    Control,
    /// Lists of cached pages.
    WarmRestart,
    /// Access to stores.
    Store,
    /// Constants of the lazy writer and of read-ahead.
    Tunables,
}

impl SettingGroup {
    /// All groups, in the order of the help.
    pub const ALL: [SettingGroup; 8] = [
        SettingGroup::Server,
        SettingGroup::Tls,
        SettingGroup::Cache,
        SettingGroup::Writes,
        SettingGroup::Control,
        SettingGroup::WarmRestart,
        SettingGroup::Store,
        SettingGroup::Tunables,
    ];

    /// Returns its heading.
    #[must_use]
    pub fn heading(self) -> &'static str {
        match self {
            SettingGroup::Server => "Server",
            SettingGroup::Tls => "TLS",
            SettingGroup::Cache => "Cache",
            SettingGroup::Writes => "Writes",
            SettingGroup::Control => "Control",
            SettingGroup::WarmRestart => "Warm restart",
            SettingGroup::Store => "Store",
            SettingGroup::Tunables => "Tunables",
        }
    }
}

type Refused = Result<(), String>;

/// The access to the value of a setting: a function that sets it from a text, and one that returns
/// it as a text.
#[derive(Clone, Copy, Debug)]
enum Field {
    /// Of the server.
    Server(fn(&mut ServerSettings, &OsStr) -> Refused, fn(&ServerSettings) -> String),
    /// Of a volume.
    Volume(fn(&mut VolumePlan, &OsStr) -> Refused, fn(&VolumePlan) -> String),
    /// Sets other settings of a volume.
    VolumeAlias(fn(&mut VolumePlan, &str) -> Refused),
    /// The tunable of this index in [`TUNABLES`].
    Tunable(usize),
}

/// A setting.
#[derive(Clone, Debug)]
pub struct Setting {
    /// Its name as a flag, as a key, and for `larder ctl set`.
    pub name: &'static str,
    /// The form of its value.
    pub form: ValueForm,
    /// The names of its values; empty if it has others.
    pub values: Vec<&'static str>,
    /// Its default value; empty if it has none.
    pub default: String,
    /// The part of the help in which it is listed.
    pub group: SettingGroup,
    /// Its meaning.
    pub meaning: String,
    /// True if `larder ctl set` and a reload can change it.
    pub is_live: bool,
    /// True if `larder mount` has it too.
    pub is_of_mounts: bool,
    /// A setting without which it has no effect.
    pub requires: Option<&'static str>,
    field: Field,
}

impl Setting {
    /// Returns true if each volume has its own value.
    #[must_use]
    pub fn is_of_volumes(&self) -> bool {
        !matches!(self.field, Field::Server(..))
    }

    /// Checks the text of a value.
    ///
    /// # Errors
    /// The reason why it is refused.
    pub fn check(&self, value: &OsStr) -> Refused {
        if self.is_of_volumes() {
            self.set_volume(&mut VolumePlan::default(), value)
        } else {
            self.set_server(&mut ServerSettings::default(), value)
        }
    }

    /// Sets the value of a setting of the server.
    pub(crate) fn set_server(&self, settings: &mut ServerSettings, value: &OsStr) -> Refused {
        match self.field {
            Field::Server(set, _) => set(settings, value),
            _ => Err("it is a setting of volumes, not of the server".to_owned()),
        }
    }

    /// Sets the value of a setting of a volume.
    pub(crate) fn set_volume(&self, plan: &mut VolumePlan, value: &OsStr) -> Refused {
        match self.field {
            Field::Volume(set, _) => set(plan, value),
            Field::VolumeAlias(set) => set(plan, text_of(value)?),
            Field::Tunable(index) => {
                let tunable = &TUNABLES[index];
                let value = value::tunable(tunable, text_of(value)?)?;
                plan.tunables.set(tunable.name, value).map_err(|error| error.to_string())
            }
            Field::Server(..) => Err(format!(
                "{} is a setting of the server, not of a volume; leave out the name of the volume",
                self.name
            )),
        }
    }

    /// Returns the value of a setting of the server: of a live one as [`Setting::check`] accepts
    /// it, of others a text that differs if the value does.
    pub(crate) fn of_server(&self, settings: &ServerSettings) -> Option<String> {
        match self.field {
            Field::Server(_, show) => Some(show(settings)),
            _ => None,
        }
    }

    /// Returns the value of a setting of a volume, as [`Setting::check`] accepts it.
    pub(crate) fn of_volume(&self, plan: &VolumePlan) -> Option<String> {
        match self.field {
            Field::Volume(_, show) => Some(show(plan)),
            Field::Tunable(index) => {
                Some(value::tunable_text(&TUNABLES[index], plan.tunables.values()[index]))
            }
            _ => None,
        }
    }
}

fn text_of(value: &OsStr) -> Result<&str, String> {
    value.to_str().ok_or_else(|| format!("\"{}\" is not UTF-8", value.display()))
}

/// The setting for the maximum of read-ahead, and the tunable that it sets.
pub(crate) const READ_AHEAD: &str = "read-ahead";
pub(crate) const READ_AHEAD_TUNABLE: &str = "read-ahead-max";

/// All settings.
pub static SETTINGS: LazyLock<Vec<Setting>> = LazyLock::new(table::rows);

/// Returns the setting of this name.
#[must_use]
pub fn find(name: &str) -> Option<&'static Setting> {
    SETTINGS.iter().find(|setting| setting.name == name)
}

/// A value for a setting of the server, of one volume, or of all volumes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assignment {
    /// The volume; `None` for all volumes, or for a setting of the server itself.
    pub volume: Option<String>,
    /// The setting.
    pub name: String,
    /// The text of the value.
    pub value: OsString,
}

impl Assignment {
    /// Parses `[VOLUME.]NAME` and a value. The name of a volume may contain ".", that of a setting
    /// does not.
    #[must_use]
    pub fn parse(name: &str, value: &str) -> Self {
        let (volume, name) = match name.rsplit_once('.') {
            Some((volume, name)) => (Some(volume.to_owned()), name),
            None => (None, name),
        };
        Assignment { volume, name: name.to_owned(), value: value.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_setting_has_a_name_of_its_own_and_a_default_that_it_accepts() {
        let names: HashSet<_> = SETTINGS.iter().map(|setting| setting.name).collect();
        assert_eq!(names.len(), SETTINGS.len());
        for setting in SETTINGS.iter() {
            let required = setting.requires.is_none_or(|name| find(name).is_some());
            assert!(required && !setting.meaning.is_empty(), "{setting:?}");
            if !setting.default.is_empty() {
                assert_eq!(setting.check(OsStr::new(&setting.default)), Ok(()), "{setting:?}");
            }
        }
    }

    #[test]
    fn the_defaults_of_the_table_are_those_of_a_server() {
        let (mut server, mut volume) = (ServerSettings::default(), VolumePlan::default());
        for setting in SETTINGS.iter().filter(|setting| !setting.default.is_empty()) {
            let default = OsStr::new(&setting.default);
            if setting.is_of_volumes() {
                setting.set_volume(&mut volume, default).unwrap();
            } else {
                setting.set_server(&mut server, default).unwrap();
            }
        }
        assert_eq!((server, volume), (ServerSettings::default(), VolumePlan::default()));
    }

    #[test]
    fn a_live_setting_is_shown_as_it_is_written() {
        let (server, volume) = (ServerSettings::default(), VolumePlan::default());
        for setting in SETTINGS.iter().filter(|setting| setting.is_live) {
            let shown = setting.of_server(&server).or_else(|| setting.of_volume(&volume));
            let Some(shown) = shown else { continue };
            assert_eq!(setting.check(OsStr::new(&shown)), Ok(()), "{}: {shown}", setting.name);
        }
    }

    #[test]
    fn the_document_lists_the_names_of_values() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/serve.md");
        let text = std::fs::read_to_string(path).expect("a document of the repository");
        for setting in SETTINGS.iter().filter(|setting| !setting.values.is_empty()) {
            let begin = format!("| `--{} ", setting.name);
            let row = text.lines().find(|line| line.starts_with(&begin));
            let row = row.unwrap_or_else(|| panic!("serve.md has no row for {}", setting.name));
            for value in &setting.values {
                assert!(row.contains(&format!("`{value}`")), "{}: {value}: {row}", setting.name);
            }
        }
    }
}
