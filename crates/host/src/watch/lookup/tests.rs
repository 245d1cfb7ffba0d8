//! Single cases of the rule, and a comparison with a model that tracks every page.

use super::*;

const A: ThreadIdentity = ThreadIdentity { thread: 10, process: 1, is_worker: false };
const B: ThreadIdentity = ThreadIdentity { thread: 20, process: 2, is_worker: false };
const WORKER: ThreadIdentity = ThreadIdentity { thread: 11, process: 1, is_worker: true };

fn found(hits: u64, ahead: u64, misses: u64) -> Found {
    Found { is_new: true, hits, ahead, misses, ..Found::default() }
}

/// Performs a lookup and clears the fields `first` and `in_order` of the result.
fn look(
    lookups: &mut Lookups,
    identity: ThreadIdentity,
    file: FileId,
    first: u64,
    last: u64,
) -> Found {
    Found { first: 0, in_order: false, ..lookups.looked_up(identity, file, first, (last, last)) }
}

#[test]
fn a_page_that_came_for_this_request_is_a_miss_and_then_a_hit() {
    let mut lookups = Lookups::default();
    lookups.added(A, 0, 7, 1);
    assert_eq!(look(&mut lookups, A, 0, 7, 7), found(0, 0, 1));
    assert_eq!(look(&mut lookups, A, 0, 7, 7), found(1, 0, 0));
    assert_eq!(look(&mut lookups, A, 1, 7, 7), found(1, 0, 0), "of another file nothing came");
}

#[test]
fn what_read_ahead_brought_is_a_read_ahead_hit_once() {
    let mut lookups = Lookups::default();
    lookups.sync_readahead(A, 0, 0, 1);
    lookups.added(A, 0, 0, 4);
    lookups.added(A, 0, 4, 4);
    assert_eq!(look(&mut lookups, A, 0, 0, 0), found(0, 0, 1));
    assert_eq!(look(&mut lookups, B, 0, 1, 3), found(0, 3, 0), "the first one counts");
    lookups.async_readahead(A);
    lookups.added(A, 0, 8, 8);
    assert_eq!(look(&mut lookups, A, 0, 1, 5), found(3, 2, 0));
    let mut unused = Vec::new();
    lookups.dropped(0, 0, 100, |process, pages| unused.push((process, pages)));
    assert_eq!(unused.iter().map(|(_, pages)| pages).sum::<u64>(), 10, "6, 7 and 8 to 15");
    assert!(unused.iter().all(|(process, _)| *process == A.process));
    assert_eq!(look(&mut lookups, A, 0, 6, 6), found(1, 0, 0), "it is forgotten");
}

#[test]
fn without_events_of_read_ahead_the_next_look_up_of_the_thread_decides() {
    let mut lookups = Lookups::default();
    lookups.added(A, 0, 0, 8);
    assert_eq!(look(&mut lookups, A, 0, 0, 1), found(0, 0, 2));
    assert_eq!(look(&mut lookups, A, 0, 2, 9), found(2, 6, 0));
}

#[test]
fn the_rest_of_a_request_counts_no_page_twice() {
    // 1 MiB in pieces: 0-255, 31-255, 62-255 and so on.
    let mut lookups = Lookups::default();
    let mut sum = found(0, 0, 0);
    for first in (0..256).step_by(31) {
        // Pages from 100 on are not resident; the kernel adds them when the request reaches them.
        if first + 31 > 100 {
            let from = first.max(100);
            lookups.sync_readahead(A, 0, from, 256 - from);
            lookups.added(A, 0, from, (first + 31).min(256) - from);
        }
        let one = look(&mut lookups, A, 0, first, 255);
        assert_eq!(one.is_new, first == 0);
        sum.hits += one.hits;
        sum.hits -= one.corrected;
        sum.misses += one.misses;
    }
    assert_eq!((sum.hits, sum.ahead, sum.misses), (100, 0, 156));
    // A repetition of the request starts at the same page.
    assert_eq!(look(&mut lookups, A, 0, 0, 255), found(256, 0, 0));
    // Large folios cause long steps.
    let rest = look(&mut lookups, A, 0, 200, 255);
    assert_eq!((rest.is_new, rest.hits, rest.misses), (false, 0, 0));
}

#[test]
fn a_piece_that_was_not_told_is_found_by_what_read_ahead_was_asked_for() {
    let mut lookups = Lookups::default();
    lookups.sync_readahead(A, 0, 100, 16);
    lookups.added(A, 0, 100, 16);
    // The first folio was resident, so the kernel reports the request from the second one on.
    let rest = lookups.looked_up(A, 0, 104, (115, 115));
    assert_eq!((rest.first, rest.is_new, rest.misses), (100, true, 16));
    lookups.sync_readahead(A, 0, 200, 4);
    lookups.added(A, 0, 200, 4);
    assert_eq!(lookups.looked_up(A, 0, 202, (300, 300)).first, 202, "asked for something else");
}

