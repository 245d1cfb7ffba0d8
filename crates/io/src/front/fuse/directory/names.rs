//! Requests about names: lookup, creation, rename, removal. Each is one system call with a
//! descriptor of a directory and a name.
//!
//! Invariant: a new file belongs to the requesting user from the beginning, with the group that
//! SOURCE's file system gives it; no other file changes its owner.

use super::super::abi::{
    self, CreateIn, EntryOut, InHeader, LinkIn, MkdirIn, MknodIn, RenameIn, opcode,
};
use super::answer::{Answer, AnswerResult, empty_reply, opens_for_writing};
use super::nodes::{key_of, open_path, with_stat};
use super::removal::remove_directory;
use super::{Directory, Job, Node};
use crate::store::files::{Attributes, link_to};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, RenameFlags, Stat};
use rustix::io::Errno;
use rustix::thread::{capabilities, set_capabilities};
use std::cell::Cell;
use std::ffi::CStr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use zerocopy::{FromZeros, IntoBytes};

const MODE_BITS: u32 = 0o7777;

thread_local! {
    static UMASK: Cell<Option<u32>> = const { Cell::new(None) };
}

/// Sets the umask of this thread, which must not share it with other threads.
fn set_umask(umask: u32) {
    UMASK.with(|current| {
        if current.get() != Some(umask) {
            rustix::process::umask(Mode::from_raw_mode(umask & 0o777));
            current.set(Some(umask));
        }
    });
}

fn mode_of(mode: u32) -> Mode {
    Mode::from_raw_mode(mode & MODE_BITS)
}

/// User and group as which this thread creates files, with the capabilities of root, until it is
/// dropped.
struct ActingUser;

impl ActingUser {
    fn new(uid: u32, gid: u32) -> Result<Self, Errno> {
        let rights = capabilities(None)?;
        // SAFETY: the call changes only the group with which this thread accesses files.
        unsafe { libc::setfsgid(gid) };
        // SAFETY: the call changes only the user with which this thread accesses files.
        unsafe { libc::setfsuid(uid) };
        let acting = ActingUser;
        // SAFETY: no user has this number, so the call only returns the current user.
        let user = unsafe { libc::setfsuid(u32::MAX) };
        // SAFETY: as above, for the group.
        let group = unsafe { libc::setfsgid(u32::MAX) };
        if (user.cast_unsigned(), group.cast_unsigned()) != (uid, gid) {
            return Err(Errno::PERM);
        }
        // With the user, the kernel has removed the capabilities for files from this thread;
        // restore them, since the kernel has already checked the permissions of the user.
        set_capabilities(None, rights)?;
        Ok(acting)
    }
}

impl Drop for ActingUser {
    fn drop(&mut self) {
        let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
        // SAFETY: the call restores the user with which this thread accesses files.
        unsafe { libc::setfsuid(uid.as_raw()) };
        // SAFETY: as above, for the group.
        unsafe { libc::setfsgid(gid.as_raw()) };
    }
}

impl Directory {
    pub(super) fn lookup(&self, header: &InHeader, body: &[u8]) -> AnswerResult {
        let parent = self.node(header.nodeid)?;
        self.descriptor_limit.check_room(self.nodes.len())?;
        match self.look_up(&parent, abi::parse_name(body)?) {
            Ok((node, attributes)) => Ok(self.reply_entry(&node, &attributes)),
            // The kernel may cache the absence of a name for the same time.
            Err(Errno::NOENT) if !self.ttl(&parent).is_zero() => {
                let ttl = self.ttl(&parent);
                let mut entry = EntryOut::new_zeroed();
                (entry.entry_valid, entry.entry_valid_ns) = (ttl.as_secs(), ttl.subsec_nanos());
                Ok(entry.as_bytes().to_vec().into())
            }
            Err(errno) => Err(errno),
        }
    }

