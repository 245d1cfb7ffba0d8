//! The client against Larder's own handshake and scripted replies, right and wrong.

use crate::front::nbd::handshake::{
    BlockSizes, ExportInfo, Handshake, HandshakeLimits, Negotiated, Progress,
};
use crate::nbd_client::pipeline::COVERED_KEPT;
use crate::nbd_client::receive::{EXTENTS_KEPT_MAX, PARTS_MAX};
use crate::nbd_client::{
    Client, ClientError, Extent, ListedExport, NbdAddress, NbdUri, Request, list_exports,
};
use crate::nbd_wire::{self as wire, Errno};
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::thread::JoinHandle;
use tempfile::TempDir;

fn exports() -> Vec<ExportInfo> {
    vec![ExportInfo {
        name: "disk".into(),
        description: "scripted".into(),
        length: 1 << 20,
        read_only: false,
        block_sizes: BlockSizes { min: 512, preferred: 4096, max: 65_536 },
        features: wire::FLAG_SEND_FLUSH | wire::FLAG_SEND_TRIM,
        default: true,
    }]
}

/// Completes the handshake with a client; `None` if the client leaves before transmission.
pub(super) fn shake_hands(stream: &mut UnixStream) -> Option<Negotiated> {
    let mut handshake = Handshake::new(&exports(), HandshakeLimits::default());
    let mut input = Vec::new();
    loop {
        let mut output = Vec::new();
        let (used, progress) = handshake.feed(&input, &mut output).unwrap();
        assert_eq!(used, input.len(), "this client waits for its answer");
        // A client that aborts may not wait for the acknowledgement.
        let sent = stream.write_all(&output);
        match progress {
            Progress::Transmission(negotiated) => return Some(negotiated),
            Progress::Aborted => return None,
            Progress::NeedMore => sent.unwrap(),
            Progress::SendFirst => unreachable!("all answers are short"),
            Progress::StartTls => unreachable!("this server has no TLS"),
        }
        input.resize(4096, 0);
        let bytes = stream.read(&mut input).unwrap();
        if bytes == 0 {
            return None;
        }
        input.truncate(bytes);
    }
}

/// Sends the greeting of a fixed-newstyle server with `flags`, and receives the client's flags.
pub(super) fn greet(stream: &mut UnixStream, flags: u8) {
    stream.write_all(&[&b"NBDMAGICIHAVEOPT\0"[..], &[flags]].concat()).unwrap();
    stream.read_exact(&mut [0; 4]).unwrap();
}

/// Receives an option; returns its number.
pub(super) fn receive_option(stream: &mut UnixStream) -> u32 {
    let mut header = [0; wire::OPTION_HEADER_BYTES];
    stream.read_exact(&mut header).unwrap();
    let (option, len) = wire::OptionHeader::parse(header).unwrap();
    stream.read_exact(&mut vec![0; len as usize]).unwrap();
    option
}

/// Receives a request without a payload; `None` if the client has left.
pub(super) fn receive_request(stream: &mut UnixStream) -> Option<wire::Request> {
    let mut header = [0; wire::REQUEST_BYTES];
    stream.read_exact(&mut header).ok()?;
    Some(wire::Request::parse(&header).unwrap())
}

pub(super) type Answer = fn(wire::Request) -> Vec<u8>;

/// Serves `sessions` clients; `answer` returns the reply to each request.
pub(super) fn serve(sessions: usize, answer: Answer) -> (NbdUri, JoinHandle<()>, TempDir) {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("socket");
    let listener = UnixListener::bind(&path).unwrap();
    let thread = std::thread::spawn(move || {
        for _ in 0..sessions {
            let (mut stream, _) = listener.accept().unwrap();
            if shake_hands(&mut stream).is_none() {
                continue;
            }
            while let Some(request) = receive_request(&mut stream) {
                if request.command == wire::CMD_DISC {
                    break;
                }
                if request.command == wire::CMD_WRITE {
                    stream.read_exact(&mut vec![0; request.len as usize]).unwrap();
                }
                if stream.write_all(&answer(request)).is_err() {
                    break;
                }
            }
        }
    });
    (NbdUri { address: NbdAddress::Unix(path), export: "disk".into(), tls: None }, thread, dir)
}

