//! The claims of this process, published for others, and the claims of other processes.

use super::footprint::{
    CachedData, Footprint, FootprintPart, FsPath, Inode, Node, footprint, footprint_of_mount,
    overlap,
};
use super::machine::{self, LocalMachine};
use super::record::Record;
use super::{
    CacheProcess, Claim, ClaimError, ClaimRefusal, DataUse, Source, UnresolvedLayer, links,
};
use crate::mount_table::{self, LARDER, MountLine};
use crate::runtime_directory::PrivateDirectory;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, FileType, FlockOperation, Mode, OFlags, major};
use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::{Duration, Instant, SystemTime};

/// Name of the directory of claims in the runtime directory.
const DIRECTORY: &str = "claims";
/// Name of the lock file that is held while claims are compared.
const LOCK_FILE: &str = "lock";
/// Maximum length of a claim; the rest of a longer file is not read.
const CLAIM_BYTES_MAX: u64 = 1 << 20;
/// Maximum number of claims that are read per user.
const CLAIMS_MAX: usize = 4096;
/// Maximum length of all claims that are read of another user. One long file may have many names.
const CLAIMS_BYTES_MAX: u64 = 1 << 20;
/// Interval of attempts to claim data whose last mount is gone.
const RETRY_INTERVAL: Duration = Duration::from_millis(5);
/// A wait that lasts longer than this is logged.
const LOG_AFTER: Duration = Duration::from_secs(1);
/// A directory whose modification time is more recent than this is read again next time: a further
/// change might not alter the modification time.
const SETTLE_TIME: Duration = Duration::from_millis(100);
/// Maximum number of attempts to open a claim file that another process replaces.
const REPLACED_MAX: usize = 100;
/// Directory in which root finds the runtime directories of users.
const USERS: &str = "/run/user";

#[derive(Debug)]
struct HeldClaim {
    number: u64,
    source: Arc<Source>,
    record: Record,
    /// A layer of an overlay that may lie outside of this mount namespace.
    unresolved: Option<UnresolvedLayer>,
    /// The claim file, whose lock shows that this process lives.
    file: Option<OwnedFd>,
}

/// The claim of another process.
#[derive(Debug)]
struct ForeignClaim {
    record: Record,
    /// The user, if it is a different one.
    user: Option<u32>,
}

/// The files and directories that are claimed themselves, as of a modification time of the
/// directory of claims.
#[derive(Debug, Default)]
struct ClaimedInodes {
    as_of: Option<(i64, u64, i64)>,
    /// The claimed inodes, each with a flag that is true if its cache only reads.
    inodes: HashMap<Inode, bool>,
}

#[derive(Debug)]
pub(super) struct Registry {
    directory: Result<PrivateDirectory, String>,
    held: Mutex<Vec<HeldClaim>>,
    claimed: Mutex<ClaimedInodes>,
    /// True if the claims of other users are read.
    reads_users: bool,
}

/// Source of claim numbers; file names are made of them.
static NEXT_NUMBER: AtomicU64 = AtomicU64::new(1);

impl Registry {
    pub(super) fn of_process() -> Arc<Self> {
        static OF_PROCESS: OnceLock<Arc<Registry>> = OnceLock::new();
        let create = || {
            let directory = PrivateDirectory::runtime();
            let directory = directory.and_then(|runtime| runtime.subdirectory(DIRECTORY, 0o700));
            let reads_users = rustix::process::geteuid().is_root();
            Arc::new(Registry::new(directory.map_err(|error| error.to_string()), reads_users))
        };
        Arc::clone(OF_PROCESS.get_or_init(create))
    }

    fn new(directory: Result<PrivateDirectory, String>, reads_users: bool) -> Self {
        Registry { directory, held: Mutex::default(), claimed: Mutex::default(), reads_users }
    }

    /// Returns a registry whose runtime directory lies in `parent`, for tests.
    #[cfg(test)]
    pub(super) fn within(parent: &Path) -> Arc<Self> {
        let directory = PrivateDirectory::within(parent).unwrap();
        let directory = directory.subdirectory(DIRECTORY, 0o700).unwrap();
        Arc::new(Registry::new(Ok(directory), false))
    }

    /// Returns the reason why claims are not published, if there is one.
    pub(super) fn problem(&self) -> Option<&str> {
        self.directory.as_ref().err().map(String::as_str)
    }

