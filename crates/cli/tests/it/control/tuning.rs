//! Automatic decisions of the cache, on policies and on the division of the memory: enabled,
//! observed and reverted.

use super::rig::{MIB, Server, eventually};
use serde_json::Value;

fn volume(server: &Server, number: usize) -> Value {
    server.get("/v1/volumes").json()["volumes"][number].clone()
}

/// Reads the first `mib` MiB of the first volume in order, over and over, until `condition` holds.
fn read_around(server: &Server, mib: u64, event: &str, mut condition: impl FnMut() -> bool) {
    let mut client = server.client(0);
    let mut bytes = vec![0; 64 << 10];
    eventually(event, || {
        for piece in 0..mib * 16 {
            client.read_at(piece << 16, &mut bytes).unwrap();
        }
        condition()
    });
}

#[test]
fn auto_changes_the_policy_and_says_when_and_why() {
    // A loop slightly larger than the cache, for which LIRS has the highest hit ratio.
    let options = ["--policy", "auto", "--hint", "random"];
    let server = Server::start(&["one"], &options);
    let before = volume(&server, 0);
    assert_eq!(before["settings"]["policy"], "auto");
    assert_eq!(
        (&before["policy"]["name"], &before["policy"]["auto"]),
        (&"s3fifo".into(), &true.into())
    );
    read_around(&server, 16, "another policy is chosen", || {
        volume(&server, 0)["policy"]["name"] == "lirs"
    });
    let policy = volume(&server, 0)["policy"].clone();
    let switch = policy["switches"].as_array().unwrap().last().unwrap().clone();
    assert_eq!(switch["to"], "lirs");
    assert!(switch["gain"].as_f64().unwrap() > 0.1, "{switch}");
    assert!(switch["age_ns"].as_u64().unwrap() < 60_000_000_000, "{switch}");
    let shown = server.ctl_text(&["volumes"]);
    assert!(shown.contains("lirs (auto)"), "{shown}");
    assert!(shown.contains("one: lirs replaced s3fifo "), "{shown}");
    let metrics = server.get("/metrics").body;
    let line = "larder_policy_info{volume=\"one\",policy=\"lirs\",auto=\"true\"} 1\n";
    assert!(metrics.contains(line), "{metrics}");
    let switches =
        server.get("/v1/stats").json()["volumes"][0]["counters"]["policy_switches"].clone();
    assert!(switches.as_u64().unwrap() >= 1, "{switches}");
    server.stop();
}

