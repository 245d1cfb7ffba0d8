//! A client's request while it is in flight.

use crate::nbd_wire as wire;
use larder_core::clock::Nanos;
use larder_core::request::RequestOp;

/// A client's request with its arrival time.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClientRequest {
    pub(super) request: wire::Request,
    pub(super) op: RequestOp,
    pub(super) arrived_at: Nanos,
}