    /// Returns a sentence for each claim whose data may be reached outside of this mount namespace.
    pub(super) fn notes(&self) -> Vec<String> {
        let held = self.held();
        let unresolved =
            held.iter().filter_map(|claim| claim.unresolved.as_ref().zip(Some(&claim.record)));
        let note = |(unresolved, record): (&UnresolvedLayer, &Record)| {
            let [name, at] = [&unresolved.name, &unresolved.at]
                .map(|path| super::printable(&path.to_string_lossy()));
            format!(
                "{}: the layer {name} of the overlay at {at} cannot be found here; a cache of the \
                 layer in another mount namespace would not be refused",
                super::printable(&record.data)
            )
        };
        unresolved.map(note).collect()
    }

    /// Returns the directory of claims, to be watched.
    pub(super) fn path(&self) -> Option<&Path> {
        self.directory.as_ref().ok().map(PrivateDirectory::path)
    }

    fn held(&self) -> MutexGuard<'_, Vec<HeldClaim>> {
        self.held.lock().expect("no holder panics")
    }

    /// Claims data. Waits for at most `timeout` for a process whose mount of the data is gone.
    pub(super) fn acquire(
        self: &Arc<Self>,
        source: Source,
        data: &str,
        read_only: bool,
        timeout: Duration,
    ) -> Result<Claim, ClaimError> {
        let (begin, source) = (Instant::now(), Arc::new(source));
        let mut has_logged = false;
        loop {
            match self.try_acquire(&source, data, read_only) {
                Ok(number) => return Ok(Claim { registry: Arc::clone(self), number }),
                Err(error)
                    if matches!(error.reason, ClaimRefusal::Ending(_))
                        && begin.elapsed() < timeout =>
                {
                    if begin.elapsed() > LOG_AFTER && !std::mem::replace(&mut has_logged, true) {
                        tracing::warn!(%error, "waiting for the other process to end");
                    }
                }
                Err(error) => return Err(error),
            }
            std::thread::sleep(RETRY_INTERVAL);
        }
    }

    fn try_acquire(
        &self,
        source: &Arc<Source>,
        data: &str,
        read_only: bool,
    ) -> Result<u64, ClaimError> {
        let failed = |error| ClaimError::locate(data, error);
        let machine = LocalMachine::read().map_err(failed)?;
        let DataUse { footprint: Footprint { parts, unresolved }, nested } =
            source.trace(&machine).map_err(failed)?;
        let (mount, at) = match &**source {
            Source::Mount(number, at) => (Some(*number), Some(at.clone())),
            Source::Open(_) | Source::Export(_) => (None, None),
        };
        let (pid, pending) = (std::process::id(), true);
        let data = data.to_owned();
        let record = Record { pid, data, read_only, pending, mount, at, nested, parts };
        let mut held = self.held();
        let refusal = unresolved_layer(&unresolved)
            .or_else(|| mounted(&record, source, &machine))
            .or_else(|| held.iter().find_map(|held| conflict(&record, &held.record, &machine)));
        if let Some(refusal) = refusal {
            return Err(refusal.of(&record.data));
        }
        let number = NEXT_NUMBER.fetch_add(1, Ordering::Relaxed);
        let (source, unresolved) = (Arc::clone(source), unresolved.into_iter().next());
        let mut claim = HeldClaim { number, source, record, unresolved, file: None };
        self.publish(&mut claim, &held, &machine)
            .map_err(|refusal| refusal.of(&claim.record.data))?;
        claim.record.pending = false;
        held.push(claim);
        Ok(number)
    }

    /// Publishes a claim as pending, compares it with the claims of others, and publishes it as
    /// granted. A refused claim is withdrawn.
    fn publish(
        &self,
        claim: &mut HeldClaim,
        held: &[HeldClaim],
        machine: &LocalMachine,
    ) -> Result<(), ClaimRefusal> {
        let Ok(directory) = &self.directory else {
            return in_use(&claim.record).map_or(Ok(()), Err);
        };
        let lock = lock_claims(directory);
        let failed = |error| ClaimRefusal::Publish(directory.path().to_owned(), error);
        write(directory, claim).map_err(failed)?;
        if lock.is_some() {
            remove_dead(directory);
        }
        let read_others = || self.others(directory, held, Some(claim.number));
        let refusal = settled_conflict(&claim.record, machine, read_others);
        let granted =
            refusal.or_else(|| in_use(&claim.record)).map_or(Ok(()), Err).and_then(|()| {
                claim.record.pending = false;
                write(directory, claim).map_err(failed)
            });
        if granted.is_err() {
            withdraw(directory, claim);
        }
        granted
    }

    /// Returns the claims of other live processes.
    fn others(
        &self,
        directory: &PrivateDirectory,
        held: &[HeldClaim],
        own_number: Option<u64>,
    ) -> Vec<ForeignClaim> {
        let own_numbers = held.iter().map(|claim| claim.number).chain(own_number);
        let own_files: HashSet<_> = own_numbers.map(file_name).collect();
        let is_own = |name: &str| own_files.contains(name);
        let mut found = read_all(directory, None, is_own, u64::MAX);
        if self.reads_users {
            for (user, directory) in directories_of_users() {
                found.extend(read_all(directory, Some(user), |_| false, CLAIMS_BYTES_MAX));
            }
        }
        found
    }

    /// Returns the claims of other live processes, except pending ones, which may still be refused.
    fn granted(&self, directory: &PrivateDirectory, held: &[HeldClaim]) -> Vec<ForeignClaim> {
        let mut others = self.others(directory, held, None);
        others.retain(|other| !other.record.pending);
        others
    }

    /// Records that the data of a claim is visible at a mountpoint.
    pub(super) fn mounted(&self, number: u64, at: &Path, filesystem: u64) {
        let mut held = self.held();
        let Some(claim) = held.iter_mut().find(|claim| claim.number == number) else { return };
        claim.record.mount = Some(filesystem);
        claim.record.at = Some(at.to_owned());
        claim.record.data = format!("{} (mounted at {})", claim.record.data, at.display());
        match LocalMachine::read() {
            Ok(machine) => {
                let shown = footprint(&CachedData::FileSystem(filesystem), &machine);
                claim.record.parts.extend(shown.parts);
            }
            Err(error) => tracing::error!(%error, "cannot read the mount table"),
        }
        self.rewrite(claim);
    }

    /// Publishes a changed claim. If that fails, the previous version remains.
    fn rewrite(&self, claim: &mut HeldClaim) {
        if let Ok(directory) = &self.directory {
            let _lock = lock_claims(directory);
            if let Err(error) = write(directory, claim) {
                tracing::error!(%error, "cannot publish a changed claim");
            }
        }
    }

    pub(super) fn release(&self, number: u64) {
        let mut held = self.held();
        let Some(index) = held.iter().position(|claim| claim.number == number) else { return };
        let mut claim = held.swap_remove(index);
        if let Ok(directory) = &self.directory {
            withdraw(directory, &mut claim);
        }
    }

    pub(super) fn check_mountpoint(&self, at: &Path) -> Result<(), ClaimError> {
        let failed = |error| ClaimError::locate(&at.display().to_string(), error);
        let machine = LocalMachine::read().map_err(failed)?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        // A mountpoint that cannot be opened cannot be mounted on; the mount fails with its own
        // reason.
        let Ok(opened) = rustix::fs::open(at, flags, Mode::empty()) else { return Ok(()) };
        let Ok(data_use) = Source::Open(opened).trace(&machine) else { return Ok(()) };
        let mut parts = data_use.footprint.parts;
        for part in &mut parts {
            part.owned = false;
        }
        parts.retain(|part| matches!(part.node, Node::Directory { .. }));
        let Ok(directory) = &self.directory else { return Ok(()) };
        let held = self.held();
        // While the lock is held, no other claim of this directory is pending.
        let lock = lock_claims(directory);
        let others = self.others(directory, &held, None);
        drop((lock, held));
        let holder = others.iter().find(|other| {
            // The mounts of another process hold no data that this process could show.
            let mut data = other.record.parts.clone();
            data.retain(|part| {
                !is_of_mount(part, other.record.mount)
                    && !is_unmounted(part, &other.record, &machine)
            });
            overlap(&data, &parts).is_some() && other.is_credible()
        });
        holder.map_or(Ok(()), |other| {
            let reason = ClaimRefusal::Mountpoint(holder_of(&other.record));
            Err(ClaimError { operation: format!("mount at {}", at.display()), reason })
        })
    }

    /// Returns the holder of another claim of this very file or directory, if the claim with this
    /// number excludes it. While no claim changes, this costs one fstat(2).
    pub(super) fn other_holder(&self, number: u64, inode: Inode) -> Option<CacheProcess> {
        let directory = self.directory.as_ref().ok()?;
        let stat = rustix::fs::fstat(directory).ok()?;
        let as_of = (stat.st_mtime, stat.st_mtime_nsec, stat.st_size);
        let only_read = {
            let mut claimed = self.claimed.lock().expect("no holder panics");
            if claimed.as_of != Some(as_of) {
                let held = self.held();
                let others = self.granted(directory, &held);
                let of_others = others.iter().flat_map(ForeignClaim::claimed_inodes);
                let of_this_process = held.iter().flat_map(|claim| claimed_inodes(&claim.record));
                claimed.inodes = of_others.chain(of_this_process).collect();
                claimed.as_of = is_settled(as_of.0, as_of.1).then_some(as_of);
            }
            *claimed.inodes.get(&inode)?
        };
        let held = self.held();
        let own_claim = held.iter().find(|claim| claim.number == number)?;
        if only_read && own_claim.record.read_only {
            return None;
        }
        let is_inode = |(claimed, _)| claimed == inode;
        let same = |claim: &&HeldClaim| {
            claim.number != number && claimed_inodes(&claim.record).any(is_inode)
        };
        if let Some(claim) = held.iter().find(same) {
            return Some(holder_of(&claim.record));
        }
        let others = self.granted(directory, &held);
        let holds =
            |other: &&ForeignClaim| other.claimed_inodes().any(is_inode) && other.is_credible();
        others.iter().find(holds).map(|other| holder_of(&other.record))
    }

    /// Computes the footprints of all claims again, publishes those that have changed, and returns
    /// a sentence for each claim that would now be refused.
    pub(super) fn check_again(&self) -> Vec<String> {
        // The facts are collected without the lock, since a slow store may delay them.
        let sources: Vec<_> =
            self.held().iter().map(|claim| (claim.number, Arc::clone(&claim.source))).collect();
        let machine = match LocalMachine::read() {
            Ok(machine) => machine,
            Err(error) => return vec![format!("claims are not checked: {error}")],
        };
        let found = sources.into_iter().filter_map(|(number, source)| {
            let DataUse { footprint: Footprint { parts, unresolved }, nested } =
                source.trace(&machine).ok()?;
            let record = self.update(number, parts, nested)?;
            let held = self.held();
            let others = held.iter().filter(|other| other.number != number);
            let others: Vec<_> = others.map(|other| other.record.clone()).collect();
            let foreign = || self.foreign_conflict(&record, &held, &machine);
            let own_conflict =
                others.iter().find_map(|other| certain_conflict(&record, other, &machine));
            let by_process = own_conflict.or_else(foreign);
            drop(held);
            let by_kernel = || mounted(&record, &source, &machine);
            let refusal =
                by_process.or_else(by_kernel).or_else(|| unresolved_layer(&unresolved))?;
            Some(refusal.of(&record.data).to_string())
        });
        found.collect()
    }

    /// Sets the current footprint of a claim and the file systems that are mounted in its
    /// directory; returns the claim unless it was released.
    fn update(
        &self,
        number: u64,
        mut parts: Vec<FootprintPart>,
        nested: Vec<(u64, PathBuf)>,
    ) -> Option<Record> {
        let mut held = self.held();
        let claim = held.iter_mut().find(|claim| claim.number == number)?;
        for part in &claim.record.parts {
            if is_of_mount(part, claim.record.mount) && !parts.contains(part) {
                parts.push(part.clone());
            }
        }
        if parts != claim.record.parts || nested != claim.record.nested {
            (claim.record.parts, claim.record.nested) = (parts, nested);
            self.rewrite(claim);
        }
        Some(claim.record.clone())
    }

    fn foreign_conflict(
        &self,
        record: &Record,
        held: &[HeldClaim],
        machine: &LocalMachine,
    ) -> Option<ClaimRefusal> {
        let directory = self.directory.as_ref().ok()?;
        self.granted(directory, held).iter().find_map(|other| {
            let refusal = certain_conflict(record, &other.record, machine)?;
            other.is_credible().then_some(refusal)
        })
    }
}

