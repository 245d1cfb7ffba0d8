//! Routes of the control API, one row per path.
//!
//! A request is first parsed as a whole, into a [`Command`], without the service; then the service
//! executes the command.

use super::bodies::Bodies;
use super::connections::Connection;
use super::jobs::FAILED;
use super::request::{ApiError, JSON, Request, Response, get, json, json_text, post, response};
use super::token::Token;
use super::{answers, curves, jobs, metrics, retention};
use crate::service::Service;
use crate::settings::Assignment;
use http_body_util::Either;
use hyper::header::{AUTHORIZATION, CONNECTION, HeaderValue};
use larder_io::fault::{Panicked, confine, confine_future, point};
use larder_report::openmetrics::MEDIA_TYPE;
use larder_schema::control::{
    AddRequest, Changed, RangeRequest, RemoveRequest, SetRequest, VolumeRequest,
};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Time limit for a response that waits until clients have received the bodies of others.
const BODY_WAIT_MAX: Duration = Duration::from_secs(10);

/// Time limit for checking the images of all volumes.
const CHECK_TIME_MAX: Duration = Duration::from_secs(1);

/// State that all requests on one socket share.
pub(super) struct Api {
    service: Arc<Service>,
    jobs: jobs::Jobs,
    /// The token that each request must carry, if any.
    token: Option<Token>,
    bodies: Bodies,
}

impl Api {
    pub(super) fn new(service: Arc<Service>, token: Option<Token>, bodies: Bodies) -> Self {
        Api { service, jobs: jobs::Jobs::new(), token, bodies }
    }

    /// Responds to one request.
    pub(super) async fn answer(&self, request: Request, connection: &Connection) -> Response {
        if let Err(refused) = check_token(self.token.as_ref(), &request) {
            // A client without the token has to reconnect for another attempt.
            let mut response = refused.into_response();
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            return response;
        }
        if !connection.begin_answer() {
            return ApiError::busy("answer: too many requests are under way").into_response();
        }
        let result = confine_future(self.route(request, connection)).await;
        let result = result.unwrap_or_else(|panic| {
            self.report(&panic, FAILED);
            Err(ApiError::failed(format!("answer: {panic}")))
        });
        let response = result.unwrap_or_else(ApiError::into_response);
        if let Either::Left(_) = response.body() {
            connection.end_answer();
        }
        response
    }

    /// Logs a panic with its effect on a client.
    pub(super) fn report(&self, panic: &Panicked, effect: &str) {
        panic.report(self.service.engine().cache(), effect);
    }

    /// Parses a request and executes its command.
    async fn route(&self, request: Request, connection: &Connection) -> Result<Response, ApiError> {
        point("control", "request");
        let service = &*self.service;
        match Command::parse(request).await? {
            Command::Metrics => {
                self.respond_with_body(connection, MEDIA_TYPE, || {
                    metrics::text(service).into_bytes()
                })
                .await
            }
            Command::Stats => {
                self.respond_with_body(connection, JSON, || json_text(&answers::stats(service)))
                    .await
            }
            Command::Volumes => {
                self.respond_with_body(connection, JSON, || json_text(&answers::volumes(service)))
                    .await
            }
            Command::AtRisk => {
                // The file system of an image may not respond; the check has covered the other
                // images by then.
                let check = self.run_blocking("look at images", Service::try_check_paths);
                drop(tokio::time::timeout(CHECK_TIME_MAX, check).await);
                self.respond_with_body(connection, JSON, || json_text(&answers::at_risk(service)))
                    .await
            }
            Command::Curve => {
                self.respond_with_body(connection, JSON, || json_text(&curves::curves(service)))
                    .await
            }
            Command::Files => self.files(connection).await,
            Command::Drop(request) => self.drop_clean(request).await,
            Command::Freeze(request) => self.freeze(&request, true),
            Command::Unfreeze(request) => self.freeze(&request, false),
            Command::Pin(request) => self.pin(request).await,
            Command::Unpin(request) => self.unpin(request).await,
            Command::Set(request) => self.set(request).await,
            Command::Flush(request) => self.flush(&request),
            Command::Warm(request) => self.warm(request),
            Command::Add(request) => self.add(request).await,
            Command::Remove(request) => self.remove(request),
            Command::Stop(Empty {}) => Ok(self.stop()),
        }
    }