#[test]
fn a_piece_that_was_not_told_is_found_in_a_run_and_nowhere_else() {
    let mut lookups = Lookups::default();
    lookups.async_readahead(B);
    lookups.added(B, 0, 0, 500);
    for first in [0, 16, 32] {
        assert_eq!(look(&mut lookups, A, 0, first, first + 15), found(0, 16, 0));
    }
    let rest = lookups.looked_up(A, 0, 60, (63, 63));
    assert_eq!((rest.first, rest.ahead), (48, 16));
    // Reads of every second page are not sequential.
    for page in (100..200).step_by(2) {
        let one = lookups.looked_up(A, 0, page, (page, page));
        assert_eq!((one.first, one.ahead), (page, 1));
    }
    // Sequential requests, but the pages in between do not come from read-ahead.
    for first in [600, 601, 602] {
        look(&mut lookups, A, 0, first, first);
    }
    assert_eq!(lookups.looked_up(A, 0, 610, (610, 610)).first, 610);
}

#[test]
fn who_waits_for_the_page_of_another_does_not_take_his_miss() {
    let mut lookups = Lookups::default();
    lookups.sync_readahead(A, 0, 5, 1);
    lookups.added(A, 0, 5, 1);
    assert_eq!(look(&mut lookups, B, 0, 5, 5), found(1, 0, 0));
    assert_eq!(look(&mut lookups, A, 0, 5, 5), found(0, 0, 1));
    assert_eq!(look(&mut lookups, B, 0, 5, 5), found(1, 0, 0));
}

#[test]
fn many_requests_of_a_ring_at_a_time_are_misses_each() {
    let mut lookups = Lookups::default();
    for page in [3, 9, 1, 7] {
        lookups.sync_readahead(A, 0, page, 1);
        lookups.added(A, 0, page, 2);
    }
    for page in [9, 3, 7] {
        assert_eq!(look(&mut lookups, A, 0, page, page), found(0, 0, 1), "{page}");
    }
    assert_eq!(look(&mut lookups, WORKER, 0, 1, 1), found(0, 0, 1), "by a worker of the process");
    assert_eq!(look(&mut lookups, B, 0, 10, 10), found(0, 1, 0), "it came along");
}

#[test]
fn a_written_page_is_nobodys_read_ahead() {
    let mut lookups = Lookups::default();
    lookups.added(A, 0, 0, 4);
    lookups.written(0, 0, 4);
    assert_eq!(look(&mut lookups, B, 0, 0, 3), found(4, 0, 0));
    lookups.dropped(0, 0, 4, |_, _| panic!("nothing was brought for nothing"));
}

#[test]
fn a_page_that_was_mapped_is_no_longer_fresh() {
    let mut lookups = Lookups::default();
    lookups.sync_readahead(A, 0, 0, 1);
    lookups.added(A, 0, 0, 4);
    assert!(!lookups.touched(0, 0) && lookups.touched(0, 1) && !lookups.touched(0, 1));
    lookups.thread_ended(A.thread);
    assert_eq!(look(&mut lookups, B, 0, 1, 3), found(1, 2, 0));
}

#[test]
fn memory_is_bounded_and_what_is_forgotten_is_counted() {
    let mut lookups = Lookups::default();
    lookups.async_readahead(A);
    for page in 0..FRESH_MAX as u64 + 10 {
        lookups.added(A, 0, 2 * page, 1);
        assert!(lookups.spans <= FRESH_MAX);
    }
    assert!(lookups.forgotten >= FRESH_MAX as u64);
    assert_eq!(look(&mut lookups, A, 0, 0, 0), found(1, 0, 0));
}

/// Threads read a file with and without read-ahead, through a cache that drops pages: each lookup
/// must classify each page as the model does.
#[test]
fn random_reads_agree_with_a_model_that_knows_every_page() {
    let mut random = 0x2545_f491_4f6c_dd1d_u64;
    let mut next = |below: u64| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random % below
    };
    for round in 0..40 {
        let reports_readahead = round % 2 == 0;
        let mut lookups = Lookups::default();
        let mut resident = [false; 200];
        let mut fresh = [false; 200];
        for _ in 0..300 {
            let identity = if next(2) == 0 { A } else { B };
            if next(5) == 0 {
                let page = next(200);
                let index = usize::try_from(page).unwrap();
                if resident[index] {
                    lookups.dropped(0, page, 1, |_, _| ());
                    (resident[index], fresh[index]) = (false, false);
                }
                continue;
            }
            let first = next(190);
            let last = first + next(8);
            let mut expected = found(0, 0, 0);
            if lookups.threads.get(&identity.thread).is_some_and(|thread| {
                let rest = thread
                    .request
                    .is_some_and(|(_, previous_first, end)| end == last && first > previous_first);
                rest || thread.in_order >= IN_ORDER_MIN
            }) {
                // The lookup is indistinguishable from the rest of a request.
                lookups.thread_ended(identity.thread);
                continue;
            }
            for page in first..=last {
                let index = usize::try_from(page).unwrap();
                match (resident[index], fresh[index]) {
                    (false, _) => expected.misses += 1,
                    (true, true) => expected.ahead += 1,
                    (true, false) => expected.hits += 1,
                }
            }
            if reports_readahead && expected.misses > 0 {
                lookups.sync_readahead(identity, 0, first, last - first + 1);
            }
            // The kernel adds the missing pages, and sometimes more.
            let more = if expected.misses > 0 { next(4) } else { 0 };
            for page in first..=last + more {
                let index = usize::try_from(page).unwrap();
                if !resident[index] {
                    resident[index] = true;
                    lookups.added(identity, 0, page, 1);
                    fresh[index] = page > last;
                }
            }
            for page in first..=last {
                fresh[usize::try_from(page).unwrap()] = false;
            }
            assert_eq!(look(&mut lookups, identity, 0, first, last), expected, "{first}..={last}");
        }
    }
}

