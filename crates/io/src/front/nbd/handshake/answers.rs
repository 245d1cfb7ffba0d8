//! Answers to the options of the handshake.
//!
//! NBD's proto.md, "Option types". The handshake answers an option when all its data has arrived.

use super::options::{InfoQuery, MetaQuery, OptionRefusal};
use super::{Answer, ClientTransport, Handshake, HandshakeError, Negotiated, Progress, State};
use crate::nbd_wire::{
    self as wire, BlockSizeReply, BlockSizes, ExportInfoReply, ExportReply, OptionReplyHeader,
};
use zerocopy::IntoBytes;

const UNKNOWN_EXPORT: OptionRefusal =
    OptionRefusal { reply: wire::REP_ERR_UNKNOWN, text: "there is no such export" };

/// Output of a handshake, with the number of bytes that may still be sent: a client can request the
/// same list again and again.
pub(super) struct Replies<'a> {
    pub(super) output: &'a mut Vec<u8>,
    pub(super) bytes_left: &'a mut usize,
}

impl Replies<'_> {
    pub(super) fn push(&mut self, parts: &[&[u8]]) -> Result<(), HandshakeError> {
        let bytes = parts.iter().map(|part| part.len()).sum();
        *self.bytes_left =
            self.bytes_left.checked_sub(bytes).ok_or(HandshakeError::TooMuchOutput)?;
        self.output.extend(parts.iter().copied().flatten());
        Ok(())
    }

    /// Adds a reply to an option, of a type `REP_*`.
    fn reply(&mut self, option: u32, kind: u32, data: &[&[u8]]) -> Result<(), HandshakeError> {
        let len = data.iter().map(|part| part.len()).sum::<usize>();
        let len = u32::try_from(len).expect("strings are short and structs shorter");
        self.push(&[OptionReplyHeader::new(option, kind, len).as_bytes()])?;
        self.push(data)
    }
}

impl Handshake {
    pub(super) fn replies<'a>(&'a mut self, output: &'a mut Vec<u8>) -> Replies<'a> {
        Replies { output, bytes_left: &mut self.output_bytes_left }
    }

    pub(super) fn answer(
        &mut self,
        option: u32,
        answer: Answer,
        output: &mut Vec<u8>,
    ) -> Result<(), HandshakeError> {
        let mut replies = Replies { output, bytes_left: &mut self.output_bytes_left };
        match answer {
            Answer::Refuse(refusal) => {
                return replies.reply(option, refusal.reply, &[refusal.text.as_bytes()]);
            }
            Answer::Abort => self.state = State::Done(Progress::Aborted),
            Answer::Structured => self.structured = true,
            Answer::StartTls => {
                // An attacker in the middle could have sent the options before TLS: none of them
                // counts.
                self.transport = ClientTransport::StartingTls;
                (self.structured, self.context_export) = (false, None);
            }
            Answer::List => {
                for export in &self.exports {
                    let (name, description) = (&export.name, &export.description);
                    let len = u32::try_from(name.len()).expect("a name is a short string");
                    let data = [&len.to_be_bytes(), name.as_bytes(), description.as_bytes()];
                    replies.reply(option, wire::REP_SERVER, &data)?;
                }
            }
            Answer::Ack => {}
        }
        replies.reply(option, wire::REP_ACK, &[])
    }

    pub(super) fn answer_data(
        &mut self,
        option: u32,
        data: &[u8],
        output: &mut Vec<u8>,
    ) -> Result<(), HandshakeError> {
        let answer = match option {
            wire::OPT_EXPORT_NAME => return self.answer_export_name(data, output),
            wire::OPT_INFO | wire::OPT_GO => self.answer_info(option, data, output)?,
            _ => self.answer_meta(option, data, output)?,
        };
        match answer {
            Ok(()) => self.answer(option, Answer::Ack, output),
            Err(refusal) => self.answer(option, Answer::Refuse(refusal), output),
        }
    }

