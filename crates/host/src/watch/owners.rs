//! Who made the dirty pages of a file dirty, so that what is written later is written in their
//! name.
//!
//! The kernel tells which file it writes out and not which pages, so where several processes have
//! dirty pages in one file, each is charged by its share of them. Invariant: what is charged is
//! what was written, to the page.

use super::lookup::ProcessId;

/// Processes with dirty pages in a file.
#[derive(Clone, Debug, Default)]
pub(crate) struct Owners {
    dirty: Vec<(ProcessId, u64)>,
    /// Who made a page dirty last, for pages that are written again.
    last: Option<ProcessId>,
}

impl Owners {
    /// A process made pages dirty.
    pub(crate) fn add(&mut self, process: ProcessId, pages: u64) {
        self.last = Some(process);
        match self.dirty.iter_mut().find(|(known, _)| *known == process) {
            Some((_, sum)) => *sum += pages,
            None => self.dirty.push((process, pages)),
        }
    }

    /// Bytes are written, of pages of `page_bytes`: tells who is charged with how many. Nobody if
    /// the pages were dirty before we watched.
    pub(crate) fn charge(
        &mut self,
        bytes: u64,
        page_bytes: u64,
        mut each: impl FnMut(ProcessId, u64),
    ) {
        let sum: u64 = self.dirty.iter().map(|(_, pages)| pages).sum();
        if sum == 0 {
            if let Some(last) = self.last {
                each(last, bytes);
            }
            return;
        }
        let pages = bytes.div_ceil(page_bytes.max(1));
        let (mut bytes_left, mut sum_left) = (bytes, sum);
        for (process, owned) in &mut self.dirty {
            // The last one gets what is left, so that nothing is lost by rounding.
            let part = |whole: u64| {
                let share = u128::from(whole) * u128::from(*owned) / u128::from(sum_left.max(1));
                u64::try_from(share).unwrap_or(whole)
            };
            let charged = part(bytes_left);
            if charged > 0 {
                each(*process, charged);
            }
            let gone = u128::from(pages) * u128::from(*owned) / u128::from(sum);
            bytes_left -= charged;
            sum_left -= *owned;
            *owned -= (*owned).min(u64::try_from(gone).unwrap_or(u64::MAX));
        }
        if pages >= sum {
            self.dirty.clear();
        }
        self.dirty.retain(|(_, pages)| *pages > 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn charged(owners: &mut Owners, bytes: u64) -> Vec<(ProcessId, u64)> {
        let mut all = Vec::new();
        owners.charge(bytes, 4096, |process, bytes| all.push((process, bytes)));
        all
    }

    #[test]
    fn each_is_charged_by_his_share_and_nothing_is_lost() {
        let mut owners = Owners::default();
        assert_eq!(charged(&mut owners, 4096), [], "nobody was seen");
        owners.add(1, 10);
        owners.add(2, 30);
        assert_eq!(charged(&mut owners, 8 * 4096), [(1, 2 * 4096), (2, 6 * 4096)]);
        let odd = charged(&mut owners, 4095);
        assert_eq!(odd.iter().map(|(_, bytes)| bytes).sum::<u64>(), 4095);
        charged(&mut owners, 1 << 30);
        assert_eq!(charged(&mut owners, 512), [(2, 512)], "written again");
    }
}