    /// Runs `work` on a blocking thread, since it visits every page or waits for another server.
    async fn run_blocking<T: Send + 'static>(
        &self,
        operation: &str,
        work: impl FnOnce(&Service) -> T + Send + 'static,
    ) -> Result<T, ApiError> {
        let service = Arc::clone(&self.service);
        let run = move || {
            let result = confine(|| {
                point("control", "work");
                work(&service)
            });
            result.inspect_err(|panic| panic.report(service.engine().cache(), FAILED))
        };
        let failed = |error: &dyn fmt::Display| ApiError::failed(format!("{operation}: {error}"));
        let result = tokio::task::spawn_blocking(run).await.map_err(|error| failed(&error))?;
        result.map_err(|panic| failed(&panic))
    }

    /// Responds with a body that may be large. The connection counts as idle while it waits, so
    /// that other clients can replace it.
    async fn respond_with_body(
        &self,
        connection: &Connection,
        media_type: &'static str,
        make: impl FnOnce() -> Vec<u8>,
    ) -> Result<Response, ApiError> {
        connection.end_answer();
        let permit = tokio::time::timeout(BODY_WAIT_MAX, self.bodies.wait()).await;
        let busy = |_| ApiError::busy("answer: other clients have not received their responses");
        let body = permit.map_err(busy)?.finish(make());
        Ok(response(media_type, Either::Left(body.into())))
    }

    async fn files(&self, connection: &Connection) -> Result<Response, ApiError> {
        let files = self.run_blocking("list files", answers::files).await?;
        let files = files.ok_or_else(ApiError::no_directory)?;
        self.respond_with_body(connection, JSON, || json_text(&files)).await
    }

    async fn drop_clean(&self, request: VolumeRequest) -> Result<Response, ApiError> {
        let volumes = retention::selected_volumes(&self.service, &request)?;
        let dropped =
            self.run_blocking("drop", move |service| retention::drop_clean(service, &volumes));
        Ok(json(&dropped.await?))
    }

    fn freeze(&self, request: &VolumeRequest, frozen: bool) -> Result<Response, ApiError> {
        let volumes = retention::selected_volumes(&self.service, request)?;
        Ok(json(&retention::freeze(&self.service, &volumes, frozen)))
    }

    async fn pin(&self, request: RangeRequest) -> Result<Response, ApiError> {
        let pinned = self.run_blocking("pin", move |service| retention::pin(service, &request));
        Ok(json(&pinned.await??))
    }

    async fn unpin(&self, request: RangeRequest) -> Result<Response, ApiError> {
        let pinned = self.run_blocking("unpin", move |service| retention::unpin(service, &request));
        Ok(json(&pinned.await??))
    }

    async fn set(&self, request: SetRequest) -> Result<Response, ApiError> {
        let settings = settings(&request);
        let changed = self.run_blocking("set", move |service| service.set(&settings));
        let changed = changed.await?.map_err(ApiError::invalid)?;
        Ok(json(&Changed { changed, ..Changed::default() }))
    }

    fn flush(&self, request: &VolumeRequest) -> Result<Response, ApiError> {
        let volumes = retention::selected_volumes(&self.service, request)?;
        self.jobs
            .start(&self.service, move |service, progress| jobs::flush(service, &volumes, progress))
    }

    fn warm(&self, request: RangeRequest) -> Result<Response, ApiError> {
        let alternative = "whose files are warm once they were read";
        let served = retention::find_volume(&self.service, &request, "warm", alternative)?;
        let ranges = request.ranges;
        self.jobs.start(&self.service, move |service, progress| {
            jobs::warm(service, &served, &ranges, progress)
        })
    }

    async fn add(&self, AddRequest { volume, set }: AddRequest) -> Result<Response, ApiError> {
        // Connecting to the server of a new export may take long; such requests must not occupy all
        // threads.
        let add_lock = self.service.add_lock().lock_owned().await;
        let add = move |service: &Service| {
            let _add_lock = add_lock;
            service.add(&volume, &set)
        };
        let added = self.run_blocking("add", add).await?;
        let served = added.map_err(|error| ApiError::invalid(crate::output::sentence(&error)))?;
        Ok(json(&answers::volume_list(&self.service, vec![served])))
    }

    fn remove(&self, request: RemoveRequest) -> Result<Response, ApiError> {
        let RemoveRequest { volume, disconnect, give_up } = request;
        let served = self.service.volume(&volume).ok_or_else(|| ApiError::no_volume(&volume))?;
        // A stop disconnects all clients.
        if !(give_up && self.service.is_stopping()) {
            let unused = self.service.check_unused(&volume, disconnect);
            unused.map_err(|error| ApiError::invalid(error.to_string()))?;
        }
        let remove = move |service: &Service, progress: &jobs::ProgressSender| {
            jobs::remove(service, served, (disconnect, give_up), progress)
        };
        self.jobs.start(&self.service, remove)
    }

    fn stop(&self) -> Response {
        self.service.request_stop();
        jobs::follow_stop(&self.service)
    }
}

