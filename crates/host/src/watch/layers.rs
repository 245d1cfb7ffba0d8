//! Double caching: the page cache holds files of a file system on a loop device, and possibly the
//! image file as well.

use super::accounting::{Accounting, BLOCK_DEVICES};
use crate::{device, mounts, proc, residency};
use larder_schema::watch::StackedCache;
use std::collections::BTreeMap;
use std::path::Path;

/// Returns, for loop devices, the pages added during the watch and still cached, and the resident
/// pages of the image. Images without a resident page are left out.
pub(super) fn all(accounting: &Accounting) -> Vec<StackedCache> {
    let mut upper: BTreeMap<u32, u64> = BTreeMap::new();
    for (file, _, counts) in &accounting.counts {
        let dev = accounting.file(*file).key.dev;
        let pages = upper.entry(dev).or_default();
        // Removals count for the thread that removes a page, so single differences may be negative;
        // only the sum is meaningful.
        *pages = pages
            .wrapping_add(counts.added_pages)
            .wrapping_sub(counts.evicted_pages + counts.dropped_pages);
    }
    let stayed = upper.into_iter().filter(|(dev, pages)| {
        *dev != BLOCK_DEVICES && i64::try_from(*pages).is_ok_and(|pages| pages > 0)
    });
    stayed.filter_map(|(dev, pages)| layer(dev, pages)).collect()
}

fn layer(dev: u32, pages: u64) -> Option<StackedCache> {
    let (major, minor) = device::decode(dev);
    let lower = proc::read(device::in_sysfs(dev).join("loop/backing_file"))?;
    let resident = residency::of_path(Path::new(&lower)).ok()?;
    let page_bytes = residency::page_bytes();
    (resident.resident > 0).then(|| StackedCache {
        upper: mounts::of_device(dev)
            .map_or_else(|| format!("{major}:{minor}"), |it| it.point.display().to_string()),
        upper_bytes: pages * page_bytes,
        lower,
        lower_bytes: resident.resident * page_bytes,
    })
}
