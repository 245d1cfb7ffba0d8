//! One client: the handshake, its requests and their replies.

use super::REQUESTS_MAX;
use super::device::{DeviceOp, ModeledDevice, Reply};
use larder_core::store::StoreOpKind;
use larder_io::front::nbd::handshake::{
    BlockSizes, ExportInfo, Handshake, HandshakeLimits, Negotiated, Progress,
};
use larder_io::nbd_wire::{self as wire, Errno, Request};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::Shutdown;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Condvar, Mutex};
use std::time::Duration;

/// Longest read or write.
const REQUEST_BYTES_MAX: u32 = 1 << 20;
/// Time for the handshake, and for a client that does not receive its replies.
const TIME_MAX: Duration = Duration::from_mins(1);

/// Serves a client until it disconnects.
pub(super) fn serve_client(socket: &UnixStream, device: &ModeledDevice) -> io::Result<()> {
    socket.set_nonblocking(false)?;
    socket.set_read_timeout(Some(TIME_MAX))?;
    socket.set_write_timeout(Some(TIME_MAX))?;
    let mut input = BufReader::new(socket.try_clone()?);
    let Some(Negotiated { structured, .. }) = greet(&mut input, socket, device)? else {
        return Ok(());
    };
    // A client may be idle.
    socket.set_read_timeout(None)?;
    let (to_replies, replies) = channel();
    let places = Places { free: Mutex::new(REQUESTS_MAX), given_back: Condvar::new() };
    std::thread::scope(|scope| {
        let places = &places;
        let sender =
            scope.spawn(move || send_replies(socket, device, &replies, places, structured));
        let received = receive_requests(&mut input, device, &to_replies, places);
        // The sender ends when the replies of all requests have been sent.
        drop(to_replies);
        let sent = sender.join().expect("the sender does not panic");
        received.and(sent)
    })
}

/// Makes the handshake; `None` if the client has ended the session.
fn greet(
    input: &mut BufReader<UnixStream>,
    mut output: &UnixStream,
    device: &ModeledDevice,
) -> io::Result<Option<Negotiated>> {
    let granule = device.geometry.granule;
    let block_sizes = BlockSizes { min: granule, preferred: 4096, max: REQUEST_BYTES_MAX };
    let export = ExportInfo {
        name: String::new(),
        description: String::new(),
        length: device.geometry.length,
        read_only: false,
        block_sizes,
        features: wire::FLAG_SEND_FLUSH | wire::FLAG_SEND_FUA | wire::FLAG_CAN_MULTI_CONN,
        default: true,
    };
    let mut handshake = Handshake::new(&[export], HandshakeLimits::default());
    let mut bytes = Vec::new();
    loop {
        let available = input.buffer();
        let (used, progress) = match handshake.feed(available, &mut bytes) {
            Ok(fed) => fed,
            Err(error) => {
                output.write_all(&bytes)?;
                return Err(io::Error::other(error));
            }
        };
        input.consume(used);
        output.write_all(&bytes)?;
        bytes.clear();
        match progress {
            Progress::Transmission(negotiated) => return Ok(Some(negotiated)),
            Progress::Aborted | Progress::StartTls => return Ok(None),
            Progress::NeedMore if input.fill_buf()?.is_empty() => return Ok(None),
            Progress::NeedMore | Progress::SendFirst => {}
        }
    }
}

/// Receives requests until the client disconnects.
fn receive_requests(
    input: &mut BufReader<UnixStream>,
    device: &ModeledDevice,
    replies: &Sender<Reply>,
    places: &Places,
) -> io::Result<()> {
    let mut payload = Vec::new();
    loop {
        let mut header = [0; wire::REQUEST_BYTES];
        if input.fill_buf()?.is_empty() {
            return Ok(());
        }
        input.read_exact(&mut header)?;
        let request = Request::parse(&header).map_err(io::Error::other)?;
        let Request { command, cookie, offset, len, .. } = request;
        if command == wire::CMD_DISC {
            return Ok(());
        }
        if command == wire::CMD_WRITE {
            if len > REQUEST_BYTES_MAX {
                return Err(io::Error::other("a write is longer than the longest request"));
            }
            payload.resize(len as usize, 0);
            input.read_exact(&mut payload)?;
        }
        places.take();
        let written = |op: DeviceOp| match op.kind {
            StoreOpKind::Write { .. } => device.file.write_all_at(&payload, offset),
            _ => Ok(()),
        };
        let answer = |result| {
            let status_bytes = if command == wire::CMD_BLOCK_STATUS { len } else { 0 };
            let _gone = replies.send(Reply { cookie, op: None, status_bytes, result });
        };
        match operation(&request, device.geometry.length) {
            Ok(Some(op)) => match written(op) {
                Ok(()) => device.submit(op, cookie, replies),
                Err(error) => answer(Err(errno(error))),
            },
            Ok(None) => answer(Ok(())),
            Err(error) => answer(Err(error)),
        }
    }
}

