//! Tests of the experiment.

use super::*;

/// A laptop on which PostMark runs for some seconds.
fn small() -> Assumptions {
    let mut assumptions = Assumptions::published();
    assumptions.config.number = 200;
    assumptions.config.transactions = 300;
    assumptions.working_set_bytes = 16 * MIB;
    assumptions
}

#[test]
fn the_result_of_each_step_has_its_place() {
    let steps = steps(4);
    let few = usize::try_from(FEW_SEEDS).unwrap();
    let expected = 4 + few * (2 + WORKING_SETS.len() + VARIATIONS.len());
    assert_eq!(step_count(4), expected as u64);
    let value = |number: usize| f64::from(u32::try_from(number).unwrap());
    let result = |step: &Step| match *step {
        Step::Figures(seed, None) => {
            let seed = value(usize::try_from(seed).unwrap());
            StepResult::Figures(Fit { page_ins: seed / 4.0, without_s: 124.0 }, [seed, 2.0])
        }
        Step::Figures(_, Some(number)) => {
            let fit = Fit { page_ins: 9.0, without_s: 124.0 };
            StepResult::Figures(fit, [-value(number); FIGURES.len()])
        }
        Step::Files(_) => StepResult::Points(vec![50.0; FILES.len()]),
        Step::Rates(_) => StepResult::Points(RATES.map(|rate| 1.0 + rate).to_vec()),
        Step::Sizes(_, number) => StepResult::Points(vec![value(number); CACHES.len()]),
    };
    let experiment = gather(4, &steps, steps.iter().map(result).collect());
    assert_eq!(experiment.figures[0].values, [1.0, 2.0, 3.0, 4.0]);
    let sentences = experiment.machine.join(" ");
    assert!(sentences.contains("Fitted: 0.250 to 1.000 page-ins"), "{sentences}");
    let second = experiment.curves.iter().flat_map(|curve| &curve.lines);
    let second: Vec<f64> = second.map(|line| line.points[1].1).collect();
    assert_eq!(second, [50.0, WITH_S, WITHOUT_S, 1.05, FACTOR, 0.0, 1.0, 2.0, FACTOR]);
    for (number, variation) in experiment.variations.iter().enumerate() {
        assert_eq!(variation.means, [-value(number); FIGURES.len()]);
    }
}

#[test]
fn a_cache_of_the_working_set_takes_nearly_all_of_the_paging_and_a_small_one_little() {
    let assumptions = small();
    let trial = Trial::new(&assumptions, 1);
    let without_paging = trial.seconds(0.0, None);
    let paging = trial.seconds(4.0, None) - without_paging;
    assert!(paging > 1.0, "{paging} s of {without_paging} s");
    let cached = |bytes| trial.seconds(4.0, Some(bytes)) - without_paging;
    let [large, small] = [24 * MIB, 4 * MIB].map(cached);
    assert!(large < paging / 4.0, "{large} of {paging} s");
    assert!(small > paging / 2.0, "{small} of {paging} s");
}

#[test]
fn the_same_seed_gives_the_same_time_and_another_one_another_time() {
    let assumptions = small();
    let run = |seed| Trial::new(&assumptions, seed).seconds(1.0, Some(8 * MIB));
    assert_eq!(run(2).to_bits(), run(2).to_bits());
    assert_ne!(run(2).to_bits(), run(3).to_bits());
}
