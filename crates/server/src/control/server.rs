//! The thread of the control interface, and the limits on clients.

use super::bodies::BodyBudget;
use super::connections::{Connection, Connections};
use super::jobs::JOBS_MAX;
use super::live_stream::LiveStream;
use super::routes::Api;
use super::token::Token;
use crate::service::Service;
use anyhow::{Context, Result};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use larder_io::fault::{self, Thread, confine, confine_future, report_failed_part};
use larder_io::front::listen::{ListenAddress, Listener};
use larder_io::owned_file::is_trusted;
use std::convert::Infallible;
use std::fmt;
use std::future::{Future, poll_fn};
use std::io;
use std::os::fd::AsFd;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// Buffer size for the head of a request; longer heads are refused.
const BUFFER_BYTES_MAX: usize = 16 << 10;
/// Time limit for the head of a request, also on a connection that waits for the next one.
const HEAD_TIME_MAX: Duration = Duration::from_secs(10);
/// Time limit for the first byte of a client, and then for its token.
const PROOF_TIME_MAX: Duration = Duration::from_secs(2);
/// Time limit for a client that receives nothing of a response.
const WRITE_TIME_MAX: Duration = Duration::from_secs(10);
/// Time limit for requests in progress at shutdown.
const SHUTDOWN_TIME_MAX: Duration = Duration::from_secs(5);
/// Blocking threads: one per job, one for adding volumes (one volume at a time), and one for short
/// operations.
const BLOCKING_THREADS_MAX: usize = JOBS_MAX + 2;

/// Effect of a panic on a connection, for the log.
const CLOSED: &str = "a control connection was closed";

/// A listening socket, and the token that its clients must present.
#[derive(Debug)]
pub(super) struct ControlListener {
    pub(super) listener: Listener,
    pub(super) token: Option<Token>,
}

/// The running control interface.
#[derive(Debug)]
pub struct Control {
    closing: watch::Sender<bool>,
    thread: Option<Thread>,
}

impl Control {
    /// Shuts the interface down, once the responses in progress have been sent.
    pub(crate) fn close(mut self) {
        self.shut_down();
    }

    fn shut_down(&mut self) {
        self.closing.send_replace(true);
        if let Some(thread) = self.thread.take() {
            thread.join();
        }
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        self.shut_down();
    }
}

/// Starts the thread.
pub(super) fn start(listeners: Vec<ControlListener>, service: &Arc<Service>) -> Result<Control> {
    let (closing, closed) = watch::channel(false);
    if listeners.is_empty() {
        return Ok(Control { closing, thread: None });
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(BLOCKING_THREADS_MAX)
        .thread_keep_alive(Duration::from_secs(1))
        .build()
        .context("start the control interface")?;
    let cache = Arc::clone(service.engine.cache());
    let service = Arc::clone(service);
    let run = move || {
        runtime.block_on(serve(listeners, &service, closed));
        runtime.shutdown_timeout(SHUTDOWN_TIME_MAX);
    };
    let thread = fault::spawn("control", Some(&cache), run, report_end);
    let thread = thread.context("start the control interface")?;
    Ok(Control { closing, thread: Some(thread) })
}

fn report_end(error: &dyn fmt::Display) {
    report_failed_part("the server cannot be controlled any more; its volumes are served", error);
}

async fn serve(
    listeners: Vec<ControlListener>,
    service: &Arc<Service>,
    closed: watch::Receiver<bool>,
) {
    let (bodies, mut tasks) = (BodyBudget::default(), Vec::new());
    for listener in listeners {
        let address = listener.listener.address().clone();
        let acceptor = Acceptor {
            api: Arc::new(Api::new(Arc::clone(service), listener.token, bodies.clone())),
            connections: Connections::default(),
            closed: closed.clone(),
        };
        match acceptor.spawn(listener.listener) {
            Ok(task) => tasks.push(task),
            Err(error) => tracing::error!(%address, %error, "cannot be controlled there"),
        }
    }
    for task in tasks {
        if let Err(error) = task.await {
            report_end(&error);
        }
    }
}

/// Returns the result of `work`, or `None` if the interface closes first.
async fn until_closed<T>(
    closed: &mut watch::Receiver<bool>,
    work: impl Future<Output = T>,
) -> Option<T> {
    // An error means that the sender was dropped, which also is a shutdown.
    let (mut end, mut work) = (pin!(closed.wait_for(|closed| *closed)), pin!(work));
    // The shutdown is polled first, so that busy clients cannot delay it.
    poll_fn(|context| match end.as_mut().poll(context) {
        Poll::Ready(_) => Poll::Ready(None),
        Poll::Pending => work.as_mut().poll(context).map(Some),
    })
    .await
}

/// Accepts the connections of one listener.
struct Acceptor {
    api: Arc<Api>,
    connections: Connections,
    closed: watch::Receiver<bool>,
}

/// A stream that reports incoming data.
trait Peer: AsyncRead + AsyncWrite + Unpin + Send + 'static {
    fn has_input(&self) -> impl Future<Output = io::Result<()>> + Send;
}

