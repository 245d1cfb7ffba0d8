//! One SSD: channels of flash dies behind a controller with a write buffer, a page mapping and an
//! SLC cache.
//!
//! A read waits for the program or erase in progress on its die, passes those that wait, and is
//! then transferred over the channel and to the host. A write is done when it is in the write
//! buffer; full flash pages are programmed on the dies in turn, and free their place in the buffer
//! when they are done. A flush programs the buffer, unless it survives a power failure.
//!
//! The drive begins full: all of its blocks hold data, written in order. A page mapping with greedy
//! garbage collection ([`mapping`]) determines the pages that each write copies. Each die pays for
//! the copies in equal shares, and erases a block after as many programs as a block has pages.
//! While there is space in the SLC cache, programs of the host take less time; the cache is folded
//! into the other blocks while the drive is idle.
//!
//! Not modeled: the die of data depends on its address, not on the time of its write; a write of
//! less than 4 KiB costs as much as one of 4 KiB; reads do not hit the write buffer; wear.
//! Times are nanoseconds, sizes are bytes, rates are bytes per second.

mod die;
mod mapping;
mod presets;
#[cfg(test)]
mod tests;

use super::{Access, Model};
use die::Die;
use larder_core::clock::{Nanos, SECOND};
use larder_core::store::StoreOpKind;
use larder_core::units::as_f64;
use mapping::Mapping;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Unit of the mapping.
const SLOT_BYTES: u64 = 4096;

/// The figures of an SSD.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SsdSpec {
    /// Capacity of the data sheet, bytes. It changes no time: the model maps the length of its
    /// store.
    pub capacity_bytes: u64,
    /// Channels between the controller and the flash.
    pub channels: u32,
    /// Dies on each channel; planes that work independently count as dies.
    pub dies_per_channel: u32,
    /// Bytes of a flash page; a multiple of 4 KiB.
    pub page_bytes: u64,
    /// Pages of a block, which is erased as a whole.
    pub pages_per_block: u32,
    /// Time to read a page into the register of its die, nanoseconds.
    pub read_page: Nanos,
    /// Time to program a page, nanoseconds.
    pub program_page: Nanos,
    /// Time to erase a block, nanoseconds.
    pub erase_block: Nanos,
    /// Rate of a channel, bytes per second.
    pub channel_bytes_per_s: u64,
    /// Rate between the drive and the host in each direction, bytes per second.
    pub interface_bytes_per_s: u64,
    /// Latency of the controller and the interface, nanoseconds.
    pub overhead: Nanos,
    /// Time of the controller for each command, one after the other; nanoseconds.
    pub command: Nanos,
    /// Commands in the drive at a time.
    pub queue_depth: u32,
    /// Write buffer, bytes; at least a page for each die.
    pub write_buffer_bytes: u64,
    /// True if the write buffer survives a power failure, so that a flush does not wait.
    pub has_protected_buffer: bool,
    /// Flash beyond the length, in thousandths of the length; at least 10.
    pub over_provisioning_permille: u32,
    /// SLC cache, bytes; 0 for none.
    pub slc_cache_bytes: u64,
    /// Time to program a page of the SLC cache, nanoseconds.
    pub slc_program_page: Nanos,
}

/// Totals of an SSD since its creation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlashTotals {
    /// Bytes that the host has written, in whole blocks of 4 KiB.
    pub host_bytes: u64,
    /// Bytes programmed into flash.
    pub programmed_bytes: u64,
    /// Bytes of these that garbage collection copied.
    pub copied_bytes: u64,
    /// Bytes of these that were moved from the SLC cache.
    pub folded_bytes: u64,
}

impl FlashTotals {
    /// Returns the bytes programmed for each byte of the host; 1 without writes.
    #[must_use]
    pub fn write_amplification(&self) -> f64 {
        if self.host_bytes == 0 {
            return 1.0;
        }
        as_f64(self.programmed_bytes) / as_f64(self.host_bytes)
    }
}

/// A link that transfers one operation after the other, kept as the time at which it is free. A
/// transfer that has to wait for its data does not delay the others.
#[derive(Clone, Copy, Debug, Default)]
struct Link {
    free_at: Nanos,
}

impl Link {
    /// Adds a transfer that is asked for at `now`; returns the earliest time of its end.
    fn transfer(&mut self, now: Nanos, time: Nanos) -> Nanos {
        self.free_at = self.free_at.max(now) + time;
        self.free_at
    }
}

