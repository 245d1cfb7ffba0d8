//! Statistics compared with manually computed values and published tables.

use super::*;

fn near(left: f64, right: f64) {
    assert!((left - right).abs() < 1e-9, "{left} is not {right}");
}

#[test]
fn summary_of_a_known_sample() {
    let summary = Summary::of(&[4.0, 1.0, 3.0, 2.0, 10.0]).unwrap();
    assert_eq!(summary.count, 5);
    near(summary.mean, 4.0);
    near(summary.stdev, 12.5_f64.sqrt());
    let quartiles = [summary.lower_quartile, summary.median, summary.upper_quartile];
    for (quartile, known) in quartiles.into_iter().zip([2.0, 3.0, 4.0]) {
        near(quartile, known);
    }
    near(summary.min, 1.0);
    near(summary.max, 10.0);
    near(Summary::of(&[7.0]).unwrap().stdev, 0.0);
    near(median(&[1.0, 2.0]).unwrap(), 1.5);
}

#[test]
fn samples_without_sense_have_no_summary() {
    assert_eq!(Summary::of(&[]), None);
    assert_eq!(Summary::of(&[1.0, f64::NAN]), None);
    assert_eq!(median(&[f64::INFINITY]), None);
    assert_eq!(PairedRatio::of(&[1.0], &[0.0]), None);
    assert_eq!(PairedRatio::of(&[1.0, 2.0], &[1.0]), None);
}

#[test]
fn sign_interval_is_the_one_of_the_tables() {
    // Ranks from the tables for the sign test: n = 10 takes values 2 and 9, n = 20 values 6 and 15.
    for (count, low, high, confidence) in
        [(5, 1.0, 5.0, 0.9375), (6, 1.0, 6.0, 0.96875), (10, 2.0, 9.0, 0.978_515_625)]
    {
        let values: Vec<f64> = (1..=count).map(f64::from).collect();
        let interval = sign_interval(&values).unwrap();
        near(interval.low, low);
        near(interval.high, high);
        near(interval.confidence, confidence);
    }
    let values: Vec<f64> = (1..=20).map(f64::from).collect();
    let interval = sign_interval(&values).unwrap();
    assert_eq!((interval.low, interval.high), (6.0, 15.0));
    assert_eq!(sign_interval(&[3.0]).map(|i| (i.low, i.high, i.confidence)), Some((3.0, 3.0, 0.0)));
}

#[test]
fn sign_interval_narrows_and_survives_large_samples() {
    let width = |count: u32| {
        let values: Vec<f64> = (0..count).map(|i| f64::from(i) / f64::from(count)).collect();
        let interval = sign_interval(&values).unwrap();
        assert!(interval.low < 0.5 && interval.high > 0.49, "{interval:?}");
        interval.high - interval.low
    };
    let widths: Vec<f64> = [10, 50, 200, 499, 501, 5_000].map(width).to_vec();
    assert!(widths.is_sorted_by(|wide, narrow| wide > narrow), "{widths:?}");
}

#[test]
fn bootstrap_is_repeatable_and_holds_the_median() {
    let values: Vec<f64> = (0..40).map(|i| f64::from(i * i % 41)).collect();
    let first = bootstrap_interval(&values, 1).unwrap();
    assert_eq!(Some(first), bootstrap_interval(&values, 1));
    let median = median(&values).unwrap();
    assert!(first.low <= median && median <= first.high);
    assert!(first.high > first.low);
}

#[test]
fn paired_ratio_ignores_what_moves_both() {
    // Both are ten times slower in the middle; the ratio does not change.
    let theirs = [1.0, 10.0, 10.0, 1.0, 2.0, 1.0];
    let ours: Vec<f64> = theirs.iter().map(|value| value * 1.5).collect();
    let ratio = PairedRatio::of(&ours, &theirs).unwrap();
    near(ratio.summary.median, 1.5);
    near(ratio.summary.max - ratio.summary.min, 0.0);
    near(ratio.interval.low, 1.5);
}

#[test]
fn weighted_ratio_is_not_the_mean_of_ratios() {
    // The classical error: a busy interval that hits and idle ones that miss.
    near(weighted_ratio(&[(1_000.0, 0.99), (10.0, 0.5), (0.0, f64::NAN)]).unwrap(), 995.0 / 1010.0);
    assert_eq!(weighted_ratio(&[(0.0, 1.0)]), None);
    assert_eq!(weighted_ratio(&[]), None);
    assert_eq!(hit_ratio(0, 0), None);
    near(hit_ratio(1, 4).unwrap(), 0.25);
}
