//! A client of the control interface, with one connection per request.

mod tcp_owner;

use crate::control::{Token, known_sockets};
use crate::runtime_directory::runtime_directory_path;
use crate::value::loopback;
use anyhow::{Context, Result, anyhow, bail, ensure};
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper::{Method, Request, Response, header};
use hyper_util::rt::TokioIo;
use larder_io::owned_file::is_trusted;
use larder_schema::control::{JobResult, Progress, Refusal};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::net::SocketAddr;
use std::os::unix::net::UnixStream as BlockingStream;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::runtime::Runtime;

/// Maximum length of a response; a longer one does not come from a Larder server.
const ANSWER_BYTES_MAX: usize = 64 << 20;

/// The address of a server.
#[derive(Clone, Debug)]
enum ServerAddress {
    Unix(PathBuf),
    Tcp(SocketAddr, Token),
}

/// A client of one server.
#[derive(Debug)]
pub struct Client {
    address: ServerAddress,
    /// A user whose server is trusted, in addition to this user and root.
    trusted_uid: Option<u32>,
    runtime: Runtime,
}

impl Client {
    /// Returns a client of the server that the command line names, or of the only server found.
    ///
    /// # Errors
    /// There is no such server, or there are several.
    pub fn find(
        server: Option<&str>,
        token: Option<&Path>,
        trusted_uid: Option<u32>,
    ) -> Result<Self> {
        let address = if let Some(server) = server {
            parse_server(server, token)?
        } else {
            ensure!(token.is_none(), "use --token: it needs --control http://127.0.0.1:PORT");
            ServerAddress::Unix(single_live_socket(known_sockets())?)
        };
        Client::new(address, trusted_uid)
    }

    /// Returns a client of the server with this control socket.
    ///
    /// # Errors
    /// A runtime cannot be started.
    pub fn at(socket: &Path) -> Result<Self> {
        Client::new(ServerAddress::Unix(socket.to_owned()), None)
    }

    /// Returns a client for each server in the runtime directory.
    ///
    /// # Errors
    /// A runtime cannot be started.
    pub fn all() -> Result<Vec<Self>> {
        let live = known_sockets().into_iter().filter(|path| try_connect(path).is_ok());
        live.map(|path| Client::new(ServerAddress::Unix(path), None)).collect()
    }

    fn new(address: ServerAddress, trusted_uid: Option<u32>) -> Result<Self> {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime =
            builder.enable_all().build().context("start a client of the control socket")?;
        Ok(Client { address, trusted_uid, runtime })
    }

    /// Returns the response to `GET /v1/NAME`.
    ///
    /// # Errors
    /// The server refuses the request, or does not answer.
    pub fn get<T: DeserializeOwned>(&self, name: &str) -> Result<T> {
        parse_answer(&self.get_text(&format!("/v1/{name}"))?)
    }

    /// Does the same, but does not wait longer than this for the response.
    ///
    /// # Errors
    /// The server refuses the request, or does not answer in time.
    pub fn get_within<T: DeserializeOwned>(&self, name: &str, time_max: Duration) -> Result<T> {
        let path = format!("/v1/{name}");
        let text = self.runtime.block_on(async {
            let answer = tokio::time::timeout(time_max, self.text_of(&path)).await;
            answer.context("wait for the answer of the server")?
        });
        parse_answer(&text?)
    }

    /// Returns the response to `GET path` as text.
    ///
    /// # Errors
    /// The server refuses the request, or does not answer.
    pub fn get_text(&self, path: &str) -> Result<String> {
        self.runtime.block_on(self.text_of(path))
    }

    async fn text_of(&self, path: &str) -> Result<String> {
        read_body(&mut self.send_request(Method::GET, path, Bytes::new()).await?).await
    }

    /// Returns the response to `POST /v1/NAME`.
    ///
    /// # Errors
    /// The server refuses the request, or does not answer.
    pub fn post<B: Serialize, T: DeserializeOwned>(&self, name: &str, body: &B) -> Result<T> {
        let text = self
            .runtime
            .block_on(async { read_body(&mut self.send_post(name, body).await?).await });
        parse_answer(&text?)
    }

