//! Plans, and their distance from exhaustive search.

use super::*;
use crate::random::Random;
use larder_core::units::as_f64;
use larder_testing::budget;

/// Disks with one limit, each with a file system of its own.
fn problem(seconds_per_request: &[f64], items: Vec<PlacedItem>) -> BalanceProblem {
    let disk = |cost: &f64| BalancedDisk {
        limits: vec![DiskLoad { reads: *cost, writes: *cost, ..DiskLoad::default() }],
        ..BalancedDisk::default()
    };
    let place = |number| FileSystemPlace {
        free_bytes: 1000,
        is_target: true,
        shares: vec![(number, 1.0, 1.0)],
    };
    BalanceProblem {
        disks: seconds_per_request.iter().map(disk).collect(),
        places: (0..seconds_per_request.len()).map(place).collect(),
        items,
    }
}

fn item(reads: f64, bytes: u64, place: usize) -> PlacedItem {
    let load = DiskLoad { reads, ..DiskLoad::default() };
    PlacedItem { bytes, load, place, is_movable: true }
}

#[test]
fn the_smallest_file_that_is_enough_moves_to_the_idle_disk() {
    let items = vec![item(45.0, 500, 0), item(45.0, 20, 0), item(1.0, 1, 0)];
    let plan = plan(&problem(&[0.01, 0.01], items));
    assert_eq!(plan.moves, [PlannedMove { item: 1, place: 1 }]);
    assert!((peak(&plan.before) - 0.91).abs() < 1e-9, "{plan:?}");
    assert!((peak(&plan.after) - 0.46).abs() < 1e-9, "{plan:?}");
    // A queue that is busy for 46 % of the time, with 10 ms for each request.
    assert!((plan.after[0].response_s - 0.01 / 0.54).abs() < 1e-9, "{plan:?}");
}

#[test]
fn nothing_moves_if_nothing_gains_or_nothing_may_move() {
    let balanced = vec![item(30.0, 1, 0), item(30.0, 1, 1)];
    assert_eq!(plan(&problem(&[0.01, 0.01], balanced)).moves, []);
    let mut fixed = vec![item(50.0, 1, 0), item(40.0, 1, 0)];
    for it in &mut fixed {
        it.is_movable = false;
    }
    assert_eq!(plan(&problem(&[0.01, 0.01], fixed)).moves, []);
    let mut no_target = problem(&[0.01, 0.01], vec![item(50.0, 1, 0), item(40.0, 1, 0)]);
    no_target.places[1].is_target = false;
    assert_eq!(plan(&no_target).moves, []);
    assert_eq!(plan(&BalanceProblem::default()), MovePlan::default());
}

#[test]
fn what_does_not_fit_stays() {
    let mut full = problem(&[0.01, 0.01], vec![item(45.0, 80, 0), item(40.0, 80, 0)]);
    full.places[1].free_bytes = 79;
    assert_eq!(plan(&full).moves, []);
    full.places[1].free_bytes = 80;
    assert_eq!(plan(&full).moves.len(), 1);
}

#[test]
fn two_file_systems_on_one_disk_are_no_gain() {
    let mut same = problem(&[0.01], vec![item(45.0, 80, 0), item(40.0, 80, 0)]);
    same.places.push(same.places[0].clone());
    assert_eq!(plan(&same).moves, []);
}

#[test]
fn a_limit_of_reads_and_one_of_writes_are_not_added() {
    let limits = vec![
        DiskLoad { reads: 0.01, ..DiskLoad::default() },
        DiskLoad { writes: 0.01, ..DiskLoad::default() },
    ];
    let mut two = problem(&[1.0, 1.0], vec![item(40.0, 1, 0), item(50.0, 1, 0)]);
    two.items[1].load = DiskLoad { writes: 50.0, ..DiskLoad::default() };
    for disk in &mut two.disks {
        disk.limits.clone_from(&limits);
    }
    let plan = plan(&two);
    assert!((peak(&plan.before) - 0.5).abs() < 1e-9, "{plan:?}");
}

#[test]
fn an_overloaded_disk_has_a_finite_response_time_that_grows() {
    let at = |reads| plan(&problem(&[0.01], vec![item(reads, 1, 0)])).before[0].response_s;
    assert!(at(98.0) < at(100.0) && at(100.0) < at(500.0) && at(500.0).is_finite());
}

