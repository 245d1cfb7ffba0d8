//! What the file cache of a host did: the result of `larder watch`, and its forms: JSON (this
//! structure as it is) and text.
//!
//! Invariants: whoever watches fills this in; a ratio is always made of sums of pages, never of
//! other ratios, so it is weighted by what was asked for. Numbers have the unit of their names;
//! pages are those of the machine, `page_bytes` each. What could not be seen is in `missing` and
//! nothing stands in for it.

mod disks;
mod rows;
mod text;

pub use disks::Disk;
pub use rows::rows;

use crate::findings::Finding;
use serde::{Deserialize, Serialize};
use std::ops::{AddAssign, Sub};

/// The name of the JSON form.
pub const SCHEMA: &str = "larder-watch";
/// What is said to have been watched when nothing was left out.
pub const WHOLE: &str = "the whole machine";
/// Its version.
pub const VERSION: u32 = 1;

/// Makes the structure of counts, with sums and differences over all of its fields.
macro_rules! counts {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// What happened to a file by a process, or to several by several.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(default)]
        pub struct Counts {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl AddAssign for Counts {
            fn add_assign(&mut self, other: Counts) {
                $(self.$name = self.$name.saturating_add(other.$name);)*
            }
        }

        impl Sub for Counts {
            type Output = Counts;

            /// What came since `before`. A page may be moved from one count to another after it
            /// was told, so that a difference would be below 0; it is 0 then.
            fn sub(self, before: Counts) -> Counts {
                Counts { $($name: self.$name.saturating_sub(before.$name),)* }
            }
        }
    };
}

counts! {
    /// Requests that read through the cache, whatever their size; those through mappings apart.
    read_requests,
    /// Pages that they asked for.
    read_pages,
    /// Of these, resident before and read or written before.
    hit_pages,
    /// Resident since read-ahead had brought them, and looked up for the first time.
    read_ahead_hit_pages,
    /// Not resident when the request began.
    miss_pages,
    /// Pages of requests that began where the thread's request before had ended.
    in_order_pages,
    /// Places touched through a mapping for the first time: up to 16 pages around are mapped at
    /// once, and what is mapped is not seen again.
    map_touches,
    /// Of these, those whose page was not resident.
    map_misses,
    /// Pages that came into the cache.
    added_pages,
    /// Of these, such that reclaim had evicted while we watched.
    refault_pages,
    /// Writes that the file system told of one by one, as far as it does (ext4, XFS).
    write_requests,
    /// Bytes of these.
    write_bytes,
    /// Pages touched by these, each by one request.
    write_pages,
    /// Of these, not resident before.
    write_new_pages,
    /// Pages that were clean or not there and became dirty, through calls and mappings.
    dirtied_pages,
    /// Of the pages of writes that were told, those that became dirty by them.
    write_dirtied_pages,
    /// Times that a writer was made to wait since too much was dirty.
    throttles,
    /// How long, in milliseconds.
    throttled_ms,
    /// Files written out by the lazy writer, each time that it came to one.
    lazy_flushes,
    /// Pages that it wrote since more than the background threshold was dirty.
    lazy_background_pages,
    /// Since they were old.
    lazy_periodic_pages,
    /// Since somebody called sync(2) or syncfs(2).
    lazy_sync_pages,
    /// Since memory was short.
    lazy_reclaim_pages,
    /// For another reason.
    lazy_other_pages,
    /// Pages that reclaim took, by who ran it.
    evicted_pages,
    /// Pages that went since they were truncated, removed, invalidated or given up on purpose.
    dropped_pages,
    /// Pages that read-ahead had brought and that went before anybody looked them up.
    read_ahead_unused_pages,
    /// Times that reading alone made its inode dirty: the time of access (ext4 tells).
    access_time_updates,
    /// Bytes that were read from disks for it.
    disk_read_bytes,
    /// Bytes that the process wrote to disks itself: fsync(2), direct I/O.
    disk_write_bytes,
    /// Bytes that it had made dirty and that the lazy writer wrote to disks.
    disk_lazy_write_bytes,
}

impl Counts {
    /// The share of the pages read that were resident, 0 to 1; nothing if none were read.
    #[must_use]
    pub fn hit_ratio(&self) -> Option<f64> {
        share(self.hit_pages + self.read_ahead_hit_pages, self.read_pages)
    }

    /// Pages written over while they were dirty: writes that cost no disk anything.
    #[must_use]
    pub fn overwritten_pages(&self) -> u64 {
        self.write_pages.saturating_sub(self.write_dirtied_pages)
    }

    /// Pages that the lazy writer wrote, whatever the reason.
    #[must_use]
    pub fn lazy_pages(&self) -> u64 {
        self.lazy_background_pages
            + self.lazy_periodic_pages
            + self.lazy_sync_pages
            + self.lazy_reclaim_pages
            + self.lazy_other_pages
    }

    /// Bytes from and to disks.
    #[must_use]
    pub fn disk_bytes(&self) -> u64 {
        self.disk_read_bytes + self.disk_write_bytes + self.disk_lazy_write_bytes
    }

    /// Whether nothing happened.
    #[must_use]
    pub fn is_zero(&self) -> bool {
        *self == Counts::default()
    }
}

/// A share of whole numbers.
fn share(part: u64, whole: u64) -> Option<f64> {
    #[expect(clippy::cast_precision_loss, reason = "a share needs no more than 53 bits")]
    let share = part as f64 / whole as f64;
    (whole > 0).then_some(share)
}

