//! Bodies of requests, which are bounded in size and time, and refusals.

use axum::body::Body;
use axum::extract::{FromRequest, Request};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use larder_report::control::Refusal;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use std::time::Duration;

/// Larger bodies are refused.
pub(super) const BODY_BYTES_MAX: usize = 64 << 10;
/// How long a body may take to come.
const BODY_TIME_MAX: Duration = Duration::from_secs(10);

/// Why a request is not done: what the client did wrong, or what went wrong here.
#[derive(Debug)]
pub(super) struct Refused {
    status: StatusCode,
    /// A sentence that can follow "failed to".
    error: String,
}

impl Refused {
    /// What was asked for makes no sense or is not there.
    pub(super) fn wrong(error: impl Into<String>) -> Self {
        Refused { status: StatusCode::UNPROCESSABLE_ENTITY, error: error.into() }
    }

    /// No volume has this name.
    pub(super) fn no_volume(name: &str) -> Self {
        let error = format!("find the volume \"{name}\": none is called so");
        Refused { status: StatusCode::NOT_FOUND, error }
    }

    /// There is no folder here whose files could be told.
    pub(super) fn no_folder() -> Self {
        let error = "list files: this server serves volumes; ask a larder mount".to_owned();
        Refused { status: StatusCode::NOT_FOUND, error }
    }

    /// It could be done at another time.
    pub(super) fn busy(error: impl Into<String>) -> Self {
        Refused { status: StatusCode::SERVICE_UNAVAILABLE, error: error.into() }
    }

    /// Something went wrong here.
    pub(super) fn failed(error: impl Into<String>) -> Self {
        Refused { status: StatusCode::INTERNAL_SERVER_ERROR, error: error.into() }
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        refusal(self.status, self.error)
    }
}

/// An answer that says why there is no other.
pub(super) fn refusal(status: StatusCode, error: impl Into<String>) -> Response {
    let mut response = json(&Refusal { error: error.into() });
    *response.status_mut() = status;
    response
}

/// An answer in JSON.
pub(super) fn json<T: Serialize>(value: &T) -> Response {
    let mut text = serde_json::to_vec_pretty(value).expect("maps with keys of text");
    text.push(b'\n');
    ([(header::CONTENT_TYPE, "application/json")], text).into_response()
}

/// The body of a request, read from JSON. An empty one is an empty object.
pub(super) struct Json<T>(pub(super) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Json<T> {
    type Rejection = Refused;

    async fn from_request(request: Request, _: &S) -> Result<Self, Refused> {
        let body = Body::new(request.into_body());
        let bytes = tokio::time::timeout(BODY_TIME_MAX, axum::body::to_bytes(body, BODY_BYTES_MAX));
        let bytes = match bytes.await {
            Ok(Ok(bytes)) => bytes,
            Ok(Err(error)) => {
                let error = format!("read the request, at most {BODY_BYTES_MAX} bytes: {error}");
                return Err(Refused { status: StatusCode::PAYLOAD_TOO_LARGE, error });
            }
            Err(_) => {
                let error = "read the request: it took too long to come".to_owned();
                return Err(Refused { status: StatusCode::REQUEST_TIMEOUT, error });
            }
        };
        let text = if bytes.is_empty() { b"{}" } else { bytes.as_ref() };
        // As an object first: a list would pass for the fields in their order.
        let object = serde_json::from_slice::<Map<String, Value>>(text);
        match object.and_then(|object| serde_json::from_value(Value::Object(object))) {
            Ok(value) => Ok(Json(value)),
            Err(error) => {
                let error = format!("understand the request: {error}");
                Err(Refused { status: StatusCode::BAD_REQUEST, error })
            }
        }
    }
}
