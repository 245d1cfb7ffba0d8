//! The file format: what is written is read back, what is not known is refused with a sentence.

use super::*;
use serde_json::json;

fn sample(series: &str, values: &[f64]) -> Sample {
    Sample { series: series.to_owned(), unit: "ms".to_owned(), values: values.to_vec() }
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
    let pair = (&run.samples[0], &run.samples[1]);
    run.comparisons.extend(Comparison::of("answer time", pair, Better::Lower, 1.5));
    run
}

#[test]
fn what_is_written_is_read_back_unchanged() {
    let run = run();
    let text = run.to_json().unwrap();
    assert!(text.starts_with("{\n  \"schema\": \"larder-run\",\n  \"version\": 1,"), "{text}");
    assert_eq!(Run::from_json(&text).unwrap(), run);
    assert_eq!(Run::from_json(&text).unwrap().to_json().unwrap(), text);
}

#[test]
fn a_ratio_above_one_is_always_better() {
    let run = run();
    let comparison = &run.comparisons[0];
    assert!((comparison.ratio_median - 2.0).abs() < 1e-9);
    assert!((comparison.ratio_min - 1.5).abs() < 1e-9);
    assert!((comparison.ratio_max - 3.0).abs() < 1e-9);
    assert!(comparison.holds && run.holds());
    let pair = (&run.samples[0], &run.samples[1]);
    let higher = Comparison::of("rate", pair, Better::Higher, 1.0).unwrap();
    assert!((higher.ratio_median - 0.5).abs() < 1e-9 && !higher.holds);
}

#[test]
fn samples_that_cannot_be_compared_are_not() {
    let mut other = sample("other", &[1.0, 2.0, 3.0]);
    other.unit = "s".to_owned();
    let ours = sample("ours", &[1.0, 2.0, 3.0]);
    assert_eq!(Comparison::of("units", (&ours, &other), Better::Higher, 1.0), None);
    let short = sample("short", &[1.0]);
    assert_eq!(Comparison::of("lengths", (&ours, &short), Better::Higher, 1.0), None);
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
        refused("version", json!(2)),
        "read the run: it has version 2, and this program knows version 1 only; read it with the \
         program that wrote it or a newer one"
    );
    assert_eq!(
        refused("schema", json!("fio")),
        "read the run: its schema is \"fio\", not \"larder-run\""
    );
    assert!(refused("samples", json!(7)).starts_with("read the run: invalid type"));
    let error = Run::from_json("{}").unwrap_err().to_string();
    assert_eq!(error, "read the run: its schema is missing, not \"larder-run\"");
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
