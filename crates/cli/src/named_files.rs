//! The files that a command line names: those that the command reads, and those that it writes.

use crate::args::VolumeSource;
use crate::commands::bench::RecordedSpeed;
use crate::output_file::OutputFile;
use anyhow::Result;
use clap::ArgMatches;
use larder_server::output::{DistinctFiles, check_writable};
use std::path::{Path, PathBuf};

/// The files that a command line names.
#[derive(Debug, Default)]
pub(crate) struct NamedFiles {
    read: Vec<PathBuf>,
    written: Vec<PathBuf>,
}

impl NamedFiles {
    /// Returns the files of a command and of its subcommands.
    pub(crate) fn of(matches: &ArgMatches) -> Self {
        let mut files = NamedFiles::default();
        for id in matches.ids().map(clap::Id::as_str) {
            // As the file of a trace, "-" is standard output.
            let written = |file: &OutputFile| {
                let is_stdout = id == "file" && **file == *Path::new("-");
                (!is_stdout).then(|| file.to_path_buf())
            };
            files.written.extend(values(matches, id, written));
            files.read.extend(values(matches, id, |path: &PathBuf| Some(path.clone())));
            files.read.extend(values(matches, id, VolumeSource::file));
            files
                .read
                .extend(values(matches, id, |speed: &RecordedSpeed| Some(speed.file.clone())));
            // The value is a path, or the address of an export.
            if id == "target" {
                files.read.extend(values(matches, id, |target: &String| Some(target.into())));
            }
        }
        if let Some((_, sub)) = matches.subcommand() {
            let sub = NamedFiles::of(sub);
            files.read.extend(sub.read);
            files.written.extend(sub.written);
        }
        files
    }

    /// Refuses an output that would replace a file that the command reads, or another output, or
    /// that cannot be written, so that the command fails before it does its work.
    pub(crate) fn check(&self) -> Result<()> {
        let mut files = DistinctFiles::of_inputs(self.read.iter().cloned());
        for file in &self.written {
            files.add_output(file)?;
            check_writable(file)?;
        }
        Ok(())
    }
}

/// Returns the results of `path` for the values of an argument; none if they have another type.
fn values<T: Clone + Send + Sync + 'static>(
    matches: &ArgMatches,
    id: &str,
    path: impl Fn(&T) -> Option<PathBuf>,
) -> Vec<PathBuf> {
    let values = matches.try_get_many::<T>(id).ok().flatten();
    values.into_iter().flatten().filter_map(path).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;
    use std::any::TypeId;

    /// Checks that every option that writes a file has the type [`OutputFile`].
    fn check_types(command: &clap::Command) {
        for arg in command.get_arguments() {
            let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
            let names_a_file = arg.get_value_names().is_some_and(|names| names[0] == "FILE");
            let writes = ["Write", "write", "Record", "replacing"];
            // `top` chooses a new name; the last file of `convert` and `merge` is the output.
            let is_excepted = ["top", "load", "convert", "merge"].contains(&command.get_name());
            if names_a_file && writes.iter().any(|word| help.contains(word)) && !is_excepted {
                let is_output = arg.get_value_parser().type_id() == TypeId::of::<OutputFile>();
                assert!(is_output, "{} {}: {help}", command.get_name(), arg.get_id());
            }
        }
        command.get_subcommands().for_each(check_types);
    }

    #[test]
    fn every_option_that_writes_a_file_has_the_type_of_one() {
        check_types(&crate::Cli::command());
    }
}
