//! Files that a command writes: none may be a file that the same command reads, or writes for
//! another option.

use super::atomic_file::check_directory;
use crate::args::VolumeArgument;
use crate::commands::bench::RecordedSpeed;
use anyhow::{Result, bail};
use clap::ArgMatches;
use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::Metadata;
use std::ops::Deref;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// The path of a file that the command writes. Every option and argument that names such a file
/// has this type, so that [`NamedFiles`] finds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OutputFile(PathBuf);

impl From<OsString> for OutputFile {
    fn from(path: OsString) -> Self {
        OutputFile(path.into())
    }
}

impl Deref for OutputFile {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.0
    }
}

/// Identity of a file, independent of its path.
#[derive(PartialEq, Eq, Hash)]
enum Identity {
    /// Device and inode of a regular file.
    Inode(u64, u64),
    /// Device number of a block device, which can have several device nodes.
    BlockDevice(u64),
    /// Directory and name of a file that does not exist yet.
    New(PathBuf, OsString),
}

impl Identity {
    /// Returns `None` for terminals, pipes, sockets and directories, which no output replaces.
    fn of(path: &Path) -> Option<Self> {
        let of_metadata = |found: Metadata| match found.file_type() {
            kind if kind.is_file() => Some(Identity::Inode(found.dev(), found.ino())),
            kind if kind.is_block_device() => Some(Identity::BlockDevice(found.rdev())),
            _ => None,
        };
        path.metadata().map_or_else(|_| Identity::of_new(path), of_metadata)
    }

    fn of_new(path: &Path) -> Option<Self> {
        let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let directory = directory.unwrap_or(Path::new(".")).canonicalize().ok()?;
        Some(Identity::New(directory, path.file_name()?.to_owned()))
    }
}

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
            files.written.extend(values(matches, id, |file: &OutputFile| Some(file.0.clone())));
            files.read.extend(values(matches, id, |path: &PathBuf| Some(path.clone())));
            files.read.extend(values(matches, id, VolumeArgument::file));
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
    /// whose directory does not exist, so that the command fails before it does its work.
    ///
    /// # Errors
    /// The error text is a verb phrase that follows "failed to".
    pub(crate) fn check(&self) -> Result<()> {
        let mut files = DistinctFiles::of_inputs(self.read.iter().cloned());
        for file in &self.written {
            files.add_output(file)?;
            check_directory(file)?;
        }
        Ok(())
    }
}

/// Files that one command uses, each for one purpose.
pub(crate) struct DistinctFiles {
    /// The path of each file, and true if the command reads it.
    names: HashMap<Identity, (PathBuf, bool)>,
}

impl DistinctFiles {
    /// Returns the files that a command reads.
    pub(crate) fn of_inputs(files: impl IntoIterator<Item = PathBuf>) -> Self {
        let files = files.into_iter().filter_map(|file| Some((Identity::of(&file)?, (file, true))));
        DistinctFiles { names: files.collect() }
    }

    /// Adds a file that the command writes.
    ///
    /// # Errors
    /// The command reads the file, or writes it already. The error text is a verb phrase that
    /// follows "failed to".
    pub(crate) fn add_output(&mut self, to: &Path) -> Result<()> {
        let Some(identity) = Identity::of(to) else { return Ok(()) };
        match self.names.insert(identity, (to.to_owned(), false)) {
            Some((file, true)) => {
                bail!("write {}: it is the file {} that is read", to.display(), file.display())
            }
            Some((_, false)) => {
                bail!("write {}: two outputs have this name; give each its own", to.display())
            }
            None => Ok(()),
        }
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
