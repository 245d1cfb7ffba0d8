//! Files whose names other users could replace: secrets that are read, and results that are
//! written.
//!
//! A program that runs as root and follows any symbolic link lets the link's owner choose the file.
//! So a path is resolved step by step, and a symbolic link is followed only if it belongs to this
//! user or to root. A file that is read must belong to one of the two and must not be writable by
//! others; a secret must not be readable by others either. A file that is written is created under
//! a new name in its directory and replaces the old one by a rename, which never follows a link.

use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawMode, Stat};
use rustix::io::Errno;
use rustix::path::Arg;
use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};

/// Maximum number of symbolic links that are followed on a path, as in the kernel.
const LINKS_MAX: usize = 40;
/// Maximum number of names that are tried for a new file.
const NAMES_MAX: u32 = 10_000;
/// `PROC_SUPER_MAGIC` of statfs(2).
const PROCFS: u64 = 0x9fa0;

/// A reason to refuse a file.
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
    #[error("it belongs to uid {owner}, and must belong to root or to the user that runs larder")]
    ForeignFile {
        /// Its owner.
        owner: u32,
    },
    /// A file that others may change, or a secret that others may read.
    #[error("users other than its owner may {action} it (mode {mode:o}); run chmod {chmod}")]
    TooOpen {
        /// The forbidden action.
        action: &'static str,
        /// Its mode.
        mode: RawMode,
        /// Arguments of chmod(1) that solve it.
        chmod: &'static str,
    },
    /// Not a regular file.
    #[error("it is not a regular file")]
    NotAFile,
    /// Neither a regular file nor a block device.
    #[error("it is neither a regular file nor a block device")]
    NotStorage,
    /// A directory instead of a file.
    #[error("it is a directory")]
    Directory,
    /// A file that is longer than expected.
    #[error("it is longer than {0} bytes")]
    TooLong(u64),
    /// The kernel refused the operation.
    #[error(transparent)]
    System(#[from] io::Error),
}

impl From<Errno> for FileError {
    fn from(error: Errno) -> Self {
        FileError::System(error.into())
    }
}

/// Returns true if files of this user are trusted: root, and the user of this process.
#[must_use]
pub fn is_trusted(uid: u32) -> bool {
    uid == 0 || uid == rustix::process::geteuid().as_raw()
}

fn file_type(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

/// The location of a file: its directory, and its name there, which is not a symbolic link.
#[derive(Debug)]
pub struct Location {
    directory: OwnedFd,
    name: OsString,
    /// True for a file that a process has open, by its entry in /proc, as for /dev/stdout.
    is_open_file: bool,
}

/// Puts the components of a path before the ones that remain to be resolved.
fn prepend(steps: &mut VecDeque<OsString>, path: &Path) {
    for component in path.components().rev() {
        match component {
            Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
            Component::ParentDir => steps.push_front("..".into()),
            Component::Normal(name) => steps.push_front(name.to_owned()),
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
        let mut steps = VecDeque::new();
        prepend(&mut steps, path);
        let begin = if path.is_absolute() { "/" } else { "." };
        let mut directory = open_directory(rustix::fs::CWD, begin)?;
        let mut links = 0;
        loop {
            let name = steps.pop_front().unwrap_or_else(|| ".".into());
            let is_last = steps.is_empty();
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
            prepend(&mut steps, &target);
        }
    }

    /// Returns the type and owner of the file; none if it does not exist.
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

    /// Returns the path of its directory, as the kernel knows it.
    fn directory_path(&self) -> PathBuf {
        use std::os::fd::AsRawFd;
        let link = format!("/proc/self/fd/{}", self.directory.as_raw_fd());
        std::fs::read_link(link).unwrap_or_default()
    }
}

/// Returns the target of a link of this user or root; none if it is a file that a process has open.
fn follow(directory: &OwnedFd, name: &OsStr) -> Result<Option<PathBuf>, FileError> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let link = rustix::fs::openat(directory, name, flags, Mode::empty())?;
    let owner = rustix::fs::fstat(&link)?.st_uid;
    let target = rustix::fs::readlinkat(&link, c"", Vec::new())?;
    let target = PathBuf::from(OsString::from_vec(target.into_bytes()));
    if !is_trusted(owner) {
        return Err(FileError::ForeignLink { link: name.into(), owner });
    }
    // A link in /proc: its text describes the file, and need not be a path.
    let is_number = name.as_bytes().iter().all(u8::is_ascii_digit);
    let is_procfs = rustix::fs::fstatfs(directory)?.f_type.cast_unsigned() == PROCFS;
    Ok((!is_procfs || !is_number).then_some(target))
}

/// Users that may read a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileReaders {
    /// Only its owner.
    Secret,
    /// All users.
    Public,
}

