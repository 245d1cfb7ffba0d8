//! Throughput mode: rates of parent and children, the table, and the stonewall.

use super::rig::run_recorded;

/// Returns the first number of the line that starts with `prefix`.
fn parse_number(text: &str, prefix: &str) -> f64 {
    let line = text.lines().find(|line| line.starts_with(prefix));
    let line = line.unwrap_or_else(|| panic!("no line {prefix:?} in {text}"));
    let number = line.split_once(" = ").unwrap().1.split_whitespace().next().unwrap();
    number.parse().unwrap()
}

#[test]
fn parent_and_children_are_shown_for_each_test() {
    let (text, run) = run_recorded("-t 2 -s 1m -r 4k --trials 1 -x");
    for workers in [
        "initial writers",
        "rewriters",
        "readers",
        "re-readers",
        "reverse readers",
        "stride readers",
        "random readers",
        "mixed workload",
        "random writers",
        "fwriters",
        "freaders",
    ] {
        for observer in ["Children see throughput for  2", "Parent sees throughput for  2"] {
            assert!(parse_number(&text, &format!("{observer} {workers} ")) > 0.0);
        }
    }
    let [min, max, avg] =
        ["Min", "Max", "Avg"].map(|it| parse_number(&text, &format!("{it} throughput per thread")));
    assert!(0.0 < min && min <= avg && avg <= max);
    assert!((parse_number(&text, "Min xfer") - 1024.0).abs() < 1e-9, "without a wall all is moved");
    assert!(run.doubts.iter().all(|doubt| !doubt.text.contains("stonewall")));
    assert_eq!(run.settings["stonewall"], false);
    assert_eq!(run.settings["threads"], serde_json::json!([2]));
}

#[test]
fn the_table_has_a_column_for_each_number_of_threads() {
    let (text, run) = run_recorded("-u 3 -s 256k -r 64k -i 0 -i 8 --trials 1 --format tables");
    let lines: Vec<&str> = text.lines().filter(|line| line.starts_with('"')).collect();
    let heading = "\"Throughput report Y-axis is type of test X-axis is number of processes\"";
    assert_eq!(
        lines[..3],
        [heading, "\"Record size = 64 kBytes \"", "\"Output is in kBytes/sec\""]
    );
    for (line, name) in
        lines[3..].iter().zip(["threads", "initial write", "rewrite", "mixed workload"])
    {
        let (found, numbers) = line[1..].split_once('"').unwrap();
        assert_eq!(found.trim(), name);
        let numbers: Vec<f64> =
            numbers.split_whitespace().map(|number| number.parse().unwrap()).collect();
        assert!(numbers.len() == 3 && numbers.iter().all(|number| *number > 0.0), "{line}");
    }
    assert_eq!(lines.len(), 7);
    let series: Vec<&str> = run.samples.iter().map(|sample| sample.series.as_str()).collect();
    assert!(series.contains(&"rewrite, parent, flushed at threads 3"), "{series:?}");
}

#[test]
fn a_range_of_threads_is_drawn_as_curves() {
    let (page, _) = run_recorded("-l 1 -u 2 -s 256k -i 1 --trials 1 --format html");
    for name in ["read", "re-read", "read, parent"] {
        assert!(page.contains(&format!("aria-label=\"{name} over threads\"")), "{name}");
    }
}
