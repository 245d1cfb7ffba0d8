//! Access to the control interface, and limits that protect it from misbehaving clients.

use super::rig::{Response, Server, TIMEOUT, larder, send_request, text};
use std::fs::Permissions;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::time::{Duration, Instant};
use tempfile::TempDir;

const TOKEN: &str = "0123456789abcdef-0123456789abcdef";

fn token_file(directory: &Path, mode: u32) -> String {
    let path = directory.join("token");
    std::fs::write(&path, format!("{TOKEN}\n")).unwrap();
    std::fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
    path.display().to_string()
}

/// Returns a TCP port that is free at the moment.
fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn refused(options: &[&str]) -> String {
    let directory = TempDir::new().unwrap();
    let image = &super::rig::images(directory.path(), &["one"])[0];
    let output = larder()
        .arg("serve")
        .arg(image)
        .args(["--memory", "16MiB", "--listen"])
        .arg(format!("unix:{}", directory.path().join("s").display()))
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
    let directory = server.directory.path().to_owned();
    let entry_names = || {
        let entries = std::fs::read_dir(&directory).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    };
    assert_eq!(
        entry_names(),
        ["nbd.control", "nbd.control.lock", "nbd.sock", "nbd.sock.lock", "one.img"]
    );
    server.signal(rustix::process::Signal::TERM);
    super::rig::eventually("nothing but the image is left", || entry_names() == ["one.img"]);
    server.wait();
}

#[test]
fn two_servers_cannot_have_one_socket_and_none_may_be_wanted() {
    let server = Server::start(&["one"], &[]);
    let socket = server.socket().display().to_string();
    let stderr = refused(&["--control", &socket]);
    assert!(stderr.contains("another server is listening there"), "{stderr}");
    let none = Server::start(&["one"], &["--control", "none"]);
    assert!(!none.socket().exists());
    none.stop();
    server.stop();
}

#[test]
fn there_is_no_control_over_tcp_without_a_token() {
    let directory = TempDir::new().unwrap();
    let stderr = refused(&["--control-tcp", "127.0.0.1:0"]);
    assert!(stderr.contains("--control-token"), "{stderr}");
    let token = token_file(directory.path(), 0o600);
    for outside in ["0.0.0.0:0", "192.0.2.1:80", "[::]:0"] {
        let stderr = refused(&["--control-tcp", outside, "--control-token", &token]);
        assert!(stderr.contains("is not of this machine alone"), "{stderr}");
    }
    let open = token_file(directory.path(), 0o644);
    let stderr = refused(&["--control-tcp", "127.0.0.1:0", "--control-token", &open]);
    assert!(stderr.contains("other than its owner may use it"), "{stderr}");
}

#[test]
fn an_address_that_every_host_reaches_is_warned_of() {
    for (address, is_exposed) in [("tcp:0.0.0.0:0", true), ("tcp:127.0.0.1:0", false)] {
        let directory = TempDir::new().unwrap();
        let mut command = larder();
        command.arg("serve").args(super::rig::images(directory.path(), &["one"]));
        command.args(["--memory", "16MiB", "--listen", address]);
        let log = Server::spawn(directory, command, 1).stop();
        assert_eq!(log.contains("larder: WARNING: every host that reaches "), is_exposed, "{log}");
    }
}

