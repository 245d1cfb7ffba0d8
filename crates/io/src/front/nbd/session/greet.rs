//! The handshake of a connection: its I/O, its time limit, and the start of TLS.

use crate::front::nbd::exports::Export;
use crate::front::nbd::handshake::{ExportInfo, Handshake, HandshakeLimits, Negotiated, Progress};
use crate::front::nbd::input::{Input, Received, log_failure};
use crate::front::nbd::output::Output;
use crate::front::nbd::shared::{ConnectionSlot, Shared};
use crate::front::nbd::socket::Socket;
use crate::tls::{Failure, Transport};
use crate::waker::Waker;
use larder_core::clock::Nanos;
use rustix::event::PollFlags;
use rustix::fd::AsFd;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Negotiates an export with the client, and takes a connection slot for it; `None` if the
/// connection has to end.
pub(super) fn run_handshake<'a>(
    shared: &'a Shared,
    exports: &[Export],
    transport: &mut Transport<&Socket>,
    waker: &Waker,
    input: &mut Input,
) -> Option<(Negotiated, ConnectionSlot<'a>)> {
    let exports: Vec<ExportInfo> = exports.iter().map(Export::current_info).collect();
    let mut handshake =
        Handshake::new(&exports, HandshakeLimits::default()).with_tls(shared.tls.mode);
    let clock = shared.engine.clock();
    let limit = u64::try_from(shared.limits.handshake_time_max.as_nanos()).unwrap_or(u64::MAX);
    let deadline = clock.now().saturating_add(limit);
    let no_frames = shared.engine.cache().frames();
    let mut output = Output::default();
    let mut slot = None;
    loop {
        let mut answer = Vec::new();
        let progress = handshake.feed(input.bytes(), &mut answer);
        if matches!(progress, Ok((_, Progress::Transmission(_)))) && slot.is_none() {
            // The slot is taken before the client gets the success reply.
            slot = Some(shared.take_slot()?);
        }
        output.push(&answer);
        let sent = output.send(no_frames, transport);
        let progress = match progress {
            Ok((consumed, progress)) => {
                input.consume(consumed);
                progress
            }
            Err(error) => {
                tracing::info!(%error, "a handshake failed");
                return None;
            }
        };
        match progress {
            Progress::Transmission(negotiated) if output.backlog() == 0 => {
                return slot.map(|slot| (negotiated, slot));
            }
            Progress::Aborted => return None,
            Progress::StartTls => {
                start_tls(shared, transport, waker, (input, &mut output), deadline)?;
                continue;
            }
            Progress::Transmission(_) | Progress::SendFirst | Progress::NeedMore => {}
        }
        let now = clock.now();
        if !sent || now >= deadline || shared.closing.load(Ordering::Acquire) {
            return None;
        }
        let all_sent = output.backlog() == 0 && !transport.has_unsent();
        if all_sent && progress == Progress::SendFirst {
            continue;
        }
        // TLS may hold more bytes than the buffer took; poll(2) does not report them.
        let received = if all_sent { input.receive(transport, false) } else { Received::Nothing };
        match received {
            Received::Closed => return None,
            Received::Some => continue,
            Received::Nothing => {}
        }
        let wanted = if all_sent { PollFlags::IN } else { PollFlags::OUT };
        let timeout = Duration::from_nanos(deadline - now);
        waker.sleep(Some((transport.as_fd(), wanted)), Some(timeout)).ok()?;
    }
}

/// Sends the remaining output in clear, then begins TLS with the input that follows.
fn start_tls(
    shared: &Shared,
    transport: &mut Transport<&Socket>,
    waker: &Waker,
    (input, output): (&mut Input, &mut Output),
    deadline: Nanos,
) -> Option<()> {
    let (clock, frames) = (shared.engine.clock(), shared.engine.cache().frames());
    while output.backlog() > 0 {
        let now = clock.now();
        if now >= deadline || shared.closing.load(Ordering::Acquire) {
            return None;
        }
        let timeout = Duration::from_nanos(deadline - now);
        waker.sleep(Some((transport.as_fd(), PollFlags::OUT)), Some(timeout)).ok()?;
        if !output.send(frames, transport) {
            return None;
        }
    }
    let tls = shared.tls.server.as_ref().expect("a mode with TLS has what it needs");
    let channel = tls.accept(input.bytes()).map_err(Failure::Tls).inspect_err(log_failure).ok()?;
    transport.channel = Some(Box::new(channel));
    input.consume(input.bytes().len());
    // TLS already holds bytes that were read from the socket, which poll(2) does not report.
    (input.receive(transport, false) != Received::Closed).then_some(())
}
