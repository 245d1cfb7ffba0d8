//! Tests of predictions for a server.

use super::super::tests::{options, records, size};
use super::super::{Options, Sizing, page_bytes};
use super::*;
use crate::model::DeviceRates;
use crate::random::Random;
use crate::sim::engine::simulate;
use crate::sim::testing::{Memory, reference, skewed_references};
use crate::trace::{BoxedSource, Op, Record};
use larder_schema::advice::{Attainment, SizingGoal};

fn server(store: StoreModel) -> ServerOptions {
    ServerOptions {
        write_mode: WriteMode::Back,
        store,
        cores: NonZero::new(2).unwrap(),
        search_references_max: SEARCH_REFERENCES_MAX,
    }
}

/// Sizes with a server over some policies; simulations of the whole cache take their time.
fn size_server(records: &[Record], server: &ServerOptions) -> Sizing {
    let policies = vec![PolicyKind::Lru, PolicyKind::S3Fifo];
    size(records, &Options { server: Some(*server), policies, ..options() }).unwrap()
}

#[test]
fn a_server_needs_a_part_of_the_memory_for_a_scan_that_it_reads_ahead() {
    let scan = records((0..20_000).map(reference));
    let replaced = size(&scan, &options()).unwrap();
    assert_eq!(replaced.recommendation, None, "no page is referenced twice");
    let sizing = size_server(&scan, &server(StoreModel::rated(DeviceRates::fixed(1_000))));
    let advice = sizing.recommendation.as_ref().unwrap();
    assert!(advice.bytes < page_bytes(20_000) / 2, "{} of {}", advice.bytes, page_bytes(20_000));
    let effect = sizing.recommended().unwrap();
    let run = effect.server.unwrap();
    assert!(effect.point.hit_ratio >= 0.95 * sizing.workload.ceiling);
    assert!(run.request_hit_ratio > 0.9, "{run:?}");
    assert!(run.read_bytes >= page_bytes(20_000) && run.written_bytes == 0, "{run:?}");
}

#[test]
fn the_prediction_is_a_simulation_of_the_recommended_server() {
    let references = skewed_references(&mut Random::from_seed(16), 40_000, 6_000);
    let records = records(references);
    let options = server(StoreModel::DISK);
    let sizing = size_server(&records, &options);
    let model = sizing.server.clone().unwrap();
    assert_eq!((model.store.as_str(), model.write_mode.as_str()), ("disk", "write-back"));
    assert!(model.is_searched && sizing.exact);
    let advice = sizing.recommendation.as_ref().unwrap();
    assert!(sizing.recommended().unwrap().point.hit_ratio >= advice.wanted_hit_ratio);
    // The parts together are the whole.
    assert_eq!(sizing.windows.iter().map(|window| window.references).sum::<u64>(), 40_000);
    let hits: f64 = sizing.windows.iter().map(|window| window.hit_ratio / 8.0).sum();
    let whole = sizing.recommended().unwrap().point.hit_ratio;
    assert!((hits - whole).abs() < 0.02, "{hits} in parts, {whole}");
    // The curve of the recommended policy reaches to the end.
    let curve = sizing.policies.iter().find(|curve| curve.policy == advice.policy).unwrap();
    assert!(curve.points.last_bytes() >= page_bytes(sizing.workload.footprint_pages));
    let reachable: f64 = sizing.windows.iter().map(|window| window.ceiling / 8.0).sum();
    assert!((reachable - sizing.workload.ceiling).abs() < 0.02, "{reachable}");
    let open = || Box::new(Memory(records.clone().into_iter())) as BoxedSource;
    let lengths = VolumeLengths::of(&mut open()).unwrap();
    for effect in &sizing.effects {
        let frames = u32::try_from(effect.point.bytes / 4096).unwrap();
        let cache = CacheSimulationOptions {
            frames,
            shards: larder_core::cache::shards_for(frames, 2),
            page_blocks: advice.page_bytes / 4096,
            policy: PolicyKind::from_name(&advice.policy).unwrap().into(),
            write_mode: WriteMode::Back,
            store: StoreModel::DISK,
            clients: engine::Clients::synchronous(1),
            pace: Pace::CLOSED,
            wake: 0,
            reply: 0,
            hint: Hint::Normal,
            tunables: Tunables::default(),
            page_cache: None,
        };
        let result = simulate(&mut open(), &lengths, &cache, |_| ()).unwrap();
        let run = effect.server.unwrap();
        assert_eq!(Some(run.read_hit_ratio), result.totals.read_hit_ratio(), "{}", effect.what);
        assert_eq!(run.read_bytes, result.totals.get(Counter::StoreReadBytes));
        assert_eq!(run.elapsed_ns, result.elapsed);
    }
}

/// Returns references to every `stride`th page of a loop over `footprint` pages.
fn strided(count: u64, footprint: u64, stride: u64) -> Vec<Record> {
    records((0..count).map(|at| reference(at * stride % footprint)))
}