#[test]
fn only_the_right_token_opens_the_door() {
    let directory = TempDir::new().unwrap();
    let token = token_file(directory.path(), 0o600);
    let address = format!("127.0.0.1:{}", free_port());
    let options = ["--control-tcp", address.as_str(), "--control-token", token.as_str()];
    let server = Server::start(&["one"], &options);
    let send = |method: &str, path: &str, header: &str| -> Response {
        let request =
            format!("{method} {path} HTTP/1.1\r\nHost: x\r\n{header}Connection: close\r\n\r\n");
        send_request(TcpStream::connect(&address).unwrap(), &request)
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
            let answer = send(method, path, &header);
            assert_eq!(answer.status, 401, "{header}: {answer:?}");
            assert!(answer.head.to_ascii_lowercase().contains("www-authenticate: bearer"));
            assert!(!answer.body.contains(TOKEN), "the secret stays one");
        }
    }
    // The response does not reveal either which paths and methods exist.
    let known = send("DELETE", "/v1/stats", "");
    assert_eq!((known.status, known.head.contains("allow:")), (401, false), "{known:?}");
    let right = format!("Authorization: Bearer {TOKEN}\r\n");
    assert_eq!(send("GET", "/v1/stats", &right).status, 200);
    assert_eq!(send("GET", "/nothing", &right).status, 404);
    // `larder ctl` needs the token as well.
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
    assert!(answer.error().contains("split the request into smaller ones"), "{answer:?}");
    // A chunked request does not announce the length of its body. The server reads the body only up
    // to the maximum.
    let answer = server.send_raw(&format!(
        "POST /v1/flush HTTP/1.1\r\nHost: x\r\nConnection: close\r\nTransfer-Encoding: chunked\
         \r\n\r\n18000\r\n{}\r\n0\r\n\r\n",
        "y".repeat(0x18000)
    ));
    assert_eq!(answer.status, 413, "{answer:?}");
    let head =
        format!("GET /v1/stats HTTP/1.1\r\nHost: x\r\nX-Long: {}\r\n\r\n", "z".repeat(30_000));
    assert_eq!(server.send_raw(&head).status, 431);
    let many = "A: b\r\n".repeat(100);
    assert_eq!(server.send_raw(&format!("GET / HTTP/1.1\r\nHost: x\r\n{many}\r\n")).status, 431);
    assert_eq!(server.send_raw("this is no HTTP\r\n\r\n").status, 400);
    assert_eq!(server.get("/v1/stats").status, 200);
    server.stop();
}

#[test]
fn slow_clients_stop_nobody_and_are_let_go() {
    let server = Server::start(&["one"], &[]);
    let mut slow: Vec<_> = (0..12)
        .map(|i| {
            let mut stream = UnixStream::connect(server.socket()).unwrap();
            // Half a request head, half a body, and a client that does not read the response.
            let half = match i % 3 {
                0 => "GET /v1/st",
                1 => "POST /v1/flush HTTP/1.1\r\nHost: x\r\nContent-Length: 50\r\n\r\n{",
                _ => "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n",
            };
            stream.write_all(half.as_bytes()).unwrap();
            stream.set_read_timeout(Some(TIMEOUT)).unwrap();
            stream
        })
        .collect();
    let started = Instant::now();
    for _ in 0..20 {
        assert_eq!(server.get("/v1/stats").status, 200);
    }
    assert!(started.elapsed() < Duration::from_secs(9), "{:?}", started.elapsed());
    for stream in &mut slow {
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).unwrap();
    }
    server.stop();
}

/// Opens `count` connections that each send `bytes`. The server may close some of them in favor of
/// others.
fn crowd<S: Write>(count: usize, bytes: &[u8], connect: impl Fn() -> S) -> Vec<S> {
    let begin = |_| {
        let mut stream = connect();
        // The server may have closed the connection already.
        drop(stream.write_all(bytes));
        stream
    };
    (0..count).map(begin).collect()
}

/// Maximum response time next to a thousand other connections. On a busy machine, the time that it
/// took to open these is added.
const RESPONSE_TIME_MAX: Duration = Duration::from_secs(1);

#[test]
fn a_thousand_clients_without_a_token_keep_nobody_out() {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let more = rustix::process::Rlimit { current: limit.maximum, ..limit };
    rustix::process::setrlimit(rustix::process::Resource::Nofile, more).unwrap();
    let directory = TempDir::new().unwrap();
    let token = token_file(directory.path(), 0o600);
    let address = format!("127.0.0.1:{}", free_port());
    let options = ["--control-tcp", address.as_str(), "--control-token", token.as_str()];
    let server = Server::start(&["one"], &options);
    let request = format!(
        "GET /v1/stats HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\nConnection: \
         close\r\n\r\n"
    );
    let wrong = request.replace(TOKEN, &TOKEN.replace('9', "8"));
    for (case, bytes) in [
        ("nothing", &b""[..]),
        ("half a head", b"GET /v1/st"),
        ("half a token", &request.as_bytes()[..60]),
        ("a wrong token", wrong.as_bytes()),
    ] {
        let began = Instant::now();
        let silent = crowd(1000, bytes, || TcpStream::connect(&address).unwrap());
        let (limit, started) = (RESPONSE_TIME_MAX + began.elapsed(), Instant::now());
        let answer = send_request(TcpStream::connect(&address).unwrap(), &request);
        assert_eq!(answer.status, 200, "{case}: {answer:?}");
        assert!(started.elapsed() < limit, "{case}: {:?}", started.elapsed());
        drop(silent);
    }
    // The same over the Unix socket, as the user of this process.
    let began = Instant::now();
    let silent = crowd(1000, b"", || UnixStream::connect(server.socket()).unwrap());
    let (limit, started) = (RESPONSE_TIME_MAX + began.elapsed(), Instant::now());
    assert_eq!(server.get("/v1/stats").status, 200);
    assert!(started.elapsed() < limit, "{:?}", started.elapsed());
    drop(silent);
    server.stop();
}

