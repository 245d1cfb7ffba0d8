//! The data that a cache depends on, down to the lowest layer: a pure function of facts about a
//! machine.
//!
//! A footprint is a list of parts. A part that is *owned* consists of the cache's data; a part that
//! is not owned contains that data among other data. Two files of one file system share the disk
//! below as a part that neither owns, so they are different data; a file and the disk below it are
//! not. Loop devices and partitions map bytes exactly and pass ownership on; members of device
//! mapper and md devices, and disks of file systems, do not.

use std::ops::Range;
use std::path::{Path, PathBuf};

/// Device and inode number, as in stat(2).
pub(crate) type Inode = (u64, u64);

/// A range without an end.
pub(crate) const EVERYTHING: Range<u64> = 0..u64::MAX;
/// Maximum number of layers; it also ends the search when the facts are circular.
const DEPTH_MAX: usize = 24;
/// Maximum length of a footprint; only a directory with thousands of mounts in it would exceed it.
const PARTS_MAX: usize = 4096;

/// A path inside a file system, independent of its mountpoints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FsPath {
    pub(crate) filesystem: u64,
    /// From the root of the file system.
    pub(crate) path: PathBuf,
}

/// An object that holds data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Node {
    /// The bytes of a regular file.
    File(Inode),
    /// All files below a directory.
    Directory { fs_path: Option<FsPath>, inode: Option<Inode> },
    /// An unknown directory of a file system.
    SomeDirectory(u64),
    /// The bytes of a whole block device, by its number.
    Disk(u64),
    /// The bytes of an export of an NBD server.
    Export(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FootprintPart {
    pub(crate) node: Node,
    pub(crate) range: Range<u64>,
    pub(crate) owned: bool,
}

/// The data that a cache is put in front of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CachedData {
    /// A regular file, with its number of links.
    File { inode: Inode, fs_path: Option<FsPath>, links: u64 },
    /// All files below a directory, which is visible at the path `at`.
    Tree { inode: Inode, fs_path: Option<FsPath>, at: PathBuf },
    /// A block device.
    Disk(u64),
    /// An export of an NBD server.
    Export(String),
    /// A whole file system, such as a Larder mount.
    FileSystem(u64),
}

/// A block device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Disk {
    /// A device without known members, or one that combines its members in an unknown way.
    Whole { members: Vec<u64> },
    /// A range of another block device: a partition, or a loop device on a block device.
    Part { of: u64, start: u64, bytes: u64 },
    /// A loop device on a file, with the number of links of the file.
    Loop { inode: Inode, fs_path: Option<FsPath>, links: u64, start: u64, bytes: u64 },
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FileSystem {
    /// Block devices that it lies on.
    pub(crate) disks: Vec<u64>,
    /// Directories that an overlay file system merges.
    pub(crate) layers: Vec<FsPath>,
    /// A directory that an overlay file system merges, and that cannot be found.
    pub(crate) unresolved: Option<UnresolvedLayer>,
}

/// A layer of an overlay that cannot be found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UnresolvedLayer {
    /// Its name, as it was given to the mount.
    pub(crate) name: PathBuf,
    /// A mountpoint of the overlay.
    pub(crate) at: PathBuf,
}

/// A mount below a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NestedMount {
    pub(crate) fs_path: FsPath,
    /// The inode of the file that is mounted, unless a directory is mounted.
    pub(crate) file: Option<Inode>,
}

/// Facts about a machine, real or simulated.
pub(crate) trait MachineFacts {
    fn disk(&self, number: u64) -> Disk;
    fn filesystem(&self, number: u64) -> FileSystem;
    /// Returns the inode at a path in a file system, if this process can see it.
    fn inode(&self, fs_path: &FsPath) -> Option<Inode>;
    fn mounted_below(&self, path: &Path) -> Vec<NestedMount>;
}

/// The data that some data depends on.
pub(crate) struct Footprint {
    pub(crate) parts: Vec<FootprintPart>,
    /// Layers of overlays that cannot be found.
    pub(crate) unresolved: Vec<UnresolvedLayer>,
}

