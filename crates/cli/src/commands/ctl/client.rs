//! A client of the control interface: one connection for each question.

use super::tcp_owner;
use crate::control::{Token, known_sockets};
use anyhow::{Context, Result, anyhow, bail, ensure};
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper::{Method, Request, Response, header};
use hyper_util::rt::TokioIo;
use larder_io::owned_file::is_trusted;
use larder_report::control::{Progress, Refusal};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::net::SocketAddr;
use std::os::unix::net::UnixStream as BlockingStream;
use std::path::{Path, PathBuf};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::runtime::Runtime;

/// Maximum length of an answer; a longer one does not come from a Larder server.
const ANSWER_BYTES_MAX: usize = 64 << 20;

/// Where the server is.
#[derive(Clone, Debug)]
enum Place {
    Unix(PathBuf),
    Tcp(SocketAddr, Token),
}

/// A way to ask a server.
#[derive(Debug)]
pub(crate) struct Client {
    place: Place,
    /// A user whose server is trusted, in addition to this user and root.
    trusted_uid: Option<u32>,
    runtime: Runtime,
}

impl Client {
    /// The server that the command line names, or the only one that there is.
    pub(super) fn find(
        server: Option<&str>,
        token: Option<&Path>,
        trusted_uid: Option<u32>,
    ) -> Result<Self> {
        let place = if let Some(server) = server {
            named(server, token)?
        } else {
            ensure!(token.is_none(), "use --token: it needs --control http://127.0.0.1:PORT");
            Place::Unix(only_one(known_sockets())?)
        };
        Ok(Client { place, trusted_uid, runtime: runtime()? })
    }

    /// The server with this control socket.
    pub(crate) fn at(socket: &Path) -> Result<Self> {
        let place = Place::Unix(socket.to_owned());
        Ok(Client { place, trusted_uid: None, runtime: runtime()? })
    }

    /// A way to each server that listens in the usual places.
    pub(crate) fn all() -> Result<Vec<Self>> {
        let mut clients = Vec::new();
        for path in known_sockets() {
            if try_connect(&path).is_ok() {
                let place = Place::Unix(path);
                clients.push(Client { place, trusted_uid: None, runtime: runtime()? });
            }
        }
        Ok(clients)
    }

    /// What the server answers to `GET /v1/NAME`.
    pub(crate) fn get<T: DeserializeOwned>(&self, name: &str) -> Result<T> {
        let text = self.get_text(&format!("/v1/{name}"))?;
        serde_json::from_str(&text).context("understand the answer: is it a server of larder?")
    }

    /// What the server answers to `GET path`, as it is.
    pub(super) fn get_text(&self, path: &str) -> Result<String> {
        self.runtime.block_on(async {
            let mut response = self.send_request(Method::GET, path, Bytes::new()).await?;
            read_body(&mut response).await
        })
    }

    /// What the server answers to `POST /v1/NAME`.
    pub(super) fn post<B: Serialize, T: DeserializeOwned>(
        &self,
        name: &str,
        body: &B,
    ) -> Result<T> {
        let body = serde_json::to_vec(body)?;
        self.runtime.block_on(async {
            let mut response =
                self.send_request(Method::POST, &format!("/v1/{name}"), body.into()).await?;
            let text = read_body(&mut response).await?;
            serde_json::from_str(&text).context("understand the answer: is it a server of larder?")
        })
    }

    /// Tells `told` each line of what the server answers to `POST /v1/NAME`; at the end, how many
    /// bytes were done and what went wrong.
    pub(crate) fn follow<B: Serialize>(
        &self,
        name: &str,
        body: &B,
        mut told: impl FnMut(&Progress),
    ) -> Result<(u64, Vec<String>)> {
        let body = serde_json::to_vec(body)?;
        self.runtime.block_on(async {
            let mut response =
                self.send_request(Method::POST, &format!("/v1/{name}"), body.into()).await?;
            let mut text = Vec::new();
            while let Some(frame) = response.frame().await {
                let frame = frame.context("hear how far it is: the server has gone")?;
                text.extend_from_slice(&frame.into_data().unwrap_or_default());
                while let Some(end) = text.iter().position(|&byte| byte == b'\n') {
                    let line: Vec<u8> = text.drain(..=end).collect();
                    match serde_json::from_slice(&line).context("understand the answer")? {
                        Progress::Done { done_bytes, failures } => {
                            return Ok((done_bytes, failures));
                        }
                        progress @ Progress::Volume { .. } => told(&progress),
                    }
                }
            }
            bail!("hear how it ended: the server has gone")
        })
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
        let sent = match &self.place {
            Place::Unix(path) => {
                let stream = UnixStream::connect(path)
                    .await
                    .map_err(|error| self.no_server_error(&error))?;
                let owner = stream.peer_cred().context("get the user of the server")?.uid();
                self.check_owners(&[owner])?;
                send(stream, request.body(Full::new(body))?).await
            }
            Place::Tcp(address, token) => {
                let stream = TcpStream::connect(address)
                    .await
                    .map_err(|error| self.no_server_error(&error))?;
                let owners = stream.local_addr().and_then(|own| tcp_owner::owners(*address, own));
                let what = || format!("get the user of the server at {}", self.place);
                self.check_owners(&owners.with_context(what)?)?;
                request = request.header(header::AUTHORIZATION, token.header());
                send(stream, request.body(Full::new(body))?).await
            }
        };
        let mut response = sent.map_err(|error| match error.downcast::<hyper::Error>() {
            // Another server, of NBD for one, may also close the connection first.
            Ok(error) if error.is_parse() || !self.place.is_named_for_control() => anyhow!(
                "ask {}: it does not answer as a control socket of larder, whose name ends in \
                 .control",
                self.place
            ),
            Ok(error) => anyhow!("talk to the server at {}: {error}", self.place),
            Err(error) => error.context(format!("talk to the server at {}", self.place)),
        })?;
        if response.status().is_success() {
            return Ok(response);
        }
        let status = response.status();
        let text = read_body(&mut response).await?;
        match serde_json::from_str::<Refusal>(&text) {
            Ok(refusal) => Err(anyhow!(refusal.error)),
            Err(_) => Err(anyhow!("understand the answer: {status}")),
        }
    }

