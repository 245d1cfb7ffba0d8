//! What a volume may hold, sector by sector: the specification that the cache is checked against.
//!
//! A sector has a set of contents that a read may return now, more than one only where a change
//! failed or is advice. Contents that were replaced stay in the past, as what a crash may leave,
//! until a flush that was submitted after the replacement was acknowledged says that it went well.
//! Times are numbers of events, not nanoseconds.

use larder_core::store::SparseBytes;
use larder_core::units::SECTOR_BYTES;
use std::ops::Range;
use std::rc::Rc;

/// What a sector holds.
pub(crate) type Content = Rc<[u8]>;

const SECTOR: u64 = SECTOR_BYTES as u64;

/// How a change ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It was acknowledged.
    Done,
    /// It was acknowledged and is on stable storage.
    Stable,
    /// It failed, or nobody was told: it may have happened or not.
    Unknown,
    /// It was refused before anything was done.
    Refused,
}

#[derive(Debug)]
struct Sector {
    now: Vec<Content>,
    /// Contents that a change in flight would leave.
    flying: Vec<Content>,
    /// What was replaced, and at which event.
    past: Vec<(Content, u64)>,
}

/// A volume as its clients know it.
#[derive(Debug)]
pub(crate) struct Model {
    sectors: Vec<Sector>,
    length: u64,
    event: u64,
}

