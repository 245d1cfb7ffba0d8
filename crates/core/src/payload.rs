//! The bytes of a write request in the buffer of a front end.

/// Bytes that a write copies into frames.
///
/// Other programs may change the bytes concurrently, as a guest changes its memory: each copy reads
/// a byte once, and nothing depends on two copies being equal.
pub trait Payload {
    /// Returns the number of bytes.
    fn len(&self) -> usize;

    /// Copies the bytes from `at` on into `to`, which ends within the payload.
    fn copy_to(&self, at: usize, to: &mut [u8]);

    /// Returns true if there are no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A payload that a session can keep while the write is stalled.
pub trait Park: Payload {
    /// The payload while it waits.
    type Parked: Payload;

    /// Makes the payload independent of the buffer that the front end reuses.
    fn park(self) -> Self::Parked;
}

impl Payload for [u8] {
    fn len(&self) -> usize {
        self.len()
    }

    #[inline]
    fn copy_to(&self, at: usize, to: &mut [u8]) {
        to.copy_from_slice(&self[at..at + to.len()]);
    }
}

impl<const N: usize> Payload for [u8; N] {
    fn len(&self) -> usize {
        N
    }

    #[inline]
    fn copy_to(&self, at: usize, to: &mut [u8]) {
        self[..].copy_to(at, to);
    }
}

impl Payload for &[u8] {
    fn len(&self) -> usize {
        (**self).len()
    }

    #[inline]
    fn copy_to(&self, at: usize, to: &mut [u8]) {
        (**self).copy_to(at, to);
    }
}

impl Payload for Vec<u8> {
    fn len(&self) -> usize {
        self.len()
    }

    #[inline]
    fn copy_to(&self, at: usize, to: &mut [u8]) {
        self[..].copy_to(at, to);
    }
}

/// Bytes in a buffer of the front end; they are copied when the write is parked.
impl Park for &[u8] {
    type Parked = Vec<u8>;

    fn park(self) -> Vec<u8> {
        self.to_vec()
    }
}

/// A number of zeros: the unaligned ends of a zeroed range, and all payloads of simulations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZeroPayload(pub usize);

impl Payload for ZeroPayload {
    fn len(&self) -> usize {
        self.0
    }

    fn copy_to(&self, _: usize, to: &mut [u8]) {
        to.fill(0);
    }
}

impl Park for ZeroPayload {
    type Parked = ZeroPayload;

    fn park(self) -> ZeroPayload {
        self
    }
}