/// A request without its path and encoding.
#[derive(Debug)]
pub(super) enum Command {
    Metrics,
    Stats,
    Volumes,
    AtRisk,
    Curve,
    Files,
    Drop(VolumeRequest),
    Freeze(VolumeRequest),
    Unfreeze(VolumeRequest),
    Pin(RangeRequest),
    Unpin(RangeRequest),
    Set(SetRequest),
    Flush(VolumeRequest),
    Warm(RangeRequest),
    Add(AddRequest),
    Remove(RemoveRequest),
    Stop(Empty),
}

impl Command {
    /// Parses a request by its path.
    pub(super) async fn parse(request: Request) -> Result<Self, ApiError> {
        let uri = request.uri().clone();
        match uri.path() {
            "/metrics" => get(&request, Command::Metrics),
            "/v1/stats" => get(&request, Command::Stats),
            "/v1/volumes" => get(&request, Command::Volumes),
            "/v1/at-risk" => get(&request, Command::AtRisk),
            "/v1/curve" => get(&request, Command::Curve),
            "/v1/files" => get(&request, Command::Files),
            "/v1/drop" => post(request).await.map(Command::Drop),
            "/v1/freeze" => post(request).await.map(Command::Freeze),
            "/v1/unfreeze" => post(request).await.map(Command::Unfreeze),
            "/v1/pin" => post(request).await.map(Command::Pin),
            "/v1/unpin" => post(request).await.map(Command::Unpin),
            "/v1/set" => post(request).await.map(Command::Set),
            "/v1/flush" => post(request).await.map(Command::Flush),
            "/v1/warm" => post(request).await.map(Command::Warm),
            "/v1/add" => post(request).await.map(Command::Add),
            "/v1/remove" => post(request).await.map(Command::Remove),
            "/v1/stop" => post(request).await.map(Command::Stop),
            path => Err(ApiError::no_path(path)),
        }
    }
}

/// Refuses a request that does not carry the token, if the socket requires one.
pub(super) fn check_token(token: Option<&Token>, request: &Request) -> Result<(), ApiError> {
    let Some(token) = token else { return Ok(()) };
    let header = request.headers().get(AUTHORIZATION);
    let is_valid = header.is_some_and(|header| token.matches_header(header.as_bytes()));
    is_valid.then_some(()).ok_or_else(ApiError::no_token)
}

/// Returns the settings that a request changes.
pub(super) fn settings(request: &SetRequest) -> Vec<Assignment> {
    request.set.iter().map(|(name, value)| Assignment::parse(name, value)).collect()
}

/// A request body without fields.
#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Empty {}
