//! File format: written runs are read back, and unknown data is rejected with a clear message.

use super::trial::{DoubtReason, Latency, MeasuredStart, Phase, Start};
use super::*;
use serde_json::json;

fn sample(series: &str, values: &[f64]) -> Sample {
    Sample { values: values.to_vec(), ..Sample::new(series, "ms", Some(Direction::Lower)) }
}

fn run() -> Run {
    let machine = Machine {
        cpu: "some CPU".to_owned(),
        cores: 2,
        memory_bytes: 8 << 30,
        kernel: "6.1".to_owned(),
        distribution: "Debian 12".to_owned(),
    };
    let mut run = Run::new("random reads", "2026-11-21T03:22:11Z", machine);
    run.software.insert("larder".to_owned(), "0.1.0".to_owned());
    run.settings.insert("memory_bytes".to_owned(), json!(1_u64 << 60));
    run.samples = vec![sample("ours", &[1.0, 0.1, 2.0]), sample("theirs", &[2.0, 0.3, 3.0])];
    run.comparisons.push(Comparison {
        what: "response time".to_owned(),
        ours: "ours".to_owned(),
        theirs: "theirs".to_owned(),
        ratio_median: 2.0,
        ratio_min: 1.5,
        ratio_max: 3.0,
        required: 1.5,
        holds: true,
    });
    run.samples[0].group = Some("response time".to_owned());
    run.samples[0].at.insert("clients".to_owned(), 4.0);
    run.main = Some("theirs".to_owned());
    run.trials = vec![Trial {
        number: 1,
        started: MeasuredStart { start: Start::Cold, files: 1, pages: Some(8), resident: Some(0) },
        phases: vec![Phase { name: "read".to_owned(), duration_ns: 7 }],
        steal: Some(0.25),
        disk_bytes: Some(10 << 20),
        own_bytes: Some(8 << 20),
        latencies: vec![latency(&[(10, 1), (20, 2)])],
        ..Trial::default()
    }];
    run.environment.insert("vm.swappiness".to_owned(), "60".to_owned());
    run.doubts = vec![Doubt { why: DoubtReason::ForeignIo, text: "others wrote".to_owned() }];
    run
}

fn latency(buckets: &[(u64, u64)]) -> Latency {
    let sum_ns = buckets.iter().map(|(middle, count)| middle * count).sum();
    let max_ns = buckets.last().map_or(0, |(middle, _)| *middle);
    Latency { what: "reads".to_owned(), sum_ns, max_ns, buckets: buckets.to_vec() }
}

#[test]
fn what_is_written_is_read_back_unchanged() {
    let run = run();
    let text = run.to_json().unwrap();
    assert!(text.starts_with("{\n  \"schema\": \"larder-run\",\n  \"version\": 2,"), "{text}");
    assert_eq!(Run::from_json(&text).unwrap(), run);
    assert_eq!(Run::from_json(&text).unwrap().to_json().unwrap(), text);
}

#[test]
fn what_is_not_known_is_refused_with_a_sentence() {
    let good: Value = serde_json::from_str(&run().to_json().unwrap()).unwrap();
    let refused = |name: &str, value: Value| {
        let mut changed = good.clone();
        changed[name] = value;
        Run::from_json(&changed.to_string()).unwrap_err().to_string()
    };
    assert_eq!(
        refused("version", json!(3)),
        "it has version 3, and this program knows versions 1 to 2; read it with the \
         program that wrote it or a newer one"
    );
    assert_eq!(
        refused("schema", json!("fio")),
        "its schema is \"fio\", not \"larder-run\", so it is not the record of a benchmark"
    );
    assert!(refused("samples", json!(7)).starts_with("invalid type"));
    let error = Run::from_json("{}").unwrap_err().to_string();
    assert_eq!(
        error,
        "its schema is missing, not \"larder-run\", so it is not the record of a benchmark"
    );
    assert!(Run::from_json("not").unwrap_err().to_string().contains("not JSON"));
}

#[test]
fn fields_of_a_later_kind_are_passed_over() {
    let mut grown: Value = serde_json::from_str(&run().to_json().unwrap()).unwrap();
    grown["mood"] = json!("good");
    assert_eq!(Run::from_json(&grown.to_string()).unwrap(), run());
}

#[test]
fn numbers_that_json_cannot_hold_are_refused() {
    let mut run = run();
    run.samples[1].values.push(f64::NAN);
    let error = run.to_json().unwrap_err().to_string();
    assert_eq!(error, "write the run: \"theirs\" holds a number that is not finite");
}

