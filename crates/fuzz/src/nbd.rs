//! Fuzz targets for the NBD protocol: client input to the server, and server input to the client.

use larder_io::front::nbd::handshake::{
    BlockSizes, ExportInfo, Handshake, HandshakeLimits, Progress,
};
use larder_io::nbd_client::{Client, ConnectOptions, NbdUri, list_exports_of};
use larder_io::nbd_wire::{FLAG_SEND_FLUSH, FLAG_SEND_FUA, REQUEST_BYTES, Request};
use std::io::Write;
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

const LIMITS: HandshakeLimits = HandshakeLimits {
    option_bytes_max: 64,
    options_max: 5,
    name_bytes_max: 8,
    output_bytes_max: 400,
};

/// Returns the replies of a server to a session, the number of consumed bytes, and true if there
/// was no protocol error.
fn session(input: &[u8], piece: usize) -> (Vec<u8>, usize, bool) {
    let export = ExportInfo {
        name: "disk".into(),
        description: "a disk".into(),
        length: 1 << 20,
        read_only: false,
        block_sizes: BlockSizes { min: 512, preferred: 4096, max: 1 << 20 },
        features: FLAG_SEND_FLUSH | FLAG_SEND_FUA,
        default: true,
    };
    let mut handshake = Handshake::new(&[export], LIMITS);
    let (mut output, mut replies, mut consumed) = (Vec::new(), Vec::new(), 0);
    let _greeting = handshake.feed(&[], &mut output);
    output.clear();
    // Bytes that were not consumed are repeated in the next piece.
    let mut end = 0;
    while consumed < input.len() {
        end = input.len().min(end.max(consumed) + piece);
        let fed = handshake.feed(&input[consumed..end], &mut output);
        replies.append(&mut output);
        match fed {
            Ok((taken, Progress::NeedMore)) => consumed += taken,
            Ok((taken, _)) => return (replies, consumed + taken, true),
            Err(_) => return (replies, consumed, false),
        }
        if end == input.len() {
            break;
        }
    }
    (replies, consumed, true)
}

/// Runs the handshake, whole and in pieces, and then requests.
pub(crate) fn server(input: &[u8]) {
    let (piece, input) = input.split_first().unwrap_or((&1, &[]));
    let whole = session(input, usize::MAX / 2);
    let pieces = session(input, usize::from(*piece).max(1));
    assert_eq!((&whole.0, whole.2), (&pieces.0, pieces.2), "in pieces of {piece}");
    assert!(whole.0.len() <= LIMITS.output_bytes_max);
    for header in input[whole.1.min(input.len())..].as_chunks::<REQUEST_BYTES>().0 {
        let _request = Request::parse(header);
    }
}

/// Returns a client's end of a connection whose other end has sent an answer, and that other end,
/// which keeps what the client sends.
fn answered(answer: &[u8]) -> (OwnedFd, UnixStream) {
    let (client, mut server) = UnixStream::pair().expect("a pair of sockets");
    // An answer that a socket cannot hold is cut off.
    server.set_nonblocking(true).expect("a socket has this mode");
    drop(server.write_all(answer));
    server.shutdown(Shutdown::Write).expect("it is connected");
    (client.into(), server)
}

/// Runs the client: a handshake, a read, a write and a flush; or a list of exports.
pub(crate) fn client(input: &[u8]) {
    let (first, answer) = input.split_first().unwrap_or((&0, &[]));
    let (socket, _server) = answered(answer);
    if first.is_multiple_of(4) {
        drop(list_exports_of(socket));
        return;
    }
    let Ok(mut client) = Client::over(socket, "disk", ConnectOptions::default()) else { return };
    // Each operation may fail, but must not panic.
    drop(client.read_at(0, &mut [0; 512]));
    drop(client.write_at(512, &[1; 512], false));
    drop(client.flush());
}

/// Parses an address.
pub(crate) fn uri(input: &[u8]) {
    let Some(uri) = str::from_utf8(input).ok().and_then(|text| text.parse::<NbdUri>().ok()) else {
        return;
    };
    let again: NbdUri = uri.to_string().parse().expect("what is printed can be read");
    assert_eq!(again, uri);
}
