//! Upstream servers that never complete a handshake or a response: they delay no other volume.

use super::rig::{MIB, Server, images, larder};
use larder_io::front::nbd::handshake::{
    BlockSizes, ExportInfo, Handshake, HandshakeLimits, Progress,
};
use larder_io::nbd_client::{Client, Request};
use larder_io::nbd_wire as wire;
use rustix::process::Signal;
use std::io::{self, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Time limit of a step; a server that waits for the upstream server exceeds it.
const TIME_MAX: Duration = Duration::from_secs(20);
/// Settings that delay writeback until the stop.
const LAZY: [&str; 4] = ["--set", "first-delay=60000", "--set", "age-max=3600000"];

fn uri(socket: &Path) -> String {
    format!("nbd+unix:///up?socket={}", socket.display())
}

/// Binds the socket of an upstream server that accepts connections and sends nothing.
fn bind_silent(directory: &Path) -> (PathBuf, UnixListener) {
    let socket = directory.join("silent.sock");
    let listener = UnixListener::bind(&socket).expect("the address is free");
    (socket, listener)
}

/// Stops the server and checks that the image of `one` holds the written block.
fn stop_and_check(server: Server) {
    let begin = Instant::now();
    let (directory, log) = server.stop_and_keep();
    assert!(begin.elapsed() < TIME_MAX, "{:?}: {log}", begin.elapsed());
    let image = std::fs::read(directory.path().join("one.img")).expect("an image");
    assert_eq!(image[..4096], [7; 4096], "the acknowledged write is there");
}

#[test]
fn additions_of_an_upstream_that_sends_nothing_delay_neither_other_requests_nor_a_stop() {
    let server = Server::start(&["one"], &LAZY);
    let (socket, listener) = bind_silent(server.directory.path());
    let add = |number: usize| {
        let volume = format!("up{number}={}", uri(&socket));
        let mut command = server.ctl_command(&["add", &volume]);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().expect("the program runs")
    };
    let children: Vec<_> = (0..5).map(add).collect();
    let _connection = listener.accept().expect("the server connects");
    let begin = Instant::now();
    server.ctl_text(&["set", "one.policy=lru"]);
    server.ctl_text(&["flush"]);
    assert!(begin.elapsed() < TIME_MAX, "{:?}", begin.elapsed());
    server.client(0).write_at(0, &[7; 4096], false).expect("it is accepted");
    stop_and_check(server);
    for mut add in children {
        assert!(!add.wait().expect("it ends").success());
    }
}

#[test]
fn a_reload_that_adds_an_upstream_that_sends_nothing_does_not_delay_a_stop() {
    let directory = TempDir::new().unwrap();
    let config = directory.path().join("larder.toml");
    let (socket, listener) = bind_silent(directory.path());
    let image = images(directory.path(), &["one"]).remove(0);
    let one = format!(
        "memory = \"32MiB\"\nlisten = \"unix:{}\"\n[[volume]]\nname = \"one\"\npath = \"{}\"\n",
        directory.path().join("nbd.sock").display(),
        image.display()
    );
    std::fs::write(&config, &one).unwrap();
    let mut command = larder();
    command.args(["serve", "--config"]).arg(&config).args(LAZY);
    let server = Server::spawn(directory, command, 1);
    let up = format!("[[volume]]\nname = \"up\"\npath = \"{}\"\n", uri(&socket));
    std::fs::write(&config, one + &up).unwrap();
    server.signal(Signal::HUP);
    let _connection = listener.accept().expect("the server connects");
    server.client(0).write_at(0, &[7; 4096], false).expect("it is accepted");
    stop_and_check(server);
}

/// Completes a handshake, and sends the response to the first request byte by byte.
fn drip(mut stream: UnixStream, byte_sent: &Sender<()>) -> io::Result<()> {
    let export = ExportInfo {
        name: "up".into(),
        description: String::new(),
        length: 16 * MIB,
        read_only: false,
        block_sizes: BlockSizes { min: 512, preferred: 4096, max: 1 << 20 },
        features: wire::FLAG_SEND_FLUSH,
        default: true,
    };
    let mut handshake = Handshake::new(&[export], HandshakeLimits::default());
    let mut input = Vec::new();
    loop {
        let mut output = Vec::new();
        let (_, progress) = handshake.feed(&input, &mut output).map_err(io::Error::other)?;
        stream.write_all(&output)?;
        if matches!(progress, Progress::Transmission(_)) {
            break;
        }
        input.resize(4096, 0);
        let bytes = stream.read(&mut input)?;
        input.truncate(bytes);
    }
    let mut header = [0; wire::REQUEST_BYTES];
    stream.read_exact(&mut header)?;
    let wire::Request { cookie, offset, len, .. } =
        wire::Request::parse(&header).map_err(io::Error::other)?;
    let data = wire::chunk_data(cookie, true, offset, len);
    for byte in [&data[..], &vec![0; len as usize]].concat() {
        stream.write_all(&[byte])?;
        // The receiver is gone if the test has ended.
        let _is_received = byte_sent.send(()).is_ok();
        std::thread::sleep(Duration::from_millis(100));
    }
    Ok(())
}

#[test]
fn an_upstream_that_sends_an_answer_byte_by_byte_can_be_removed() {
    let server = Server::start(&["one"], &LAZY);
    let (socket, listener) = bind_silent(server.directory.path());
    let (byte_sent, byte_received) = channel();
    std::thread::spawn(move || drip(listener.accept()?.0, &byte_sent));
    let stdout = server.ctl_text(&["add", &format!("up={}", uri(&socket))]);
    let up = stdout.trim_end().split_once(" at ").expect("an address").1;
    let mut client = Client::connect(&up.parse().expect("an address")).expect("a connection");
    client.submit(Request::read(0, vec![0; 4096])).expect("it is sent");
    byte_received.recv().expect("the upstream answers");
    let started = Instant::now();
    let remove = ["remove", "up", "--disconnect", "--give-up"];
    let mut child = server.ctl_command(&remove);
    let child = child.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it runs");
    server.ctl_text(&["set", "one.policy=lru"]);
    let removed = child.wait_with_output().expect("it ends");
    assert!(removed.status.success(), "{removed:?}");
    assert!(started.elapsed() < TIME_MAX, "{:?}", started.elapsed());
    server.client(0).write_at(0, &[7; 4096], false).expect("it is accepted");
    stop_and_check(server);
}