impl ForeignClaim {
    /// Returns the claimed inodes as [`claimed_inodes`] does, without the directories of another
    /// user's claim: that user may open every directory that they may read, and could block it for
    /// all others.
    fn claimed_inodes(&self) -> impl Iterator<Item = (Inode, bool)> + '_ {
        let parts = self.record.parts.iter();
        let is_trusted = |part: &&FootprintPart| {
            self.user.is_none() || !matches!(part.node, Node::Directory { .. })
        };
        inodes_of(parts.filter(is_trusted), self.record.read_only)
    }

    /// Returns true if the claim is credible: a process of another user must have the data open.
    fn is_credible(&self) -> bool {
        let Some(user) = self.user else { return true };
        let process = PathBuf::from(format!("/proc/{}", self.record.pid));
        let owner = rustix::fs::stat(&process).map(|stat| stat.st_uid);
        owner == Ok(user) && has_any_open(&process, &self.record.parts)
    }
}

/// Returns the reason why the claims of other processes, which `read_others` returns, refuse a
/// claim. A directory that cannot be searched counts as a match, and it may be missing because its
/// claim was just released: such a conflict only counts while its claim remains.
fn settled_conflict(
    record: &Record,
    machine: &LocalMachine,
    mut read_others: impl FnMut() -> Vec<ForeignClaim>,
) -> Option<ClaimRefusal> {
    let mut others = read_others();
    loop {
        let (refusal, other) = others.iter().find_map(|other| {
            overlap(&record.parts, &other.record.parts)?;
            // The search for other names takes time; a false claim must not cause it.
            let refusal =
                other.is_credible().then(|| conflict(record, &other.record, machine))??;
            Some((refusal, other))
        })?;
        if !matches!(refusal, ClaimRefusal::Linked(_)) {
            return Some(refusal);
        }
        let current = read_others();
        if current.iter().any(|claim| claim.record == other.record) {
            return Some(refusal);
        }
        others = current;
    }
}

