//! Volumes that are added and removed while others are served.

use super::rig::{MIB, Server, eventually, images, larder, text};
use larder_io::nbd_client::{Client, ClientError};
use rustix::process::Signal;
use serde_json::Value;
use std::fmt::Write as _;
use std::path::Path;
use tempfile::TempDir;

fn connect(uri: &str) -> Result<Client, ClientError> {
    Client::connect(&uri.parse().expect("an address"))
}

/// Adds an image of the server's directory, and returns the address of the export.
fn add(server: &Server, name: &str, settings: &[&str]) -> String {
    let volume = format!("{name}={}", server.path(&format!("{name}.img")).display());
    let stdout = server.ctl_text(&[&["add", &volume], settings].concat());
    assert!(stdout.starts_with(&format!("serving {name} (16 MiB, ")), "{stdout}");
    stdout.trim_end().split_once(" at ").expect("an address").1.to_owned()
}

fn expect_refusal(server: &Server, args: &[&str]) -> String {
    let output = server.ctl(args);
    assert_eq!(output.status.code(), Some(2), "{args:?}: {}", text(&output.stdout));
    text(&output.stderr)
}

fn names(server: &Server) -> Vec<String> {
    let volumes = server.get("/v1/volumes").json()["volumes"].clone();
    let name = |volume: &Value| volume["name"].as_str().unwrap().to_owned();
    volumes.as_array().unwrap().iter().map(name).collect()
}

#[test]
fn a_volume_comes_and_goes_while_another_is_served() {
    let lazy = ["--set", "first-delay=60000", "--set", "age-max=3600000", "--policy", "lru"];
    let server = Server::start(&["one"], &lazy);
    images(server.directory.path(), &["two"]);
    let mut one = server.client(0);
    one.write_at(0, &[1; 4096], false).unwrap();
    for round in 1..=5 {
        let uri = add(&server, "two", &["min=1MiB", "page-size=16KiB"]);
        let two = &server.get("/v1/volumes").json()["volumes"][1];
        assert_eq!(two["settings"]["min"], "1MiB");
        assert_eq!(two["settings"]["policy"], "lru", "what holds for all volumes");
        assert_eq!(two["tunables"]["first-delay"], 60_000);
        let mut client = connect(&uri).unwrap();
        let mut read = [0; 4096];
        client.read_at(8 * MIB, &mut read).unwrap();
        assert_eq!(read, [round - 1; 4096], "what was written before it went");
        client.write_at(8 * MIB, &[round; 4096], false).unwrap();
        let stderr = expect_refusal(&server, &["remove", "two"]);
        let reason = "larder: cannot remove two: 1 client is connected; let them go first";
        assert!(stderr.starts_with(reason), "{stderr}");
        client.read_at(0, &mut read).unwrap();
        client.disconnect().unwrap();
        eventually("no client is connected", || server.ctl(&["remove", "two"]).status.success());
        assert_eq!(names(&server), ["one"]);
        let image = std::fs::read(server.path("two.img")).unwrap();
        assert_eq!(image[8 << 20..][..4096], [round; 4096]);
        assert!(connect(&uri).is_err(), "it is offered no more");
        one.read_at(0, &mut read).unwrap();
        assert_eq!(read, [1; 4096]);
    }
    // The last volume can be removed as well.
    server.ctl_text(&["remove", "one", "--disconnect"]);
    assert_eq!(server.get("/v1/stats").status, 200);
    assert_eq!(server.get("/metrics").status, 200);
    let uri = add(&server, "one", &["write-mode=read-only"]);
    let mut read = [0; 4096];
    connect(&uri).unwrap().read_at(0, &mut read).unwrap();
    assert_eq!(read, [1; 4096]);
    server.stop();
}

#[test]
fn a_file_that_the_server_writes_is_not_added_as_a_volume() {
    let directory = tempfile::tempdir().unwrap();
    let counters = directory.path().join("counters.img");
    std::fs::write(&counters, vec![7; 1 << 20]).unwrap();
    let server = Server::start(&["one"], &["--counters", counters.to_str().unwrap()]);
    let stderr = expect_refusal(&server, &["add", counters.to_str().unwrap()]);
    assert!(stderr.contains("it is the file ") && stderr.ends_with(" that is read\n"), "{stderr}");
    server.stop();
}

