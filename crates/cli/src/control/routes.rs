//! Routes of the control API, one row per path.

use super::connections::Connection;
use super::jobs::FAILED;
use super::request::{Refused, Request, Response, get, json, post, response};
use super::token::Token;
use super::{answers, curves, jobs, keep, metrics};
use crate::commands::serve::changes::Setting;
use crate::commands::serve::service::Service;
use http_body_util::Either;
use hyper::header::{AUTHORIZATION, CONNECTION, HeaderValue};
use larder_io::fault::{Panicked, confine, confine_future, point};
use larder_report::control::{
    AddRequest, Changed, RangeRequest, RemoveRequest, SetRequest, VolumeRequest,
};
use larder_report::openmetrics::MEDIA_TYPE;
use std::fmt;
use std::sync::Arc;

/// State that all requests on one socket share.
pub(super) struct Api {
    service: Arc<Service>,
    jobs: jobs::Jobs,
    /// The token that each request must carry, if any.
    token: Option<Token>,
}

impl Api {
    pub(super) fn new(service: Arc<Service>, token: Option<Token>) -> Self {
        Api { service, jobs: jobs::Jobs::new(), token }
    }

    /// Responds to one request.
    pub(super) async fn answer(&self, request: Request, from: &Connection) -> Response {
        if let Err(refused) = self.check_token(&request) {
            // A client without the token has to connect again for another attempt.
            let mut response = refused.into_response();
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            return response;
        }
        if !from.begin_answer() {
            return Refused::busy("answer: too many requests are under way").into_response();
        }
        let routed = confine_future(self.route(request)).await;
        let routed = routed.unwrap_or_else(|panic| {
            self.report(&panic, FAILED);
            Err(Refused::failed(format!("answer: {panic}")))
        });
        let response = routed.unwrap_or_else(Refused::into_response);
        if let Either::Left(_) = response.body() {
            from.end_answer();
        }
        response
    }

    /// Logs a panic with its effect on a client.
    pub(super) fn report(&self, panic: &Panicked, effect: &str) {
        panic.report(self.service.engine().cache(), effect);
    }

    /// Dispatches a request by its path.
    async fn route(&self, request: Request) -> Result<Response, Refused> {
        point("control", "request");
        let service = &*self.service;
        let uri = request.uri().clone();
        match uri.path() {
            "/metrics" => {
                get(&request, || response(MEDIA_TYPE, Either::Left(metrics::text(service).into())))
            }
            "/v1/stats" => get(&request, || json(&answers::stats(service))),
            "/v1/volumes" => get(&request, || json(&answers::volumes(service))),
            "/v1/at-risk" => get(&request, || json(&answers::at_risk(service))),
            "/v1/curve" => get(&request, || json(&curves::curves(service))),
            "/v1/files" => get(&request, || self.files())?.await,
            "/v1/drop" => self.drop_clean(post(request).await?).await,
            "/v1/freeze" => self.freeze(&post(request).await?, true),
            "/v1/unfreeze" => self.freeze(&post(request).await?, false),
            "/v1/pin" => self.pin(post(request).await?).await,
            "/v1/unpin" => self.unpin(post(request).await?).await,
            "/v1/set" => self.set(post(request).await?).await,
            "/v1/flush" => self.flush(&post(request).await?),
            "/v1/warm" => self.warm(post(request).await?),
            "/v1/add" => self.add(post(request).await?).await,
            "/v1/remove" => self.remove(post(request).await?),
            "/v1/stop" => post(request).await.map(|Empty {}| self.stop()),
            path => Err(Refused::no_path(path)),
        }
    }

    fn check_token(&self, request: &Request) -> Result<(), Refused> {
        let Some(token) = &self.token else { return Ok(()) };
        let shown = request.headers().get(AUTHORIZATION);
        let is_valid = shown.is_some_and(|shown| token.is_shown_by(shown.as_bytes()));
        is_valid.then_some(()).ok_or_else(Refused::no_token)
    }