/// Model of the kernel program's state and behavior for a thread: `watch/kernel_probe/program.rs`
/// in Rust.
#[derive(Clone, Copy, Debug, Default)]
struct Kernel {
    request: Option<(FileId, u64, u64)>,
    in_order: u32,
    pages: u64,
    skipped: u32,
}

impl Kernel {
    /// Performs a lookup; if the kernel counts it, returns its pages.
    fn looked_up(
        &mut self,
        file: FileId,
        first: u64,
        (last, held): (u64, u64),
        counts: bool,
    ) -> Option<u64> {
        let same = self.request.filter(|(of, ..)| *of == file);
        self.skipped += u32::from(counts);
        if let Some((_, previous_first, end)) = same
            && end == last
            && first > previous_first
        {
            self.request = Some((file, first, last));
            return counts.then_some(0);
        }
        let is_sequential = same.is_some_and(|(_, _, end)| first == end || first == end + 1);
        self.in_order = if is_sequential { self.in_order + 1 } else { 0 };
        self.pages = last - first + 1;
        self.request = Some((file, first, last));
        counts.then_some(last.min(held) + 1 - first)
    }
}

/// Adds hits, read-ahead hits, misses and pages in order to the sums.
fn add(sums: &mut [u64; 4], one: &Found, pages: u64) {
    let in_order = if one.in_order { pages } else { 0 };
    let values = [one.hits.wrapping_sub(one.corrected), one.ahead, one.misses, in_order];
    for (sum, value) in sums.iter_mut().zip(values) {
        *sum = sum.wrapping_add(value);
    }
}

/// Reports the lookups that the kernel counted, before anything that depends on them.
fn catch_up(lookups: &mut Lookups, thread: u32, of: &mut Kernel) {
    let count = std::mem::take(&mut of.skipped);
    if count > 0 {
        let request = of.request.expect("it skipped one");
        lookups.skipped(thread, count, request, (of.in_order, of.pages));
    }
}

/// Two instances see the same operations: one receives every lookup, the other only those that the
/// kernel does not count, together with the counted ones.
#[test]
fn what_is_only_counted_gives_the_same_numbers() {
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = |below: u64| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random % below
    };
    let mut counted = 0;
    for _ in 0..300 {
        let (mut all, mut some) = (Lookups::default(), Lookups::default());
        let mut kernel = [Kernel::default(); 2];
        let (mut expected, mut found, mut at) = ([0; 4], [0; 4], [0; 2]);
        for _ in 0..200 {
            let number = usize::try_from(next(2)).unwrap();
            let (identity, file) = ([A, B][number], u32::try_from(next(2)).unwrap());
            let of = &mut kernel[number];
            match next(8) {
                0 => {
                    let (first, pages) = (next(30), 1 + next(4));
                    catch_up(&mut some, identity.thread, of);
                    for it in [&mut all, &mut some] {
                        it.added(identity, file, first, pages);
                    }
                }
                1 => {
                    let (first, pages) = (next(30), next(20));
                    for it in [&mut all, &mut some] {
                        it.dropped(file, first, pages, |_, _| ());
                    }
                }
                2 => {
                    all.written(file, 0, 40);
                    some.written(file, 0, 40);
                }
                _ => {
                    // Sequential, the rest of a request, or random.
                    let (first, last) = match (next(3), of.request) {
                        (0, _) => (at[number], at[number] + next(3)),
                        (1, Some((_, previous_first, last))) if previous_first < last => {
                            (previous_first + 1, last)
                        }
                        _ => (next(20), 20 + next(10)),
                    };
                    (at[number], counted) = (last + 1, counted + 1);
                    // The file may end within the range.
                    let range = (last, last.min(first + next(12)));
                    let pages = range.1 - first + 1;
                    add(&mut expected, &all.looked_up(identity, file, first, range), pages);
                    if some.none_fresh(file) {
                        let hits = of.looked_up(file, first, range, true).expect("counted");
                        let in_order = hits > 0 && of.in_order > 0;
                        add(&mut found, &Found { hits, in_order, ..Found::default() }, hits);
                    } else {
                        counted -= 1;
                        catch_up(&mut some, identity.thread, of);
                        of.looked_up(file, first, range, false);
                        add(&mut found, &some.looked_up(identity, file, first, range), pages);
                    }
                }
            }
        }
        assert_eq!(expected, found);
    }
    assert!(counted > 5000, "{counted}");
}
