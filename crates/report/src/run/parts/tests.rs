//! Parts gathered into one run: names, tables, HTML.

use super::*;
use larder_schema::run::Machine;
use serde_json::json;

fn part(name: &str, rates: &[f64], doubts: &[&str]) -> Part {
    let mut run = Run::new("some work", "2026-11-21T03:22:11Z", Machine::default());
    "some".clone_into(&mut run.workload);
    run.settings = [("seed".to_owned(), json!(1)), ("fs".to_owned(), json!(name))].into();
    run.environment = [("disk.scheduler".to_owned(), name.to_owned())].into();
    let values = rates.to_vec();
    run.samples = vec![
        Sample { values, ..Sample::new("rate", "files/s", Some(Direction::Higher)) },
        Sample { values: vec![7.0; rates.len()], ..Sample::new("count", "files", None) },
    ];
    run.main = Some("rate".to_owned());
    run.trials = rates.iter().map(|_| Trial::default()).collect();
    let doubt = |text: &&str| Doubt { why: DoubtReason::Workload, text: (*text).to_owned() };
    run.doubts = doubts.iter().map(doubt).collect();
    Part { name: name.to_owned(), labels: [("fs".to_owned(), name.to_owned())].into(), run }
}

fn two_parts() -> Run {
    let parts = vec![part("a", &[90.0, 100.0, 120.0], &["x", "y"]), part("b", &[5.0, 5.0], &["x"])];
    gathered("two ways", parts)
}

#[test]
fn a_gathered_run_has_what_its_parts_have() {
    let run = two_parts();
    let names: Vec<&str> = run.samples.iter().map(|sample| sample.series.as_str()).collect();
    assert_eq!(names, ["rate: a", "rate: b", "count: a", "count: b"]);
    assert_eq!(run.sample("rate: b").unwrap().values, [5.0, 5.0]);
    assert_eq!(run.settings.keys().collect::<Vec<_>>(), ["seed"]);
    assert!(run.environment.is_empty() && run.is_gathered());
    assert_eq!(run.all_trials().count(), 5);
    let doubts: Vec<&str> = run.doubts.iter().map(|doubt| doubt.text.as_str()).collect();
    assert_eq!(doubts, ["x, in all trials", "y, in the trials of \"a\""]);
    assert_eq!(ends(&run), Some([("a", 100.0), ("b", 5.0)]));
    let read = Run::from_json(&run.to_json().unwrap()).unwrap();
    assert_eq!(read, run);
}

#[test]
fn the_table_has_a_row_for_each_part_with_its_spread() {
    let known = "   rate [files/s]\n-----------------\na      100 +-15 %\nb        5.00 +-0 %\n";
    let text = parts_table(&two_parts()).to_text();
    let squeezed = |text: &str| -> Vec<String> {
        text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
    };
    assert_eq!(squeezed(&text)[2..], squeezed(known)[2..], "{text}");
    let text = crate::run::to_text(&two_parts());
    assert!(text.starts_with("two ways\n") && text.contains("100 +-15 %"), "{text}");
    assert!(text.contains("* y, in the trials of \"a\".\n"), "{text}");
}

#[test]
fn a_unit_is_in_the_cell_or_in_the_title() {
    for (series, unit, title, cell) in [
        ("response time", "ns", "response time", "11.0 ms +-0 %"),
        ("read", "bytes/s", "read", "10.5 MiB/s +-0 %"),
        ("cycles", "cycles/s", "cycles/s", "11,000,000 +-0 %"),
        ("pages per write", "pages", "pages per write", "11,000,000 +-0 %"),
        ("rate", "files/s", "rate [files/s]", "11,000,000 +-0 %"),
    ] {
        let mut one = part("a", &[], &[]);
        let values = vec![11e6, 11e6];
        one.run.samples =
            vec![Sample { values, ..Sample::new(series, unit, Some(Direction::Higher)) }];
        let text = parts_table(&gathered("x", vec![one])).to_text();
        let lines: Vec<&str> = text.lines().map(str::trim).collect();
        assert!(lines.contains(&title), "{text}");
        assert_eq!(lines.last().unwrap().split_once(' ').unwrap().1.trim(), cell);
    }
}

#[test]
fn ranks_together_are_one_run_with_sums_and_the_longest_times() {
    let rank = |name: &str, rate: f64, took: u64| {
        let mut part = part(name, &[rate, rate + 1.0], &["x"]);
        let values = vec![rate, rate];
        part.run.samples.push(Sample { values, ..Sample::new("all", "s", Some(Direction::Lower)) });
        for trial in &mut part.run.trials {
            trial.duration_ns = took;
        }
        part
    };
    let run = together(vec![rank("a", 1.0, 7), rank("b", 5.0, 9)]);
    assert_eq!(run.sample("rate").unwrap().values, [6.0, 8.0]);
    assert_eq!(run.sample("count").unwrap().values, [14.0, 14.0]);
    assert_eq!(run.sample("all").unwrap().values, [5.0, 5.0], "the longest");
    assert_eq!((run.trials.len(), run.trials[1].duration_ns), (2, 9));
    assert!(!run.is_gathered() && run.main.as_deref() == Some("rate"));
    let text = crate::run::to_text(&run);
    assert!(text.starts_with("some work; 2 ranks together\n"), "{text}");
    assert!(text.contains("\na ") && text.contains("\nb "), "{text}");
}

#[test]
fn postmark_is_shown_as_it_was() {
    let mut one = part("ext4, none", &[1.0], &[]);
    one.run.samples = POSTMARK_COLUMNS
        .map(|(series, ..)| Sample {
            values: vec![2.0 * MEGABYTE],
            ..Sample::new(series, "u", Some(Direction::Higher))
        })
        .into();
    let text = parts_table(&gathered("x", vec![one])).to_csv();
    assert!(text.starts_with("part,all phases,transactions,creation alone,"), "{text}");
    assert!(text.ends_with(",2.0,2.0\n"), "megabytes: {text}");
}

#[test]
fn the_page_has_a_chart_for_each_series_and_the_best_part_first() {
    let page = crate::run::to_html(&two_parts());
    for (title, value, part) in [("Best median", "100", "a"), ("Worst median", "5.00", "b")] {
        let value = format!("{value} <span class=\"unit\">files/s</span>");
        let card = format!(
            "<dt>{title}</dt><dd class=\"value\">{value}</dd><dd class=\"note\">{part}</dd>"
        );
        assert!(page.contains(&card), "{card} in {page}");
    }
    assert_eq!(page.matches("<figure>").count(), 1, "one series can be better or worse");
}

#[test]
fn numbers_of_parts_must_be_finite_too() {
    let mut run = two_parts();
    run.parts[1].run.samples[0].values[0] = f64::NAN;
    let error = run.to_json().unwrap_err().to_string();
    assert_eq!(error, "write the run: \"rate\" holds a number that is not finite");
}
