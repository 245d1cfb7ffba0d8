//! Routes of the control API, one row per path.
//!
//! A request is first parsed as a whole, into a [`Command`], without the service; then the service
//! executes the command.

use super::bodies::BodyBudget;
use super::connections::Connection;
use super::jobs::FAILED;
use super::request::{ApiError, JSON, Request, Response, get, json, json_text, post, response};
use super::token::Token;
use super::{answers, curves, jobs, metrics, retention};
use crate::service::Service;
use crate::settings::Assignment;
use http_body_util::Either;
use hyper::header::{AUTHORIZATION, CONNECTION, HeaderValue};
use larder_io::fault::{CaughtPanic, confine, confine_future, point};
use larder_report::openmetrics::MEDIA_TYPE;
use larder_schema::control::{
    AddRequest, ChangeResponse, JobResult, RangeRequest, RemoveRequest, SetRequest, VolumeRequest,
};
use serde::Serialize;
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
    bodies: BodyBudget,
}

impl Api {
    pub(super) fn new(service: Arc<Service>, token: Option<Token>, bodies: BodyBudget) -> Self {
        Api { service, jobs: jobs::Jobs::new(), token, bodies }
    }

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
            self.report_panic(&panic, FAILED);
            Err(ApiError::failed(format!("answer: {panic}")))
        });
        let response = result.unwrap_or_else(ApiError::into_response);
        if let Either::Left(_) = response.body() {
            connection.end_answer();
        }
        response
    }

    /// Logs a panic with its effect on a client.
    pub(super) fn report_panic(&self, panic: &CaughtPanic, effect: &str) {
        panic.report(self.service.engine.cache(), effect);
    }

    /// Parses a request and executes its command.
    async fn route(&self, request: Request, connection: &Connection) -> Result<Response, ApiError> {
        point("control", "request");
        let service = &*self.service;
        match Command::parse(request).await? {
            Command::Metrics => {
                let text = || metrics::text(service).into_bytes();
                self.respond_with_body(connection, MEDIA_TYPE, text).await
            }
            Command::Stats => self.report(connection, || answers::stats(service)).await,
            Command::Volumes => {
                self.report(connection, || answers::volumes(service, service.volumes())).await
            }
            Command::AtRisk => {
                self.check_images().await;
                self.report(connection, || answers::at_risk(service)).await
            }
            Command::Curve => self.report(connection, || curves::curves(service)).await,
            Command::Files => {
                let files = |it: &Service| answers::files(it).ok_or_else(ApiError::no_directory);
                let files = self.run("list files", files).await?;
                self.report(connection, || files).await
            }
            Command::Drop(request) => {
                let volumes = retention::selected_volumes(service, &request)?;
                self.work("drop", move |it| Ok(retention::drop_clean(it, &volumes))).await
            }
            Command::Freeze(request) => retention::freeze(service, &request, true).map(json),
            Command::Unfreeze(request) => retention::freeze(service, &request, false).map(json),
            Command::Pin(request) => self.work("pin", move |it| retention::pin(it, &request)).await,
            Command::Unpin(request) => {
                self.work("unpin", move |it| retention::unpin(it, &request)).await
            }
            Command::Set(request) => self.work("set", move |it| set(it, &request)).await,
            Command::Flush(request) => {
                let volumes = retention::selected_volumes(service, &request)?;
                self.start_job(move |it, progress| jobs::flush(it, &volumes, progress))
            }
            Command::Warm(request) => {
                let alternative = "whose files are warm once they were read";
                let served = retention::find_volume(service, &request, "warm", alternative)?;
                self.start_job(move |it, progress| {
                    jobs::warm(it, &served, &request.ranges, progress)
                })
            }
            Command::Add(AddRequest { volume, set }) => {
                // Connecting to the server of a new export may take long; such requests must not
                // occupy all threads.
                let add_lock = Arc::clone(&service.add_lock).lock_owned().await;
                let add = move |service: &Service| {
                    let _add_lock = add_lock;
                    let served = service.add(&volume, &set).map_err(ApiError::refused)?;
                    Ok(answers::volumes(service, vec![served]))
                };
                self.work("add", add).await
            }
            Command::Remove(request) => self.remove(request),
            Command::Stop(EmptyRequest {}) => {
                service.request_stop();
                Ok(jobs::follow_stop(service))
            }
        }
    }

    /// Checks for deleted and replaced images. The file system of an image may not respond; the
    /// check has covered the other images by the end of its time.
    async fn check_images(&self) {
        let check = self.run("check images", |service| {
            service.stores.try_find_lost();
            Ok(())
        });
        drop(tokio::time::timeout(CHECK_TIME_MAX, check).await);
    }

    /// Runs `work` on a blocking thread, since it visits every page or waits for another server.
    async fn run<T: Send + 'static>(
        &self,
        operation: &str,
        work: impl FnOnce(&Service) -> Result<T, ApiError> + Send + 'static,
    ) -> Result<T, ApiError> {
        let service = Arc::clone(&self.service);
        let run = move || {
            let result = confine(|| {
                point("control", "work");
                work(&service)
            });
            result.inspect_err(|panic| panic.report(service.engine.cache(), FAILED))
        };
        let failed = |error: &dyn fmt::Display| ApiError::failed(format!("{operation}: {error}"));
        let result = tokio::task::spawn_blocking(run).await.map_err(|error| failed(&error))?;
        result.map_err(|panic| failed(&panic))?
    }

    /// Responds with the result of `work` on a blocking thread.
    async fn work<T: Serialize + Send + 'static>(
        &self,
        operation: &str,
        work: impl FnOnce(&Service) -> Result<T, ApiError> + Send + 'static,
    ) -> Result<Response, ApiError> {
        self.run(operation, work).await.map(json)
    }

    /// Responds with a state of the service.
    async fn report<T: Serialize>(
        &self,
        connection: &Connection,
        state: impl FnOnce() -> T,
    ) -> Result<Response, ApiError> {
        self.respond_with_body(connection, JSON, || json_text(&state())).await
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

    fn start_job(
        &self,
        job: impl FnOnce(&Service, &jobs::ProgressSender) -> JobResult + Send + 'static,
    ) -> Result<Response, ApiError> {
        self.jobs.start(&self.service, job)
    }

    fn remove(&self, request: RemoveRequest) -> Result<Response, ApiError> {
        let RemoveRequest { volume, disconnect, give_up } = request;
        let served = self.service.volume(&volume).map_err(ApiError::not_found)?;
        // A stop disconnects all clients.
        if !(give_up && self.service.is_stopping()) {
            self.service.check_unused(&volume, disconnect).map_err(ApiError::refused)?;
        }
        self.start_job(move |service, progress| {
            jobs::remove(service, served, (disconnect, give_up), progress)
        })
    }
}

