//! Targets of the clients of a server: files in one directory per client, or ranges of an export or
//! a block device.
//!
//! Invariants: no client touches the items of another; only what was made here is removed. Sizes
//! are bytes.

use super::super::error::BenchError;
use super::super::target::{Buffering, Target, TargetPath, TargetSource};
use super::super::workload::{Space, StartState, TrialContext};
use crate::locked_path::{LockedPath, clear_up_siblings};
use std::path::{Path, PathBuf};

/// Numbers and sizes of the items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Maximum number of concurrent clients.
    pub clients: u64,
    /// Items of each client.
    pub items: u64,
    /// Bytes of an item.
    pub item_bytes: u64,
}

impl Extent {
    /// Bytes of all items.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.clients.saturating_mul(self.items).saturating_mul(self.item_bytes)
    }
}

/// Location of the items.
#[derive(Debug)]
pub enum ItemLocation {
    /// Files in a directory, such as that of a mounted file server.
    Directory(Directory),
    /// Ranges of a target that is read and written by offset, and not created here.
    Places(Box<dyn TargetSource>),
}

/// A directory for each client with its files.
#[derive(Debug)]
pub struct Directory {
    path: PathBuf,
    buffering: Buffering,
    created: Option<LockedPath>,
}

impl Directory {
    /// Returns a new directory inside an existing one.
    #[must_use]
    pub fn inside(parent: &Path, buffering: Buffering) -> Self {
        let path = parent.join(format!("larder-server-{}", std::process::id()));
        Directory { path, buffering, created: None }
    }

    fn parent(&self) -> PathBuf {
        self.path.parent().unwrap_or(Path::new(".")).to_path_buf()
    }

    fn client_directory(&self, client: u64) -> PathBuf {
        self.path.join(format!("client-{}", client + 1))
    }

    fn item(&self, client: u64, item: u64) -> PathBuf {
        self.client_directory(client).join(format!("item-{}", item + 1))
    }

    fn make(&mut self, extent: &Extent, context: &TrialContext<'_>) -> Result<(), BenchError> {
        let create = |path: &Path| {
            std::fs::create_dir(path).map_err(BenchError::io(format!("make {}", path.display())))
        };
        let failed = BenchError::io(format!("make {}", self.path.display()));
        let created = LockedPath::make(&self.path, || std::fs::create_dir(&self.path));
        self.created = Some(created.map_err(failed)?);
        for client in 0..extent.clients {
            create(&self.client_directory(client))?;
            for item in 0..extent.items {
                let path = self.item(client, item);
                TargetPath::new(&path, extent.item_bytes, self.buffering).prepare(context)?;
            }
        }
        Ok(())
    }
}

impl ItemLocation {
    pub(super) fn description(&self) -> String {
        match self {
            ItemLocation::Directory(Directory { buffering: Buffering::Buffered, .. }) => {
                "files in a directory".to_owned()
            }
            ItemLocation::Directory(_) => "files in a directory, past the page cache".to_owned(),
            ItemLocation::Places(place) => place.description(),
        }
    }

    pub(super) fn space(&self, extent: &Extent) -> Vec<Space> {
        match self {
            ItemLocation::Directory(directory) => {
                vec![Space { directory: directory.parent(), bytes: extent.bytes() }]
            }
            ItemLocation::Places(place) => place.space(),
        }
    }

    pub(super) fn paths(&self) -> Vec<PathBuf> {
        match self {
            ItemLocation::Directory(directory) => vec![directory.parent()],
            ItemLocation::Places(place) => place.paths(),
        }
    }

    pub(super) fn prepare(
        &mut self,
        extent: &Extent,
        context: &TrialContext<'_>,
    ) -> Result<(), BenchError> {
        match self {
            ItemLocation::Directory(directory) => directory.make(extent, context),
            ItemLocation::Places(place) => place.prepare(context),
        }
    }

    pub(super) fn start_state(&mut self, extent: &Extent) -> StartState<'_> {
        match self {
            ItemLocation::Directory(directory) => {
                let items = 0..extent.items;
                let all = (0..extent.clients)
                    .flat_map(|client| items.clone().map(move |item| (client, item)));
                StartState::Files(all.map(|(client, item)| directory.item(client, item)).collect())
            }
            ItemLocation::Places(place) => place.start_state(),
        }
    }

    pub(super) fn open(&self, extent: &Extent, client: u64) -> Result<Items, BenchError> {
        let storage = match self {
            ItemLocation::Directory(directory) => {
                let paths = (0..extent.items).map(|item| directory.item(client, item));
                ItemStorage::Files(paths.collect(), directory.buffering)
            }
            ItemLocation::Places(place) => {
                ItemStorage::At(place.open()?, client * extent.items * extent.item_bytes)
            }
        };
        Ok(Items {
            storage,
            item_bytes: extent.item_bytes,
            unflushed: vec![false; as_usize(extent.items)],
        })
    }

    pub(super) fn clean_up(&mut self) -> Result<(), BenchError> {
        match self {
            ItemLocation::Directory(directory) if directory.created.is_some() => {
                let failed = BenchError::io(format!("remove {}", directory.path.display()));
                std::fs::remove_dir_all(&directory.path).map_err(failed)?;
                directory.created = None;
                // Another rank may have been killed.
                clear_up_siblings(&directory.path);
                Ok(())
            }
            ItemLocation::Directory(_) => Ok(()),
            ItemLocation::Places(place) => place.clean_up(),
        }
    }
}

