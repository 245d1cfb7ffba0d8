//! The rows of the table.

use super::{Field, READ_AHEAD_TUNABLE, Setting, SettingGroup, ValueForm, text_of};
use crate::value::{self, NamedValue, PRESETS, interval, named, size_text, switch};
use crate::volume_plan::VolumePlan;
use larder_core::cache::ShareMode;
use larder_core::curve::choice::PolicyChoice;
use larder_core::hint::Hint;
use larder_core::mode::{FlushMode, WriteMode};
use larder_core::policy::PolicyKind;
use larder_core::tunables::TUNABLES;
use larder_core::units::BLOCK_BYTES_U64;
use std::ffi::OsStr;
use std::path::PathBuf;

/// Returns the access to a field of `ServerSettings` or `VolumePlan` with its parser, and with its
/// text if the setting is live.
macro_rules! field {
    ($part:ident.$field:ident = path) => {
        Field::$part(
            |it, path| {
                it.$field = Some(path_of(path)?);
                Ok(())
            },
            |it| format!("{:?}", it.$field),
        )
    };
    ($part:ident.$field:ident = $parse:expr) => {
        field!($part.$field = $parse, |it| format!("{:?}", it.$field))
    };
    ($part:ident.$field:ident = $parse:expr, $show:expr) => {
        Field::$part(
            |it, text| {
                it.$field = $parse(text_of(text)?)?;
                Ok(())
            },
            $show,
        )
    };
}

/// Makes the rows of each group: name, form, properties, access, and meaning.
macro_rules! table {
    ($($group:ident: $(
        $name:literal, $form:expr, [$($property:ident($($argument:expr)?)),*], $field:expr,
        $meaning:expr;
    )*)*) => {
        pub(super) fn rows() -> Vec<Setting> {
            let mut rows = vec![$($(
                row(SettingGroup::$group, $name, $form, $field, $meaning)
                    $(.$property($($argument)?))*,
            )*)*];
            rows.extend(TUNABLES.iter().enumerate().map(|(index, tunable)| {
                let field = Field::Tunable(index);
                row(SettingGroup::Tunables, tunable.name, ValueForm::Number, field, tunable.meaning)
                    .default(&value::tunable_text(tunable, tunable.default))
                    .live()
                    .of_mounts()
            }));
            rows
        }
    };
}

fn row(
    group: SettingGroup,
    name: &'static str,
    form: ValueForm,
    field: Field,
    meaning: impl Into<String>,
) -> Setting {
    let (values, default, meaning) = (Vec::new(), String::new(), meaning.into());
    let (is_live, is_of_mounts, requires) = (false, false, None);
    Setting { name, form, values, default, group, meaning, is_live, is_of_mounts, requires, field }
}

impl Setting {
    fn default(self, default: &str) -> Self {
        Setting { default: default.to_owned(), ..self }
    }

