//! Requests about attributes: stat(2) and changes, extended attributes, and the space of the
//! directory's file system.

use super::super::abi::{
    self, AccessIn, GetxattrIn, InHeader, SetattrIn, SetxattrIn, StatfsOut, StatxOut, StatxTime,
    attribute, opcode,
};
use super::answer::{Answer, AnswerResult, empty_reply};
use super::data::is_member;
use super::generation::statx_with;
use super::{Directory, Node};
use crate::store::files::{Attributes, is_capabilities};
use rustix::fs::{
    Access, AtFlags, Gid, Mode, RawMode, StatxFlags, Timespec, Timestamps, Uid, XattrFlags,
};
use rustix::io::Errno;
use std::ffi::CStr;
use zerocopy::IntoBytes;

/// Maximum length of a value or list of extended attributes in Linux.
const XATTR_BYTES_MAX: usize = 64 << 10;
/// The extended attributes that hold the ACL of a file or directory, and the default ACL of a
/// directory.
const ACL_NAME: &CStr = c"system.posix_acl_access";
const DEFAULT_ACL_NAME: &CStr = c"system.posix_acl_default";
const SETGID: RawMode = 0o2000;

impl Directory {
    pub(super) fn stat(&self, header: &InHeader) -> AnswerResult {
        let node = self.node(header.nodeid)?;
        let attributes = node.file.attributes()?;
        if node.is_regular() && node.file.must_be_renewed() {
            return Ok(Answer::BlockingWorker);
        }
        Ok(self.reply_with(header, &node, &attributes).into())
    }

    pub(super) fn reply_with(
        &self,
        header: &InHeader,
        node: &Node,
        attributes: &Attributes,
    ) -> Vec<u8> {
        if header.opcode == opcode::STATX {
            return self.statx_out(node, attributes);
        }
        self.attr_out(node, attributes)
    }

    /// Answers access(2) and chdir(2), where the kernel does not check permissions.
    pub(super) fn access(&self, header: &InHeader, body: &[u8]) -> AnswerResult {
        let args: AccessIn = abi::head_of(body);
        let node = self.node(header.nodeid)?;
        let rights = Access::from_bits_retain(args.mask);
        rustix::fs::accessat(rustix::fs::CWD, node.file.link(), rights, AtFlags::EACCESS)?;
        Ok(empty_reply())
    }

    fn statx_out(&self, node: &Node, attributes: &Attributes) -> Vec<u8> {
        let (ttl, attr) = (self.attr_ttl(node, attributes), self.attr(attributes));
        let with_btime = statx_with(node.file.path(), AtFlags::empty(), StatxFlags::BTIME);
        let btime_flag = if with_btime.is_some() { StatxFlags::BTIME } else { StatxFlags::empty() };
        let time =
            |seconds: u64, nanos| StatxTime { seconds: seconds.cast_signed(), nanos, reserved: 0 };
        let btime = with_btime.map(|with_btime| with_btime.stx_btime);
        let btime =
            btime.map(|at| StatxTime { seconds: at.tv_sec, nanos: at.tv_nsec, reserved: 0 });
        let device = attributes.stat.st_rdev;
        let statx = StatxOut {
            valid: ttl.as_secs(),
            valid_ns: ttl.subsec_nanos(),
            mask: (StatxFlags::BASIC_STATS | btime_flag).bits(),
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
            ..StatxOut::default()
        };
        statx.as_bytes().to_vec()
    }