/// Returns the result of a read of 1024 bytes at 512 to which the server replies with `answer`.
fn read_answered(answer: Answer) -> Result<Vec<u8>, ClientError> {
    let (uri, thread, _dir) = serve(1, answer);
    let mut client = Client::connect(&uri).unwrap();
    let mut data = vec![9; 1024];
    let result = client.read_at(512, &mut data);
    drop(client);
    thread.join().unwrap();
    result.map(|()| data)
}

/// Returns a chunk that is not the last one of its reply.
fn chunk(cookie: u64, kind: u16, payload: &[u8]) -> Vec<u8> {
    let len = u32::try_from(payload.len()).unwrap();
    let head = [&wire::STRUCTURED_REPLY_MAGIC.to_be_bytes()[..], &[0; 2], &kind.to_be_bytes()];
    [&head.concat()[..], &cookie.to_be_bytes(), &len.to_be_bytes(), payload].concat()
}

pub(super) fn data_chunk(cookie: u64, done: bool, offset: u64, data: &[u8]) -> Vec<u8> {
    let len = u32::try_from(data.len()).unwrap();
    [&wire::chunk_data(cookie, done, offset, len)[..], data].concat()
}

#[test]
fn our_client_understands_our_handshake() {
    let (uri, thread, _dir) = serve(2, |request| wire::chunk_none(request.cookie).to_vec());
    let disk = ListedExport { name: "disk".into(), description: "scripted".into() };
    assert_eq!(list_exports(&uri).unwrap(), [disk]);
    let mut client = Client::connect(&NbdUri { export: String::new(), ..uri }).unwrap();
    let info = client.info().clone();
    assert_eq!((info.name.as_str(), info.description.as_str()), ("disk", "scripted"));
    assert_eq!(info.block_sizes, exports()[0].block_sizes);
    assert_eq!(info.flags, exports()[0].transmission_flags(true));
    assert_eq!((info.length, info.base_allocation), (1 << 20, Some(wire::BASE_ALLOCATION_ID)));
    client.flush().unwrap();
    client.write_at(0, &vec![0; 200_000], false).unwrap();
    client.disconnect().unwrap();
    thread.join().unwrap();
}

#[test]
fn chunks_of_a_read_come_in_any_order() {
    let data = read_answered(|request| {
        let mut bytes = data_chunk(request.cookie, false, 1024, &[2; 256]);
        let hole = [&1280_u64.to_be_bytes()[..], &256_u32.to_be_bytes()].concat();
        bytes.extend(chunk(request.cookie, wire::CHUNK_OFFSET_HOLE, &hole));
        bytes.extend(data_chunk(request.cookie, false, 512, &[1; 512]));
        bytes.extend(wire::chunk_none(request.cookie));
        bytes
    })
    .unwrap();
    assert_eq!(data, [vec![1; 512], vec![2; 256], vec![0; 256]].concat());
}

#[test]
fn an_error_chunk_tells_code_text_and_place() {
    let error = read_answered(|request| {
        let at = [0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0];
        let mut bytes = chunk(request.cookie, wire::CHUNK_ERROR_OFFSET, &at);
        bytes.extend(wire::chunk_error(request.cookie, true, Errno::NoMem, 5));
        bytes.extend(b"later");
        bytes
    })
    .unwrap_err();
    let ClientError::Request(error) = error else { panic!("{error}") };
    assert_eq!((error.errno, error.offset), (Errno::Io, Some(1024)));
    let error = read_answered(|request| {
        let mut bytes = wire::chunk_error(request.cookie, true, Errno::Shutdown, 3).to_vec();
        bytes.extend(b"bye");
        bytes
    })
    .unwrap_err();
    let text = "the NBD server failed the request: server is stopping (ESHUTDOWN): bye";
    assert_eq!(error.to_string(), text);
}

