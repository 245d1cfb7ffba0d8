//! The detectors of files. The requests of one file arrive on several threads of a mount, each with
//! a handle of its own; together they are the streams of the readers of that file.

use super::StreamDetector;
use crate::sync::{Mutex, lock};

/// Maximum number of files of a volume with a detector; about 80 KiB with 8 streams each.
const FILES_MAX: usize = 64;

#[derive(Debug)]
struct FileDetector {
    /// The first byte of the file in the volume.
    start: u64,
    used_at: u64,
    detector: StreamDetector,
}

#[derive(Debug, Default)]
struct Files {
    detectors: Vec<FileDetector>,
    tick: u64,
}

/// The detectors of the files that were read last.
#[derive(Debug, Default)]
pub(crate) struct FileDetectors(Mutex<Files>);

impl FileDetectors {
    /// Calls `detect` with the detector of the file that begins at byte `start` of the volume. A
    /// new file displaces the one whose detector was not used for the longest time. Returns the
    /// result, and the number of pages that were read ahead for the displaced file and not used.
    pub(crate) fn with<T>(
        &self,
        start: u64,
        detect: impl FnOnce(&mut StreamDetector) -> T,
    ) -> (T, u64) {
        let mut files = lock(&self.0);
        files.tick += 1;
        let used_at = files.tick;
        let detectors = &mut files.detectors;
        let found = detectors.iter_mut().find(|file| file.start == start);
        if let Some(file) = found {
            file.used_at = used_at;
            return (detect(&mut file.detector), 0);
        }
        let mut abandoned = 0;
        if detectors.len() >= FILES_MAX {
            let oldest = detectors.iter().enumerate().min_by_key(|(_, file)| file.used_at);
            let (oldest, _) = oldest.expect("as many as the maximum");
            abandoned = detectors.swap_remove(oldest).detector.ahead();
        }
        let mut detector = StreamDetector::default();
        let result = detect(&mut detector);
        detectors.push(FileDetector { start, used_at, detector });
        (result, abandoned)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{ObservedRequest, WindowLimits};
    use super::*;

    const LIMITS: WindowLimits =
        WindowLimits { min: 8, max: 64, streams: 8, steps: 2, first: 0, pages: 1 << 20 };

    /// Reads pages of a file in order. Returns the number of pages of the windows, and of those
    /// that were read ahead for a displaced file.
    fn read(files: &FileDetectors, start: u64, pages: std::ops::Range<u64>) -> (u64, u64) {
        let mut total = (0, 0);
        for page in pages {
            let observed = ObservedRequest {
                pages: page..page + 1,
                missed: true,
                wasted: 0,
                sequential: false,
            };
            let (advice, abandoned) =
                files.with(start, |detector| detector.note_request(&observed, &LIMITS));
            total.0 += advice.window.map_or(0, |window| window.pages());
            total.1 += abandoned;
        }
        total
    }

    #[test]
    fn the_file_that_was_not_read_for_the_longest_time_is_displaced() {
        let files = FileDetectors::default();
        let file = |number: usize| number as u64 * 1000;
        let read_ahead = read(&files, file(0), 0..3);
        assert_eq!(read_ahead, (8, 0), "a stream");
        for other in 1..FILES_MAX {
            assert_eq!(read(&files, file(other), file(other)..file(other) + 1), (0, 0));
        }
        // The stream continues, so the second file is the one to displace.
        assert!(read(&files, file(0), 3..4).0 > 0);
        let ahead = read(&files, file(0), 4..5).0 + 8;
        assert_eq!(read(&files, file(FILES_MAX), 500..501), (0, 0));
        for other in 2..FILES_MAX {
            read(&files, file(other), 900..901);
        }
        let (_, abandoned) = read(&files, file(FILES_MAX + 1), 700..701);
        assert!(abandoned > 0 && abandoned <= ahead + 64, "{abandoned} pages of {ahead}");
        assert_eq!(lock(&files.0).detectors.len(), FILES_MAX);
    }
}