/// The state of an SSD.
#[derive(Clone, Debug)]
pub struct Ssd {
    spec: SsdSpec,
    dies: Vec<Die>,
    channels: Vec<Link>,
    controller: Link,
    to_host: Link,
    from_host: Link,
    mapping: Mapping,
    /// Programs in progress or waiting: their ends. Each holds a page of the write buffer.
    programs: BinaryHeap<Reverse<Nanos>>,
    /// Blocks of 4 KiB in the page that is being filled.
    open_slots: u64,
    /// Number of the next page to program, which selects its die.
    next_page: u64,
    /// End of the last program.
    programmed_at: Nanos,
    /// Copies of garbage collection that are due, and the writes of the host among which they are
    /// divided, both in blocks of 4 KiB.
    copies: u64,
    copies_within: u64,
    /// Copies that do not fill a page yet.
    copied_slots: u64,
    slc_used: u64,
    totals: FlashTotals,
}

impl Ssd {
    /// Creates a full drive of `length` bytes.
    #[must_use]
    pub fn new(spec: SsdSpec, length: u64) -> Self {
        let dies = spec.channels * spec.dies_per_channel;
        assert!(dies > 0 && spec.page_bytes.is_multiple_of(SLOT_BYTES), "pages of whole blocks");
        assert!(
            spec.write_buffer_bytes >= u64::from(dies) * spec.page_bytes,
            "a page for each die"
        );
        let block_slots = u64::from(spec.pages_per_block) * spec.page_bytes / SLOT_BYTES;
        let slots = length.div_ceil(SLOT_BYTES).max(1);
        Ssd {
            spec,
            dies: vec![Die::default(); dies as usize],
            channels: vec![Link::default(); spec.channels as usize],
            controller: Link::default(),
            to_host: Link::default(),
            from_host: Link::default(),
            mapping: Mapping::new(slots, block_slots, spec.over_provisioning_permille),
            programs: BinaryHeap::new(),
            open_slots: 0,
            next_page: 0,
            programmed_at: 0,
            copies: 0,
            copies_within: 0,
            copied_slots: 0,
            slc_used: 0,
            totals: FlashTotals::default(),
        }
    }

    /// Returns the totals so far.
    #[must_use]
    pub fn totals(&self) -> FlashTotals {
        self.totals
    }

    fn slots_per_page(&self) -> u64 {
        self.spec.page_bytes / SLOT_BYTES
    }

    /// Returns the end of a read that begins at `begin`.
    fn read(&mut self, begin: Nanos, offset: u64, len: u64) -> Nanos {
        let page_bytes = self.spec.page_bytes;
        let (mut at, end) = (offset, offset + len);
        let (mut ready_at, mut part) = (begin, 0);
        while at < end {
            let page = at / page_bytes;
            part = end.min((page + 1) * page_bytes) - at;
            let die = index(page, self.dies.len());
            let in_register = self.dies[die].read(begin, page, &self.spec);
            let time = time_of(part, self.spec.channel_bytes_per_s);
            let channel = die % self.channels.len();
            let sent_at = self.channels[channel].transfer(begin, time);
            ready_at = ready_at.max(sent_at).max(in_register + time);
            at += part;
        }
        let rate = self.spec.interface_bytes_per_s;
        // The parts before the last one have been sent meanwhile.
        self.to_host.transfer(begin, time_of(len, rate)).max(ready_at + time_of(part, rate))
    }

    /// Returns the time at which a write that begins at `begin` is in the buffer.
    fn write(&mut self, begin: Nanos, offset: u64, len: u64) -> Nanos {
        let time = time_of(len, self.spec.interface_bytes_per_s);
        let mut at = self.from_host.transfer(begin, time);
        let slots = offset / SLOT_BYTES..(offset + len).div_ceil(SLOT_BYTES);
        for slot in slots {
            let cleaning = self.mapping.write(slot);
            self.copies += cleaning.copied;
            self.copies_within += cleaning.freed;
            self.totals.host_bytes += SLOT_BYTES;
            self.open_slots += 1;
            if self.open_slots == self.slots_per_page() {
                at = self.wait_for_buffer(at);
                self.program_open_page(at);
            }
        }
        at
    }

    /// Returns the time at which the buffer has place for another page.
    fn wait_for_buffer(&mut self, mut at: Nanos) -> Nanos {
        let pages = index_of(self.spec.write_buffer_bytes / self.spec.page_bytes);
        while let Some(Reverse(end)) = self.programs.peek().copied() {
            if end > at && self.programs.len() < pages {
                break;
            }
            at = at.max(end);
            self.programs.pop();
        }
        at
    }

