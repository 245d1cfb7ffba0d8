//! The metric catalogue: every metric of the cache, with its name, unit and meaning, and the
//! equivalent counter of the Windows NT file cache where there is one.

/// The unit of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Requests or operations.
    Operations,
    /// Pages, of the volume's page size; a page that one request touches counts once.
    Pages,
    /// Blocks of 4 KiB.
    Blocks,
    /// Bytes.
    Bytes,
    /// Nanoseconds.
    Nanoseconds,
}

impl Unit {
    /// Returns the name of the unit for tables.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Unit::Operations => "operations",
            Unit::Pages => "pages",
            Unit::Blocks => "blocks",
            Unit::Bytes => "bytes",
            Unit::Nanoseconds => "ns",
        }
    }
}

/// Name, unit and meaning of a metric.
#[derive(Clone, Copy, Debug)]
pub struct MetricDefinition {
    /// Its name in every output; the unit is the last part.
    pub name: &'static str,
    /// Its unit.
    pub unit: Unit,
    /// Its meaning in one sentence.
    pub meaning: &'static str,
    /// The equivalent counter of the Windows NT file cache, or empty.
    pub known_as: &'static str,
}

macro_rules! catalogue {
    ($(#[$doc:meta])* $enum:ident, $table:ident;
     $($variant:ident, $name:literal, $unit:ident, $meaning:literal, $known:literal;)*) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $enum { $(#[doc = $meaning] $variant,)* }

        impl $enum {
            /// All metrics, in the order of the table.
            pub const ALL: [$enum; $table.len()] = [$($enum::$variant,)*];

            /// Returns its name, unit and meaning.
            #[must_use]
            pub fn meaning(self) -> &'static MetricDefinition {
                &$table[self as usize]
            }
        }

        /// The table of the metrics.
        pub const $table: [MetricDefinition; [$($name,)*].len()] = [$(MetricDefinition {
            name: $name, unit: Unit::$unit, meaning: $meaning, known_as: $known,
        },)*];
    };
}

catalogue! {
    /// Counters: they only grow.
    Counter, COUNTERS;
    ReadRequests, "read_requests", Operations, "Read requests of clients.", "";
    ReadBytes, "read_bytes", Bytes, "Bytes that clients read.", "";
    WriteRequests, "write_requests", Operations, "Write requests of clients.", "";
    WriteBytes, "write_bytes", Bytes, "Bytes that clients wrote.", "";
    FlushRequests, "flush_requests", Operations, "Flush requests of clients.", "";
    DiscardRequests, "discard_requests", Operations, "Trim requests of clients.", "";
    ZeroRequests, "zero_requests", Operations, "Requests of clients to write zeros.", "";
    FastReads, "fast_reads", Operations,
        "Reads of a resident block copied by the shortest way; not counted in `copy_reads`.",
        "Fast Reads/sec";
    ReadHit, "read_hit_pages", Pages, "Read references whose blocks were all resident.", "";
    ReadAheadHit, "read_ahead_hit_pages", Pages,
        "Read references that were the first touch of what read-ahead had brought.", "";
    ReadAheadWait, "read_ahead_wait_pages", Pages,
        "Read references that had to wait for what read-ahead was bringing.", "";
    ReadPartialHit, "read_partial_hit_pages", Pages,
        "Read references with some blocks resident and some not.", "";
    ReadMiss, "read_miss_pages", Pages, "Read references with no block resident.", "";
    ReadBypass, "read_bypass_pages", Pages,
        "Read references that were answered from the store without being kept.", "";
    WriteAbsorbed, "write_absorbed_pages", Pages,
        "Write references to a page that was dirty already: one write to the store less.", "";
    WriteNewDirty, "write_new_dirty_pages", Pages, "Write references that made a page dirty.", "";
    WritePartial, "write_partial_pages", Pages,
        "Write references that had to read from the store first: less than a granule.", "";
    WriteThrough, "write_through_pages", Pages,
        "Write references that waited for the store: write-through, or FUA.", "";
    WriteBypass, "write_bypass_pages", Pages,
        "Write references that went to the store without being kept: write-around, or frozen.", "";
    BypassNoBuffering, "bypass_no_buffering_pages", Pages,
        "Bypasses because the client said that it needs no cache.", "";
    BypassPressure, "bypass_pressure_pages", Pages,
        "Bypasses because there was no room for the whole page.", "";
    BypassFillFailed, "bypass_fill_failed_pages", Pages,
        "Bypasses because the page could not be read as a whole, only what was asked for.", "";
    BypassWriteAround, "bypass_write_around_pages", Pages,
        "Bypasses because the volume is in write-around mode.", "";
    BypassFrozen, "bypass_frozen_pages", Pages,
        "Bypasses because the volume is frozen.", "";
    CopyReads, "copy_reads", Operations,
        "Reads that copy to the caller, without those of `fast_reads`.", "Copy Reads/sec";
    CopyReadHits, "copy_read_hits", Operations,
        "Those that were answered without the store.", "Copy Read Hits %";
    MapReads, "map_reads", Operations,
        "Calls that map a range to be read in place, however often it is read.", "Data Maps/sec";
    MapReadHits, "map_read_hits", Operations,
        "Those whose range was resident, without a read of the store.", "Data Map Hits %";
    PinReads, "pin_reads", Operations,
        "Calls that map a range for change and read its present content.", "Pin Reads/sec";
    PinReadHits, "pin_read_hits", Operations,
        "Those whose range was resident, without a read of the store.", "Pin Read Hits %";
    PinOverwrites, "pin_overwrites", Operations,
        "Ranges mapped to be overwritten, of which nothing is read.", "";
    GatherReads, "gather_reads", Operations,
        "Reads whose frames are sent without a copy: all reads over NBD and FUSE.", "MDL Reads/sec";
    GatherReadHits, "gather_read_hits", Operations,
        "Those that were answered without the store.", "MDL Read Hits %";
    EvictedPages, "evicted_pages", Pages, "Pages evicted to make room.", "";
    EvictedBlocks, "evicted_blocks", Blocks, "Blocks of the evicted pages.", "";
    FilledBlocks, "filled_blocks", Blocks, "Blocks read from the store into the cache.", "";
    ReadAheads, "read_aheads", Operations,
        "Reads of the store ahead of requests; blocks divided by reads is their mean size.",
        "Read Aheads/sec";
    ReadAheadBlocks, "read_ahead_blocks", Blocks, "Blocks that were read ahead.", "";
    ReadAheadWasted, "read_ahead_wasted_pages", Pages,
        "Pages that were read ahead and evicted before anybody touched them.", "";
    ReadAheadDropped, "read_ahead_dropped_pages", Pages,
        "Pages that were to be read ahead and were not: no room, or the store was too slow.", "";
    DroppedBehind, "dropped_behind_pages", Pages,
        "Pages evicted first because a client that reads in order was past them.", "";
    ReplacedBlocks, "replaced_blocks", Blocks,
        "Blocks written to while a reply or a store held them: a copy took their place.", "";
    LazyIdleRuns, "lazy_idle_runs", Operations,
        "Runs of the lazy writer because the volume was idle.", "";
    LazyThresholdRuns, "lazy_threshold_runs", Operations,
        "Runs of the lazy writer because too much was dirty.", "";
    LazyAgeRuns, "lazy_age_runs", Operations,
        "Runs of the lazy writer because a page had been dirty for too long.", "";
    LazyCollisions, "lazy_collisions", Operations,
        "Times that the lazy writer backed off from a busy store.", "";
    LazyWrites, "lazy_writes", Operations,
        "Writes to the store by the lazy writer; blocks divided by writes is the burst size.",
        "Lazy Write Flushes/sec";
    LazyWriteBlocks, "lazy_write_blocks", Blocks,
        "Blocks in the writes of the lazy writer.", "Lazy Write Pages/sec";
    ForcedWrites, "forced_writes", Operations,
        "Writes to the store because a client waited for it: flush, FUA, write-through, stop.",
        "Data Flushes/sec (with lazy writes)";
    ForcedWriteBlocks, "forced_write_blocks", Blocks,
        "Blocks in the forced writes.", "Data Flush Pages/sec (with lazy writes)";
    StealWrites, "steal_writes", Operations,
        "Writes to the store because a dirty page's room was wanted.", "";
    StealWriteBlocks, "steal_write_blocks", Blocks, "Blocks in those writes.", "";
    StoreReads, "store_reads", Operations, "Reads that the store did.", "";
    StoreReadBytes, "store_read_bytes", Bytes, "Bytes that the store read.", "";
    StoreWrites, "store_writes", Operations, "Writes that the store did.", "";
    StoreWriteBytes, "store_write_bytes", Bytes, "Bytes that the store wrote.", "";
    StoreFlushes, "store_flushes", Operations, "Flushes that the store did.", "";
    StoreDiscards, "store_discards", Operations, "Discards and zeroings that the store did.", "";
    StoreReadErrors, "store_read_errors", Operations, "Reads that the store failed.", "";
    StoreWriteErrors, "store_write_errors", Operations,
        "Writes that the store failed; their pages stay dirty.", "";
    StoreFlushErrors, "store_flush_errors", Operations,
        "Flushes, discards and zeroings that the store failed.", "";
    PolicySwitches, "policy_switches", Operations,
        "Times that the cache changed the policy by itself (--policy auto).", "";
    Stalls, "stalls", Operations,
        "Requests that had to wait for room or for the dirty limit.", "";
    OrderFlushes, "order_flushes", Operations,
        "Flushes of the store so that what a group waits for is stable.", "";
    OrderStalls, "order_stalls", Operations,
        "Times that a write of a group had to wait: its page held what must be stable before.", "";
    ThrottledWrites, "throttled_writes", Operations,
        "Write requests whose reply was delayed on the way to the dirty limit.", "";
    ThrottledTime, "throttled_ns", Nanoseconds,
        "The sum of these delays, after all parts of a request were done.", "";
}

catalogue! {
    /// Gauges: current values.
    Gauge, GAUGES;
    Resident, "resident_bytes", Bytes,
        "Memory that holds the volume's blocks.", "System Cache Resident Bytes";
    Dirty, "dirty_bytes", Bytes, "Blocks newer than the store, not being written yet.", "";
    Writing, "writing_bytes", Bytes, "Blocks newer than the store, being written now.", "";
    Memory, "memory_bytes", Bytes, "Memory of the pool for data.", "";
    MemoryTarget, "memory_target_bytes", Bytes,
        "Target of `memory_bytes`, which grows or shrinks until it reaches this.", "";
    Free, "free_bytes", Bytes, "Memory of the pool that holds nothing.", "";
    Metadata, "metadata_bytes", Bytes, "Memory of the pool for tables, policies and ghosts.", "";
    GivenBack, "given_back_bytes", Bytes,
        "Part of `--memory` that was returned to the system because it is short of memory.", "";
    InFlight, "store_in_flight", Operations, "Operations that the store has not finished.", "";
    Pinned, "pinned_bytes", Bytes,
        "Ranges that an administrator has pinned, resident yet or not.", "";
    Target, "target_bytes", Bytes,
        "Memory that the volume is to have where the cache divides it (--share auto); else 0.", "";
    Held, "held_bytes", Bytes,
        "Dirty blocks of groups that wait for other groups to be stable.", "";
    Warming, "warming_bytes", Bytes, "What a warm restart has still to read back.", "";
    Failing, "failing_blocks", Blocks,
        "Dirty blocks whose last write to the store failed; they exist only in memory.", "";
}

impl Gauge {
    /// Returns true if it is a gauge of the pool that all volumes share, and not of a single
    /// volume.
    #[must_use]
    pub fn is_of_pool(self) -> bool {
        use Gauge::{Free, GivenBack, Memory, MemoryTarget, Metadata};
        matches!(self, Memory | MemoryTarget | Free | Metadata | GivenBack)
    }
}

catalogue! {
    /// Latencies, each a histogram in nanoseconds.
    Latency, HISTOGRAMS;
    Read, "read_total_ns", Nanoseconds, "Reads, from arrival to reply.", "";
    Write, "write_total_ns", Nanoseconds, "Writes, from arrival to reply.", "";
    Flush, "flush_total_ns", Nanoseconds, "Flushes, from arrival to reply.", "";
    StoreReadQueue, "store_read_queue_ns", Nanoseconds, "Reads waiting for the store.", "";
    StoreReadService, "store_read_service_ns", Nanoseconds,
        "Reads in the store.", "Avg. Disk sec/Read";
    StoreWriteQueue, "store_write_queue_ns", Nanoseconds, "Writes waiting for the store.", "";
    StoreWriteService, "store_write_service_ns", Nanoseconds,
        "Writes in the store.", "Avg. Disk sec/Write";
    StoreFlushService, "store_flush_service_ns", Nanoseconds, "Flushes in the store.", "";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_end_in_their_unit() {
        let all = || COUNTERS.iter().chain(&GAUGES).chain(&HISTOGRAMS);
        for (i, one) in all().enumerate() {
            assert!(all().skip(i + 1).all(|other| other.name != one.name), "{}", one.name);
            assert!(one.meaning.ends_with('.'), "{} has no sentence", one.name);
            let unit = one.unit.name();
            assert!(!unit.is_empty(), "the unit of {} has a name", one.name);
            // A name without a unit counts operations.
            let is_named = one.name.ends_with(&format!("_{unit}"));
            assert!(is_named || one.unit == Unit::Operations, "{} counts {unit}", one.name);
        }
    }
}
