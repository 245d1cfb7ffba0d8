//! Requests of a mounted directory that do not concern data: dispatch, and the layout of the
//! replies.

use super::super::abi::{
    self, Attr, AttrOut, BatchForgetIn, EntryOut, ForgetIn, ForgetOne, InHeader, OpenIn, OpenOut,
    opcode, open_flag,
};
use super::answer::{Answer, AnswerResult, empty_reply, opens_for_writing};
use super::attributes::sets_capabilities;
use super::{Directory, Job, KernelPages, Node};
use crate::claim;
use crate::store::files::Attributes;
use rustix::io::Errno;
use std::sync::Arc;
use std::time::Duration;
use zerocopy::IntoBytes;

/// Returns true if a request can be answered without access to the directory's disk.
pub(crate) fn needs_no_disk(code: u32) -> bool {
    is_release(code) || matches!(code, opcode::GETATTR | opcode::STATX | opcode::ACCESS)
}

/// Returns true if a request only releases something, which is never refused.
pub(crate) fn is_release(code: u32) -> bool {
    matches!(
        code,
        opcode::FORGET
            | opcode::BATCH_FORGET
            | opcode::INTERRUPT
            | opcode::FLUSH
            | opcode::RELEASE
            | opcode::RELEASEDIR
            | opcode::DESTROY
    )
}

impl Directory {
    /// Answers a request, if that does not wait for the cache.
    pub(crate) fn answer(&self, header: &InHeader, body: &[u8]) -> AnswerResult {
        match header.opcode {
            opcode::INTERRUPT => Ok(Answer::None),
            opcode::FORGET => {
                let forget: ForgetIn = abi::head_of(body);
                self.forget(header.nodeid, forget.nlookup);
                Ok(Answer::None)
            }
            opcode::BATCH_FORGET => {
                let head: BatchForgetIn = abi::head_of(body);
                let all =
                    abi::bytes_after::<BatchForgetIn>(body).chunks_exact(size_of::<ForgetOne>());
                for forget_one in all.take(head.count as usize) {
                    let forget_one: ForgetOne = abi::head_of(forget_one);
                    self.forget(forget_one.nodeid, forget_one.nlookup);
                }
                Ok(Answer::None)
            }
            opcode::DESTROY | opcode::RELEASEDIR | opcode::RELEASE => self.release(header, body),
            opcode::LOOKUP => self.lookup(header, body),
            opcode::GETATTR | opcode::STATX => self.stat(header),
            opcode::ACCESS => self.access(header, body),
            opcode::SETATTR => self.setattr(header, body),
            opcode::STATFS => self.statfs(header),
            opcode::OPEN => self.open_file(header, abi::head_of(body)),
            opcode::FLUSH => match self.node(header.nodeid)?.file.take_late() {
                Some(errno) => Err(errno),
                None => Ok(empty_reply()),
            },
            opcode::OPENDIR => self.opendir(header),
            opcode::READDIR => self.readdir(header, &abi::head_of(body), false),
            opcode::READDIRPLUS => self.readdir(header, &abi::head_of(body), true),
            opcode::CREATE => self.create(header, body),
            opcode::TMPFILE => self.tmpfile(header, body),
            opcode::MKNOD => self.mknod(header, body),
            opcode::MKDIR => self.mkdir(header, body),
            opcode::SYMLINK => self.symlink(header, body),
            opcode::LINK => self.link(header, body),
            opcode::READLINK => self.readlink(header),
            opcode::UNLINK => self.unlink(header, body, false),
            opcode::RMDIR => self.unlink(header, body, true),
            opcode::RENAME | opcode::RENAME2 => self.rename(header, body),
            // Dirty data is written first.
            opcode::SETXATTR if sets_capabilities(body) => Ok(Answer::BlockingWorker),
            opcode::SETXATTR => self.setxattr(header, body),
            opcode::GETXATTR => self.getxattr(header, body),
            opcode::LISTXATTR => self.listxattr(header, body),
            opcode::REMOVEXATTR => self.removexattr(header, body),
            // All of these wait for the disk or for the cache.
            opcode::FALLOCATE | opcode::LSEEK | opcode::FSYNCDIR | opcode::SYNCFS => {
                Ok(Answer::BlockingWorker)
            }
            _ => Err(Errno::NOSYS),
        }
    }

