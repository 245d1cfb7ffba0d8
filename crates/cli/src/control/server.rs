//! The thread that answers, and the limits on who asks.

use super::routes::Api;
use super::token::Token;
use crate::commands::serve::service::Service;
use anyhow::{Context, Result};
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use larder_io::front::listen::{ListenAddress, Listener};
use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::os::fd::AsFd;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

/// Connections at a time through one door; more wait to be accepted. Each has buffers of at most
/// twice [`BUFFER_BYTES_MAX`].
const CONNECTIONS_MAX: usize = 16;
/// What of a request is buffered before it is understood; longer headers are refused.
const BUFFER_BYTES_MAX: usize = 16 << 10;
/// How long the head of a request may take, also on a connection that waits for the next one.
const HEAD_TIME_MAX: Duration = Duration::from_secs(10);
/// How long answers under way are waited for at the end.
const END_TIME_MAX: Duration = Duration::from_secs(5);
/// Requests under way that take their time: flushing, warming.
pub(super) const JOBS_MAX: usize = 3;
/// Threads for what would block the one that answers: a job each, and one for short things.
const BLOCKING_THREADS_MAX: usize = JOBS_MAX + 1;

/// A socket, and what must be shown there.
#[derive(Debug)]
pub(super) struct Door {
    pub(super) listener: Listener,
    pub(super) token: Option<Token>,
}

/// The running control interface.
#[derive(Debug)]
pub(crate) struct Control {
    closing: watch::Sender<bool>,
    thread: Option<JoinHandle<()>>,
}

impl Control {
    /// Ends it, once the answers under way have been sent.
    pub(crate) fn close(mut self) {
        self.shut_down();
    }

    fn shut_down(&mut self) {
        self.closing.send_replace(true);
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread of the control interface panicked");
        }
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        self.shut_down();
    }
}

/// Starts the thread.
pub(super) fn start(doors: Vec<Door>, service: &Arc<Service>) -> Result<Control> {
    let (closing, closed) = watch::channel(false);
    if doors.is_empty() {
        return Ok(Control { closing, thread: None });
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(BLOCKING_THREADS_MAX)
        .thread_keep_alive(Duration::from_secs(1))
        .build()
        .context("start the control interface")?;
    let service = Arc::clone(service);
    let thread = std::thread::Builder::new().name("control".into()).spawn(move || {
        runtime.block_on(serve(doors, &service, closed));
        runtime.shutdown_timeout(END_TIME_MAX);
    });
    let thread = thread.context("start the control interface")?;
    Ok(Control { closing, thread: Some(thread) })
}

async fn serve(doors: Vec<Door>, service: &Arc<Service>, closed: watch::Receiver<bool>) {
    let mut tasks = Vec::new();
    for door in doors {
        let address = door.listener.address().clone();
        let accepting = Accepting {
            api: Arc::new(Api::new(Arc::clone(service), door.token)),
            permits: Arc::new(Semaphore::new(CONNECTIONS_MAX)),
            closed: closed.clone(),
        };
        match accepting.of(door.listener) {
            Ok(task) => tasks.push(task),
            Err(error) => tracing::error!(%address, %error, "cannot be controlled there"),
        }
    }
    for task in tasks {
        if let Err(error) = task.await {
            tracing::error!(%error, "the control interface has ended early");
        }
    }
}

/// Returns the result of `work`, or none if the interface closes first.
async fn until_closed<T>(
    closed: &mut watch::Receiver<bool>,
    work: impl Future<Output = T>,
) -> Option<T> {
    // An error says that its owner is gone, which is the end as well.
    let (mut end, mut work) = (pin!(closed.wait_for(|closed| *closed)), pin!(work));
    // The shutdown is polled first, so that busy clients cannot delay it.
    poll_fn(|context| match end.as_mut().poll(context) {
        Poll::Ready(_) => Poll::Ready(None),
        Poll::Pending => work.as_mut().poll(context).map(Some),
    })
    .await
}

/// What it takes to accept at one door.
struct Accepting {
    api: Arc<Api>,
    permits: Arc<Semaphore>,
    closed: watch::Receiver<bool>,
}

impl Accepting {
    fn of(self, listener: Listener) -> std::io::Result<tokio::task::JoinHandle<()>> {
        let fd = listener.as_fd().try_clone_to_owned()?;
        Ok(match listener.address() {
            ListenAddress::Unix(_) => {
                let socket = UnixListener::from_std(fd.into())?;
                tokio::spawn(async move {
                    self.run(|| async { Ok(socket.accept().await?.0) }).await;
                    drop(listener);
                })
            }
            ListenAddress::Tcp(_) => {
                let socket = TcpListener::from_std(fd.into())?;
                tokio::spawn(async move {
                    self.run(|| async { Ok(socket.accept().await?.0) }).await;
                    drop(listener);
                })
            }
        })
    }

    /// Accepts until the end, and then waits for those who are being answered.
    async fn run<S, F>(mut self, accept: impl Fn() -> F)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
        F: Future<Output = std::io::Result<S>>,
    {
        loop {
            let permits = Arc::clone(&self.permits);
            let accepted = async {
                let permit = permits.acquire_owned().await.expect("it is never closed");
                accept().await.map(|stream| (stream, permit))
            };
            match until_closed(&mut self.closed, accepted).await {
                None => break,
                Some(Ok((stream, permit))) => self.answer(stream, permit),
                Some(Err(error)) => {
                    tracing::warn!(%error, "a control connection could not be accepted");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
        let all = u32::try_from(CONNECTIONS_MAX).expect("few");
        let ended = tokio::time::timeout(END_TIME_MAX, self.permits.acquire_many(all)).await;
        if ended.is_err() {
            tracing::debug!("control connections were cut off at the end");
        }
    }

    /// Answers one connection until its client has had enough, or the end comes.
    fn answer<S>(&self, stream: S, permit: OwnedSemaphorePermit)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let api = Arc::clone(&self.api);
        let service = service_fn(move |request| {
            let api = Arc::clone(&api);
            async move { Ok::<_, Infallible>(api.answer(request).await) }
        });
        let connection = hyper::server::conn::http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_TIME_MAX)
            .max_buf_size(BUFFER_BYTES_MAX)
            .max_headers(32)
            .serve_connection(TokioIo::new(stream), service);
        let mut closed = self.closed.clone();
        tokio::spawn(async move {
            let _permit = permit;
            let mut connection = pin!(connection);
            let ended = until_closed(&mut closed, connection.as_mut()).await;
            let result = if let Some(result) = ended {
                result
            } else {
                connection.as_mut().graceful_shutdown();
                connection.await
            };
            if let Err(error) = result {
                tracing::debug!(%error, "a control connection ended with an error");
            }
        });
    }
}
