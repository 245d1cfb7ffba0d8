//! Who may control a server, and what a bad client cannot do.

use super::rig::{Answer, PATIENCE, Server, larder, talk, text};
use std::fs::Permissions;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};
use tempfile::TempDir;

const TOKEN: &str = "0123456789abcdef-0123456789abcdef";

fn token_file(folder: &Path, mode: u32) -> String {
    let path = folder.join("token");
    std::fs::write(&path, format!("{TOKEN}\n")).unwrap();
    std::fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
    path.display().to_string()
}

/// A port that nobody has.
fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn refused(options: &[&str]) -> String {
    let folder = TempDir::new().unwrap();
    let image = &super::rig::images(folder.path(), &["one"])[0];
    let output = larder()
        .arg("serve")
        .arg(image)
        .args(["--memory", "16MiB", "--listen"])
        .arg(format!("unix:{}", folder.path().join("s").display()))
        .args(options)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2), "{options:?}");
    text(&output.stderr)
}

#[test]
fn the_socket_is_for_its_owner_and_goes_with_the_server() {
    let server = Server::start(&["one"], &[]);
    let mode = server.socket().metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let folder = server.folder.path().to_owned();
    let left = || {
        let entries = std::fs::read_dir(&folder).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    };
    assert_eq!(left(), ["nbd.control", "nbd.control.lock", "nbd.sock", "nbd.sock.lock", "one.img"]);
    server.signal(rustix::process::Signal::TERM);
    super::rig::eventually("nothing but the image is left", || left() == ["one.img"]);
    server.wait();
}

#[test]
fn two_servers_cannot_have_one_socket_and_none_may_be_wanted() {
    let server = Server::start(&["one"], &[]);
    let socket = server.socket().display().to_string();
    let said = refused(&["--control", &socket]);
    assert!(said.contains("another server is listening there"), "{said}");
    let none = Server::start(&["one"], &["--control", "none"]);
    assert!(!none.socket().exists());
    none.stop();
    server.stop();
}

#[test]
fn there_is_no_control_over_tcp_without_a_token() {
    let folder = TempDir::new().unwrap();
    let said = refused(&["--control-tcp", "127.0.0.1:0"]);
    assert!(said.contains("--control-token"), "{said}");
    let token = token_file(folder.path(), 0o600);
    for outside in ["0.0.0.0:0", "192.0.2.1:80", "[::]:0"] {
        let said = refused(&["--control-tcp", outside, "--control-token", &token]);
        assert!(said.contains("from outside"), "{said}");
    }
    let open = token_file(folder.path(), 0o644);
    let said = refused(&["--control-tcp", "127.0.0.1:0", "--control-token", &open]);
    assert!(said.contains("others than its owner may use the file"), "{said}");
}

#[test]
fn only_the_right_token_opens_the_door() {
    let folder = TempDir::new().unwrap();
    let token = token_file(folder.path(), 0o600);
    let address = format!("127.0.0.1:{}", free_port());
    let options = ["--control-tcp", address.as_str(), "--control-token", token.as_str()];
    let server = Server::start(&["one"], &options);
    let ask = |method: &str, path: &str, header: &str| -> Answer {
        let request =
            format!("{method} {path} HTTP/1.1\r\nHost: x\r\n{header}Connection: close\r\n\r\n");
        talk(TcpStream::connect(&address).unwrap(), &request)
    };
    let wrong = TOKEN.replace('9', "8");
    for header in [
        String::new(),
        format!("Authorization: Bearer {wrong}\r\n"),
        format!("Authorization: Basic {TOKEN}\r\n"),
        format!("Authorization: Bearer {TOKEN}{TOKEN}\r\n"),
        format!("X-Token: {TOKEN}\r\n"),
    ] {
        for (method, path) in
            [("GET", "/v1/stats"), ("GET", "/metrics"), ("POST", "/v1/stop"), ("GET", "/")]
        {
            let answer = ask(method, path, &header);
            assert_eq!(answer.status, 401, "{header}: {answer:?}");
            assert!(answer.head.to_ascii_lowercase().contains("www-authenticate: bearer"));
            assert!(!answer.body.contains(TOKEN), "the secret stays one");
        }
    }
    // Nor does the response reveal which paths and methods exist.
    let known = ask("DELETE", "/v1/stats", "");
    assert_eq!((known.status, known.head.contains("allow:")), (401, false), "{known:?}");
    let right = format!("Authorization: Bearer {TOKEN}\r\n");
    assert_eq!(ask("GET", "/v1/stats", &right).status, 200);
    assert_eq!(ask("GET", "/nothing", &right).status, 404);
    // The same with larder ctl.
    let ctl = |token: &[&str]| {
        let mut command = larder();
        command.args(["ctl", "--control", &format!("http://{address}")]).args(token);
        command.args(["stats", "--format", "json"]).output().unwrap()
    };
    assert!(ctl(&["--token", &token]).status.success());
    let without = ctl(&[]);
    assert_eq!(without.status.code(), Some(2));
    assert!(text(&without.stderr).contains("--token"), "{}", text(&without.stderr));
    server.stop();
}

