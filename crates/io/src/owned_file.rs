//! Files whose names other users could take: secrets that are read, and results that are written.
//!
//! A program that runs as root and follows whatever it finds under a name does what the user wants
//! who has put it there. So a name is resolved step by step, from directory to directory: a
//! symbolic link is followed only if it belongs to this user or to root. A file that is read
//! belongs to one of the two and cannot be written by others, and a secret cannot be read by others
//! either. A file that is written is created under a new name in its directory and takes the place
//! of the old one by a rename, which never follows a link.

use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawMode, Stat};
use rustix::io::Errno;
use rustix::path::Arg;
use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};

/// Links on the way to one file, as for the kernel.
const LINKS_MAX: usize = 40;
/// Names that are tried for a new file.
const NAMES_MAX: u32 = 10_000;
/// `PROC_SUPER_MAGIC` of statfs(2).
const PROCFS: u64 = 0x9fa0;

/// The reason why a file is not used.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// A link that another user could have made.
    #[error("the symbolic link {link} belongs to uid {owner}; name the file that it points to")]
    ForeignLink {
        /// The link.
        link: PathBuf,
        /// Its owner.
        owner: u32,
    },
    /// A file that another user could have made.
    #[error("it belongs to uid {owner}, and must belong to root or to the user who runs larder")]
    ForeignFile {
        /// Its owner.
        owner: u32,
    },
    /// A file that others may change, or a secret that others may read.
    #[error("others than its owner may {what} it (mode {mode:o}); chmod {chmod} it")]
    TooOpen {
        /// What they may do.
        what: &'static str,
        /// Its mode.
        mode: RawMode,
        /// The arguments of chmod(1) that help.
        chmod: &'static str,
    },
    /// Not a regular file.
    #[error("it is not a file")]
    NotAFile,
    /// A directory in the place of a file.
    #[error("it is a directory")]
    Directory,
    /// A file that is longer than what it should hold.
    #[error("it is longer than {0} bytes")]
    TooLong(u64),
    /// The kernel refused.
    #[error(transparent)]
    System(#[from] io::Error),
}

impl From<Errno> for FileError {
    fn from(error: Errno) -> Self {
        FileError::System(error.into())
    }
}

/// Whether what belongs to this user is trusted: root, and the user of this process.
#[must_use]
pub fn is_trusted(uid: u32) -> bool {
    uid == 0 || uid == rustix::process::geteuid().as_raw()
}

/// Permissions of group and others.
fn open_to_others(stat: &Stat) -> RawMode {
    stat.st_mode & 0o077
}

fn file_type(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

/// The place of a file: its directory, and its name there, which is no symbolic link.
#[derive(Debug)]
pub struct Location {
    directory: OwnedFd,
    name: OsString,
    /// A file that a process has open, by its number in /proc, as for /dev/stdout.
    is_open_file: bool,
}

/// The steps of a path that are still to be made.
struct Steps(VecDeque<OsString>);

impl Steps {
    /// Puts the steps of a path before those that are left.
    fn prepend(&mut self, path: &Path) {
        let names = path.components().filter_map(|component| match component {
            Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
            Component::ParentDir => Some(OsString::from("..")),
            Component::Normal(name) => Some(name.to_owned()),
        });
        for name in names.collect::<Vec<_>>().into_iter().rev() {
            self.0.push_front(name);
        }
    }
}

fn open_directory(at: impl AsFd, name: impl Arg) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(at, name, flags, Mode::empty())
}

impl Location {
    /// Resolves a path. The file itself need not exist.
    ///
    /// # Errors
    /// If a link on the way belongs to another user, or a directory does not exist.
    pub fn find(path: &Path) -> Result<Self, FileError> {
        let mut steps = Steps(VecDeque::new());
        steps.prepend(path);
        let begin = if path.is_absolute() { "/" } else { "." };
        let mut directory = open_directory(rustix::fs::CWD, begin)?;
        let mut links = 0;
        loop {
            let name = steps.0.pop_front().unwrap_or_else(|| ".".into());
            let is_last = steps.0.is_empty();
            let stat = rustix::fs::statat(&directory, &*name, AtFlags::SYMLINK_NOFOLLOW);
            let is_link = stat.is_ok_and(|stat| file_type(&stat) == FileType::Symlink);
            if !is_link && is_last {
                return Ok(Location { directory, name, is_open_file: false });
            }
            if !is_link {
                directory = open_directory(&directory, &*name)?;
                continue;
            }
            links += 1;
            if links > LINKS_MAX {
                return Err(Errno::LOOP.into());
            }
            let Some(target) = follow(&directory, &name)? else {
                return Ok(Location { directory, name, is_open_file: true });
            };
            if target.is_absolute() {
                directory = open_directory(rustix::fs::CWD, "/")?;
            }
            steps.prepend(&target);
        }
    }