    fn release(&self, header: &InHeader, body: &[u8]) -> AnswerResult {
        let closed: abi::ReleaseIn = abi::head_of(body);
        match header.opcode {
            opcode::RELEASEDIR => {
                self.listings.lock().expect("no holder panics").remove(&closed.fh);
            }
            opcode::RELEASE => {
                let node = self.node(header.nodeid)?;
                if self.section(&node.file).options.uncached {
                    node.backing.close(1, &self.passthrough);
                }
                if node.file.closed() {
                    self.last_close(node);
                }
            }
            _ => {}
        }
        Ok(empty_reply())
    }

    /// Handles the last close of a file: its descriptors need not stay open. Root can reopen any
    /// file to write the remaining data; other users may not be able to, so for them it is written
    /// first.
    pub(super) fn last_close(&self, node: Arc<Node>) {
        if node.file.moves() {
            self.pool.send(Job::Relocate(Arc::clone(&node)));
        } else if node.file.was_written() && self.section(&node.file).options.pin {
            self.pool.send(Job::Pin(Arc::clone(&node)));
        }
        if self.is_root() || !node.file.was_written() {
            node.file.close_data();
        } else {
            self.pool.send(Job::Close(node));
        }
    }

    fn open_file(&self, header: &InHeader, args: OpenIn) -> AnswerResult {
        let node = self.node(header.nodeid)?;
        // A check may wait for a server.
        if self.is_unwatched(&node) {
            return Ok(Answer::BlockingWorker);
        }
        // An open checks whether another process has changed the file.
        let has_one_name = node.file.attributes()?.stat.st_nlink < 2;
        if node.file.must_be_renewed() {
            return Ok(Answer::BlockingWorker);
        }
        if node.file.take_stale() {
            node.file.set_anew();
        }
        Ok(self.open_node((&node, has_one_name), header, args.flags)?.into())
    }

    /// Opens a file until the kernel releases it.
    pub(super) fn open_node(
        &self,
        (node, has_one_name): (&Arc<Node>, bool),
        header: &InHeader,
        flags: u32,
    ) -> Result<Vec<u8>, Errno> {
        let writes = opens_for_writing(flags);
        let section = self.section(&node.file);
        if writes {
            section.check_writable()?;
        }
        self.check_unclaimed(node, has_one_name)?;
        // Open the file in the directory now, so that its refusal is reported by open(2) and not
        // later.
        let file = node.file.buffered_anew(writes)?;
        if writes {
            node.file.record_writer_and_capabilities(header.uid, &file);
        }
        node.file.opened();
        if self.section(&node.file).options.pin {
            self.pool.send(Job::Pin(Arc::clone(node)));
        }
        Ok(self.open_out(node, writes))
    }

    /// Refuses a file that another cache has under another name, or has claimed later.
    /// `has_one_name` was read just before.
    pub(super) fn check_unclaimed(&self, node: &Node, has_one_name: bool) -> Result<(), Errno> {
        let (device, inode) = node.key;
        let by_claim = self.claim().other_holder(device, inode).map(|holder| holder.to_string());
        let by_lock = || {
            let refused = node.lock_links(self.options.read_only, has_one_name).err()?;
            Some(claim::lock_holder(&refused))
        };
        let Some(holder) = by_claim.or_else(by_lock) else { return Ok(()) };
        let file = node.file.name();
        tracing::warn!(holder, file, "refused to open a file: another cache has its data");
        Err(Errno::BUSY)
    }