/// Returns the reason why two claims exclude each other, phrased for the first.
fn conflict(one: &Record, other: &Record, machine: &LocalMachine) -> Option<ClaimRefusal> {
    certain_conflict(one, other, machine).or_else(|| {
        let excludes = !(one.read_only && other.read_only);
        let by_link = excludes
            && overlap(&one.parts, &other.parts).is_some()
            && (links::may_hold(&one.parts, &other.parts, machine)
                || links::may_hold(&other.parts, &one.parts, machine));
        by_link.then(|| ClaimRefusal::Linked(holder_of(other)))
    })
}

/// Returns the reason like [`conflict`], without a search for other names of files.
fn certain_conflict(one: &Record, other: &Record, machine: &LocalMachine) -> Option<ClaimRefusal> {
    if one.read_only && other.read_only {
        return None;
    }
    let certain = |record: &Record| {
        // Another file system may have got the number of an unmounted one. If that is a mount of
        // another claim, one of the two mounts is gone.
        let reused =
            record.mount.filter(|&number| one.mount == other.mount || is_reused(number, machine));
        let is_valid = |part: &&FootprintPart| {
            let is_stale = (reused.is_some() && is_of_mount(part, reused))
                || is_unmounted(part, record, machine);
            !is_stale && !matches!(part.node, Node::SomeDirectory(_))
        };
        record.parts.iter().filter(is_valid).cloned().collect::<Vec<_>>()
    };
    overlap(&certain(one), &certain(other))?;
    let refusal = if is_ending(other, machine) { ClaimRefusal::Ending } else { ClaimRefusal::Held };
    Some(refusal(holder_of(other)))
}

