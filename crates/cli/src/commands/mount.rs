//! `larder mount`: a directory through a cache, until the mount is stopped.
//!
//! The mount uses the machinery of `larder serve`: all files of the directory form one volume, and
//! the files of each rule another one, with the same control interface, the same signals and the
//! same shutdown.

use super::serve::{self, DirectoryArgs, config};
use crate::args::{self, Named, PathOrNone, PolicyChoice, RuleArgument, VolumeArgument};
use crate::output::OutputFile;
use crate::signals::wait_for_end_of_input;
use anyhow::{Result, anyhow, bail, ensure};
use clap::Args;
use larder_core::hint::Hint;
use larder_core::mode::{FlushMode, WriteMode};
use larder_io::fault::{self, report_failed_part};
use larder_io::front::fuse::MountRestrictions;
use larder_report::escape;
use rustix::process::{Signal, getpid, kill_process};
use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

#[derive(Clone, Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag")]
pub(crate) struct MountArgs {
    /// The directory to cache.
    source: PathBuf,

    /// Mount point: an empty directory outside SOURCE.
    mountpoint: PathBuf,

    /// Memory of the cache, including its metadata.
    #[arg(long, value_name = "SIZE", default_value = "256MiB", value_parser = args::bytes)]
    memory: u64,

    /// Give all users access, according to the modes of files, and not only the user who mounts.
    #[arg(long)]
    allow_other: bool,

    /// Restrictions of the mount in addition to those of SOURCE's mount, which always apply:
    /// nosuid, nodev, noexec, nosymfollow, separated by commas.
    #[arg(short, long, value_name = "NAMES", value_delimiter = ',',
          value_parser = args::restriction)]
    options: Vec<MountRestrictions>,

    /// Other programs change the directory too: the kernel reports their changes, which requires
    /// root; otherwise names and attributes are always validated, as with --ttl 0s.
    #[arg(long)]
    shared: bool,

    /// Maximum age of names and attributes that are used without asking SOURCE, and of cached data
    /// if changes by others are not reported.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = args::time)]
    ttl: u64,

    /// Options for some files, by name or path: GLOB and words for hint, write mode, page size,
    /// pin, no-cache, kernel-pages=off|open|keep; words that are left out are as for all files. Of
    /// several rules the first that matches a file applies (docs/mount.md).
    #[arg(long, value_name = "GLOB=WORDS", value_parser = args::rule, help_heading = "Cache")]
    rule: Vec<RuleArgument>,

    /// Unit of replacement, 4KiB to 1MiB [default: 4KiB].
    #[arg(long, value_name = "SIZE", value_parser = args::page_blocks, help_heading = "Cache")]
    page_size: Option<u32>,

    /// Replacement policy, or auto; see larder serve [default: s3fifo].
    #[arg(long, value_name = "POLICY", value_parser = args::policy_choice, help_heading = "Cache")]
    policy: Option<PolicyChoice>,

    /// Maximum size of read-ahead for a stream, or "off" [default: 1MiB].
    #[arg(long, value_name = "SIZE|off", value_parser = args::bytes_or_off, help_heading = "Cache")]
    read_ahead: Option<u64>,

    /// Expected access pattern: normal, sequential, random, no-buffering [default: normal].
    #[arg(long, value_name = "HINT", value_parser = args::hint, help_heading = "Cache")]
    hint: Option<Hint>,

    /// Give memory back, down to FLOOR, while the system is short of it, and take it again later.
    #[arg(long, value_name = "FLOOR", num_args = 0..=1, require_equals = true,
          default_missing_value = "0", value_parser = args::bytes, help_heading = "Cache")]
    give_back: Option<u64>,

    /// Lock the memory, so that it is never swapped out.
    #[arg(long, help_heading = "Cache")]
    lock: bool,

    /// Write mode: back (a write returns when it is in the cache), through (when it is in the
    /// directory too), around (it bypasses the cache), read-only [default: back].
    #[arg(long, value_name = "MODE", value_parser = args::write_mode, help_heading = "Writes")]
    write_mode: Option<WriteMode>,

    /// Mode of fsync: keep its guarantee, or ignore it, which loses unwritten data in a crash
    /// [default: keep].
    #[arg(long, value_name = "MODE", value_parser = args::flush_mode, help_heading = "Writes")]
    flush: Option<FlushMode>,

    /// Constants of the lazy writer: larder, or nt [default: larder].
    #[arg(long, value_name = "PRESET", value_parser = args::preset, help_heading = "Writes")]
    preset: Option<String>,

    /// Set a tunable (docs/TUNABLES.md).
    #[arg(long, value_name = "TUNABLE=VALUE", value_parser = args::setting,
          help_heading = "Writes")]
    set: Vec<(String, u64)>,

    /// Write the counters as JSON to this file on SIGUSR1 and at the end, replacing it.
    #[arg(long, value_name = "FILE")]
    counters: Option<OutputFile>,

    /// Record every input of the cache into a new file, which larder sim --level inputs
    /// replays. Serving is slower.
    #[arg(long, value_name = "FILE")]
    record_inputs: Option<OutputFile>,

    /// Socket for larder ctl, or none [default: in the runtime directory].
    #[arg(long, value_name = "PATH", value_parser = args::control, help_heading = "Control")]
    control: Option<PathOrNone>,

    /// Accept control connections over TCP as well, from this machine only; needs --control-token.
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = args::loopback,
          requires = "control_token", help_heading = "Control")]
    control_tcp: Option<SocketAddr>,

    /// File with the token that clients over TCP must present, on one line; only its owner may have
    /// access.
    #[arg(long, value_name = "FILE", requires = "control_tcp", help_heading = "Control")]
    control_token: Option<PathBuf>,

    /// Use plain system calls even if io_uring is available.
    #[arg(long, help_heading = "Store")]
    plain_io: bool,

    /// Stop as on SIGTERM when standard input ends, for a program that mounts for its own use.
    #[arg(long, hide = true)]
    while_input: bool,
}

