//! Tests of the experiment.

use super::*;

#[test]
fn the_result_of_each_step_has_its_place() {
    let steps = steps(20);
    assert_eq!(step_count(20), 20 + 3 + 3 * VARIATIONS.len() as u64);
    let result = |step: &Step| match *step {
        Step::Figures(seed) => StepResult::Figures([as_f64(seed); FIGURES.len()]),
        Step::Speedups(seed) => {
            StepResult::Speedups([[as_f64(seed); CACHES.len()], [0.0; CACHES.len()]])
        }
        Step::Variation(_, number) => StepResult::Figures([-as_f64(number as u64); FIGURES.len()]),
    };
    let experiment = gather(20, &steps, steps.iter().map(result).collect());
    for figure in &experiment.figures {
        assert!(figure.values.iter().copied().eq((1..=20).map(as_f64)));
    }
    let [large, small, _] = &experiment.curves[0].lines[..] else { panic!("three lines") };
    assert_eq!((large.points.len(), large.points[0]), (CACHES.len(), (16.0, 2.0)));
    assert_eq!(small.points.last(), Some(&(400.0, 0.0)));
    for (number, variation) in experiment.variations.iter().enumerate() {
        assert_eq!(variation.means, [-as_f64(number as u64); FIGURES.len()]);
    }
}