/// Makes the commands, and their parser, from a table of paths: with the type of its body a command
/// is a POST, without one a GET.
macro_rules! routes {
    ($($path:literal => $command:ident $(($body:ident))?,)*) => {
        /// A request without its path and encoding.
        #[derive(Debug)]
        pub(super) enum Command {
            $($command $(($body))?,)*
        }

        impl Command {
            /// Parses a request by its path.
            pub(super) async fn parse(request: Request) -> Result<Self, ApiError> {
                match request.uri().path() {
                    $($path => routes!(request, $command $($body)?),)*
                    path => Err(ApiError::no_path(path)),
                }
            }
        }
    };
    ($request:ident, $command:ident) => { get(&$request, Command::$command) };
    ($request:ident, $command:ident $body:ident) => { post($request).await.map(Command::$command) };
}

routes! {
    "/metrics" => Metrics,
    "/v1/stats" => Stats,
    "/v1/volumes" => Volumes,
    "/v1/at-risk" => AtRisk,
    "/v1/curve" => Curve,
    "/v1/files" => Files,
    "/v1/drop" => Drop(VolumeRequest),
    "/v1/freeze" => Freeze(VolumeRequest),
    "/v1/unfreeze" => Unfreeze(VolumeRequest),
    "/v1/pin" => Pin(RangeRequest),
    "/v1/unpin" => Unpin(RangeRequest),
    "/v1/set" => Set(SetRequest),
    "/v1/flush" => Flush(VolumeRequest),
    "/v1/warm" => Warm(RangeRequest),
    "/v1/add" => Add(AddRequest),
    "/v1/remove" => Remove(RemoveRequest),
    "/v1/stop" => Stop(EmptyRequest),
}

fn set(service: &Service, request: &SetRequest) -> Result<ChangeResponse, ApiError> {
    let (changed, notes) = service.set(&settings(request)).map_err(ApiError::invalid)?;
    Ok(ChangeResponse { changed, notes, ..ChangeResponse::default() })
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
pub(super) struct EmptyRequest {}
