//! What the clients of a server work on: files in a directory, one directory for each client, or places
//! on an export or a block device.
//!
//! Invariants: no client touches what is another's; what was not made here is not removed. Sizes
//! are bytes.

use super::super::error::BenchError;
use super::super::held::{Held, clear_up_beside};
use super::super::target::{AtPath, Buffering, Place, Target};
use super::super::workload::{Space, StartState, TrialContext};
use std::path::{Path, PathBuf};

/// How large everything is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// The most clients that work at the same time.
    pub clients: u64,
    /// Items of each.
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

/// Where the items lie.
#[derive(Debug)]
pub enum Share {
    /// Files in a directory; that of a mounted file server, for one.
    Directory(Directory),
    /// Places on something that is read and written by offset. It is not made here.
    Places(Box<dyn Place>),
}

/// Files of each client in a directory of its own.
#[derive(Debug)]
pub struct Directory {
    path: PathBuf,
    buffering: Buffering,
    made: Option<Held>,
}

impl Directory {
    /// In a new directory inside of one that is there.
    #[must_use]
    pub fn inside(parent: &Path, buffering: Buffering) -> Self {
        let path = parent.join(format!("larder-server-{}", std::process::id()));
        Directory { path, buffering, made: None }
    }

    fn parent(&self) -> PathBuf {
        self.path.parent().unwrap_or(Path::new(".")).to_path_buf()
    }

    fn of_client(&self, client: u64) -> PathBuf {
        self.path.join(format!("client-{}", client + 1))
    }

    fn item(&self, client: u64, item: u64) -> PathBuf {
        self.of_client(client).join(format!("item-{}", item + 1))
    }

    fn make(&mut self, extent: &Extent, stage: &TrialContext<'_>) -> Result<(), BenchError> {
        let create = |path: &Path| {
            std::fs::create_dir(path).map_err(BenchError::io(format!("make {}", path.display())))
        };
        let failed = BenchError::io(format!("make {}", self.path.display()));
        let made = Held::make(&self.path, || std::fs::create_dir(&self.path));
        self.made = Some(made.map_err(failed)?);
        for client in 0..extent.clients {
            create(&self.of_client(client))?;
            for item in 0..extent.items {
                let path = self.item(client, item);
                AtPath::new(&path, extent.item_bytes, self.buffering).prepare(stage)?;
            }
        }
        Ok(())
    }
}

impl Share {
    pub(super) fn description(&self) -> String {
        match self {
            Share::Directory(Directory { buffering: Buffering::Buffered, .. }) => {
                "files in a directory".to_owned()
            }
            Share::Directory(_) => "files in a directory, past the page cache".to_owned(),
            Share::Places(place) => place.description(),
        }
    }

    pub(super) fn space(&self, extent: &Extent) -> Vec<Space> {
        match self {
            Share::Directory(directory) => {
                vec![Space { directory: directory.parent(), bytes: extent.bytes() }]
            }
            Share::Places(place) => place.space(),
        }
    }

    pub(super) fn paths(&self) -> Vec<PathBuf> {
        match self {
            Share::Directory(directory) => vec![directory.parent()],
            Share::Places(place) => place.paths(),
        }
    }

    pub(super) fn prepare(
        &mut self,
        extent: &Extent,
        stage: &TrialContext<'_>,
    ) -> Result<(), BenchError> {
        match self {
            Share::Directory(directory) => directory.make(extent, stage),
            Share::Places(place) => place.prepare(stage),
        }
    }

    pub(super) fn start_state(&mut self, extent: &Extent) -> StartState<'_> {
        match self {
            Share::Directory(directory) => {
                let items = 0..extent.items;
                let all = (0..extent.clients)
                    .flat_map(|client| items.clone().map(move |item| (client, item)));
                StartState::Files(all.map(|(client, item)| directory.item(client, item)).collect())
            }
            Share::Places(place) => place.start_state(),
        }
    }

    pub(super) fn open(&self, extent: &Extent, client: u64) -> Result<Items, BenchError> {
        let lie = match self {
            Share::Directory(directory) => {
                let paths = (0..extent.items).map(|item| directory.item(client, item));
                Lie::Files(paths.collect(), directory.buffering)
            }
            Share::Places(place) => {
                Lie::At(place.open()?, client * extent.items * extent.item_bytes)
            }
        };
        Ok(Items {
            lie,
            item_bytes: extent.item_bytes,
            written: vec![false; as_usize(extent.items)],
        })
    }

    pub(super) fn clean_up(&mut self) -> Result<(), BenchError> {
        match self {
            Share::Directory(directory) if directory.made.is_some() => {
                let failed = BenchError::io(format!("remove {}", directory.path.display()));
                std::fs::remove_dir_all(&directory.path).map_err(failed)?;
                directory.made = None;
                // A rank beside this one may have been killed.
                clear_up_beside(&directory.path);
                Ok(())
            }
            Share::Directory(_) => Ok(()),
            Share::Places(place) => place.clean_up(),
        }
    }
}

