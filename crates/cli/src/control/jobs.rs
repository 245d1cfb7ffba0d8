//! Requests that take their time: flushing, warming, stopping. The answer comes bit by bit, one
//! JSON object a line, and the last line says how it ended.
//!
//! A job runs in a thread of its own and goes on whether or not its client is still there.
//! Invariant: a client that does not read holds up nobody, since only the latest progress is kept
//! for it.

use super::request::{Refused, Response, response};
use super::server::JOBS_MAX;
use crate::commands::serve::service::{Served, Service};
use http_body_util::Either;
use http_body_util::channel::{Channel, Sender};
use hyper::body::Bytes;
use larder_core::request::{Request, RequestOp};
use larder_io::blocking::BlockingSession;
use larder_io::fault::{confine, point};
use larder_report::control::{ByteRange, Progress};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Semaphore, watch};

/// How often progress is told.
const TICK: Duration = Duration::from_millis(100);
/// A client that takes nothing for so long is given up.
const SEND_TIME_MAX: Duration = Duration::from_secs(10);
/// Bytes that are warmed at a time.
const WARM_BYTES: u64 = 1 << 20;
/// More ranges in one request are refused.
const RANGES_MAX: usize = 1024;

/// Effect of a panic on a request, for the log.
pub(super) const FAILED: &str = "a control request has failed";

/// Where a job tells how far it is; none before it has begun.
pub(super) type ProgressSender = watch::Sender<Option<Progress>>;

/// How a job ended.
#[derive(Debug, Default)]
pub(super) struct JobResult {
    done_bytes: u64,
    /// What went wrong, sentences that can follow "failed to".
    failures: Vec<String>,
}

/// Jobs under way, a few at a time.
#[derive(Clone)]
pub(super) struct Jobs {
    permits: Arc<Semaphore>,
}

impl Jobs {
    pub(super) fn new() -> Self {
        Jobs { permits: Arc::new(Semaphore::new(JOBS_MAX)) }
    }

    /// Starts a job, whose end ends the answer.
    pub(super) fn start(
        &self,
        service: &Arc<Service>,
        job: impl FnOnce(&Service, &ProgressSender) -> JobResult + Send + 'static,
    ) -> Result<Response, Refused> {
        let Ok(permit) = Arc::clone(&self.permits).try_acquire_owned() else {
            let error = format!("begin: {JOBS_MAX} such requests are under way");
            return Err(Refused::busy(error));
        };
        let (told, progress) = watch::channel(None);
        let service = Arc::clone(service);
        tokio::task::spawn_blocking(move || {
            let ended = confine(|| {
                point("control", "job");
                job(&service, &told)
            });
            let JobResult { done_bytes, failures } = ended.unwrap_or_else(|panic| {
                panic.report(service.engine().cache(), FAILED);
                JobResult { done_bytes: 0, failures: vec![format!("go on: {panic}")] }
            });
            told.send_replace(Some(Progress::Done { done_bytes, failures }));
            drop(permit);
        });
        Ok(stream(progress))
    }
}

/// An answer that follows a job.
fn stream(mut progress: watch::Receiver<Option<Progress>>) -> Response {
    let (mut sender, body) = Channel::<Bytes, Infallible>::new(1);
    tokio::spawn(async move {
        loop {
            let ended = progress.changed().await.is_err();
            let latest = progress.borrow_and_update().clone();
            let line = match latest {
                Some(progress) if !ended || matches!(progress, Progress::Done { .. }) => progress,
                _ if ended => {
                    let failures = vec!["go on: it ended early".to_owned()];
                    Progress::Done { done_bytes: 0, failures }
                }
                _ => continue,
            };
            let is_last = matches!(line, Progress::Done { .. });
            if !send(&mut sender, &line).await || is_last {
                return;
            }
        }
    });
    response("application/x-ndjson", Either::Right(body))
}

/// Sends a line; whether the client took it.
async fn send(sender: &mut Sender<Bytes, Infallible>, line: &Progress) -> bool {
    let mut text = serde_json::to_string(line).expect("plain fields");
    text.push('\n');
    let sent = tokio::time::timeout(SEND_TIME_MAX, sender.send_data(text.into())).await;
    matches!(sent, Ok(Ok(())))
}

/// An answer that follows a stop to its end.
pub(super) fn follow_stop(service: &Service) -> Response {
    let mut progress = service.stop_progress();
    // It may have begun before, or be over.
    progress.mark_changed();
    stream(progress)
}

/// Flushes volumes, all at once, whatever their flush mode. It also fails for each image that was
/// deleted or replaced.
pub(super) fn flush(service: &Service, volumes: &[Served], told: &ProgressSender) -> JobResult {
    let mut ended = flush_stores(service, volumes, told);
    let lost = service.lost();
    for served in volumes.iter().filter(|served| lost.contains(&served.plan.path)) {
        let (name, path) = (served.volume.name(), served.plan.path.display());
        ended.failures.push(format!(
            "keep what was written to {name}: {path} was deleted or replaced while it is served"
        ));
    }
    ended
}

