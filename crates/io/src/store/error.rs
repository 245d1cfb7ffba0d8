//! Errors of the kernel as errors of a store.

use larder_core::store::{StoreError, StoreErrorKind, StoreOpKind};
use std::fmt;
use std::io;

fn kind(error: &io::Error) -> StoreErrorKind {
    match error.raw_os_error() {
        Some(libc::ENOSPC | libc::EDQUOT | libc::EFBIG) => StoreErrorKind::NoSpace,
        Some(libc::EROFS | libc::EBADF) => StoreErrorKind::ReadOnly,
        Some(libc::EPERM | libc::EACCES) => StoreErrorKind::NotPermitted,
        Some(libc::ENODEV | libc::ENXIO | libc::ESTALE | libc::ENOTCONN) => StoreErrorKind::Gone,
        Some(libc::EOPNOTSUPP | libc::ENOSYS) => StoreErrorKind::Unsupported,
        _ => StoreErrorKind::Io,
    }
}

/// Returns the error of an operation on the file or directory `name`.
pub(super) fn store_error(
    name: impl fmt::Display,
    op: StoreOpKind,
    offset: u64,
    len: u64,
    error: &io::Error,
) -> StoreError {
    let message = match op {
        StoreOpKind::Flush => format!("flush {name}: {error}"),
        _ => format!("{op} {len} bytes at {offset} of {name}: {error}"),
    };
    StoreError::new(kind(error), message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_of_space_and_of_the_process_are_a_full_store() {
        let kind_of = |errno| kind(&io::Error::from_raw_os_error(errno));
        for errno in [libc::ENOSPC, libc::EDQUOT, libc::EFBIG] {
            assert_eq!(kind_of(errno), StoreErrorKind::NoSpace);
        }
        assert_eq!(kind_of(libc::EROFS), StoreErrorKind::ReadOnly);
        for errno in [libc::EPERM, libc::EACCES] {
            assert_eq!(kind_of(errno), StoreErrorKind::NotPermitted);
        }
        assert_eq!(kind_of(libc::EMFILE), StoreErrorKind::Io, "it passes by itself");
    }
}
