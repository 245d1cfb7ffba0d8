//! Tests of recommendations for traces with a known answer.

use super::*;
use crate::random::Random;
use crate::sim::testing::{Memory, reference, skewed_references};
use crate::trace::Record;
use larder_core::replace::{IndexKind, cache};
use larder_schema::advice::Attainment;

pub(super) fn options() -> Options {
    Options {
        name: "trace".to_owned(),
        goal: SizingGoal { target: 0.95, budget_bytes: None },
        policies: PolicyKind::ALL.to_vec(),
        page_sizes: true,
        sampled: false,
        server: None,
        seed: 1,
        threads: NonZero::new(2).unwrap(),
    }
}

#[test]
fn the_preferred_policy_is_that_of_the_reports() {
    assert_eq!(search::ENGINE_DEFAULT.name(), larder_schema::sizing::DEFAULT_POLICY);
}

pub(super) fn size(records: &[Record], options: &Options) -> Result<Sizing, SizingError> {
    let open = || Ok(Box::new(Memory(Vec::from(records).into_iter())) as BoxedSource);
    measure(&open, options, &mut |_| ())
}

pub(super) fn records(
    references: impl IntoIterator<Item = crate::sim::references::Reference>,
) -> Vec<Record> {
    let references: Vec<_> = references.into_iter().collect();
    Memory::of(&references).0.collect()
}

#[test]
fn a_loop_needs_all_of_its_pages() {
    let pages = 2_000;
    let sizing =
        size(&records((0..20 * pages).map(|at| reference(at % pages))), &options()).unwrap();
    assert_eq!(sizing.workload.footprint_pages, pages);
    assert!((sizing.workload.ceiling - 0.95).abs() < 1e-12);
    let advice = sizing.recommendation.unwrap();
    // A policy that keeps a part of a loop hits with less than the whole loop, so a slightly
    // smaller cache can be enough.
    let part = advice.bytes * 100 / page_bytes(pages);
    assert!((90..=100).contains(&part), "{part} % of the loop");
    assert!(sizing.exact, "so small a trace is counted");
    assert_eq!(sizing.effects.len(), 3);
    assert!((sizing.effects[2].point.hit_ratio - 0.95).abs() < 1e-12);
    // Near the goal only a few policies are simulated, of which none may be the best of a size.
    let hits: Vec<f64> = sizing.curve.iter().map(|best| best.point.hit_ratio).collect();
    assert!(hits.is_sorted(), "the best of a larger cache is not worse: {hits:?}");
}

#[test]
fn the_recommended_size_is_the_smallest_that_reaches_the_goal() {
    let references = skewed_references(&mut Random::from_seed(11), 60_000, 4_000);
    let policies = vec![PolicyKind::Lru];
    let goal = SizingGoal { target: 0.8, budget_bytes: None };
    let options = Options { goal, policies, ..options() };
    let sizing = size(&records(references.iter().copied()), &options).unwrap();
    let wanted = 0.8 * sizing.workload.ceiling;
    let hits = |pages: u32| {
        let mut lru = cache(PolicyKind::Lru, pages, IndexKind::Page);
        lru.run(&references, &[]);
        let counts = lru.counts();
        f64::from(u32::try_from(counts.hits().references).unwrap()) / 60_000.0
    };
    // The hits of LRU never decrease with its size, so bisection finds the smallest size.
    let (mut too_few, mut needed) = (0, 4_000);
    while needed - too_few > 1 {
        let middle = u32::midpoint(too_few, needed);
        if hits(middle) >= wanted {
            needed = middle;
        } else {
            too_few = middle;
        }
    }
    assert!(hits(needed) >= wanted && hits(needed - 1) < wanted, "{needed}");
    let advice = sizing.recommendation.as_ref().unwrap();
    let chosen = u32::try_from(advice.bytes / 4096).unwrap();
    assert!(chosen >= needed && chosen * 100 <= needed * 104, "{chosen}, {needed} needed");
    let effect = sizing.recommended().unwrap();
    assert!((effect.point.hit_ratio - hits(chosen)).abs() < 1e-12 && effect.counted);
    assert!(sizing.min_hit_ratio.unwrap() >= effect.point.hit_ratio);
    assert_eq!(sizing.windows.len(), 8);
    assert_eq!(sizing.windows.iter().map(|w| w.references).sum::<u64>(), 60_000);
    assert_eq!(sizing.slices.iter().map(|slice| slice.references).sum::<u64>(), 60_000);
    assert_eq!(sizing.heat.rows.iter().flatten().sum::<u64>(), 60_000);
}