    fn values(self, values: &[&'static str]) -> Self {
        Setting { values: values.to_vec(), ..self }
    }

    fn live(self) -> Self {
        Setting { is_live: true, ..self }
    }

    fn of_mounts(self) -> Self {
        Setting { is_of_mounts: true, ..self }
    }

    fn requires(self, name: &'static str) -> Self {
        Setting { requires: Some(name), ..self }
    }
}

fn path_of(value: &OsStr) -> Result<PathBuf, String> {
    if value.is_empty() { Err("a path cannot be empty".to_owned()) } else { Ok(value.into()) }
}

/// Returns frames for bytes; too many are as many as there can be.
fn frames(bytes: u64) -> u32 {
    u32::try_from(bytes / BLOCK_BYTES_U64).unwrap_or(u32::MAX)
}

fn frames_text(frames: u32) -> String {
    size_text(u64::from(frames) * BLOCK_BYTES_U64)
}

/// Parses a floor; returns frames for at least these bytes.
fn floor(text: &str) -> Result<u32, String> {
    value::bytes(text).map(|bytes| frames(bytes.saturating_add(BLOCK_BYTES_U64 - 1)))
}

/// Parses a ceiling, or `all`; returns frames for at most these bytes.
fn ceiling(text: &str) -> Result<u32, String> {
    value::bytes_or("all", u64::MAX, text).map(frames)
}

/// Parses a value that is optional.
fn some<T>(parsed: Result<T, String>) -> Result<Option<T>, String> {
    parsed.map(Some)
}

/// The handlings of clients without TLS.
const TLS_MODES: [&str; 2] = ["require", "allow"];

/// Parses a TLS mode; returns true if clients without TLS are served.
fn tls_mode(text: &str) -> Result<bool, String> {
    let index = TLS_MODES.iter().position(|mode| *mode == text);
    value::one_of("TLS mode", text, index.map(|index| index == 1), &TLS_MODES)
}

/// Sets the maximum of read-ahead, which is a tunable.
fn set_read_ahead(plan: &mut VolumePlan, text: &str) -> Result<(), String> {
    let name = READ_AHEAD_TUNABLE;
    let bounds = TUNABLES.iter().find(|tunable| tunable.name == name).expect("a tunable");
    let bytes = value::tunable(bounds, text)?;
    let too_large = |_| format!("it is more than {}", size_text(bounds.max));
    plan.tunables.set(name, bytes).map_err(too_large)
}

/// Sets all tunables.
fn set_preset(plan: &mut VolumePlan, text: &str) -> Result<(), String> {
    value::preset(text).map(|tunables| plan.tunables = tunables)
}

fn policy_meaning() -> String {
    let names = PolicyKind::names().join(", ");
    format!(
        "Replacement policy: {names}; or auto, which changes to the \
         one that hits clearly more."
    )
}

fn max_text(plan: &VolumePlan) -> String {
    if plan.max_frames == u32::MAX { "all".to_owned() } else { frames_text(plan.max_frames) }
}

table! {
    Server:
    "memory", ValueForm::Text("SIZE"), [default("256MiB"), live(), of_mounts()],
        field!(Server.memory_bytes = value::bytes, |it| size_text(it.memory_bytes)),
        "Memory of the cache, including its metadata, shared by all volumes.";
    "listen", ValueForm::Text("ADDRESS"), [],
        field!(Server.listen = |text| some(value::listen(text))),
        "Listening address: unix:PATH or tcp:ADDRESS:PORT. Default: a socket in the runtime \
         directory.";
    "send-timeout", ValueForm::Text("TIME|off"), [default("1m")],
        field!(Server.send_timeout = interval),
        "Close a connection whose client receives none of its waiting replies for this time.";
    "fuse", ValueForm::Path("DIR"), [],
        field!(Server.fuse = path),
        "Show each volume as a file in this empty directory, by FUSE, for loop devices and mounts.";
    "record", ValueForm::OutputFile, [],
        field!(Server.record = path),
        "Record every answered request into a new trace.";
    "record-inputs", ValueForm::OutputFile, [of_mounts()],
        field!(Server.record_inputs = path),
        "Record every input of the cache into a new file, which larder sim --level inputs \
         replays. Serving is slower.";
    "counters", ValueForm::OutputFile, [of_mounts()],
        field!(Server.counters = path),
        "Write the counters as JSON to this file on SIGUSR1 and at the end, replacing it.";

    Tls:
    "tls", ValueForm::Path("DIR"), [],
        field!(Server.tls = path),
        "Serve with TLS, with server-cert.pem and server-key.pem of this directory.";
    "tls-mode", ValueForm::Text("MODE"), [values(&TLS_MODES), default("require"), requires("tls")],
        field!(Server.allows_plain_clients = tls_mode),
        "Handling of clients without TLS: require refuses them, allow serves them.";
    "tls-verify-peer", ValueForm::Switch, [requires("tls")],
        field!(Server.tls_verify_peer = switch),
        "Refuse clients without a certificate signed by ca-cert.pem of the directory.";

    Cache:
    "page-size", ValueForm::Text("SIZE"), [default("4KiB"), live(), of_mounts()],
        field!(Volume.page_blocks = value::page_blocks, |it| frames_text(it.page_blocks)),
        "Unit of replacement, 4KiB to 1MiB.";
    "policy", ValueForm::Text("POLICY"),
        [values(&PolicyChoice::names()), default("s3fifo"), live(), of_mounts()],
        field!(Volume.policy = named, |it| it.policy.name().to_owned()),
        policy_meaning();
    "read-ahead", ValueForm::Text("SIZE|off"), [default("1MiB"), live(), of_mounts()],
        Field::VolumeAlias(set_read_ahead),
        "Maximum size of read-ahead for a stream, or \"off\".";
    "hint", ValueForm::Text("HINT"),
        [values(&Hint::names()), default("normal"), live(), of_mounts()],
        field!(Volume.hint = named, |it| it.hint.name().to_owned()),
        "Expected access pattern: normal, sequential (once and in order), random (no read-ahead), \
         no-buffering (its clients have a cache of their own).";
    "give-back", ValueForm::Optional { placeholder: "FLOOR", missing: "0" }, [of_mounts()],
        field!(Server.give_back = |text| some(value::bytes(text))),
        "While the system is short of memory, return memory to it, down to FLOOR and the minimums \
         of the volumes; take it again later.";
    "lock", ValueForm::Switch, [of_mounts()],
        field!(Server.lock = switch),
        "Lock the memory, so that it is never swapped out.";
    "share", ValueForm::Text("MODE"), [values(&ShareMode::names()), default("coldest"), live()],
        field!(Server.share = named, |it| it.share.name().to_owned()),
        "Eviction between volumes: coldest (the least recently used page of all volumes), or auto \
         (each volume has a share, and memory moves to the volumes that gain the most hits).";
    "min", ValueForm::Text("SIZE"), [live()],
        field!(Volume.min_frames = floor, |it| frames_text(it.min_frames)),
        "Memory that other volumes cannot take from a volume.";
    "max", ValueForm::Text("SIZE"), [live()],
        field!(Volume.max_frames = ceiling, max_text),
        "Maximum memory of a volume, or all.";

    Writes:
    "write-mode", ValueForm::Text("MODE"),
        [values(&WriteMode::names()), default("write-back"), live(), of_mounts()],
        field!(Volume.write_mode = named, |it| it.write_mode.name().to_owned()),
        "Write mode: write-back (a write is acknowledged when it is in the cache), write-through \
         (when it is in the store too), write-around (as write-through, and blocks that were not \
         in the cache leave it), read-only.";
    "flush", ValueForm::Text("MODE"),
        [values(&FlushMode::names()), default("keep"), live(), of_mounts()],
        field!(Volume.flush_mode = named, |it| it.flush_mode.name().to_owned()),
        "Flush mode: keep the guarantee of a flush and of fsync; or ignore it, so that a crash \
         loses unwritten data.";
    "preset", ValueForm::Text("PRESET"), [values(&PRESETS), default("larder"), live(), of_mounts()],
        Field::VolumeAlias(set_preset),
        "Values of all tunables: larder, nt (Windows NT file cache) or linux (Linux page cache).";

    Control:
    "control", ValueForm::PathOrNone("PATH"), [of_mounts()],
        field!(Server.control = |text| some(value::control(text))),
        "Socket for larder ctl, or none. Default: one in the runtime directory, where ctl finds \
         it.";
    "control-tcp", ValueForm::Text("ADDRESS:PORT"), [requires("control-token"), of_mounts()],
        field!(Server.control_tcp = |text| some(value::loopback(text))),
        "Accept control connections over TCP as well, from this machine only; needs \
         --control-token.";
    "control-token", ValueForm::Path("FILE"), [requires("control-tcp"), of_mounts()],
        field!(Server.control_token = path),
        "File with the token that clients over TCP must present, on one line; only its owner may \
         have access.";

    WarmRestart:
    "warm-list", ValueForm::PathOrNone("DIR|none"), [],
        field!(Server.warm_list = |text| some(value::directory(text))),
        "Directory for lists of cached pages, which are read back at the next start, or none. \
         Default: the state directory of a service manager, else none.";
    "warm-list-every", ValueForm::Text("TIME|off"), [default("5m")],
        field!(Server.warm_list_interval = interval),
        "Interval at which the lists are saved, in addition to the end, or off.";

    Store:
    "plain-io", ValueForm::Switch, [of_mounts()],
        field!(Server.plain_io = switch),
        "Use plain system calls even if io_uring is available.";
}
