//! Tests of the detector with readers of known paths, so that each page that is read ahead can be
//! classified as useful or wasted.

use super::*;
use crate::page::mix;
use std::collections::BTreeSet;
use std::ops::Range;

const LIMITS: WindowLimits =
    WindowLimits { min: 8, max: 64, streams: 8, steps: 2, first: 0, pages: 1 << 20 };

/// Pseudorandom numbers from a seed.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 += 1;
        mix(self.0.wrapping_mul(0x9e37_79b9_7f4a_7c15)) % end
    }
}

/// A reader with a known path.
#[derive(Clone, Debug)]
struct Reader {
    at: u64,
    len: u64,
    stride: u64,
    backward: bool,
}

impl Reader {
    fn next(&mut self) -> Range<u64> {
        let pages = self.at..self.at + self.len;
        let step = self.stride.max(self.len);
        self.at = if self.backward { self.at - step } else { self.at + step };
        pages
    }
}

/// A reference model of a cache that reads ahead and evicts nothing: the set of resident pages, and
/// the untouched ones among them. The detector observes only requests that missed or touched a page
/// for the first time.
#[derive(Default)]
struct Model {
    detector: StreamDetector,
    resident: BTreeSet<u64>,
    untouched: BTreeSet<u64>,
    /// Number of pages that requests found missing.
    misses: u64,
    ahead: u64,
}

impl Model {
    fn read(&mut self, pages: &Range<u64>, limits: &WindowLimits) {
        let missing = pages.clone().filter(|page| !self.resident.contains(page)).count() as u64;
        let touched = pages.clone().any(|page| self.untouched.contains(&page));
        self.misses += missing;
        for page in pages.clone() {
            self.resident.insert(page);
            self.untouched.remove(&page);
        }
        if missing == 0 && !touched {
            return;
        }
        let observed = ObservedRequest {
            pages: pages.clone(),
            missed: missing > 0,
            wasted: 0,
            sequential: false,
        };
        let advice = self.detector.note_request(&observed, limits);
        let Some(mut window) = advice.window else { return };
        assert!(window.pages() > 0, "an empty window");
        assert!(window.pages() <= limits.max.max(pages.end - pages.start), "{window:?}");
        while let Some(run) = window.take(256) {
            assert!(run.start < run.end && run.end <= limits.pages, "{run:?} is not in the volume");
            assert!(run.start >= limits.first, "{run:?} begins too early");
            for page in run {
                if self.resident.insert(page) {
                    self.untouched.insert(page);
                    self.ahead += 1;
                }
            }
        }
    }
}

fn forward(at: u64, len: u64) -> Reader {
    Reader { at, len, stride: 0, backward: false }
}

#[test]
fn a_reader_in_order_misses_its_first_requests_only() {
    for len in [1, 2, 5, 16, 100] {
        for reader in [
            forward(1000, len),
            Reader { backward: true, ..forward(500_000, len) },
            Reader { stride: 3 * len + 1, ..forward(1000, len) },
            Reader { stride: 3 * len + 1, backward: true, ..forward(500_000, len) },
        ] {
            let (mut model, mut reader) = (Model::default(), reader);
            for _ in 0..6 {
                model.read(&reader.next(), &LIMITS);
            }
            let before = model.misses;
            // A request larger than the maximum window is read ahead in part.
            let beyond = len.saturating_sub(LIMITS.max);
            assert!(before <= 4 * len + 2 * beyond, "{reader:?} missed {before}");
            for _ in 0..500 {
                model.read(&reader.next(), &LIMITS);
            }
            assert!(model.misses - before <= 500 * beyond, "{reader:?} missed {}", model.misses);
        }
    }
}

#[test]
fn as_many_readers_as_streams_may_interleave_among_requests_at_random() {
    for seed in 0..40 {
        let mut random = Random(seed * 1000);
        let mut model = Model::default();
        let mut readers: Vec<Reader> = (0..8)
            .map(|i| {
                let len = 1 + random.below(4);
                let backward = random.below(2) == 0;
                let stride = if random.below(3) == 0 { len + 1 + random.below(90) } else { 0 };
                // Far from each other, and from the random requests below.
                let at = 300_000 + 60_000 * i + if backward { 50_000 } else { 0 };
                Reader { at, len, stride, backward }
            })
            .collect();
        let mut steps = [0; 8];
        let mut late = 0;
        for _ in 0..3000 {
            if random.below(3) == 0 {
                let at = random.below(200_000);
                model.read(&(at..at + 1), &LIMITS);
                continue;
            }
            let which = usize::try_from(random.below(8)).unwrap();
            if steps[which] >= 400 {
                continue;
            }
            let before = model.misses;
            model.read(&readers[which].next(), &LIMITS);
            steps[which] += 1;
            late += u64::from(steps[which] > 8 && model.misses > before);
        }
        // Random requests in between may displace the first requests of a reader, which is then
        // detected later.
        assert!(late <= 24, "seed {seed}: {late} requests of readers in order missed");
    }
}

#[test]
fn requests_at_random_read_next_to_nothing_ahead() {
    let (mut random, mut model) = (Random(7), Model::default());
    for _ in 0..50_000 {
        let at = random.below(LIMITS.pages - 4);
        model.read(&(at..at + 1 + random.below(3)), &LIMITS);
    }
    assert!(model.ahead * 500 < model.misses, "{} pages ahead", model.ahead);
}

#[test]
fn a_request_within_the_previous_one_is_not_a_step_of_a_stream() {
    for requests in [[10..12, 10..11, 9..10], [10..12, 11..12, 12..13]] {
        let mut model = Model::default();
        for pages in &requests {
            model.resident.clear();
            model.read(pages, &LIMITS);
        }
        assert_eq!(model.ahead, 0, "{requests:?}");
    }
}