#[test]
fn requests_that_are_too_long_are_refused() {
    let server = Server::start(&["one"], &[]);
    let long = format!(r#"{{"volume": "{}"}}"#, "x".repeat(100_000));
    let answer = server.post("/v1/flush", &long);
    assert_eq!(answer.status, 413, "{answer:?}");
    // Not said before, and not sent either: only the part that may be is read.
    let answer = server.ask(&format!(
        "POST /v1/flush HTTP/1.1\r\nHost: x\r\nConnection: close\r\nTransfer-Encoding: chunked\
         \r\n\r\n18000\r\n{}\r\n0\r\n\r\n",
        "y".repeat(0x18000)
    ));
    assert_eq!(answer.status, 413, "{answer:?}");
    let head =
        format!("GET /v1/stats HTTP/1.1\r\nHost: x\r\nX-Long: {}\r\n\r\n", "z".repeat(30_000));
    assert_eq!(server.ask(&head).status, 431);
    let many = "A: b\r\n".repeat(100);
    assert_eq!(server.ask(&format!("GET / HTTP/1.1\r\nHost: x\r\n{many}\r\n")).status, 431);
    assert_eq!(server.ask("this is no HTTP\r\n\r\n").status, 400);
    assert_eq!(server.get("/v1/stats").status, 200);
    server.stop();
}

#[test]
fn slow_clients_stop_nobody_and_are_let_go() {
    let server = Server::start(&["one"], &[]);
    let mut slow: Vec<_> = (0..12)
        .map(|i| {
            let mut stream = UnixStream::connect(server.socket()).unwrap();
            // Half a head, half a body, an answer that is not read.
            let half = match i % 3 {
                0 => "GET /v1/st",
                1 => "POST /v1/flush HTTP/1.1\r\nHost: x\r\nContent-Length: 50\r\n\r\n{",
                _ => "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n",
            };
            stream.write_all(half.as_bytes()).unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            stream
        })
        .collect();
    let started = Instant::now();
    for _ in 0..20 {
        assert_eq!(server.get("/v1/stats").status, 200);
    }
    assert!(started.elapsed() < Duration::from_secs(9), "{:?}", started.elapsed());
    // All places taken: whoever comes then waits until the slow ones have been let go.
    let more: Vec<_> = (0..16).map(|_| UnixStream::connect(server.socket()).unwrap()).collect();
    assert_eq!(server.get("/v1/stats").status, 200);
    assert!(
        started.elapsed() > Duration::from_secs(5),
        "there was room after {:?}",
        started.elapsed()
    );
    for stream in &mut slow {
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).unwrap();
    }
    drop(more);
    server.stop();
}

#[test]
fn a_server_stops_though_a_client_does_not_go() {
    let server = Server::start(&["one"], &[]);
    let mut idle = UnixStream::connect(server.socket()).unwrap();
    idle.write_all(b"GET /v1/stats HTTP/1.1\r\nHost: x\r\n\r\nGET /v1/vol").unwrap();
    let started = Instant::now();
    server.stop();
    assert!(started.elapsed() < Duration::from_secs(20), "{:?}", started.elapsed());
}
