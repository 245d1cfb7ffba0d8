//! Checks that an image holds the data whose durability a load was promised.
//!
//! A write is promised to be durable when the server acknowledged it and it had FUA, or when the
//! server acknowledged it before a flush was sent, on any connection, and then acknowledged that
//! flush. Each sector must hold, completely, its last promised write or one that was sent later,
//! acknowledged or not. The export held zeros before. A sector is written by one connection, one
//! write at a time: a greater id is a later write.

use super::log::{Record, Records};
use super::sector::{self, Content, Name, SECTOR_BYTES};
use super::{LoadError, io_error};
use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// Sectors read from the image at once.
const CHUNK_SECTORS: u64 = 2048;

/// Result of a check.
#[derive(Debug)]
pub struct CheckResult {
    /// Number of writes whose durability the server has acknowledged.
    pub promised: u64,
    /// Number of writes with a lost sector; all nonzero sectors that were never written count as
    /// one write.
    pub missing: u64,
    /// Descriptions of runs of wrong sectors.
    pub findings: Vec<String>,
}

/// A write that was sent.
#[derive(Debug)]
struct Write {
    first: u64,
    sectors: u64,
    fua: bool,
}

/// The valid states of the image, according to the log.
#[derive(Debug)]
struct ExpectedImage {
    seed: u64,
    writes: HashMap<u64, Write>,
    promised: u64,
    /// By sector: its last promised write, or 0.
    floor: Vec<u64>,
    /// By sector: the last write that was sent, or 0.
    last: Vec<u64>,
}

/// Checks the image of a load that wrote this log.
///
/// # Errors
/// A file cannot be read, or the log is none of a load.
pub fn check(image: &Path, log: &Path) -> Result<CheckResult, LoadError> {
    let expected = ExpectedImage::read(Records::open(log)?)?;
    let name = image.display();
    let mut file = File::open(image).map_err(io_error(format!("open the image {name}")))?;
    let mut errors = ImageErrors::default();
    let mut chunk = Vec::new();
    let sectors = expected.floor.len() as u64;
    for first in (0..sectors).step_by(usize::try_from(CHUNK_SECTORS).expect("it is small")) {
        let bytes = CHUNK_SECTORS.min(sectors - first) * SECTOR_BYTES as u64;
        chunk.resize(usize::try_from(bytes).expect("a chunk fits memory"), 0);
        file.read_exact(&mut chunk).map_err(|error| {
            io_error(format!("read {sectors} sectors, as the log says, from the image {name}"))(
                error,
            )
        })?;
        for (bytes, sector) in chunk.chunks_exact(SECTOR_BYTES).zip(first..) {
            let content = sector::classify(expected.seed, sector, bytes);
            if !expected.allows(sector, content) {
                errors.add(&expected, sector, content);
            }
        }
    }
    errors.end_run(&expected);
    Ok(CheckResult {
        promised: expected.promised,
        missing: errors.writes.len() as u64,
        findings: errors.findings,
    })
}

fn refused(text: impl Into<String>) -> LoadError {
    LoadError::Refused(text.into())
}

fn sector_index(sector: u64) -> usize {
    usize::try_from(sector).expect("a sector of the image")
}

impl ExpectedImage {
    fn read(records: Records) -> Result<Self, LoadError> {
        let sectors = sector_index(records.sectors);
        let mut expected = ExpectedImage {
            seed: records.seed,
            writes: HashMap::new(),
            promised: 0,
            floor: vec![0; sectors],
            last: vec![0; sectors],
        };
        // The acknowledged writes in order, and the number of them when each flush was sent.
        let (mut written, mut sent) = (Vec::new(), HashMap::new());
        let mut covered = 0;
        for record in records {
            match record? {
                Record::Write { id, first, sectors, fua } => {
                    let write = Write { first, sectors: u64::from(sectors), fua };
                    expected.send(id, write)?;
                }
                Record::Written { id } => written.push(id),
                Record::Flush { id } => drop(sent.insert(id, written.len())),
                Record::Flushed { id } => {
                    let sent = sent.remove(&id);
                    let sent = sent.ok_or_else(|| refused("find the flush of an answer"))?;
                    covered = covered.max(sent);
                }
            }
        }
        for (index, id) in written.into_iter().enumerate() {
            let write = expected.writes.get(&id);
            let write = write.ok_or_else(|| refused("find the write of an answer"))?;
            if index < covered || write.fua {
                expected.promised += 1;
                for floor in
                    &mut expected.floor[sector_index(write.first)..][..sector_index(write.sectors)]
                {
                    *floor = id.max(*floor);
                }
            }
        }
        Ok(expected)
    }

    fn send(&mut self, id: u64, write: Write) -> Result<(), LoadError> {
        let end = write.first.saturating_add(write.sectors);
        if end > self.last.len() as u64 {
            return Err(refused(format!("understand write {}: it is too long", Name(id))));
        }
        for last in &mut self.last[sector_index(write.first)..sector_index(end)] {
            if *last >= id {
                let text = format!("tell the order of writes {} and {}", Name(*last), Name(id));
                return Err(refused(text));
            }
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

    /// Returns true if the sector may hold this content.
    fn allows(&self, sector: u64, content: Content) -> bool {
        let floor = self.floor[sector_index(sector)];
        match content {
            Content::Zeros => floor == 0,
            Content::Intact(id) => id >= floor && self.wrote(id, sector),
            Content::Torn(_) | Content::Misplaced { .. } | Content::Foreign => false,
        }
    }
}

/// The errors of an image.
#[derive(Debug, Default)]
struct ImageErrors {
    /// The missing writes; 0 stands for all sectors that were never written.
    writes: HashSet<u64>,
    findings: Vec<String>,
    run: Option<SectorRun>,
}

/// Consecutive sectors with the same error.
#[derive(Debug)]
struct SectorRun {
    first: u64,
    end: u64,
    content: Content,
    floor: u64,
}

impl ImageErrors {
    fn add(&mut self, expected: &ExpectedImage, sector: u64, content: Content) {
        let floor = expected.floor[sector_index(sector)];
        let missing = if floor == 0 { expected.last[sector_index(sector)] } else { floor };
        self.writes.insert(missing);
        if let Some(run) = &mut self.run
            && (run.end, run.content, run.floor) == (sector, content, floor)
        {
            run.end += 1;
            return;
        }
        self.end_run(expected);
        self.run = Some(SectorRun { first: sector, end: sector + 1, content, floor });
    }

    fn end_run(&mut self, expected: &ExpectedImage) {
        let Some(SectorRun { first, end, content, floor }) = self.run.take() else { return };
        let last = Name(expected.last[sector_index(first)]);
        let promise = match expected.writes.get(&floor) {
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