/// Returns an error for a layer of an overlay that cannot be found, unless it may lie outside of
/// this mount namespace, as those of the root of a container do.
fn unresolved_layer(unresolved: &[UnresolvedLayer]) -> Option<ClaimRefusal> {
    let is_root = |unresolved: &UnresolvedLayer| unresolved.at == Path::new("/");
    let UnresolvedLayer { name, at } =
        unresolved.iter().find(|unresolved| !is_root(unresolved))?.clone();
    (!machine::is_in_container()).then_some(ClaimRefusal::Layer { name, at })
}

/// Returns an error if the kernel uses the data through a loop device for a purpose that it does
/// not show here.
fn in_use(record: &Record) -> Option<ClaimRefusal> {
    if is_of_directory(record) {
        return None;
    }
    machine::loop_in_use(&record.parts, record.read_only).map(ClaimRefusal::InUse)
}

/// Returns true if a directory is claimed: images in it may be mounted.
fn is_of_directory(record: &Record) -> bool {
    matches!(record.parts.first(), Some(FootprintPart { node: Node::Directory { .. }, .. }))
}

/// Returns an error for a file system that the kernel has mounted on the data, and that changes the
/// data, or would see it change, behind the cache.
fn mounted(record: &Record, source: &Source, machine: &LocalMachine) -> Option<ClaimRefusal> {
    if !matches!(source, Source::Open(_)) || is_of_directory(record) {
        return None;
    }
    let raw =
        |part: &&FootprintPart| part.owned && matches!(part.node, Node::File(_) | Node::Disk(_));
    let raw: Vec<_> = record.parts.iter().filter(raw).cloned().collect();
    let mut seen = HashSet::new();
    let mounts = machine.mounts().iter().filter(|mount| {
        let on_disk = major(mount.filesystem) != 0 || mount.source.is_absolute();
        on_disk && !(mount.is_read_only() && record.read_only) && seen.insert(mount.filesystem)
    });
    let mut mounts = mounts.filter(|_| !raw.is_empty());
    let mount = mounts.find(|mount| {
        let below = footprint_of_mount(mount.filesystem, machine);
        overlap(&raw, &below).is_some()
    })?;
    Some(ClaimRefusal::Mounted(super::printable(&mount.at.to_string_lossy())))
}

fn holder_of(record: &Record) -> CacheProcess {
    CacheProcess { pid: record.pid, data: record.data.clone() }
}

/// Returns true if a process sees the mounts of this process at the same paths.
fn sees_same_mounts(pid: u32) -> bool {
    ["ns/mnt", "root"].into_iter().all(|name| {
        let link = |process: &str| std::fs::read_link(format!("/proc/{process}/{name}")).ok();
        link("self").is_some_and(|link_of_self| Some(link_of_self) == link(&pid.to_string()))
    })
}

