//! `/metrics`, checked by the strict parser below and by the one of the Prometheus client for
//! Python.

use super::rig::{MIB, Server, eventually};
use larder_core::counters::{COUNTERS, GAUGES, HISTOGRAMS, Unit};
use larder_testing::skip;
use std::collections::BTreeMap;
use std::io::Write;
use std::process::{Command, Stdio};

type Labels = Vec<(String, String)>;

#[derive(Debug, Default)]
struct Family {
    kind: String,
    unit: String,
    help: String,
    /// Name, labels, value as written.
    samples: Vec<(String, Labels, String)>,
}

/// Parses `text` by the OpenMetrics specification, and panics at the first violation.
fn parse(text: &str) -> BTreeMap<String, Family> {
    let body = text.strip_suffix("# EOF\n").expect("the text ends in # EOF");
    assert!(!body.contains("# EOF"), "there is one end");
    let mut families: BTreeMap<String, Family> = BTreeMap::new();
    let mut current = String::new();
    for line in body.lines() {
        assert_eq!(line.trim(), line, "no blanks around");
        if let Some(rest) = line.strip_prefix("# ") {
            let (keyword, rest) = rest.split_once(' ').expect("a word");
            let (name, value) = rest.split_once(' ').expect("a name");
            assert!(is_name(name), "{line}");
            if keyword == "TYPE" {
                let new = Family { kind: value.to_owned(), ..Family::default() };
                assert!(families.insert(name.to_owned(), new).is_none(), "{name} comes twice");
                name.clone_into(&mut current);
                continue;
            }
            assert_eq!(name, current, "metadata before its type: {line}");
            let family = families.get_mut(name).unwrap();
            assert!(family.samples.is_empty(), "metadata after samples: {line}");
            match keyword {
                "UNIT" => {
                    assert!(name.ends_with(&format!("_{value}")), "{line}");
                    value.clone_into(&mut family.unit);
                }
                "HELP" => value.clone_into(&mut family.help),
                _ => panic!("{line}"),
            }
            continue;
        }
        let (name, labels, value) = sample(line);
        let family = families.get_mut(&current).expect("a family");
        let suffix = name.strip_prefix(current.as_str()).unwrap_or_else(|| panic!("{line}"));
        let allowed: &[&str] = match family.kind.as_str() {
            "counter" => &["_total"],
            "gauge" => &[""],
            "histogram" => &["_bucket", "_count", "_sum"],
            "info" => &["_info"],
            other => panic!("a type that is none of ours: {other}"),
        };
        assert!(allowed.contains(&suffix), "{line} in a {}", family.kind);
        assert!(value.parse::<f64>().unwrap() >= 0.0, "{line}");
        family.samples.push((name, labels, value));
    }
    families
}