#[test]
fn what_a_server_must_not_do_is_named() {
    let cases: [(Answer, &str); 9] = [
        (|r| wire::chunk_none(r.cookie).to_vec(), "ended a read without all data"),
        (|r| wire::chunk_none(r.cookie ^ 1).to_vec(), "not in flight"),
        (|r| wire::chunk_none(r.cookie ^ 1 << 32).to_vec(), "not in flight"),
        (|r| wire::simple_reply(r.cookie, Err(Errno::Io)).to_vec(), "a simple reply where"),
        (|r| data_chunk(r.cookie, true, 0, &[0; 1024]), "data outside of the request"),
        (|r| data_chunk(r.cookie, true, 513, &[0; 1024]), "data outside of the request"),
        (
            |r| {
                let mut bytes = data_chunk(r.cookie, false, 512, &[0; 600]);
                bytes.extend(data_chunk(r.cookie, true, 1111, &[0; 424]));
                bytes
            },
            "the same data twice",
        ),
        (
            |r| {
                let mut bytes = wire::chunk_error(r.cookie, true, Errno::Io, 7).to_vec();
                bytes[19] = 8;
                bytes
            },
            "message is longer than its chunk",
        ),
        (|_| vec![0x55; 16], "instead of 0x67446698"),
    ];
    for (answer, text) in cases {
        let error = read_answered(answer).unwrap_err();
        assert!(matches!(error, ClientError::Protocol(_)), "{error}");
        assert!(error.to_string().contains(text), "{error} has not {text:?}");
    }
}

#[test]
fn an_answer_that_comes_twice_ends_the_connection() {
    let (uri, thread, _dir) =
        serve(1, |request| [wire::simple_reply(request.cookie, Err(Errno::NoSpace)); 2].concat());
    let mut client = Client::connect(&uri).unwrap();
    client.submit(Request::write(0, vec![5; 512])).unwrap();
    client.submit(Request::write(0, vec![6; 512])).unwrap();
    let done = client.wait().unwrap();
    assert_eq!((done.data, done.result.unwrap_err().errno), (vec![5; 512], Errno::NoSpace));
    assert!(matches!(client.wait(), Err(ClientError::Protocol(_))));
    drop(client);
    thread.join().unwrap();
}

#[test]
fn a_write_that_is_answered_before_its_data_are_read_keeps_its_buffer() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("socket");
    let listener = UnixListener::bind(&path).unwrap();
    // More data than a socket buffers, so that the client is still sending when the reply arrives.
    let len = 8 << 20;
    let thread = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        shake_hands(&mut stream).unwrap();
        let request = receive_request(&mut stream).unwrap();
        stream.write_all(&wire::simple_reply(request.cookie, Err(Errno::Perm))).unwrap();
        stream.read_exact(&mut vec![0; len]).unwrap();
        assert_eq!(stream.read(&mut [0; 1]).unwrap(), 0);
    });
    let uri = NbdUri { address: NbdAddress::Unix(path), export: "disk".into(), tls: None };
    let mut client = Client::connect(&uri).unwrap();
    let cookie = client.submit(Request::write(0, vec![5; len])).unwrap();
    let done = client.wait().unwrap();
    assert_eq!((done.cookie, done.result.unwrap_err().errno), (cookie, Errno::Perm));
    assert!(done.data == vec![5; len]);
    drop(client);
    thread.join().unwrap();
}

#[test]
fn block_status_gives_the_extents() {
    let (uri, thread, _dir) = serve(1, |request| {
        let id = wire::BASE_ALLOCATION_ID;
        let mut bytes = wire::chunk_block_status(request.cookie, true, id, 2).to_vec();
        bytes.extend(wire::extent(512, 0));
        bytes.extend(wire::extent(1 << 19, wire::STATE_HOLE));
        bytes
    });
    let mut client = Client::connect(&uri).unwrap();
    let extents = client.block_status(0, 4096).unwrap();
    let hole = Extent { len: 1 << 19, state: wire::STATE_HOLE };
    assert_eq!(extents, [Extent { len: 512, state: 0 }, hole]);
    let error = client.block_status(0, 512).unwrap_err();
    assert!(error.to_string().contains("more extents than were asked for"), "{error}");
    drop(client);
    thread.join().unwrap();
}