/// Returns true if a part is a file system that was mounted in the claimed directory and is
/// unmounted. The kernel may reuse its number before the process that holds the claim notices the
/// unmount.
fn is_unmounted(part: &FootprintPart, record: &Record, machine: &LocalMachine) -> bool {
    let Node::Directory { fs_path: Some(FsPath { filesystem, .. }), inode: None } = &part.node
    else {
        return false;
    };
    let mut nested = record.nested.iter().filter(|(number, _)| number == filesystem).peekable();
    nested.peek().is_some()
        && nested.all(|(number, at)| !machine.is_mounted(*number, at))
        && sees_same_mounts(record.pid)
}

/// Returns true if the mount of a claim is gone, as seen from the same mount namespace.
fn is_ending(record: &Record, machine: &LocalMachine) -> bool {
    let is_at = |mount: &MountLine| record.at.as_ref().is_none_or(|at| *at == mount.at);
    let is_gone =
        |number| !machine.mounts().iter().any(|mount| is_larder(mount, number) && is_at(mount));
    record.mount.is_some_and(is_gone) && sees_same_mounts(record.pid)
}

fn is_larder(mount: &MountLine, number: u64) -> bool {
    mount.filesystem == number && mount.kind == LARDER.as_bytes()
}

/// Returns true if another file system has got the number of a Larder mount.
fn is_reused(number: u64, machine: &LocalMachine) -> bool {
    let mut mounts = machine.mounts().iter().filter(|mount| mount.filesystem == number).peekable();
    mounts.peek().is_some() && !mounts.any(|mount| is_larder(mount, number))
}

/// Returns the files and directories that are claimed directly, not through a directory above them,
/// each with a flag that is true if its cache only reads.
fn claimed_inodes(record: &Record) -> impl Iterator<Item = (Inode, bool)> + '_ {
    inodes_of(record.parts.iter(), record.read_only)
}

fn inodes_of<'a>(
    parts: impl Iterator<Item = &'a FootprintPart>,
    read_only: bool,
) -> impl Iterator<Item = (Inode, bool)> {
    parts.filter(|part| part.owned).filter_map(move |part| match part.node {
        Node::File(inode) | Node::Directory { inode: Some(inode), .. } => Some((inode, read_only)),
        _ => None,
    })
}

/// Returns true if a part belongs to the claim's own mount.
fn is_of_mount(part: &FootprintPart, mount: Option<u64>) -> bool {
    match &part.node {
        Node::Directory { fs_path: Some(fs_path), inode: None } if part.owned => {
            Some(fs_path.filesystem) == mount && fs_path.path == Path::new("/")
        }
        _ => false,
    }
}

/// Waits for the lock under which claims are compared.
fn lock_claims(directory: &PrivateDirectory) -> Option<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::openat(directory, LOCK_FILE, flags, Mode::RUSR | Mode::WUSR);
    let locked = file.and_then(|file| {
        rustix::fs::flock(&file, FlockOperation::LockExclusive)?;
        Ok(file)
    });
    locked.inspect_err(|error| tracing::warn!(%error, "cannot lock the directory of claims")).ok()
}

/// Returns the name of the file of a claim of this process.
fn file_name(number: u64) -> String {
    format!("{}-{number}", std::process::id())
}

/// Writes and locks the file of a claim. It gets its name when it is complete; closing the previous
/// file ends the lock of that one.
fn write(directory: &PrivateDirectory, claim: &mut HeldClaim) -> std::io::Result<()> {
    let name = file_name(claim.number);
    let unfinished = format!(".{name}");
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW;
    let mode = Mode::RUSR | Mode::WUSR;
    let file = rustix::fs::openat(directory, &unfinished, flags | OFlags::CLOEXEC, mode)?;
    rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)?;
    let mut file = File::from(file);
    file.write_all(claim.record.encode().as_bytes())?;
    rustix::fs::renameat(directory, &unfinished, directory, &name)?;
    claim.file = Some(file.into());
    Ok(())
}

fn withdraw(directory: &PrivateDirectory, claim: &mut HeldClaim) {
    let Some(file) = claim.file.take() else { return };
    let name = file_name(claim.number);
    if let Err(error) = rustix::fs::unlinkat(directory, &name, AtFlags::empty()) {
        tracing::debug!(%error, name, "a claim file was already removed");
    }
    // Unlocks explicitly: a child between fork and exec may still have the file open.
    let unlocked = rustix::fs::flock(&file, FlockOperation::Unlock);
    debug_assert!(unlocked.is_ok(), "{unlocked:?}");
}

