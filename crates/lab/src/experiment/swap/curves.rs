//! The curves of the experiment. Each point is the mean of some seeds.

use super::{CACHES, FACTOR, FILES, RATES, WITH_S, WITHOUT_S, WORKING_SETS};
use larder_core::units::as_f64;
use larder_schema::experiment::{Curve, Line};
use larder_schema::mean;

/// Returns the curves from the points of each seed: seconds by [`FILES`], factors by [`RATES`], and
/// factors by [`CACHES`] for each of [`WORKING_SETS`].
pub(super) fn all(
    of_files: &[Vec<f64>],
    of_rates: &[Vec<f64>],
    of_sizes: &[Vec<Vec<f64>>; WORKING_SETS.len()],
) -> Vec<Curve> {
    let (files, caches) = (FILES.map(as_f64), CACHES.map(as_f64));
    let of_working_set = |(mib, of_seeds): (u64, &Vec<Vec<f64>>)| {
        line(&format!("working set of {mib} MiB"), &caches, of_seeds)
    };
    let sizes = WORKING_SETS.into_iter().zip(of_sizes).map(of_working_set);
    vec![
        Curve {
            name: "time without any paging, over the memory of the system's cache",
            over: "MiB of the system's cache",
            unit: "s",
            lines: vec![
                line("model", &files, of_files),
                published("published with the added cache", &files, WITH_S),
                published("published without it", &files, WITHOUT_S),
            ],
        },
        Curve {
            name: "time without the added cache, times that with it, over paging",
            over: "page-ins per transaction",
            unit: "x",
            lines: vec![line("model", &RATES, of_rates), published("published", &RATES, FACTOR)],
        },
        Curve {
            name: "the same, over the size of the added cache and of the working set",
            over: "MiB of the added cache",
            unit: "x",
            lines: sizes.chain([published("published", &caches, FACTOR)]).collect(),
        },
    ]
}

/// Returns the means of all seeds over a variable.
fn line(name: &str, over: &[f64], of_seeds: &[Vec<f64>]) -> Line {
    let point = |(index, &at): (usize, &f64)| {
        let values: Vec<f64> = of_seeds.iter().map(|points| points[index]).collect();
        Some((at, mean(&values)?))
    };
    Line { name: name.to_owned(), points: over.iter().enumerate().filter_map(point).collect() }
}

/// Returns the line of a published value.
fn published(name: &str, over: &[f64], value: f64) -> Line {
    Line { name: name.to_owned(), points: over.iter().map(|at| (*at, value)).collect() }
}
