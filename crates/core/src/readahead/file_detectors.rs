//! The detectors of files. The requests of one file arrive on several threads of a mount, each with
//! a handle of its own; together they are the streams of the readers of that file.

use super::StreamDetector;
use crate::sync::{Mutex, lock};

/// Maximum number of files of a volume with a detector; about 66 KiB with 8 streams each.
const FILES_MAX: usize = 64;
/// Number of files without a stream beyond which a new file displaces one of them: a reader of many
/// files then does not displace the streams of others.
const WITHOUT_STREAM_MAX: usize = 16;

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
    /// new file displaces the one whose detector was not used for the longest time.
    pub(crate) fn with<T>(&self, start: u64, detect: impl FnOnce(&mut StreamDetector) -> T) -> T {
        let mut files = lock(&self.0);
        files.tick += 1;
        let used_at = files.tick;
        if let Some(file) = files.detectors.iter_mut().find(|file| file.start == start) {
            file.used_at = used_at;
            return detect(&mut file.detector);
        }
        if files.detectors.len() >= FILES_MAX {
            files.displace();
        }
        let mut detector = StreamDetector::default();
        let result = detect(&mut detector);
        files.detectors.push(FileDetector { start, used_at, detector });
        result
    }
}

impl Files {
    /// Removes a detector.
    fn displace(&mut self) {
        let is_idle = |file: &FileDetector| !file.detector.has_streams();
        let of_idle = self.detectors.iter().filter(|file| is_idle(file)).count();
        let candidates = self
            .detectors
            .iter()
            .enumerate()
            .filter(|(_, file)| of_idle <= WITHOUT_STREAM_MAX || is_idle(file));
        let oldest = candidates.min_by_key(|(_, file)| file.used_at).map(|(at, _)| at);
        self.detectors.swap_remove(oldest.expect("as many as the maximum"));
    }
}

#[cfg(test)]
mod tests {
    use super::super::{ObservedRequest, WindowLimits};
    use super::*;

    const LIMITS: WindowLimits =
        WindowLimits { min: 8, max: 64, streams: 8, steps: 2, first: 0, pages: 1 << 20 };

    /// Reads pages of a file in order. Returns the number of pages of the windows.
    fn read(files: &FileDetectors, file: usize, pages: std::ops::Range<u64>) -> u64 {
        let read_page = |page| {
            let observed = ObservedRequest {
                pages: page..page + 1,
                missed: true,
                wasted: 0,
                sequential: false,
            };
            let advice =
                files.with(file as u64, |detector| detector.note_request(&observed, &LIMITS));
            advice.window.map_or(0, |window| window.pages())
        };
        pages.map(read_page).sum()
    }

    #[test]
    fn a_reader_of_many_files_displaces_no_stream_of_others() {
        let files = FileDetectors::default();
        assert_eq!(read(&files, 0, 0..3), 8, "a stream");
        for other in 1..4 * FILES_MAX {
            assert_eq!(read(&files, other, 100..101), 0);
        }
        assert_eq!(lock(&files.0).detectors.len(), FILES_MAX);
        assert!(read(&files, 0, 3..4) > 0, "the stream continues");
    }

    #[test]
    fn among_streams_the_one_that_was_not_used_for_the_longest_time_is_displaced() {
        let files = FileDetectors::default();
        for file in 0..FILES_MAX {
            assert_eq!(read(&files, file, 0..3), 8);
        }
        assert!(read(&files, 0, 3..4) > 0);
        assert_eq!(read(&files, FILES_MAX, 0..3), 8);
        assert_eq!(read(&files, 1, 3..4), 0, "it was displaced");
        assert!(read(&files, 0, 4..12) > 0);
    }
}