    /// What is there; none if nothing is.
    fn stat(&self) -> Result<Option<Stat>, FileError> {
        let flags = if self.is_open_file { AtFlags::empty() } else { AtFlags::SYMLINK_NOFOLLOW };
        match rustix::fs::statat(&self.directory, &*self.name, flags) {
            Ok(stat) => Ok(Some(stat)),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn open(&self, flags: OFlags, mode: RawMode) -> Result<File, Errno> {
        let follow = if self.is_open_file { OFlags::empty() } else { OFlags::NOFOLLOW };
        let flags = flags | follow | OFlags::CLOEXEC | OFlags::NOCTTY;
        let mode = Mode::from_raw_mode(mode);
        rustix::fs::openat(&self.directory, &*self.name, flags, mode).map(File::from)
    }

    /// The path of its directory, as the kernel knows it.
    fn directory_path(&self) -> PathBuf {
        use std::os::fd::AsRawFd;
        let link = format!("/proc/self/fd/{}", self.directory.as_raw_fd());
        std::fs::read_link(link).unwrap_or_default()
    }
}

/// The target of a link of this user or root; none if it is a file that a process has open.
fn follow(directory: &OwnedFd, name: &OsStr) -> Result<Option<PathBuf>, FileError> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let link = rustix::fs::openat(directory, name, flags, Mode::empty())?;
    let owner = rustix::fs::fstat(&link)?.st_uid;
    let target = rustix::fs::readlinkat(&link, c"", Vec::new())?;
    let target = PathBuf::from(OsString::from_vec(target.into_bytes()));
    if !is_trusted(owner) {
        return Err(FileError::ForeignLink { link: name.into(), owner });
    }
    // A link that the kernel makes: its text says what it is, and need not be a path.
    let is_number = name.as_bytes().iter().all(u8::is_ascii_digit);
    let is_procfs = rustix::fs::fstatfs(directory)?.f_type.cast_unsigned() == PROCFS;
    Ok((!is_procfs || !is_number).then_some(target))
}

/// Those who may read a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Secrecy {
    /// Its owner alone.
    Secret,
    /// Everyone.
    Public,
}

/// Reads a file of this user or of root, which no other user can change.
///
/// # Errors
/// If it is another user's, too open, no file, longer than `bytes_max`, or cannot be read.
pub fn read(path: &Path, secrecy: Secrecy, bytes_max: u64) -> Result<Vec<u8>, FileError> {
    // A pipe must not make this wait.
    let file = Location::find(path)?.open(OFlags::RDONLY | OFlags::NONBLOCK, 0)?;
    let stat = rustix::fs::fstat(&file)?;
    if file_type(&stat) != FileType::RegularFile {
        return Err(FileError::NotAFile);
    }
    let others = open_to_others(&stat);
    let mode = stat.st_mode & 0o777;
    if secrecy == Secrecy::Secret && others != 0 {
        return Err(FileError::TooOpen { what: "use", mode, chmod: "600" });
    }
    if others & 0o022 != 0 {
        return Err(FileError::TooOpen { what: "write", mode, chmod: "go-w" });
    }
    if !is_trusted(stat.st_uid) {
        return Err(FileError::ForeignFile { owner: stat.st_uid });
    }
    let mut bytes = Vec::new();
    file.take(bytes_max + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > bytes_max { Err(FileError::TooLong(bytes_max)) } else { Ok(bytes) }
}

/// Opens what is under a name and is no regular file, as a device or a pipe, to write through it;
/// also a file that this process has open already. None if a regular file is there, or nothing.
///
/// # Errors
/// If it is a directory, a pipe of another user, or cannot be opened.
pub fn open_special(path: &Path) -> Result<Option<File>, FileError> {
    let location = Location::find(path)?;
    let Some(stat) = location.stat()? else { return Ok(None) };
    match file_type(&stat) {
        FileType::Directory => return Err(FileError::Directory),
        FileType::RegularFile if !location.is_open_file => return Ok(None),
        FileType::Fifo | FileType::Socket if !location.is_open_file && !is_trusted(stat.st_uid) => {
            return Err(FileError::ForeignFile { owner: stat.st_uid });
        }
        _ => {}
    }
    Ok(Some(location.open(OFlags::WRONLY | OFlags::APPEND, 0)?))
}

/// Creates a file that must not exist.
///
/// # Errors
/// If something of this name exists, or it cannot be created.
pub fn create_new(path: &Path, mode: RawMode) -> Result<File, FileError> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
    Ok(Location::find(path)?.open(flags, mode)?)
}

