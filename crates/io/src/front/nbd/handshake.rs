//! The server's side of the NBD handshake, without any I/O.
//!
//! NBD's proto.md, "Handshake phase": fixed newstyle. The caller passes the client's bytes to
//! [`Handshake::feed`], in pieces of any size, and gets bytes for the client. The handshake buffers
//! at most one option, and only the received part of it: it skips an option that is too long or
//! unknown. The number of options and the size of the output are limited, so a client can neither
//! keep the server busy for ever nor make it use more memory. The caller limits the time: it closes
//! a connection whose handshake takes too long.
//!
//! The caller also does TLS: the handshake reports when it has to begin ([`Progress::StartTls`]),
//! and is fed the decrypted bytes from then on.
//!
//! The handshake answers each message of the client as the protocol says (after an error reply, the
//! client may continue). Where the protocol has no reply, it ends the session with a
//! [`HandshakeError`].

mod answers;
mod export;
mod options;
#[cfg(test)]
mod tests;

pub use crate::nbd_wire::BlockSizes;
pub use export::{ExportFault, ExportInfo};

use crate::nbd_wire::{self as wire, BadMagic, OPTION_HEADER_BYTES, OptionHeader, ServerGreeting};
use crate::tls::TlsMode;
use options::OptionRefusal;
use zerocopy::IntoBytes;

const CLIENT_FLAGS_BYTES: usize = 4;
/// Output size above which the caller sends the output before the next option is answered.
const OUTPUT_BYTES_MAX: usize = 16 << 10;
/// Maximum capacity of the buffer between two options.
const RETAINED_BYTES_MAX: usize = 4 << 10;

/// Limits of one handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HandshakeLimits {
    /// Maximum data of one option, in bytes; the handshake refuses and skips longer ones.
    pub option_bytes_max: u32,
    /// Maximum number of options.
    pub options_max: u32,
    /// Maximum length of a requested export name, in bytes.
    pub name_bytes_max: u32,
    /// Maximum size of the output, in bytes.
    pub output_bytes_max: usize,
}

impl Default for HandshakeLimits {
    /// 16 KiB an option, which is the longest export name with hundreds of queries for contexts,
    /// 128 options, names of 4096 bytes as in the protocol, and output for a list of 128 exports
    /// with the longest names and descriptions, a little over 1 MiB.
    fn default() -> Self {
        Self {
            option_bytes_max: 16 << 10,
            options_max: 128,
            name_bytes_max: wire::STRING_BYTES_MAX,
            output_bytes_max: (1 << 20) + (64 << 10),
        }
    }
}

/// Result of a handshake, for the transmission phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Negotiated {
    /// Index of the export in the argument of [`Handshake::new`].
    pub export: usize,
    /// Transmission flags that were sent to the client.
    pub flags: u16,
    /// True if structured replies were negotiated.
    pub structured: bool,
    /// True if `BLOCK_STATUS` is allowed, for `base:allocation` with [`wire::BASE_ALLOCATION_ID`].
    pub base_allocation: bool,
    /// True if no zeros follow the reply to `EXPORT_NAME`; used by tests.
    pub no_zeroes: bool,
}

/// Progress of a handshake: the caller's next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// All input was used: send the output and feed more.
    NeedMore,
    /// Send the output, then pass the rest of the input again. This bounds the output for a client
    /// that sends options without reading the answers.
    SendFirst,
    /// Send the output, then begin TLS. The input that was not consumed is the first of TLS. From
    /// now on, feed only decrypted bytes, and none that arrived in clear.
    StartTls,
    /// Send the output; the input that was not consumed is the first of the transmission phase.
    Transmission(Negotiated),
    /// The client ended the session; send the output and close.
    Aborted,
}

/// The session has failed: send the available output and close.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HandshakeError {
    /// The client set flags that were not offered.
    #[error("the NBD client set unknown flags {0:#x}")]
    UnknownClientFlags(u32),
    /// The client sent something else than an option header.
    #[error("the NBD client sent something else than an option: {0}")]
    NotAnOption(BadMagic),
    /// An option other than `EXPORT_NAME` without fixed newstyle, where options have no error
    /// replies.
    #[error("the NBD client sent option {0} without fixed newstyle, where only EXPORT_NAME may be")]
    NotFixed(u32),
    /// `EXPORT_NAME` for an unknown export.
    #[error("the NBD client asked for export {0:?}, which is not there")]
    UnknownExport(String),
    /// `EXPORT_NAME` before TLS. This option has no error reply.
    #[error("the NBD client asked for an export without TLS, which is required")]
    TlsRequired,
    /// `EXPORT_NAME` with a name that is too long.
    #[error("the NBD client asked for an export by a name of {0} bytes")]
    NameTooLong(u32),
    /// The client sent too many options.
    #[error("the NBD client sent more than {0} options")]
    TooManyOptions(u32),
    /// The replies to the client exceed the maximum size of the output.
    #[error("the NBD client asked for more than a handshake may send")]
    TooMuchOutput,
    /// [`Handshake::feed`] was called again after an error.
    #[error("the NBD handshake has failed before")]
    Failed,
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// Nothing sent yet.
    Start,
    ClientFlags,
    OptionHeader,
    /// Option data that is parsed.
    OptionData {
        option: u32,
        len: u32,
    },
    /// Option data that is skipped, `left` bytes of it; the answer follows.
    Skip {
        option: u32,
        left: u32,
        answer: Answer,
    },
    Done(Progress),
    Failed,
}