impl Peer for UnixStream {
    fn has_input(&self) -> impl Future<Output = io::Result<()>> + Send {
        self.readable()
    }
}

impl Peer for TcpStream {
    fn has_input(&self) -> impl Future<Output = io::Result<()>> + Send {
        self.readable()
    }
}

/// Refuses a client that is neither this user nor root, whatever the mode of the socket is.
fn check_user(stream: &UnixStream) -> io::Result<()> {
    let user = stream.peer_cred()?.uid();
    if is_trusted(user) {
        return Ok(());
    }
    Err(io::Error::other(format!("a program of uid {user} may not control this server")))
}

impl Acceptor {
    fn spawn(self, listener: Listener) -> io::Result<tokio::task::JoinHandle<()>> {
        let fd = listener.as_fd().try_clone_to_owned()?;
        Ok(match listener.address() {
            ListenAddress::Unix(_) => {
                let socket = UnixListener::from_std(fd.into())?;
                tokio::spawn(async move {
                    let accept = || async { Ok(socket.accept().await?.0) };
                    self.run(accept, check_user).await;
                    drop(listener);
                })
            }
            ListenAddress::Tcp(_) => {
                let socket = TcpListener::from_std(fd.into())?;
                tokio::spawn(async move {
                    self.run(|| async { Ok(socket.accept().await?.0) }, |_| Ok(())).await;
                    drop(listener);
                })
            }
        })
    }

    /// Accepts connections until the shutdown, and then waits for requests in progress.
    async fn run<S: Peer, F: Future<Output = io::Result<S>>>(
        mut self,
        accept: impl Fn() -> F,
        check: impl Fn(&S) -> io::Result<()>,
    ) {
        let mut tasks = JoinSet::new();
        loop {
            while tasks.try_join_next().is_some() {}
            match until_closed(&mut self.closed, accept()).await {
                None => break,
                Some(Ok(stream)) => {
                    let result = confine(|| {
                        fault::point("control", "accept");
                        check(&stream).map(|()| self.start(&mut tasks, stream))
                    });
                    match result {
                        Ok(Ok(())) => {}
                        Ok(Err(error)) => tracing::info!(%error, "a control connection was closed"),
                        Err(panic) => self.api.report_panic(&panic, CLOSED),
                    }
                }
                Some(Err(error)) => {
                    tracing::warn!(%error, "a control connection could not be accepted");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
            // Many simultaneous connections must not delay requests in progress.
            tokio::task::yield_now().await;
        }
        let all = async { while tasks.join_next().await.is_some() {} };
        if tokio::time::timeout(SHUTDOWN_TIME_MAX, all).await.is_err() {
            tracing::debug!("control connections were cut off at the end");
        }
    }

    fn start<S: Peer>(&self, tasks: &mut JoinSet<()>, stream: S) {
        let connection = Arc::new(self.connections.register());
        let id = connection.id();
        let api = Arc::clone(&self.api);
        let serving = answer(stream, connection, Arc::clone(&api), self.closed.clone());
        let task = tasks.spawn(async move {
            if let Err(panic) = confine_future(serving).await {
                api.report_panic(&panic, CLOSED);
            }
        });
        self.connections.add(id, task);
    }
}

/// Returns the HTTP parser with its limits.
pub(super) fn http() -> http1::Builder {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME_MAX)
        .max_buf_size(BUFFER_BYTES_MAX)
        .max_headers(32);
    http
}

/// Serves one connection until its client closes it, or the server stops.
async fn answer<S: Peer>(
    stream: S,
    connection: Arc<Connection>,
    api: Arc<Api>,
    mut closed: watch::Receiver<bool>,
) {
    let first_byte = tokio::time::timeout(PROOF_TIME_MAX, stream.has_input());
    if !matches!(until_closed(&mut closed, first_byte).await, Some(Ok(Ok(())))) {
        return;
    }
    fault::point("control", "connection");
    connection.record_input();
    let service = service_fn(|request| {
        let (api, connection) = (Arc::clone(&api), Arc::clone(&connection));
        async move { Ok::<_, Infallible>(api.answer(request, &connection).await) }
    });
    let serving =
        http().serve_connection(TokioIo::new(LiveStream::new(stream, WRITE_TIME_MAX)), service);
    let (mut serving, mut proof) = (pin!(serving), pin!(tokio::time::sleep(PROOF_TIME_MAX)));
    let proven = poll_fn(|context| {
        if !proof.is_elapsed()
            && proof.as_mut().poll(context).is_ready()
            && !connection.is_trusted()
        {
            return Poll::Ready(None);
        }
        serving.as_mut().poll(context).map(Some)
    });
    let result = match until_closed(&mut closed, proven).await {
        Some(None) => return,
        Some(Some(result)) => result,
        None => {
            serving.as_mut().graceful_shutdown();
            serving.await
        }
    };
    if let Err(error) = result {
        tracing::debug!(%error, "a control connection ended with an error");
    }
}
