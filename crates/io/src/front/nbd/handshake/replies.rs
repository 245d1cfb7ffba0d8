//! Replies to options, written to the output.
//!
//! NBD's proto.md, "Option reply types". The total output of a handshake is limited, since a client
//! can request the same list again and again.

use super::HandshakeError;
use super::export::ExportInfo;
use super::options::Refusal;
use crate::nbd_wire::{
    self as wire, BlockSizeReply, ExportInfoReply, ExportReply, OptionReplyHeader, ServerGreeting,
};
use zerocopy::IntoBytes;

/// Output of a handshake, with the number of bytes that may still be sent.
pub(super) struct Replies<'a> {
    output: &'a mut Vec<u8>,
    bytes_left: &'a mut usize,
}

impl<'a> Replies<'a> {
    pub(super) fn new(output: &'a mut Vec<u8>, bytes_left: &'a mut usize) -> Self {
        Self { output, bytes_left }
    }

    fn push(&mut self, parts: &[&[u8]]) -> Result<(), HandshakeError> {
        let bytes = parts.iter().map(|part| part.len()).sum();
        *self.bytes_left =
            self.bytes_left.checked_sub(bytes).ok_or(HandshakeError::TooMuchOutput)?;
        for part in parts {
            self.output.extend_from_slice(part);
        }
        Ok(())
    }

    fn reply(&mut self, option: u32, kind: u32, data: [&[u8]; 3]) -> Result<(), HandshakeError> {
        let len = data.iter().map(|part| part.len()).sum::<usize>();
        let len = u32::try_from(len).expect("strings are short and structs shorter");
        let header = OptionReplyHeader::new(option, kind, len);
        self.push(&[header.as_bytes(), data[0], data[1], data[2]])
    }

    pub(super) fn greeting(&mut self) -> Result<(), HandshakeError> {
        let greeting = ServerGreeting::new(wire::FLAG_FIXED_NEWSTYLE | wire::FLAG_NO_ZEROES);
        self.push(&[greeting.as_bytes()])
    }

    pub(super) fn ack(&mut self, option: u32) -> Result<(), HandshakeError> {
        self.reply(option, wire::REP_ACK, [&[]; 3])
    }

    pub(super) fn refuse(&mut self, option: u32, refusal: Refusal) -> Result<(), HandshakeError> {
        self.reply(option, refusal.reply, [refusal.text.as_bytes(), &[], &[]])
    }

    pub(super) fn server(&mut self, export: &ExportInfo) -> Result<(), HandshakeError> {
        let name = export.name.as_bytes();
        let len = u32::try_from(name.len()).expect("a name is a short string").to_be_bytes();
        let data = [&len[..], name, export.description.as_bytes()];
        self.reply(wire::OPT_LIST, wire::REP_SERVER, data)
    }

    /// The answer to `EXPORT_NAME`, which has no header.
    pub(super) fn export_name(
        &mut self,
        length: u64,
        flags: u16,
        no_zeroes: bool,
    ) -> Result<(), HandshakeError> {
        let padding = [0; wire::EXPORT_NAME_PADDING_BYTES];
        let padding = if no_zeroes { &[][..] } else { &padding[..] };
        self.push(&[ExportReply::new(length, flags).as_bytes(), padding])
    }

    pub(super) fn info_export(
        &mut self,
        option: u32,
        length: u64,
        flags: u16,
    ) -> Result<(), HandshakeError> {
        let info = ExportInfoReply::new(length, flags);
        self.reply(option, wire::REP_INFO, [info.as_bytes(), &[], &[]])
    }

    pub(super) fn info_string(
        &mut self,
        option: u32,
        kind: u16,
        text: &str,
    ) -> Result<(), HandshakeError> {
        self.reply(option, wire::REP_INFO, [&kind.to_be_bytes(), text.as_bytes(), &[]])
    }

    pub(super) fn info_block_size(
        &mut self,
        option: u32,
        export: &ExportInfo,
    ) -> Result<(), HandshakeError> {
        let sizes = export.block_sizes;
        let info = BlockSizeReply::new(sizes.min, sizes.preferred, sizes.max);
        self.reply(option, wire::REP_INFO, [info.as_bytes(), &[], &[]])
    }

    pub(super) fn base_allocation(&mut self, option: u32, id: u32) -> Result<(), HandshakeError> {
        let name = wire::BASE_ALLOCATION.as_bytes();
        self.reply(option, wire::REP_META_CONTEXT, [&id.to_be_bytes(), name, &[]])
    }
}
