//! Statistics compared with manually computed values and published tables.

use super::*;

fn near(left: f64, right: f64) {
    assert!((left - right).abs() < 1e-9, "{left} is not {right}");
}

#[test]
fn summary_of_a_known_sample() {
    let summary = Summary::of(&[4.0, 1.0, 3.0, 2.0, 10.0]).unwrap();
    near(summary.median, 3.0);
    near(summary.min, 1.0);
    near(summary.max, 10.0);
    near(median(&[1.0, 2.0]).unwrap(), 1.5);
}

#[test]
fn samples_without_sense_have_no_summary() {
    assert_eq!(Summary::of(&[]), None);
    assert_eq!(Summary::of(&[1.0, f64::NAN]), None);
    assert_eq!(median(&[f64::INFINITY]), None);
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
fn a_ratio_has_an_interval_from_the_fewest_values_on() {
    let confidence = |count: u64| {
        let values: Vec<f64> = (1..=count).map(larder_schema::as_f64).collect();
        ratio_estimate::Shift::between(&values, &values).unwrap().confidence
    };
    assert!(confidence(RATIO_VALUES_MIN) >= CONFIDENCE);
    assert!(confidence(RATIO_VALUES_MIN - 1) < CONFIDENCE);
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
