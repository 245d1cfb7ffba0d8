//! Tests of the experiment.

use super::*;

/// A laptop on which PostMark runs for some seconds.
fn small() -> Assumptions {
    let mut assumptions = Assumptions::published(SCENARIOS[0]);
    assumptions.config.number = 200;
    assumptions.config.transactions = 300;
    assumptions.working_set_bytes = 16 * MIB;
    assumptions
}

#[test]
fn the_result_of_each_step_has_its_place() {
    let steps = steps(4);
    let few = usize::try_from(FEW_SEEDS).unwrap();
    let of_scenario = 4 + few * (1 + VARIATIONS.len());
    let expected = SCENARIOS.len() * of_scenario + few * WORKING_SETS.len();
    assert_eq!(step_count(4), expected as u64);
    let result = |step: &Step| match *step {
        Step::Figures(seed, scenario, None) => {
            let page_ins = as_f64(scenario as u64 * seed) / 4.0;
            let fit = Fit { page_ins, without_s: 124.0 };
            StepResult::Figures(fit, [as_f64(seed), as_f64(scenario as u64)])
        }
        Step::Figures(_, scenario, Some(number)) => {
            let fit = Fit { page_ins: 9.0, without_s: 124.0 };
            StepResult::Figures(fit, [number, scenario].map(|it| -as_f64(it as u64)))
        }
        Step::Rates(_, scenario) => {
            StepResult::Factors(RATES.map(|rate| as_f64(scenario as u64) + rate).to_vec())
        }
        Step::Sizes(_, number) => StepResult::Factors(vec![as_f64(number as u64); CACHES.len()]),
    };
    let experiment = gather(4, &steps, steps.iter().map(result).collect());
    let values = experiment.figures.iter().map(|figure| figure.values.clone());
    let (seeds, of_each) = ([1.0, 2.0, 3.0, 4.0].to_vec(), |it: f64| vec![it; 4]);
    assert!(values.eq([seeds.clone(), of_each(0.0), seeds, of_each(1.0)]));
    let sentences = experiment.machine.join(" ");
    assert!(sentences.contains("Scenario 1 cannot be fitted"), "{sentences}");
    assert!(sentences.contains("Scenario 2, fitted: 0.25 to 1.00 page-ins"), "{sentences}");
    let [rates, sizes] = &experiment.curves[..] else { panic!("two curves") };
    assert_eq!(rates.lines[1].points.last(), Some(&(2.4, 3.4)));
    let of_sizes: Vec<f64> = sizes.lines.iter().map(|line| line.points[1].1).collect();
    assert_eq!(of_sizes, [0.0, 1.0, 2.0, FACTOR]);
    for (number, variation) in experiment.variations.iter().enumerate() {
        let number = -as_f64(number as u64);
        assert_eq!(variation.means, [number, -0.0, number, -1.0]);
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