    /// Looks a name up. The node counts as looked up until the kernel has forgotten it as often. A
    /// directory that another cache has claimed is refused each time: a rename may bring it here at
    /// any time.
    pub(super) fn look_up(
        &self,
        parent: &Node,
        name: &CStr,
    ) -> Result<(Arc<Node>, Attributes), Errno> {
        let (path, stat) = self.nodes.open_by_name(parent, name)?;
        if FileType::from_raw_mode(stat.st_mode) == FileType::Directory
            && let Some(holder) = self.claim().other_holder(stat.st_dev, stat.st_ino)
        {
            let directory = rustix::fs::readlink(link_to(&path), Vec::new()).unwrap_or_default();
            tracing::warn!(
                %holder, ?directory,
                "refused to look up a directory: another cache has its data"
            );
            return Err(Errno::BUSY);
        }
        self.nodes.get_or_insert(path, stat)
    }

    fn reply_entry(&self, node: &Node, attributes: &Attributes) -> Answer {
        self.entry(node, attributes).as_bytes().to_vec().into()
    }

    /// Creates a file or directory as the requesting user.
    ///
    /// Changing the owner afterwards would be unsafe: another process that may change the directory
    /// in SOURCE could replace the file before that, and only SOURCE's file system knows whether
    /// the group is that of the user or that of the directory.
    fn as_user<T>(
        &self,
        header: &InHeader,
        make: impl FnOnce() -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        // A process of another user than root can only create its own files.
        if !self.is_root() || (header.uid, header.gid) == (self.uid, self.gid) {
            return make();
        }
        let _user = ActingUser::new(header.uid, header.gid)?;
        make()
    }

    /// Creates a file or directory under a name as the requesting user, and looks it up.
    fn create_as_user(
        &self,
        header: &InHeader,
        parent: &Node,
        name: &CStr,
        make: impl FnOnce() -> Result<(), Errno>,
    ) -> AnswerResult {
        self.as_user(header, make)?;
        let (node, attributes) = self.look_up(parent, name)?;
        Ok(self.reply_entry(&node, &attributes))
    }

    pub(super) fn mknod(&self, header: &InHeader, body: &[u8]) -> AnswerResult {
        let (args, name) = abi::parse_with_name::<MknodIn>(body)?;
        let parent = self.node(header.nodeid)?;
        set_umask(args.umask);
        let kind = FileType::from_raw_mode(args.mode);
        let device = u64::from(args.rdev);
        self.create_as_user(header, &parent, name, || {
            rustix::fs::mknodat(parent.file.path(), name, kind, mode_of(args.mode), device)
        })
    }

    pub(super) fn mkdir(&self, header: &InHeader, body: &[u8]) -> AnswerResult {
        let (args, name) = abi::parse_with_name::<MkdirIn>(body)?;
        let parent = self.node(header.nodeid)?;
        set_umask(args.umask);
        self.create_as_user(header, &parent, name, || {
            rustix::fs::mkdirat(parent.file.path(), name, mode_of(args.mode))
        })
    }

    pub(super) fn symlink(&self, header: &InHeader, body: &[u8]) -> AnswerResult {
        let parent = self.node(header.nodeid)?;
        let (name, target) = abi::parse_two_names(body)?;
        self.create_as_user(header, &parent, name, || {
            rustix::fs::symlinkat(target, parent.file.path(), name)
        })
    }

    pub(super) fn link(&self, header: &InHeader, body: &[u8]) -> AnswerResult {
        let (args, name) = abi::parse_with_name::<LinkIn>(body)?;
        let parent = self.node(header.nodeid)?;
        let node = self.node(args.oldnodeid)?;
        let follow = AtFlags::SYMLINK_FOLLOW;
        rustix::fs::linkat(rustix::fs::CWD, node.file.link(), parent.file.path(), name, follow)?;
        if self.is_remote
            && let Ok((path, stat)) = self.nodes.open_by_name(&parent, name)
            && key_of(&stat) == node.key
        {
            // The name through which a descriptor was opened can only be removed when it is closed
            // (see `removal.rs`). The new name is likely to exist longer than the old one.
            node.file.set_path(&path);
        }
        let (node, attributes) = self.look_up(&parent, name)?;
        Ok(self.reply_entry(&node, &attributes))
    }

    pub(super) fn readlink(&self, header: &InHeader) -> AnswerResult {
        let node = self.node(header.nodeid)?;
        let target = rustix::fs::readlinkat(node.file.path(), "", Vec::new())?;
        Ok(target.into_bytes().into())
    }

