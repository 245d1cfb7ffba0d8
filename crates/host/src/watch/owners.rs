//! Processes that dirtied the pages of a file, for the attribution of later writeback.
//!
//! The kernel reports the file that it writes back, not the pages, so if several processes have
//! dirty pages in a file, each is charged in proportion to its pages. Invariant: the sum of the
//! charges equals the bytes written.

use super::lookup::ProcessId;

/// Processes with dirty pages in a file.
#[derive(Clone, Debug, Default)]
pub(crate) struct Owners {
    dirty: Vec<(ProcessId, u64)>,
    /// The process that last dirtied a page, charged for further writeback.
    last: Option<ProcessId>,
}

impl Owners {
    pub(crate) fn add(&mut self, process: ProcessId, pages: u64) {
        self.last = Some(process);
        match self.dirty.iter_mut().find(|(known, _)| *known == process) {
            Some((_, sum)) => *sum += pages,
            None => self.dirty.push((process, pages)),
        }
    }

    /// Distributes written bytes, in pages of `page_bytes`, and passes each process with its charge
    /// to `each`. It charges no process if the pages were dirty before the watch started.
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
            // The last process is charged the remainder, so that rounding loses nothing.
            let part = |whole: u64| {
                let share = u128::from(whole) * u128::from(*owned) / u128::from(sum_left.max(1));
                u64::try_from(share).unwrap_or(whole)
            };
            let charged = part(bytes_left);
            if charged > 0 {
                each(*process, charged);
            }
            let written = u128::from(pages) * u128::from(*owned) / u128::from(sum);
            bytes_left -= charged;
            sum_left -= *owned;
            *owned -= (*owned).min(u64::try_from(written).unwrap_or(u64::MAX));
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
        assert_eq!(charged(&mut owners, 4096), [], "no writer was seen");
        owners.add(1, 10);
        owners.add(2, 30);
        assert_eq!(charged(&mut owners, 8 * 4096), [(1, 2 * 4096), (2, 6 * 4096)]);
        let odd = charged(&mut owners, 4095);
        assert_eq!(odd.iter().map(|(_, bytes)| bytes).sum::<u64>(), 4095);
        charged(&mut owners, 1 << 30);
        assert_eq!(charged(&mut owners, 512), [(2, 512)], "written again");
    }
}