/// Returns the lowest highest utilization of all placements.
fn exhaustive(problem: &BalanceProblem) -> f64 {
    let (places, count) = (problem.places.len(), problem.items.len());
    let mut best = f64::INFINITY;
    for mut number in 0..places.pow(u32::try_from(count).unwrap()) {
        let mut load: Vec<DiskLoad> = problem.disks.iter().map(|disk| disk.fixed).collect();
        let mut added = vec![0; places];
        let mut is_valid = true;
        for item in &problem.items {
            let place = number % places;
            number /= places;
            is_valid &= place == item.place || (item.is_movable && problem.places[place].is_target);
            added[place] += if place == item.place { 0 } else { item.bytes };
            for &(disk, read, write) in &problem.places[place].shares {
                load[disk] += item.load.scaled(read, write);
            }
        }
        is_valid &= added.iter().zip(&problem.places).all(|(it, place)| *it <= place.free_bytes);
        if is_valid {
            let uses = problem.disks.iter().zip(&load).map(|(disk, load)| {
                disk.limits.iter().map(|limit| limit.cost_of(load)).fold(0.0, f64::max)
            });
            best = best.min(uses.fold(0.0, f64::max));
        }
    }
    best
}

fn random_problem(random: &mut Random) -> BalanceProblem {
    let number = |random: &mut Random, max: u64| as_f64(random.below(max));
    let disks = 2 + usize::try_from(random.below(3)).unwrap();
    let costs: Vec<f64> = (0..disks).map(|_| 0.001 + number(random, 20) / 1000.0).collect();
    let count = 1 + random.below(if disks == 4 { 7 } else { 9 });
    let items = (0..count).map(|_| {
        let place = usize::try_from(random.below(disks as u64)).unwrap();
        let mut it = item(number(random, 50), 1 + random.below(400), place);
        it.load.writes = number(random, 50);
        it.is_movable = random.below(8) > 0;
        it
    });
    let items = items.collect();
    let mut made = problem(&costs, items);
    for place in &mut made.places {
        place.free_bytes = random.below(1500);
        place.is_target = random.below(8) > 0;
    }
    if random.below(3) == 0 {
        // A file system on two disks.
        made.places[0].shares = vec![(0, 0.5, 1.0), (1, 0.5, 1.0)];
    }
    made.disks[0].fixed.reads = number(random, 30);
    made
}

#[test]
fn a_plan_is_at_most_a_tenth_worse_than_exhaustive_search() {
    let mut random = Random::from_seed(1999);
    let (mut worst, mut gains) = (0.0_f64, 0);
    for round in 0..budget(100, 3000) {
        let problem = random_problem(&mut random);
        let (plan, best) = (plan(&problem), exhaustive(&problem));
        let found = peak(&plan.after);
        assert!(found <= 1.1 * best + 1e-9, "round {round}: {found} {best} {problem:?}");
        worst = worst.max(found / best.max(1e-9));
        gains += u64::from(!plan.moves.is_empty());
        for (place, it) in problem.places.iter().enumerate() {
            let added = plan.moves.iter().filter(|moved| moved.place == place);
            let added: u64 = added.map(|moved| problem.items[moved.item].bytes).sum();
            assert!(added <= it.free_bytes, "round {round}");
        }
    }
    assert!(gains > 10, "{gains}");
    println!("shown: highest utilization at most {worst:.3} times that of exhaustive search");
}

#[test]
fn thousands_of_files_are_planned_with_a_bounded_number_of_evaluations() {
    let mut random = Random::from_seed(7);
    let items = (0..4000).map(|_| {
        let reads = as_f64(random.below(100)) / 100.0;
        item(reads, random.below(10), usize::try_from(random.below(2)).unwrap())
    });
    let items = items.collect();
    let mut many = problem(&[0.0008; 8], items);
    for place in &mut many.places {
        place.free_bytes = 1 << 40;
    }
    let made = plan(&many);
    assert!(peak(&made.after) < 0.5 * peak(&made.before), "{:?}", made.after);
    assert_eq!(made, plan(&many), "the same problem has the same plan");
}
