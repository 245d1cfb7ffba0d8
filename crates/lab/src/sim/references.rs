//! Splitting of requests into references: one reference is one page in one request.
//!
//! A reference identifies its page by one number made of volume and page, so that caches and tables
//! need only that number. Reads and writes are references; flushes, discards and write zeroes touch
//! no page for its content and are counted separately. A request of any length is emitted in
//! batches of bounded size.
//!
//! Sizes are bytes.

pub use larder_core::replace::Reference;

use crate::trace::{Addressing, BoxedSource, NameKind, Op, Record, Source, TraceError};

/// References in a batch: enough to make the cost of passing a batch to a cache negligible, few
/// enough to stay in a core's cache.
pub const BATCH_REFERENCES: usize = 4096;

/// Bits of a page's number; the rest of the 64 name the volume.
const PAGE_BITS: u32 = 48;

/// The splitting of requests into references.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Split {
    /// One reference for each page of this many bytes (a power of two) that a request touches.
    Pages(u32),
    /// One reference for each request, identified by its first byte, at any length: simulators of
    /// object caches count block traces like this.
    Requests,
    /// The trace has objects: one reference for each request, identified by the object.
    Objects,
}

impl Split {
    /// Returns the default split of a trace: into the pages in which it was recorded, else into
    /// pages of 4 KiB; objects are not split.
    #[must_use]
    pub fn native(addressing: Addressing) -> Split {
        match addressing {
            Addressing::Bytes => Split::Pages(4096),
            Addressing::Pages { bytes } => Split::Pages(bytes),
            Addressing::Objects => Split::Objects,
        }
    }

    /// Returns the bytes of a page, if pages have a size.
    #[must_use]
    pub fn page_bytes(self) -> Option<u32> {
        match self {
            Split::Pages(bytes) => Some(bytes),
            Split::Requests | Split::Objects => None,
        }
    }
}

/// The key by which references are grouped, for a curve of each group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReferenceKey {
    /// Volume, file or process.
    Name(NameKind),
    /// Reads and writes.
    Operation,
}

impl ReferenceKey {
    /// All keys, in the order of the documentation.
    pub const ALL: [ReferenceKey; 4] = [
        ReferenceKey::Name(NameKind::Volume),
        ReferenceKey::Name(NameKind::File),
        ReferenceKey::Name(NameKind::Process),
        ReferenceKey::Operation,
    ];

    /// Returns the name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            ReferenceKey::Name(kind) => ["volume", "file", "process"][kind as usize],
            ReferenceKey::Operation => "operation",
        }
    }

    /// Returns the number of the group of a record.
    #[must_use]
    pub fn group(self, record: &Record) -> u32 {
        match self {
            ReferenceKey::Name(kind) => record.number_of(kind),
            ReferenceKey::Operation => u32::from(record.op == Op::Write),
        }
    }

    /// Returns the title of a group: its name if the source has one, else its number.
    #[must_use]
    pub fn title(self, group: u32, source: &dyn Source) -> String {
        match self {
            ReferenceKey::Name(kind) => {
                source.name(kind, group).map_or_else(|| group.to_string(), str::to_owned)
            }
            ReferenceKey::Operation => if group == 0 { "read" } else { "write" }.to_owned(),
        }
    }
}

/// A trace that cannot be simulated, as one sentence.
#[derive(Debug, thiserror::Error)]
pub enum ReferenceError {
    /// Reading it failed.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// Volume and page do not fit into one number.
    #[error(
        "simulate request {request}: its page {page} of volume {volume} is out of reach; the limit \
         is 65,536 volumes of 2^48 pages"
    )]
    OutOfReach {
        /// Number of the request, from 1.
        request: u64,
        /// Its volume.
        volume: u32,
        /// Its page.
        page: u64,
    },
}

/// Packs volume and page into one number: the volume in the upper 16 bits, the page in the lower
/// 48. Returns `None` if they do not fit.
#[must_use]
pub fn pack(volume: u32, page: u64) -> Option<u64> {
    let fits = volume < 1 << (u64::BITS - PAGE_BITS) && page < 1 << PAGE_BITS;
    fits.then(|| u64::from(volume) << PAGE_BITS | page)
}

/// Counts of the requests of a trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestCounts {
    /// Reads and writes.
    pub requests: u64,
    /// Requests without references: flushes, discards, write zeroes, and reads and writes of no
    /// bytes.
    pub others: u64,
}

/// A request whose references are emitted page by page.
#[derive(Clone, Copy, Debug)]
struct Pending {
    /// First byte without a reference so far.
    from: u64,
    /// End of the request, exclusive.
    end: u64,
    record: Record,
    group: u32,
}

/// The references of a trace, batch by batch.
pub struct References {
    source: BoxedSource,
    split: Split,
    by: Option<ReferenceKey>,
    records: Vec<Record>,
    next: usize,
    pending: Option<Pending>,
    counts: RequestCounts,
}

