//! Connections of the control interface in memory, for fuzzing: requests are parsed as by a server,
//! and their commands checked as far as that needs no service.

use super::jobs::check_ranges;
use super::request::{ApiError, Request, json};
use super::routes::{Command, check_token, settings};
use super::server::http;
use super::token::Token;
use crate::changes::{assignment, difference};
use crate::plan::{Configuration, Plan};
use crate::settings::Assignment;
use crate::volume_source::VolumeSource;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper::service::service_fn;
use larder_schema::control::{AddRequest, ByteRange, ChangeResponse, SetRequest};
use std::cell::RefCell;
use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::sync::OnceLock;
use std::task::{Context, Poll};
use tokio::runtime::Runtime;

/// Size of the volume that ranges are checked against.
const VOLUME_BYTES: u64 = 1 << 30;

/// The responses of a server on a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conversation {
    /// The bytes that the server sent.
    pub output: Vec<u8>,
    /// Number of requests whose commands a service would execute.
    pub commands: usize,
}

/// A client that sends its input in pieces and then closes.
struct Client<'a> {
    input: &'a [u8],
    piece: usize,
    output: &'a RefCell<Vec<u8>>,
}

impl Read for Client<'_> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        mut buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let len = self.piece.min(buffer.remaining()).min(self.input.len());
        let (sent, rest) = self.input.split_at(len);
        buffer.put_slice(sent);
        self.input = rest;
        Poll::Ready(Ok(()))
    }
}

impl Write for Client<'_> {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.output.borrow_mut().extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

thread_local! {
    static RUNTIME: Runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("a timer needs no system resources");
}

/// Answers the bytes of a client, which arrive in pieces of at most `piece` bytes, on a socket with
/// this token or none.
///
/// # Panics
/// If an accepted command contradicts itself.
#[must_use]
pub fn converse(input: &[u8], piece: usize, token: Option<&str>) -> Conversation {
    let (token, output, commands) = (token.map(Token::of), RefCell::default(), RefCell::default());
    let answer = async |request: Request| {
        check_token(token.as_ref(), &request)?;
        let command = Command::parse(request).await?;
        check(&command)?;
        *commands.borrow_mut() += 1;
        Ok::<_, ApiError>(json(ChangeResponse::default()))
    };
    let answer = &answer;
    let service = service_fn(move |request| async move {
        Ok::<_, Infallible>(answer(request).await.unwrap_or_else(ApiError::into_response))
    });
    let client = Client { input, piece: piece.max(1), output: &output };
    RUNTIME.with(|runtime| {
        let serving =
            async { http().auto_date_header(false).serve_connection(client, service).await };
        // After an error the server closes the connection, which is what the client observes.
        runtime.block_on(serving).ok();
    });
    Conversation { output: output.take(), commands: commands.take() }
}

/// Returns the configuration of a server with two volumes.
fn configuration() -> &'static Configuration {
    static CONFIGURATION: OnceLock<Configuration> = OnceLock::new();
    CONFIGURATION.get_or_init(|| {
        let sources = ["disk=/disk", "a.b=/b"].map(VolumeSource::parse);
        Configuration {
            volumes: sources.into_iter().collect::<Result<_, _>>().expect("they are valid"),
            assignments: vec![Assignment::parse("memory", "64MiB")],
            ..Configuration::default()
        }
    })
}

/// Returns the plan of that server.
fn plan() -> &'static Plan {
    static PLAN: OnceLock<Plan> = OnceLock::new();
    PLAN.get_or_init(|| configuration().plan().expect("settings are valid"))
}

/// Checks a command as a service does.
fn check(command: &Command) -> Result<(), ApiError> {
    match command {
        Command::Set(request) => check_set(request),
        Command::Add(AddRequest { volume, set }) => {
            let added = configuration().plan_added(&plan().server, volume, set);
            let mut new = plan().clone();
            new.volumes.push(added.map_err(ApiError::refused)?);
            new.check().map_err(|error| ApiError::invalid(error.to_string()))
        }
        Command::Pin(request) | Command::Unpin(request) | Command::Warm(request) => {
            check_ranges(&request.ranges, VOLUME_BYTES)?;
            for ByteRange { offset, length } in &request.ranges {
                assert!(offset + length <= VOLUME_BYTES, "{request:?}");
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

/// Checks that applying the changes of a request again gives the same plan.
fn check_set(request: &SetRequest) -> Result<(), ApiError> {
    let old = plan();
    let new = old.with(&settings(request)).map_err(ApiError::invalid)?;
    let changes: Vec<_> = difference(old, &new).into_iter().map(assignment).collect();
    assert_eq!(old.with(&changes).as_ref(), Ok(&new), "{request:?}");
    Ok(())
}