pub(crate) fn footprint(data: &CachedData, machine: &dyn MachineFacts) -> Footprint {
    let mut tracer = Tracer::new(machine);
    match data {
        CachedData::File { inode, fs_path, links } => {
            tracer.file(*inode, fs_path.as_ref(), &EVERYTHING, true);
            tracer.other_names(*links, *inode, fs_path.as_ref());
        }
        CachedData::Tree { inode, fs_path, at } => {
            tracer.tree(Some(*inode), fs_path.as_ref(), true);
            for NestedMount { fs_path, file } in machine.mounted_below(at) {
                match file {
                    Some(inode) => tracer.file(inode, Some(&fs_path), &EVERYTHING, true),
                    None => tracer.tree(None, Some(&fs_path), true),
                }
            }
        }
        CachedData::Disk(number) => tracer.disk(*number, &EVERYTHING, true),
        CachedData::Export(name) => {
            tracer.add(Node::Export(name.clone()), EVERYTHING, true);
        }
        CachedData::FileSystem(number) => {
            let root = FsPath { filesystem: *number, path: "/".into() };
            tracer.tree(None, Some(&root), true);
        }
    }
    tracer.found
}

/// Returns the parts that a mounted file system depends on. It owns none of them: a cache of one of
/// its files does not conflict with it, a cache of a whole part below it does.
pub(crate) fn footprint_of_mount(
    filesystem: u64,
    machine: &dyn MachineFacts,
) -> Vec<FootprintPart> {
    let mut tracer = Tracer::new(machine);
    tracer.below_filesystem(filesystem);
    tracer.found.parts
}

/// Returns the first node that makes two footprints the same data, at least in part.
pub(crate) fn overlap<'a>(one: &'a [FootprintPart], other: &[FootprintPart]) -> Option<&'a Node> {
    let shared = |part: &&FootprintPart| {
        other.iter().any(|candidate| {
            (part.owned || candidate.owned)
                && part.range.start < candidate.range.end
                && candidate.range.start < part.range.end
                && is_same(&part.node, &candidate.node)
        })
    };
    one.iter().find(shared).map(|part| &part.node)
}

fn is_same(one: &Node, other: &Node) -> bool {
    match (one, other) {
        (
            Node::Directory { fs_path: one_path, inode: one_inode },
            Node::Directory { fs_path: other_path, inode: other_inode },
        ) => match (one_inode, other_inode) {
            // The name of a renamed file may belong to another file now.
            (Some(one), Some(other)) => one == other,
            _ => one_path.is_some() && one_path == other_path,
        },
        (Node::SomeDirectory(filesystem), Node::Directory { fs_path: Some(fs_path), .. })
        | (Node::Directory { fs_path: Some(fs_path), .. }, Node::SomeDirectory(filesystem)) => {
            fs_path.filesystem == *filesystem
        }
        _ => one == other,
    }
}

/// Follows data downwards through the layers.
struct Tracer<'a> {
    machine: &'a dyn MachineFacts,
    found: Footprint,
    depth: usize,
}

impl<'a> Tracer<'a> {
    fn new(machine: &'a dyn MachineFacts) -> Self {
        let found = Footprint { parts: Vec::new(), unresolved: Vec::new() };
        Tracer { machine, found, depth: 0 }
    }

    /// Adds a part unless it is present; returns whether it was new.
    fn add(&mut self, node: Node, range: Range<u64>, owned: bool) -> bool {
        let part = FootprintPart { node, range, owned };
        let parts = &mut self.found.parts;
        let is_new = !parts.contains(&part) && parts.len() < PARTS_MAX;
        if is_new {
            parts.push(part);
        }
        is_new
    }

    /// Runs `step` one layer down, unless the layers are too deep.
    fn descend(&mut self, step: impl FnOnce(&mut Self)) {
        if self.depth < DEPTH_MAX {
            self.depth += 1;
            step(self);
            self.depth -= 1;
        }
    }

