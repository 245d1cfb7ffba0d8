//! Evaluation of a measured curve: regions, agreement with the prediction, and the text.

use crate::advise::{regions, scatter};
use crate::escape;
use crate::stats::Summary;
use crate::table::{Field, Table};
use larder_schema::advice::{FLAT, Region};
use larder_schema::curve::{Curve, Point};
use larder_schema::format;
use larder_schema::measured::{MeasuredSize, MeasuredSizing, Spread};
use std::fmt::Write;

/// A prediction this close to the median of the runs counts as inside their range: one point.
const TOLERANCE: f64 = 0.01;
/// Runs that are shorter scatter for other reasons than the cache.
const SHORT_NS: f64 = 1e9;

/// Returns true if a predicted hit ratio is inside the range of the measured ones, or within a
/// point of their median.
#[must_use]
pub fn is_inside(measured: &Spread, predicted: f64) -> bool {
    let Spread { median, low, high } = *measured;
    (low.min(median - TOLERANCE)..=high.max(median + TOLERANCE)).contains(&predicted)
}

/// Returns the median and the range of values; zeros without values.
fn spread(values: impl Iterator<Item = f64>) -> Spread {
    let values: Vec<f64> = values.collect();
    Summary::of(&values).map_or_else(Spread::default, |Summary { min, median, max }| Spread {
        median,
        low: min,
        high: max,
    })
}

/// Adds to measured sizes the values that follow from their runs: spreads, regions and notes.
/// `reachable` is the hit ratio of a cache for everything, if the sizes do not include one.
pub fn evaluate(sizing: &mut MeasuredSizing, reachable: Option<f64>) {
    for size in &mut sizing.sizes {
        let runs = &size.runs;
        size.read_hit_ratio = spread(runs.iter().map(|run| run.read_hit_ratio));
        let time = spread(runs.iter().map(|run| larder_schema::as_f64(run.elapsed_ns)));
        size.elapsed_ns = time;
        size.scatter =
            (runs.len() > 1 && time.median > 0.0).then(|| (time.high - time.low) / time.median);
        size.scatter_region = size.scatter.map(scatter::region);
        if let Some(predicted) = &mut size.predicted {
            predicted.is_inside = is_inside(&size.read_hit_ratio, predicted.read_hit_ratio);
        }
    }
    let point = |size: &MeasuredSize| {
        let Spread { median, low, high } = size.read_hit_ratio;
        Point { bytes: size.memory_bytes, hit_ratio: median, low, high }
    };
    let curve = Curve::new(sizing.sizes.iter().map(point));
    let measured = curve.points().iter().map(|point| point.hit_ratio);
    // Nothing beyond a cache that has read no page twice is reachable, whatever a simulation hits
    // whose reads take less time.
    let reachable = reachable.filter(|_| !holds_all(sizing));
    let ceiling = measured.chain(reachable).fold(0.0, f64::max);
    if is_complete(&curve, ceiling) {
        sizing.regions = regions::find(&curve, ceiling);
    } else {
        steep_sizes(sizing, &curve, ceiling);
    }
    if let Some(found) = &sizing.regions {
        sizing.regions_why = regions::reasons(found).into();
        for size in &mut sizing.sizes {
            size.region = Some(regions::region(found, size.memory_bytes));
        }
    }
    let notes: Vec<String> =
        [outside(sizing), disagreement(sizing), short_runs(sizing)].into_iter().flatten().collect();
    sizing.notes.extend(notes);
}

/// Returns true if no run with the largest size has read a page twice.
fn holds_all(sizing: &MeasuredSizing) -> bool {
    let largest = sizing.sizes.iter().max_by_key(|size| size.memory_bytes);
    largest.is_some_and(|size| {
        let mut runs = size.runs.iter();
        runs.len() > 0 && runs.all(|run| (1..=sizing.footprint_bytes).contains(&run.read_bytes))
    })
}

/// Returns true if the largest size reaches region 3.
fn is_complete(curve: &Curve, ceiling: f64) -> bool {
    curve.rising().points().last().is_some_and(|last| last.hit_ratio >= ceiling * (1.0 - FLAT))
}