#[test]
fn clients_are_let_go_of_if_asked_for_and_nothing_is_lost() {
    let lazy = ["--set", "first-delay=60000", "--set", "age-max=3600000"];
    let server = Server::start(&["one", "two"], &lazy);
    let [mut one, mut two] = [0, 1].map(|volume| server.client(volume));
    two.write_at(0, &vec![7; 1 << 20], false).unwrap();
    let stdout = server.ctl_text(&["remove", "two", "--disconnect"]);
    let expected = "removed, no unwritten data is left; written: 1 MiB in ";
    assert!(stdout.starts_with(expected), "{stdout}");
    assert_eq!(std::fs::read(server.path("two.img")).unwrap()[..1 << 20], vec![7; 1 << 20]);
    assert!(two.read_at(0, &mut [0; 4096]).is_err(), "its volume is gone");
    one.read_at(0, &mut [0; 4096]).unwrap();
    assert!(expect_refusal(&server, &["remove", "two"]).contains("find the volume \"two\""));
    server.stop();
}

#[test]
fn what_cannot_be_added_changes_nothing() {
    let server = Server::start(&["one"], &[]);
    images(server.directory.path(), &["two"]);
    std::fs::write(server.path("odd.img"), [0; 1000]).unwrap();
    let before = server.get("/v1/volumes").json()["volumes"].clone();
    let path = |name: &str| server.path(name).display().to_string();
    let [one, two, odd, none] = ["one.img", "two.img", "odd.img", "none.img"].map(path);
    let again = format!("again={one}");
    let wrong: [(&[&str], &str); 9] = [
        (&[&one], "add one: there is a volume of this name"),
        (&[&again], "caches the same data; name it once"),
        (&[&odd], "its length, 1000 bytes, is not a multiple of 512"),
        (&[&none], "none.img: no such file or directory"),
        (&[&two, "polcy=lru"], "set two.polcy: there is no setting \"polcy\"; did you mean"),
        (&[&two, "policy=mru"], "set two.policy: there is no policy \"mru\""),
        (&[&two, "min=1GiB"], "set min of \"two\": it is more than the cache has"),
        (&[&two, "memory=1GiB"], "memory is a setting of the server, not of a volume"),
        (&["nbd+unix:///x?socket=/no/such/socket"], "/no/such/socket"),
    ];
    for (args, reason) in wrong {
        let stderr = expect_refusal(&server, &[&["add"], args].concat());
        assert!(stderr.starts_with("larder: cannot ") && stderr.contains(reason), "{stderr}");
        assert!(stderr.matches("no such file").count() < 2, "{stderr}");
        assert_eq!(
            server.get("/v1/volumes").json()["volumes"][0]["settings"],
            before[0]["settings"]
        );
        assert_eq!(names(&server), ["one"]);
    }
    // After the refusals, the image can be added: none of them keeps it open.
    add(&server, "two", &[]);
    server.stop();
}

#[test]
fn an_upstream_volume_takes_its_buffers_from_the_memory_and_gives_them_back() {
    let upstream = Server::start(&["far"], &[]);
    let server = Server::start(&["one"], &[]);
    let target = || server.get("/v1/stats").json()["pool"]["memory_target_bytes"].as_u64().unwrap();
    let before = target();
    let volume = format!("up={}", upstream.uris[0]);
    let stdout = server.ctl_text(&["add", &volume]);
    let uri = stdout.trim_end().split_once(" at ").unwrap().1;
    assert!(target() + 6 * MIB <= before + MIB, "{} of {before}", target());
    connect(uri).unwrap().write_at(0, &[9; 4096], false).unwrap();
    eventually("no client is connected", || server.ctl(&["remove", "up"]).status.success());
    // Tables that a larger cache once needed stay allocated, and are counted.
    assert!(target() + MIB >= before, "{} of {before}", target());
    let mut read = [0; 4096];
    upstream.client(0).read_at(0, &mut read).unwrap();
    assert_eq!(read, [9; 4096]);
    server.stop();
    upstream.stop();
}

#[test]
fn what_is_asked_of_an_added_volume_is_recorded() {
    let directory = TempDir::new().unwrap();
    let trace = directory.path().join("asked.ltr").display().to_string();
    let server = Server::start(&["one"], &["--record", &trace]);
    images(server.directory.path(), &["two"]);
    server.client(0).read_at(0, &mut [0; 4096]).unwrap();
    for _ in 0..2 {
        let uri = add(&server, "two", &[]);
        let mut client = connect(&uri).unwrap();
        client.read_at(4096, &mut [0; 4096]).unwrap();
        client.write_at(0, &[1; 8192], false).unwrap();
        client.disconnect().unwrap();
        eventually("no client is connected", || server.ctl(&["remove", "two"]).status.success());
    }
    let log = server.stop();
    assert!(log.contains("recorded 5 requests"), "{log}");
    let summary = larder().args(["trace", "summary", "--json", &trace]).output().unwrap();
    let summary: Value = serde_json::from_slice(&summary.stdout).unwrap();
    let requests = |name: &str, op: &str| {
        let volumes = summary["volumes"].as_array().unwrap();
        let volume = volumes.iter().find(|volume| volume["volume"] == name).unwrap();
        volume["ops"][op]["requests"].as_u64().unwrap_or(0)
    };
    assert_eq!(
        (requests("one", "read"), requests("two", "read"), requests("two", "write")),
        (1, 2, 2)
    );
}

