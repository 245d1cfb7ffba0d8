//! Interoperability of the handshake: a server that is too old for `GO`, and libnbd's `nbdinfo` as
//! the client of Larder's handshake.

use super::scripted::{data_chunk, greet, receive_option, serve};
use crate::nbd_client::{Client, NbdAddress, NbdUri};
use crate::nbd_wire::{self as wire, OptionReplyHeader};
use std::io::{Read, Write};
use std::os::unix::net::UnixListener;
use std::process::Command;
use tempfile::TempDir;
use zerocopy::IntoBytes;

#[test]
fn an_old_server_without_go_is_asked_by_export_name() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("socket");
    let listener = UnixListener::bind(&path).unwrap();
    let thread = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        greet(&mut stream, 1);
        loop {
            let option = receive_option(&mut stream);
            if option == wire::OPT_EXPORT_NAME {
                break;
            }
            let reply = OptionReplyHeader::new(option, wire::REP_ERR_UNSUP, 0);
            stream.write_all(reply.as_bytes()).unwrap();
        }
        stream.write_all(wire::ExportReply::new(4096, 1).as_bytes()).unwrap();
        stream.write_all(&[0; 124]).unwrap();
        stream.read_exact(&mut [0; 28]).unwrap();
    });
    let uri = NbdUri { address: NbdAddress::Unix(path), export: "x".into(), tls: None };
    let client = Client::connect(&uri).unwrap();
    let info = client.info();
    assert_eq!((info.length, info.flags, info.structured), (4096, 1, false));
    client.disconnect().unwrap();
    thread.join().unwrap();
}

#[test]
fn libnbd_understands_our_handshake() {
    if !larder_testing::has_tool("nbdinfo") {
        return;
    }
    let read = |request: wire::Request| {
        data_chunk(request.cookie, true, request.offset, &vec![0; request.len as usize])
    };
    // nbdinfo connects again for each export; unused sessions end with the process.
    let (uri, _thread, _dir) = serve(16, read);
    let run = |args: &[&str]| {
        let output = Command::new("nbdinfo").args(args).arg(uri.to_string()).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "nbdinfo {args:?}: {text}{errors}");
        text
    };
    assert_eq!(run(&["--size"]).trim(), "1048576");
    for args in [&["--no-content"][..], &["--list", "--no-content"]] {
        let text = run(args);
        for part in ["export=\"disk\"", "scripted", "base:allocation", "can_df: true", "65536"] {
            assert!(text.contains(part), "{part} in {text}");
        }
    }
}