    /// Sends `POST /v1/NAME` and calls `on_progress` for each line of the response; returns the
    /// result.
    ///
    /// # Errors
    /// The server refuses the request, or ends without a result.
    pub fn follow<B: Serialize>(
        &self,
        name: &str,
        body: &B,
        mut on_progress: impl FnMut(&Progress),
    ) -> Result<JobResult> {
        self.runtime.block_on(async {
            let mut response = self.send_post(name, body).await?;
            let mut text = Vec::new();
            while let Some(frame) = response.frame().await {
                let frame =
                    frame.context("follow the progress: the server closed the connection")?;
                text.extend_from_slice(&frame.into_data().unwrap_or_default());
                while let Some(end) = text.iter().position(|&byte| byte == b'\n') {
                    let line: Vec<u8> = text.drain(..=end).collect();
                    match serde_json::from_slice(&line).context("read the answer")? {
                        Progress::Done(result) => return Ok(result),
                        progress => on_progress(&progress),
                    }
                }
            }
            bail!("get the result: the server closed the connection")
        })
    }

    async fn send_post<B: Serialize>(&self, name: &str, body: &B) -> Result<Response<Incoming>> {
        let body = serde_json::to_vec(body)?;
        self.send_request(Method::POST, &format!("/v1/{name}"), body.into()).await
    }

    async fn send_request(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Result<Response<Incoming>> {
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, "larder")
            .header(header::CONNECTION, "close");
        let unreachable = |error| self.no_server_error(&error);
        let result = match &self.address {
            ServerAddress::Unix(path) => {
                let stream = UnixStream::connect(path).await.map_err(unreachable)?;
                let owner = stream.peer_cred().context("get the user of the server")?.uid();
                self.check_owners(&[owner])?;
                send(stream, request.body(Full::new(body))?).await
            }
            ServerAddress::Tcp(address, token) => {
                let stream = TcpStream::connect(address).await.map_err(unreachable)?;
                let owners =
                    stream.local_addr().and_then(|local| tcp_owner::owners(*address, local));
                let context = || format!("get the user of the server at {}", self.address);
                self.check_owners(&owners.with_context(context)?)?;
                request = request.header(header::AUTHORIZATION, token.header());
                send(stream, request.body(Full::new(body))?).await
            }
        };
        // The name that larder gives to control sockets.
        let is_named_for_control = match &self.address {
            ServerAddress::Unix(path) => path.extension().is_some_and(|ending| ending == "control"),
            ServerAddress::Tcp(..) => true,
        };
        let mut response = result.map_err(|error| match error.downcast::<hyper::Error>() {
            // Another server, for example of NBD, may also close the connection first.
            Ok(error) if error.is_parse() || !is_named_for_control => anyhow!(
                "query {}: it is not a control socket of larder; their names end in .control",
                self.address
            ),
            Ok(error) => anyhow!("talk to the server at {}: {error}", self.address),
            Err(error) => error.context(format!("talk to the server at {}", self.address)),
        })?;
        if response.status().is_success() {
            return Ok(response);
        }
        let status = response.status();
        let text = read_body(&mut response).await?;
        match serde_json::from_str::<Refusal>(&text) {
            Ok(refusal) => Err(anyhow!(refusal.error)),
            Err(_) => Err(anyhow!("get an answer: the server sent status {status}")),
        }
    }

    /// Checks that the users of a server are trusted, before the client sends a request.
    fn check_owners(&self, owners: &[u32]) -> Result<()> {
        let is_accepted = |owner: u32| is_trusted(owner) || self.trusted_uid == Some(owner);
        let Some(owner) = owners.iter().find(|owner| !is_accepted(**owner)) else { return Ok(()) };
        bail!(
            "trust the server at {}: it runs as uid {owner}, and not as you or root; \
             to use it nevertheless, add --trust-uid {owner}",
            self.address
        )
    }

