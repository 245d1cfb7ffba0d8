//! Long-running requests: flush, warm, remove, stop. The response is streamed, one JSON object per
//! line; the last line has the result.
//!
//! A job runs on its own thread and continues if its client disconnects. Invariant: a client that
//! does not read delays nothing, since only the latest progress is kept for it.

use super::request::{ApiError, Response, response};
use crate::service::{ServedVolume, Service};
use crate::value::size_text;
use http_body_util::Either;
use http_body_util::channel::{Channel, Sender};
use hyper::body::Bytes;
use larder_core::request::{Request, RequestOp};
use larder_core::units::{BLOCK_BYTES_U64, blocks_touched};
use larder_io::fault::{confine, point};
use larder_schema::control::{ByteRange, JobResult, Progress};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Semaphore, watch};

/// Maximum number of concurrent long-running requests, such as flush and warm.
pub(super) const JOBS_MAX: usize = 3;
/// Interval between progress lines.
const TICK: Duration = Duration::from_millis(100);
/// Time after which the server drops a client that receives nothing.
const SEND_TIME_MAX: Duration = Duration::from_secs(10);
/// Size of a warm request.
const WARM_BYTES: u64 = 1 << 20;
/// Maximum number of ranges in one request.
const RANGES_MAX: usize = 1024;

/// Effect of a panic on a request, for the log.
pub(super) const FAILED: &str = "a control request has failed";

/// The progress of a job; `None` before it starts.
pub(super) type ProgressSender = watch::Sender<Option<Progress>>;

/// A limit on concurrent jobs.
pub(super) struct Jobs(Arc<Semaphore>);

impl Jobs {
    pub(super) fn new() -> Self {
        Jobs(Arc::new(Semaphore::new(JOBS_MAX)))
    }

    /// Starts a job; the response ends with the job.
    pub(super) fn start(
        &self,
        service: &Arc<Service>,
        job: impl FnOnce(&Service, &ProgressSender) -> JobResult + Send + 'static,
    ) -> Result<Response, ApiError> {
        let Ok(permit) = Arc::clone(&self.0).try_acquire_owned() else {
            let error = format!("begin: {JOBS_MAX} such requests are under way");
            return Err(ApiError::busy(error));
        };
        let (sender, progress) = watch::channel(None);
        let service = Arc::clone(service);
        tokio::task::spawn_blocking(move || {
            let result = confine(|| {
                point("control", "job");
                job(&service, &sender)
            });
            let result = result.unwrap_or_else(|panic| {
                panic.report(service.engine.cache(), FAILED);
                failed(format!("go on: {panic}"))
            });
            sender.send_replace(Some(Progress::Done(result)));
            drop(permit);
        });
        Ok(stream(progress))
    }
}

/// Returns the result of a job that did nothing; `failure` is a verb phrase that follows "cannot".
fn failed(failure: String) -> JobResult {
    JobResult { failures: vec![failure], ..JobResult::default() }
}

/// Returns a response that streams the progress of a job.
fn stream(mut progress: watch::Receiver<Option<Progress>>) -> Response {
    let (mut sender, body) = Channel::<Bytes, Infallible>::new(1);
    tokio::spawn(async move {
        loop {
            let ended = progress.changed().await.is_err();
            let latest = progress.borrow_and_update().clone();
            let line = match latest {
                Some(progress) if !ended || matches!(progress, Progress::Done(_)) => progress,
                _ if ended => Progress::Done(failed("go on: it ended early".to_owned())),
                _ => continue,
            };
            let is_last = matches!(line, Progress::Done(_));
            if !send(&mut sender, &line).await || is_last {
                return;
            }
        }
    });
    response("application/x-ndjson", Either::Right(body))
}

/// Sends a line; returns true if the client received it.
async fn send(sender: &mut Sender<Bytes, Infallible>, line: &Progress) -> bool {
    let mut text = serde_json::to_string(line).expect("plain fields");
    text.push('\n');
    let sent = tokio::time::timeout(SEND_TIME_MAX, sender.send_data(text.into())).await;
    matches!(sent, Ok(Ok(())))
}

/// Returns a response that streams the progress of a stop to its end.
pub(super) fn follow_stop(service: &Service) -> Response {
    let mut progress = service.stop_progress();
    // The stop may have begun before, or be complete. A wait is over: this request has ended it.
    if !matches!(*progress.borrow(), Some(Progress::Waiting { .. })) {
        progress.mark_changed();
    }
    stream(progress)
}

/// Reports the progress of a job.
fn report(progress: &ProgressSender, volume: &str, done_bytes: u64, total_bytes: u64) {
    let volume = volume.to_owned();
    progress.send_replace(Some(Progress::Volume { volume, done_bytes, total_bytes, error: None }));
}

/// Flushes volumes, all at once, regardless of their flush mode. It also fails for each image that
/// was deleted or replaced.
pub(super) fn flush(
    service: &Service,
    volumes: &[ServedVolume],
    progress: &ProgressSender,
) -> JobResult {
    let mut result = flush_stores(service, volumes, progress);
    let lost = service.stores.find_lost();
    for served in volumes.iter().filter(|served| lost.contains(&served.plan.path)) {
        let (name, path) = (served.volume.name(), served.plan.path.display());
        result.failures.push(format!(
            "keep the data of {name}: {path} was deleted or replaced while it is served"
        ));
    }
    result
}