/// What a process did to a file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Row {
    /// Path of the file, or its device and inode where nobody knows its name.
    pub file: String,
    /// Number of its device, as the kernel counts within: major and minor.
    pub device: (u32, u32),
    /// Its inode.
    pub inode: u64,
    /// Name of the process.
    pub process: String,
    /// Its number; 0 for threads of the kernel that are counted as one.
    pub pid: u32,
    /// What it did.
    #[serde(flatten)]
    pub counts: Counts,
}

/// Memory at a moment, bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Memory {
    /// Pages of files that are resident.
    pub resident_bytes: u64,
    /// Dirty ones.
    pub dirty_bytes: u64,
    /// Those that are being written.
    pub write_back_bytes: u64,
    /// What programs can still have.
    pub available_bytes: u64,
    /// All of it.
    pub total_bytes: u64,
    /// Above which the lazy writer works whatever the age of pages.
    pub background_threshold_bytes: u64,
    /// Above which writers are made to wait.
    pub dirty_threshold_bytes: u64,
    /// Share of the time since the moment before in which somebody waited for memory, 0 to 1;
    /// nothing where the kernel does not tell.
    pub memory_pressure: Option<f64>,
    /// The same for I/O.
    pub io_pressure: Option<f64>,
    /// Pages that came back after reclaim had evicted them, since the moment before, of all files.
    pub refault_pages: u64,
    /// Pages of files that reclaim took, since the moment before.
    pub reclaimed_pages: u64,
}

/// The memory of a process at a moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessMemory {
    /// Its name.
    pub process: String,
    /// Its number.
    pub pid: u32,
    /// Memory of its own: neither files nor shared.
    pub private_bytes: u64,
}

/// The same data in two caches: files of a loop device, and the image behind it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StackedCache {
    /// The cache near the program.
    pub upper: String,
    /// What came into it and stayed while we watched.
    pub upper_bytes: u64,
    /// What lies below.
    pub lower: String,
    /// How much of that is resident.
    pub lower_bytes: u64,
}

/// Physical I/O that belongs to no file that is known, bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unattributed {
    /// Marked as metadata by the file system.
    pub metadata_bytes: u64,
    /// Read otherwise.
    pub read_bytes: u64,
    /// Written otherwise: journals that are not marked, and what nobody can tell.
    pub write_bytes: u64,
}

/// A part of the time, or all of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// When it began, since the beginning.
    pub begin_ns: u64,
    /// How long it was.
    pub duration_ns: u64,
    /// Sum over all files and processes that are watched.
    pub sum: Counts,
    /// Files by processes, those first that asked for most.
    pub rows: Vec<Row>,
    /// How many rows there were before the last were left out.
    pub rows_all: u64,
    /// Disks that did something.
    pub disks: Vec<Disk>,
    /// Memory at its end.
    pub memory: Memory,
    /// Those processes that had most memory of their own at its end.
    #[serde(default)]
    pub processes: Vec<ProcessMemory>,
    /// Physical I/O without a file, of the whole machine.
    pub unattributed: Unattributed,
    /// Events that the kernel could not keep.
    pub lost_events: u64,
}

/// Everything.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Watch {
    /// [`SCHEMA`].
    pub schema: String,
    /// [`VERSION`].
    pub version: u32,
    /// When it began, RFC 3339.
    pub started_at: String,
    /// What was watched: `the whole machine`, or a path, a process, a group.
    pub scope: String,
    /// Release of the kernel.
    pub kernel: String,
    /// Bytes of a page.
    pub page_bytes: u64,
    /// What could not be seen here, a sentence each, with how to get it.
    pub missing: Vec<String>,
    /// Events that were read.
    pub events: u64,
    /// Processor time that watching took, nanoseconds.
    pub own_cpu_ns: u64,
    /// The most memory that it took, bytes.
    pub own_memory_bytes: u64,
    /// The parts of the time, in order.
    pub intervals: Vec<Interval>,
    /// All of it.
    pub total: Interval,
    /// Caches above each other.
    #[serde(default)]
    pub layers: Vec<StackedCache>,
    /// How look-ups were learnt of, in a few words; empty if they were not.
    #[serde(default)]
    pub means: String,
    /// What the rules find in it.
    #[serde(default)]
    pub findings: Vec<Finding>,
}

/// Why a text is no such result. Can follow "failed to".
#[derive(Debug, thiserror::Error)]
pub enum WatchError {
    /// It is no JSON of this form.
    #[error("read a result of larder watch: {0}")]
    NotOne(#[from] serde_json::Error),
    /// It is of another kind or version.
    #[error("read a result of larder watch: it is {schema} {version}, not {SCHEMA} {VERSION}")]
    Other {
        /// What it says it is.
        schema: String,
        /// And of which version.
        version: u32,
    },
}

impl Watch {
    /// JSON, ending with a line break.
    #[must_use]
    pub fn to_json(&self) -> String {
        let text = serde_json::to_string_pretty(self).expect("numbers, texts and lists");
        text + "\n"
    }

    /// Reads JSON.
    ///
    /// # Errors
    /// It is none of this kind and version.
    pub fn from_json(text: &str) -> Result<Watch, WatchError> {
        let found: Watch = serde_json::from_str(text)?;
        if found.schema == SCHEMA && found.version == VERSION {
            return Ok(found);
        }
        Err(WatchError::Other { schema: found.schema, version: found.version })
    }
}

#[cfg(test)]
mod tests;