#[test]
fn the_budget_holds_with_the_tables() {
    let references = skewed_references(&mut Random::from_seed(12), 40_000, 4_000);
    let goal = SizingGoal { target: 0.95, budget_bytes: Some(1 << 20) };
    let sizing = size(&records(references), &Options { goal, ..options() }).unwrap();
    let advice = sizing.recommendation.unwrap();
    assert_eq!(advice.reach, Attainment::Budget);
    assert!(advice.memory_bytes <= 1 << 20, "{}", advice.memory_bytes);
    assert!(advice.target_bytes.unwrap() > advice.bytes);
}

#[test]
fn the_result_depends_on_the_seed_alone() {
    let references = skewed_references(&mut Random::from_seed(13), 250_000, 400_000);
    let records = records(references);
    let policies = vec![PolicyKind::Lru, PolicyKind::S3Fifo, NOT_ESTIMATED];
    let sampled = Options { sampled: true, policies, ..options() };
    let one = size(&records, &sampled).unwrap();
    let is_left_out = |note: &String| note.starts_with("wtinylfu was left out");
    assert!(one.notes.iter().any(is_left_out), "{:?}", one.notes);
    assert!(one.policies.iter().all(|curve| curve.policy != NOT_ESTIMATED.name()));
    let alone = Options { policies: vec![NOT_ESTIMATED], ..sampled.clone() };
    assert!(matches!(size(&records, &alone), Err(SizingError::NotEstimated { .. })));
    let threads = NonZero::new(5).unwrap();
    assert_eq!(size(&records, &Options { threads, ..sampled.clone() }).unwrap(), one);
    assert!(!one.exact);
    let other = size(&records, &Options { seed: 2, ..sampled.clone() }).unwrap();
    assert_ne!(other.curve, one.curve);
    let exact = size(&records, &Options { sampled: false, ..sampled }).unwrap();
    let (bytes, sampled_bytes) =
        (exact.recommendation.unwrap().bytes, one.recommendation.unwrap().bytes);
    assert!(
        sampled_bytes * 10 < bytes * 13 && bytes * 10 < sampled_bytes * 13,
        "{sampled_bytes} sampled, {bytes} counted"
    );
}

#[test]
fn samples_are_not_taken_of_a_trace_of_few_pages() {
    let references = skewed_references(&mut Random::from_seed(15), 20_000, 10_000);
    let records = records(references);
    let sampled = size(&records, &Options { sampled: true, ..options() }).unwrap();
    assert!(sampled.exact);
    assert_eq!(sampled.recommendation, size(&records, &options()).unwrap().recommendation);
}

#[test]
fn memory_goes_to_the_volume_that_gains_from_it() {
    let mut random = Random::from_seed(14);
    let mut records = Vec::new();
    for at in 0..30_000 {
        let hot =
            Record { offset: random.below(500) * 4096, len: 4096, volume: 3, ..Record::default() };
        records.push(hot);
        records.push(Record { offset: at * 4096, len: 4096, volume: 7, ..Record::default() });
    }
    let sizing = size(&records, &options()).unwrap();
    assert_eq!(sizing.volumes.len(), 2);
    let hot = sizing.volumes.iter().find(|share| share.volume == "3").unwrap();
    let scan = sizing.volumes.iter().find(|share| share.volume == "7").unwrap();
    assert!(hot.bytes > 400 * 4096 && scan.bytes == 0, "{hot:?} {scan:?}");
}

#[test]
fn a_short_trace_of_long_requests_leaves_min_out() {
    let record = Record { len: 20_000 * 4096, ..Record::default() };
    let policies = vec![PolicyKind::Lru];
    let sizing = size(&[record, record], &Options { policies, ..options() }).unwrap();
    assert!(sizing.recommendation.is_some() && sizing.min_hit_ratio.is_none());
    let notes = &sizing.notes;
    assert!(notes.iter().any(|note| note.starts_with("MIN was left out")), "{notes:?}");
}