/// The items of one client.
pub(super) struct Items {
    storage: ItemStorage,
    item_bytes: u64,
    /// True for each item that was written and not flushed since.
    unflushed: Vec<bool>,
}

enum ItemStorage {
    Files(Vec<PathBuf>, Buffering),
    /// One connection, and the offset of the first item.
    At(Box<dyn Target>, u64),
}

fn as_usize(value: u64) -> usize {
    usize::try_from(value).expect("a number of items fits into memory")
}

/// Returns offset and length of each record of an item.
fn records(item_bytes: u64, record: usize) -> impl Iterator<Item = (u64, usize)> {
    let step = record as u64;
    (0..item_bytes.div_ceil(step)).map(move |number| {
        let offset = number * step;
        (offset, as_usize(step.min(item_bytes - offset)))
    })
}

impl Items {
    /// Reads an item completely, in records of the length of the buffer.
    pub(super) fn read(&mut self, item: u64, record: &mut [u8]) -> Result<(), BenchError> {
        let item_bytes = self.item_bytes;
        self.with_item(item, false, |target, at| {
            for (offset, len) in records(item_bytes, record.len()) {
                target.read_at(at + offset, &mut record[..len])?;
            }
            Ok(())
        })
    }

    /// Overwrites an item completely; with `sync`, flushes it.
    pub(super) fn write(&mut self, item: u64, record: &[u8], sync: bool) -> Result<(), BenchError> {
        let item_bytes = self.item_bytes;
        self.unflushed[as_usize(item)] = !sync;
        self.with_item(item, true, |target, at| {
            for (offset, len) in records(item_bytes, record.len()) {
                target.write_at(at + offset, &record[..len])?;
            }
            if sync { target.flush() } else { Ok(()) }
        })
    }

    /// Reads an item and writes it to another one, record by record, like a copying program.
    pub(super) fn copy(
        &mut self,
        item: u64,
        to: u64,
        record: &mut [u8],
        sync: bool,
    ) -> Result<(), BenchError> {
        let item_bytes = self.item_bytes;
        self.unflushed[as_usize(to)] = !sync;
        match &mut self.storage {
            ItemStorage::Files(paths, buffering) => {
                let mut from = open_item(&paths[as_usize(item)], item_bytes, *buffering, false)?;
                self.with_item(to, true, |target, at| {
                    for (offset, len) in records(item_bytes, record.len()) {
                        from.read_at(offset, &mut record[..len])?;
                        target.write_at(at + offset, &record[..len])?;
                    }
                    if sync { target.flush() } else { Ok(()) }
                })
            }
            ItemStorage::At(_, first) => {
                let from = *first + item * item_bytes;
                self.with_item(to, true, |target, at| {
                    for (offset, len) in records(item_bytes, record.len()) {
                        target.read_at(from + offset, &mut record[..len])?;
                        target.write_at(at + offset, &record[..len])?;
                    }
                    if sync { target.flush() } else { Ok(()) }
                })
            }
        }
    }

    /// Flushes all data that was written.
    pub(super) fn flush(&mut self) -> Result<(), BenchError> {
        for item in 0..self.unflushed.len() {
            if std::mem::take(&mut self.unflushed[item]) {
                self.with_item(item as u64, true, |target, _| target.flush())?;
                if matches!(self.storage, ItemStorage::At(..)) {
                    // One flush covers all items of a connection.
                    self.unflushed.fill(false);
                }
            }
        }
        Ok(())
    }

    /// Calls `work` with the target of an item, opened for it if it is a file, and with the offset
    /// of its first byte.
    fn with_item(
        &mut self,
        item: u64,
        writes: bool,
        work: impl FnOnce(&mut dyn Target, u64) -> std::io::Result<()>,
    ) -> Result<(), BenchError> {
        let what = if writes { "write" } else { "read" };
        match &mut self.storage {
            ItemStorage::Files(paths, buffering) => {
                let path = &paths[as_usize(item)];
                let mut target = open_item(path, self.item_bytes, *buffering, writes)?;
                let failed = BenchError::io(format!("{what} {}", path.display()));
                work(&mut *target, 0).map_err(failed)
            }
            ItemStorage::At(target, first) => {
                let at = *first + item * self.item_bytes;
                let failed = BenchError::io(format!("{what} {} bytes at {at}", self.item_bytes));
                work(&mut **target, at).map_err(failed)
            }
        }
    }
}

fn open_item(
    path: &Path,
    bytes: u64,
    buffering: Buffering,
    writes: bool,
) -> Result<Box<dyn Target>, BenchError> {
    TargetPath::existing(path, bytes, buffering, writes).open()
}