/// Transport of the client's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ClientTransport {
    Clear,
    /// TLS begins once the output is sent.
    StartingTls,
    Tls,
}

/// Answer to an option whose data is ignored.
#[derive(Clone, Copy, Debug)]
enum Answer {
    Ack,
    Abort,
    List,
    Structured,
    StartTls,
    Refuse(OptionRefusal),
}

/// One handshake with one client.
#[derive(Debug)]
pub struct Handshake {
    exports: Vec<ExportInfo>,
    limits: HandshakeLimits,
    state: State,
    /// Received part of a header or of option data.
    buffer: Vec<u8>,
    options_seen: u32,
    output_bytes_left: usize,
    tls: TlsMode,
    transport: ClientTransport,
    fixed_newstyle: bool,
    no_zeroes: bool,
    structured: bool,
    /// Index of the export for which the client last selected `base:allocation`.
    context_export: Option<usize>,
}

impl Handshake {
    /// Returns a handshake that offers these exports, each of which has passed
    /// [`ExportInfo::check`]. The first call of [`Handshake::feed`], which may be without input,
    /// outputs the greeting.
    #[must_use]
    pub fn new(exports: &[ExportInfo], limits: HandshakeLimits) -> Self {
        debug_assert!(exports.iter().all(|export| export.check().is_ok()), "exports are checked");
        Self {
            exports: exports.to_vec(),
            limits,
            state: State::Start,
            buffer: Vec::new(),
            options_seen: 0,
            output_bytes_left: limits.output_bytes_max,
            tls: TlsMode::Off,
            transport: ClientTransport::Clear,
            fixed_newstyle: false,
            no_zeroes: false,
            structured: false,
            context_export: None,
        }
    }

    /// Sets the TLS mode.
    #[must_use]
    pub fn with_tls(self, tls: TlsMode) -> Self {
        Self { tls, ..self }
    }

    /// Takes bytes from the client and appends bytes for it. Returns the number of input bytes that
    /// were used: all of them, unless the handshake has ended or the output has to be sent first.
    ///
    /// # Errors
    /// If the session has failed. The bytes in `output` may still be sent.
    pub fn feed(
        &mut self,
        input: &[u8],
        output: &mut Vec<u8>,
    ) -> Result<(usize, Progress), HandshakeError> {
        let mut rest = input;
        let send_first_above = output.len() + OUTPUT_BYTES_MAX;
        loop {
            match self.step(&mut rest, output) {
                Ok(None) if output.len() > send_first_above && !rest.is_empty() => {
                    return Ok((input.len() - rest.len(), Progress::SendFirst));
                }
                Ok(None) => {}
                Ok(Some(progress)) => return Ok((input.len() - rest.len(), progress)),
                Err(error) => {
                    self.state = State::Failed;
                    self.buffer = Vec::new();
                    return Err(error);
                }
            }
        }
    }

    /// Makes one step of the state machine; `None` if the next step can follow at once.
    fn step(
        &mut self,
        rest: &mut &[u8],
        output: &mut Vec<u8>,
    ) -> Result<Option<Progress>, HandshakeError> {
        if self.transport == ClientTransport::StartingTls {
            self.transport = ClientTransport::Tls;
            return Ok(Some(Progress::StartTls));
        }
        match self.state {
            State::Start => {
                let flags = wire::FLAG_FIXED_NEWSTYLE | wire::FLAG_NO_ZEROES;
                self.replies(output).push(&[ServerGreeting::new(flags).as_bytes()])?;
                self.state = State::ClientFlags;
            }
            State::ClientFlags => {
                if !self.gather(rest, CLIENT_FLAGS_BYTES) {
                    return Ok(Some(Progress::NeedMore));
                }
                self.take_client_flags()?;
            }
            State::OptionHeader => {
                if !self.gather(rest, OPTION_HEADER_BYTES) {
                    return Ok(Some(Progress::NeedMore));
                }
                self.state = self.take_option_header()?;
            }
            State::OptionData { option, len } => {
                if !self.gather(rest, len as usize) {
                    return Ok(Some(Progress::NeedMore));
                }
                let data = std::mem::take(&mut self.buffer);
                self.state = State::OptionHeader;
                self.answer_data(option, &data, output)?;
                if data.capacity() <= RETAINED_BYTES_MAX {
                    self.buffer = data;
                    self.buffer.clear();
                }
            }
            State::Skip { option, left, answer } => {
                let skipped = rest.len().min(left as usize);
                *rest = &rest[skipped..];
                let left = left - u32::try_from(skipped).expect("no more than what was left");
                if left > 0 {
                    self.state = State::Skip { option, left, answer };
                    return Ok(Some(Progress::NeedMore));
                }
                self.state = State::OptionHeader;
                self.answer(option, answer, output)?;
            }
            State::Done(progress) => return Ok(Some(progress)),
            State::Failed => return Err(HandshakeError::Failed),
        }
        Ok(None)
    }

