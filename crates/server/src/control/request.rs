//! Requests and responses of the control API: allowed methods, bodies of bounded size and time.

use crate::output::sentence;
use http_body_util::channel::Channel;
use http_body_util::{BodyExt, Either, Full, LengthLimitError, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderName, HeaderValue, WWW_AUTHENTICATE};
use hyper::{Method, StatusCode};
use larder_schema::control::Refusal;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::convert::Infallible;
use std::time::Duration;

pub(super) type Request = hyper::Request<Incoming>;
/// A response with a complete or a streamed body.
pub(super) type Response = hyper::Response<Either<Full<Bytes>, Channel<Bytes, Infallible>>>;

/// Maximum size of a request body.
pub(super) const BODY_BYTES_MAX: usize = 64 << 10;
/// Time limit for receiving a body.
const BODY_TIME_MAX: Duration = Duration::from_secs(10);

/// A request that failed: a client error or a server error.
#[derive(Debug)]
pub(super) struct ApiError {
    status: StatusCode,
    /// Error text, a verb phrase that follows "cannot".
    error: String,
    /// A header that the status requires.
    header: Option<(HeaderName, &'static str)>,
}

impl ApiError {
    fn new(status: StatusCode, error: impl Into<String>) -> Self {
        ApiError { status, error: error.into(), header: None }
    }

    /// The request is invalid, or its object does not exist.
    pub(super) fn invalid(error: impl Into<String>) -> Self {
        ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, error)
    }

    /// The service refuses the request.
    #[expect(clippy::needless_pass_by_value, reason = "it converts an error")]
    pub(super) fn refused(error: anyhow::Error) -> Self {
        ApiError::invalid(sentence(&error))
    }

    /// The service does not have what the request names.
    #[expect(clippy::needless_pass_by_value, reason = "it converts an error")]
    pub(super) fn not_found(error: anyhow::Error) -> Self {
        ApiError::new(StatusCode::NOT_FOUND, sentence(&error))
    }

    /// The server serves volumes, and has no directory whose files it could list.
    pub(super) fn no_directory() -> Self {
        let error = "list files: this server serves volumes; send the request to a larder mount";
        ApiError::new(StatusCode::NOT_FOUND, error)
    }

    /// The control API has no such path.
    pub(super) fn no_path(path: &str) -> Self {
        let error = format!("find {path}: the control API has no such path (see docs/control.md)");
        ApiError::new(StatusCode::NOT_FOUND, error)
    }

    /// The path allows other methods only.
    fn no_method(path: &str, allowed: &'static str) -> Self {
        let error = format!("use this method on {path}: this path allows only {allowed}");
        let header = Some((ALLOW, allowed));
        ApiError { header, ..ApiError::new(StatusCode::METHOD_NOT_ALLOWED, error) }
    }

    /// The request lacks the token.
    pub(super) fn no_token() -> Self {
        let error = "authenticate: send the token of the server (Authorization: Bearer TOKEN)";
        let header = Some((WWW_AUTHENTICATE, "Bearer"));
        ApiError { header, ..ApiError::new(StatusCode::UNAUTHORIZED, error) }
    }

    /// The request may succeed later.
    pub(super) fn busy(error: impl Into<String>) -> Self {
        ApiError::new(StatusCode::SERVICE_UNAVAILABLE, error)
    }

    /// The server failed to execute the request.
    pub(super) fn failed(error: impl Into<String>) -> Self {
        ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, error)
    }

    /// Returns the response that states the reason.
    pub(super) fn into_response(self) -> Response {
        let mut response = json(Refusal { error: self.error });
        *response.status_mut() = self.status;
        let header = self.header.map(|(name, value)| (name, HeaderValue::from_static(value)));
        response.headers_mut().extend(header);
        response
    }
}

/// The media type of JSON.
pub(super) const JSON: &str = "application/json";

pub(super) fn json<T: Serialize>(value: T) -> Response {
    response(JSON, Either::Left(json_text(&value).into()))
}

pub(super) fn json_text<T: Serialize>(value: &T) -> Vec<u8> {
    let mut text = serde_json::to_vec_pretty(value).expect("maps with keys of text");
    text.push(b'\n');
    text
}

pub(super) fn response(
    media_type: &'static str,
    body: Either<Full<Bytes>, Channel<Bytes, Infallible>>,
) -> Response {
    let mut response = Response::new(body);
    let media_type = HeaderValue::from_static(media_type);
    response.headers_mut().insert(CONTENT_TYPE, media_type);
    response
}

/// Accepts GET and HEAD; hyper omits the body of the response to HEAD.
pub(super) fn get<T>(request: &Request, command: T) -> Result<T, ApiError> {
    if [Method::GET, Method::HEAD].contains(request.method()) {
        return Ok(command);
    }
    Err(ApiError::no_method(request.uri().path(), "GET,HEAD"))
}

/// Parses the JSON body of a POST. An empty body counts as an empty object.
pub(super) async fn post<T: DeserializeOwned>(request: Request) -> Result<T, ApiError> {
    if request.method() != Method::POST {
        return Err(ApiError::no_method(request.uri().path(), "POST"));
    }
    let body = Limited::new(request.into_body(), BODY_BYTES_MAX).collect();
    let bytes = match tokio::time::timeout(BODY_TIME_MAX, body).await {
        Ok(Ok(body)) => body.to_bytes(),
        Ok(Err(error)) if error.is::<LengthLimitError>() => {
            let error = format!(
                "read the request body: it has more than {BODY_BYTES_MAX} bytes; split the request \
                 into smaller ones"
            );
            return Err(ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, error));
        }
        Ok(Err(error)) => {
            let error = format!("read the request body: {error}");
            return Err(ApiError::new(StatusCode::BAD_REQUEST, error));
        }
        Err(_) => {
            let error = format!("read the request body: it took over {BODY_TIME_MAX:?}");
            return Err(ApiError::new(StatusCode::REQUEST_TIMEOUT, error));
        }
    };
    let text = if bytes.is_empty() { b"{}" } else { bytes.as_ref() };
    let invalid = |reason: &str| {
        ApiError::new(StatusCode::BAD_REQUEST, format!("parse the request body: {reason}"))
    };
    // serde also accepts a list of the fields in order.
    if !text.trim_ascii_start().starts_with(b"{") {
        return Err(invalid("it is not a JSON object"));
    }
    serde_json::from_slice(text).map_err(|error| invalid(&error.to_string()))
}
