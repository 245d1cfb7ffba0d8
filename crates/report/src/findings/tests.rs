//! Each rule fires on an observation designed for it, and on no healthy one.

use super::*;
use larder_schema::watch::StackedCache;
use proptest::prelude::*;

const MIB: f64 = 1024.0 * 1024.0;

/// Ten snapshots, ten seconds apart, of an idle machine with 1 GiB.
fn idle_machine() -> Observation {
    let moment = |at: u32| MachineSnapshot {
        at_s: f64::from(at) * 10.0,
        cache_bytes: Some(400.0 * MIB),
        dirty_bytes: Some(8.0 * MIB),
        dirty_limit_bytes: Some(100.0 * MIB),
        available_bytes: Some(500.0 * MIB),
        paging_per_s: Some(1.0),
        written_per_s: Some(2.0 * MIB),
        busy_ratio: Some(0.1),
    };
    Observation {
        seconds: 100.0,
        page_bytes: 4096,
        memory_bytes: Some(1024.0 * MIB),
        moments: (0..10).map(moment).collect(),
        ..Observation::default()
    }
}

fn file(name: &str, read: u64, missed: u64, ahead: u64, in_order: u64) -> FileUse {
    FileUse {
        file: name.to_owned(),
        read_pages: read,
        miss_pages: missed,
        ahead_hit_pages: ahead,
        sequential_pages: Some(in_order),
    }
}

fn process(name: &str, throttled_s: f64, private: impl Fn(f64) -> f64) -> ProcessUse {
    ProcessUse {
        process: name.to_owned(),
        throttled_s: Some(throttled_s),
        private_bytes: (0..10).map(|at| private(f64::from(at)) * MIB).collect(),
    }
}

