//! The client's side of the handshake.
//!
//! NBD's proto.md, "Handshake phase": fixed newstyle, `STRUCTURED_REPLY`, `SET_META_CONTEXT`, `GO`
//! with a fallback to `EXPORT_NAME`, and `LIST`.

use super::error::ClientError;
use super::stream::Stream;
use super::{ConnectOptions, ExportDetails, ListedExport};
use crate::nbd_wire::BlockSizes;
use crate::nbd_wire::{
    self as wire, BlockSizeReply, ExportInfoReply, ExportReply, GREETING_BYTES,
    OPTION_REPLY_HEADER_BYTES, OptionHeader, OptionReplyHeader, ServerGreeting,
};
use crate::tls::Channel;
use std::io::{BufReader, Read, Write};
use zerocopy::{FromBytes, IntoBytes};

/// Maximum accepted length of a reply to an option, in bytes.
const REPLY_BYTES_MAX: u32 = 64 << 10;
/// Maximum number of replies to an option other than `LIST`.
const REPLIES_MAX: usize = 64;
/// Maximum accepted memory of a list of exports, in bytes.
const LIST_BYTES_MAX: usize = 16 << 20;

fn protocol(text: &str) -> ClientError {
    ClientError::Protocol(text.to_owned())
}

pub(super) struct OptionNegotiation<'a> {
    stream: &'a mut BufReader<Stream>,
    no_zeroes: bool,
    /// Number of replies to the last option.
    replies: usize,
}

impl<'a> OptionNegotiation<'a> {
    pub(super) fn begin(stream: &'a mut BufReader<Stream>) -> Result<Self, ClientError> {
        let mut greeting = [0; GREETING_BYTES];
        stream.read_exact(&mut greeting)?;
        let flags = ServerGreeting::parse(greeting)?;
        if flags & wire::FLAG_FIXED_NEWSTYLE == 0 {
            return Err(protocol("it does not speak fixed newstyle"));
        }
        let no_zeroes = flags & wire::FLAG_NO_ZEROES != 0;
        let mut client_flags = wire::CLIENT_FIXED_NEWSTYLE;
        if no_zeroes {
            client_flags |= wire::CLIENT_NO_ZEROES;
        }
        stream.get_mut().write_all(&client_flags.to_be_bytes())?;
        Ok(Self { stream, no_zeroes, replies: 0 })
    }

    /// Starts TLS, which the server must support.
    pub(super) fn start_tls(self, channel: Channel) -> Result<Self, ClientError> {
        let mut negotiation = self;
        negotiation.send(wire::OPT_STARTTLS, &[])?;
        if negotiation.reply(wire::OPT_STARTTLS, wire::REP_ACK)?.is_some() {
            return Err(protocol("it acknowledged an option with data"));
        }
        // An attacker between client and server could have sent these bytes.
        if !negotiation.stream.buffer().is_empty() {
            return Err(protocol("it went on in clear after it had agreed on TLS"));
        }
        negotiation.stream.get_mut().start_tls(channel)?;
        Ok(negotiation)
    }

    pub(super) fn negotiate(
        mut self,
        export: &str,
        options: ConnectOptions,
    ) -> Result<ExportDetails, ClientError> {
        let mut details = ExportDetails {
            name: export.to_owned(),
            description: String::new(),
            length: 0,
            flags: 0,
            block_sizes: BlockSizes::default(),
            structured: false,
            base_allocation: None,
        };
        if options.structured {
            details.structured = self.try_option(wire::OPT_STRUCTURED_REPLY)?;
        }
        if details.structured && options.base_allocation {
            details.base_allocation = self.select_base_allocation(export)?;
        }
        match self.info(export, &mut details) {
            Err(ClientError::Refused { reply: wire::REP_ERR_UNSUP, .. }) => {
                self.export_name(export, &mut details)?;
            }
            other => other?,
        }
        if details.flags & wire::FLAG_HAS_FLAGS == 0 {
            return Err(protocol("it sent transmission flags that are not flags"));
        }
        Ok(details)
    }

    /// Requests the list of exports and ends the session.
    pub(super) fn list(mut self) -> Result<Vec<ListedExport>, ClientError> {
        self.send(wire::OPT_LIST, &[])?;
        let (mut exports, mut list_bytes) = (Vec::new(), 0);
        while let Some(data) = self.reply(wire::OPT_LIST, wire::REP_SERVER)? {
            list_bytes += size_of::<ListedExport>() + data.len();
            if list_bytes > LIST_BYTES_MAX {
                return Err(protocol("its list of exports is too long"));
            }
            let short = || protocol("it listed an export without a name");
            let (len, rest) = data.split_first_chunk::<4>().ok_or_else(short)?;
            let len = u32::from_be_bytes(*len) as usize;
            let (name, description) = rest.split_at_checked(len).ok_or_else(short)?;
            exports.push(ListedExport { name: text(name)?, description: text(description)? });
        }
        self.send(wire::OPT_ABORT, &[])?;
        Ok(exports)
    }

    fn send(&mut self, option: u32, data: &[u8]) -> Result<(), ClientError> {
        self.replies = 0;
        let len = u32::try_from(data.len()).expect("options are short");
        let message = [OptionHeader::new(option, len).as_bytes(), data].concat();
        Ok(self.stream.get_mut().write_all(&message)?)
    }