    /// Checks that the users of a server are trusted, before the server gets a request.
    fn check_owners(&self, owners: &[u32]) -> Result<()> {
        let is_accepted = |owner: u32| is_trusted(owner) || self.trusted_uid == Some(owner);
        let Some(owner) = owners.iter().find(|owner| !is_accepted(**owner)) else { return Ok(()) };
        bail!(
            "trust the server at {}: it runs as uid {owner}, and not as you or root; \
             --trust-uid {owner} asks it all the same",
            self.place
        )
    }

    fn no_server_error(&self, error: &std::io::Error) -> anyhow::Error {
        use std::io::ErrorKind::{ConnectionRefused, NotFound, PermissionDenied};
        let why = match error.kind() {
            NotFound => "there is no such socket; is larder serve running?".to_owned(),
            ConnectionRefused => "nobody listens there; is larder serve running?".to_owned(),
            PermissionDenied => "only the user who runs the server may".to_owned(),
            _ => error.to_string(),
        };
        anyhow!("reach a server at {}: {why}", self.place)
    }
}

impl Place {
    /// True if it is an address, or a socket with the name that larder gives to control sockets.
    fn is_named_for_control(&self) -> bool {
        match self {
            Place::Unix(path) => path.extension().is_some_and(|ending| ending == "control"),
            Place::Tcp(..) => true,
        }
    }
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Place::Unix(path) => write!(f, "{}", path.display()),
            Place::Tcp(address, _) => write!(f, "http://{address}"),
        }
    }
}

/// A server by its name on the command line.
fn named(server: &str, token: Option<&Path>) -> Result<Place> {
    let Some(address) = server.strip_prefix("http://") else {
        ensure!(token.is_none(), "use --token: a socket of this machine needs none");
        let path = server.strip_prefix("unix:").unwrap_or(server);
        return Ok(Place::Unix(path.into()));
    };
    let address = address.trim_end_matches('/');
    let address =
        crate::args::loopback(address).map_err(|error| anyhow!("use {server}: {error}"))?;
    let token = token.with_context(|| format!("use {server}: it needs --token FILE"))?;
    Ok(Place::Tcp(address, Token::read(token)?))
}

/// Returns whether a trusted server listens there.
fn try_connect(path: &Path) -> std::io::Result<()> {
    let stream = BlockingStream::connect(path)?;
    let owner = rustix::net::sockopt::socket_peercred(&stream)?.uid.as_raw();
    if is_trusted(owner) { Ok(()) } else { Err(std::io::ErrorKind::PermissionDenied.into()) }
}

/// The only socket at which somebody listens.
fn only_one(found: Vec<PathBuf>) -> Result<PathBuf> {
    let (mut live, mut others) = (Vec::new(), Vec::new());
    for path in found {
        match try_connect(&path) {
            Ok(()) => live.push(path),
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => others.push(path),
            Err(_) => {}
        }
    }
    match (live.len(), others.first()) {
        (0, Some(path)) => bail!(
            "find a server that you may ask: {} is another user's, and only the user who runs the \
             server may",
            path.display()
        ),
        (0, None) => bail!(
            "find a server: none listens in the usual places; is larder serve running? Name its \
             control socket with --control"
        ),
        (1, _) => Ok(live.remove(0)),
        _ => {
            let live: Vec<_> = live.iter().map(|path| path.display().to_string()).collect();
            bail!("choose a server: name one with --control, of {}", live.join(", "))
        }
    }
}

fn runtime() -> Result<Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build().context("start to ask")
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
    String::from_utf8(bytes.to_bytes().to_vec()).context("understand the answer")
}