/// Five healthy machines.
fn healthy() -> [(&'static str, Observation); 5] {
    let idle = idle_machine();
    // Almost all accesses hit, as with the fitting Probe (2002); the misses are spread over the
    // files.
    let mut database = idle_machine();
    database.files = vec![
        file("data", 1_000_000, 4_000, 500, 100_000),
        file("index", 800_000, 3_000, 0, 1_000),
        file("log", 10_000, 10, 300, 9_900),
    ];
    database.evicted_pages = Some(5_000);
    database.refault_pages = Some(50);
    database.read_ahead = Some(ReadAhead { brought_pages: 900, unused_pages: 60 });
    // A backup reads a large file once, sequentially, with effective read-ahead, and displaces
    // nothing important.
    let mut backup = idle_machine();
    backup.files = vec![
        file("backup", 200_000, 6_200, 193_800, 199_000),
        file("mail", 50_000, 900, 0, 500),
        file("web", 90_000, 700, 0, 900),
    ];
    backup.files.push(file("home", 40_000, 5_900, 100, 20_000));
    backup.evicted_pages = Some(190_000);
    backup.refault_pages = Some(400);
    backup.read_ahead = Some(ReadAhead { brought_pages: 194_000, unused_pages: 200 });
    // A build writes much, and the disk keeps up; a compiler grows and shrinks.
    let mut build = idle_machine();
    for (at, moment) in (0..).zip(&mut build.moments) {
        moment.dirty_bytes = Some(f64::from(at) * 9.0 * MIB);
        moment.written_per_s = Some(80.0 * MIB);
        moment.cache_bytes = Some((400.0 + f64::from(at)) * MIB);
    }
    build.dirtied_pages = Some(300_000);
    build.processes = vec![process("cc", 0.2, |at| if at % 2.0 < 1.0 { 300.0 } else { 20.0 })];
    build.access_time_updates = Some(90);
    // Little memory is free, but no program pages; one program allocates its memory at its start.
    let mut full = idle_machine();
    for moment in &mut full.moments {
        moment.available_bytes = Some(30.0 * MIB);
    }
    full.processes = vec![process("vm", 0.0, |at| (200.0 + 100.0 * at).min(500.0))];
    full.layers = vec![StackedCache {
        upper: "disk".to_owned(),
        upper_bytes: 300 << 20,
        lower: "disk.img".to_owned(),
        lower_bytes: 3 << 20,
    }];
    [("idle", idle), ("database", database), ("backup", backup), ("build", build), ("full", full)]
}

/// An observation for each rule that makes it fire.
fn faulty() -> Vec<(&'static str, Observation)> {
    let [_, (_, database), (_, backup), (_, build), (_, full)] = healthy();
    let mut all = Vec::new();
    let mut one_file = database.clone();
    one_file.files[1].miss_pages = 150_000;
    all.push(("one-file-misses", one_file));
    let mut scan = backup.clone();
    scan.refault_pages = Some(40_000);
    all.push(("scan", scan));
    let mut throttled = build.clone();
    throttled.processes[0].throttled_s = Some(12.0);
    for moment in &mut throttled.moments {
        moment.dirty_limit_bytes = Some(900.0 * MIB);
    }
    all.push(("throttled-writers", throttled.clone()));
    let mut low = throttled;
    for moment in &mut low.moments {
        moment.dirty_limit_bytes = Some(100.0 * MIB);
    }
    all.push(("dirty-limit-low", low));
    let mut high = build.clone();
    for moment in &mut high.moments {
        moment.dirty_bytes = Some(200.0 * MIB);
        moment.written_per_s = Some(4.0 * MIB);
        moment.busy_ratio = Some(0.9);
    }
    all.push(("dirty-limit-high", high));
    let mut wasted = database.clone();
    wasted.read_ahead = Some(ReadAhead { brought_pages: 60_000, unused_pages: 41_000 });
    all.push(("read-ahead-wasted", wasted));
    let mut small = backup;
    small.files[0].miss_pages = 60_000;
    small.files[3].miss_pages = 60_000;
    all.push(("read-ahead-small", small));
    let mut leak = full.clone();
    leak.processes.push(process("leaky", 0.0, |at| 50.0 + 40.0 * at));
    for (at, moment) in (0..).zip(&mut leak.moments) {
        moment.cache_bytes = Some((400.0 - 35.0 * f64::from(at)) * MIB);
    }
    all.push(("leak", leak));
    let mut paging = full.clone();
    for moment in paging.moments.iter_mut().skip(5) {
        moment.paging_per_s = Some(96.0);
    }
    all.push(("paging", paging));
    let mut layered = full;
    layered.layers[0].lower_bytes = 250 << 20;
    all.push(("layered-caches", layered));
    let mut times = build;
    times.access_time_updates = Some(40_000);
    all.push(("access-times", times));
    all
}

fn rules(observation: &Observation) -> Vec<String> {
    find(observation).into_iter().map(|finding| finding.rule).collect()
}

#[test]
fn nothing_is_found_where_nothing_is_wrong() {
    for (name, observation) in healthy() {
        assert_eq!(rules(&observation), [""; 0], "{name}");
    }
}

#[test]
fn each_rule_fires_on_what_shows_it_and_says_with_which_numbers() {
    let faulty = faulty();
    let mut shown: Vec<&str> = faulty.iter().map(|(rule, _)| *rule).collect();
    shown.sort_unstable();
    let mut known = RULES.map(|rule| rule.name);
    known.sort_unstable();
    assert_eq!(shown, known, "one record for each rule");
    for (rule, observation) in faulty {
        let found = find(&observation);
        // A dirty limit that is too low also throttles writers.
        let expected: &[&str] = match rule {
            "dirty-limit-low" => &["throttled-writers", "dirty-limit-low"],
            _ => &[rule],
        };
        assert_eq!(rules(&observation), expected, "{found:?}");
        let finding = found.iter().find(|finding| finding.rule == rule).expect("it fired");
        assert!(finding.seen.bytes().any(|byte| byte.is_ascii_digit()), "{}", finding.seen);
        assert!(finding.attempt.iter().all(|command| command.starts_with("larder ")));
        let text = to_text(&found);
        assert!(text.contains(&finding.seen) && text.contains("Try: larder"), "{text}");
    }
}

/// A journal writes a little, and the disk is not at its limit.
#[test]
fn what_is_dirty_is_not_set_against_a_disk_that_hardly_works() {
    let [.., (_, mut build), _] = healthy();
    for moment in &mut build.moments {
        moment.dirty_bytes = Some(200.0 * MIB);
        moment.written_per_s = Some(0.5 * MIB);
        moment.busy_ratio = Some(0.05);
    }
    assert_eq!(rules(&build), [""; 0]);
    build.moments[3].busy_ratio = Some(0.8);
    assert_eq!(rules(&build), ["dirty-limit-high"], "so slow is it");
}

/// A slow disk reports a completed request now and then, as if it had done all the work at that
/// time.
#[test]
fn how_fast_a_disk_is_is_not_told_by_a_moment() {
    let mut seen = idle_machine();
    for (at, moment) in (1..).zip(&mut seen.moments) {
        moment.at_s = f64::from(at) * 0.2;
        moment.dirty_bytes = Some(90.0 * MIB);
        moment.busy_ratio = Some(1.0);
        moment.written_per_s = Some(if at % 5 == 0 { 10.0 * MIB } else { 0.0 });
    }
    assert_eq!(rules(&seen), ["dirty-limit-high"], "it is 2 MiB/s");
}

#[test]
fn rules_are_named_once_and_explained() {
    for (place, rule) in RULES.iter().enumerate() {
        assert!(RULES.iter().take(place).all(|other| other.name != rule.name));
        assert!(!rule.when.is_empty() && !rule.source.is_empty() && rule.why.ends_with('.'));
        assert!(!rule.attempt.is_empty());
    }
}

#[test]
fn documents_have_the_table_of_all_rules() {
    const BEGIN: &str = "<!-- rules: made by a test of larder-report -->\n";
    const END: &str = "<!-- end of rules -->\n";
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/findings.md");
    let old = std::fs::read_to_string(path).expect("the page is there");
    let (before, rest) = old.split_once(BEGIN).expect("a place for the table");
    let (_, after) = rest.split_once(END).expect("the table ends");
    let new = format!("{before}{BEGIN}\n{}\n{END}{after}", rules_table().to_markdown());
    if std::env::var_os("LARDER_WRITE_DOCS").is_some() {
        std::fs::write(path, new).expect("it is written");
    } else {
        assert_eq!(old, new, "renew it with LARDER_WRITE_DOCS=1");
    }
}

#[test]
fn a_log_of_perfmon_shows_paging_and_a_leak() {
    let head = [
        "(PDH-CSV 4.0) (UTC)(0)",
        "\\\\S\\Memory\\Available Bytes",
        "\\\\S\\Memory\\Pages/sec",
        "\\\\S\\Memory\\System Cache Resident Bytes",
        "\\\\S\\Process(probe)\\Private Bytes",
    ];
    let mut text = head.map(|heading| format!("\"{heading}\"")).join(",") + "\n";
    for at in 0..20_u32 {
        let (available, cache) = (8_000_000 - at * 350_000, 26_000_000 - at * 1_000_000);
        let own = 4_000_000 + at * 1_500_000;
        let second = at * 2;
        let line = format!(
            "\"04/15/2000 10:00:{second:02}.000\",\"{available}\",\"235\",\"{cache}\",\"{own}\"\n"
        );
        text.push_str(&line);
    }
    let log = crate::perfmon::read(text.as_bytes(), &crate::perfmon::Options::default());
    let log = log.expect("a log");
    let found: Vec<&str> = log.findings.iter().map(|finding| finding.rule.as_str()).collect();
    assert_eq!(found, ["leak", "paging"]);
    assert!(
        crate::perfmon::to_text(&log).contains("probe grew from"),
        "{}",
        crate::perfmon::to_text(&log)
    );
    assert!(crate::perfmon::to_html(&log).contains("probe grew from"));
}

/// Any value, including impossible ones.
fn any_value() -> impl Strategy<Value = f64> {
    prop_oneof![
        Just(0.0),
        Just(-1.0),
        Just(1.0),
        Just(f64::MAX),
        Just(f64::NAN),
        Just(f64::INFINITY),
        0.0..1e12,
    ]
}

fn optional_value() -> impl Strategy<Value = Option<f64>> {
    proptest::option::of(any_value())
}

fn moment() -> impl Strategy<Value = MachineSnapshot> {
    let all = (
        any_value(),
        optional_value(),
        optional_value(),
        optional_value(),
        optional_value(),
        optional_value(),
        optional_value(),
        optional_value(),
    );
    all.prop_map(|parts| MachineSnapshot {
        at_s: parts.0,
        cache_bytes: parts.1,
        dirty_bytes: parts.2,
        dirty_limit_bytes: parts.3,
        available_bytes: parts.4,
        paging_per_s: parts.5,
        written_per_s: parts.6,
        busy_ratio: parts.7,
    })
}

fn files() -> impl Strategy<Value = Vec<FileUse>> {
    let pages = || prop_oneof![Just(0), Just(u64::from(u32::MAX)), 0..1_000_000_u64];
    let file = (pages(), pages(), pages(), proptest::option::of(pages()));
    let file = file.prop_map(|(read_pages, miss_pages, ahead_hit_pages, sequential_pages)| {
        FileUse { file: "f".to_owned(), read_pages, miss_pages, ahead_hit_pages, sequential_pages }
    });
    proptest::collection::vec(file, 0..6)
}

fn anything(moments: std::ops::Range<usize>) -> impl Strategy<Value = Observation> {
    let process = (optional_value(), proptest::collection::vec(any_value(), 0..12)).prop_map(
        |(throttled_s, own)| ProcessUse {
            process: "p".to_owned(),
            throttled_s,
            private_bytes: own,
        },
    );
    let counts = (any::<u32>(), any::<u32>(), any::<u32>());
    (
        any_value(),
        optional_value(),
        proptest::collection::vec(moment(), moments),
        files(),
        proptest::collection::vec(process, 0..4),
        counts,
        proptest::collection::vec(any::<(u64, u64)>(), 0..3),
    )
        .prop_map(|(seconds, memory_bytes, moments, files, processes, counts, layers)| {
            Observation {
                seconds,
                page_bytes: 4096,
                memory_bytes,
                moments,
                files,
                processes,
                read_ahead: Some(ReadAhead {
                    brought_pages: counts.0.into(),
                    unused_pages: counts.1.into(),
                }),
                evicted_pages: Some(counts.1.into()),
                refault_pages: Some(counts.2.into()),
                dirtied_pages: Some(counts.0.into()),
                layers: layers
                    .into_iter()
                    .map(|(upper_bytes, lower_bytes)| StackedCache {
                        upper: "u".to_owned(),
                        upper_bytes,
                        lower: "l".to_owned(),
                        lower_bytes,
                    })
                    .collect(),
                access_time_updates: Some(counts.2.into()),
            }
        })
}

proptest! {
    #[test]
    fn one_moment_or_none_gives_no_finding(observation in anything(0..MOMENTS_MIN)) {
        prop_assert!(find(&observation).is_empty());
    }

    #[test]
    fn no_numbers_make_a_rule_panic(observation in anything(0..16)) {
        let found = find(&observation);
        prop_assert!(found.iter().all(|finding| !finding.seen.is_empty()));
    }
}

#[test]
fn an_empty_record_gives_no_finding() {
    assert!(find(&Observation::default()).is_empty());
}
