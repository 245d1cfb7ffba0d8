//! The client against servers that send one byte at a time, and against endless replies.

use super::scripted::{greet, receive_option, receive_request, shake_hands};
use crate::nbd_client::{Client, ClientError, ConnectOptions, NbdAddress, NbdUri, list_exports_of};
use crate::nbd_wire::{self as wire, OptionReplyHeader};
use std::io::Write;
use std::os::unix::net::{UnixListener, UnixStream};
use std::thread::JoinHandle;
use std::time::Duration;
use tempfile::TempDir;
use zerocopy::IntoBytes;

const TIMEOUT: Duration = Duration::from_millis(300);
/// Well below the time limit; all pauses together are well above it.
const PAUSE: Duration = Duration::from_millis(100);

/// Serves one client, which connects with a time limit.
fn connect(
    serve: impl FnOnce(UnixStream) + Send + 'static,
) -> (Result<Client, ClientError>, JoinHandle<()>) {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("socket");
    let listener = UnixListener::bind(&path).unwrap();
    let thread = std::thread::spawn(move || serve(listener.accept().unwrap().0));
    let uri = NbdUri { address: NbdAddress::Unix(path), export: "disk".into(), tls: None };
    let options = ConnectOptions { timeout: Some(TIMEOUT), ..ConnectOptions::default() };
    (Client::connect_with(&uri, options), thread)
}

/// Sends bytes one by one, until the client disconnects.
fn drip(stream: &mut UnixStream, bytes: &[u8]) {
    for byte in bytes {
        if stream.write_all(&[*byte]).is_err() {
            return;
        }
        std::thread::sleep(PAUSE);
    }
}

#[test]
fn a_handshake_that_drips_ends_with_its_time() {
    let (client, thread) = connect(|mut stream| drip(&mut stream, b"NBDMAGICIHAVEOPT\0\x03"));
    assert!(matches!(client, Err(ClientError::TimedOut)), "{client:?}");
    thread.join().unwrap();
}

#[test]
fn an_answer_that_drips_ends_the_connection() {
    let (client, thread) = connect(|mut stream| {
        shake_hands(&mut stream).unwrap();
        let request = receive_request(&mut stream).unwrap();
        let chunk = wire::chunk_data(request.cookie, true, request.offset, request.len);
        drip(&mut stream, &[&chunk[..], &[0; 16]].concat());
    });
    let mut client = client.unwrap();
    let read = client.read_at(0, &mut [0; 512]);
    assert!(matches!(read, Err(ClientError::TimedOut)), "{read:?}");
    drop(client);
    thread.join().unwrap();
}

/// Each chunk arrives in time; the whole reply does not.
#[test]
fn an_answer_whose_chunks_drip_ends_the_connection() {
    let (client, thread) = connect(|mut stream| {
        shake_hands(&mut stream).unwrap();
        let request = receive_request(&mut stream).unwrap();
        for offset in 0..16 {
            let chunk = wire::chunk_data(request.cookie, offset == 15, offset, 1);
            if stream.write_all(&[&chunk[..], &[7]].concat()).is_err() {
                return;
            }
            std::thread::sleep(PAUSE);
        }
    });
    let mut client = client.unwrap();
    let read = client.read_at(0, &mut [0; 16]);
    assert!(matches!(read, Err(ClientError::TimedOut)), "{read:?}");
    drop(client);
    thread.join().unwrap();
}

#[test]
fn replies_to_an_option_have_a_maximum() {
    let (client, thread) = connect(|mut stream| {
        greet(&mut stream, 3);
        loop {
            let option = receive_option(&mut stream);
            let reply = |kind, len| OptionReplyHeader::new(option, kind, len);
            if option != wire::OPT_GO {
                stream.write_all(reply(wire::REP_ERR_UNSUP, 0).as_bytes()).unwrap();
                continue;
            }
            let unknown = [reply(wire::REP_INFO, 2).as_bytes(), &[0, 99]].concat();
            let mut replies = unknown.repeat(100);
            replies.extend_from_slice(reply(wire::REP_ACK, 0).as_bytes());
            stream.write_all(&replies).unwrap();
            return;
        }
    });
    let error = client.unwrap_err();
    assert!(error.to_string().contains("replies to an option do not end"), "{error}");
    thread.join().unwrap();
}

#[test]
fn a_list_of_exports_has_a_maximum() {
    let (client, mut server) = UnixStream::pair().unwrap();
    let thread = std::thread::spawn(move || {
        greet(&mut server, 3);
        receive_option(&mut server);
        let mut data = 4_u32.to_be_bytes().to_vec();
        data.extend(b"name");
        data.resize(1 << 16, b'd');
        let header = OptionReplyHeader::new(wire::OPT_LIST, wire::REP_SERVER, 1 << 16);
        let message = [header.as_bytes(), &data].concat();
        (0..30_000).take_while(|_| server.write_all(&message).is_ok()).count()
    });
    let error = list_exports_of(client.into()).unwrap_err();
    assert!(error.to_string().contains("its list of exports is too long"), "{error}");
    let sent = thread.join().unwrap();
    assert!(sent < 300, "{sent} replies of 64 KiB");
}