    /// Programs the open page, and the copies that are due by then.
    fn program_open_page(&mut self, at: Nanos) {
        let due = (self.copies * self.open_slots).div_ceil(self.copies_within.max(self.open_slots));
        self.copies -= due;
        self.copies_within = self.copies_within.saturating_sub(self.open_slots);
        self.copied_slots += due;
        self.open_slots = 0;
        let die = self.turn();
        while self.copied_slots >= self.slots_per_page() {
            self.copied_slots -= self.slots_per_page();
            self.totals.copied_bytes += self.spec.page_bytes;
            self.program(at, die, self.spec.read_page + self.spec.program_page);
        }
        let has_slc = self.slc_used + self.spec.page_bytes <= self.spec.slc_cache_bytes;
        if has_slc {
            self.slc_used += self.spec.page_bytes;
        }
        let SsdSpec { slc_program_page, program_page, .. } = self.spec;
        let time = if has_slc { slc_program_page } else { program_page };
        let end = self.program(at, die, time);
        self.programmed_at = self.programmed_at.max(end);
        self.programs.push(Reverse(end));
    }

    /// Returns the die whose turn it is.
    fn turn(&mut self) -> usize {
        let die = index(self.next_page, self.dies.len());
        self.next_page += 1;
        die
    }

    /// Transfers a page to a die and programs it in `time`. Returns the end.
    fn program(&mut self, at: Nanos, die: usize, time: Nanos) -> Nanos {
        let channel = die % self.channels.len();
        let transfer = time_of(self.spec.page_bytes, self.spec.channel_bytes_per_s);
        let sent_at = self.channels[channel].transfer(at, transfer);
        self.totals.programmed_bytes += self.spec.page_bytes;
        self.dies[die].program(sent_at, time, &self.spec)
    }

    /// Returns the time at which everything in the buffer is programmed, if that begins at `at`.
    fn sync(&mut self, at: Nanos) -> Nanos {
        if self.open_slots > 0 {
            // The rest of the page stays empty.
            let at = self.wait_for_buffer(at);
            self.program_open_page(at);
        }
        at.max(self.programmed_at)
    }

    /// Moves pages out of the SLC cache for the time in which the drive has been idle.
    fn fold(&mut self, now: Nanos) {
        let idle = now.saturating_sub(self.programmed_at);
        if self.slc_used == 0 || idle == 0 {
            return;
        }
        let SsdSpec { read_page, program_page, page_bytes, .. } = self.spec;
        let pages = idle / (read_page + program_page) * self.dies.len() as u64;
        let folded = (pages * page_bytes).min(self.slc_used);
        if folded > 0 {
            self.slc_used -= folded;
            self.totals.folded_bytes += folded;
            self.totals.programmed_bytes += folded;
            self.programmed_at = now;
        }
    }
}

impl Model for Ssd {
    fn max_concurrency(&self) -> usize {
        self.spec.queue_depth as usize
    }

    fn serve(&mut self, now: Nanos, access: &Access) -> Nanos {
        self.fold(now);
        let accepted_at = self.controller.transfer(now, self.spec.command);
        let begin = accepted_at.max(now + self.spec.overhead);
        let Access { offset, len, .. } = *access;
        match access.kind {
            StoreOpKind::Read => self.read(begin, offset, len),
            StoreOpKind::Write { fua: false } => self.write(begin, offset, len),
            StoreOpKind::Write { fua: true } => {
                let end = self.write(begin, offset, len);
                if self.spec.has_protected_buffer { end } else { self.sync(end) }
            }
            StoreOpKind::Flush if self.spec.has_protected_buffer => begin,
            StoreOpKind::Flush => self.sync(begin),
            StoreOpKind::Discard | StoreOpKind::Zero { .. } => {
                self.mapping.discard(offset.div_ceil(SLOT_BYTES)..(offset + len) / SLOT_BYTES);
                begin
            }
        }
    }
}

/// Returns the nanoseconds in which a rate transfers `bytes`.
fn time_of(bytes: u64, per_s: u64) -> Nanos {
    if let Some(product) = bytes.checked_mul(SECOND) {
        return product / per_s;
    }
    let time = u128::from(bytes) * u128::from(SECOND) / u128::from(per_s);
    u64::try_from(time).unwrap_or(Nanos::MAX)
}

/// Returns the place of a number among `count` places.
fn index(number: u64, count: usize) -> usize {
    index_of(number % count as u64)
}

fn index_of(number: u64) -> usize {
    usize::try_from(number).expect("a count in memory")
}