#[test]
fn auto_is_a_setting_like_others() {
    let server = Server::start(&["one", "two"], &["--policy", "one=sieve"]);
    let policies = || {
        [0, 1].map(|number| {
            let policy = volume(&server, number)["policy"].clone();
            (policy["name"].as_str().unwrap().to_owned(), policy["auto"].as_bool().unwrap())
        })
    };
    let expected = |one: (&str, bool), two: (&str, bool)| {
        [one, two].map(|(name, auto)| (name.to_owned(), auto))
    };
    assert_eq!(policies(), expected(("sieve", false), ("s3fifo", false)));
    // `auto` immediately replaces a policy that it cannot compare with others.
    let changed = server.ctl_text(&["set", "one.policy=auto"]);
    assert!(changed.contains("sieve") && changed.contains("auto"), "{changed}");
    assert_eq!(policies(), expected(("s3fifo", true), ("s3fifo", false)));
    server.ctl_text(&["set", "policy=2q"]);
    assert_eq!(policies(), expected(("2q", false), ("2q", false)));
    // A policy that it can compare stays until another is clearly better.
    server.ctl_text(&["set", "two.policy=auto"]);
    assert_eq!(policies(), expected(("2q", false), ("2q", true)));
    assert_eq!(volume(&server, 1)["settings"]["policy"], "auto");
    let refused = server.post("/v1/set", r#"{"set": {"policy": "automatic"}}"#);
    assert_eq!(refused.status, 422);
    assert!(refused.error().contains("there is no policy \"automatic\""), "{}", refused.error());
    server.stop();
}

#[test]
fn the_memory_is_divided_where_that_is_asked_for() {
    let options = ["--share", "auto", "--hint", "random"];
    let server = Server::start(&["hot", "cold"], &options);
    let targets = || [0, 1].map(|number| volume(&server, number)["target_bytes"].as_u64());
    assert_eq!(server.get("/v1/volumes").json()["share"], "auto");
    // Clients read one volume repeatedly, and never the other.
    read_around(
        &server,
        10,
        "the memory goes to where it hits",
        || matches!(targets(), [Some(hot), Some(cold)] if hot > cold + 2 * MIB),
    );
    let shown = server.ctl_text(&["volumes", "--format", "csv"]);
    assert!(shown.starts_with("name,length_bytes,resident_bytes,target_bytes,"), "{shown}");
    let stats = server.get("/v1/stats").json();
    let pool = stats["pool"]["memory_bytes"].as_u64().unwrap();
    let gauge = |number: usize| stats["volumes"][number]["gauges"]["target_bytes"].as_u64();
    assert_eq!(gauge(0).unwrap() + gauge(1).unwrap(), pool, "they add up to what there is");
    // The setting can be reverted.
    let changed = server.ctl_text(&["set", "share=coldest"]);
    assert!(changed.lines().last().unwrap().contains("share"), "{changed}");
    assert_eq!(targets(), [None, None]);
    let refused = server.post("/v1/set", r#"{"set": {"share": "fair"}}"#);
    assert!(refused.error().ends_with("one of coldest, auto"), "{}", refused.error());
    let refused = server.post("/v1/set", r#"{"set": {"hot.share": "auto"}}"#);
    assert!(refused.error().contains("share is a setting of the server"), "{}", refused.error());
    server.stop();
}

#[test]
fn a_volume_that_thrashes_is_told_what_it_needs() {
    let options = ["--hint", "random", "--max", "one=8MiB", "--policy", "lru"];
    let server = Server::start(&["one", "two"], &options);
    let young = server.ctl_text(&["curve", "one"]);
    assert!(young.contains("Nothing is known yet: 0 references are too few."), "{young}");
    let curve = || server.get("/v1/curve").json()["volumes"][0].clone();
    // A loop of 10 MiB in 8 MiB of cache: LRU has no hits, and with a little more memory only hits.
    read_around(&server, 10, "the curve is known", || {
        let curve = curve();
        curve["region"] == "steep" && curve["needed"]["point"]["hit_ratio"].as_f64() > Some(0.8)
    });
    let result = curve();
    let needed = result["needed"]["point"]["bytes"].as_u64().unwrap();
    assert!((9 * MIB..12 * MIB).contains(&needed), "{result}");
    assert!(result["points"].as_array().unwrap().len() > 30, "{result}");
    let advice = result["advice"][0].as_str().unwrap();
    assert!(advice.starts_with("one needs ") && advice.contains(" more to reach "), "{advice}");
    let shown = server.ctl_text(&["curve", "one"]);
    for part in ["Hit-ratio curve", "Regions", "Policies in miniature", "Advice", "Findings"] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    assert!(shown.lines().all(|line| !line.starts_with("two:")), "{shown}");
    // All views report the finding.
    let line = "one: thrashing: pages are evicted shortly before they are used again; ";
    for command in ["stats", "volumes"] {
        let shown = server.ctl_text(&[command]);
        assert!(shown.contains(line) && shown.contains(" more, lru would hit "), "{shown}");
    }
    let of_one = server.ctl_text(&["stats", "one"]);
    assert!(of_one.contains(line) && of_one.lines().all(|line| !line.starts_with("two ")));
    let metrics = server.get("/metrics").body;
    let gauge = |finding: &str, value: u64| {
        let line = format!("larder_finding{{volume=\"one\",finding=\"{finding}\"}} {value}\n");
        assert!(metrics.contains(&line), "{line}{metrics}");
    };
    gauge("thrashing", 1);
    gauge("too-large", 0);
    let csv = server.ctl_text(&["curve", "one", "--format", "csv"]);
    assert!(csv.starts_with("volume,bytes,hit_ratio,low,high\none,"), "{csv}");
    let unknown = server.ctl(&["curve", "three"]);
    assert_eq!(unknown.status.code(), Some(2));
    // A volume that may take free memory needs none.
    server.ctl_text(&["set", "one.max=all"]);
    let result = curve();
    let findings = result["findings"].as_array().unwrap();
    assert!(findings.iter().all(|it| it["finding"] != "thrashing"), "{result}");
    let advice = result["advice"][0].as_str().unwrap_or_default();
    assert!(!advice.starts_with("one needs "), "{advice}");
    server.stop();
}
