//! A page mapping with greedy garbage collection.
//!
//! Each block of 4 KiB of the drive is in a slot of a flash block. A write fills the next slot of
//! the open block and makes the old slot invalid. When free blocks run short, the block with the
//! fewest valid slots is copied and becomes free.
//!
//! Memory is bounded: of a drive with more than [`TRACKED_MAX`] blocks of 4 KiB, the mapping
//! follows one of each group, which a hash of the group selects, and counts each of its copies for
//! the whole group. So the write amplification is that of the whole drive, with a sampling error.
//! A mapping takes at most 2.5 MiB: 8 bytes for each followed block of 4 KiB, more by the
//! over-provisioning.

use std::ops::Range;

/// Maximum number of followed blocks of 4 KiB.
const TRACKED_MAX: u64 = 1 << 18;
/// Minimum number of flash blocks; those of a small drive are smaller.
const BLOCKS_MIN: u64 = 1_024;
/// Minimum number of slots of a flash block.
const BLOCK_SLOTS_MIN: u64 = 16;
/// Free blocks below which garbage is collected: one for writes, one for copies.
const FREE_MIN: usize = 2;
/// A block of 4 KiB without a slot, or a slot without one.
const NONE: u32 = u32::MAX;

/// The work of garbage collection for a write, in blocks of 4 KiB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Cleaning {
    /// Copied blocks.
    pub(super) copied: u64,
    /// Blocks that can be written before garbage is collected again.
    pub(super) freed: u64,
}

/// A block that is being filled.
#[derive(Clone, Copy, Debug)]
struct OpenBlock {
    block: u32,
    used: u32,
}

/// The mapping.
#[derive(Clone, Debug)]
pub(super) struct Mapping {
    /// Blocks of 4 KiB in a group, of which one is followed.
    group: u64,
    block_slots: u32,
    /// The slot of each followed block of 4 KiB.
    slots: Vec<u32>,
    /// The followed block in each slot.
    owners: Vec<u32>,
    /// Valid slots of each flash block.
    valid: Vec<u32>,
    free: Vec<u32>,
    /// Flash blocks that are free or open, which are not collected.
    is_excluded: Vec<bool>,
    writes: OpenBlock,
    copies: OpenBlock,
}

impl Mapping {
    /// Creates the mapping of a drive of `length` blocks of 4 KiB that is full, with flash blocks
    /// of `block_slots`.
    pub(super) fn new(length: u64, block_slots: u64, over_provisioning_permille: u32) -> Self {
        assert!(over_provisioning_permille >= 10, "a drive that can collect garbage");
        let group = length.div_ceil(TRACKED_MAX);
        let tracked = length.div_ceil(group);
        let block_slots = (block_slots / group).min(tracked / BLOCKS_MIN).max(BLOCK_SLOTS_MIN);
        let flash = tracked + (tracked * u64::from(over_provisioning_permille)).div_ceil(1_000);
        let full = tracked.div_ceil(block_slots);
        // The open blocks and the reserve are in addition.
        let blocks = flash.div_ceil(block_slots).max(full) + 2 + FREE_MIN as u64;
        let [blocks, full] = [blocks, full].map(|count| u32::try_from(count).expect("bounded"));
        let slot_count = u64::from(blocks) * block_slots;
        let owner = |slot| if slot < tracked { narrow(slot) } else { NONE };
        let valid = |block: u32| {
            narrow(tracked.saturating_sub(u64::from(block) * block_slots).min(block_slots))
        };
        Mapping {
            group,
            block_slots: narrow(block_slots),
            slots: (0..narrow(tracked)).collect(),
            owners: (0..slot_count).map(owner).collect(),
            valid: (0..blocks).map(valid).collect(),
            free: (full + 2..blocks).rev().collect(),
            is_excluded: (0..blocks).map(|block| block >= full).collect(),
            writes: OpenBlock { block: full, used: 0 },
            copies: OpenBlock { block: full + 1, used: 0 },
        }
    }

    /// Returns the block of 4 KiB of a group that is followed.
    fn followed(&self, group: u64) -> u64 {
        // Finalizer of SplitMix64.
        let mut hash = group.wrapping_add(0x9e37_79b9_7f4a_7c15);
        hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        group * self.group + (hash ^ (hash >> 31)) % self.group
    }

    /// Writes a block of 4 KiB. Returns the garbage collection that it causes.
    pub(super) fn write(&mut self, block: u64) -> Cleaning {
        let (mut cleaning, group) = (Cleaning::default(), block / self.group);
        let owner = usize::try_from(group).expect("bounded");
        if self.followed(group) != block || owner >= self.slots.len() {
            return cleaning;
        }
        self.invalidate(owner);
        if self.writes.used == self.block_slots {
            while self.free.len() < FREE_MIN {
                let copied = self.clean();
                cleaning.copied += copied * self.group;
                cleaning.freed += (u64::from(self.block_slots) - copied) * self.group;
            }
            self.writes = self.take_free(self.writes.block);
        }
        let slot = self.writes.block * self.block_slots + self.writes.used;
        self.writes.used += 1;
        self.place(owner, slot);
        cleaning
    }

    /// Forgets blocks of 4 KiB.
    pub(super) fn discard(&mut self, blocks: Range<u64>) {
        for group in blocks.start / self.group..blocks.end.div_ceil(self.group) {
            let owner = usize::try_from(group).expect("bounded");
            if blocks.contains(&self.followed(group)) && owner < self.slots.len() {
                self.invalidate(owner);
            }
        }
    }

    fn invalidate(&mut self, owner: usize) {
        let slot = std::mem::replace(&mut self.slots[owner], NONE);
        if slot != NONE {
            self.owners[slot as usize] = NONE;
            self.valid[(slot / self.block_slots) as usize] -= 1;
        }
    }

    fn place(&mut self, owner: usize, slot: u32) {
        self.slots[owner] = slot;
        self.owners[slot as usize] = narrow(owner as u64);
        self.valid[(slot / self.block_slots) as usize] += 1;
    }

    /// Returns a free block in place of a full one.
    fn take_free(&mut self, full: u32) -> OpenBlock {
        self.is_excluded[full as usize] = false;
        let block = self.free.pop().expect("garbage was collected");
        OpenBlock { block, used: 0 }
    }

    /// Copies the valid slots of the block with the fewest, which becomes free. Returns their
    /// number.
    fn clean(&mut self) -> u64 {
        let blocks = self.valid.iter().zip(&self.is_excluded).enumerate();
        let candidates = blocks.filter(|(_, (_, is_excluded))| !**is_excluded);
        let (victim, _) = candidates.min_by_key(|(_, (valid, _))| **valid).expect("a full block");
        let copied = u64::from(self.valid[victim]);
        let first = narrow(victim as u64) * self.block_slots;
        for slot in first..first + self.block_slots {
            let owner = self.owners[slot as usize];
            if owner == NONE {
                continue;
            }
            self.invalidate(owner as usize);
            if self.copies.used == self.block_slots {
                self.copies = self.take_free(self.copies.block);
            }
            let to = self.copies.block * self.block_slots + self.copies.used;
            self.copies.used += 1;
            self.place(owner as usize, to);
        }
        self.is_excluded[victim] = true;
        self.free.push(narrow(victim as u64));
        copied
    }
}

/// Converts a number of slots or blocks, which is bounded.
fn narrow(count: u64) -> u32 {
    u32::try_from(count).expect("bounded")
}