fn flush_stores(service: &Service, volumes: &[Served], told: &ProgressSender) -> JobResult {
    let unclean = || -> u64 { volumes.iter().map(|served| served.volume.unclean_bytes()).sum() };
    // Before the first is asked to flush: a small one is done before it is looked at.
    let total_bytes = unclean();
    let mut left = total_bytes;
    let mut sessions = Vec::new();
    let mut failures = Vec::new();
    for Served { volume, .. } in volumes {
        // It may have been removed since it was asked for.
        let mut session = match BlockingSession::open(service.engine(), volume) {
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
        // What becomes dirty meanwhile is no part of this flush.
        left = left.min(unclean());
        told.send_replace(Some(Progress::Volume {
            volume: name.clone(),
            done_bytes: total_bytes - left,
            total_bytes,
            error: None,
        }));
        sessions.retain_mut(|(name, session)| {
            let Some(result) = session.poll() else { return true };
            if let Err(error) = result {
                failures.push(format!("flush {name}: failed to {error}"));
            }
            false
        });
        if let Some((_, session)) = sessions.first() {
            session.sleep(TICK);
        }
    }
    left = left.min(unclean());
    JobResult { done_bytes: total_bytes - left, failures }
}

/// Removes a volume. Most of its data is written while it is still served, unless it is given up.
pub(super) fn remove(
    service: &Service,
    served: Served,
    (disconnect, give_up): (bool, bool),
    told: &ProgressSender,
) -> JobResult {
    let mut ended = if give_up {
        JobResult::default()
    } else {
        flush_stores(service, std::slice::from_ref(&served), told)
    };
    if !ended.failures.is_empty() {
        return ended;
    }
    let name = served.plan.name.clone();
    // The store is let go of with its last user.
    drop(served);
    let mut late_bytes = 0;
    let removed = service.remove(&name, (disconnect, give_up), |at| {
        late_bytes = at.total_bytes;
        told.send_replace(Some(Progress::Volume {
            volume: at.volume.clone(),
            done_bytes: ended.done_bytes + at.total_bytes.saturating_sub(at.left_bytes),
            total_bytes: ended.done_bytes + at.total_bytes,
            error: at.error.clone(),
        }));
    });
    if removed.is_ok() {
        ended.done_bytes += late_bytes;
    }
    ended.failures.extend(removed.err().map(|error| crate::output::sentence(&error)));
    ended
}

/// Refuses ranges that are not in a volume of `length` bytes.
pub(super) fn check_ranges(ranges: &[ByteRange], length: u64) -> Result<(), Refused> {
    if ranges.len() > RANGES_MAX {
        let count = ranges.len();
        return Err(Refused::wrong(format!("use {count} ranges: {RANGES_MAX} are the most")));
    }
    for ByteRange { offset, length: len } in ranges {
        let inside = *len > 0 && offset.checked_add(*len).is_some_and(|end| end <= length);
        if !inside {
            return Err(Refused::wrong(format!(
                "use the range of {len} bytes at {offset}: the volume has {length} bytes"
            )));
        }
    }
    Ok(())
}

/// Reads ranges of a volume into the cache, one piece after the other.
pub(super) fn warm(
    service: &Service,
    Served { volume, .. }: &Served,
    ranges: &[ByteRange],
    told: &ProgressSender,
) -> JobResult {
    let mut session = match BlockingSession::open(service.engine(), volume) {
        Ok(session) => session,
        Err(error) => {
            let failures = vec![format!("warm {}: {error}", volume.name())];
            return JobResult { done_bytes: 0, failures };
        }
    };
    let total_bytes = ranges.iter().map(|range| range.length).sum();
    let (mut done_bytes, mut failures) = (0, Vec::new());
    'ranges: for range in ranges {
        let end = range.offset + range.length;
        let mut at = range.offset;
        while at < end {
            if service.is_stopping() {
                failures.push("go on: the server is stopping".to_owned());
                break 'ranges;
            }
            // Pieces end at aligned places, so that no page is asked for twice.
            let len = (end - at).min(WARM_BYTES - at % WARM_BYTES);
            let populate = Request::new(RequestOp::Populate, at..at + len);
            if let Err(error) = session.submit(populate, &[], |_, _| {}) {
                failures.push(format!("warm {}: failed to {error}", volume.name()));
                break 'ranges;
            }
            at += len;
            done_bytes += len;
            told.send_replace(Some(Progress::Volume {
                volume: volume.name().to_owned(),
                done_bytes,
                total_bytes,
                error: None,
            }));
        }
    }
    JobResult { done_bytes, failures }
}
