//! `larder mount`: a directory through a cache, until the mount is stopped.
//!
//! The mount uses the machinery of `larder serve`: all files of the directory form one volume, and
//! the files of each rule another one, with the same control interface, the same signals and the
//! same shutdown.

use super::serve;
use crate::args::{self, MountSettings, RuleArgument, VolumeSource, size_text};
use crate::signals::wait_for_end_of_input;
use anyhow::{Result, bail, ensure};
use clap::Args;
use larder_core::mode::WriteMode;
use larder_core::units::BLOCK_BYTES_U64;
use larder_io::fault::{self, report_failed_part};
use larder_io::front::fuse::MountRestrictions;
use larder_report::escape;
use larder_server::plan::{Configuration, MountOptions};
use larder_server::settings::Assignment;
use rustix::process::{Signal, getpid, kill_process};
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

#[derive(Clone, Debug, Args)]
pub(crate) struct MountArgs {
    /// The directory to cache.
    source: PathBuf,

    /// Mount point: an empty directory outside SOURCE.
    mountpoint: PathBuf,

    /// Give all users access, by the modes of files.
    ///
    /// All users get access according to the modes of files, and not only the user who mounts.
    #[arg(long)]
    allow_other: bool,

    /// Restrictions: nosuid, nodev, noexec, nosymfollow.
    ///
    /// Restrictions of the mount in addition to those of SOURCE's mount, which always apply:
    /// nosuid, nodev, noexec, nosymfollow, separated by commas.
    #[arg(short, long, value_name = "NAMES", value_delimiter = ',',
          value_parser = args::restriction)]
    options: Vec<MountRestrictions>,

    /// Other programs change the directory, too.
    ///
    /// The kernel reports the changes of other programs, which requires root; otherwise names and
    /// attributes are always validated, as with --ttl 0s.
    #[arg(long)]
    shared: bool,

    /// Maximum age of names and attributes.
    ///
    /// Maximum age of names and attributes that are used without asking SOURCE, and of cached data
    /// if changes by others are not reported.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = args::time)]
    ttl: u64,

    /// Options for files that match a glob.
    ///
    /// Options for some files, by name or path: GLOB and words for hint, write mode, page size,
    /// pin, no-cache, kernel-pages=off|open|keep; words that are left out are as for all files. Of
    /// several rules the first that matches a file applies (docs/mount.md).
    #[arg(long, value_name = "GLOB=WORDS", value_parser = args::rule, help_heading = "Cache")]
    rule: Vec<RuleArgument>,

    #[command(flatten)]
    settings: MountSettings,

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

/// Returns the name of the volume of a rule.
fn rule_name(index: usize) -> String {
    format!("{RULE}{}", index + 1)
}

impl MountArgs {
    /// Returns the volume of the files without a rule, then those of rules whose files are cached.
    fn volumes(&self) -> Result<Vec<VolumeSource>> {
        ensure!(
            self.rule.len() <= RULES_MAX,
            "take {} rules: {RULES_MAX} are the most",
            self.rule.len()
        );
        let (path, name) = (self.source.clone(), volume_name(&self.source));
        let mut volumes = vec![VolumeSource { name, path, upstream: None }];
        for (index, RuleArgument { rule, write_mode, .. }) in self.rule.iter().enumerate() {
            let glob = rule.glob.text();
            let writes = write_mode.is_some_and(|mode| mode != WriteMode::ReadOnly);
            if writes && self.is_read_only() {
                bail!("write what \"{glob}\" names: --write-mode read-only is of all files");
            }
            if !rule.files.uncached {
                // A glob that is relative to the directory itself begins with a slash.
                let path = self.source.join(glob.trim_start_matches('/'));
                let name = rule_name(index);
                volumes.push(VolumeSource { name, path, upstream: None });
            }
        }
        let default = &volumes[0].name;
        if volumes[1..].iter().any(|volume| volume.name == *default) {
            "files".clone_into(&mut volumes[0].name);
        }
        Ok(volumes)
    }

    /// Returns the settings of all files, and those of rules.
    fn assignments(&self) -> Vec<Assignment> {
        let rules = self.rule.iter().enumerate().filter(|(_, rule)| !rule.rule.files.uncached);
        let of_rules = rules.flat_map(|(index, rule)| {
            let page_bytes = rule.page_blocks.map(|blocks| u64::from(blocks) * BLOCK_BYTES_U64);
            let values = [
                ("page-size", page_bytes.map(size_text)),
                ("hint", rule.hint.map(|hint| hint.name().to_owned())),
                ("write-mode", rule.write_mode.map(|mode| mode.name().to_owned())),
            ];
            values.into_iter().filter_map(move |(name, value)| {
                let (volume, name) = (Some(rule_name(index)), name.to_owned());
                Some(Assignment { volume, name, value: value?.into() })
            })
        });
        self.settings.0.iter().cloned().chain(of_rules).collect()
    }

    /// Returns true if no file may be written.
    fn is_read_only(&self) -> bool {
        let mut modes = self.settings.0.iter().filter(|setting| setting.name == "write-mode");
        modes.next_back().is_some_and(|mode| mode.value == WriteMode::ReadOnly.name())
    }

    /// Returns the configuration of the server of the mount.
    fn configuration(&self) -> Result<Configuration> {
        let no_lists = Assignment::parse("warm-list", "none");
        let mount = MountOptions {
            source: self.source.clone(),
            mountpoint: self.mountpoint.clone(),
            ttl: Duration::from_nanos(self.ttl),
            shared: self.shared,
            allow_other: self.allow_other,
            restrictions: self.options.iter().fold(MountRestrictions::NONE, |all, &one| all | one),
            rules: self.rule.iter().map(|rule| rule.rule.clone()).collect(),
        };
        Ok(Configuration {
            volumes: self.volumes()?,
            assignments: self.assignments().into_iter().chain([no_lists]).collect(),
            file: None,
            mount: Some(mount),
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
    serve::run_mount(&arguments.configuration()?)
}
