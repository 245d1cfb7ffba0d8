//! Settings that change while clients are served: by `larder ctl set`, and by reading the
//! configuration file again.

use super::rig::{MIB, Server, eventually, images, larder, text};
use rustix::process::Signal;
use serde_json::Value;
use std::path::Path;
use tempfile::TempDir;

fn settings(server: &Server, volume: usize) -> Value {
    server.get("/v1/volumes").json()["volumes"][volume].clone()
}

#[test]
fn settings_change_while_clients_are_served() {
    let server = Server::start(&["one", "two"], &[]);
    let mut client = server.client(0);
    client.write_at(0, &vec![7; 4 << 20], false).unwrap();
    let body = r#"{"set": {"one.policy": "lru", "write-mode": "through", "one.max": "4MiB",
                   "one.min": "1MiB", "age-max": "700", "memory": "12MiB"}}"#;
    let answer = server.post("/v1/set", body);
    assert_eq!(answer.status, 200, "{answer:?}");
    let changed = answer.json();
    let changed = changed["changed"].as_array().unwrap();
    let one = |volume: &str, name: &str| {
        let matches = |change: &&Value| change["volume"] == volume && change["name"] == name;
        let change = changed.iter().find(matches).unwrap_or_else(|| panic!("{volume} {name}"));
        [&change["from"], &change["to"]].map(|value| value.as_str().unwrap().to_owned())
    };
    assert_eq!(changed.len(), 8);
    assert_eq!(one("", "memory"), ["16MiB", "12MiB"]);
    assert_eq!(one("one", "policy"), ["s3fifo", "lru"]);
    assert_eq!(one("one", "max"), ["all", "4MiB"]);
    assert_eq!(one("two", "write-mode"), ["write-back", "write-through"]);
    assert_eq!(one("two", "age-max"), ["5000", "700"]);
    let now = settings(&server, 0);
    assert_eq!(
        (&now["settings"]["policy"], &now["tunables"]["age-max"]),
        (&"lru".into(), &700.into())
    );
    // The server shrinks its memory in the background and loses no data.
    let pool = || server.get("/v1/stats").json()["pool"].clone();
    eventually("the memory is what was asked for", || {
        let pool = pool();
        assert!(pool["memory_target_bytes"].as_u64().unwrap() <= 12 * MIB);
        pool["memory_bytes"] == pool["memory_target_bytes"]
    });
    eventually("the ceiling is kept", || {
        settings(&server, 0)["resident_bytes"].as_u64().unwrap() <= 4 * MIB
    });
    let mut read = vec![0; 4 << 20];
    client.read_at(0, &mut read).unwrap();
    assert!(read.iter().all(|&byte| byte == 7));
    // Write-through: after a write, no data is only in memory.
    client.write_at(0, &[8; 4096], false).unwrap();
    eventually("what was dirty is written", || {
        server.get("/v1/at-risk").json()["volumes"][0]["lost_by_kill_bytes"] == 0
    });
    assert!(server.ctl_text(&["set", "one.policy=lru"]).starts_with("nothing to change"));
    let shown = server.ctl_text(&["set", "two.flush=ignore"]);
    assert!(
        shown.lines().any(|line| line.starts_with("two") && line.contains("ignore")),
        "{shown}"
    );
    for name in ["read-ahead", "read-ahead-max"] {
        let size = if name == "read-ahead" { "2MiB" } else { "3MiB" };
        let shown = server.ctl_text(&["set", &format!("two.{name}={size}")]);
        let row = shown.lines().find(|line| line.starts_with("two")).expect("a change");
        assert_eq!(row.split_whitespace().nth(1), Some(name), "{shown}");
    }
    let stderr = server.stop();
    assert!(stderr.contains("WARNING: two ignores flushes"), "it is said aloud: {stderr}");
}

#[test]
fn pages_become_larger_and_smaller_while_clients_are_served() {
    let server = Server::start(&["one"], &[]);
    let mut client = server.client(0);
    let bytes: Vec<u8> = (0..4 << 20).map(|i: u32| (i / 512 % 251) as u8).collect();
    client.write_at(0, &bytes, false).unwrap();
    // Each request sets page size and ceiling together. A larger page may need the new, higher
    // ceiling; a lower ceiling may need the new, smaller page.
    for (size, max) in [("1MiB", "12MiB"), ("64KiB", "2MiB"), ("1MiB", "all"), ("4KiB", "2MiB")] {
        server.ctl_text(&["set", &format!("one.page-size={size}"), &format!("one.max={max}")]);
        assert_eq!(settings(&server, 0)["settings"]["page-size"], size);
        let mut read = vec![0; bytes.len()];
        client.read_at(0, &mut read).unwrap();
        assert!(read == bytes, "pages of {size}");
    }
    let refused = server.ctl(&["set", "one.page-size=1MiB", "one.max=512KiB"]);
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    assert_eq!(settings(&server, 0)["settings"]["page-size"], "4KiB");
    server.stop();
}