/// Finds the sizes that are in region 1 whatever the sizes beyond the measured ones hit: those up
/// to the last one from which doubling gains much. The other sizes have no region.
fn steep_sizes(sizing: &mut MeasuredSizing, curve: &Curve, ceiling: f64) {
    let Some(&last) = curve.rising().points().last() else { return };
    let is_steep = |size: &MeasuredSize| {
        let doubled = curve.rising().at(size.memory_bytes.saturating_mul(2).min(last.bytes));
        let gain = doubled.map_or(0.0, |it| it.hit_ratio) - size.read_hit_ratio.median;
        gain > regions::STEEP * ceiling
    };
    let last_steep = sizing.sizes.iter().filter(|&size| is_steep(size));
    let last_steep = last_steep.map(|size| size.memory_bytes).max().unwrap_or(0);
    for size in &mut sizing.sizes {
        size.region = (size.memory_bytes <= last_steep).then_some(Region::Steep);
    }
    sizing.regions_why.push(format!(
        "Only sizes in region 1 are known, since the largest size, {}, hits {}, and {} are \
         reachable. Measure larger --sizes.",
        format::bytes(last.bytes),
        format::percent(last.hit_ratio),
        format::percent(ceiling)
    ));
}

/// Returns the sizes that a filter selects, with a text for each.
fn listed(
    sizing: &MeasuredSizing,
    text: impl Fn(&MeasuredSize) -> Option<String>,
) -> Option<String> {
    let with_size =
        |size| text(size).map(|text| format!("{} ({text})", format::bytes(size.memory_bytes)));
    let sizes: Vec<String> = sizing.sizes.iter().filter_map(with_size).collect();
    (!sizes.is_empty()).then(|| sizes.join(", "))
}

fn outside(sizing: &MeasuredSizing) -> Option<String> {
    let sizes = listed(sizing, |size| {
        let predicted = size.predicted.filter(|predicted| !predicted.is_inside)?;
        let points = (predicted.read_hit_ratio - size.read_hit_ratio.median) * 100.0;
        Some(format!("{points:+.1} points"))
    })?;
    Some(format!(
        "The prediction is outside the range of the runs at {sizes}: the difference to their \
         median."
    ))
}

fn disagreement(sizing: &MeasuredSizing) -> Option<String> {
    let sizes = listed(sizing, |size| {
        let (region, by_scatter) = (size.region?, size.scatter_region?);
        (region != by_scatter).then(|| format!("{} and {}", number(region), number(by_scatter)))
    })?;
    Some(format!("The regions by the curve and by the scatter differ at {sizes}."))
}

fn short_runs(sizing: &MeasuredSizing) -> Option<String> {
    let is_short = sizing.sizes.iter().any(|size| size.elapsed_ns.median < SHORT_NS);
    is_short.then(|| {
        "Some runs take less than a second, so that other programs decide how their times scatter; \
         use a longer command."
            .to_owned()
    })
}

fn number(region: Region) -> &'static str {
    match region {
        Region::Steep => "1",
        Region::Useful => "2",
        Region::Flat => "3",
    }
}

fn named(region: Option<Region>) -> &'static str {
    region.map_or("-", |region| regions::title(region).trim_start_matches("region "))
}

/// Returns the result as text.
#[must_use]
pub fn to_text(sizing: &MeasuredSizing) -> String {
    let command: Vec<_> = sizing.command.iter().map(|word| escape::line(word)).collect();
    let runs = sizing.sizes.first().map_or(0, |size| size.runs.len()) as u64;
    let mut text = format!(
        "{}: {}\n{} of the command with each of {}, from an empty cache; {}, pages of {}, {}\nThe \
         recorded run made {} to {} of data.\n\n",
        escape::line(&sizing.directory),
        command.join(" "),
        format::counted(runs, "run"),
        format::counted(sizing.sizes.len() as u64, "size"),
        sizing.policy,
        format::bytes(sizing.page_bytes.into()),
        sizing.write_mode,
        format::counted(sizing.requests, "request"),
        format::bytes(sizing.footprint_bytes),
    );
    text += &table(sizing).to_whole_text();
    let mut line = |words: std::fmt::Arguments<'_>| {
        text.write_fmt(words).expect("a text takes everything");
    };
    let predicted = || sizing.sizes.iter().filter_map(|size| size.predicted);
    line(format_args!(
        "\nThe prediction is in the range of the runs, or within one point of their median, at {} \
         of {}. Its store model is {}.\n",
        predicted().filter(|predicted| predicted.is_inside).count(),
        format::counted(predicted().count() as u64, "size"),
        sizing.store
    ));
    if !sizing.regions_why.is_empty() {
        line(format_args!("\nRegions by the measured curve\n\n"));
        sizing.regions_why.iter().for_each(|why| line(format_args!("  {why}\n")));
    }
    if !sizing.notes.is_empty() {
        line(format_args!("\nNotes\n\n"));
        sizing.notes.iter().for_each(|note| line(format_args!("  {}\n", escape::line(note))));
    }
    text
}