fn is_name(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// Parses `name{label="value",...} number`.
fn sample(line: &str) -> (String, Labels, String) {
    let end = line.find(['{', ' ']).expect("a value");
    let (name, mut rest) = line.split_at(end);
    assert!(is_name(name), "{line}");
    let mut labels = Vec::new();
    if let Some(label_text) = rest.strip_prefix('{') {
        rest = label_text;
        loop {
            let (label, tail) = rest.split_once("=\"").expect("a label");
            assert!(is_name(label), "{line}");
            let (mut value, mut chars) = (String::new(), tail.char_indices());
            let end = loop {
                match chars.next().expect("the end of a value") {
                    (_, '\\') => value.push(match chars.next().expect("an escape").1 {
                        'n' => '\n',
                        c @ ('\\' | '"') => c,
                        c => panic!("\\{c} in {line}"),
                    }),
                    (at, '"') => break at,
                    (_, c) => value.push(c),
                }
            };
            labels.push((label.to_owned(), value));
            rest = &tail[end + 1..];
            match rest.strip_prefix(',') {
                Some(more) => rest = more,
                None => break,
            }
        }
        rest = rest.strip_prefix('}').expect("the end of the labels");
    }
    let value = rest.strip_prefix(' ').expect("a blank before the value");
    assert!(!value.contains(' '), "neither times nor exemplars: {line}");
    (name.to_owned(), labels, value.to_owned())
}

/// Checks that the buckets of each label set ascend and end in `+Inf`, whose value is the count.
fn check_histogram(name: &str, family: &Family) {
    let of = |suffix: &str| {
        let full = format!("{name}{suffix}");
        family.samples.iter().filter(move |sample| sample.0 == full)
    };
    for (_, labels, count) in of("_count") {
        let mut last = (f64::MIN, 0);
        for (_, bucket_labels, value) in of("_bucket") {
            let (bound, others) = bucket_labels.split_last().unwrap();
            if others != labels {
                continue;
            }
            assert_eq!(bound.0, "le");
            let bound = if bound.1 == "+Inf" { f64::INFINITY } else { bound.1.parse().unwrap() };
            let value: u64 = value.parse().unwrap();
            assert!(bound > last.0 && value >= last.1, "{name} {bound}: {value} after {last:?}");
            last = (bound, value);
        }
        assert_eq!(last, (f64::INFINITY, count.parse().unwrap()), "{name}");
        assert!(of("_sum").any(|sample| sample.1 == *labels), "{name} has a sum");
    }
}

fn value(families: &BTreeMap<String, Family>, family: &str, sample: &str, volume: &str) -> u64 {
    let expected = [("volume".to_owned(), volume.to_owned())];
    let found = families[family].samples.iter().find(|s| s.0 == sample && s.1 == expected);
    found.unwrap_or_else(|| panic!("{sample} of {volume}")).2.parse().unwrap()
}

#[test]
fn metrics_are_open_metrics_with_the_whole_catalogue() {
    // Volume names that have to be escaped.
    let server = Server::start(&["one", "a\"b\\c"], &[]);
    let mut client = server.client(0);
    client.write_at(0, &[1; 4096], true).unwrap();
    client.read_at(0, &mut vec![0; 1 << 20]).unwrap();
    let answer = server.get("/metrics");
    assert!(answer.head.contains("application/openmetrics-text; version=1.0.0"), "{}", answer.head);
    let families = parse(&answer.body);
    let unit = |unit: Unit| if unit == Unit::Operations { "" } else { unit.name() };
    let kinds =
        [("counter", &COUNTERS[..]), ("gauge", &GAUGES[..]), ("histogram", &HISTOGRAMS[..])];
    let mut expected = 5 + 6;
    for (kind, meanings) in kinds {
        for meaning in meanings {
            let name = format!("larder_{}", meaning.name);
            let family = families.get(&name).unwrap_or_else(|| panic!("{name} is not there"));
            assert_eq!((family.kind.as_str(), family.unit.as_str()), (kind, unit(meaning.unit)));
            assert!(family.help.starts_with(meaning.meaning), "{}", family.help);
            assert!(!family.samples.is_empty(), "{name} has no samples");
            if kind == "histogram" {
                check_histogram(&name, family);
            }
            expected += 1;
        }
    }
    assert_eq!(
        families.len(),
        expected,
        "only the program, policies, findings, estimates, frozen volumes and sessions"
    );
    check_sessions(&families);
    assert_eq!(value(&families, "larder_read_bytes", "larder_read_bytes_total", "one"), MIB);
    assert_eq!(
        value(&families, "larder_read_requests", "larder_read_requests_total", "a\"b\\c"),
        0
    );
    assert_eq!(value(&families, "larder_read_total_ns", "larder_read_total_ns_count", "one"), 1);
    assert_eq!(families["larder_memory_bytes"].samples.len(), 1, "the pool counts once");
    // Counters do not decrease.
    client.read_at(0, &mut [0; 4096]).unwrap();
    eventually("the next read is counted", || {
        let later = parse(&server.get("/metrics").body);
        for (name, family) in &families {
            for (before, after) in family.samples.iter().zip(&later[name].samples) {
                let [old, new] = [before, after].map(|sample| sample.2.parse::<f64>().unwrap());
                assert!(family.kind == "gauge" || new >= old, "{name}: {old} became {new}");
            }
        }
        value(&later, "larder_read_requests", "larder_read_requests_total", "one") == 2
    });
    check_with_python_parser(&answer.body);
    server.stop();
}

/// Checks the metrics of a server with one client session.
fn check_sessions(families: &BTreeMap<String, Family>) {
    let samples = |family: &str| {
        let Family { kind, unit, help, samples } = &families[family];
        assert!(!help.is_empty(), "{family}");
        let named = |(name, labels, value): &(String, Labels, String)| {
            let labels: Vec<_> =
                labels.iter().map(|(label, pool)| format!("{label} {pool}")).collect();
            (name.clone(), labels.concat(), value.parse::<u64>().unwrap())
        };
        (kind.clone(), unit.clone(), samples.iter().map(named).collect::<Vec<_>>())
    };
    for (family, value) in [("larder_sessions", 1), ("larder_sessions_max", 64)] {
        let expected = vec![(family.to_owned(), String::new(), value)];
        assert_eq!(samples(family), ("gauge".to_owned(), String::new(), expected));
    }
    for figure in ["size", "leased", "peak"] {
        let family = format!("larder_budget_{figure}_bytes");
        let (kind, unit, samples) = samples(&family);
        assert_eq!((kind.as_str(), unit.as_str()), ("gauge", "bytes"));
        let pools: Vec<_> = samples.iter().map(|(_, pool, _)| pool.as_str()).collect();
        assert_eq!(pools, ["pool payloads", "pool frames"], "{family}");
        let bytes: Vec<_> = samples.iter().map(|(_, _, bytes)| *bytes).collect();
        match figure {
            "size" => assert!(bytes.iter().all(|&size| size > 0), "{bytes:?}"),
            // The read of 1 MiB exceeds the share of a session; no write has to wait.
            "peak" => assert!(bytes[0] == 0 && bytes[1] > 0, "{bytes:?}"),
            _ => assert_eq!(bytes[0], 0, "{family}"),
        }
    }
    let (kind, _, samples) = samples("larder_budget_refusals");
    assert_eq!((kind.as_str(), samples.len()), ("counter", 2));
    for (name, _, count) in samples {
        assert_eq!((name.as_str(), count), ("larder_budget_refusals_total", 0));
    }
}

/// Checks that the parser of the Prometheus client for Python accepts the text and finds the same
/// number of families.
fn check_with_python_parser(text: &str) {
    let script = "import sys\n\
                  from prometheus_client.openmetrics.parser import text_string_to_metric_families\n\
                  print(sum(1 for _ in text_string_to_metric_families(sys.stdin.read())))\n";
    let import_status = Command::new("/usr/bin/python3")
        .args(["-c", "import prometheus_client.openmetrics.parser"])
        .stderr(Stdio::null())
        .status();
    if !import_status.is_ok_and(|status| status.success()) {
        skip("the OpenMetrics parser of python3-prometheus-client is not installed");
        return;
    }
    let mut python = Command::new("/usr/bin/python3")
        .args(["-c", script])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    python.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = python.wait_with_output().unwrap();
    assert!(output.status.success(), "others cannot read it");
    let families: usize = super::rig::text(&output.stdout).trim().parse().unwrap();
    assert_eq!(families, parse(text).len());
}

#[test]
#[should_panic(expected = "# EOF")]
fn the_parser_misses_the_end() {
    parse("# TYPE a gauge\na 1\n");
}

#[test]
#[should_panic(expected = "in a counter")]
fn the_parser_misses_total() {
    parse("# TYPE a counter\na 1\n# EOF\n");
}