/// Returns the claims of live processes in a directory, up to a total length.
fn read_all(
    directory: impl AsFd,
    user: Option<u32>,
    is_own: impl Fn(&str) -> bool,
    mut bytes_max: u64,
) -> Vec<ForeignClaim> {
    let directory = directory.as_fd();
    let names = names(directory).into_iter().filter(|name| !is_own(name));
    let read = |name: String| {
        let (file, _) = open(directory, &name).filter(|(_, is_live)| *is_live)?;
        let mut text = Vec::new();
        file.take(CLAIM_BYTES_MAX.min(bytes_max)).read_to_end(&mut text).ok()?;
        bytes_max -= text.len() as u64;
        let record = Record::decode(&String::from_utf8_lossy(&text))?;
        Some(ForeignClaim { record, user })
    };
    names.filter_map(read).collect()
}

/// Removes the claims of dead processes, also unfinished ones. The caller holds the lock under
/// which claims are written: otherwise another process might have given the name to its claim
/// meanwhile.
fn remove_dead(directory: &PrivateDirectory) {
    for name in all_names(directory.as_fd()) {
        if open(directory.as_fd(), &name).is_some_and(|(_, is_live)| !is_live)
            && let Err(error) = rustix::fs::unlinkat(directory, &name, AtFlags::empty())
        {
            tracing::debug!(%error, name, "cannot remove the claim of a dead process");
        }
    }
}

/// Returns the names of claim files.
fn names(directory: BorrowedFd<'_>) -> Vec<String> {
    let mut names = all_names(directory);
    names.retain(|name| !name.starts_with('.'));
    names
}

/// Returns the names of claim files and of unfinished ones, which begin with a dot.
fn all_names(directory: BorrowedFd<'_>) -> Vec<String> {
    let Ok(entries) = rustix::fs::Dir::read_from(directory) else { return Vec::new() };
    let names = entries.flatten().take(CLAIMS_MAX);
    let names = names.filter_map(|entry| Some(entry.file_name().to_str().ok()?.to_owned()));
    names.filter(|name| ![".", "..", LOCK_FILE].contains(&name.as_str())).collect()
}

/// Opens a claim file; returns it with a flag that is true if its process lives.
fn open(directory: BorrowedFd<'_>, name: &str) -> Option<(File, bool)> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    for _ in 0..REPLACED_MAX {
        let file = rustix::fs::openat(directory, name, flags, Mode::empty()).ok()?;
        let stat = rustix::fs::fstat(&file).ok()?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return None;
        }
        if rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared).is_err() {
            return Some((file.into(), true));
        }
        // The process has ended, or it has replaced the file meanwhile.
        let named = rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        if (named.st_dev, named.st_ino) == (stat.st_dev, stat.st_ino) {
            return Some((file.into(), false));
        }
    }
    None
}

/// Returns the directories of claims of all users except root, each with its owner.
fn directories_of_users() -> Vec<(u32, OwnedFd)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(USERS).into_iter().flatten().flatten() {
        let Some(user) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = rustix::fs::open(entry.path(), flags, Mode::empty())
            .and_then(|runtime| rustix::fs::openat(&runtime, "larder", flags, Mode::empty()))
            .and_then(|larder| rustix::fs::openat(&larder, DIRECTORY, flags, Mode::empty()));
        let Ok(directory) = opened else { continue };
        let is_theirs = rustix::fs::fstat(&directory).is_ok_and(|stat| stat.st_uid == user);
        if is_theirs && user != 0 {
            found.push((user, directory));
        }
    }
    found
}

/// Returns true if a process has one of the claimed files or directories open. The files themselves
/// are not accessed, since their user could make that take arbitrarily long.
fn has_any_open(process: &Path, parts: &[FootprintPart]) -> bool {
    let table = std::fs::read(process.join("mountinfo")).unwrap_or_default();
    let mounts = mount_table::parse_all(&table);
    let is_claimed = |filesystem: u64, number: u64| {
        parts.iter().filter(|part| part.owned).any(|part| match &part.node {
            Node::File(inode) | Node::Directory { inode: Some(inode), .. } => {
                *inode == (filesystem, number)
            }
            _ => false,
        })
    };
    let entries = std::fs::read_dir(process.join("fdinfo")).into_iter().flatten().flatten();
    entries.filter_map(|entry| std::fs::read_to_string(entry.path()).ok()).any(|text| {
        let number =
            |key| text.lines().find_map(|line| line.strip_prefix(key)?.trim().parse::<u64>().ok());
        let mount = number("mnt_id:").and_then(|id| mounts.iter().find(|mount| mount.id == id));
        mount.zip(number("ino:")).is_some_and(|(mount, ino)| is_claimed(mount.filesystem, ino))
    })
}

