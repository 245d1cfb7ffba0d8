//! Responses of the control interface.

use super::files::LAZY;
use super::rig::{MIB, Server, eventually};

#[test]
fn stats_are_those_of_the_clients() {
    let server = Server::start(&["one", "two"], &LAZY);
    let mut client = server.client(1);
    client.write_at(0, &[7; 8192], false).unwrap();
    for _ in 0..3 {
        client.read_at(0, &mut [0; 4096]).unwrap();
    }
    client.read_at(4 * MIB, &mut [0; 4096]).unwrap();
    let answer = server.get("/v1/stats");
    assert_eq!(answer.status, 200);
    assert!(answer.head.contains("content-type: application/json"), "{}", answer.head);
    let stats = answer.json();
    assert_eq!((&stats["schema"], &stats["version"]), (&"larder-control".into(), &1.into()));
    assert_eq!(stats["stopping"], false);
    assert!(stats["uptime_ns"].as_u64().unwrap() > 0);
    let memory = stats["pool"]["memory_bytes"].as_u64().unwrap();
    assert!((12 * MIB..16 * MIB).contains(&memory), "{memory}");
    let budget = &stats["budget"];
    assert_eq!((&budget["sessions"], &budget["sessions_max"]), (&1.into(), &64.into()));
    assert_eq!(budget["frames"]["size_bytes"], memory / 4);
    assert_eq!(budget["payloads"]["size_bytes"], MIB);
    for pool in ["frames", "payloads"] {
        assert_eq!(budget[pool]["refusals"], 0, "{budget}");
    }
    assert_eq!(budget["frames"]["leased_bytes"], 0, "{budget}");
    // At most a large receive buffer, until the client has been idle for a second.
    assert!(budget["payloads"]["leased_bytes"].as_u64().unwrap() < 96 << 10, "{budget}");
    let [one, two] = &stats["volumes"].as_array().unwrap()[..] else { panic!("{stats}") };
    assert_eq!((&one["name"], &two["name"]), (&"one".into(), &"two".into()));
    assert_eq!((&one["read_pages"], &one["read_hit_ratio"]), (&0.into(), &().into()));
    assert_eq!((&two["read_pages"], &two["read_hits"]), (&4.into(), &3.into()));
    assert!((two["read_hit_ratio"].as_f64().unwrap() - 0.75).abs() < 1e-9);
    assert_eq!(two["counters"]["read_requests"], 4);
    assert_eq!(two["counters"]["write_bytes"], 8192);
    assert_eq!(two["gauges"]["dirty_bytes"], 8192);
    assert_eq!(two["latencies"]["read_total_ns"]["count"], 4);
    assert!(two["gauges"]["memory_bytes"].is_null(), "that is one of the pool");
    server.stop();
}

#[test]
fn volumes_have_their_settings() {
    let options = [
        "--policy",
        "one=lru",
        "--page-size",
        "8KiB",
        "--set",
        "two.age-max=9000",
        "--max",
        "8MiB",
    ];
    let server = Server::start(&["one", "two"], &options);
    let volumes = server.get("/v1/volumes").json();
    let [one, two] = &volumes["volumes"].as_array().unwrap()[..] else { panic!("{volumes}") };
    let settings = |volume: &serde_json::Value| {
        let of = |name: &str| volume["settings"][name].as_str().unwrap().to_owned();
        ["policy", "page-size", "write-mode", "flush", "min", "max"].map(of)
    };
    assert_eq!(settings(one), ["lru", "8KiB", "write-back", "keep", "0", "8MiB"]);
    assert_eq!(settings(two), ["s3fifo", "8KiB", "write-back", "keep", "0", "8MiB"]);
    assert_eq!(
        (&one["tunables"]["age-max"], &two["tunables"]["age-max"]),
        (&5000.into(), &9000.into())
    );
    assert_eq!(one["length_bytes"], 16 * MIB);
    assert_eq!(one["uri"], server.uris[0]);
    assert!(one["path"].as_str().unwrap().ends_with("/one.img"));
    server.stop();
}

