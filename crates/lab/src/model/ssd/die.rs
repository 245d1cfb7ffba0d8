//! One die of flash: reads pass the programs that wait, but not the one in progress.

use super::SsdSpec;
use larder_core::clock::Nanos;

/// The state of a die. All times are nanoseconds.
#[derive(Clone, Debug, Default)]
pub(super) struct Die {
    /// End of the reads so far.
    reads_until: Nanos,
    /// End of the programs and erases so far.
    works_until: Nanos,
    /// The last erase: its beginning and end.
    erase: (Nanos, Nanos),
    /// Time of the last program.
    program: Nanos,
    /// Programs since the last erase.
    programs: u32,
    /// The page in the register, plus 1; 0 for none.
    register: u64,
}

impl Die {
    /// Reads a page into the register. Returns the time at which it is there.
    pub(super) fn read(&mut self, now: Nanos, page: u64, spec: &SsdSpec) -> Nanos {
        if self.register == page + 1 {
            return now.max(self.reads_until);
        }
        // Reads that follow each other let no program begin.
        let start = if now < self.reads_until { self.reads_until } else { now + self.busy(now) };
        self.reads_until = start + spec.read_page;
        self.register = page + 1;
        if self.works_until > start {
            self.works_until += spec.read_page;
        }
        if self.erase.0 >= start {
            self.erase = (self.erase.0 + spec.read_page, self.erase.1 + spec.read_page);
        }
        self.reads_until
    }

    /// Returns the time until the operation in progress ends.
    fn busy(&self, now: Nanos) -> Nanos {
        let (erase_begins, erase_ends) = self.erase;
        if (erase_begins..erase_ends).contains(&now) {
            return erase_ends - now;
        }
        // Programs are before and after the erase.
        let is_before = now < erase_begins && erase_ends <= self.works_until;
        let until = if is_before { erase_begins } else { self.works_until };
        until.saturating_sub(now).checked_rem(self.program).unwrap_or(0)
    }

    /// Programs a page that arrives at `now`, in `time`. Returns the end. After as many programs
    /// as a block has pages, an erase follows.
    pub(super) fn program(&mut self, now: Nanos, time: Nanos, spec: &SsdSpec) -> Nanos {
        let end = now.max(self.works_until).max(self.reads_until) + time;
        self.works_until = end;
        self.program = time;
        self.programs += 1;
        if self.programs == spec.pages_per_block {
            self.programs = 0;
            self.erase = (end, end + spec.erase_block);
            self.works_until += spec.erase_block;
        }
        end
    }
}