    fn answer_export_name(
        &mut self,
        name: &[u8],
        output: &mut Vec<u8>,
    ) -> Result<(), HandshakeError> {
        let export = self.find(name).ok_or_else(|| {
            HandshakeError::UnknownExport(String::from_utf8_lossy(name).into_owned())
        })?;
        let negotiated = self.negotiated(export);
        let reply = ExportReply::new(self.exports[export].length, negotiated.flags);
        let padding_bytes = if self.no_zeroes { 0 } else { wire::EXPORT_NAME_PADDING_BYTES };
        let padding = &[0; wire::EXPORT_NAME_PADDING_BYTES][..padding_bytes];
        // This reply has no header.
        self.replies(output).push(&[reply.as_bytes(), padding])?;
        self.state = State::Done(Progress::Transmission(negotiated));
        Ok(())
    }

    /// Answers `INFO` and `GO`; the caller adds the acknowledgement or the refusal.
    fn answer_info(
        &mut self,
        option: u32,
        data: &[u8],
        output: &mut Vec<u8>,
    ) -> Result<Result<(), OptionRefusal>, HandshakeError> {
        let query = match InfoQuery::parse(data, self.limits.name_bytes_max) {
            Ok(query) => query,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let Some(index) = self.find(query.name) else {
            return Ok(Err(UNKNOWN_EXPORT));
        };
        let negotiated = self.negotiated(index);
        let export = &self.exports[index];
        let mut replies = Replies { output, bytes_left: &mut self.output_bytes_left };
        let mut info = |data: &[&[u8]]| replies.reply(option, wire::REP_INFO, data);
        let string = |kind: u16, text: &str| [&kind.to_be_bytes()[..], text.as_bytes()].concat();
        info(&[ExportInfoReply::new(export.length, negotiated.flags).as_bytes()])?;
        if query.wants_name {
            info(&[&string(wire::INFO_NAME, &export.name)])?;
        }
        if query.wants_description && !export.description.is_empty() {
            info(&[&string(wire::INFO_DESCRIPTION, &export.description)])?;
        }
        if query.wants_block_size {
            let BlockSizes { min, preferred, max } = export.block_sizes;
            info(&[BlockSizeReply::new(min, preferred, max).as_bytes()])?;
        }
        if option == wire::OPT_GO {
            self.state = State::Done(Progress::Transmission(negotiated));
        }
        Ok(Ok(()))
    }

    /// Answers `LIST_META_CONTEXT` and `SET_META_CONTEXT`; the caller adds the acknowledgement or
    /// the refusal.
    fn answer_meta(
        &mut self,
        option: u32,
        data: &[u8],
        output: &mut Vec<u8>,
    ) -> Result<Result<(), OptionRefusal>, HandshakeError> {
        if !self.structured {
            return Ok(Err(OptionRefusal::invalid("structured replies must come first")));
        }
        let query = match MetaQuery::parse(data, self.limits.name_bytes_max) {
            Ok(query) => query,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let Some(export) = self.find(query.name) else {
            return Ok(Err(UNKNOWN_EXPORT));
        };
        let is_list = option == wire::OPT_LIST_META_CONTEXT;
        if query.exact || is_list && (query.queries == 0 || query.wildcard) {
            let id = if is_list { 0 } else { wire::BASE_ALLOCATION_ID };
            let data = [&id.to_be_bytes(), wire::BASE_ALLOCATION.as_bytes()];
            self.replies(output).reply(option, wire::REP_META_CONTEXT, &data)?;
            if !is_list {
                self.context_export = Some(export);
            }
        }
        Ok(Ok(()))
    }

    fn find(&self, name: &[u8]) -> Option<usize> {
        self.exports.iter().position(|export| export.matches_name(name))
    }

    fn negotiated(&self, export: usize) -> Negotiated {
        Negotiated {
            export,
            flags: self.exports[export].transmission_flags(self.structured),
            structured: self.structured,
            base_allocation: self.context_export == Some(export),
            no_zeroes: self.no_zeroes,
        }
    }
}