#[test]
fn all_figures_are_those_of_the_recommended_page_size_and_of_one_curve() {
    // Each page of 64 KiB is used once in full, in an order that read-ahead does not follow.
    let records = strided(12_000, 4_096, 1_037);
    let sizing = size_server(&records, &server(StoreModel::DISK));
    let advice = sizing.recommendation.clone().unwrap();
    let curve = sizing.best_curve();
    let rises = curve.points().windows(2).all(|pair| pair[0].hit_ratio <= pair[1].hit_ratio);
    assert!(rises, "{curve:?}");
    let ceiling = sizing.workload.ceiling;
    assert!(curve.points().iter().all(|point| point.hit_ratio <= ceiling), "{curve:?}");
    let recommended = sizing.recommended().unwrap().point;
    assert_eq!(curve.at(advice.bytes), Some(recommended));
    assert!(recommended.hit_ratio >= advice.wanted_hit_ratio, "{advice:?}");
    let smaller = curve.points().iter().filter(|point| point.bytes < advice.bytes);
    assert!(smaller.into_iter().all(|point| point.hit_ratio < advice.wanted_hit_ratio));
    let ratios: Vec<f64> = sizing.effects.iter().map(|effect| effect.point.hit_ratio).collect();
    assert!(ratios.is_sorted() && ratios[2] <= ceiling, "{ratios:?}");
    let own = sizing.page_sizes.iter().find(|size| size.page_bytes == advice.page_bytes);
    let (own, run) = (own.unwrap().server.unwrap(), sizing.recommended().unwrap().server.unwrap());
    assert_eq!((own.read_bytes, own.elapsed_ns), (run.read_bytes, run.elapsed_ns));
    assert_ne!(advice.page_bytes, 4096, "larger pages read ahead what the stream does not");
}

#[test]
fn a_budget_limits_the_size_and_changes_nothing_else() {
    let references = skewed_references(&mut Random::from_seed(18), 40_000, 6_000);
    let records = records(references);
    let policies = vec![PolicyKind::Lru];
    let with = |budget_bytes| {
        let goal = SizingGoal { target: 0.8, budget_bytes };
        let server = Some(server(StoreModel::DISK));
        let policies = policies.clone();
        let sizing = size(&records, &Options { goal, policies, server, ..options() }).unwrap();
        sizing.recommendation.unwrap()
    };
    let free = with(None);
    assert_eq!(free.reach, Attainment::Reached);
    let sufficient = with(Some(free.memory_bytes + (1 << 20)));
    assert_eq!(sufficient, free);
    let short = with(Some(free.memory_bytes * 3 / 4));
    assert_eq!((short.reach, short.target_bytes), (Attainment::Budget, free.target_bytes));
    assert!(short.memory_bytes <= free.memory_bytes * 3 / 4 && short.bytes < free.bytes);
}

#[test]
fn a_trace_too_long_for_a_search_still_has_the_effects_of_a_server() {
    let references = skewed_references(&mut Random::from_seed(17), 40_000, 6_000);
    let records = records(references);
    let replaced = Options { policies: vec![PolicyKind::Lru], ..options() };
    let replaced = size(&records, &replaced).unwrap();
    let short = ServerOptions { search_references_max: 1, ..server(StoreModel::DISK) };
    let only_lru = Options { policies: vec![PolicyKind::Lru], server: Some(short), ..options() };
    let sizing = size(&records, &only_lru).unwrap();
    assert_eq!(sizing.recommendation, replaced.recommendation);
    assert_eq!(sizing.curve, replaced.curve);
    assert!(!sizing.server.as_ref().unwrap().is_searched);
    assert!(sizing.effects.iter().all(|effect| effect.server.is_some()));
    let coarse =
        ServerOptions { search_references_max: COARSE_RUNS * 40_000, ..server(StoreModel::DISK) };
    let coarse = size(&records, &Options { server: Some(coarse), ..only_lru }).unwrap();
    let full = size_server(&records, &server(StoreModel::DISK));
    let [coarse, full] = [coarse, full].map(|it| it.recommendation.unwrap().bytes);
    assert!(coarse * 10 < full * 12 && full * 10 < coarse * 12, "{coarse} and {full}");
}

#[test]
fn a_server_that_cannot_be_simulated_leaves_a_note() {
    let few = records((0..20_000).map(|at| reference(at % 900)));
    let writes: Vec<Record> =
        records((0..20_000).map(|at| reference(at % 2_000))).into_iter().map(to_write).collect();
    for (records, reason) in [(few, "less than the smallest cache"), (writes, "has no read")] {
        let sizing = size_server(&records, &server(StoreModel::DISK));
        let note = sizing.notes.iter().find(|note| note.contains(reason));
        assert!(note.is_some(), "{:?}", sizing.notes);
        assert!(sizing.server.is_none() && sizing.recommendation.is_some());
    }
}

fn to_write(record: Record) -> Record {
    Record { op: Op::Write, ..record }
}
