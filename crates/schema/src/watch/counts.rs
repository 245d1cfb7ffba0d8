//! Counts of accesses.

use crate::share;
use serde::{Deserialize, Serialize};
use std::ops::{AddAssign, Sub};

/// Defines the structure of counts, with sums and differences over all of its fields.
macro_rules! counts {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Accesses to one or several files by one or several processes.
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

            /// Returns the counts since `before`. A page may later move from one count to another,
            /// which would make the difference negative; it is 0 then.
            fn sub(self, before: Counts) -> Counts {
                Counts { $($name: self.$name.saturating_sub(before.$name),)* }
            }
        }
    };
}

counts! {
    /// Read requests through the cache, regardless of size; access through mappings is separate.
    read_requests,
    /// Pages of these requests.
    read_pages,
    /// Pages that were resident and had been read or written before.
    hit_pages,
    /// Pages that read-ahead had made resident, on their first lookup.
    read_ahead_hit_pages,
    /// Pages that were not resident at the start of the request.
    miss_pages,
    /// Pages of requests that started at the end of the thread's previous request.
    in_order_pages,
    /// First accesses through a mapping: the kernel maps up to 16 surrounding pages at once, and
    /// does not report accesses to mapped pages.
    map_touches,
    /// Such accesses whose page was not resident.
    map_misses,
    /// Pages added to the cache.
    added_pages,
    /// Added pages that reclaim had evicted during the watch.
    refault_pages,
    /// Write requests, on file systems that report each one (ext4, XFS).
    write_requests,
    /// Bytes of these requests.
    write_bytes,
    /// Pages of these requests; each page counts once per request.
    write_pages,
    /// Pages of these requests that were not resident before.
    write_new_pages,
    /// Clean or absent pages that became dirty, through system calls and mappings.
    dirtied_pages,
    /// Pages of reported write requests that became dirty through them.
    write_dirtied_pages,
    /// Number of times that the kernel throttled a writer because of dirty pages.
    throttles,
    /// Time for which it did, in milliseconds.
    throttled_ms,
    /// Files written back by kernel flushers; each writeback of a file counts.
    lazy_flushes,
    /// Pages written back because dirty memory exceeded the background threshold.
    lazy_background_pages,
    /// Pages written back because of their age.
    lazy_periodic_pages,
    /// Pages written back for sync(2) or syncfs(2).
    lazy_sync_pages,
    /// Pages written back for memory reclaim.
    lazy_reclaim_pages,
    /// Pages written back for other reasons.
    lazy_other_pages,
    /// Pages evicted by reclaim, for the thread that ran it.
    evicted_pages,
    /// Pages removed by truncation, deletion, invalidation or on request.
    dropped_pages,
    /// Read-ahead pages that left the cache before a lookup.
    read_ahead_unused_pages,
    /// Number of times that reads alone made the inode dirty: access time updates (reported by
    /// ext4).
    access_time_updates,
    /// Bytes read from disks.
    disk_read_bytes,
    /// Bytes that the process itself wrote to disks: fsync(2), direct I/O.
    disk_write_bytes,
    /// Bytes dirtied by the process and written back by kernel flushers.
    disk_lazy_write_bytes,
    /// Requests of [`Counts::disk_read_bytes`], before the kernel merges or splits them.
    disk_read_requests,
    /// Requests of [`Counts::disk_write_bytes`].
    disk_write_requests,
    /// Requests of [`Counts::disk_lazy_write_bytes`], each for the process with most of its bytes.
    disk_lazy_write_requests,
}

impl Counts {
    /// Returns the share of the pages read that were resident, 0 to 1, or `None` without reads.
    #[must_use]
    pub fn hit_ratio(&self) -> Option<f64> {
        share(self.hit_pages + self.read_ahead_hit_pages, self.read_pages)
    }

    /// Returns the number of pages overwritten while dirty: writes without disk I/O.
    #[must_use]
    pub fn overwritten_pages(&self) -> u64 {
        self.write_pages.saturating_sub(self.write_dirtied_pages)
    }

    /// Returns the number of pages written back by kernel flushers, for any reason.
    #[must_use]
    pub fn lazy_pages(&self) -> u64 {
        self.lazy_background_pages
            + self.lazy_periodic_pages
            + self.lazy_sync_pages
            + self.lazy_reclaim_pages
            + self.lazy_other_pages
    }

    /// Returns the bytes transferred from and to disks.
    #[must_use]
    pub fn disk_bytes(&self) -> u64 {
        self.disk_read_bytes + self.disk_write_bytes + self.disk_lazy_write_bytes
    }

    /// Returns true if all counts are 0.
    #[must_use]
    pub fn is_zero(&self) -> bool {
        *self == Counts::default()
    }
}
