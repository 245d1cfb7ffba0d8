//! The rows of the table.

use super::{Field, Form, Group, ServerSettings, Setting};
use crate::value::{self, size_text};
use crate::volume_plan::VolumePlan;
use larder_core::policy::PolicyKind;
use larder_core::tunables::TUNABLES;
use larder_core::units::BLOCK_BYTES_U64;
use std::path::PathBuf;
use std::time::Duration;

/// Returns a row of the server.
fn server(
    name: &'static str,
    form: Form,
    set: fn(&mut ServerSettings, &str) -> Result<(), String>,
    show: fn(&ServerSettings) -> String,
    meaning: &'static str,
) -> Setting {
    row(name, form, Field::Server(set, show), meaning)
}

/// Returns a row of the server that is a path.
fn path(
    name: &'static str,
    form: Form,
    field: fn(&mut ServerSettings) -> &mut Option<PathBuf>,
    meaning: &'static str,
) -> Setting {
    row(name, form, Field::ServerPath(field), meaning)
}

/// Returns a row of volumes, which can be changed while they are served.
fn volume(
    name: &'static str,
    placeholder: &'static str,
    set: fn(&mut VolumePlan, &str) -> Result<(), String>,
    show: fn(&VolumePlan) -> String,
    meaning: &'static str,
) -> Setting {
    row(name, Form::Text(placeholder), Field::Volume(set, show), meaning).live().of_mounts()
}

fn row(name: &'static str, form: Form, field: Field, meaning: &'static str) -> Setting {
    Setting {
        name,
        form,
        default: String::new(),
        group: Group::Server,
        meaning,
        is_live: false,
        is_of_mounts: false,
        requires: None,
        field,
    }
}