/// A user that is unrelated to this process.
const OTHER: u32 = 54_321;

/// Copies the program to a path at which any user may run it, and returns that path.
fn program_for_all(directory: &Path) -> std::path::PathBuf {
    let program = directory.join("larder");
    std::fs::copy(larder().get_program(), &program).unwrap();
    std::fs::set_permissions(&program, Permissions::from_mode(0o755)).unwrap();
    program
}

#[test]
fn server_and_ctl_of_different_users_do_not_trust_each_other() {
    if !larder_testing::is_root() {
        return;
    }
    let server = Server::start(&["one"], &[]);
    let directory = server.directory.path();
    let program = program_for_all(directory);
    let open = |path: &Path, mode| {
        std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    };
    open(directory, 0o755);
    open(&server.socket(), 0o666);
    let run_ctl = |socket: &Path, user: u32, args: &[&str]| {
        let mut command = std::process::Command::new(&program);
        command.args(["ctl", "volumes", "--control"]).arg(socket).args(args);
        command.current_dir("/").uid(user).gid(user).output().unwrap()
    };
    assert!(run_ctl(&server.socket(), 0, &[]).status.success());
    let refused = run_ctl(&server.socket(), OTHER, &[]);
    assert_eq!(refused.status.code(), Some(2), "{}", text(&refused.stdout));
    // Conversely, root queries a server of that user.
    let theirs = TempDir::new().unwrap();
    std::os::unix::fs::chown(theirs.path(), Some(OTHER), None).unwrap();
    let image = super::rig::images(theirs.path(), &["two"]).remove(0);
    std::os::unix::fs::chown(&image, Some(OTHER), None).unwrap();
    let socket = theirs.path().join("two.control");
    let mut command = std::process::Command::new(&program);
    command.arg("serve").arg(&image).args(["--memory", "16MiB"]);
    command.current_dir("/").uid(OTHER).gid(OTHER);
    let other = Server::spawn(theirs, command, 1);
    let refused = run_ctl(&socket, 0, &[]);
    assert_eq!(refused.status.code(), Some(2));
    let stderr = text(&refused.stderr);
    assert!(stderr.contains("it runs as uid 54321, and not as you or root"), "{stderr}");
    let trusted = run_ctl(&socket, 0, &["--trust-uid", "54321"]);
    assert!(text(&trusted.stdout).contains("two"), "{}", text(&trusted.stderr));
    assert!(run_ctl(&socket, OTHER, &[]).status.success());
    other.stop();
    server.stop();
}

#[test]
fn a_token_is_not_sent_to_the_server_of_another_user() {
    if !larder_testing::is_root() {
        return;
    }
    let directory = TempDir::new().unwrap();
    let token = token_file(directory.path(), 0o600);
    let program = program_for_all(directory.path());
    let theirs = TempDir::new().unwrap();
    let image = super::rig::images(theirs.path(), &["two"]).remove(0);
    let their_token = token_file(theirs.path(), 0o600);
    for path in [theirs.path(), Path::new(&image), Path::new(&their_token)] {
        std::os::unix::fs::chown(path, Some(OTHER), None).unwrap();
    }
    std::fs::set_permissions(directory.path(), Permissions::from_mode(0o755)).unwrap();
    let address = format!("127.0.0.1:{}", free_port());
    let mut command = std::process::Command::new(&program);
    command.arg("serve").arg(&image).args(["--memory", "16MiB", "--control-tcp", &address]);
    command.args(["--control-token", &their_token]).current_dir("/").uid(OTHER).gid(OTHER);
    let other = Server::spawn(theirs, command, 1);
    let run_ctl = |more: &[&str]| {
        let mut command = larder();
        command.args(["ctl", "volumes", "--control", &format!("http://{address}")]);
        command.args(["--token", &token]).args(more).output().unwrap()
    };
    let refused = run_ctl(&[]);
    assert_eq!(refused.status.code(), Some(2), "{}", text(&refused.stdout));
    let stderr = text(&refused.stderr);
    assert!(stderr.contains("it runs as uid 54321, and not as you or root"), "{stderr}");
    let trusted = run_ctl(&["--trust-uid", "54321"]);
    assert!(text(&trusted.stdout).contains("two"), "{}", text(&trusted.stderr));
    other.stop();
}

