//! The place of a file on its device: extents, and the requests into which they divide a request.
//!
//! Offsets and lengths are bytes.

use std::ops::Range;

/// A contiguous part of a file on the device.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Extent {
    /// First byte in the file.
    in_file: u64,
    /// Its bytes on the device.
    on_device: Range<u64>,
}

/// The extents of a file, in the order of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileMap {
    extents: Vec<Extent>,
    len: u64,
}

impl FileMap {
    /// Returns a file in one extent.
    #[must_use]
    pub fn contiguous(on_device: Range<u64>) -> FileMap {
        [on_device].into_iter().collect()
    }

    /// Appends bytes of the device to the file. They extend the last extent if they follow it.
    pub fn append(&mut self, on_device: Range<u64>) {
        let len = on_device.end - on_device.start;
        if len == 0 {
            return;
        }
        match self.extents.last_mut() {
            Some(last) if last.on_device.end == on_device.start => {
                last.on_device.end = on_device.end;
            }
            _ => self.extents.push(Extent { in_file: self.len, on_device }),
        }
        self.len += len;
    }

    /// Returns the length of the file.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Returns true if the file has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the extents on the device.
    #[must_use]
    pub fn extents(&self) -> impl ExactSizeIterator<Item = &Range<u64>> {
        self.extents.iter().map(|extent| &extent.on_device)
    }

    /// Returns the bytes of the device that hold a range of the file: one range for each extent.
    ///
    /// # Panics
    /// If the range reaches beyond the end of the file.
    pub fn on_device(&self, range: Range<u64>) -> impl Iterator<Item = Range<u64>> {
        assert!(range.end <= self.len, "a range of a file");
        let first = self.extents.partition_point(|extent| extent.in_file <= range.start);
        let extents = self.extents[first.saturating_sub(1)..].iter();
        extents.take_while(move |extent| extent.in_file < range.end).map(move |extent| {
            let begin = range.start.max(extent.in_file) - extent.in_file;
            let extent_len = extent.on_device.end - extent.on_device.start;
            let end = (range.end - extent.in_file).min(extent_len);
            extent.on_device.start + begin..extent.on_device.start + end
        })
    }
}

impl FromIterator<Range<u64>> for FileMap {
    fn from_iter<I: IntoIterator<Item = Range<u64>>>(extents: I) -> Self {
        let mut map = FileMap::default();
        extents.into_iter().for_each(|extent| map.append(extent));
        map
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_divided_at_the_ends_of_extents() {
        let map: FileMap = [100..110, 50..60, 60..65, 200..300].into_iter().collect();
        assert_eq!(map.extents().cloned().collect::<Vec<_>>(), [100..110, 50..65, 200..300]);
        assert_eq!(map.len(), 125);
        let ranges = |range: Range<u64>| {
            map.on_device(range).map(|it| (it.start, it.end)).collect::<Vec<_>>()
        };
        assert_eq!(ranges(0..125), [(100, 110), (50, 65), (200, 300)]);
        assert_eq!(ranges(9..12), [(109, 110), (50, 52)]);
        assert_eq!(ranges(10..25), [(50, 65)]);
        assert_eq!(ranges(30..31), [(205, 206)]);
        assert!(ranges(7..7).iter().all(|(start, end)| start == end));
    }

    #[test]
    fn every_byte_of_a_file_has_its_place() {
        let map: FileMap = [40..47, 10..13, 90..101].into_iter().collect();
        let bytes: Vec<u64> = map.extents().flat_map(Clone::clone).collect();
        for start in 0..map.len() {
            for end in start + 1..=map.len() {
                let found: Vec<u64> = map.on_device(start..end).flatten().collect();
                let [start, end] = [start, end].map(|at| usize::try_from(at).unwrap());
                assert_eq!(found, bytes[start..end]);
            }
        }
    }
}