/// The byte at `offset` of the content that write number `id` writes; 0 is the first content.
pub(crate) fn byte_of(id: u64, offset: u64) -> u8 {
    let word = (id + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    word.to_le_bytes()[usize::try_from(offset % 8).unwrap()] ^ offset.to_le_bytes()[1]
}

/// The bytes that write number `id` writes to `range`.
pub(crate) fn bytes_of(id: u64, range: Range<u64>) -> Vec<u8> {
    range.map(|offset| byte_of(id, offset)).collect()
}

fn push_new(to: &mut Vec<Content>, content: Content) {
    if !to.contains(&content) {
        to.push(content);
    }
}

impl Model {
    /// A volume that holds the first content.
    pub(crate) fn new(length: u64) -> Self {
        let sector = |index: u64| {
            let start = index * SECTOR;
            let mut bytes = bytes_of(0, start..length.min(start + SECTOR));
            bytes.resize(SECTOR_BYTES, 0);
            Sector { now: vec![bytes.into()], flying: Vec::new(), past: Vec::new() }
        };
        Model { sectors: (0..length.div_ceil(SECTOR)).map(sector).collect(), length, event: 0 }
    }

    fn touched(range: &Range<u64>) -> Range<usize> {
        let index = |sector: u64| usize::try_from(sector).unwrap();
        index(range.start / SECTOR)..index(range.end.div_ceil(SECTOR))
    }

    /// The number of the next event.
    pub(crate) fn event(&mut self) -> u64 {
        self.event += 1;
        self.event
    }

    /// Whether a change of a part of `range` is in flight.
    pub(crate) fn is_busy(&self, range: &Range<u64>) -> bool {
        self.sectors[Self::touched(range)].iter().any(|sector| !sector.flying.is_empty())
    }

    /// A change to `data` is on its way.
    pub(crate) fn begin(&mut self, range: &Range<u64>, data: &[u8]) {
        assert!(!self.is_busy(range) && range.end <= self.length, "a change to {range:?}");
        for index in Self::touched(range) {
            let sector = &mut self.sectors[index];
            let first = index as u64 * SECTOR;
            let part = range.start.max(first)..range.end.min(first + SECTOR);
            let within = |base: u64| {
                let [start, end] = [part.start, part.end].map(|n| usize::try_from(n - base));
                start.unwrap()..end.unwrap()
            };
            for old in &sector.now {
                let mut new = old.to_vec();
                new[within(first)].copy_from_slice(&data[within(range.start)]);
                push_new(&mut sector.flying, new.into());
            }
        }
    }

    /// A change has come to its end.
    pub(crate) fn end(&mut self, range: &Range<u64>, outcome: Outcome) {
        let event = self.event();
        for sector in &mut self.sectors[Self::touched(range)] {
            let new = std::mem::take(&mut sector.flying);
            if outcome == Outcome::Refused {
                continue;
            }
            if outcome == Outcome::Unknown {
                for content in new {
                    push_new(&mut sector.now, content);
                }
                continue;
            }
            let old = std::mem::replace(&mut sector.now, new);
            sector.past.extend(old.into_iter().map(|content| (content, event)));
            if outcome == Outcome::Stable {
                sector.past.clear();
            }
        }
    }

    /// A flush that was submitted at `event` went well.
    pub(crate) fn flushed(&mut self, event: u64) {
        for sector in &mut self.sectors {
            sector.past.retain(|&(_, replaced)| replaced > event);
        }
    }

    /// A flush of `range` that was submitted at `event` went well.
    pub(crate) fn range_flushed(&mut self, range: &Range<u64>, event: u64) {
        for sector in &mut self.sectors[Self::touched(range)] {
            sector.past.retain(|&(_, replaced)| replaced > event);
        }
    }

    /// What a read of `range` that begins now may return, by sector.
    pub(crate) fn readable(&self, range: &Range<u64>) -> Vec<Vec<Content>> {
        let both = |sector: &Sector| [&sector.now[..], &sector.flying[..]].concat();
        self.sectors[Self::touched(range)].iter().map(both).collect()
    }

    /// Adds to what a read in flight of `range` may return, because of a change to `changed`.
    pub(crate) fn widen(
        &self,
        range: &Range<u64>,
        allowed: &mut [Vec<Content>],
        changed: &Range<u64>,
    ) {
        let first = Self::touched(range).start;
        let (read, changed) = (Self::touched(range), Self::touched(changed));
        for index in read.start.max(changed.start)..read.end.min(changed.end) {
            for content in &self.sectors[index].flying {
                push_new(&mut allowed[index - first], Rc::clone(content));
            }
        }
    }

    /// Asserts that `bytes`, the answer to a read of `range`, were allowed.
    pub(crate) fn check_read(range: &Range<u64>, bytes: &[u8], allowed: &[Vec<Content>]) {
        for (index, contents) in Self::touched(range).zip(allowed) {
            let first = index as u64 * SECTOR;
            let part = range.start.max(first)..range.end.min(first + SECTOR);
            let within = |base: u64| {
                let [start, end] = [part.start, part.end].map(|n| usize::try_from(n - base));
                start.unwrap()..end.unwrap()
            };
            let found = &bytes[within(range.start)];
            assert!(
                contents.iter().any(|content| &content[within(first)] == found),
                "a read of {range:?} returned {:02x?} in sector {index}, allowed are {}",
                &found[..found.len().min(8)],
                heads(contents.iter())
            );
        }
    }

    /// Asserts that `bytes` hold what they may: after a crash what is past too, else only what a
    /// read may return.
    pub(crate) fn check_store(&self, bytes: &SparseBytes, crashed: bool) {
        let mut found = [0; SECTOR_BYTES];
        for (index, sector) in self.sectors.iter().enumerate() {
            let start = index as u64 * SECTOR;
            let len = usize::try_from(self.length.min(start + SECTOR) - start).unwrap();
            bytes.read(start, &mut found[..len]);
            let matches = |content: &Content| content[..len] == found[..len];
            let past = || sector.past.iter().map(|(content, _)| content);
            let is_allowed = sector.now.iter().any(matches)
                || (crashed && (sector.flying.iter().any(matches) || past().any(matches)));
            assert!(
                is_allowed,
                "sector {index} holds {:02x?} {}; now {}; in flight {}; past {}",
                &found[..8],
                if crashed { "after a crash" } else { "at rest" },
                heads(sector.now.iter()),
                heads(sector.flying.iter()),
                heads(past())
            );
        }
    }
}

fn heads<'a>(contents: impl Iterator<Item = &'a Content>) -> String {
    contents.map(|content| format!("{:02x?}", &content[..8])).collect::<Vec<_>>().join(" ")
}