/// Returns the name of the volume of all files of a directory.
fn volume_name(source: &Path) -> String {
    let path = source.canonicalize().unwrap_or_else(|_| source.to_owned());
    let name = path.file_name().map(|name| escape::path(name.as_ref()).into_owned());
    name.filter(|name| !name.contains(['=', '.'])).unwrap_or_else(|| "files".to_owned())
}

/// Prefix of the volume names of rules, before a number.
const RULE: &str = "rule";
/// Maximum number of rules: each takes a thread, and for a slow disk a buffer of 2 MiB in addition
/// to `--memory`, and the sum must stay within the limits of the process.
const RULES_MAX: usize = 12;

/// Returns a setting for all volumes.
fn all<T>(value: Option<T>) -> Vec<Named<T>> {
    value.into_iter().map(|value| Named { volume: None, value }).collect()
}

/// Returns the name of the volume of a rule.
fn rule_name(index: usize) -> String {
    format!("{RULE}{}", index + 1)
}

impl MountArgs {
    /// Returns the volume of the files without a rule, then those of rules whose files are cached.
    fn volumes(&self) -> Result<Vec<VolumeArgument>> {
        ensure!(
            self.rule.len() <= RULES_MAX,
            "take {} rules: {RULES_MAX} are the most",
            self.rule.len()
        );
        let (path, name) = (self.source.clone(), volume_name(&self.source));
        let mut volumes = vec![VolumeArgument { name, path, upstream: None }];
        for (index, RuleArgument { rule, write_mode, .. }) in self.rule.iter().enumerate() {
            let glob = rule.glob.text();
            let writes = write_mode.is_some_and(|mode| mode != WriteMode::ReadOnly);
            if writes && self.write_mode == Some(WriteMode::ReadOnly) {
                bail!("write what \"{glob}\" names: --write-mode read-only is of all files");
            }
            if !rule.files.uncached {
                // A glob that is relative to the directory itself begins with a slash.
                let path = self.source.join(glob.trim_start_matches('/'));
                let name = rule_name(index);
                volumes.push(VolumeArgument { name, path, upstream: None });
            }
        }
        let default = &volumes[0].name;
        if volumes[1..].iter().any(|volume| volume.name == *default) {
            "files".clone_into(&mut volumes[0].name);
        }
        Ok(volumes)
    }

    /// Returns a setting of all files, and those of rules.
    fn named<T: Copy>(
        &self,
        common: Option<T>,
        rule_value: impl Fn(&RuleArgument) -> Option<T>,
    ) -> Vec<Named<T>> {
        let rules = self.rule.iter().enumerate().filter(|(_, rule)| !rule.rule.files.uncached);
        let rule_values = rules.filter_map(|(index, rule)| {
            Some(Named { volume: Some(rule_name(index)), value: rule_value(rule)? })
        });
        all(common).into_iter().chain(rule_values).collect()
    }

    /// Returns the equivalent arguments of `larder serve`.
    fn to_serve_args(&self) -> Result<serve::ServeArgs> {
        let plain = config::parse_words(Vec::new()).map_err(|reason| anyhow!("{reason}"))?;
        Ok(serve::ServeArgs {
            volumes: self.volumes()?,
            memory: self.memory,
            directory: Some(DirectoryArgs {
                source: self.source.clone(),
                mountpoint: self.mountpoint.clone(),
                ttl: Duration::from_nanos(self.ttl),
                shared: self.shared,
                allow_other: self.allow_other,
                restrictions: self
                    .options
                    .iter()
                    .fold(MountRestrictions::NONE, |all, &one| all | one),
                rules: self.rule.iter().map(|rule| rule.rule.clone()).collect(),
            }),
            page_size: self.named(self.page_size, |rule| rule.page_blocks),
            policy: all(self.policy),
            read_ahead: all(self.read_ahead),
            hint: self.named(self.hint, |rule| rule.hint),
            give_back: self.give_back,
            lock: self.lock,
            write_mode: self.named(self.write_mode, |rule| rule.write_mode),
            flush: all(self.flush),
            preset: all(self.preset.clone()),
            set: self.set.iter().flat_map(|set| all(Some(set.clone()))).collect(),
            counters: self.counters.clone(),
            record_inputs: self.record_inputs.clone(),
            control: self.control.clone(),
            control_tcp: self.control_tcp,
            control_token: self.control_token.clone(),
            warm_list: Some(PathOrNone::None),
            plain_io: self.plain_io,
            ..plain
        })
    }
}

pub(crate) fn run(arguments: &MountArgs) -> Result<()> {
    if arguments.while_input {
        let stop = || {
            if let Err(error) = kill_process(getpid(), Signal::TERM) {
                tracing::error!(%error, "cannot stop at the end of the input; send SIGTERM");
            }
        };
        let end = move || {
            fault::point("input", "process");
            wait_for_end_of_input();
            stop();
        };
        let failed = move |error: &dyn fmt::Display| {
            report_failed_part("the end of the input is not seen, so that the mount ends", error);
            stop();
        };
        fault::spawn("input", None, end, failed)?;
    }
    serve::run_directory(&arguments.to_serve_args()?)
}
