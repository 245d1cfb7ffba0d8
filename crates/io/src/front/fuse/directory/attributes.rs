//! Requests on attributes: what stat(2) says and what changes it, extended ones, and the room that
//! the directory's file system has.

use super::super::abi::{
    self, AccessIn, GetxattrIn, InHeader, SetattrIn, SetxattrIn, StatfsOut, StatxOut, StatxTime,
    attribute, opcode,
};
use super::data::is_member;
use super::requests::{Answer, Answered, behind, done, name};
use super::{Directory, Node};
use crate::store::files::{Attributes, is_capabilities};
use rustix::fs::{
    Access, AtFlags, Gid, Mode, RawMode, StatxFlags, Timespec, Timestamps, Uid, XattrFlags,
};
use rustix::io::Errno;
use std::ffi::CStr;
use zerocopy::{FromZeros, IntoBytes};

/// The longest value or list of extended attributes that Linux has.
const XATTR_BYTES_MAX: usize = 64 << 10;
/// The extended attributes that hold the ACL of a file or directory, and that of what is made in a
/// directory.
const ACL_NAME: &CStr = c"system.posix_acl_access";
const DEFAULT_ACL_NAME: &CStr = c"system.posix_acl_default";
const SETGID: RawMode = 0o2000;

impl Directory {
    /// What stat(2) or statx(2) shall say.
    pub(super) fn stat(&self, header: &InHeader) -> Answered {
        let node = self.node(header.nodeid)?;
        let attributes = node.file.attributes()?;
        if node.is_regular() && node.file.must_be_renewed() {
            return Ok(Answer::BlockingWorker);
        }
        Ok(self.reply_with(header, &node, &attributes).into())
    }

    /// The answer about attributes that are right.
    pub(super) fn reply_with(&self, header: &InHeader, node: &Node, of: &Attributes) -> Vec<u8> {
        if header.opcode == opcode::STATX {
            return self.statx_out(node, of);
        }
        self.attr_out(node, of)
    }

    /// What access(2) and chdir(2) ask, where the kernel does not check it.
    pub(super) fn access(&self, header: &InHeader, body: &[u8]) -> Answered {
        let asked: AccessIn = abi::head_of(body);
        let node = self.node(header.nodeid)?;
        let rights = Access::from_bits_retain(asked.mask);
        rustix::fs::accessat(rustix::fs::CWD, node.file.link(), rights, AtFlags::EACCESS)?;
        Ok(done())
    }

    fn statx_out(&self, node: &Node, of: &Attributes) -> Vec<u8> {
        let (ttl, attr) = (self.attr_ttl(node, of), self.attr(of));
        let made = rustix::fs::statx(node.file.path(), "", AtFlags::EMPTY_PATH, StatxFlags::BTIME);
        let made = made.ok().filter(|made| made.stx_mask & StatxFlags::BTIME.bits() != 0);
        let born = if made.is_some() { StatxFlags::BTIME } else { StatxFlags::empty() };
        let time =
            |seconds: u64, nanos| StatxTime { seconds: seconds.cast_signed(), nanos, reserved: 0 };
        let btime = made.map(|made| made.stx_btime);
        let btime =
            btime.map(|at| StatxTime { seconds: at.tv_sec, nanos: at.tv_nsec, reserved: 0 });
        let device = of.stat.st_rdev;
        let statx = StatxOut {
            valid: ttl.as_secs(),
            valid_ns: ttl.subsec_nanos(),
            mask: (StatxFlags::BASIC_STATS | born).bits(),
            blksize: attr.blksize,
            nlink: attr.nlink,
            uid: attr.uid,
            gid: attr.gid,
            mode: u16::try_from(attr.mode & 0xffff).expect("16 bits"),
            ino: attr.ino,
            size: attr.size,
            blocks: attr.blocks,
            atime: time(attr.atime, attr.atime_ns),
            btime: btime.unwrap_or_default(),
            ctime: time(attr.ctime, attr.ctime_ns),
            mtime: time(attr.mtime, attr.mtime_ns),
            rdev: [rustix::fs::major(device), rustix::fs::minor(device)],
            ..StatxOut::new_zeroed()
        };
        statx.as_bytes().to_vec()
    }

