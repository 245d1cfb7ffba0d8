//! Values on the command line: sizes with units, names, volumes, addresses.

use crate::output_file::OutputFile;
use larder_core::hint::Hint;
use larder_core::mode::{FlushMode, WriteMode};
use larder_core::policy::PolicyKind;
use larder_io::front::fuse::MountRestrictions;
use larder_server::settings::find;
use std::any::TypeId;
use std::num::NonZero;
use std::path::PathBuf;

mod output_format;
mod rule;
mod settings;
mod short_help;

pub(crate) use larder_server::value::{
    NamedValue, bytes, named, one_of, page_blocks, preset, size_text, time, tunable, unknown,
    unknown_setting, unknown_volume,
};
pub(crate) use larder_server::volume_source::VolumeSource;
pub(crate) use output_format::{FormatArgs, TableFormat, TextOrJson};
pub(crate) use rule::{RuleArgument, rule};
pub(crate) use settings::{MountSettings, PathText, ServeSettings};

/// Lets options take values that begin with a hyphen, so that the parser of a value refuses `-1`
/// and names the expected form. Options that accept any text are excepted: there a hyphen begins
/// the next option.
pub(crate) fn allow_hyphens(command: clap::Command) -> clap::Command {
    let texts = [
        TypeId::of::<String>(),
        TypeId::of::<PathBuf>(),
        TypeId::of::<OutputFile>(),
        TypeId::of::<PathText>(),
    ];
    let takes_one = |arg: &clap::Arg| {
        let count = arg.get_num_args().map_or(1, |count| count.min_values());
        arg.get_long().is_some() && arg.get_action().takes_values() && count == 1
    };
    command
        .mut_args(|arg| {
            let is_text = texts.iter().any(|text| arg.get_value_parser().type_id() == *text);
            if takes_one(&arg) && !is_text { arg.allow_hyphen_values(true) } else { arg }
        })
        .mut_subcommands(allow_hyphens)
}

/// Returns the names of the values of an argument; none if its values have no names.
pub(crate) fn value_names(arg: &clap::Arg) -> Vec<&'static str> {
    let type_id = arg.get_value_parser().type_id();
    if type_id == TypeId::of::<settings::ValidText>() {
        return find(arg.get_id().as_str()).map_or_else(Vec::new, |setting| setting.values.clone());
    }
    let types = [
        (TypeId::of::<PolicyKind>(), PolicyKind::names()),
        (TypeId::of::<WriteMode>(), WriteMode::names()),
        (TypeId::of::<FlushMode>(), FlushMode::names()),
        (TypeId::of::<Hint>(), Hint::names()),
    ];
    types.into_iter().find(|(it, _)| type_id == *it).map_or_else(Vec::new, |(_, names)| names)
}

/// Parses a mount restriction by its name in mount(8).
pub(crate) fn restriction(text: &str) -> Result<MountRestrictions, String> {
    match text {
        "ro" => Err("for a read-only mount write --write-mode read-only".into()),
        "suid" | "dev" | "exec" | "rw" => {
            Err(format!("\"{text}\" permits what SOURCE's mount may forbid; leave it out"))
        }
        _ => {
            let names = ["nosuid", "nodev", "noexec", "nosymfollow"];
            one_of("restriction", text, MountRestrictions::parse(text), &names)
        }
    }
}

/// Parses `[VOLUME.]NAME=VALUE`. The name of a volume may contain "=", a value does not.
pub(crate) fn setting(text: &str) -> Result<(String, String), String> {
    let split = text.rsplit_once('=').filter(|(name, _)| !name.is_empty());
    let (name, value) = split.ok_or("write it as NAME=VALUE")?;
    Ok((name.to_owned(), value.to_owned()))
}

/// Parses a percentage. Without the `%` sign only 0, or 1 and more, is accepted: 0.3 is ambiguous,
/// as it could mean 30%.
pub(crate) fn per_cent(text: &str) -> Option<f64> {
    match text.strip_suffix('%') {
        Some(number) => number.trim().parse().ok(),
        None => text.trim().parse().ok().filter(|&number: &f64| number == 0.0 || number >= 1.0),
    }
}

/// Parses a number of threads.
pub(crate) fn threads(text: &str) -> Result<NonZero<usize>, String> {
    text.parse().ok().ok_or_else(|| {
        format!("\"{text}\" is not a number of threads; write 1 or more, or leave the option out")
    })
}

/// Returns the parallelism of this machine: the default number of threads.
pub(crate) fn cores() -> NonZero<usize> {
    std::thread::available_parallelism().unwrap_or(NonZero::<usize>::MIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_and_percentages() {
        assert_eq!(setting("a=b.policy=lru"), Ok(("a=b.policy".to_owned(), "lru".to_owned())));
        for wrong in ["=1", "policy", ""] {
            assert_eq!(setting(wrong), Err("write it as NAME=VALUE".to_owned()));
        }
        assert_eq!(
            (per_cent("30"), per_cent("30%"), per_cent("0")),
            (Some(30.0), Some(30.0), Some(0.0))
        );
        assert_eq!((per_cent("0.3%"), per_cent("0.3"), per_cent("x")), (Some(0.3), None, None));
    }
}
