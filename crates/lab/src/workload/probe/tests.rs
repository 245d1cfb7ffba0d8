//! Properties of the Probe workload: the pattern, the offsets, and the working set that its seeks
//! produce. Sizes are bytes.

use super::*;
use std::collections::HashMap;

const MIB: u64 = 1 << 20;

#[test]
fn pattern_runs_over_the_records_of_successive_cycles() {
    let mut probe = Probe::random(16 * MIB);
    probe.cycle_records = Spread::exactly(3.0);
    let requests: Vec<_> = probe.requests(1).take(12).collect();
    let letters: String =
        requests.iter().map(|r| if r.action == Action::Read { 'R' } else { 'W' }).collect();
    assert_eq!(letters, "RWWWRWWWRWWW");
    let cycles: Vec<u64> = requests.iter().map(|r| r.cycle).collect();
    assert_eq!(cycles, [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3]);
    for cycle in requests.chunks(3) {
        assert_eq!(cycle[1].offset, cycle[0].offset + 4096, "records of a cycle are in order");
        assert_eq!(cycle.iter().map(|r| r.ends_cycle).collect::<Vec<_>>(), [false, false, true]);
    }
}

#[test]
fn sequential_order_goes_on_where_the_last_cycle_ended() {
    let mut probe = Probe::random(5 * 4096);
    probe.order = Order::Sequential;
    probe.cycle_records = Spread::exactly(2.0);
    let records: Vec<u64> = probe.requests(1).take(7).map(|r| r.offset / 4096).collect();
    assert_eq!(records, [0, 1, 2, 3, 4, 0, 1]);
}

#[test]
fn requests_stay_inside_the_file_even_at_its_ragged_end() {
    for order in [Order::Uniform, Order::Normal(Spread { mean: 90.0, sdev: 200.0 })] {
        let mut probe = Probe::random(100 * 4096 + 100);
        probe.order = order;
        probe.cycle_records = Spread { mean: 4.0, sdev: 3.0 };
        let mut ragged = 0;
        for request in probe.requests(3).take(10_000) {
            assert!(request.offset + request.len <= probe.file_bytes);
            ragged += u32::from(request.len == 100);
        }
        assert!(ragged > 0, "the last record is reached");
    }
}

#[test]
fn think_time_comes_before_a_cycle_only() {
    let mut probe = Probe::random(16 * MIB);
    probe.cycle_records = Spread::exactly(2.0);
    probe.think = Spread { mean: 1e6, sdev: 1e5 };
    let requests: Vec<_> = probe.requests(1).take(2_000).collect();
    assert!(requests.chunks(2).all(|cycle| cycle[0].think > 0 && cycle[1].think == 0));
    let mean = requests.iter().map(|r| r.think).sum::<u64>() / 1_000;
    assert!(mean.abs_diff(1_000_000) < 20_000, "{mean} ns");
}

#[test]
fn one_seed_gives_one_run() {
    let run = |seed| Probe::scenario_2(MIB).requests(seed).take(100).collect::<Vec<_>>();
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}

/// Returns the share of requests to the `cached` most used records, which is the hit ratio of the
/// best cache.
fn best_hit_ratio(probe: &Probe, cached: usize) -> f64 {
    let mut frequencies: HashMap<u64, u32> = HashMap::new();
    for request in probe.requests(7).take(400_000) {
        *frequencies.entry(request.offset).or_default() += 1;
    }
    let mut counts: Vec<u32> = frequencies.into_values().collect();
    counts.sort_unstable_by(|a, b| b.cmp(a));
    f64::from(counts[..cached.min(counts.len())].iter().sum::<u32>()) / 400_000.0
}

#[test]
fn seeks_make_the_working_set_that_was_measured() {
    let probe = Probe::random(128 * MIB);
    // 26 MB cached hit 48 %, 40 MB hit 61 %.
    let hits = [26, 40].map(|mib| best_hit_ratio(&probe, mib * 256));
    assert!((0.42..=0.50).contains(&hits[0]), "{hits:?}");
    assert!((0.58..=0.65).contains(&hits[1]), "{hits:?}");
}

#[test]
fn scenarios_are_sized_by_the_cache() {
    assert_eq!(Probe::scenario_1(26 * MIB).file_bytes, 16 * MIB);
    assert_eq!(Probe::scenario_2(26 * MIB).file_bytes, 128 * MIB);
    assert_eq!(Probe::sized(MIB, 0.0).file_bytes, 4096);
}

#[test]
fn patterns_that_make_no_sense_are_refused_with_the_reason() {
    use Action::{Read, Write};
    assert_eq!(parse_pattern("rWw"), Ok(vec![Read, Write, Write]));
    assert_eq!(parse_pattern(""), Err(PatternError::Empty));
    let error = parse_pattern("RXW").unwrap_err();
    assert_eq!(error.to_string(), "read the action pattern \"RXW\": 'X' is neither R nor W");
}
