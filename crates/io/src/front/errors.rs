//! Translation of store errors for clients: one table for each protocol.

use crate::nbd_wire as wire;
use larder_core::store::{StoreError, StoreErrorKind};
use rustix::io::Errno;

pub(in crate::front) fn errno_of(error: &StoreError) -> Errno {
    match error.kind {
        StoreErrorKind::NoSpace => Errno::NOSPC,
        StoreErrorKind::ReadOnly => Errno::ROFS,
        StoreErrorKind::NotPermitted => Errno::PERM,
        StoreErrorKind::Unsupported => Errno::OPNOTSUPP,
        StoreErrorKind::Io
        | StoreErrorKind::Short
        | StoreErrorKind::Gone
        | StoreErrorKind::Away
        | StoreErrorKind::Busy => Errno::IO,
    }
}

/// Logs the failure of a request. Returns the errno of the reply.
pub(in crate::front) fn log_failure(error: &StoreError) -> Errno {
    tracing::warn!(%error, "a request failed");
    errno_of(error)
}

pub(in crate::front) fn nbd_error_of(error: &StoreError) -> wire::Errno {
    match error.kind {
        StoreErrorKind::NoSpace => wire::Errno::NoSpace,
        StoreErrorKind::ReadOnly | StoreErrorKind::NotPermitted => wire::Errno::Perm,
        StoreErrorKind::Unsupported => wire::Errno::NotSup,
        StoreErrorKind::Io
        | StoreErrorKind::Short
        | StoreErrorKind::Gone
        | StoreErrorKind::Away
        | StoreErrorKind::Busy => wire::Errno::Io,
    }
}