    /// Runs `work` on a blocking thread, since it visits every page or waits for another server.
    async fn run_blocking<T: Send + 'static>(
        &self,
        what: &str,
        work: impl FnOnce(&Service) -> T + Send + 'static,
    ) -> Result<T, Refused> {
        let service = Arc::clone(&self.service);
        let run = move || {
            let done = confine(|| {
                point("control", "work");
                work(&service)
            });
            done.inspect_err(|panic| panic.report(service.engine().cache(), FAILED))
        };
        let failed = |error: &dyn fmt::Display| Refused::failed(format!("{what}: {error}"));
        let done = tokio::task::spawn_blocking(run).await.map_err(|error| failed(&error))?;
        done.map_err(|panic| failed(&panic))
    }

    async fn files(&self) -> Result<Response, Refused> {
        let files = self.run_blocking("list files", answers::files).await?;
        files.map(|files| json(&files)).ok_or_else(Refused::no_folder)
    }

    async fn drop_clean(&self, request: VolumeRequest) -> Result<Response, Refused> {
        let volumes = keep::asked_for(&self.service, &request)?;
        let dropped = self.run_blocking("drop", move |service| keep::drop_clean(service, &volumes));
        Ok(json(&dropped.await?))
    }

    fn freeze(&self, request: &VolumeRequest, frozen: bool) -> Result<Response, Refused> {
        let volumes = keep::asked_for(&self.service, request)?;
        Ok(json(&keep::freeze(&self.service, &volumes, frozen)))
    }

    async fn pin(&self, request: RangeRequest) -> Result<Response, Refused> {
        let pinned = self.run_blocking("pin", move |service| keep::pin(service, &request));
        Ok(json(&pinned.await??))
    }

    async fn unpin(&self, request: RangeRequest) -> Result<Response, Refused> {
        let pinned = self.run_blocking("unpin", move |service| keep::unpin(service, &request));
        Ok(json(&pinned.await??))
    }

    async fn set(&self, request: SetRequest) -> Result<Response, Refused> {
        let settings: Vec<_> =
            request.set.iter().map(|(name, value)| Setting::parse(name, value)).collect();
        let changed = self.run_blocking("set", move |service| service.set(&settings));
        let changed = changed.await?.map_err(Refused::wrong)?;
        Ok(json(&Changed { changed, ..Changed::default() }))
    }

    fn flush(&self, request: &VolumeRequest) -> Result<Response, Refused> {
        let volumes = keep::asked_for(&self.service, request)?;
        self.jobs.start(&self.service, move |service, told| jobs::flush(service, &volumes, told))
    }

    fn warm(&self, request: RangeRequest) -> Result<Response, Refused> {
        let instead = "whose files are warm once they were read";
        let served = keep::find(&self.service, &request, "warm", instead)?;
        let ranges = request.ranges;
        self.jobs
            .start(&self.service, move |service, told| jobs::warm(service, &served, &ranges, told))
    }

    async fn add(&self, AddRequest { volume, set }: AddRequest) -> Result<Response, Refused> {
        let added = self.run_blocking("add", move |service| service.add(&volume, &set)).await?;
        let served = added.map_err(|error| Refused::wrong(crate::output::sentence(&error)))?;
        Ok(json(&answers::of_volumes(&self.service, vec![served])))
    }

    fn remove(&self, request: RemoveRequest) -> Result<Response, Refused> {
        let RemoveRequest { volume, disconnect, give_up } = request;
        let served = self.service.volume(&volume).ok_or_else(|| Refused::no_volume(&volume))?;
        let unused = self.service.check_unused(&volume, disconnect);
        unused.map_err(|error| Refused::wrong(error.to_string()))?;
        let remove = move |service: &Service, told: &jobs::Told| {
            jobs::remove(service, served, (disconnect, give_up), told)
        };
        self.jobs.start(&self.service, remove)
    }

    fn stop(&self) -> Response {
        self.service.ask_to_stop();
        jobs::follow_stop(&self.service)
    }
}

/// A request body without fields.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Empty {}
