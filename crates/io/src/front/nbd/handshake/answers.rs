//! Answers to the options of the handshake.
//!
//! NBD's proto.md, "Option types". The handshake answers an option when all its data has arrived.

use super::options::{InfoQuery, MetaQuery, Refusal};
use super::replies::Replies;
use super::{Answer, ClientTransport, Handshake, HandshakeError, Negotiated, Progress, State};
use crate::nbd_wire as wire;

const UNKNOWN_EXPORT: Refusal =
    Refusal { reply: wire::REP_ERR_UNKNOWN, text: "there is no such export" };

impl Handshake {
    pub(super) fn answer(
        &mut self,
        option: u32,
        answer: Answer,
        output: &mut Vec<u8>,
    ) -> Result<(), HandshakeError> {
        let mut replies = Replies::new(output, &mut self.output_bytes_left);
        match answer {
            Answer::Refuse(refusal) => return replies.refuse(option, refusal),
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
                    replies.server(export)?;
                }
            }
            Answer::Ack => {}
        }
        replies.ack(option)
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
        let length = self.exports[export].length;
        Replies::new(output, &mut self.output_bytes_left).export_name(
            length,
            negotiated.flags,
            self.no_zeroes,
        )?;
        self.state = State::Done(Progress::Transmission(negotiated));
        Ok(())
    }

    /// Answers `INFO` and `GO`; the caller adds the acknowledgement or the refusal.
    fn answer_info(
        &mut self,
        option: u32,
        data: &[u8],
        output: &mut Vec<u8>,
    ) -> Result<Result<(), Refusal>, HandshakeError> {
        let query = match InfoQuery::parse(data, self.limits.name_bytes_max) {
            Ok(query) => query,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let Some(index) = self.find(query.name) else {
            return Ok(Err(UNKNOWN_EXPORT));
        };
        let negotiated = self.negotiated(index);
        let export = &self.exports[index];
        let mut replies = Replies::new(output, &mut self.output_bytes_left);
        replies.info_export(option, export.length, negotiated.flags)?;
        if query.wants_name {
            replies.info_string(option, wire::INFO_NAME, &export.name)?;
        }
        if query.wants_description && !export.description.is_empty() {
            replies.info_string(option, wire::INFO_DESCRIPTION, &export.description)?;
        }
        if query.wants_block_size {
            replies.info_block_size(option, export)?;
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
    ) -> Result<Result<(), Refusal>, HandshakeError> {
        if !self.structured {
            return Ok(Err(Refusal::invalid("structured replies must come first")));
        }
        let query = match MetaQuery::parse(data, self.limits.name_bytes_max) {
            Ok(query) => query,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let Some(export) = self.find(query.name) else {
            return Ok(Err(UNKNOWN_EXPORT));
        };
        let mut replies = Replies::new(output, &mut self.output_bytes_left);
        if option == wire::OPT_LIST_META_CONTEXT {
            if query.queries == 0 || query.exact || query.wildcard {
                replies.base_allocation(option, 0)?;
            }
        } else if query.exact {
            replies.base_allocation(option, wire::BASE_ALLOCATION_ID)?;
            self.context_export = Some(export);
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
