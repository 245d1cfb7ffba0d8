//! The systemd service protocol; the test acts as the service manager.

use super::rig::{Server, TIMEOUT, images, larder, send_request, text};
use larder_io::nbd_client::Client;
use rustix::io::{FdFlags, fcntl_dupfd_cloexec};
use rustix::process::Signal;
use std::os::fd::AsRawFd;
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::process::Command;
use tempfile::TempDir;

/// Binds the notification socket that receives the messages of the service.
fn notify_socket(directory: &TempDir) -> UnixDatagram {
    let socket = UnixDatagram::bind(directory.path().join("notify")).unwrap();
    socket.set_read_timeout(Some(TIMEOUT)).unwrap();
    socket
}

fn receive_message(notify_socket: &UnixDatagram) -> String {
    let mut message = [0; 4096];
    let length = notify_socket.recv(&mut message).expect("it says something");
    text(&message[..length])
}

#[test]
fn the_manager_hears_when_it_is_ready_and_while_it_stops() {
    let directory = TempDir::new().unwrap();
    let notify_socket = notify_socket(&directory);
    let config = directory.path().join("larder.toml");
    let image = images(directory.path(), &["one"]).remove(0);
    let socket = directory.path().join("nbd.sock");
    let config_text = format!(
        "memory = \"16MiB\"\nlisten = \"unix:{}\"\n[[volume]]\npath = \"{}\"\n",
        socket.display(),
        image.display()
    );
    std::fs::write(&config, &config_text).unwrap();
    let mut command = larder();
    command.args(["serve", "--config"]).arg(&config);
    command.env("NOTIFY_SOCKET", directory.path().join("notify"));
    let mut server = Server::spawn(directory, command, 1);
    let ready = receive_message(&notify_socket);
    assert!(ready.starts_with("READY=1\nSTATUS=serving 1 volume; 0 B not written"), "{ready}");
    assert!(ready.ends_with(&format!("MAINPID={}", server.pid())), "{ready}");
    // The announced volume is served.
    server.client(0).write_at(0, &[7; 4096], false).unwrap();
    server.signal(Signal::HUP);
    let reloading = receive_message(&notify_socket);
    assert!(reloading.starts_with("RELOADING=1\nMONOTONIC_USEC="), "{reloading}");
    assert!(receive_message(&notify_socket).starts_with("READY=1\n"));
    std::fs::write(&config, "memori = 1\n").unwrap();
    server.signal(Signal::HUP);
    assert!(receive_message(&notify_socket).starts_with("RELOADING=1\n"));
    assert!(receive_message(&notify_socket).starts_with("READY=1\n"), "a bad file changes nothing");
    let log = server.wait_for_line(|line| line.contains("memori"));
    assert!(log.contains("did you mean \"memory\"?") && log.contains("line 1"), "{log}");
    server.signal(Signal::TERM);
    assert_eq!(receive_message(&notify_socket), "STOPPING=1");
    assert!(
        receive_message(&notify_socket).starts_with("EXTEND_TIMEOUT_USEC="),
        "the manager must be patient"
    );
    server.wait();
}

#[test]
fn sockets_that_were_handed_over_are_used_and_left_where_they_are() {
    let directory = TempDir::new().unwrap();
    let [nbd, control] = ["given", "steered"].map(|name| directory.path().join(name));
    let sockets = [&nbd, &control].map(|path| UnixListener::bind(path).unwrap());
    // The service inherits the sockets as from systemd. Their descriptors here differ from 3 and 4,
    // to which the shell duplicates them.
    let inherited = sockets.map(|socket| fcntl_dupfd_cloexec(socket, 100).unwrap());
    for socket in &inherited {
        rustix::io::fcntl_setfd(socket, FdFlags::empty()).unwrap();
    }
    let image = images(directory.path(), &["one"]).remove(0);
    let mut command = Command::new("bash");
    command.env("LISTEN_FDS", "2").env("LISTEN_FDNAMES", "nbd:control").arg("-c").arg(format!(
        "exec 3<&{} 4<&{} && LISTEN_PID=$$ exec {} serve {} --memory 16MiB",
        inherited[0].as_raw_fd(),
        inherited[1].as_raw_fd(),
        env!("CARGO_BIN_EXE_larder"),
        image.display()
    ));
    let server = Server::spawn(directory, command, 1);
    drop(inherited);
    assert!(server.uris[0].ends_with("/given"), "{}", server.uris[0]);
    let client = Client::connect(&server.uris[0].parse().unwrap()).unwrap();
    client.disconnect().unwrap();
    let request = "GET /v1/volumes HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    let answer = send_request(UnixStream::connect(&control).unwrap(), request);
    assert_eq!(answer.json()["volumes"][0]["name"], "one");
    server.signal(Signal::TERM);
    super::rig::eventually("nothing listens", || UnixStream::connect(&nbd).is_err());
    assert!(nbd.exists() && control.exists(), "their owner removes them");
    server.wait();
}

#[test]
fn without_a_file_a_hangup_is_a_stop() {
    let server = Server::start(&["one"], &[]);
    server.client(0).write_at(0, &[7; 4096], false).unwrap();
    let image = server.path("one.img");
    server.signal(Signal::HUP);
    let directory = server.directory.path().to_owned();
    super::rig::eventually("the sockets are gone", || !directory.join("nbd.sock").exists());
    assert_eq!(std::fs::read(image).unwrap()[0], 7);
    server.wait();
}
