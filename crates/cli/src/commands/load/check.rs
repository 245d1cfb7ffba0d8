//! Whether an image holds what a load was promised.
//!
//! A write is promised when it was answered and had FUA, or when it was answered before a flush
//! was sent, on any connection, and that flush was answered. Each sector must hold, whole, its last
//! promised write or one that was sent later, answered or not. The export held zeros before. A
//! sector is written by one connection, one write at a time: a greater id is a later write.

use super::log::{Record, Records};
use super::sector::{self, Content, Name, SECTOR_BYTES};
use anyhow::{Context, Result, ensure};
use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// Sectors read from the image at once.
const CHUNK_SECTORS: u64 = 2048;

/// What the check found.
#[derive(Debug)]
pub(super) struct Verdict {
    pub(super) promised: u64,
    /// Writes of which a sector is lost; one for all sectors that were never written and are not
    /// zeros.
    pub(super) missing: u64,
    /// Runs of wrong sectors, one sentence each.
    pub(super) findings: Vec<String>,
}

/// A write that was sent.
#[derive(Debug)]
struct Write {
    first: u64,
    sectors: u64,
    fua: bool,
}

/// What the log says.
#[derive(Debug)]
struct Promises {
    seed: u64,
    writes: HashMap<u64, Write>,
    promised: u64,
    /// By sector: its last promised write, or 0.
    floor: Vec<u64>,
    /// By sector: the last write that was sent, or 0.
    last: Vec<u64>,
}

/// Checks the image of a load that wrote this log.
pub(super) fn check(image: &Path, log: &Path) -> Result<Verdict> {
    let promises = Promises::read(Records::open(log)?)?;
    let name = image.display();
    let mut file = File::open(image).with_context(|| format!("open the image {name}"))?;
    let mut wrong = ImageError::default();
    let mut chunk = Vec::new();
    let sectors = promises.floor.len() as u64;
    for first in (0..sectors).step_by(usize::try_from(CHUNK_SECTORS).expect("it is small")) {
        let bytes = CHUNK_SECTORS.min(sectors - first) * SECTOR_BYTES as u64;
        chunk.resize(usize::try_from(bytes).expect("a chunk fits memory"), 0);
        file.read_exact(&mut chunk).with_context(|| {
            format!("read {sectors} sectors, as the log says, from the image {name}")
        })?;
        for (bytes, sector) in chunk.chunks_exact(SECTOR_BYTES).zip(first..) {
            let content = sector::recognise(promises.seed, sector, bytes);
            if !promises.allow(sector, content) {
                wrong.add(&promises, sector, content);
            }
        }
    }
    wrong.end_run(&promises);
    Ok(Verdict {
        promised: promises.promised,
        missing: wrong.writes.len() as u64,
        findings: wrong.findings,
    })
}

fn index(sector: u64) -> usize {
    usize::try_from(sector).expect("a sector of the image")
}

impl Promises {
    fn read(records: Records) -> Result<Self> {
        let sectors = index(records.sectors);
        let mut promises = Promises {
            seed: records.seed,
            writes: HashMap::new(),
            promised: 0,
            floor: vec![0; sectors],
            last: vec![0; sectors],
        };
        // The writes that were answered, in order, and how many when each flush was sent.
        let (mut written, mut sent) = (Vec::new(), HashMap::new());
        let mut covered = 0;
        for record in records {
            match record? {
                Record::Write { id, first, sectors, fua } => {
                    let write = Write { first, sectors: u64::from(sectors), fua };
                    promises.send(id, write)?;
                }
                Record::Written { id } => written.push(id),
                Record::Flush { id } => drop(sent.insert(id, written.len())),
                Record::Flushed { id } => {
                    let sent = sent.remove(&id).context("find the flush of an answer")?;
                    covered = covered.max(sent);
                }
            }
        }
        for (at, id) in written.into_iter().enumerate() {
            let write = promises.writes.get(&id).context("find the write of an answer")?;
            if at < covered || write.fua {
                promises.promised += 1;
                for floor in &mut promises.floor[index(write.first)..][..index(write.sectors)] {
                    *floor = id.max(*floor);
                }
            }
        }
        Ok(promises)
    }

    fn send(&mut self, id: u64, write: Write) -> Result<()> {
        let end = write.first.saturating_add(write.sectors);
        ensure!(end <= self.last.len() as u64, "understand write {}: it is too long", Name(id));
        for last in &mut self.last[index(write.first)..index(end)] {
            ensure!(*last < id, "tell the order of writes {} and {}", Name(*last), Name(id));
            *last = id;
        }
        self.writes.insert(id, write);
        Ok(())
    }

    fn wrote(&self, id: u64, sector: u64) -> bool {
        self.writes
            .get(&id)
            .is_some_and(|write| (write.first..write.first + write.sectors).contains(&sector))
    }

    /// Whether the sector may hold this.
    fn allow(&self, sector: u64, content: Content) -> bool {
        let floor = self.floor[index(sector)];
        match content {
            Content::Zeros => floor == 0,
            Content::Whole(id) => id >= floor && self.wrote(id, sector),
            Content::Torn(_) | Content::Misplaced { .. } | Content::Foreign => false,
        }
    }
}

/// What is wrong with an image.
#[derive(Debug, Default)]
struct ImageError {
    /// The writes that are missing; 0 is none of them.
    writes: HashSet<u64>,
    findings: Vec<String>,
    run: Option<Run>,
}

/// Sectors in a row that are wrong in the same way.
#[derive(Debug)]
struct Run {
    first: u64,
    end: u64,
    content: Content,
    floor: u64,
}

impl ImageError {
    fn add(&mut self, promises: &Promises, sector: u64, content: Content) {
        let floor = promises.floor[index(sector)];
        let blamed = if floor == 0 { promises.last[index(sector)] } else { floor };
        self.writes.insert(blamed);
        if let Some(run) = &mut self.run
            && (run.end, run.content, run.floor) == (sector, content, floor)
        {
            run.end += 1;
            return;
        }
        self.end_run(promises);
        self.run = Some(Run { first: sector, end: sector + 1, content, floor });
    }

    fn end_run(&mut self, promises: &Promises) {
        let Some(Run { first, end, content, floor }) = self.run.take() else { return };
        let last = Name(promises.last[index(first)]);
        let promise = match promises.writes.get(&floor) {
            Some(Write { first, sectors, fua }) => {
                let fua = if *fua { ", FUA" } else { "" };
                format!(
                    "promised was write {} ({sectors} sectors from {first} on{fua})",
                    Name(floor)
                )
            }
            None => "nothing was promised".to_owned(),
        };
        let text = format!(
            "sectors {first} to {}: {content}; {promise}, sent last was write {last}",
            end - 1
        );
        self.findings.push(text);
    }
}

#[cfg(test)]
mod tests;
