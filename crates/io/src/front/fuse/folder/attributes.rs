//! Requests on attributes: what stat(2) says and what changes it, extended ones, and the room that
//! the folder's file system has.

use super::super::abi::{self, GetxattrIn, InHeader, SetattrIn, SetxattrIn, StatfsOut, attribute};
use super::requests::{Answer, Answered, behind, done, name};
use super::{Folder, Node};
use rustix::fs::{AtFlags, Gid, Mode, Timespec, Timestamps, Uid, XattrFlags};
use rustix::io::Errno;
use zerocopy::IntoBytes;

/// The longest value or list of extended attributes that Linux has.
const XATTR_BYTES_MAX: usize = 64 << 10;

impl Folder {
    pub(super) fn getattr(&self, header: &InHeader) -> Answered {
        let node = self.node(header.nodeid)?;
        Ok(self.attr_out(&node.file.attributes()?).into())
    }

    /// Changes attributes, unless data in the cache is concerned.
    pub(super) fn setattr(&self, header: &InHeader, body: &[u8]) -> Answered {
        let asked: SetattrIn = abi::head_of(body);
        let node = self.node(header.nodeid)?;
        if asked.valid & attribute::SIZE != 0 && node.file.has_segments() {
            return Ok(Answer::Clerk);
        }
        self.change(&node, &asked, |size| {
            let _alone = node.file.change();
            rustix::fs::ftruncate(node.file.buffered(true)?, size)?;
            node.file.set_size(size);
            node.file.take_times();
            node.file.rest();
            Ok(())
        })
    }

    /// Changes attributes; the size by `resize`.
    pub(super) fn change(
        &self,
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
        Ok(self.attr_out(&file.attributes()?).into())
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
        Ok(done())
    }

    pub(super) fn getxattr(&self, header: &InHeader, body: &[u8]) -> Answered {
        let asked: GetxattrIn = abi::head_of(body);
        let node = self.node(header.nodeid)?;
        let name = name(behind::<GetxattrIn>(body))?;
        sized(asked.size, |buffer| rustix::fs::getxattr(node.file.link(), name, buffer))
    }

    pub(super) fn listxattr(&self, header: &InHeader, body: &[u8]) -> Answered {
        let asked: GetxattrIn = abi::head_of(body);
        let node = self.node(header.nodeid)?;
        sized(asked.size, |buffer| rustix::fs::listxattr(node.file.link(), buffer))
    }

    pub(super) fn removexattr(&self, header: &InHeader, body: &[u8]) -> Answered {
        let node = self.node(header.nodeid)?;
        rustix::fs::removexattr(node.file.link(), name(body)?)?;
        Ok(done())
    }
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