    /// Returns the data of the next reply of type `kind`; `None` after the last one.
    fn reply(&mut self, option: u32, kind: u32) -> Result<Option<Vec<u8>>, ClientError> {
        let mut header = [0; OPTION_REPLY_HEADER_BYTES];
        self.stream.read_exact(&mut header)?;
        let (answered, reply, len) = OptionReplyHeader::parse(header)?;
        if answered != option {
            return Err(protocol("it answered an option that was not sent"));
        }
        self.replies += 1;
        if self.replies > REPLIES_MAX && option != wire::OPT_LIST {
            return Err(protocol("its replies to an option do not end"));
        }
        if len > REPLY_BYTES_MAX {
            return Err(protocol("it sent an answer to an option that is too long"));
        }
        let mut data = vec![0; len as usize];
        self.stream.read_exact(&mut data)?;
        match reply {
            wire::REP_ACK if data.is_empty() => Ok(None),
            _ if reply == kind => Ok(Some(data)),
            _ if reply & wire::REP_ERR_BIT != 0 => Err(ClientError::Refused {
                option,
                reply,
                message: String::from_utf8_lossy(&data).into_owned(),
            }),
            _ => Err(protocol("it sent an unknown type of answer to an option")),
        }
    }

    /// Sends an option without data that a server may refuse; returns true if it accepts.
    fn try_option(&mut self, option: u32) -> Result<bool, ClientError> {
        self.send(option, &[])?;
        match self.reply(option, wire::REP_ACK) {
            Ok(None) => Ok(true),
            Ok(Some(_)) => Err(protocol("it acknowledged an option with data")),
            Err(ClientError::Refused { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Returns the context ID of `base:allocation`, if the server has it.
    fn select_base_allocation(&mut self, export: &str) -> Result<Option<u32>, ClientError> {
        let option = wire::OPT_SET_META_CONTEXT;
        let mut data = string(export);
        data.extend(1_u32.to_be_bytes());
        data.extend(string(wire::BASE_ALLOCATION));
        self.send(option, &data)?;
        let mut context_id = None;
        loop {
            match self.reply(option, wire::REP_META_CONTEXT) {
                Ok(Some(data)) => {
                    let (id, name) = data
                        .split_first_chunk::<4>()
                        .ok_or_else(|| protocol("it sent a metadata context without an id"))?;
                    if name != wire::BASE_ALLOCATION.as_bytes() {
                        return Err(protocol("it selected a metadata context not asked for"));
                    }
                    context_id = Some(u32::from_be_bytes(*id));
                }
                Ok(None) => return Ok(context_id),
                Err(ClientError::Refused { .. }) => return Ok(None),
                Err(error) => return Err(error),
            }
        }
    }

    fn info(&mut self, export: &str, details: &mut ExportDetails) -> Result<(), ClientError> {
        let mut data = string(export);
        let infos = [wire::INFO_NAME, wire::INFO_DESCRIPTION, wire::INFO_BLOCK_SIZE];
        data.extend([0, 3]);
        data.extend(infos.iter().flat_map(|info| info.to_be_bytes()));
        self.send(wire::OPT_GO, &data)?;
        let mut known = false;
        while let Some(data) = self.reply(wire::OPT_GO, wire::REP_INFO)? {
            let short = || protocol("it sent information of a wrong length");
            let (kind, rest) = data.split_first_chunk::<2>().ok_or_else(short)?;
            match u16::from_be_bytes(*kind) {
                wire::INFO_EXPORT => {
                    let info = ExportInfoReply::read_from_bytes(&data).or(Err(short()))?;
                    details.set_export(info.export);
                    known = true;
                }
                wire::INFO_NAME => details.name = text(rest)?,
                wire::INFO_DESCRIPTION => details.description = text(rest)?,
                wire::INFO_BLOCK_SIZE => {
                    let info = BlockSizeReply::read_from_bytes(&data).or(Err(short()))?;
                    let (min, preferred, max) = (info.min, info.preferred, info.max);
                    details.block_sizes = BlockSizes {
                        min: min.get().max(1),
                        preferred: preferred.get().max(1),
                        max: max.get().max(1),
                    };
                }
                _ => {}
            }
        }
        if known { Ok(()) } else { Err(protocol("it started without telling the length")) }
    }

    fn export_name(
        &mut self,
        export: &str,
        details: &mut ExportDetails,
    ) -> Result<(), ClientError> {
        self.send(wire::OPT_EXPORT_NAME, export.as_bytes())?;
        let mut reply = ExportReply::new(0, 0);
        self.stream.read_exact(reply.as_mut_bytes())?;
        details.set_export(reply);
        if !self.no_zeroes {
            self.stream.read_exact(&mut [0; wire::EXPORT_NAME_PADDING_BYTES])?;
        }
        Ok(())
    }
}

impl ExportDetails {
    fn set_export(&mut self, reply: ExportReply) {
        self.length = reply.length.get();
        self.flags = reply.flags.get();
    }
}

fn string(text: &str) -> Vec<u8> {
    let len = u32::try_from(text.len()).expect("names are short");
    [&len.to_be_bytes(), text.as_bytes()].concat()
}

fn text(bytes: &[u8]) -> Result<String, ClientError> {
    String::from_utf8(bytes.to_vec()).or(Err(protocol("it sent a name that is not UTF-8")))
}
