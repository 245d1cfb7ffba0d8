//! Results: runs from an empty cache at each size, predictions, and regions.

use super::rig::{MIB, Rig};
use crate::try_command::rig::{can_run, text};
use larder_schema::advice::Region;

/// Reads all of the file three times.
const LOOP: &str = "cat rows rows rows";

#[test]
fn a_loop_misses_in_small_caches_and_hits_in_large_ones_as_predicted() {
    if !can_run() {
        return;
    }
    let rig = Rig::new(16 * MIB);
    let (sizing, stderr) = rig.measure(&["--sizes", "32MiB,8MiB", "--trials", "2"], LOOP);
    assert!(stderr.contains("4 measured runs, 2 with each of 2 sizes"), "{stderr}");
    let sizes: Vec<u64> = sizing.sizes.iter().map(|size| size.memory_bytes >> 20).collect();
    assert_eq!(sizes, [8, 32]);
    let numbers: Vec<Vec<u64>> =
        sizing.sizes.iter().map(|size| size.runs.iter().map(|run| run.number).collect()).collect();
    assert_eq!(numbers, [[1, 4], [2, 3]], "the second round is in descending order");
    let [small, large] = &sizing.sizes[..] else { panic!("two sizes") };
    for run in &large.runs {
        assert_eq!(run.read_pages, 3 * 4096, "{run:?}");
        // The file is read from the directory once: each run begins with an empty cache.
        assert_eq!(run.read_bytes, 16 * MIB, "{run:?}");
    }
    assert!(small.runs.iter().all(|run| run.read_bytes > 20 * MIB), "{small:?}");
    let predicted = |size: &larder_schema::measured::MeasuredSize| size.predicted.unwrap();
    assert_eq!(predicted(large).read_bytes, 16 * MIB);
    assert!(predicted(small).read_bytes > 20 * MIB, "{:?}", small.predicted);
    assert_eq!(sizing.footprint_bytes, 16 * MIB);
    assert_eq!(large.region, Some(Region::Flat), "{:?}", sizing.regions);
    assert!(sizing.sizes.iter().all(|size| size.scatter_region.is_some()));
    assert!(!sizing.notes.iter().any(|note| note.contains("changes the directory")));
}

#[test]
fn sizes_rise_to_the_memory_for_all_data_unless_they_are_given() {
    if !can_run() {
        return;
    }
    let rig = Rig::new(12 * MIB);
    let page = rig.temporary.path().with_extension("json");
    let options =
        ["--trials", "1", "--policy", "lru", "--page-size", "16KiB", "-o", page.to_str().unwrap()];
    let output = rig.run(&options, "cat \"$LARDER_MOUNT\"/rows rows");
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    assert!(stdout.contains("lru, pages of 16 KiB, write-back"), "{stdout}");
    assert!(stdout.contains("12 MiB of data") && stdout.contains("Regions by the"), "{stdout}");
    let json: serde_json::Value = serde_json::from_str(&super::rig::content(&page)).unwrap();
    std::fs::remove_file(page).unwrap();
    let sizes: Vec<u64> = json["sizes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it["memory_bytes"].as_u64().unwrap())
        .collect();
    assert_eq!(sizes[0], 8 * MIB);
    assert!((25 * MIB..29 * MIB).contains(sizes.last().unwrap()), "{sizes:?}");
    rig.expect_nothing_left();
}

#[test]
fn a_command_that_changes_the_directory_gets_a_note() {
    if !can_run() {
        return;
    }
    let rig = Rig::new(MIB);
    let script = "cat rows > /dev/null; echo more >> grown";
    let (sizing, _) = rig.measure(&["--sizes", "8MiB", "--trials", "1"], script);
    let note = sizing.notes.iter().find(|note| note.contains("changes the directory")).unwrap();
    assert!(note.contains("1 file, 1 MiB before the first run, 2 files, "), "{note}");
    assert_eq!(super::rig::content(&rig.data.path().join("grown")), "more\nmore\n");
}