    pub(super) fn unlink(&self, header: &InHeader, body: &[u8], directory: bool) -> AnswerResult {
        let parent = self.node(header.nodeid)?;
        let name = abi::parse_name(body)?;
        if directory {
            let removed = remove_directory(&parent, name);
            // Removed files in it may have hidden names until the kernel and the cache close them.
            let waits = self.is_remote && removed == Err(Errno::NOTEMPTY);
            return if waits {
                Ok(Answer::BlockingWorker)
            } else {
                removed.map(|()| empty_reply())
            };
        }
        let node = self.nodes.known_by_name(&parent, name).ok().flatten();
        if let Some(node) = node.as_ref().filter(|_| self.is_remote) {
            // The SMB client hides a removed file that is open, as the cache may have it.
            node.file.rest();
        }
        rustix::fs::unlinkat(parent.file.path(), name, AtFlags::empty())?;
        // Programs may still read its times through other names.
        if let Some(node) = node.filter(|node| node.file.was_written()) {
            node.file.take_ctime();
        }
        Ok(empty_reply())
    }

    pub(super) fn create(&self, header: &InHeader, body: &[u8]) -> AnswerResult {
        let (args, name) = abi::parse_with_name::<CreateIn>(body)?;
        let parent = self.node(header.nodeid)?;
        if opens_for_writing(args.flags) {
            let rules = &self.nodes.rules;
            let section = rules.section_of_name(&parent.file.link(), name.to_bytes());
            self.sections[section].check_writable()?;
        }
        let flags = libc::c_int::try_from(args.flags).unwrap_or(0);
        // A file that exists belongs to its owner. The kernel then looks the name up again and
        // opens the file, if the user may.
        let open_flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR;
        let file = self.as_user(header, || create_file(&parent, name, open_flags, &args));
        let file = file.map_err(|errno| match errno {
            Errno::EXIST if flags & libc::O_EXCL == 0 => Errno::STALE,
            errno => errno,
        })?;
        let path_and_stat = path_of_new(&parent, name, &file)?;
        self.reply_created(header, path_and_stat, file, args.flags)
    }

    pub(super) fn tmpfile(&self, header: &InHeader, body: &[u8]) -> AnswerResult {
        let args: CreateIn = abi::head_of(body);
        let parent = self.node(header.nodeid)?;
        let mut open_flags = OFlags::TMPFILE | OFlags::RDWR;
        let flags = libc::c_int::try_from(args.flags).unwrap_or(0);
        open_flags.set(OFlags::EXCL, flags & libc::O_EXCL != 0);
        let file = self.as_user(header, || create_file(&parent, c".", open_flags, &args))?;
        self.reply_created(header, reopen_path(&file)?, file, args.flags)
    }

    /// Returns the reply for a file that was created and opened in one request.
    fn reply_created(
        &self,
        header: &InHeader,
        (path, stat): (OwnedFd, Stat),
        file: OwnedFd,
        flags: u32,
    ) -> AnswerResult {
        let (node, attributes) = self.nodes.get_or_insert(path, stat)?;
        // Another cache can have a new file only under a second name.
        if attributes.stat.st_nlink > 1
            && let Err(refused) = self.check_unclaimed(&node, false)
        {
            // Of a node that no reply names the kernel knows nothing.
            self.forget(node.id, 1);
            return Err(refused);
        }
        // A new file has no capabilities.
        if opens_for_writing(flags) {
            node.file.record_writer(header.uid);
        }
        node.file.give(file);
        node.file.opened();
        // It may be a node that existed before.
        if self.section(&node.file).options.pin {
            self.pool.send(Job::Pin(Arc::clone(&node)));
        }
        if node.file.is_stale() {
            node.file.set_anew();
        }
        let mut bytes = self.entry(&node, &attributes).as_bytes().to_vec();
        bytes.extend(self.open_out(&node, opens_for_writing(flags)));
        Ok(bytes.into())
    }

    pub(super) fn rename(&self, header: &InHeader, body: &[u8]) -> AnswerResult {
        let renaming = RenameRequest::parse(self, header, body)?;
        let (file, moving) = renaming.files(self)?;
        if file.is_some_and(|node| node.file.was_written()) || !moving.is_empty() {
            return Ok(Answer::BlockingWorker);
        }
        renaming.perform()?;
        Ok(empty_reply())
    }
}