#[test]
fn the_window_doubles_up_to_the_largest_and_is_asked_for_before_it_is_needed() {
    let mut model = Model::default();
    let mut reader = forward(0, 1);
    let mut windows = Vec::new();
    for _ in 0..400 {
        let before = model.ahead;
        let pages = reader.next();
        model.read(&pages, &LIMITS);
        if model.ahead > before {
            windows.push((pages.start, model.ahead - before));
        }
    }
    let sizes: Vec<u64> = windows.iter().map(|window| window.1).collect();
    assert_eq!(sizes[..5], [8, 16, 32, 64, 64]);
    // At the first page of the previous window.
    let places: Vec<u64> = windows.iter().map(|window| window.0).collect();
    assert_eq!(places[..5], [2, 3, 11, 27, 59]);
}

#[test]
fn nothing_is_read_beyond_either_end() {
    let cases = [(1, 0), (3, 0), (7, 0), (1, 7), (2, 9), (3, 50)];
    for ((len, stride), first) in cases.into_iter().flat_map(|case| [(case, 0), (case, 101)]) {
        let limits = WindowLimits { pages: 1000, first, ..LIMITS };
        let (mut model, mut reader) =
            (Model::default(), Reader { at: first, len, stride, backward: false });
        while reader.at + len <= 1000 {
            model.read(&reader.next(), &limits);
        }
        let mut back = Reader { at: reader.at, len, stride, backward: true };
        let mut model = Model::default();
        back.next();
        while back.at >= first + stride.max(len) {
            model.read(&back.next(), &limits);
        }
        model.read(&(back.at..back.at + len), &limits);
    }
}

#[test]
fn pages_that_were_lost_shrink_the_window_and_are_asked_for_again() {
    let mut detector = StreamDetector::default();
    let mut note = |start: u64, missed, wasted| {
        let observed =
            ObservedRequest { pages: start..start + 1, missed, wasted, sequential: false };
        detector.note_request(&observed, &LIMITS).window.map(|window| window.pages())
    };
    let mut last = 0;
    for page in 0..200 {
        last = note(page, page < 3, 0).unwrap_or(last);
    }
    assert_eq!(last, 64);
    // The reader reaches a page that was evicted, and other pages were wasted too.
    assert_eq!(note(200, true, 30), Some(32));
    assert_eq!(note(201, true, 60), Some(16));
    assert_eq!(note(202, true, 90), Some(8));
    assert_eq!(note(203, true, 120), Some(8), "never below the least");
    // Missing without waste: there were no frames for it. The size stays, and grows with use.
    assert_eq!(note(204, true, 120), Some(8));
    assert_eq!(note(205, false, 120), Some(16));
}

#[test]
fn waste_over_all_streams_makes_windows_smaller_and_proof_stricter() {
    let feedback = Feedback::default();
    assert_eq!(feedback.apply(LIMITS), LIMITS);
    feedback.unused(64);
    assert_eq!(feedback.apply(LIMITS), WindowLimits { max: 32, steps: 4, ..LIMITS });
    feedback.unused(128);
    assert_eq!(feedback.apply(LIMITS), WindowLimits { max: 16, steps: 8, ..LIMITS });
    feedback.unused(4000);
    let worst = feedback.apply(LIMITS);
    assert_eq!((worst.max, worst.steps), (LIMITS.min, 32));
    for _ in 0..40_000 {
        feedback.used();
    }
    let best = feedback.apply(LIMITS);
    assert!(best.max >= 60 && best.steps == 2, "{best:?}");
}

#[test]
fn a_hint_opens_the_largest_window_at_once() {
    let mut detector = StreamDetector::default();
    let observed = ObservedRequest { pages: 40..41, missed: true, wasted: 0, sequential: true };
    let mut window = detector.note_request(&observed, &LIMITS).window.unwrap();
    assert_eq!(window.take(1000), Some(41..41 + LIMITS.max));
    assert_eq!(window.take(1000), None);
}

#[test]
fn windows_that_overlap_a_range_are_forgotten() {
    let mut detector = StreamDetector::default();
    let mut pending_windows = PendingWindows::default();
    for start in [0, 1000, 2000] {
        let observed =
            ObservedRequest { pages: start..start + 1, missed: true, wasted: 0, sequential: true };
        let window = detector.note_request(&observed, &LIMITS).window.unwrap();
        assert_eq!(window.span(), start + 1..start + 1 + LIMITS.max);
        pending_windows.push(window);
    }
    assert_eq!(pending_windows.forget(&(0..1)), 0, "before the first window");
    assert_eq!(pending_windows.forget(&(1000..1002)), LIMITS.max);
    assert_eq!(pending_windows.take(1), Some(1..2));
    assert_eq!(pending_windows.forget(&(0..1500)), LIMITS.max - 1);
    assert_eq!(pending_windows.take(1), Some(2001..2002));
}

#[test]
fn wishes_are_bounded_and_come_in_order() {
    let mut detector = StreamDetector::default();
    let mut pending_windows = PendingWindows::default();
    let mut forgotten = 0;
    for i in 0..100 {
        let observed = ObservedRequest {
            pages: i * 100..i * 100 + 1,
            missed: true,
            wasted: 0,
            sequential: true,
        };
        let window = detector.note_request(&observed, &LIMITS).window.unwrap();
        forgotten += pending_windows.push(window);
    }
    assert_eq!(forgotten, 36 * LIMITS.max);
    assert_eq!(pending_windows.take(10), Some(3601..3611));
    assert_eq!(pending_windows.take(100), Some(3611..3665));
    assert_eq!(pending_windows.take(100), Some(3701..3765));
    assert_eq!(pending_windows.clear(), 62 * LIMITS.max);
    assert_eq!(pending_windows.take(1), None);
}
