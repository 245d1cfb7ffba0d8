//! Reads the requests of a log of inputs, line by line.

use super::WorkloadError;
use crate::cache_simulation::EngineRequest;
use crate::inputs::LogRecord;
use larder_core::clock::Nanos;
use larder_core::input::Input;
use larder_core::request::{Request, RequestOp};
use larder_core::volume::VolumeOptions;
use larder_report::lines::Lines;
use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::io::BufReader;
use std::path::Path;

/// Size of the buffer through which a log is read.
const BUFFER_BYTES: usize = 1 << 20;

/// A request of the log.
pub(super) struct RecordedRequest {
    /// Nanoseconds since the previous step of any client.
    pub(super) pause: Nanos,
    /// Number of the session among those that are open at the same time, from 0.
    pub(super) client: usize,
    pub(super) request: EngineRequest,
}

/// A line of a log that a simulation needs.
pub(super) enum Step {
    Volume(VolumeOptions),
    Request(RecordedRequest),
}

/// Reads a log from its beginning. `visit` receives its volumes and requests.
pub(super) fn read(
    path: &Path,
    visit: &mut dyn FnMut(Step) -> Result<(), WorkloadError>,
) -> Result<(), WorkloadError> {
    let mut lines = Lines::new(BufReader::with_capacity(BUFFER_BYTES, File::open(path)?));
    let mut reader = Reader::default();
    while let Some((line, bytes)) = lines.next_line()? {
        let refused = |reason: String| WorkloadError::Refused { line, reason };
        let record: LogRecord =
            serde_json::from_slice(bytes).map_err(|error| refused(error.to_string()))?;
        let LogRecord::Input(input) = record else { continue };
        if let Some(step) = reader.step(input).map_err(|wrong| refused(wrong.to_string()))? {
            visit(step)?;
        }
    }
    Ok(())
}

/// A request that a simulation cannot make.
#[derive(Debug, thiserror::Error)]
#[error("its session is not open, its range is outside of the volume, or it maps memory")]
struct InvalidRequest;

/// The state of a log after some of its lines.
#[derive(Default)]
struct Reader {
    /// The length of each volume.
    lengths: Vec<u64>,
    /// The volume and the client of each open session.
    sessions: HashMap<u32, (usize, usize)>,
    /// Numbers of clients whose sessions are closed.
    idle_clients: Vec<usize>,
    /// The request of each session that gets further parts. Front ends of directories give all
    /// parts of a write before they begin another one.
    open: HashMap<u32, RecordedRequest>,
    /// Time of the last input of a session.
    last: Option<Nanos>,
}

impl Reader {
    /// Returns the step that an input completes, if it does; if not, none.
    fn step(&mut self, input: Input) -> Result<Option<Step>, InvalidRequest> {
        match input {
            Input::AddVolume { options } => {
                self.lengths.push(options.geometry.length);
                return Ok(Some(Step::Volume(options)));
            }
            Input::Open { session, volume, .. } => {
                let client = self.idle_clients.pop().unwrap_or(self.sessions.len());
                self.sessions.insert(session, (volume.into(), client));
            }
            Input::Close { session } => {
                let (_, client) = self.sessions.remove(&session).ok_or(InvalidRequest)?;
                self.idle_clients.push(client);
            }
            Input::Submit { session, now, request, .. } => {
                return Ok(Some(Step::Request(self.request(session, now, request)?)));
            }
            Input::Begin { session, now, request } => {
                let request = self.request(session, now, request)?;
                self.open.insert(session, request);
            }
            Input::Push { session, now, offset, payload, .. } => {
                self.last = Some(now);
                let open = self.open.get_mut(&session).ok_or(InvalidRequest)?;
                let end = end_in(&self.lengths, open.request.volume, offset, payload as u64)?;
                let part = offset..end;
                open.request.parts.push_back(part);
            }
            Input::Finish { session, now, .. } => {
                self.last = Some(now);
                let request = self.open.remove(&session).ok_or(InvalidRequest)?;
                return Ok(Some(Step::Request(request)));
            }
            Input::Advance { now, .. }
            | Input::Release { now, .. }
            | Input::ReleasePins { now, .. } => self.last = Some(now),
            _ => {}
        }
        Ok(None)
    }

    fn request(
        &mut self,
        session: u32,
        now: Nanos,
        request: Request,
    ) -> Result<RecordedRequest, InvalidRequest> {
        let (volume, client) = *self.sessions.get(&session).ok_or(InvalidRequest)?;
        end_in(&self.lengths, volume, request.offset, request.len)?;
        if matches!(request.op, RequestOp::Map | RequestOp::Unpin) {
            return Err(InvalidRequest);
        }
        let pause = now.saturating_sub(self.last.replace(now).unwrap_or(now));
        let request = EngineRequest { volume, request, parts: VecDeque::new(), tag: None };
        Ok(RecordedRequest { pause, client, request })
    }
}

/// Returns the end of a range, which must lie inside its volume.
fn end_in(lengths: &[u64], volume: usize, offset: u64, len: u64) -> Result<u64, InvalidRequest> {
    let length = lengths.get(volume).ok_or(InvalidRequest)?;
    offset.checked_add(len).filter(|end| end <= length).ok_or(InvalidRequest)
}