#[test]
fn what_never_hits_gets_no_cache() {
    let sizing = size(&records((0..5_000).map(reference)), &options()).unwrap();
    assert_eq!(sizing.recommendation, None);
    assert!(sizing.workload.ceiling.abs() < 1e-12 && sizing.regions.is_none());
}

#[test]
fn what_cannot_be_sized_is_refused_with_a_sentence() {
    assert!(matches!(size(&[], &options()), Err(SizingError::Empty { .. })));
    let goal = SizingGoal { target: 0.95, budget_bytes: Some(4096) };
    let one = records([reference(0)]);
    let refused = size(&one, &Options { goal, ..options() });
    assert!(matches!(refused, Err(SizingError::Budget { .. })), "{refused:?}");
}

#[test]
fn a_trace_may_last_as_long_as_64_bits_count() {
    let record = |time_ns| Record { time_ns, len: 4096, ..Record::default() };
    let sizing = size(&[record(0), record(u64::MAX)], &options()).unwrap();
    assert_eq!(sizing.workload.duration_ns, Some(u64::MAX));
    assert_eq!(sizing.slices.first().map(|slice| slice.references), Some(1));
    assert_eq!(sizing.slices.last().map(|slice| slice.references), Some(1));
}

/// A source that samples one of `self.1` pages, selected by a hash of the page.
struct SampledSource(Memory, u32);

impl crate::trace::Source for SampledSource {
    fn read_batch(&mut self, batch: &mut Vec<Record>) -> Result<(), TraceError> {
        self.0.read_batch(batch)
    }

    fn name(&self, kind: crate::trace::NameKind, number: u32) -> Option<&str> {
        self.0.name(kind, number)
    }

    fn sample(&self) -> u32 {
        self.1
    }
}

#[test]
fn of_a_sample_of_the_pages_as_much_is_recommended_as_of_all() {
    const SAMPLE: u32 = 8;
    let references = skewed_references(&mut Random::from_seed(5), 400_000, 40_000);
    let policies = vec![PolicyKind::Lru];
    let goal = SizingGoal { target: 0.8, budget_bytes: Some(1 << 30) };
    let options = Options { goal, policies, ..options() };
    let whole = size(&records(references.iter().copied()), &options).unwrap();
    let holds = |page: u64| Random::from_seed(page).below(SAMPLE.into()) == 0;
    let part = records(references.iter().copied().filter(|sizing| holds(sizing.page)));
    let open =
        || Ok(Box::new(SampledSource(Memory(part.clone().into_iter()), SAMPLE)) as BoxedSource);
    let sizing = measure(&open, &options, &mut |_| ()).unwrap();
    let assert_near = |quantity: &str, [one, other]: [u64; 2]| {
        let ratio = real(one) / real(other);
        assert!((0.8..1.25).contains(&ratio), "{quantity}: {one} of a sample, {other} of all");
    };
    let [advice, expected] = [&sizing, &whole].map(|sizing| sizing.recommendation.clone().unwrap());
    assert_near("bytes", [advice.bytes, expected.bytes]);
    assert_near("memory", [advice.memory_bytes, expected.memory_bytes]);
    assert_near("footprint", [sizing.workload.footprint_pages, whole.workload.footprint_pages]);
    assert_near("references", [sizing.workload.references, whole.workload.references]);
    let [regions, whole_regions] = [&sizing, &whole].map(|sizing| sizing.regions.clone().unwrap());
    assert_near("flat region", [regions.flat_begin_bytes, whole_regions.flat_begin_bytes]);
    assert_eq!(sizing.goal, options.goal, "the budget is that for all");
    assert!(sizing.page_sizes.is_empty() && sizing.notes.iter().any(|it| it.contains("neighbors")));
    // The budget applies to all pages, not to the sample.
    let goal = SizingGoal { budget_bytes: Some(1 << 20), ..goal };
    let small = measure(&open, &Options { goal, ..options }, &mut |_| ()).unwrap();
    let advice = small.recommendation.unwrap();
    assert!((900 << 10..=1 << 20).contains(&advice.memory_bytes), "{}", advice.memory_bytes);
}

#[expect(clippy::cast_precision_loss, reason = "sizes in tests are small")]
fn real(count: u64) -> f64 {
    count as f64
}