/// Returns the error of a reply for an error of the file.
#[expect(clippy::needless_pass_by_value, reason = "as map_err passes it")]
fn errno(error: io::Error) -> Errno {
    tracing::error!(%error, "the file of a modeled device failed");
    Errno::Io
}

/// Returns the operation of a request; `None` for a block status, which needs none.
fn operation(request: &Request, length: u64) -> Result<Option<DeviceOp>, Errno> {
    let Request { flags, command, offset, len, .. } = *request;
    let fua = flags & wire::CMD_FLAG_FUA != 0;
    let kind = match command {
        wire::CMD_READ => StoreOpKind::Read,
        wire::CMD_WRITE => StoreOpKind::Write { fua },
        wire::CMD_FLUSH => {
            return Ok(Some(DeviceOp { kind: StoreOpKind::Flush, offset: 0, len: 0 }));
        }
        wire::CMD_BLOCK_STATUS if len > 0 => return Ok(None),
        _ => return Err(Errno::Inval),
    };
    let is_inside = offset.checked_add(len.into()).is_some_and(|end| end <= length);
    if len == 0 || len > REQUEST_BYTES_MAX || !is_inside {
        return Err(if command == wire::CMD_WRITE { Errno::NoSpace } else { Errno::Inval });
    }
    Ok(Some(DeviceOp { kind, offset, len }))
}

/// Sends replies until all requests have one, and no more arrive.
fn send_replies(
    mut output: &UnixStream,
    device: &ModeledDevice,
    replies: &Receiver<Reply>,
    places: &Places,
    structured: bool,
) -> io::Result<()> {
    let (mut bytes, mut result) = (Vec::new(), Ok(()));
    for reply in replies {
        if result.is_ok() {
            bytes.clear();
            write_reply(reply, device, structured, &mut bytes);
            result = output.write_all(&bytes);
            if result.is_err() {
                // The receiver must not wait for more requests.
                drop(output.shutdown(Shutdown::Both));
            }
        }
        places.give_back();
    }
    result
}

/// Appends the bytes of a reply, with the data of a read.
fn write_reply(
    Reply { cookie, op, status_bytes, mut result }: Reply,
    device: &ModeledDevice,
    structured: bool,
    bytes: &mut Vec<u8>,
) {
    match op {
        Some(DeviceOp { kind: StoreOpKind::Read, offset, len }) => {
            if structured {
                bytes.extend(wire::chunk_data(cookie, true, offset, len));
            } else {
                bytes.extend(wire::simple_reply(cookie, Ok(())));
            }
            let head = bytes.len();
            bytes.resize(head + len as usize, 0);
            match device.file.read_exact_at(&mut bytes[head..], offset) {
                Ok(()) => return,
                Err(error) => result = Err(errno(error)),
            }
            bytes.clear();
        }
        Some(DeviceOp { kind: StoreOpKind::Flush | StoreOpKind::Write { fua: true }, .. }) => {
            result = device.sync().map_err(errno);
        }
        _ => {}
    }
    match result {
        Ok(()) if status_bytes > 0 => {
            bytes.extend(wire::chunk_block_status(cookie, true, wire::BASE_ALLOCATION_ID, 1));
            bytes.extend(wire::extent(status_bytes, 0));
        }
        Err(error) if structured => bytes.extend(wire::chunk_error(cookie, true, error, 0)),
        result => bytes.extend(wire::simple_reply(cookie, result)),
    }
}

/// Places for requests in flight.
struct Places {
    free: Mutex<usize>,
    given_back: Condvar,
}

impl Places {
    fn take(&self) {
        let free = self.free.lock().expect("no holder panics");
        let mut free = self.given_back.wait_while(free, |free| *free == 0).expect("no panics");
        *free -= 1;
    }

    fn give_back(&self) {
        *self.free.lock().expect("no holder panics") += 1;
        self.given_back.notify_one();
    }
}
