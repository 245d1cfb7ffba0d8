//! Control requests that decide on cached data: drop, freeze and pin.

use super::rig::{MIB, Server, eventually, text};
use serde_json::Value;

/// Settings that delay writeback and disable read-ahead.
const NO_BACKGROUND_IO: [&str; 6] =
    ["--set", "first-delay=60000", "--set", "age-max=3600000", "--hint", "random"];

fn volume(server: &Server, number: usize) -> Value {
    server.get("/v1/volumes").json()["volumes"][number].clone()
}

fn counter(server: &Server, name: &str) -> u64 {
    server.get("/v1/stats").json()["volumes"][0]["counters"][name].as_u64().unwrap()
}

#[test]
fn what_is_clean_is_dropped_and_what_is_dirty_stays() {
    let server = Server::start(&["one", "two"], &NO_BACKGROUND_IO);
    let mut client = server.client(0);
    client.write_at(0, &vec![7; 1 << 20], false).unwrap();
    client.read_at(4 * MIB, &mut vec![0; 2 << 20]).unwrap();
    // The server holds the pages of a reply until it is sent completely. The reply to the next
    // request shows that it is.
    client.read_at(0, &mut [0; 512]).unwrap();
    let answer = server.post("/v1/drop", r#"{"volume": "one"}"#);
    assert_eq!(answer.status, 200, "{answer:?}");
    let dropped = answer.json()["dropped"][0].clone();
    assert_eq!((&dropped["volume"], &dropped["dropped_bytes"]), (&"one".into(), &(2 * MIB).into()));
    assert_eq!(dropped["resident_bytes"], MIB, "what is dirty");
    let mut read = vec![0; 1 << 20];
    client.read_at(0, &mut read).unwrap();
    assert!(read.iter().all(|&byte| byte == 7));
    let shown = server.ctl_text(&["drop"]);
    assert!(shown.lines().any(|line| line.starts_with("two ")), "{shown}");
    let csv = server.ctl_text(&["drop", "one", "--format", "csv"]);
    assert!(csv.ends_with("\none,0,1048576\n"), "{csv}");
    assert_eq!(server.post("/v1/drop", r#"{"volume": "three"}"#).status, 404);
    server.stop();
}

#[test]
fn a_frozen_volume_takes_nothing_in_and_says_so() {
    let server = Server::start(&["one"], &NO_BACKGROUND_IO);
    let mut client = server.client(0);
    client.read_at(0, &mut vec![0; 1 << 20]).unwrap();
    let shown = server.ctl_text(&["freeze", "one"]);
    assert!(shown.lines().last().unwrap().starts_with("one     frozen   no    yes"), "{shown}");
    for times in 1..3 {
        client.read_at(8 * MIB, &mut vec![0; 1 << 20]).unwrap();
        assert_eq!(counter(&server, "bypass_frozen_pages"), 256 * times, "nothing has entered");
    }
    assert_eq!(counter(&server, "filled_blocks"), 256);
    assert_eq!(volume(&server, 0)["frozen"], true);
    assert!(server.ctl_text(&["volumes"]).contains("one: frozen"));
    assert!(server.get("/metrics").body.contains("larder_frozen{volume=\"one\"} 1\n"));
    assert!(server.ctl_text(&["freeze"]).starts_with("nothing to change"));
    server.ctl_text(&["unfreeze"]);
    assert_eq!(volume(&server, 0)["frozen"], false);
    client.read_at(8 * MIB, &mut vec![0; 1 << 20]).unwrap();
    assert_eq!(counter(&server, "filled_blocks"), 512);
    server.stop();
}

#[test]
fn pinned_ranges_come_and_stay_until_they_are_unpinned() {
    let server = Server::start(&["one"], &NO_BACKGROUND_IO);
    let mut client = server.client(0);
    let shown = server.ctl_text(&["pin", "one", "1MiB+2MiB", "5MiB+100"]);
    assert!(shown.contains("1,048,576  2 MiB") || shown.contains("1,048,576   2 MiB"), "{shown}");
    assert!(shown.contains("5,242,880   4 KiB"), "whole pages: {shown}");
    eventually("they are read in", || counter(&server, "filled_blocks") == 513);
    for _ in 0..3 {
        for at in 6..16 {
            client.read_at(at * MIB, &mut vec![0; 1 << 20]).unwrap();
        }
    }
    let misses = counter(&server, "read_miss_pages");
    client.read_at(MIB, &mut vec![0; 2 << 20]).unwrap();
    assert_eq!(counter(&server, "read_miss_pages"), misses, "all of it is there still");
    let now = volume(&server, 0);
    assert_eq!(now["pinned_bytes"], 2 * MIB + 4096);
    assert_eq!(now["pinned"].as_array().unwrap().len(), 2);
    assert!(server.ctl_text(&["volumes"]).contains("one: 2 MiB pinned, number of ranges: 2"));
    // A request that exceeds the limit is refused as a whole.
    let refused = server.ctl(&["pin", "one", "0+4KiB", "6MiB+8MiB"]);
    assert_eq!(refused.status.code(), Some(2));
    let stderr = text(&refused.stderr);
    assert!(stderr.starts_with("larder: cannot pin 8192 KiB of one: "), "{stderr}");
    assert_eq!(volume(&server, 0)["pinned"], now["pinned"], "nothing has changed");
    let outside = server
        .post("/v1/pin", r#"{"volume": "one", "ranges": [{"offset": 16777216, "length": 1}]}"#);
    assert_eq!(outside.status, 422);
    assert!(outside.error().contains("the volume has 16MiB"), "{}", outside.error());
    let csv = server.ctl_text(&["unpin", "one", "1MiB+1MiB", "--format", "csv"]);
    assert!(csv.ends_with("\none,2097152,1048576\none,5242880,4096\n"), "{csv}");
    assert!(server.ctl_text(&["unpin", "one"]).starts_with("nothing is pinned"));
    server.stop();
}