/// The items of one client.
pub(super) struct Items {
    lie: Lie,
    item_bytes: u64,
    /// Which were written and not flushed since.
    written: Vec<bool>,
}

enum Lie {
    Files(Vec<PathBuf>, Buffering),
    /// One connection, and the offset of the first item.
    At(Box<dyn Target>, u64),
}

fn as_usize(value: u64) -> usize {
    usize::try_from(value).expect("a number of items fits into memory")
}

/// Each record of an item: its offset and length.
fn records(item_bytes: u64, record: usize) -> impl Iterator<Item = (u64, usize)> {
    let step = record as u64;
    (0..item_bytes.div_ceil(step)).map(move |number| {
        let offset = number * step;
        (offset, as_usize(step.min(item_bytes - offset)))
    })
}

impl Items {
    /// Reads all of an item in records of the length of the buffer.
    pub(super) fn read(&mut self, item: u64, record: &mut [u8]) -> Result<(), BenchError> {
        let item_bytes = self.item_bytes;
        self.on(item, false, |target, at| {
            for (offset, len) in records(item_bytes, record.len()) {
                target.read_at(at + offset, &mut record[..len])?;
            }
            Ok(())
        })
    }

    /// Writes all of an item anew; with `sync` it is stable afterwards.
    pub(super) fn write(&mut self, item: u64, record: &[u8], sync: bool) -> Result<(), BenchError> {
        let item_bytes = self.item_bytes;
        self.written[as_usize(item)] = !sync;
        self.on(item, true, |target, at| {
            for (offset, len) in records(item_bytes, record.len()) {
                target.write_at(at + offset, &record[..len])?;
            }
            if sync { target.flush() } else { Ok(()) }
        })
    }

    /// Reads an item and writes it to another one, record by record, as a program that copies does.
    pub(super) fn copy(
        &mut self,
        item: u64,
        to: u64,
        record: &mut [u8],
        sync: bool,
    ) -> Result<(), BenchError> {
        let item_bytes = self.item_bytes;
        self.written[as_usize(to)] = !sync;
        match &mut self.lie {
            Lie::Files(paths, buffering) => {
                let mut from = opened(&paths[as_usize(item)], item_bytes, *buffering, false)?;
                self.on(to, true, |target, at| {
                    for (offset, len) in records(item_bytes, record.len()) {
                        from.read_at(offset, &mut record[..len])?;
                        target.write_at(at + offset, &record[..len])?;
                    }
                    if sync { target.flush() } else { Ok(()) }
                })
            }
            Lie::At(_, first) => {
                let from = *first + item * item_bytes;
                self.on(to, true, |target, at| {
                    for (offset, len) in records(item_bytes, record.len()) {
                        target.read_at(from + offset, &mut record[..len])?;
                        target.write_at(at + offset, &record[..len])?;
                    }
                    if sync { target.flush() } else { Ok(()) }
                })
            }
        }
    }

    /// Makes everything stable that was written.
    pub(super) fn flush(&mut self) -> Result<(), BenchError> {
        for item in 0..self.written.len() {
            if std::mem::take(&mut self.written[item]) {
                self.on(item as u64, true, |target, _| target.flush())?;
                if matches!(self.lie, Lie::At(..)) {
                    // One flush is for all items of a connection.
                    self.written.fill(false);
                }
            }
        }
        Ok(())
    }

    /// Works on an item, which is opened for it if it is a file, from its first byte on.
    fn on(
        &mut self,
        item: u64,
        writes: bool,
        work: impl FnOnce(&mut dyn Target, u64) -> std::io::Result<()>,
    ) -> Result<(), BenchError> {
        let what = if writes { "write" } else { "read" };
        match &mut self.lie {
            Lie::Files(paths, buffering) => {
                let path = &paths[as_usize(item)];
                let mut target = opened(path, self.item_bytes, *buffering, writes)?;
                let failed = BenchError::io(format!("{what} {}", path.display()));
                work(&mut *target, 0).map_err(failed)
            }
            Lie::At(target, first) => {
                let at = *first + item * self.item_bytes;
                let failed = BenchError::io(format!("{what} {} bytes at {at}", self.item_bytes));
                work(&mut **target, at).map_err(failed)
            }
        }
    }
}

fn opened(
    path: &Path,
    bytes: u64,
    buffering: Buffering,
    writes: bool,
) -> Result<Box<dyn Target>, BenchError> {
    AtPath::existing(path, bytes, buffering, writes).open()
}