    pub(super) fn open_out(&self, node: &Node, writes: bool) -> Vec<u8> {
        let options = self.section(&node.file).options;
        let backing = options.uncached.then(|| self.register_backing(node)).flatten();
        let mut open_flags = match options.kernel_pages {
            _ if backing.is_some() => open_flag::PASSTHROUGH,
            // Before the kernel writes through its page cache, it clears the privileges of the file
            // itself, and so knows the new mode.
            KernelPages::Off if writes && node.file.gives_rights() => 0,
            KernelPages::Off => open_flag::DIRECT_IO | open_flag::PARALLEL_DIRECT_WRITES,
            // The kernel's pages may be older than a change by another process.
            KernelPages::Keep if !node.file.take_anew() => open_flag::KEEP_CACHE,
            KernelPages::Keep | KernelPages::Open => 0,
        };
        if !writes {
            open_flags |= open_flag::NOFLUSH;
        }
        let backing_id = backing.unwrap_or(0);
        OpenOut { fh: 0, open_flags, backing_id }.as_bytes().to_vec()
    }

    /// Registers a file for passthrough, if possible; returns its backing ID. Writes to a file with
    /// privileges go through this process: the kernel itself would not clear setgid of a file
    /// without the group's execute permission.
    fn register_backing(&self, node: &Node) -> Option<u32> {
        let register = || {
            if node.file.find_rights()? {
                return Err(Errno::PERM);
            }
            self.passthrough.register(node.file.buffered(false)?)
        };
        node.backing.open(&self.passthrough, register)
    }

    pub(super) fn attr(&self, attributes: &Attributes) -> Attr {
        let Attributes { stat, size, mtime, ctime, .. } = attributes;
        let seconds = |seconds: i64| seconds.cast_unsigned();
        let nanos = |nanos: i64| u32::try_from(nanos).unwrap_or(0);
        let atime_ns = u32::try_from(stat.st_atime_nsec).unwrap_or(0);
        Attr {
            ino: self.nodes.ino(stat.st_dev, stat.st_ino),
            size: *size,
            blocks: attributes.blocks(),
            atime: seconds(stat.st_atime),
            mtime: seconds(mtime.0),
            ctime: seconds(ctime.0),
            atime_ns,
            mtime_ns: nanos(mtime.1),
            ctime_ns: nanos(ctime.1),
            mode: stat.st_mode,
            nlink: u32::try_from(stat.st_nlink).unwrap_or(u32::MAX),
            uid: stat.st_uid,
            gid: stat.st_gid,
            // The kernel's old encoding for small numbers, which all drivers have.
            rdev: u32::try_from(stat.st_rdev).unwrap_or(0),
            blksize: 4096,
            ..Attr::default()
        }
    }

    /// Returns a directory entry, with the times for which the kernel may cache it and its
    /// attributes.
    pub(super) fn entry(&self, node: &Node, attributes: &Attributes) -> EntryOut {
        let ttl = self.ttl(node);
        // Outdated attributes are not cached; the kernel's next request gets the current ones.
        let is_old = node.file.must_be_renewed();
        let attr_ttl = if is_old { Duration::ZERO } else { self.attr_ttl(node, attributes) };
        EntryOut {
            nodeid: node.id,
            generation: 0,
            entry_valid: ttl.as_secs(),
            attr_valid: attr_ttl.as_secs(),
            entry_valid_ns: ttl.subsec_nanos(),
            attr_valid_ns: attr_ttl.subsec_nanos(),
            attr: self.attr(attributes),
        }
    }

    pub(super) fn attr_out(&self, node: &Node, attributes: &Attributes) -> Vec<u8> {
        let (ttl, attr) = (self.attr_ttl(node, attributes), self.attr(attributes));
        AttrOut { valid: ttl.as_secs(), valid_ns: ttl.subsec_nanos(), dummy: 0, attr }
            .as_bytes()
            .to_vec()
    }

    /// Returns how long the kernel may cache attributes that an answer carries: not at all for a
    /// setuid or setgid file, since a write may clear these bits at any time.
    pub(super) fn attr_ttl(&self, node: &Node, attributes: &Attributes) -> Duration {
        if attributes.is_privileged() { Duration::ZERO } else { self.ttl(node) }
    }

    /// Returns how long the kernel may cache names and attributes of a node.
    pub(super) fn ttl(&self, node: &Node) -> Duration {
        let others = self.options.shared;
        if others && !self.change_watcher.covers(node.device()) {
            Duration::ZERO
        } else {
            self.options.ttl
        }
    }
}
