//! The possible content of a volume, sector by sector: the specification that the cache is checked
//! against.
//!
//! A sector has a set of contents that a read may return now; there is more than one only where a
//! change failed or was advisory. Replaced contents stay in the past, as possible contents after a
//! crash, until the success of a flush that was submitted after the replacement was acknowledged.
//! Times are numbers of events, not nanoseconds.

use larder_core::store::SparseBytes;
use larder_core::units::SECTOR_BYTES;
use std::ops::Range;
use std::rc::Rc;

/// The content of a sector.
pub(crate) type Content = Rc<[u8]>;

const SECTOR: u64 = SECTOR_BYTES as u64;

/// The result of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It was acknowledged.
    Done,
    /// It was acknowledged and is on stable storage.
    Stable,
    /// It failed, or its client received no reply: it may or may not have taken effect.
    Unknown,
    /// The cache refused it before any effect.
    Refused,
}

#[derive(Debug)]
struct Sector {
    now: Vec<Content>,
    /// Contents that a change in flight would leave.
    in_flight: Vec<Content>,
    /// Replaced contents, each with the event of its replacement.
    past: Vec<(Content, u64)>,
}

/// A volume from the view of its clients.
#[derive(Debug)]
pub(crate) struct Model {
    sectors: Vec<Sector>,
    length: u64,
    event: u64,
}

/// Returns the byte at `offset` of the content of write number `id`; 0 is the initial content.
pub(crate) fn byte_of(id: u64, offset: u64) -> u8 {
    let word = (id + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    word.to_le_bytes()[usize::try_from(offset % 8).unwrap()] ^ offset.to_le_bytes()[1]
}

/// Returns the bytes that write number `id` writes to `range`.
pub(crate) fn bytes_of(id: u64, range: Range<u64>) -> Vec<u8> {
    range.map(|offset| byte_of(id, offset)).collect()
}

fn push_new(to: &mut Vec<Content>, content: Content) {
    if !to.contains(&content) {
        to.push(content);
    }
}

impl Model {
    /// Creates a volume with the initial content.
    pub(crate) fn new(length: u64) -> Self {
        let sector = |index: u64| {
            let start = index * SECTOR;
            let mut bytes = bytes_of(0, start..length.min(start + SECTOR));
            bytes.resize(SECTOR_BYTES, 0);
            Sector { now: vec![bytes.into()], in_flight: Vec::new(), past: Vec::new() }
        };
        Model { sectors: (0..length.div_ceil(SECTOR)).map(sector).collect(), length, event: 0 }
    }

    fn sectors_of(range: &Range<u64>) -> Range<usize> {
        let index = |sector: u64| usize::try_from(sector).unwrap();
        index(range.start / SECTOR)..index(range.end.div_ceil(SECTOR))
    }

    /// Returns the number of the next event.
    pub(crate) fn event(&mut self) -> u64 {
        self.event += 1;
        self.event
    }

    /// Returns true if a change to a part of `range` is in flight.
    pub(crate) fn is_busy(&self, range: &Range<u64>) -> bool {
        self.sectors[Self::sectors_of(range)].iter().any(|sector| !sector.in_flight.is_empty())
    }

    /// Begins a change of `range` to `data`.
    pub(crate) fn begin(&mut self, range: &Range<u64>, data: &[u8]) {
        assert!(!self.is_busy(range) && range.end <= self.length, "a change to {range:?}");
        for index in Self::sectors_of(range) {
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
                push_new(&mut sector.in_flight, new.into());
            }
        }
    }

    /// Ends a change.
    pub(crate) fn end(&mut self, range: &Range<u64>, outcome: Outcome) {
        let event = self.event();
        for sector in &mut self.sectors[Self::sectors_of(range)] {
            let new = std::mem::take(&mut sector.in_flight);
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

    /// Records the success of a flush that was submitted at `event`.
    pub(crate) fn flushed(&mut self, event: u64) {
        for sector in &mut self.sectors {
            sector.past.retain(|&(_, replaced)| replaced > event);
        }
    }

    /// Records the success of a flush of `range` that was submitted at `event`.
    pub(crate) fn range_flushed(&mut self, range: &Range<u64>, event: u64) {
        for sector in &mut self.sectors[Self::sectors_of(range)] {
            sector.past.retain(|&(_, replaced)| replaced > event);
        }
    }

    /// Returns the contents that a read of `range` that begins now may return, by sector.
    pub(crate) fn readable(&self, range: &Range<u64>) -> Vec<Vec<Content>> {
        let both = |sector: &Sector| [&sector.now[..], &sector.in_flight[..]].concat();
        self.sectors[Self::sectors_of(range)].iter().map(both).collect()
    }

    /// Extends the contents that a read in flight of `range` may return by those of a change to
    /// `changed`.
    pub(crate) fn allow_new_content(
        &self,
        range: &Range<u64>,
        allowed: &mut [Vec<Content>],
        changed: &Range<u64>,
    ) {
        let first = Self::sectors_of(range).start;
        let (read, changed) = (Self::sectors_of(range), Self::sectors_of(changed));
        for index in read.start.max(changed.start)..read.end.min(changed.end) {
            for content in &self.sectors[index].in_flight {
                push_new(&mut allowed[index - first], Rc::clone(content));
            }
        }
    }

    /// Asserts that `bytes`, the result of a read of `range`, were allowed.
    pub(crate) fn check_read(range: &Range<u64>, bytes: &[u8], allowed: &[Vec<Content>]) {
        for (index, contents) in Self::sectors_of(range).zip(allowed) {
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
                first_bytes(contents.iter())
            );
        }
    }

    /// Asserts that `bytes` are permitted content: after a crash including past content, otherwise
    /// only content that a read may return.
    pub(crate) fn check_store(&self, bytes: &SparseBytes, crashed: bool) {
        let mut found = [0; SECTOR_BYTES];
        for (index, sector) in self.sectors.iter().enumerate() {
            let start = index as u64 * SECTOR;
            let len = usize::try_from(self.length.min(start + SECTOR) - start).unwrap();
            bytes.read(start, &mut found[..len]);
            let matches = |content: &Content| content[..len] == found[..len];
            let past = || sector.past.iter().map(|(content, _)| content);
            let is_allowed = sector.now.iter().any(matches)
                || (crashed && (sector.in_flight.iter().any(matches) || past().any(matches)));
            assert!(
                is_allowed,
                "sector {index} holds {:02x?} {}; now {}; in flight {}; past {}",
                &found[..8],
                if crashed { "after a crash" } else { "at rest" },
                first_bytes(sector.now.iter()),
                first_bytes(sector.in_flight.iter()),
                first_bytes(past())
            );
        }
    }
}

fn first_bytes<'a>(contents: impl Iterator<Item = &'a Content>) -> String {
    contents.map(|content| format!("{:02x?}", &content[..8])).collect::<Vec<_>>().join(" ")
}