    /// Changes attributes, unless data in the cache is concerned.
    pub(super) fn setattr(&self, header: &InHeader, body: &[u8]) -> Answered {
        let asked: SetattrIn = abi::head_of(body);
        let node = self.node(header.nodeid)?;
        if asked.valid & attribute::SIZE != 0 && node.file.has_segments() {
            return Ok(Answer::BlockingWorker);
        }
        let mut is_cached = false;
        let changed = self.change(header, &node, &asked, |size| {
            let _alone = node.file.change();
            // A read that fills the cache meanwhile would keep what is cut off.
            let file = node.file.buffered(true)?;
            let truncate = || rustix::fs::ftruncate(&file, size);
            let Some(truncated) = node.file.without_segments(truncate) else {
                is_cached = true;
                return Err(Errno::AGAIN);
            };
            truncated?;
            node.file.set_size(size);
            node.file.take_times();
            node.file.rest();
            Ok(())
        });
        if is_cached { Ok(Answer::BlockingWorker) } else { changed }
    }

    /// Changes attributes; the size by `resize`.
    pub(super) fn change(
        &self,
        header: &InHeader,
        node: &Node,
        asked: &SetattrIn,
        resize: impl FnOnce(u64) -> Result<(), Errno>,
    ) -> Answered {
        let wants = |what: u32| asked.valid & what != 0;
        let file = &node.file;
        // Looked at before, so that what somebody else has changed is not taken for our doing.
        file.attributes()?;
        if wants(attribute::UID) || wants(attribute::GID) {
            let uid = wants(attribute::UID).then(|| Uid::from_raw(asked.uid));
            let gid = wants(attribute::GID).then(|| Gid::from_raw(asked.gid));
            // SOURCE's file system knows only that root changes the owner, who keeps setgid without
            // the right of the group to execute.
            if header.uid != 0 {
                file.take_rights(true, |group| is_member(header, group))?;
            }
            rustix::fs::chownat(file.path(), "", uid, gid, AtFlags::EMPTY_PATH)?;
        }
        if wants(attribute::MODE) {
            if node.is_link() {
                return Err(Errno::OPNOTSUPP);
            }
            rustix::fs::chmod(file.link(), Mode::from_raw_mode(asked.mode & 0o7777))?;
        }
        if wants(attribute::SIZE) {
            if !node.is_regular() {
                return Err(Errno::INVAL);
            }
            self.section(file).check_writable()?;
            self.check_unclaimed(node, node.has_one_name())?;
            // The kernel has already cleared them, except setgid on a file that its group may not
            // execute.
            file.take_rights(header.uid != 0, |group| is_member(header, group))?;
            resize(asked.size)?;
        }
        let times = [
            (attribute::ATIME, attribute::ATIME_NOW, asked.times[0], asked.times_ns[0]),
            (attribute::MTIME, attribute::MTIME_NOW, asked.times[1], asked.times_ns[1]),
        ];
        let [atime, mtime] = times.map(|(set, now, seconds, nanos)| {
            let tv_nsec = match (wants(set), wants(now)) {
                (false, _) => rustix::fs::UTIME_OMIT,
                (true, true) => rustix::fs::UTIME_NOW,
                (true, false) => i64::from(nanos),
            };
            Timespec { tv_sec: seconds.cast_signed(), tv_nsec }
        });
        if wants(attribute::ATIME) || wants(attribute::MTIME) {
            let times = Timestamps { last_access: atime, last_modification: mtime };
            rustix::fs::utimensat(file.path(), "", &times, AtFlags::EMPTY_PATH)?;
            if wants(attribute::MTIME) {
                file.take_times();
            }
        }
        Ok(self.attr_out(node, &file.attributes()?).into())
    }

    pub(super) fn statfs(&self, header: &InHeader) -> Answered {
        let node = self.node(header.nodeid)?;
        let stat = rustix::fs::fstatvfs(node.file.path())?;
        let small = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
        let statfs = StatfsOut {
            counts: [stat.f_blocks, stat.f_bfree, stat.f_bavail, stat.f_files, stat.f_ffree],
            bsize: small(stat.f_bsize),
            namelen: small(stat.f_namemax),
            frsize: small(stat.f_frsize),
            padding: 0,
            spare: [0; 6],
        };
        Ok(statfs.as_bytes().to_vec().into())
    }