/// A batch of references, with the group of each if they are grouped.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    /// The references, in the order of the trace.
    pub references: Vec<Reference>,
    /// The group of each reference; empty if they are not grouped.
    pub groups: Vec<u32>,
}

impl std::fmt::Debug for References {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The source has no `Debug`; the pending request is not worth printing.
        f.debug_struct("References")
            .field("split", &self.split)
            .field("counts", &self.counts)
            .finish_non_exhaustive()
    }
}

impl References {
    /// Creates the references of `source`.
    ///
    /// # Panics
    /// The size of pages is no power of two.
    #[must_use]
    pub fn new(source: BoxedSource, split: Split) -> Self {
        if let Split::Pages(bytes) = split {
            assert!(bytes.is_power_of_two(), "pages of {bytes} bytes");
        }
        References {
            source,
            split,
            by: None,
            records: Vec::new(),
            next: 0,
            pending: None,
            counts: RequestCounts::default(),
        }
    }

    /// Groups the references.
    #[must_use]
    pub fn by(mut self, by: Option<ReferenceKey>) -> Self {
        self.by = by;
        self
    }

    /// Passes all references to `run`, batch by batch.
    ///
    /// # Errors
    /// As [`Self::read_batch`], or an error of `run`.
    pub fn for_each_batch<E: From<ReferenceError>>(
        &mut self,
        mut run: impl FnMut(&Batch) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut batch = Batch::default();
        loop {
            self.read_batch(&mut batch)?;
            if batch.references.is_empty() {
                return Ok(());
            }
            run(&batch)?;
        }
    }

    /// Returns the counts of the requests read so far.
    #[must_use]
    pub fn counts(&self) -> RequestCounts {
        self.counts
    }

    /// Returns the source of the records.
    #[must_use]
    pub fn source(&self) -> &dyn Source {
        &*self.source
    }

    /// Replaces the contents of `batch` with the next references; none at the end.
    ///
    /// # Errors
    /// The trace is bad, cannot be read, or exceeds a limit.
    pub fn read_batch(&mut self, batch: &mut Batch) -> Result<(), ReferenceError> {
        batch.references.clear();
        batch.groups.clear();
        while batch.references.len() < BATCH_REFERENCES {
            if self.pending.is_some() {
                self.emit_references(batch)?;
                continue;
            }
            if self.next == self.records.len() {
                self.next = 0;
                if !self.source.next_batch(&mut self.records)? {
                    break;
                }
            }
            let record = self.records[self.next];
            self.next += 1;
            self.begin(record);
        }
        Ok(())
    }

    fn begin(&mut self, record: Record) {
        let has_references =
            record.op.transfers() && (record.len > 0 || self.split.page_bytes().is_none());
        if !has_references {
            self.counts.others += 1;
            return;
        }
        self.counts.requests += 1;
        let end = record.end();
        let group = self.by.map_or(0, |by| by.group(&record));
        self.pending = Some(Pending { from: record.offset, end, record, group });
    }

    fn emit_references(&mut self, batch: &mut Batch) -> Result<(), ReferenceError> {
        let Some(mut pending) = self.pending.take() else { return Ok(()) };
        let Pending { record, group, .. } = pending;
        let write = record.op == Op::Write;
        let Split::Pages(page_bytes) = self.split else {
            let page = match self.split {
                Split::Objects => record.offset,
                _ => self.page_key(record, record.offset)?,
            };
            let bytes = u32::try_from(record.len).unwrap_or(u32::MAX);
            let reference = Reference { page, bytes, write, partial: false, first: true };
            self.add(batch, reference, group);
            return Ok(());
        };
        let shift = page_bytes.trailing_zeros();
        while pending.from < pending.end && batch.references.len() < BATCH_REFERENCES {
            let page = pending.from >> shift;
            // The end of the last page would be beyond the address space.
            let page_end = (page << shift).saturating_add(u64::from(page_bytes));
            let end = page_end.min(pending.end);
            let bytes = u32::try_from(end - pending.from).expect("within a page");
            let reference = Reference {
                page: self.page_key(record, page)?,
                bytes,
                write,
                partial: bytes != page_bytes,
                first: pending.from == record.offset,
            };
            self.add(batch, reference, group);
            pending.from = end;
        }
        if pending.from < pending.end {
            self.pending = Some(pending);
        }
        Ok(())
    }

    fn add(&self, batch: &mut Batch, reference: Reference, group: u32) {
        batch.references.push(reference);
        if self.by.is_some() {
            batch.groups.push(group);
        }
    }

    fn page_key(&self, record: Record, page: u64) -> Result<u64, ReferenceError> {
        let Record { volume, .. } = record;
        let request = self.counts.requests + self.counts.others;
        pack(volume, page).ok_or(ReferenceError::OutOfReach { request, volume, page })
    }
}

#[cfg(test)]
mod tests;