    fn file(&mut self, inode: Inode, fs_path: Option<&FsPath>, range: &Range<u64>, owned: bool) {
        if !self.add(Node::File(inode), range.clone(), owned) {
            return;
        }
        let Some(fs_path) = fs_path else { return self.below_filesystem(inode.0) };
        // An overlay shows the file of one of its layers, and copies it to the upper layer on a
        // write.
        for layer in self.machine.filesystem(fs_path.filesystem).layers {
            let lower = joined(&layer, &fs_path.path);
            if let Some(inode) = self.machine.inode(&lower) {
                self.descend(|tracer| tracer.file(inode, Some(&lower), range, owned));
            }
        }
        self.add_ancestors(fs_path);
        self.below_filesystem(fs_path.filesystem);
    }

    fn tree(&mut self, inode: Option<Inode>, fs_path: Option<&FsPath>, owned: bool) {
        let node = Node::Directory { fs_path: fs_path.cloned(), inode };
        if !self.add(node, EVERYTHING, owned) {
            return;
        }
        let Some(fs_path) = fs_path else {
            return inode.into_iter().for_each(|inode| self.below_filesystem(inode.0));
        };
        for layer in self.machine.filesystem(fs_path.filesystem).layers {
            let lower = joined(&layer, &fs_path.path);
            let inode = self.machine.inode(&lower);
            self.descend(|tracer| tracer.tree(inode, Some(&lower), owned));
        }
        self.add_ancestors(fs_path);
        self.below_filesystem(fs_path.filesystem);
    }

    /// Adds the file system of a file that has several names, or an unknown one: any of its names
    /// may lie in a cached directory.
    fn other_names(&mut self, links: u64, inode: Inode, fs_path: Option<&FsPath>) {
        let filesystem = fs_path.map_or(inode.0, |fs_path| fs_path.filesystem);
        if links > 1 || fs_path.is_none() {
            self.add(Node::SomeDirectory(filesystem), EVERYTHING, false);
        }
    }

    /// Adds the directories that a path lies in.
    fn add_ancestors(&mut self, fs_path: &FsPath) {
        for path in fs_path.path.ancestors().skip(1) {
            let above = FsPath { filesystem: fs_path.filesystem, path: path.to_owned() };
            let inode = self.machine.inode(&above);
            self.add(Node::Directory { fs_path: Some(above), inode }, EVERYTHING, false);
        }
    }

    fn below_filesystem(&mut self, filesystem: u64) {
        let FileSystem { disks, layers, unresolved } = self.machine.filesystem(filesystem);
        let known = &mut self.found.unresolved;
        known.extend(unresolved.filter(|unresolved| !known.contains(unresolved)));
        for disk in disks {
            self.descend(|tracer| tracer.disk(disk, &EVERYTHING, false));
        }
        for layer in layers {
            let inode = self.machine.inode(&layer);
            self.descend(|tracer| tracer.tree(inode, Some(&layer), false));
        }
    }

    fn disk(&mut self, number: u64, range: &Range<u64>, owned: bool) {
        match self.machine.disk(number) {
            Disk::Part { of, start, bytes } => {
                let range = mapped(range, start, bytes);
                self.descend(|tracer| tracer.disk(of, &range, owned));
            }
            Disk::Loop { inode, fs_path, links, start, bytes } => {
                if owned {
                    self.other_names(links, inode, fs_path.as_ref());
                }
                self.add(Node::Disk(number), range.clone(), owned);
                let range = mapped(range, start, bytes);
                self.descend(|tracer| tracer.file(inode, fs_path.as_ref(), &range, owned));
            }
            Disk::Whole { members } => {
                if self.add(Node::Disk(number), range.clone(), owned) {
                    for member in members {
                        self.descend(|tracer| tracer.disk(member, &EVERYTHING, false));
                    }
                }
            }
        }
    }
}

/// Converts a range of a device into a range of the layer below, where the device occupies `bytes`
/// from `start` on.
fn mapped(range: &Range<u64>, start: u64, bytes: u64) -> Range<u64> {
    let end = start.saturating_add(bytes);
    start.saturating_add(range.start).min(end)..start.saturating_add(range.end).min(end)
}

fn joined(directory: &FsPath, path: &Path) -> FsPath {
    let path = directory.path.join(path.strip_prefix("/").unwrap_or(path));
    FsPath { filesystem: directory.filesystem, path }
}

#[cfg(test)]
mod tests;
