//! Description of an export for clients, and the protocol's rules for it.
//!
//! NBD's proto.md, "Transmission flags", "Block size constraints" and "Export names": strings are
//! at most 4096 bytes of UTF-8 without NUL; block sizes other than the maximum are powers of two.

use crate::nbd_wire::{self as wire, BlockSizes};

/// Flags that the handshake decides or that Larder does not offer.
const FLAGS_IGNORED: u16 = wire::FLAG_HAS_FLAGS
    | wire::FLAG_READ_ONLY
    | wire::FLAG_SEND_DF
    | wire::FLAG_SEND_RESIZE
    | !(wire::FLAG_SEND_FAST_ZERO | (wire::FLAG_SEND_FAST_ZERO - 1));

/// One export, as the handshake offers it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportInfo {
    /// Name for clients.
    pub name: String,
    /// Human-readable text; may be empty.
    pub description: String,
    /// Length in bytes.
    pub length: u64,
    /// True if writes fail; then `SEND_TRIM` and `SEND_WRITE_ZEROES` are not offered.
    pub read_only: bool,
    /// Block sizes.
    pub block_sizes: BlockSizes,
    /// `FLAG_*` bits of the offered features: flush, FUA, trim, write zeroes, fast zero, cache,
    /// multi-conn, rotational. The handshake decides the other bits and ignores them here.
    pub features: u16,
    /// True if the empty name selects it too.
    pub default: bool,
}

/// An export that cannot be offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExportFault {
    /// The name is too long.
    #[error("an NBD export name has {0} bytes, more than 4096")]
    NameTooLong(usize),
    /// The description is too long.
    #[error("an NBD export description has {0} bytes, more than 4096")]
    DescriptionTooLong(usize),
    /// A string with a NUL.
    #[error("an NBD export name or description holds a NUL character")]
    Nul,
    /// The block sizes contradict the protocol.
    #[error("NBD block sizes {min}, {preferred}, {max} are not what the protocol allows",
        min = .0.min, preferred = .0.preferred, max = .0.max)]
    BlockSizes(BlockSizes),
}

impl ExportInfo {
    /// Checks the export against the rules of the protocol.
    ///
    /// # Errors
    /// If the protocol does not allow the export.
    pub fn check(&self) -> Result<(), ExportFault> {
        let string_bytes_max = wire::STRING_BYTES_MAX as usize;
        if self.name.len() > string_bytes_max {
            return Err(ExportFault::NameTooLong(self.name.len()));
        }
        if self.description.len() > string_bytes_max {
            return Err(ExportFault::DescriptionTooLong(self.description.len()));
        }
        if self.name.contains('\0') || self.description.contains('\0') {
            return Err(ExportFault::Nul);
        }
        let BlockSizes { min, preferred, max } = self.block_sizes;
        let min_fits = min.is_power_of_two() && min <= 64 << 10;
        let preferred_fits = preferred.is_power_of_two() && preferred >= min.max(512);
        let max_fits = max >= preferred && (max == u32::MAX || max.is_multiple_of(min.max(1)));
        if min_fits && preferred_fits && max_fits {
            Ok(())
        } else {
            Err(ExportFault::BlockSizes(self.block_sizes))
        }
    }

    /// Returns the transmission flags for a client.
    pub(crate) fn transmission_flags(&self, structured: bool) -> u16 {
        let mut flags = wire::FLAG_HAS_FLAGS | (self.features & !FLAGS_IGNORED);
        if self.read_only {
            flags |= wire::FLAG_READ_ONLY;
            flags &= !(wire::FLAG_SEND_TRIM | wire::FLAG_SEND_WRITE_ZEROES);
        }
        if flags & wire::FLAG_SEND_WRITE_ZEROES == 0 {
            flags &= !wire::FLAG_SEND_FAST_ZERO;
        }
        if structured {
            flags |= wire::FLAG_SEND_DF;
        }
        flags
    }

    pub(super) fn matches_name(&self, name: &[u8]) -> bool {
        self.name.as_bytes() == name || (name.is_empty() && self.default)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn export(block_sizes: BlockSizes) -> ExportInfo {
        ExportInfo {
            name: "disk".into(),
            description: String::new(),
            length: 1 << 20,
            read_only: false,
            block_sizes,
            features: u16::MAX,
            default: false,
        }
    }

    #[test]
    fn flags_follow_the_export_and_the_session() {
        let mut info = export(BlockSizes::default());
        assert_eq!(info.transmission_flags(false), 0b1101_0111_1101);
        assert_eq!(info.transmission_flags(true), 0b1101_1111_1101);
        info.read_only = true;
        assert_eq!(info.transmission_flags(false), 0b0101_0001_1111);
        info.features = 0;
        assert_eq!(info.transmission_flags(false), 0b11);
    }

    #[test]
    fn what_the_protocol_forbids_is_named() {
        assert_eq!(export(BlockSizes::default()).check(), Ok(()));
        let sizes = |min, preferred, max| BlockSizes { min, preferred, max };
        for good in [sizes(512, 4096, 1 << 20), sizes(1, 512, u32::MAX), sizes(65536, 65536, 65536)]
        {
            assert_eq!(export(good).check(), Ok(()));
        }
        for bad in [
            sizes(0, 4096, 4096),
            sizes(3, 4096, 4096),
            sizes(1, 256, 4096),
            sizes(4096, 512, 4096),
            sizes(4096, 4096, 6144),
            sizes(1, 4096, 512),
            sizes(131_072, 131_072, 131_072),
        ] {
            assert_eq!(export(bad).check(), Err(ExportFault::BlockSizes(bad)));
        }
        let mut long = export(BlockSizes::default());
        long.name = "n".repeat(4097);
        assert_eq!(long.check(), Err(ExportFault::NameTooLong(4097)));
        long.name = "a\0b".into();
        assert_eq!(long.check(), Err(ExportFault::Nul));
        long.name = String::new();
        long.description = "d".repeat(4097);
        assert_eq!(long.check(), Err(ExportFault::DescriptionTooLong(4097)));
    }
}
