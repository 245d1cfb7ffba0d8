//! What can be asked for: one row for each path.

use super::request::{Json, Refused, json, refusal};
use super::{answers, curves, jobs, keep, metrics};
use crate::commands::serve::changes::Setting;
use crate::commands::serve::service::Service;
use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use larder_report::control::{
    AddRequest, Changed, RangeRequest, RemoveRequest, SetRequest, VolumeRequest,
};
use larder_report::openmetrics::MEDIA_TYPE;
use std::sync::Arc;

/// What handlers share.
#[derive(Clone)]
pub(super) struct Shared {
    pub(super) service: Arc<Service>,
    pub(super) jobs: jobs::Jobs,
}

/// The table of paths.
pub(super) fn router(service: Arc<Service>) -> Router {
    let shared = Shared { service, jobs: jobs::Jobs::new() };
    Router::new()
        .route("/metrics", get(metrics))
        .route("/v1/stats", get(stats))
        .route("/v1/volumes", get(volumes))
        .route("/v1/at-risk", get(at_risk))
        .route("/v1/curve", get(curve))
        .route("/v1/files", get(files))
        .route("/v1/drop", post(drop_clean))
        .route("/v1/freeze", post(freeze))
        .route("/v1/unfreeze", post(unfreeze))
        .route("/v1/pin", post(pin))
        .route("/v1/unpin", post(unpin))
        .route("/v1/set", post(set))
        .route("/v1/flush", post(flush))
        .route("/v1/warm", post(warm))
        .route("/v1/add", post(add))
        .route("/v1/remove", post(remove))
        .route("/v1/stop", post(stop))
        .fallback(no_path)
        .method_not_allowed_fallback(no_method)
        .with_state(shared)
}

async fn no_path(uri: Uri) -> Response {
    let error = format!("find {}: there is no such path; see docs/control.md", uri.path());
    refusal(StatusCode::NOT_FOUND, error)
}

async fn no_method(uri: Uri) -> Response {
    let error = format!("do this with {}: another method is meant", uri.path());
    refusal(StatusCode::METHOD_NOT_ALLOWED, error)
}

async fn metrics(State(shared): State<Shared>) -> Response {
    ([(header::CONTENT_TYPE, MEDIA_TYPE)], metrics::text(&shared.service)).into_response()
}

async fn stats(State(shared): State<Shared>) -> Response {
    json(&answers::stats(&shared.service))
}

async fn volumes(State(shared): State<Shared>) -> Response {
    json(&answers::volumes(&shared.service))
}

async fn at_risk(State(shared): State<Shared>) -> Response {
    json(&answers::at_risk(&shared.service))
}

async fn curve(State(shared): State<Shared>) -> Response {
    json(&curves::curves(&shared.service))
}

async fn files(State(shared): State<Shared>) -> Result<Response, Refused> {
    let service = Arc::clone(&shared.service);
    // It looks at every page.
    let files = tokio::task::spawn_blocking(move || answers::files(&service)).await;
    let files = files.map_err(|error| Refused::failed(format!("list files: {error}")))?;
    match files {
        Some(files) => Ok(json(&files)),
        None => Err(Refused::no_folder()),
    }
}

async fn drop_clean(
    State(shared): State<Shared>,
    Json(request): Json<VolumeRequest>,
) -> Result<Response, Refused> {
    let volumes = keep::asked_for(&shared.service, &request)?;
    let service = Arc::clone(&shared.service);
    // It looks at every page.
    let dropped = tokio::task::spawn_blocking(move || keep::drop_clean(&service, &volumes)).await;
    let dropped = dropped.map_err(|error| Refused::failed(format!("drop: {error}")))?;
    Ok(json(&dropped))
}

async fn freeze(
    State(shared): State<Shared>,
    Json(request): Json<VolumeRequest>,
) -> Result<Response, Refused> {
    let volumes = keep::asked_for(&shared.service, &request)?;
    Ok(json(&keep::freeze(&shared.service, &volumes, true)))
}