fn table(sizing: &MeasuredSizing) -> Table {
    let fields = [
        Field::bytes("memory_bytes", "memory", |it: &MeasuredSize| it.memory_bytes),
        Field::percent("read_hit_ratio", "read hits", |it| it.read_hit_ratio.median),
        Field::percent("read_hit_ratio_low", "from", |it| it.read_hit_ratio.low),
        Field::percent("read_hit_ratio_high", "to", |it| it.read_hit_ratio.high),
        Field::percent("predicted", "predicted", |it| it.predicted.map(|it| it.read_hit_ratio)),
        Field::word("inside", "inside", |it| match it.predicted {
            Some(predicted) if predicted.is_inside => "yes",
            Some(_) => "no",
            None => "-",
        }),
        Field::bytes("read_bytes", "read from the store", |it| {
            let median = spread(it.runs.iter().map(|run| larder_schema::as_f64(run.read_bytes)));
            larder_schema::as_u64(median.median)
        }),
        Field::duration("elapsed_ns", "time", |it| larder_schema::as_u64(it.elapsed_ns.median)),
        Field::percent("scatter", "scatter", |it| it.scatter),
        Field::word("region", "region", |it| named(it.region)),
        Field::word("scatter_region", "by scatter", |it| named(it.scatter_region)),
    ];
    Table::of("", &sizing.sizes, fields)
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_schema::measured::{MeasuredRun, PredictedRun};

    const MIB: u64 = 1 << 20;

    /// Returns a size with runs of these hit ratios and times in seconds.
    fn size(mib: u64, predicted: f64, runs: &[(f64, u64)]) -> MeasuredSize {
        let run = |&(read_hit_ratio, seconds): &(f64, u64)| MeasuredRun {
            read_hit_ratio,
            elapsed_ns: seconds * 1_000_000_000,
            ..MeasuredRun::default()
        };
        let predicted = PredictedRun { read_hit_ratio: predicted, read_bytes: 0, is_inside: false };
        MeasuredSize {
            memory_bytes: mib * MIB,
            runs: runs.iter().map(run).collect(),
            predicted: Some(predicted),
            ..MeasuredSize::default()
        }
    }

    fn evaluated(sizes: Vec<MeasuredSize>) -> MeasuredSizing {
        let mut sizing = MeasuredSizing { sizes, ..MeasuredSizing::default() };
        evaluate(&mut sizing, Some(0.9));
        sizing
    }

    #[test]
    fn a_spread_has_the_median_of_an_even_and_of_an_odd_number() {
        let spread = |values: &[f64]| spread(values.iter().copied());
        assert_eq!(spread(&[3.0, 1.0, 2.0]), Spread { median: 2.0, low: 1.0, high: 3.0 });
        assert_eq!(spread(&[4.0, 1.0]), Spread { median: 2.5, low: 1.0, high: 4.0 });
        assert_eq!(spread(&[]), Spread::default());
    }

    #[test]
    fn a_prediction_is_inside_the_range_or_within_a_point_of_the_median() {
        let measured = Spread { median: 0.5, low: 0.45, high: 0.502 };
        let inside = [0.45, 0.455, 0.5, 0.509].map(|it| is_inside(&measured, it));
        assert_eq!(inside, [true; 4]);
        assert_eq!([0.44, 0.52].map(|it| is_inside(&measured, it)), [false; 2]);
    }

    #[test]
    fn a_cache_that_has_read_no_page_twice_reaches_all_that_is_reachable() {
        let of_large = |read_mib: u64| {
            let mut sizes =
                vec![size(8, 0.1, &[(0.1, 10)]), size(32, 0.9, &[(0.6, 10), (0.5, 10)])];
            sizes[1].runs.iter_mut().for_each(|run| run.read_bytes = read_mib * MIB);
            let footprint_bytes = 16 * MIB;
            let mut sizing = MeasuredSizing { sizes, footprint_bytes, ..MeasuredSizing::default() };
            evaluate(&mut sizing, Some(0.9));
            sizing.sizes[1].region
        };
        assert_eq!([16, 17].map(of_large), [Some(Region::Flat), None]);
    }

    #[test]
    fn without_the_flat_region_only_steep_sizes_are_known() {
        let sizes = [(8, 0.3), (12, 0.42), (16, 0.45)];
        let sizing = evaluated(sizes.map(|(mib, hits)| size(mib, hits, &[(hits, 10)])).into());
        let regions: Vec<_> = sizing.sizes.iter().map(|it| it.region).collect();
        assert_eq!(regions, [Some(Region::Steep), None, None]);
        let plateau = [(8, 0.1), (16, 0.1), (32, 0.1), (64, 0.5)];
        let plateau = evaluated(plateau.map(|(mib, hits)| size(mib, hits, &[(hits, 10)])).into());
        let regions: Vec<_> = plateau.sizes.iter().map(|it| it.region).collect();
        assert_eq!(regions, [[Some(Region::Steep); 3].as_slice(), &[None]].concat());
        let why = "Only sizes in region 1 are known, since the largest size, 16 MiB, hits 45.0 %, \
                   and 90.0 % are reachable. Measure larger --sizes.";
        assert_eq!((sizing.regions, sizing.regions_why), (None, vec![why.to_owned()]));
        let nearly_all = [(8, 0.3), (16, 0.89)].map(|(mib, hits)| size(mib, hits, &[(hits, 10)]));
        let why = evaluated(nearly_all.into()).regions_why;
        assert!(why[2].starts_with("3, flat, from "), "{why:?}");
    }

    #[test]
    fn sizes_have_regions_by_the_curve_and_by_the_scatter() {
        let steep = size(8, 0.31, &[(0.3, 20), (0.2, 30), (0.4, 16)]);
        let useful = size(64, 0.9, &[(0.8, 10), (0.8, 10), (0.81, 10)]);
        let flat = size(256, 0.9, &[(0.9, 10), (0.9, 10), (0.9, 10)]);
        let sizing = evaluated(vec![steep, useful, flat]);
        let regions: Vec<_> = sizing.sizes.iter().map(|it| it.region.unwrap()).collect();
        assert_eq!(regions, [Region::Steep, Region::Useful, Region::Flat]);
        let by_scatter: Vec<_> = sizing.sizes.iter().map(|it| it.scatter_region.unwrap()).collect();
        assert_eq!(by_scatter, [Region::Steep, Region::Flat, Region::Flat]);
        let inside = sizing.sizes.iter().map(|it| it.predicted.unwrap().is_inside);
        assert_eq!(inside.collect::<Vec<_>>(), [true, false, true]);
        assert_eq!(sizing.notes.len(), 2, "{:?}", sizing.notes);
        assert!(sizing.notes[0].contains("64 MiB (+10.0 points)"), "{}", sizing.notes[0]);
        assert!(sizing.notes[1].contains("differ at 64 MiB (2 and 3)"), "{}", sizing.notes[1]);
        let text = to_text(&sizing);
        assert!(text.contains("within one point of their median, at 2 of 3 sizes"), "{text}");
        assert!(text.contains("3, flat"), "{text}");
    }

    #[test]
    fn a_single_run_has_no_scatter_and_short_runs_have_a_note() {
        let sizing = evaluated(vec![size(8, 0.9, &[(0.9, 0)])]);
        assert_eq!((sizing.sizes[0].scatter, sizing.sizes[0].scatter_region), (None, None));
        assert!(sizing.notes[0].starts_with("Some runs take less than a second"));
        assert!(to_text(&sizing).contains("1 run of the command with each of 1 size"));
    }
}