/// Opens the file of a lock, or creates it.
///
/// # Errors
/// If another user's file is there, or it cannot be opened.
pub fn open_lock(path: &Path) -> Result<File, FileError> {
    let file = Location::find(path)?.open(OFlags::RDWR | OFlags::CREATE, 0o600)?;
    let stat = rustix::fs::fstat(&file)?;
    match file_type(&stat) {
        FileType::RegularFile if is_trusted(stat.st_uid) => Ok(file),
        FileType::RegularFile => Err(FileError::ForeignFile { owner: stat.st_uid }),
        _ => Err(FileError::NotAFile),
    }
}

/// Creates a file, or empties one of this user.
///
/// # Errors
/// If another user's file is there, or it cannot be written.
pub fn create(path: &Path, mode: RawMode) -> Result<File, FileError> {
    let file = Location::find(path)?.open(OFlags::WRONLY | OFlags::CREATE, mode)?;
    let stat = rustix::fs::fstat(&file)?;
    if file_type(&stat) == FileType::RegularFile {
        if !is_trusted(stat.st_uid) {
            return Err(FileError::ForeignFile { owner: stat.st_uid });
        }
        file.set_len(0)?;
    }
    Ok(file)
}

/// A new file that takes the place of another one when it is whole; dropped before, it goes.
#[derive(Debug)]
pub struct Replacement {
    location: Location,
    /// Its name until then; none when it has got the other one.
    part: Option<OsString>,
    file: File,
}

impl Replacement {
    /// Creates the file beside the one at `path`, with the mode of that one if it is this user's.
    /// The end of its name is `suffix` until it is whole.
    ///
    /// # Errors
    /// If a directory is there, or the file cannot be created.
    pub fn begin(path: &Path, suffix: &str, mode: RawMode) -> Result<Self, FileError> {
        let location = Location::find(path)?;
        let old = location.stat()?;
        if old.as_ref().is_some_and(|stat| file_type(stat) == FileType::Directory) {
            return Err(FileError::Directory);
        }
        let user = rustix::process::geteuid().as_raw();
        let ours = old.filter(|stat| stat.st_uid == user);
        let mode = ours.map_or(mode, |stat| stat.st_mode & 0o777);
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        for number in 0..NAMES_MAX {
            let part = OsString::from(format!(".larder-{}-{number}{suffix}", std::process::id()));
            let mode = Mode::from_raw_mode(mode);
            match rustix::fs::openat(&location.directory, &*part, flags | OFlags::CLOEXEC, mode) {
                Ok(file) => {
                    return Ok(Replacement { location, part: Some(part), file: file.into() });
                }
                Err(Errno::EXIST) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(Errno::EXIST.into())
    }

    /// The file.
    #[must_use]
    pub fn file(&self) -> &File {
        &self.file
    }

    /// The path of the file until it is whole, for those who remove it when the process is ended.
    #[must_use]
    pub fn part(&self) -> PathBuf {
        self.location.directory_path().join(self.part.as_deref().unwrap_or(&self.location.name))
    }

    /// Puts it on stable storage and in the place of the other one.
    ///
    /// # Errors
    /// If it cannot be written. The old file is there still.
    pub fn finish(mut self) -> Result<(), FileError> {
        self.file.sync_all()?;
        let part = self.part.as_deref().unwrap_or(&self.location.name);
        let directory = &self.location.directory;
        rustix::fs::renameat(directory, part, directory, &*self.location.name)?;
        self.part = None;
        // The name is on stable storage when its directory is.
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        match rustix::fs::openat(directory, ".", flags, Mode::empty()) {
            Ok(directory) => Ok(rustix::fs::fsync(&directory)?),
            // A directory that may be written and not read.
            Err(Errno::ACCESS) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

impl Drop for Replacement {
    fn drop(&mut self) {
        if let Some(part) = &self.part
            && let Err(error) =
                rustix::fs::unlinkat(&self.location.directory, &**part, AtFlags::empty())
        {
            tracing::debug!(%error, "a file that was not whole could not be removed");
        }
    }
}

#[cfg(test)]
mod tests;
