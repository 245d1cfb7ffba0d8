//! Replies to the requests of a client, in the form that the client has negotiated.

use super::{ClientRequest, Transmission};
use crate::frames::ArenaFrames;
use crate::front::errors::nbd_error_of;
use crate::nbd_wire::{self as wire, Errno};
use larder_core::clock::Nanos;
use larder_core::counters::Classes;
use larder_core::request::{Event, ReadRequest, Reply};
use larder_core::store::StoreError;

#[derive(Clone, Debug)]
pub(super) struct Failure {
    pub(super) errno: Errno,
    pub(super) message: String,
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Failure { errno: nbd_error_of(&error), message: format!("cannot {error}") }
    }
}

/// A large read with a simple reply, which must be sent without interruption.
#[derive(Debug, Default)]
pub(super) struct UninterruptedRead {
    /// True if its reply header is queued.
    begun: bool,
}

impl Transmission<'_> {
    /// Replies to completed requests, and queues data of large reads. Returns true if there were
    /// any events.
    pub(super) fn take_events(&mut self, now: Nanos) -> bool {
        let mut any = false;
        while let Some(event) = self.requests.poll_event() {
            any = true;
            match event {
                Event::Piece(id, read) => {
                    let cookie = self.requests.context(id).request.cookie;
                    self.send_data(cookie, read, false);
                }
                Event::End(reply) => self.end(now, reply),
            }
        }
        any
    }

    fn end(&mut self, now: Nanos, reply: Reply<ArenaFrames, ClientRequest>) {
        let Reply { context: client_request, data, error, classes, .. } = reply;
        let cookie = client_request.request.cookie;
        self.observe(&client_request, classes);
        self.requests
            .record_latency(client_request.op, now.saturating_sub(client_request.arrived_at));
        match (error.map(Failure::from), data) {
            (Some(failure), _) => self.end_failed(cookie, &failure),
            (None, Some(read)) => self.send_data(cookie, read, true),
            (None, None) => self.reply_ok(cookie),
        }
        // An uninterrupted read is the only request in flight.
        self.uninterrupted_read = None;
    }

    /// Replies with an error. A simple reply that has begun cannot become an error: the server
    /// disconnects the client instead.
    fn end_failed(&mut self, cookie: u64, failure: &Failure) {
        if self.uninterrupted_read.as_ref().is_some_and(|read| read.begun) {
            let message = &failure.message;
            tracing::warn!(message, "a read failed midway; the client is disconnected");
            self.connection.socket.shut_down();
        }
        self.reply_error(cookie, failure);
    }

    /// Queues the data of a piece; the reply is complete with the last one.
    pub(super) fn send_data(
        &mut self,
        cookie: u64,
        mut read: Box<ReadRequest<ArenaFrames>>,
        last: bool,
    ) {
        if self.negotiated.structured {
            self.output.push(&wire::chunk_data(cookie, last, read.offset, read.len));
        } else {
            let begun = self
                .uninterrupted_read
                .as_mut()
                .map(|read| std::mem::replace(&mut read.begun, true));
            if begun != Some(true) {
                self.output.push(&wire::simple_reply(cookie, Ok(())));
            }
        }
        for (pin, range) in read.take_pieces() {
            self.output.push_frame(pin, range);
        }
        self.requests.recycle(read);
    }

    pub(super) fn reply_ok(&mut self, cookie: u64) {
        if self.negotiated.structured {
            self.output.push(&wire::chunk_none(cookie));
        } else {
            self.output.push(&wire::simple_reply(cookie, Ok(())));
        }
    }

    pub(super) fn reply_error(&mut self, cookie: u64, failure: &Failure) {
        let Failure { errno, message } = failure;
        if !self.negotiated.structured {
            self.output.push(&wire::simple_reply(cookie, Err(*errno)));
            return;
        }
        let mut end = message.len().min(wire::STRING_BYTES_MAX as usize);
        while !message.is_char_boundary(end) {
            end -= 1;
        }
        let message = &message.as_bytes()[..end];
        let len = u16::try_from(message.len()).expect("at most 4,096");
        self.output.push(&wire::chunk_error(cookie, true, *errno, len));
        self.output.push(message);
    }

    pub(super) fn observe(&mut self, client_request: &ClientRequest, classes: Classes) {
        let Some(recorder) = &mut self.recorder else { return };
        let wire::Request { offset, len, .. } = client_request.request;
        recorder.record(
            client_request.op,
            client_request.arrived_at,
            (offset, u64::from(len)),
            classes,
        );
    }
}