#[test]
fn what_is_at_risk_is_gone_after_a_flush() {
    // Writeback is delayed, so that all dirty pages stay in memory.
    let lazy = ["--set", "first-delay=60000", "--set", "age-max=3600000"];
    let server = Server::start(&["one"], &lazy);
    let at_risk = || server.get("/v1/at-risk").json()["volumes"][0].clone();
    let nothing = at_risk();
    assert_eq!(
        (&nothing["lost_by_kill_bytes"], &nothing["oldest_age_ns"]),
        (&0.into(), &().into())
    );
    let mut client = server.client(0);
    client.write_at(4096, &vec![7; 1 << 20], false).unwrap();
    let risk = at_risk();
    assert_eq!(risk["lost_by_kill_bytes"], 1 << 20);
    assert!(risk["oldest_age_ns"].as_u64().unwrap() > 0);
    assert!(risk["lost_by_kill_bytes_max"].as_u64().unwrap() >= 1 << 20);
    assert_eq!((&risk["flush"], &risk["failing_bytes"]), (&"keep".into(), &0.into()));
    let answer = server.post("/v1/flush", "");
    assert_eq!(answer.status, 200, "{answer:?}");
    assert!(answer.head.contains("application/x-ndjson"), "{}", answer.head);
    let lines = answer.lines();
    let done = serde_json::json!({"event": "done", "done_bytes": MIB, "failures": []});
    assert_eq!(lines.last().unwrap(), &done);
    for line in &lines[..lines.len() - 1] {
        assert_eq!((&line["event"], &line["volume"]), (&"volume".into(), &"one".into()));
        assert_eq!(line["total_bytes"], MIB);
    }
    assert_eq!(at_risk()["lost_by_kill_bytes"], 0);
    // The flushed data is in the image file itself.
    let image = std::fs::read(server.path("one.img")).unwrap();
    assert_eq!((image[4095], image[4096], image[4096 + (1 << 20) - 1]), (0, 7, 7));
    server.stop();
}