/// Creates a file with the umask of the requesting process.
fn create_file(
    parent: &Node,
    name: &CStr,
    open_flags: OFlags,
    args: &CreateIn,
) -> Result<OwnedFd, Errno> {
    set_umask(args.umask);
    let open_flags = open_flags | OFlags::CLOEXEC;
    rustix::fs::openat(parent.file.path(), name, open_flags, mode_of(args.mode))
}

/// Returns an `O_PATH` descriptor of an open file, obtained without a name, and its stat(2) data.
fn reopen_path(file: &OwnedFd) -> Result<(OwnedFd, Stat), Errno> {
    let open_flags = OFlags::PATH | OFlags::CLOEXEC;
    with_stat(rustix::fs::open(link_to(file), open_flags, Mode::empty())?)
}

/// Returns the same for a file that was just opened through a name. Uses the name, which is faster,
/// unless it leads to another file by now.
fn path_of_new(parent: &Node, name: &CStr, file: &OwnedFd) -> Result<(OwnedFd, Stat), Errno> {
    let of_file = rustix::fs::fstat(file)?;
    match open_path(parent, name).and_then(with_stat) {
        Ok((path, stat)) if key_of(&stat) == key_of(&of_file) => Ok((path, stat)),
        _ => reopen_path(file),
    }
}

/// The file to rename, if it is one, and the files that change their section.
type RenamedFiles = (Option<Arc<Node>>, Vec<Arc<Node>>);

#[derive(Debug)]
pub(super) struct RenameRequest<'a> {
    from: Arc<Node>,
    to: Arc<Node>,
    old: &'a CStr,
    new: &'a CStr,
    flags: RenameFlags,
}

impl<'a> RenameRequest<'a> {
    pub(super) fn parse(
        directory: &Directory,
        header: &InHeader,
        body: &'a [u8],
    ) -> Result<Self, Errno> {
        let args: RenameIn = abi::head_of(body);
        let has_flags = header.opcode == opcode::RENAME2;
        let head = if has_flags { size_of::<RenameIn>() } else { size_of::<u64>() };
        let (old, new) = abi::parse_two_names(body.get(head..).unwrap_or_default())?;
        let flags = if has_flags { args.flags } else { 0 };
        Ok(RenameRequest {
            from: directory.node(header.nodeid)?,
            to: directory.node(args.newdir)?,
            old,
            new,
            flags: RenameFlags::from_bits_retain(flags),
        })
    }

    /// Returns the files that a rename affects in the cache, including the one that gets the old
    /// name in an exchange.
    pub(super) fn files(&self, directory: &Directory) -> Result<RenamedFiles, Errno> {
        let (nodes, rules) = (&directory.nodes, &directory.nodes.rules);
        let is_moved = |node: &Arc<Node>, to: &Node, name: &CStr| {
            let section = rules.section_of_name(&to.file.link(), name.to_bytes());
            // A file whose move is pending belongs to the section of its old name.
            node.file.moves() || section != node.file.section()
        };
        let is_file = |node: &Arc<Node>| node.is_regular();
        let file = nodes.known_by_name(&self.from, self.old)?.filter(is_file);
        let exchanges = self.flags.contains(RenameFlags::EXCHANGE);
        let other = if exchanges { nodes.known_by_name(&self.to, self.new)? } else { None };
        let moved = file.clone().filter(|node| is_moved(node, &self.to, self.new));
        let other = other.filter(|node| is_file(node) && is_moved(node, &self.from, self.old));
        Ok((file, moved.into_iter().chain(other).collect()))
    }

    pub(super) fn replaces_target(&self) -> bool {
        let flags = AtFlags::SYMLINK_NOFOLLOW;
        rustix::fs::statat(self.to.file.path(), self.new, flags).is_ok()
    }

    pub(super) fn perform(&self) -> Result<(), Errno> {
        let (from, to) = (self.from.file.path(), self.to.file.path());
        rustix::fs::renameat_with(from, self.old, to, self.new, self.flags)
    }
}