#[test]
fn all_of_a_request_is_applied_or_nothing() {
    let server = Server::start(&["one", "two"], &[]);
    let before = server.get("/v1/volumes").json()["volumes"].clone();
    let wrong = [
        (r#"{"one.policy": "lru", "two.policy": "mru"}"#, "set two.policy: there is no policy"),
        (r#"{"one.policy": "lru", "three.policy": "lru"}"#, "there is no volume \"three\""),
        (r#"{"policy": "lru", "one.min": "8MiB", "two.min": "8MiB"}"#, "more than memory"),
        (
            r#"{"policy": "lru", "one.min": "4MiB", "one.max": "3MiB"}"#,
            "set min of \"one\": it is above the max of the volume",
        ),
        (r#"{"policy": "lru", "memory": "1MiB"}"#, "the minimum is 8 MiB"),
        (r#"{"policy": "lru", "age-max": "1"}"#, "age-max is 1, must be 10 to 3600000"),
        (r#"{"policy": "lru", "age-maxx": "1"}"#, "did you mean \"age-max\"?"),
        (r#"{"policy": "lru", "one.memory": "1GiB"}"#, "memory is a setting of the server"),
    ];
    for (set, reason) in wrong {
        let answer = server.post("/v1/set", &format!(r#"{{"set": {set}}}"#));
        assert_eq!(answer.status, 422, "{set}: {answer:?}");
        assert!(answer.error().contains(reason), "{set}: {}", answer.error());
        assert_eq!(server.get("/v1/volumes").json()["volumes"], before, "{set}");
    }
    let output = server.ctl(&["set", "one.policy=mru"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).starts_with("larder: cannot set one.policy: "));
    server.stop();
}

#[test]
fn a_read_only_store_stays_so_and_the_rest_is_taken_back() {
    let options = ["--write-mode", "one=read-only"];
    let server = Server::start(&["one", "two"], &options);
    let body = r#"{"set": {"age-max": "700", "one.write-mode": "back", "two.policy": "lru"}}"#;
    let answer = server.post("/v1/set", body);
    assert_eq!(answer.status, 422, "{answer:?}");
    assert!(answer.error().contains("its store is read-only"), "{}", answer.error());
    for volume in 0..2 {
        let now = settings(&server, volume);
        assert_eq!(now["tunables"]["age-max"], 5000, "{now}");
        assert_eq!(now["settings"]["policy"], "s3fifo");
    }
    server.stop();
}

fn write(config: &Path, socket: &Path, image: &Path, middle: &str, volume: &str) {
    let written = format!(
        "listen = \"unix:{}\"\n{middle}\n[[volume]]\nname = \"one\"\npath = \"{}\"\n{volume}\n",
        socket.display(),
        image.display()
    );
    std::fs::write(config, written).unwrap();
}

#[test]
fn a_file_that_is_read_again_changes_what_differs() {
    let directory = TempDir::new().unwrap();
    let config = directory.path().join("larder.toml");
    let [image, socket] =
        [images(directory.path(), &["one"]).remove(0), directory.path().join("nbd.sock")];
    write(&config, &socket, &image, "memory = \"16MiB\"", "policy = \"arc\"");
    let mut command = larder();
    command.args(["serve", "--config"]).arg(&config);
    let mut server = Server::spawn(directory, command, 1);
    let policy = |server: &Server| settings(server, 0)["settings"]["policy"].clone();
    assert_eq!(policy(&server), "arc");
    server.ctl_text(&["set", "age-max=700"]);
    // The server applies settings that differ in the file, keeps settings made with `ctl set`, and
    // names those that it cannot change.
    write(&config, &socket, &image, "memory = \"16MiB\"\nplain-io = true", "policy = \"lru\"");
    server.signal(Signal::HUP);
    assert_eq!(
        server.wait_for_line(|line| line.contains(" -> ")),
        "larder: one.policy: arc -> lru"
    );
    let note = server.wait_for_line(|line| line.contains("note"));
    assert_eq!(note, "larder: note: plain-io cannot be changed while the server runs; restart it");
    server.wait_for_line(|line| line == "larder: the configuration is reloaded");
    assert_eq!(policy(&server), "lru");
    assert_eq!(settings(&server, 0)["tunables"]["age-max"], 700);
    // A file with any error changes nothing.
    write(&config, &socket, &image, "memory = \"1KiB\"", "policy = \"fifo\"");
    server.signal(Signal::HUP);
    let stderr = server.wait_for_line(|line| line.contains("cannot"));
    assert!(stderr.contains("line 2: use 1 KiB of memory"), "{stderr}");
    assert!(stderr.ends_with("; nothing has changed"), "{stderr}");
    assert_eq!(policy(&server), "lru");
    server.stop();
}
