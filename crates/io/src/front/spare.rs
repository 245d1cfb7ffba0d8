//! Assemblies of reads that are used again, with their memory, so that a hit allocates nothing.
//!
//! Invariant: an assembly that is taken back holds no pins.

use crate::frames::ArenaFrames;
use larder_core::counters::Interface;
use larder_core::request::Assembly;

/// More are let go of.
const SPARE_MAX: usize = 8;

/// Assemblies that nobody uses.
#[derive(Debug, Default)]
pub(super) struct Spare(Vec<Assembly<ArenaFrames>>);

impl Spare {
    /// An assembly for a read, with the memory of an earlier one.
    pub(super) fn assembly(&mut self, token: u64, offset: u64, len: u32) -> Assembly<ArenaFrames> {
        match self.0.pop() {
            Some(mut assembly) => {
                assembly.reset(token, offset, len);
                assembly
            }
            None => Assembly::new(token, offset, len).through(Interface::Gather),
        }
    }

    /// Takes an assembly back whose pins are gone.
    pub(super) fn recycle(&mut self, assembly: Assembly<ArenaFrames>) {
        if self.0.len() < SPARE_MAX {
            self.0.push(assembly);
        }
    }
}