async fn unfreeze(
    State(shared): State<Shared>,
    Json(request): Json<VolumeRequest>,
) -> Result<Response, Refused> {
    let volumes = keep::asked_for(&shared.service, &request)?;
    Ok(json(&keep::freeze(&shared.service, &volumes, false)))
}

async fn pin(
    State(shared): State<Shared>,
    Json(request): Json<RangeRequest>,
) -> Result<Response, Refused> {
    let service = Arc::clone(&shared.service);
    let pinned = tokio::task::spawn_blocking(move || keep::pin(&service, &request)).await;
    let pinned = pinned.map_err(|error| Refused::failed(format!("pin: {error}")))?;
    Ok(json(&pinned?))
}

async fn unpin(
    State(shared): State<Shared>,
    Json(request): Json<RangeRequest>,
) -> Result<Response, Refused> {
    let service = Arc::clone(&shared.service);
    let pinned = tokio::task::spawn_blocking(move || keep::unpin(&service, &request)).await;
    let pinned = pinned.map_err(|error| Refused::failed(format!("unpin: {error}")))?;
    Ok(json(&pinned?))
}

async fn set(
    State(shared): State<Shared>,
    Json(request): Json<SetRequest>,
) -> Result<Response, Refused> {
    let settings: Vec<_> =
        request.set.iter().map(|(name, value)| Setting::parse(name, value)).collect();
    let service = Arc::clone(&shared.service);
    // A new policy looks at every page.
    let set = tokio::task::spawn_blocking(move || service.set(&settings));
    let changed = set.await.map_err(|error| Refused::failed(format!("set: {error}")))?;
    let changed = changed.map_err(Refused::wrong)?;
    Ok(json(&Changed { changed, ..Changed::default() }))
}

async fn flush(
    State(shared): State<Shared>,
    Json(request): Json<VolumeRequest>,
) -> Result<Response, Refused> {
    let volumes = keep::asked_for(&shared.service, &request)?;
    let service = Arc::clone(&shared.service);
    shared.jobs.start(move |told| jobs::flush(&service, &volumes, told))
}

async fn warm(
    State(shared): State<Shared>,
    Json(request): Json<RangeRequest>,
) -> Result<Response, Refused> {
    let instead = "whose files are warm once they were read";
    let served = keep::find(&shared.service, &request, "warm", instead)?;
    let service = Arc::clone(&shared.service);
    shared.jobs.start(move |told| jobs::warm(&service, &served, &request.ranges, told))
}

async fn add(
    State(shared): State<Shared>,
    Json(AddRequest { volume, set }): Json<AddRequest>,
) -> Result<Response, Refused> {
    let service = Arc::clone(&shared.service);
    // Another server may take its time to answer.
    let added = tokio::task::spawn_blocking(move || service.add(&volume, &set));
    let added = added.await.map_err(|error| Refused::failed(format!("add: {error}")))?;
    let served = added.map_err(|error| Refused::wrong(crate::output::sentence(&error)))?;
    Ok(json(&answers::of_volumes(&shared.service, vec![served])))
}

async fn remove(
    State(shared): State<Shared>,
    Json(RemoveRequest { volume, disconnect }): Json<RemoveRequest>,
) -> Result<Response, Refused> {
    let served = shared.service.volume(&volume).ok_or_else(|| Refused::no_volume(&volume))?;
    let unused = shared.service.check_unused(&volume, disconnect);
    unused.map_err(|error| Refused::wrong(error.to_string()))?;
    let service = Arc::clone(&shared.service);
    shared.jobs.start(move |told| jobs::remove(&service, served, disconnect, told))
}

async fn stop(State(shared): State<Shared>, Json(_): Json<Empty>) -> Response {
    shared.service.ask_to_stop();
    jobs::follow_stop(&shared.service)
}

/// A body with nothing in it.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Empty {}