fn write(config: &Path, directory: &Path, volumes: &[&str]) {
    let socket = directory.join("nbd.sock");
    let mut config_text = format!("memory = \"16MiB\"\nlisten = \"unix:{}\"\n", socket.display());
    for volume in volumes {
        let image = directory.join(format!("{volume}.img"));
        writeln!(config_text, "[[volume]]\nname = \"{volume}\"\npath = \"{}\"", image.display())
            .expect("it is text");
    }
    std::fs::write(config, config_text).unwrap();
}

#[test]
fn a_file_that_is_read_again_adds_and_removes_volumes() {
    let directory = TempDir::new().unwrap();
    let config = directory.path().join("larder.toml");
    images(directory.path(), &["one", "two", "three"]);
    write(&config, directory.path(), &["one", "two"]);
    let mut command = larder();
    command.args(["serve", "--config"]).arg(&config);
    let mut server = Server::spawn(directory, command, 2);
    let reload = |server: &mut Server, volumes: &[&str], expected: &str| {
        write(&config, server.directory.path(), volumes);
        server.signal(Signal::HUP);
        let line = server.wait_for_line(|line| line.contains(expected));
        server.wait_for_line(|line| line == "larder: the configuration is reloaded");
        line
    };
    let mut client = server.client(1);
    // A client counts as a user of the volume from its first response on.
    client.read_at(0, &mut [0; 512]).unwrap();
    let line = reload(&mut server, &["one", "three"], "serving");
    assert!(line.starts_with("larder: serving three (16 MiB, write-back) at nbd+unix:"), "{line}");
    assert_eq!(names(&server), ["one", "two", "three"], "one that is used stays");
    client.disconnect().unwrap();
    eventually("no client is connected", || {
        reload(&mut server, &["one", "three"], "");
        names(&server) == ["one", "three"]
    });
    let line = reload(&mut server, &["one", "three", "nowhere"], "nowhere");
    assert!(line.contains("nowhere.img: no such file") && line.ends_with("tries again"), "{line}");
    images(server.directory.path(), &["nowhere"]);
    reload(&mut server, &["one", "three", "nowhere"], "serving nowhere");
    server.stop();
}

#[test]
fn nobody_need_hear_what_it_says() {
    let mut server = Server::start(&["one"], &["--set", "age-max=60000"]);
    server.close_stderr();
    let mut client = server.client(0);
    client.write_at(0, &vec![7; 100_000], false).unwrap();
    client.disconnect().unwrap();
    // The server writes its counters, and then its progress.
    server.signal(Signal::USR1);
    let directory = server.stop_and_keep().0;
    let stored = std::fs::read(directory.path().join("one.img")).unwrap();
    assert!(stored[..100_000] == vec![7; 100_000], "all of it is written");
}

#[test]
fn a_name_of_more_than_255_bytes_is_refused_wherever_it_enters() {
    let server = Server::start(&["one"], &[]);
    images(server.directory.path(), &["two"]);
    let (longest, longer) = ("n".repeat(255), "n".repeat(256));
    let path = server.path("two.img").display().to_string();
    let reason = "the name of a volume has at most 255 bytes, and this one has 256";
    let body = |name: &str| serde_json::json!({"volume": format!("{name}={path}")}).to_string();
    let answer = server.post("/v1/add", &body(&longer));
    assert_eq!(answer.status, 422, "{answer:?}");
    assert!(answer.error().contains(reason), "{answer:?}");
    let stderr = expect_refusal(&server, &["add", &format!("{longer}={path}")]);
    assert!(stderr.contains(reason), "{stderr}");
    assert_eq!(names(&server), ["one"]);
    assert_eq!(server.post("/v1/add", &body(&longest)).status, 200);
    assert_eq!(names(&server), ["one", &longest]);
    assert_eq!(server.get("/metrics").status, 200);
    let config = server.path("larder.toml");
    std::fs::write(&config, format!("[[volume]]\nname = \"{longer}\"\npath = \"{path}\"\n"))
        .unwrap();
    let config = config.display().to_string();
    for args in [[format!("{longer}={path}").as_str(), "--memory=16MiB"], ["--config", &config]] {
        let output = larder().arg("serve").args(args).output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        assert!(text(&output.stderr).contains(reason), "{}", text(&output.stderr));
    }
    server.stop();
}