/// Reads a file of this user or of root that no other user can change.
///
/// # Errors
/// If it belongs to another user, has too open a mode, is not a regular file, is longer than
/// `bytes_max`, or cannot be read.
pub fn read(path: &Path, secrecy: FileReaders, bytes_max: u64) -> Result<Vec<u8>, FileError> {
    // Opening a pipe must not block.
    let file = Location::find(path)?.open(OFlags::RDONLY | OFlags::NONBLOCK, 0)?;
    let stat = rustix::fs::fstat(&file)?;
    if file_type(&stat) != FileType::RegularFile {
        return Err(FileError::NotAFile);
    }
    let mode = stat.st_mode & 0o777;
    let others = mode & 0o077;
    if secrecy == FileReaders::Secret && others != 0 {
        return Err(FileError::TooOpen { action: "use", mode, chmod: "600" });
    }
    if others & 0o022 != 0 {
        return Err(FileError::TooOpen { action: "write", mode, chmod: "go-w" });
    }
    if !is_trusted(stat.st_uid) {
        return Err(FileError::ForeignFile { owner: stat.st_uid });
    }
    let mut bytes = Vec::new();
    file.take(bytes_max + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > bytes_max { Err(FileError::TooLong(bytes_max)) } else { Ok(bytes) }
}

/// Opens a regular file or a block device for reading past the page cache (`O_DIRECT`). Returns it
/// with its length in bytes.
///
/// # Errors
/// If it is neither, if its file system has no direct I/O (`EINVAL`), or if it cannot be opened.
pub fn open_direct(path: &Path) -> Result<(File, u64), FileError> {
    let location = Location::find(path)?;
    let open = |flags| location.open(OFlags::RDONLY | OFlags::NONBLOCK | flags, 0);
    // Direct I/O on a pipe or a directory would be an error that names no reason.
    match file_type(&rustix::fs::fstat(&open(OFlags::PATH)?)?) {
        FileType::RegularFile | FileType::BlockDevice => {}
        FileType::Directory => return Err(FileError::Directory),
        _ => return Err(FileError::NotStorage),
    }
    let mut file = open(OFlags::DIRECT)?;
    let is_storage = matches!(
        file_type(&rustix::fs::fstat(&file)?),
        FileType::RegularFile | FileType::BlockDevice
    );
    if !is_storage {
        return Err(FileError::NotStorage);
    }
    let bytes = file.seek(SeekFrom::End(0))?;
    Ok((file, bytes))
}

/// Opens a file that is not regular, such as a device or a pipe, for writing; also a file that this
/// process already has open. None for a regular file, or if nothing has this name.
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

/// Creates a file that must not exist yet.
///
/// # Errors
/// If the name exists, or the file cannot be created.
pub fn create_new(path: &Path, mode: RawMode) -> Result<File, FileError> {
    CreatedFile::create(path, mode).map(|(_, file)| file)
}

/// A file that this process has created and may remove again.
#[derive(Debug)]
pub struct CreatedFile {
    location: Location,
    device: u64,
    inode: u64,
}

impl CreatedFile {
    /// Creates a file that must not exist yet. Returns it open for writing, too.
    ///
    /// # Errors
    /// If the name exists, or the file cannot be created.
    pub fn create(path: &Path, mode: RawMode) -> Result<(Self, File), FileError> {
        let location = Location::find(path)?;
        let file = location.open(OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL, mode)?;
        let Stat { st_dev: device, st_ino: inode, .. } = rustix::fs::fstat(&file)?;
        Ok((CreatedFile { location, device, inode }, file))
    }

    /// Removes the file, unless its name belongs to another file now.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn remove(&self) -> Result<(), FileError> {
        let is_same = |stat: Stat| (stat.st_dev, stat.st_ino) == (self.device, self.inode);
        if self.location.stat()?.is_some_and(is_same) {
            let Location { directory, name, .. } = &self.location;
            rustix::fs::unlinkat(directory, &**name, AtFlags::empty())?;
        }
        Ok(())
    }
}

/// Opens a file of this user or root for reading and writing, or creates it for its user alone,
/// such as a lock or a journal.
///
/// # Errors
/// If it belongs to another user, is not a regular file, or cannot be opened.
pub fn open_or_create(path: &Path) -> Result<File, FileError> {
    let file = Location::find(path)?.open(OFlags::RDWR | OFlags::CREATE, 0o600)?;
    let stat = rustix::fs::fstat(&file)?;
    match file_type(&stat) {
        FileType::RegularFile if is_trusted(stat.st_uid) => Ok(file),
        FileType::RegularFile => Err(FileError::ForeignFile { owner: stat.st_uid }),
        _ => Err(FileError::NotAFile),
    }
}

/// Creates a file, or truncates one of this user.
///
/// # Errors
/// If the file belongs to another user, or cannot be written.
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

/// A new file that replaces another one when it is complete; it is removed if dropped before.
#[derive(Debug)]
pub struct Replacement {
    location: Location,
    /// Its temporary name; none after the rename.
    part: Option<OsString>,
    file: File,
}

impl Replacement {
    /// Creates the file next to the one at `path`, with the mode of that one if it belongs to this
    /// user. Its temporary name ends with `suffix`.
    ///
    /// # Errors
    /// If `path` is a directory, or the file cannot be created.
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

    /// Returns the file.
    #[must_use]
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Returns the temporary path of the file, for signal handlers that remove it.
    #[must_use]
    pub fn part(&self) -> PathBuf {
        self.location.directory_path().join(self.part.as_deref().unwrap_or(&self.location.name))
    }

    /// Syncs the file and renames it over the other one.
    ///
    /// # Errors
    /// If it cannot be written; the old file remains.
    pub fn finish(mut self) -> Result<(), FileError> {
        self.file.sync_all()?;
        let part = self.part.as_deref().unwrap_or(&self.location.name);
        let directory = &self.location.directory;
        rustix::fs::renameat(directory, part, directory, &*self.location.name)?;
        self.part = None;
        // The rename is on stable storage when the directory is synced.
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        match rustix::fs::openat(directory, ".", flags, Mode::empty()) {
            Ok(directory) => Ok(rustix::fs::fsync(&directory)?),
            // The directory may be writable but not readable.
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