#[test]
fn a_socket_that_another_user_could_have_made_is_not_asked() {
    let directory = TempDir::new().unwrap();
    let shared = directory.path().join("tmp");
    let runtime = directory.path().join("run");
    for (path, mode) in [(&shared, 0o1777), (&runtime, 0o700)] {
        std::fs::create_dir(path).unwrap();
        std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }
    let planted = std::os::unix::net::UnixListener::bind(shared.join("larder-x.control")).unwrap();
    planted.set_nonblocking(true).unwrap();
    let ctl = |directory: &Path| {
        let mut command = larder();
        command.args(["ctl", "stop"]).env("TMPDIR", &shared).env("XDG_RUNTIME_DIR", &shared);
        let output = command.env("RUNTIME_DIRECTORY", directory).output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        text(&output.stderr)
    };
    assert!(ctl(&runtime).contains("find a server: none has a control socket in "));
    // `larder ctl` does not search a directory that other users may write to.
    assert!(ctl(&shared).contains("find a server"));
    assert!(planted.accept().is_err(), "a client connected");
    let image = super::rig::images(directory.path(), &["one"]).remove(0);
    let mut command = larder();
    command.arg("serve").arg(image).args(["--memory", "16MiB"]).env("RUNTIME_DIRECTORY", &shared);
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let stderr = text(&output.stderr);
    assert!(stderr.contains("other users may write to it (chmod go-w)"), "{stderr}");
}

#[test]
fn files_behind_links_of_another_user_are_not_written() {
    if !larder_testing::is_root() {
        return;
    }
    let directory = TempDir::new().unwrap();
    let victim = directory.path().join("victim");
    std::fs::write(&victim, "precious").unwrap();
    let link = directory.path().join("link.json");
    std::os::unix::fs::symlink(&victim, &link).unwrap();
    std::os::unix::fs::lchown(&link, Some(OTHER), None).unwrap();
    let link = link.display().to_string();
    for flag in ["--counters", "--record"] {
        let stderr = refused(&[flag, &link]);
        assert!(
            stderr.contains("symbolic link link.json belongs to uid 54321"),
            "{flag}: {stderr}"
        );
    }
    let config = directory.path().join("larder.toml");
    std::fs::write(&config, "").unwrap();
    std::os::unix::fs::chown(&config, Some(OTHER), None).unwrap();
    let output = larder().arg("check-config").arg(&config).output().unwrap();
    let stderr = text(&output.stderr);
    assert!(stderr.contains("larder.toml: it belongs to uid 54321"), "{stderr}");
    let token = token_file(directory.path(), 0o600);
    std::os::unix::fs::chown(&token, Some(OTHER), None).unwrap();
    let stderr = refused(&["--control-tcp", "127.0.0.1:0", "--control-token", &token]);
    assert!(stderr.contains("it belongs to uid 54321"), "{stderr}");
    assert_eq!(std::fs::read_to_string(&victim).unwrap(), "precious");
}

#[test]
fn the_scheme_has_no_case_and_a_name_occurs_once() {
    let directory = TempDir::new().unwrap();
    let token = token_file(directory.path(), 0o600);
    let address = format!("127.0.0.1:{}", free_port());
    let options = ["--control-tcp", address.as_str(), "--control-token", token.as_str()];
    let server = Server::start(&["one"], &options);
    let request = format!(
        "GET /v1/stats HTTP/1.1\r\nHost: x\r\nauthorization: bearer {TOKEN}\r\nConnection: \
         close\r\n\r\n"
    );
    assert_eq!(send_request(TcpStream::connect(&address).unwrap(), &request).status, 200);
    let twice = r#"{"set": {"age-max": "1000", "age-max": "2000"}}"#;
    let answer = server.post("/v1/set", twice);
    assert_eq!(answer.status, 400, "{answer:?}");
    assert!(answer.error().contains("the name \"age-max\" occurs twice"), "{answer:?}");
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