#[test]
fn the_first_version_is_read_and_written_again_as_the_second() {
    let text = r#"{"schema": "larder-run", "version": 1, "what": "w", "started_at": "t",
        "machine": {"cpu": "c", "cores": 2, "memory_bytes": 1, "kernel": "k", "distribution": "d"},
        "software": {}, "settings": {"x": [1]}, "comparisons": [],
        "samples": [{"series": "s", "unit": "ms", "values": [1.5]}]}"#;
    let run = Run::from_json(text).unwrap();
    assert_eq!(run.samples[0], Sample { values: vec![1.5], ..Sample::new("s", "ms", None) });
    assert!(run.trials.is_empty() && run.main.is_none() && run.doubts.is_empty());
    assert_eq!(run.main_sample().unwrap().series, "s");
    let again: Value = serde_json::from_str(&run.to_json().unwrap()).unwrap();
    assert_eq!(again["version"], 2);
}

#[test]
fn every_run_that_was_ever_recorded_is_read() {
    let directory = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bench-runs");
    let mut read = 0;
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        if text.contains("\"larder-run\"") && path.extension().is_some_and(|it| it == "json") {
            let run = Run::from_json(&text).unwrap();
            assert_eq!(Run::from_json(&run.to_json().unwrap()).unwrap(), run);
            read += 1;
        }
    }
    assert!(read >= 4, "{read} runs in bench-runs");
}

#[test]
fn histograms_add_up_and_have_quantiles() {
    let mut times = latency(&[(10, 1), (20, 2)]);
    times.add(&latency(&[(5, 1), (20, 1), (40, 5)]));
    assert_eq!(times.buckets, [(5, 1), (10, 1), (20, 3), (40, 5)]);
    assert_eq!((times.count(), times.max_ns, times.mean_ns()), (10, 40, Some(27)));
    let at = [0.0, 0.1, 0.2, 0.5, 0.51, 1.0].map(|part| times.quantile_ns(part).unwrap());
    assert_eq!(at, [5, 5, 10, 20, 40, 40]);
    assert_eq!(Latency::default().quantile_ns(0.5), None);
    assert_eq!(Latency::default().mean_ns(), None);
}

#[test]
fn foreign_bytes_are_a_share_of_what_the_disks_moved() {
    let moved = |disk: u64, own: u64| Trial {
        disk_bytes: Some(disk << 20),
        own_bytes: Some(own << 20),
        ..Trial::default()
    };
    assert_eq!(moved(10, 8).foreign(), Some(0.2));
    // Bytes dirtied but not written back yet make this process's count the larger one.
    assert_eq!(moved(8, 10).foreign(), Some(0.0));
    assert_eq!(moved(0, 0).foreign(), Some(0.0));
    assert_eq!(Trial::default().foreign(), None);
    let little = Trial { disk_bytes: Some(4096), own_bytes: Some(0), ..Trial::default() };
    assert_eq!(little.foreign(), Some(0.0), "a page is no load");
}

#[test]
fn starts_have_names_and_shares() {
    for start in Start::ALL {
        assert_eq!(Start::from_name(start.name()), Some(start));
        assert_eq!(serde_json::to_value(start).unwrap(), start.name());
    }
    assert_eq!(Start::from_name("hot"), None);
    let half = MeasuredStart { pages: Some(8), resident: Some(4), ..MeasuredStart::default() };
    assert_eq!(half.share(), Some(0.5));
    assert_eq!(MeasuredStart { pages: Some(0), resident: Some(0), ..half }.share(), None);
    assert_eq!(MeasuredStart::default().share(), None);
}

#[test]
fn changes_of_settings_are_named_with_both_values() {
    let map = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    };
    let before = map(&[("a", "1"), ("b", "2"), ("c", "3")]);
    let after = map(&[("a", "1"), ("b", "20"), ("d", "4")]);
    let change = |name: &str, before: Option<&str>, after: Option<&str>| SettingChange {
        name: name.to_owned(),
        before: before.map(str::to_owned),
        after: after.map(str::to_owned),
    };
    let expected = [
        change("b", Some("2"), Some("20")),
        change("c", Some("3"), None),
        change("d", None, Some("4")),
    ];
    assert_eq!(SettingChange::between(&before, &after), expected);
    assert!(SettingChange::between(&before, &before).is_empty());
}
