//! Layers of overlays. The kernel shows only their names, as they were given to mount(8).
//!
//! Invariant: a layer that is found is the right one where that can be checked. The root of an
//! overlay has the inode number of its upper directory, or of its only layer, if all layers lie in
//! one file system or `xino` is on.

use super::super::footprint::{FsPath, UnresolvedLayer};
use super::{FileLocation, LocalMachine, foreign, open_mount, path_of, split};
use crate::mount_table::{MountLine, unescape};
use rustix::fs::FileType;
use std::path::{Path, PathBuf};

/// The possible names of one layer, since its mount option may be escaped or not.
type LayerNames = Vec<PathBuf>;

impl LocalMachine {
    /// Returns the directories that an overlay merges, and one that cannot be found.
    pub(super) fn layers(&self, overlay: &MountLine) -> (Vec<FsPath>, Option<UnresolvedLayer>) {
        let names = names(&overlay.options);
        let shows = |mount: &&MountLine| mount.filesystem == overlay.filesystem;
        let mountpoints: Vec<_> = self.known_mounts().filter(shows).collect();
        let is_whole = |mount: &&&MountLine| mount.root == Path::new("/");
        let root = mountpoints
            .iter()
            .filter(is_whole)
            .find_map(|mount| Some(rustix::fs::fstat(open_mount(mount, &mount.at)?).ok()?.st_ino));
        let is_relative = names.iter().flatten().any(|name| name.is_relative());
        // Relative names begin at an unknown directory, such as an ancestor of the mountpoint.
        let above = mountpoints.iter().flat_map(|mount| mount.at.ancestors().skip(1));
        let above: Vec<_> = above.filter(|_| is_relative).map(Path::to_owned).collect();
        let bases = if is_relative { above } else { vec![PathBuf::from("/")] };
        let mut known = Vec::new();
        for base in bases {
            let found: Vec<_> =
                names.iter().map(|names| self.layer(overlay, names, &base)).collect();
            let whole: Option<Vec<_>> = found.iter().cloned().collect();
            let is_right = |layers: &Vec<FileLocation>| is_confirmed(layers, root, is_relative);
            if let Some(layers) = whole.filter(is_right) {
                return (layers.into_iter().filter_map(|layer| layer.fs_path).collect(), None);
            }
            known.push(found);
        }
        // Layers with absolute names are kept: they are right unless other directories have these
        // names now.
        let known = known.pop().filter(|_| !is_relative).unwrap_or_default();
        let missing = known.iter().position(Option::is_none);
        let upper = upper_directory(&overlay.options);
        let name = match missing {
            Some(index) => names.get(index).and_then(|names| names.first()).cloned(),
            None => upper.or_else(|| names.first()?.first().cloned()),
        };
        let unresolved = UnresolvedLayer { name: name.unwrap_or_default(), at: overlay.at.clone() };
        (known.into_iter().flatten().filter_map(|layer| layer.fs_path).collect(), Some(unresolved))
    }

    /// Returns the directory that one of the names leads to.
    fn layer(&self, overlay: &MountLine, names: &LayerNames, base: &Path) -> Option<FileLocation> {
        // A name is valid in the mount namespace of the overlay, or in the one that created it.
        let namespace = foreign::root_of(&overlay.at);
        let paths = names.iter().flat_map(|name| {
            let inside = namespace.as_ref().filter(|_| name.is_absolute());
            let inside = inside.map(|root| foreign::below(root, name));
            inside.into_iter().chain([base.join(name)])
        });
        let found = paths.filter_map(|path| self.locate_path(&path));
        found.into_iter().find(|found| found.kind == FileType::Directory && found.fs_path.is_some())
    }
}

/// Returns true if these are the layers of an overlay whose root has this inode number.
fn is_confirmed(layers: &[FileLocation], root: Option<u64>, required: bool) -> bool {
    let is_layer = |inode| layers.iter().any(|layer| layer.inode.1 == inode);
    let is_one_filesystem = layers.windows(2).all(|pair| pair[0].inode.0 == pair[1].inode.0);
    match root {
        Some(inode) if required || is_one_filesystem => is_layer(inode),
        _ => !required,
    }
}

fn names(options: &[u8]) -> Vec<LayerNames> {
    let mut layers = Vec::new();
    for option in split(options, b',') {
        let option = unescape(&option);
        let value = |key: &[u8]| option.strip_prefix(key);
        let one = value(b"upperdir=").or(value(b"lowerdir+=")).or(value(b"datadir+="));
        let names = match (value(b"lowerdir="), one) {
            // Directories after a double colon hold data only.
            (Some(list), _) => split_names(list),
            (None, Some(one)) => vec![one.to_vec()],
            (None, None) => continue,
        };
        layers.extend(names.iter().filter(|name| !name.is_empty()).map(|name| both_names(name)));
    }
    layers
}

fn upper_directory(options: &[u8]) -> Option<PathBuf> {
    let options = split(options, b',').into_iter().map(|option| unescape(&option));
    let mut upper = options.filter_map(|option| Some(option.strip_prefix(b"upperdir=")?.to_vec()));
    upper.next().map(|name| path_of(without_escapes(&name)))
}

/// Splits a list at colons that no backslash precedes.
fn split_names(list: &[u8]) -> Vec<Vec<u8>> {
    let (mut names, mut is_escaped) = (vec![Vec::new()], false);
    for &byte in list {
        if byte == b':' && !is_escaped {
            names.push(Vec::new());
        } else {
            names.last_mut().expect("there is always one").push(byte);
        }
        is_escaped = byte == b'\\' && !is_escaped;
    }
    names
}

/// Returns a name without its escapes, as most options contain it, and unchanged.
fn both_names(name: &[u8]) -> LayerNames {
    let mut names = vec![path_of(without_escapes(name)), path_of(name)];
    names.dedup();
    names
}

/// Returns a name in which each backslash stands for the byte after it.
fn without_escapes(name: &[u8]) -> Vec<u8> {
    let mut bytes = name.iter().copied();
    let mut plain = Vec::with_capacity(name.len());
    while let Some(byte) = bytes.next() {
        plain.extend(if byte == b'\\' { bytes.next() } else { Some(byte) });
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_the_kernel_writes_them() {
        let first = |options: &[u8]| {
            names(options).into_iter().map(|names| names[0].clone()).collect::<Vec<_>>()
        };
        let path = PathBuf::from;
        assert_eq!(
            first(b"rw,lowerdir=/a:b::/c\\134:d,upperdir=/u\\134\\054p,workdir=/w,xino=off"),
            [path("/a"), path("b"), path("/c:d"), path("/u,p")]
        );
        assert_eq!(
            first(b"ro,lowerdir+=/x\\040y,datadir+=/z,lowerdir=/e\\134\\134:/f"),
            [path("/x y"), path("/z"), path("/e\\"), path("/f")]
        );
        assert_eq!(names(b"lowerdir+=/q\\134r"), [[path("/qr"), path("/q\\r")]]);
    }
}