    pub(super) fn setxattr(&self, header: &InHeader, body: &[u8]) -> Answered {
        let asked: SetxattrIn = abi::head_of(body);
        let node = self.node(header.nodeid)?;
        let rest = behind::<SetxattrIn>(body);
        let name = name(rest)?;
        let value = rest.get(name.count_bytes() + 1..).unwrap_or_default();
        let value = value.get(..asked.size as usize).ok_or(Errno::INVAL)?;
        let flags = XattrFlags::from_bits_retain(asked.flags);
        rustix::fs::setxattr(node.file.link(), name, value, flags)?;
        node.file.note_attribute(name);
        if name == ACL_NAME {
            take_setgid(header, &node)?;
        }
        Ok(done())
    }

    pub(super) fn getxattr(&self, header: &InHeader, body: &[u8]) -> Answered {
        let asked: GetxattrIn = abi::head_of(body);
        let node = self.node(header.nodeid)?;
        let name = name(behind::<GetxattrIn>(body))?;
        let read = |buffer: &mut [u8]| rustix::fs::getxattr(node.file.link(), name, buffer);
        let found = sized(asked.size, read).map_err(|errno| match errno {
            // The kernel checks rights by the mode where there is no ACL (fuse_get_acl in
            // fs/fuse/acl.c), and fails where the file system has no ACLs, such as NFS 4.
            Errno::OPNOTSUPP if [ACL_NAME, DEFAULT_ACL_NAME].contains(&name) => Errno::NODATA,
            errno => errno,
        })?;
        node.file.note_attribute(name);
        Ok(found)
    }

    pub(super) fn listxattr(&self, header: &InHeader, body: &[u8]) -> Answered {
        let asked: GetxattrIn = abi::head_of(body);
        let node = self.node(header.nodeid)?;
        let is_root = header.uid == 0;
        sized(asked.size, |buffer| {
            let mut names = vec![0; XATTR_BYTES_MAX];
            let len = rustix::fs::listxattr(node.file.link(), &mut *names)?;
            let shown = names[..len].split_inclusive(|&byte| byte == 0);
            // The kernel shows names of the trusted class only to administrators.
            let shown = shown.filter(|name| is_root || !name.starts_with(b"trusted."));
            let shown = shown.collect::<Vec<_>>().concat();
            let room = buffer.get_mut(..shown.len()).ok_or(Errno::RANGE)?;
            room.copy_from_slice(&shown);
            Ok(shown.len())
        })
    }

    pub(super) fn removexattr(&self, header: &InHeader, body: &[u8]) -> Answered {
        let node = self.node(header.nodeid)?;
        node.file.remove_attribute(name(body)?)?;
        Ok(done())
    }
}

/// Returns whether a request sets capabilities.
pub(super) fn sets_capabilities(body: &[u8]) -> bool {
    name(behind::<SetxattrIn>(body)).is_ok_and(is_capabilities)
}

/// Takes setgid from a file or directory whose ACL was set, as SOURCE's file system does unless the
/// user is root or a member of the group: to it, every user is root.
fn take_setgid(header: &InHeader, node: &Node) -> Result<(), Errno> {
    let stat = rustix::fs::fstat(node.file.path())?;
    if stat.st_mode & SETGID == 0 || header.uid == 0 || is_member(header, stat.st_gid) {
        return Ok(());
    }
    rustix::fs::chmod(node.file.link(), Mode::from_raw_mode(stat.st_mode & 0o7777 & !SETGID))
}

/// What `read` brings, or how much that is if no room was given.
fn sized(size: u32, read: impl FnOnce(&mut [u8]) -> Result<usize, Errno>) -> Answered {
    let mut buffer =
        vec![0; XATTR_BYTES_MAX.min(if size == 0 { usize::MAX } else { size as usize })];
    let len = read(&mut buffer)?;
    if size > 0 {
        buffer.truncate(len);
        return Ok(buffer.into());
    }
    let size = u32::try_from(len).expect("at most 64 KiB");
    Ok(GetxattrIn { size, padding: 0 }.as_bytes().to_vec().into())
}
