//! Fuzz targets for the NBD protocol: client input to the server, and server input to the client.

use larder_io::front::nbd::handshake::{
    BlockSizes, ExportInfo, Handshake, HandshakeLimits, Progress,
};
use larder_io::nbd_client::{Client, NbdAddress, NbdUri, list_exports};
use larder_io::nbd_wire::{FLAG_SEND_FLUSH, FLAG_SEND_FUA, REQUEST_BYTES, Request};
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, OnceLock};

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

/// A server that answers each connection with the given bytes.
struct Server {
    path: PathBuf,
    answers: Mutex<Sender<Vec<u8>>>,
}

fn scripted_server() -> &'static Server {
    static SERVER: OnceLock<Server> = OnceLock::new();
    SERVER.get_or_init(|| {
        let directory = tempfile::tempdir().expect("a directory").keep();
        let path = directory.join("socket");
        let listener = UnixListener::bind(&path).expect("a socket");
        let (answers, next) = channel::<Vec<u8>>();
        std::thread::spawn(move || {
            for answer in next {
                let (mut stream, _) = listener.accept().expect("a connection");
                // The client may have disconnected already.
                drop(stream.write_all(&answer).and_then(|()| stream.shutdown(Shutdown::Write)));
                drop(stream.read_to_end(&mut Vec::new()));
            }
        });
        Server { path, answers: Mutex::new(answers) }
    })
}

/// Runs the client: a handshake, a read, a write and a block status; or a list of exports.
pub(crate) fn client(input: &[u8]) {
    let (first, answer) = input.split_first().unwrap_or((&0, &[]));
    let server = scripted_server();
    let answers = server.answers.lock().expect("no holder panics");
    answers.send(answer.to_vec()).expect("the server runs");
    let address = NbdAddress::Unix(server.path.clone());
    let uri = NbdUri { address, export: "disk".into(), tls: None };
    if first.is_multiple_of(4) {
        drop(list_exports(&uri));
        return;
    }
    let Ok(mut client) = Client::connect(&uri) else { return };
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