impl Setting {
    fn default(self, default: &str) -> Self {
        Setting { default: default.to_owned(), ..self }
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

/// Returns frames for bytes; too many are as many as there can be.
fn frames(bytes: u64) -> u32 {
    u32::try_from(bytes / BLOCK_BYTES_U64).unwrap_or(u32::MAX)
}

fn frames_text(frames: u32) -> String {
    size_text(u64::from(frames) * BLOCK_BYTES_U64)
}

/// Parses a time; `None` for `off`.
fn interval(text: &str) -> Result<Option<Duration>, String> {
    let ns = value::time_or_off(text)?;
    Ok((ns > 0).then(|| Duration::from_nanos(ns)))
}

fn switch(text: &str) -> Result<bool, String> {
    text.parse().ok().ok_or_else(|| format!("\"{text}\" is neither true nor false"))
}

pub(super) fn rows() -> Vec<Setting> {
    let groups: [(Group, Vec<Setting>); 8] = [
        (Group::Server, server_rows()),
        (Group::Tls, tls_rows()),
        (Group::Cache, [cache_rows(), share_rows()].concat()),
        (Group::Writes, write_rows()),
        (Group::Control, control_rows()),
        (Group::WarmRestart, warm_restart_rows()),
        (Group::Store, store_rows()),
        (Group::Tunables, tunable_rows()),
    ];
    let rows = groups.into_iter().flat_map(|(group, rows)| {
        rows.into_iter().map(move |setting| Setting { group, ..setting })
    });
    rows.collect()
}

fn server_rows() -> Vec<Setting> {
    vec![
        server(
            "memory",
            Form::Text("SIZE"),
            |settings, text| value::bytes(text).map(|bytes| settings.memory_bytes = bytes),
            |settings| size_text(settings.memory_bytes),
            "Memory of the cache, including its metadata, shared by all volumes.",
        )
        .default("256MiB")
        .live()
        .of_mounts(),
        server(
            "listen",
            Form::Text("ADDRESS"),
            |settings, text| value::listen(text).map(|address| settings.listen = Some(address)),
            |settings| format!("{:?}", settings.listen),
            "Listening address: unix:PATH or tcp:ADDRESS:PORT. Default: a socket in the runtime \
             directory.",
        ),
        server(
            "send-timeout",
            Form::Text("TIME|off"),
            |settings, text| interval(text).map(|time| settings.send_timeout = time),
            |settings| format!("{:?}", settings.send_timeout),
            "Close a connection whose client receives none of its waiting replies for this time.",
        )
        .default("1m"),
        path(
            "fuse",
            Form::Path("DIR"),
            |settings| &mut settings.fuse,
            "Show each volume as a file in this empty directory, by FUSE, for loop devices and \
             mounts.",
        ),
        path(
            "record",
            Form::OutputFile,
            |settings| &mut settings.record,
            "Record every answered request into a new trace.",
        ),
        path(
            "record-inputs",
            Form::OutputFile,
            |settings| &mut settings.record_inputs,
            "Record every input of the cache into a new file, which larder sim --level inputs \
             replays. Serving is slower.",
        )
        .of_mounts(),
        path(
            "counters",
            Form::OutputFile,
            |settings| &mut settings.counters,
            "Write the counters as JSON to this file on SIGUSR1 and at the end, replacing it.",
        )
        .of_mounts(),
    ]
}

fn tls_rows() -> Vec<Setting> {
    vec![
        path(
            "tls",
            Form::Path("DIR"),
            |settings| &mut settings.tls,
            "Speak TLS, with server-cert.pem and server-key.pem of this directory.",
        ),
        server(
            "tls-mode",
            Form::Text("MODE"),
            |settings, text| {
                let mode = match text {
                    "require" => Some(false),
                    "allow" => Some(true),
                    _ => None,
                };
                value::one_of("TLS mode", text, mode, &["require", "allow"])
                    .map(|allows| settings.allows_plain_clients = allows)
            },
            |settings| format!("{:?}", settings.allows_plain_clients),
            "Handling of clients without TLS: require refuses them, allow serves them.",
        )
        .default("require")
        .requires("tls"),
        server(
            "tls-verify-peer",
            Form::Switch,
            |settings, text| switch(text).map(|on| settings.tls_verify_peer = on),
            |settings| settings.tls_verify_peer.to_string(),
            "Refuse clients without a certificate signed by ca-cert.pem of the directory.",
        )
        .requires("tls"),
    ]
}

/// Returns the meaning of the setting `policy`, with the names of all policies.
fn policy_meaning() -> &'static str {
    let names = PolicyKind::ALL.map(PolicyKind::name).join(", ");
    let meaning = format!(
        "Replacement policy: {names}; or auto, which changes it for one that hits clearly more."
    );
    // The table is made once.
    meaning.leak()
}

fn cache_rows() -> Vec<Setting> {
    vec![
        volume(
            "page-size",
            "SIZE",
            |plan, text| value::page_blocks(text).map(|blocks| plan.page_blocks = blocks),
            |plan| frames_text(plan.page_blocks),
            "Unit of replacement, 4KiB to 1MiB.",
        )
        .default("4KiB"),
        volume(
            "policy",
            "POLICY",
            |plan, text| value::policy_choice(text).map(|policy| plan.policy = policy),
            |plan| plan.policy.name().to_owned(),
            policy_meaning(),
        )
        .default("s3fifo"),
        row(
            "read-ahead",
            Form::Text("SIZE|off"),
            Field::VolumeAlias(|plan, text| {
                let bytes = value::bytes_or_off(text)?;
                plan.tunables.set("read-ahead-max", bytes).map_err(|error| error.to_string())
            }),
            "Maximum size of read-ahead for a stream, or \"off\".",
        )
        .default("1MiB")
        .live()
        .of_mounts(),
        volume(
            "hint",
            "HINT",
            |plan, text| value::hint(text).map(|hint| plan.hint = hint),
            |plan| plan.hint.name().to_owned(),
            "Expected access pattern: normal, sequential (once and in order), random (no \
             read-ahead), no-buffering (its clients have a cache of their own).",
        )
        .default("normal"),
        server(
            "give-back",
            Form::Optional { placeholder: "FLOOR", missing: "0" },
            |settings, text| value::bytes(text).map(|bytes| settings.give_back = Some(bytes)),
            |settings| format!("{:?}", settings.give_back),
            "Give memory back, down to FLOOR and the minimum of volumes, while the system is short \
             of it, and take it again later.",
        )
        .of_mounts(),
        server(
            "lock",
            Form::Switch,
            |settings, text| switch(text).map(|on| settings.lock = on),
            |settings| settings.lock.to_string(),
            "Lock the memory, so that it is never swapped out.",
        )
        .of_mounts(),
    ]
}

/// Returns the rows of the parts of the memory that volumes have.
fn share_rows() -> Vec<Setting> {
    vec![
        server(
            "share",
            Form::Text("MODE"),
            |settings, text| value::share(text).map(|mode| settings.share = mode),
            |settings| settings.share.name().to_owned(),
            "Eviction between volumes: coldest (the page not used for longest, of any volume), or \
             auto (each volume has a part, and parts move to the volumes where they yield most \
             hits).",
        )
        .default("coldest")
        .live(),
        Setting {
            is_of_mounts: false,
            ..volume(
                "min",
                "SIZE",
                |plan, text| {
                    let bytes = value::bytes(text)?;
                    plan.min_frames = frames(bytes.saturating_add(BLOCK_BYTES_U64 - 1));
                    Ok(())
                },
                |plan| frames_text(plan.min_frames),
                "Memory that other volumes cannot take from a volume.",
            )
        },
        Setting {
            is_of_mounts: false,
            ..volume(
                "max",
                "SIZE",
                |plan, text| value::ceiling(text).map(|bytes| plan.max_frames = frames(bytes)),
                |plan| match plan.max_frames {
                    u32::MAX => "all".to_owned(),
                    frames => frames_text(frames),
                },
                "Maximum memory of a volume, or all.",
            )
        },
    ]
}

fn write_rows() -> Vec<Setting> {
    vec![
        volume(
            "write-mode",
            "MODE",
            |plan, text| value::write_mode(text).map(|mode| plan.write_mode = mode),
            |plan| plan.write_mode.name().to_owned(),
            "Write mode: back (a write is acknowledged when it is in the cache), through (when it \
             is in the store too), around (it bypasses the cache), read-only.",
        )
        .default("back"),
        volume(
            "flush",
            "MODE",
            |plan, text| value::flush_mode(text).map(|mode| plan.flush_mode = mode),
            |plan| plan.flush_mode.name().to_owned(),
            "Flush mode: keep the guarantee of a flush and of fsync, or ignore it, which loses \
             unwritten data in a crash.",
        )
        .default("keep"),
        row(
            "preset",
            Form::Text("PRESET"),
            Field::VolumeAlias(|plan, text| {
                value::preset(text).map(|tunables| plan.tunables = tunables)
            }),
            "Values of all tunables: larder, or nt for those of the Windows NT file cache.",
        )
        .default("larder")
        .live()
        .of_mounts(),
    ]
}

fn control_rows() -> Vec<Setting> {
    vec![
        server(
            "control",
            Form::PathOrNone("PATH"),
            |settings, text| value::control(text).map(|path| settings.control = Some(path)),
            |settings| format!("{:?}", settings.control),
            "Socket for larder ctl, or none. Default: one in the runtime directory, where ctl \
             finds it.",
        )
        .of_mounts(),
        server(
            "control-tcp",
            Form::Text("ADDRESS:PORT"),
            |settings, text| {
                value::loopback(text).map(|address| settings.control_tcp = Some(address))
            },
            |settings| format!("{:?}", settings.control_tcp),
            "Accept control connections over TCP as well, from this machine only; needs \
             --control-token.",
        )
        .requires("control-token")
        .of_mounts(),
        path(
            "control-token",
            Form::Path("FILE"),
            |settings| &mut settings.control_token,
            "File with the token that clients over TCP must present, on one line; only its owner \
             may have access.",
        )
        .requires("control-tcp")
        .of_mounts(),
    ]
}

fn warm_restart_rows() -> Vec<Setting> {
    vec![
        server(
            "warm-list",
            Form::PathOrNone("DIR|none"),
            |settings, text| value::directory(text).map(|path| settings.warm_list = Some(path)),
            |settings| format!("{:?}", settings.warm_list),
            "Directory for lists of cached pages, which are read back at the next start, or none. \
             Default: the state directory of a service manager, else none.",
        ),
        server(
            "warm-list-every",
            Form::Text("TIME|off"),
            |settings, text| interval(text).map(|time| settings.warm_list_interval = time),
            |settings| format!("{:?}", settings.warm_list_interval),
            "Interval at which the lists are saved, in addition to the end, or off.",
        )
        .default("5m"),
    ]
}

fn store_rows() -> Vec<Setting> {
    vec![
        server(
            "plain-io",
            Form::Switch,
            |settings, text| switch(text).map(|on| settings.plain_io = on),
            |settings| settings.plain_io.to_string(),
            "Use plain system calls even if io_uring is available.",
        )
        .of_mounts(),
    ]
}

fn tunable_rows() -> Vec<Setting> {
    let rows = TUNABLES.iter().enumerate().map(|(index, tunable)| {
        row(tunable.name, Form::Number, Field::Tunable(index), tunable.meaning)
            .default(&tunable.default.to_string())
            .live()
            .of_mounts()
    });
    rows.collect()
}