#[test]
fn what_was_warmed_hits() {
    let server = Server::start(&["one"], &["--read-ahead", "off"]);
    let body = r#"{"volume": "one", "ranges": [{"offset": 4096, "length": 2097152}]}"#;
    let lines = server.post("/v1/warm", body).lines();
    assert_eq!(lines.last().unwrap()["failures"], serde_json::json!([]), "{lines:?}");
    let stats = || server.get("/v1/stats").json()["volumes"][0].clone();
    let before = stats();
    assert_eq!(before["gauges"]["resident_bytes"], 2 * MIB);
    let mut client = server.client(0);
    client.read_at(4096, &mut vec![0; 2 << 20]).unwrap();
    let after = stats();
    let hits = |stats: &serde_json::Value| stats["read_hits"].as_u64().unwrap();
    assert_eq!(hits(&after) - hits(&before), 512);
    for (ranges, reason) in [
        (r#"[{"offset": 16777216, "length": 1}]"#, "the volume has 16MiB"),
        (r#"[{"offset": 0, "length": 0}]"#, "the range 0+0"),
        (r#"[{"offset": 18446744073709551615, "length": 2}]"#, "the volume has"),
    ] {
        let refused =
            server.post("/v1/warm", &format!(r#"{{"volume": "one", "ranges": {ranges}}}"#));
        assert_eq!(refused.status, 422);
        assert!(refused.error().contains(reason), "{}", refused.error());
    }
    server.stop();
}

#[test]
fn what_makes_no_sense_is_refused_with_a_sentence() {
    let server = Server::start(&["one"], &[]);
    let refused = |status, answer: super::rig::Response, reason: &str| {
        assert_eq!(answer.status, status, "{answer:?}");
        assert!(answer.error().contains(reason), "{}", answer.error());
    };
    refused(404, server.get("/v1/nothing"), "no such path");
    refused(404, server.get("/v2/stats"), "no such path");
    refused(405, server.get("/v1/flush"), "allows only POST");
    refused(405, server.post("/v1/stats", ""), "allows only GET");
    refused(404, server.post("/v1/flush", r#"{"volume": "two"}"#), "find the volume \"two\"");
    refused(400, server.post("/v1/flush", r#"{"volumes": "one"}"#), "unknown field `volumes`");
    refused(400, server.post("/v1/flush", "{"), "parse the request body");
    refused(400, server.post("/v1/flush", "[]"), "parse the request body");
    refused(400, server.post("/v1/stop", r#"{"now": true}"#), "unknown field `now`");
    server.stop();
}

#[test]
fn a_path_accepts_only_its_methods_and_its_exact_spelling() {
    let server = Server::start(&["one"], &[]);
    let send = |method: &str, path: &str| {
        let head = format!("{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        let answer = server.send_raw(&head);
        let allowed = answer.head.lines().find_map(|line| line.strip_prefix("allow: "));
        (answer.status, allowed.map(str::to_owned), answer)
    };
    for (path, methods, others) in [
        ("/v1/stats", "GET,HEAD", ["PUT", "DELETE", "OPTIONS", "FOO"]),
        ("/v1/flush", "POST", ["PUT", "GET", "HEAD", "CONNECT"]),
    ] {
        for method in others {
            let (status, allowed, answer) = send(method, path);
            assert_eq!((status, allowed.as_deref()), (405, Some(methods)), "{method}: {answer:?}");
            assert_eq!(answer.body.is_empty(), method == "HEAD", "{method}: {answer:?}");
        }
    }
    // HEAD returns the headers of GET. Absolute URIs, as for a proxy, are accepted; misspelled
    // paths are not.
    for path in ["/v1/files", "/v1/stats", "/metrics", "/nothing"] {
        let length = |answer: &super::rig::Response| {
            let mut lines = answer.head.lines();
            lines.find_map(|line| line.strip_prefix("content-length: ").map(str::len))
        };
        let ((of_head, _, head), (of_get, _, get)) = (send("HEAD", path), send("GET", path));
        assert_eq!((of_head, length(&head)), (of_get, length(&get)), "{path}");
        assert!(length(&get).is_some() && head.body.is_empty() && !get.body.is_empty(), "{path}");
    }
    for (path, status) in [
        ("/v1/stats?since=0", 200),
        ("http://larder/v1/stats", 200),
        ("/v1/stats/", 404),
        ("/v1//stats", 404),
        ("/v1/./stats", 404),
        ("/v1/%73tats", 404),
        ("/V1/stats", 404),
        ("/v1/{name}", 404),
        ("/v1/st%ff", 404),
        ("/v1/\u{e4}", 404),
        ("/", 404),
        ("http://larder", 404),
    ] {
        let (found, allowed, answer) = send("GET", path);
        assert_eq!((found, allowed), (status, None), "{path}: {answer:?}");
        assert!(status == 200 || answer.error().contains("has no such path"), "{answer:?}");
    }
    assert_eq!(send("OPTIONS", "*").0, 404);
    assert_eq!(send("CONNECT", "larder:80").0, 404);
    server.stop();
}

#[test]
fn a_connection_serves_several_requests_in_order() {
    let server = Server::start(&["one"], &[]);
    let request = |method: &str, path: &str, rest: &str| {
        format!("{method} {path} HTTP/1.1\r\nHost: x\r\n{rest}")
    };
    // Request bodies that the server does not read, and a response without a body.
    let body = "Content-Length: 3\r\n\r\nabc";
    let all = [
        request("GET", "/v1/files", body),
        request("POST", "/v1/stats", body),
        request("HEAD", "/v1/stats", "\r\n"),
        request("POST", "/nothing", body),
        request("POST", "/v1/freeze", "Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"),
        request("GET", "/metrics", "Connection: close\r\n\r\n"),
    ];
    let answer = server.send_raw(&all.concat());
    let responses = format!("{}{}", answer.head, answer.body);
    let statuses: Vec<_> =
        responses.split("HTTP/1.1 ").skip(1).map(|answer| &answer[..3]).collect();
    assert_eq!(statuses, ["404", "405", "200", "404", "200", "200"], "{responses}");
    server.stop();
}

#[test]
fn a_stop_is_followed_to_its_end() {
    let lazy = ["--set", "first-delay=60000", "--set", "age-max=3600000"];
    let server = Server::start(&["one", "two"], &lazy);
    server.client(0).write_at(0, &vec![7; 1 << 20], false).unwrap();
    let lines = server.post("/v1/stop", "").lines();
    let done = serde_json::json!({"event": "done", "done_bytes": MIB, "failures": []});
    assert_eq!(lines.last().unwrap(), &done);
    let socket = server.socket();
    let image = server.path("one.img");
    let directory = server.directory.path().to_owned();
    eventually("the server has ended", || !socket.exists());
    assert_eq!(std::fs::read(image).unwrap()[(1 << 20) - 1], 7);
    let stderr = server.wait();
    assert!(stderr.contains("volume one"), "the tables of the end: {stderr}");
    assert!(!directory.exists(), "the server's directory went with it");
}