    fn no_server_error(&self, error: &std::io::Error) -> anyhow::Error {
        use std::io::ErrorKind::{ConnectionRefused, NotFound, PermissionDenied};
        let reason = match error.kind() {
            NotFound => "there is no such socket; is larder serve running?".to_owned(),
            ConnectionRefused => "no process listens there; is larder serve running?".to_owned(),
            PermissionDenied => "only the user of the server may connect".to_owned(),
            _ => error.to_string(),
        };
        anyhow!("reach a server at {}: {reason}", self.address)
    }
}

impl std::fmt::Display for ServerAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ServerAddress::Unix(path) => write!(f, "{}", path.display()),
            ServerAddress::Tcp(address, _) => write!(f, "http://{address}"),
        }
    }
}

/// Parses a server on the command line.
fn parse_server(server: &str, token: Option<&Path>) -> Result<ServerAddress> {
    let Some(address) = server.strip_prefix("http://") else {
        ensure!(token.is_none(), "use --token: a socket of this machine needs none");
        let path = server.strip_prefix("unix:").unwrap_or(server);
        return Ok(ServerAddress::Unix(path.into()));
    };
    let address = address.trim_end_matches('/');
    let address = loopback(address).map_err(|error| anyhow!("use {server}: {error}"))?;
    let token = token.with_context(|| format!("use {server}: it needs --token FILE"))?;
    Ok(ServerAddress::Tcp(address, Token::read(token)?))
}

/// Connects to a socket; fails unless a trusted server listens there.
fn try_connect(path: &Path) -> std::io::Result<()> {
    let stream = BlockingStream::connect(path)?;
    let owner = rustix::net::sockopt::socket_peercred(&stream)?.uid.as_raw();
    if is_trusted(owner) { Ok(()) } else { Err(std::io::ErrorKind::PermissionDenied.into()) }
}

/// Returns the path of the directory in which clients look for servers, for a message.
#[must_use]
pub fn socket_directory() -> String {
    let missing = |_| "the runtime directory, which this user does not have".to_owned();
    runtime_directory_path().map_or_else(missing, |path| path.display().to_string())
}

/// Returns the only socket with a live, trusted server.
fn single_live_socket(sockets: Vec<PathBuf>) -> Result<PathBuf> {
    let (mut live, mut others) = (Vec::new(), Vec::new());
    let is_any = !sockets.is_empty();
    for path in sockets {
        match try_connect(&path) {
            Ok(()) => live.push(path),
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => others.push(path),
            Err(_) => {}
        }
    }
    match (live.len(), others.first()) {
        (0, Some(path)) => bail!(
            "find a server: {} belongs to another user, and only that user and root may use it; \
             run larder ctl as that user",
            path.display()
        ),
        (0, None) => bail!(
            "find a server: {} control socket in {}; start larder serve, or name the socket of a \
             running server with --control",
            if is_any { "none answers at a" } else { "none has a" },
            socket_directory()
        ),
        (1, _) => Ok(live.remove(0)),
        _ => {
            let live: Vec<_> = live.iter().map(|path| path.display().to_string()).collect();
            bail!(
                "choose a server: several are running; name one with --control: {}",
                live.join(", ")
            )
        }
    }
}

fn parse_answer<T: DeserializeOwned>(text: &str) -> Result<T> {
    serde_json::from_str(text).context("read the answer: it is not that of a larder server")
}

async fn send<S>(stream: S, request: Request<Full<Bytes>>) -> Result<Response<Incoming>>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(%error, "the connection to the server ended with an error");
        }
    });
    Ok(sender.send_request(request).await?)
}

async fn read_body(response: &mut Response<Incoming>) -> Result<String> {
    let body = http_body_util::Limited::new(response.body_mut(), ANSWER_BYTES_MAX);
    let bytes = body.collect().await.map_err(|error| anyhow!("read the answer: {error}"))?;
    String::from_utf8(bytes.to_bytes().to_vec()).context("read the answer")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_does_not_answer_is_not_waited_for() {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("control.sock");
        let _silent = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        let client = Client::at(&socket).unwrap();
        let answer = client.get_within::<serde_json::Value>("stats", Duration::from_millis(10));
        let error = format!("{:#}", answer.unwrap_err());
        assert!(error.starts_with("wait for the answer of the server: "), "{error}");
    }
}