/// Returns a block status with as many extents of 512 bytes as fit; `state` gives their states by
/// number.
fn many_extents(request: wire::Request, state: fn(u32) -> u32) -> Vec<u8> {
    let count = request.len / 512;
    let id = wire::BASE_ALLOCATION_ID;
    let short = u16::try_from(count).unwrap();
    let mut bytes = wire::chunk_block_status(request.cookie, true, id, short).to_vec();
    (0..count).for_each(|number| bytes.extend(wire::extent(512, state(number))));
    bytes
}

#[test]
fn extents_of_one_state_are_merged_and_the_first_ones_are_kept() {
    let (uri, thread, _dir) = serve(1, |request| {
        // At the start every second extent is a hole; elsewhere all are.
        let is_mixed = request.offset == 0;
        many_extents(request, if is_mixed { |number| number % 2 } else { |_| wire::STATE_HOLE })
    });
    let mut client = Client::connect(&uri).unwrap();
    let len = 8192 * 512;
    let extents = client.block_status(0, len).unwrap();
    assert_eq!(extents.len(), EXTENTS_KEPT_MAX);
    assert!(extents.iter().all(|extent| extent.len == 512), "no gap is closed");
    assert_eq!(client.block_status(512, len).unwrap(), [Extent { len, state: wire::STATE_HOLE }]);
    drop(client);
    thread.join().unwrap();
}

/// Returns data chunks of one byte for the bytes of a read at these offsets.
fn bytes_at(request: wire::Request, offsets: impl Iterator<Item = u32>) -> Vec<u8> {
    let chunk = |at: u32| data_chunk(request.cookie, false, request.offset + u64::from(at), &[7]);
    offsets.flat_map(chunk).collect()
}

#[test]
fn chunks_of_one_byte_take_no_memory_that_lasts() {
    let (uri, thread, _dir) = serve(1, |request| {
        // The first half arrives forward, the second one backward.
        let (half, mut bytes) = (request.len / 2, Vec::new());
        bytes.extend(bytes_at(request, 0..half));
        bytes.extend(bytes_at(request, (half + 1..request.len).rev()));
        if request.offset == 0 {
            // One byte is still missing: the read has two parts now.
            return bytes;
        }
        bytes.extend(bytes_at(request, half..=half));
        bytes.extend(wire::chunk_none(request.cookie));
        bytes
    });
    let mut client = Client::connect(&uri).unwrap();
    let mut data = vec![0; 16 << 10];
    client.read_at(512, &mut data).unwrap();
    assert!(data.iter().all(|&byte| byte == 7));
    let kept = client.slots[0].covered.capacity();
    assert!(kept <= COVERED_KEPT, "{kept} parts");
    client.submit(Request::read(0, data)).unwrap();
    while client.slots[0].covered.len() != 2
        || client.slots[0].covered.iter().map(|(start, end)| end - start).sum::<u32>() < 16383
    {
        client.receive().unwrap();
        assert!(client.slots[0].covered.len() <= 2, "neighbors are merged");
    }
    drop(client);
    thread.join().unwrap();
}

#[test]
fn a_read_in_too_many_parts_ends_the_connection() {
    let (uri, thread, _dir) = serve(1, |request| {
        let half = request.len / 2;
        let mut bytes = bytes_at(request, (0..half).map(|part| 2 * part));
        bytes.extend(bytes_at(request, (0..half).map(|part| 2 * part + 1)));
        bytes.extend(wire::chunk_none(request.cookie));
        bytes
    });
    let mut client = Client::connect(&uri).unwrap();
    let len = 2 * PARTS_MAX;
    client.read_at(0, &mut vec![0; len]).unwrap();
    let error = client.read_at(0, &mut vec![0; len + 2]).unwrap_err();
    assert!(error.to_string().contains("too many separate parts"), "{error}");
    drop(client);
    thread.join().unwrap();
}