    /// Moves input to the buffer until it holds `len` bytes; false if the input is too short.
    fn gather(&mut self, rest: &mut &[u8], len: usize) -> bool {
        debug_assert!(self.buffer.len() <= len, "the buffer holds one message");
        let missing = len - self.buffer.len();
        let (head, tail) = rest.split_at(rest.len().min(missing));
        if !head.is_empty() {
            self.buffer.reserve_exact(missing);
        }
        self.buffer.extend_from_slice(head);
        *rest = tail;
        self.buffer.len() == len
    }

    /// Takes the whole fixed-size message out of the buffer.
    fn take_array<const N: usize>(&mut self) -> [u8; N] {
        let bytes = self.buffer[..].try_into().expect("gathered to this length");
        self.buffer.clear();
        bytes
    }

    fn take_client_flags(&mut self) -> Result<(), HandshakeError> {
        let flags = u32::from_be_bytes(self.take_array());
        let unknown = flags & !(wire::CLIENT_FIXED_NEWSTYLE | wire::CLIENT_NO_ZEROES);
        if unknown != 0 {
            return Err(HandshakeError::UnknownClientFlags(unknown));
        }
        self.fixed_newstyle = flags & wire::CLIENT_FIXED_NEWSTYLE != 0;
        self.no_zeroes = flags & wire::CLIENT_NO_ZEROES != 0;
        self.state = State::OptionHeader;
        Ok(())
    }

    fn take_option_header(&mut self) -> Result<State, HandshakeError> {
        let (option, len) =
            OptionHeader::parse(self.take_array()).map_err(HandshakeError::NotAnOption)?;
        self.options_seen += 1;
        if self.options_seen > self.limits.options_max {
            return Err(HandshakeError::TooManyOptions(self.limits.options_max));
        }
        if !self.fixed_newstyle && option != wire::OPT_EXPORT_NAME {
            return Err(HandshakeError::NotFixed(option));
        }
        let in_clear = self.tls == TlsMode::Required && self.transport == ClientTransport::Clear;
        if in_clear && !matches!(option, wire::OPT_STARTTLS | wire::OPT_ABORT) {
            if option == wire::OPT_EXPORT_NAME {
                return Err(HandshakeError::TlsRequired);
            }
            let text = "this server requires TLS";
            let answer = Answer::Refuse(OptionRefusal { reply: wire::REP_ERR_TLS_REQD, text });
            return Ok(State::Skip { option, left: len, answer });
        }
        let without_data = |answer| match len {
            0 => answer,
            _ => Answer::Refuse(OptionRefusal::invalid("this option has no data")),
        };
        let answer = match option {
            wire::OPT_EXPORT_NAME if len > self.limits.name_bytes_max => {
                return Err(HandshakeError::NameTooLong(len));
            }
            wire::OPT_EXPORT_NAME => return Ok(State::OptionData { option, len }),
            wire::OPT_ABORT => Answer::Abort,
            wire::OPT_LIST => without_data(Answer::List),
            wire::OPT_STRUCTURED_REPLY => without_data(Answer::Structured),
            wire::OPT_STARTTLS => without_data(self.answer_to_starttls()),
            wire::OPT_INFO
            | wire::OPT_GO
            | wire::OPT_LIST_META_CONTEXT
            | wire::OPT_SET_META_CONTEXT => {
                if option == wire::OPT_SET_META_CONTEXT {
                    // A new selection replaces the old one even when it fails.
                    self.context_export = None;
                }
                if len <= self.limits.option_bytes_max {
                    return Ok(State::OptionData { option, len });
                }
                Answer::Refuse(OptionRefusal::too_big("the option's data are too long"))
            }
            _ => Answer::Refuse(OptionRefusal {
                reply: wire::REP_ERR_UNSUP,
                text: "this server does not know the option",
            }),
        };
        Ok(State::Skip { option, left: len, answer })
    }

    fn answer_to_starttls(&self) -> Answer {
        match self.tls {
            TlsMode::Off => Answer::Refuse(OptionRefusal {
                reply: wire::REP_ERR_UNSUP,
                text: "this server has no TLS",
            }),
            _ if self.transport != ClientTransport::Clear => {
                Answer::Refuse(OptionRefusal::invalid("TLS has begun already"))
            }
            TlsMode::Allowed | TlsMode::Required => Answer::StartTls,
        }
    }
}