/// Returns true if a time is so old that a further change would get a different one.
fn is_settled(seconds: i64, nanoseconds: u64) -> bool {
    let since =
        Duration::new(u64::try_from(seconds).unwrap_or(0), u32::try_from(nanoseconds).unwrap_or(0));
    let changed = SystemTime::UNIX_EPOCH + since;
    changed.elapsed().is_ok_and(|age| age > SETTLE_TIME)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    #[test]
    fn a_directory_that_is_gone_refuses_only_while_its_claim_remains() {
        let parent = tempfile::tempdir().unwrap();
        let [image, link, tree] = ["image", "link", "tree"].map(|name| parent.path().join(name));
        std::fs::write(&image, [1; 4096]).unwrap();
        std::fs::hard_link(&image, &link).unwrap();
        std::fs::create_dir(&tree).unwrap();
        let machine = LocalMachine::read().unwrap();
        let record = |path: &Path| {
            let source = Source::Open(File::open(path).unwrap().into());
            let parts = source.trace(&machine).unwrap().footprint.parts;
            Record { pid: 1, data: path.display().to_string(), parts, ..Record::default() }
        };
        let (own, other) = (record(&image), record(&tree));
        std::fs::remove_dir(&tree).unwrap();
        let claims = |count| (0..count).map(|_| ForeignClaim { record: other.clone(), user: None });
        let mut counts = [1, 0].into_iter();
        let released = || claims(counts.next().unwrap_or(0)).collect();
        assert!(settled_conflict(&own, &machine, released).is_none());
        let refused = settled_conflict(&own, &machine, || claims(1).collect());
        assert!(matches!(refused, Some(ClaimRefusal::Linked(_))), "{refused:?}");
    }

    #[test]
    fn a_claim_that_is_replaced_is_seen_and_kept() {
        let parent = tempfile::tempdir().unwrap();
        let [one, two] = [(); 2].map(|()| Registry::within(parent.path()));
        let data = File::open(tempfile::NamedTempFile::new().unwrap().path()).unwrap();
        let number = one.try_acquire(&Arc::new(Source::Open(data.into())), "data", false).unwrap();
        let has_ended = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..larder_testing::budget(5_000, 20_000) {
                    one.rewrite(&mut one.held()[0]);
                }
                has_ended.store(true, Ordering::Release);
            });
            while !has_ended.load(Ordering::Acquire) {
                let seen = two.others(two.directory.as_ref().unwrap(), &[], None);
                assert_eq!(seen.len(), 1, "another process sees the claim");
            }
        });
        one.release(number);
    }

    #[test]
    fn a_claim_that_cannot_be_changed_stays() {
        let parent = tempfile::tempdir().unwrap();
        let [one, two] = [(); 2].map(|()| Registry::within(parent.path()));
        let data = File::open(tempfile::NamedTempFile::new().unwrap().path()).unwrap();
        let number = one.try_acquire(&Arc::new(Source::Open(data.into())), "data", false).unwrap();
        let unfinished = format!(".{}-{number}", std::process::id());
        std::fs::create_dir(one.path().unwrap().join(unfinished)).unwrap();
        one.rewrite(&mut one.held()[0]);
        let seen = two.others(two.directory.as_ref().unwrap(), &[], None);
        assert_eq!(seen.len(), 1, "another process sees the claim");
        one.release(number);
    }

    /// Hard links cost their user nothing, and one lock holds for all names of a file.
    #[test]
    fn claims_of_another_user_take_bounded_memory_however_many_names_they_have() {
        let directory = tempfile::tempdir().unwrap();
        let part = |inode| FootprintPart { node: Node::File((1, inode)), range: 0..1, owned: true };
        let parts: Vec<_> = (0..20_000).map(part).collect();
        let record = Record { pid: 1, data: "x".to_owned(), parts, ..Record::default() };
        let text = record.encode();
        let first = directory.path().join("1-0");
        std::fs::write(&first, &text).unwrap();
        for name in 1..100 {
            std::fs::hard_link(&first, directory.path().join(format!("1-{name}"))).unwrap();
        }
        let locked = File::open(&first).unwrap();
        rustix::fs::flock(&locked, FlockOperation::LockExclusive).unwrap();
        let opened = File::open(directory.path()).unwrap();
        let found = read_all(&opened, None, |_| false, CLAIMS_BYTES_MAX);
        let parts = found.iter().map(|claim| claim.record.parts.len()).sum::<usize>();
        let whole = usize::try_from(CLAIMS_BYTES_MAX).unwrap() / text.len() * 20_000;
        assert!(found[0].record == record && parts <= whole + 20_000, "{parts} parts");
    }
}