    /// Changes attributes, unless that affects cached data.
    pub(super) fn setattr(&self, header: &InHeader, body: &[u8]) -> AnswerResult {
        let args: SetattrIn = abi::head_of(body);
        let node = self.node(header.nodeid)?;
        if args.valid & attribute::SIZE != 0 && node.file.has_segments() {
            return Ok(Answer::BlockingWorker);
        }
        let mut is_cached = false;
        let changed = self.change(header, &node, &args, |size| {
            let _change_guard = node.file.change();
            // A concurrent read that fills the cache would keep the truncated data.
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
        args: &SetattrIn,
        resize: impl FnOnce(u64) -> Result<(), Errno>,
    ) -> AnswerResult {
        let sets = |bit: u32| args.valid & bit != 0;
        let file = &node.file;
        // Read before the change, so that changes by other processes are not mistaken for this one.
        file.attributes()?;
        if sets(attribute::UID) || sets(attribute::GID) {
            let uid = sets(attribute::UID).then(|| Uid::from_raw(args.uid));
            let gid = sets(attribute::GID).then(|| Gid::from_raw(args.gid));
            // For SOURCE's file system, root changes the owner, and root keeps setgid without the
            // group's execute permission.
            if header.uid != 0 {
                file.take_rights(true, |group| is_member(header, group))?;
            }
            rustix::fs::chownat(file.path(), "", uid, gid, AtFlags::EMPTY_PATH)?;
        }
        if sets(attribute::MODE) {
            if node.is_link() {
                return Err(Errno::OPNOTSUPP);
            }
            rustix::fs::chmod(file.link(), Mode::from_raw_mode(args.mode & 0o7777))?;
        }
        if sets(attribute::SIZE) {
            if !node.is_regular() {
                return Err(Errno::INVAL);
            }
            self.section(file).check_writable()?;
            self.check_unclaimed(node, node.has_one_name())?;
            // The kernel has already cleared them, except setgid on a file without the group's
            // execute permission.
            file.take_rights(header.uid != 0, |group| is_member(header, group))?;
            resize(args.size)?;
        }
        let times = [
            (attribute::ATIME, attribute::ATIME_NOW, args.times[0], args.times_ns[0]),
            (attribute::MTIME, attribute::MTIME_NOW, args.times[1], args.times_ns[1]),
        ];
        let [atime, mtime] = times.map(|(set, now, seconds, nanos)| {
            let tv_nsec = match (sets(set), sets(now)) {
                (false, _) => rustix::fs::UTIME_OMIT,
                (true, true) => rustix::fs::UTIME_NOW,
                (true, false) => i64::from(nanos),
            };
            Timespec { tv_sec: seconds.cast_signed(), tv_nsec }
        });
        if sets(attribute::ATIME) || sets(attribute::MTIME) {
            let times = Timestamps { last_access: atime, last_modification: mtime };
            rustix::fs::utimensat(file.path(), "", &times, AtFlags::EMPTY_PATH)?;
            if sets(attribute::MTIME) {
                file.take_times();
            }
        }
        Ok(self.attr_out(node, &file.attributes()?).into())
    }

    pub(super) fn statfs(&self, header: &InHeader) -> AnswerResult {
        let node = self.node(header.nodeid)?;
        let stat = rustix::fs::fstatvfs(node.file.path())?;
        let small = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
        let statfs = StatfsOut {
            counts: [stat.f_blocks, stat.f_bfree, stat.f_bavail, stat.f_files, stat.f_ffree],
            bsize: small(stat.f_bsize),
            namelen: small(stat.f_namemax),
            frsize: small(stat.f_frsize),
            ..StatfsOut::default()
        };
        Ok(statfs.as_bytes().to_vec().into())
    }

    pub(super) fn setxattr(&self, header: &InHeader, body: &[u8]) -> AnswerResult {
        let args: SetxattrIn = abi::head_of(body);
        let node = self.node(header.nodeid)?;
        let rest = abi::bytes_after::<SetxattrIn>(body);
        let name = abi::parse_name(rest)?;
        let value = rest.get(name.count_bytes() + 1..).unwrap_or_default();
        let value = value.get(..args.size as usize).ok_or(Errno::INVAL)?;
        let flags = XattrFlags::from_bits_retain(args.flags);
        rustix::fs::setxattr(node.file.link(), name, value, flags)?;
        node.file.note_attribute(name);
        if name == ACL_NAME {
            clear_setgid(header, &node)?;
        }
        Ok(empty_reply())
    }

    pub(super) fn getxattr(&self, header: &InHeader, body: &[u8]) -> AnswerResult {
        let (args, name) = abi::parse_with_name::<GetxattrIn>(body)?;
        let node = self.node(header.nodeid)?;
        let read = |buffer: &mut [u8]| rustix::fs::getxattr(node.file.link(), name, buffer);
        let found = reply_sized(args.size, read).map_err(|errno| match errno {
            // Without an ACL, the kernel checks permissions by the mode (fuse_get_acl in
            // fs/fuse/acl.c); but the call fails on file systems without ACLs, such as NFS 4.
            Errno::OPNOTSUPP if [ACL_NAME, DEFAULT_ACL_NAME].contains(&name) => Errno::NODATA,
            errno => errno,
        })?;
        node.file.note_attribute(name);
        Ok(found)
    }

    pub(super) fn listxattr(&self, header: &InHeader, body: &[u8]) -> AnswerResult {
        let args: GetxattrIn = abi::head_of(body);
        let node = self.node(header.nodeid)?;
        let is_root = header.uid == 0;
        reply_sized(args.size, |buffer| {
            let mut names = vec![0; XATTR_BYTES_MAX];
            let len = rustix::fs::listxattr(node.file.link(), &mut *names)?;
            let shown = names[..len].split_inclusive(|&byte| byte == 0);
            // The kernel shows trusted.* names only to administrators.
            let shown = shown.filter(|name| is_root || !name.starts_with(b"trusted."));
            let shown = shown.collect::<Vec<_>>().concat();
            let target = buffer.get_mut(..shown.len()).ok_or(Errno::RANGE)?;
            target.copy_from_slice(&shown);
            Ok(shown.len())
        })
    }

    pub(super) fn removexattr(&self, header: &InHeader, body: &[u8]) -> AnswerResult {
        let node = self.node(header.nodeid)?;
        node.file.remove_attribute(abi::parse_name(body)?)?;
        Ok(empty_reply())
    }
}

pub(super) fn sets_capabilities(body: &[u8]) -> bool {
    abi::parse_name(abi::bytes_after::<SetxattrIn>(body)).is_ok_and(is_capabilities)
}

/// Clears setgid of a file or directory whose ACL was set, unless the user is root or a member of
/// the group. SOURCE's file system would do so, but every request comes from root.
fn clear_setgid(header: &InHeader, node: &Node) -> Result<(), Errno> {
    let stat = rustix::fs::fstat(node.file.path())?;
    if stat.st_mode & SETGID == 0 || header.uid == 0 || is_member(header, stat.st_gid) {
        return Ok(());
    }
    rustix::fs::chmod(node.file.link(), Mode::from_raw_mode(stat.st_mode & 0o7777 & !SETGID))
}

/// Returns the result of `read`, or only its length if `size` is 0.
fn reply_sized(size: u32, read: impl FnOnce(&mut [u8]) -> Result<usize, Errno>) -> AnswerResult {
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