fn flush_stores(
    service: &Service,
    volumes: &[ServedVolume],
    progress: &ProgressSender,
) -> JobResult {
    let unclean = || -> u64 { volumes.iter().map(|served| served.volume.unclean_bytes()).sum() };
    // Read before the first flush starts: a small volume may finish before the first poll.
    let total_bytes = unclean();
    let mut left = total_bytes;
    let mut sessions = Vec::new();
    let mut failures = Vec::new();
    for ServedVolume { volume, .. } in volumes {
        // Another client may have removed the volume since the request.
        let mut session = match service.engine.blocking_session(volume) {
            Ok(session) => session,
            Err(error) => {
                failures.push(format!("flush {}: {error}", volume.name()));
                continue;
            }
        };
        point("control", "flush");
        session.start_flush(Request::uncounted(RequestOp::FlushAlways, 0..0));
        sessions.push((volume.name(), session));
    }
    let name = match volumes {
        [one] => one.volume.name().to_owned(),
        _ => "all".to_owned(),
    };
    while !sessions.is_empty() {
        // Data that becomes dirty after the start is not part of this flush.
        left = left.min(unclean());
        report(progress, &name, total_bytes - left, total_bytes);
        sessions.retain_mut(|(name, session)| {
            let Some(result) = session.poll() else { return true };
            if let Err(error) = result {
                failures.push(format!("flush {name}: cannot {error}"));
            }
            false
        });
        if let Some((_, session)) = sessions.first() {
            session.sleep(TICK);
        }
    }
    left = left.min(unclean());
    JobResult { done_bytes: total_bytes - left, failures, ..JobResult::default() }
}

/// Removes a volume. Most of its data is written while it is still served, unless its data is
/// discarded (`give_up`).
pub(super) fn remove(
    service: &Service,
    served: ServedVolume,
    (disconnect, give_up): (bool, bool),
    progress: &ProgressSender,
) -> JobResult {
    let mut result = if give_up {
        JobResult::default()
    } else {
        flush_stores(service, std::slice::from_ref(&served), progress)
    };
    if !result.failures.is_empty() {
        return result;
    }
    let name = served.plan.name.clone();
    // The store is closed when its last reference is dropped.
    drop(served);
    let mut late_bytes = 0;
    let removed = service.remove(&name, (disconnect, give_up), |state| {
        late_bytes = state.total_bytes;
        progress.send_replace(Some(Progress::Volume {
            volume: state.volume.clone(),
            done_bytes: result.done_bytes + state.total_bytes.saturating_sub(state.left_bytes),
            total_bytes: result.done_bytes + state.total_bytes,
            error: state.error.clone(),
        }));
    });
    if removed.is_ok() {
        result.done_bytes += late_bytes;
    }
    result.failures.extend(removed.err().map(|error| crate::output::sentence(&error)));
    result
}

/// Refuses ranges that are not within a volume of `length` bytes.
pub(super) fn check_ranges(ranges: &[ByteRange], length: u64) -> Result<(), ApiError> {
    if ranges.len() > RANGES_MAX {
        let count = ranges.len();
        return Err(ApiError::invalid(format!("use {count} ranges: {RANGES_MAX} are the most")));
    }
    for ByteRange { offset, length: len } in ranges {
        let inside = *len > 0 && offset.checked_add(*len).is_some_and(|end| end <= length);
        if !inside {
            return Err(ApiError::invalid(format!(
                "use the range {}+{}: the volume has {}",
                size_text(*offset),
                size_text(*len),
                size_text(length)
            )));
        }
    }
    Ok(())
}

/// Reads ranges of a volume into the cache, one piece after the other.
pub(super) fn warm(
    service: &Service,
    ServedVolume { volume, .. }: &ServedVolume,
    ranges: &[ByteRange],
    progress: &ProgressSender,
) -> JobResult {
    let (name, total_bytes) = (volume.name(), ranges.iter().map(|range| range.length).sum());
    let (mut done_bytes, mut failures) = (0, Vec::new());
    let mut session = match service.engine.blocking_session(volume) {
        Ok(session) => session,
        Err(error) => return failed(format!("warm {name}: {error}")),
    };
    'ranges: for range in ranges {
        let end = range.offset + range.length;
        let mut at = range.offset;
        while at < end {
            if service.is_stopping() {
                failures.push("go on: the server is stopping".to_owned());
                break 'ranges;
            }
            // Pieces end at aligned offsets, so that no page is requested twice.
            let len = (end - at).min(WARM_BYTES - at % WARM_BYTES);
            let populate = Request::new(RequestOp::Populate, at..at + len);
            if let Err(error) = session.submit(populate, &[], |_, _| {}) {
                failures.push(format!("warm {name}: cannot {error}"));
                break 'ranges;
            }
            at += len;
            done_bytes += len;
            report(progress, name, done_bytes, total_bytes);
        }
    }
    // Later pieces may have evicted earlier ones.
    let cached_bytes = |ByteRange { offset, length }: &ByteRange| {
        let blocks = blocks_touched(&(*offset..offset + length));
        let resident = service.engine.cache().count_resident(volume, blocks);
        (resident * BLOCK_BYTES_U64).min(*length)
    };
    let cached_bytes = Some(ranges.iter().map(cached_bytes).sum());
    JobResult { done_bytes, cached_bytes, failures, ..JobResult::default() }
}
