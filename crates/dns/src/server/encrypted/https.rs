//! DNS over HTTPS (RFC 8484): requests of HTTP/2 and HTTP/1.1, as `doh` reads them.

use super::desk::{Outgoing, ReplyTo};
use super::slot::Slot;
use super::{Connected, Submitted};
use crate::doh::{self, BadRequest, LONGEST_QUERY, MEDIA_TYPE};
use bytes::Bytes;
use futures_util::future::{Either, select};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use std::convert::Infallible;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_rustls::server::TlsStream;

/// Requests that may be under way over one connection.
const MOST_STREAMS: u32 = 100;
/// The longest head of a request: a query that does not fit its URL is sent as a body.
const LONGEST_HEAD: usize = 16 << 10;
/// What a client may send of bodies before they are read: a message fits.
const WINDOW: u32 = 64 << 10;
/// How long a connection that is ended politely may take for it.
const GOODBYE: Duration = Duration::from_secs(1);

/// Serves one connection until either end has enough.
pub(super) async fn serve(stream: TlsStream<TcpStream>, connected: Arc<Connected>) {
    let is_h2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
    let (io, of_service) = (TokioIo::new(stream), connected.clone());
    let service = service_fn(move |request| respond(request, of_service.clone()));
    if is_h2 {
        let mut builder = http2::Builder::new(TokioExecutor::new());
        builder
            .timer(TokioTimer::new())
            .max_concurrent_streams(MOST_STREAMS)
            .max_header_list_size(LONGEST_HEAD as u32)
            .initial_stream_window_size(WINDOW)
            .initial_connection_window_size(4 * WINDOW)
            .max_send_buf_size(WINDOW as usize);
        until_idle(builder.serve_connection(io, service), http2::Connection::graceful_shutdown, &connected).await;
    } else {
        let mut builder = http1::Builder::new();
        builder.timer(TokioTimer::new()).header_read_timeout(connected.idle()).max_buf_size(LONGEST_HEAD);
        until_idle(builder.serve_connection(io, service), http1::Connection::graceful_shutdown, &connected).await;
    }
}

/// Runs a connection until it ends, or has been idle for long enough and is ended.
async fn until_idle<C: Future>(connection: C, shut: impl FnOnce(Pin<&mut C>), connected: &Connected) {
    let mut connection = pin!(connection);
    loop {
        let deadline = connected.activity.deadline(connected.idle());
        if deadline <= Instant::now() {
            break;
        }
        if let Either::Left(_) = select(connection.as_mut(), pin!(sleep_until(deadline))).await {
            return;
        }
    }
    shut(connection.as_mut());
    let _ = timeout(GOODBYE, connection).await;
}

/// The response to one request.
async fn respond(request: Request<Incoming>, connected: Arc<Connected>) -> Result<Response<AnswerBody>, Infallible> {
    let slot = Slot::new(connected.activity.clone(), None);
    let patience = connected.idle();
    let query = match timeout(patience, query_of(request)).await {
        Ok(Ok(query)) => query,
        Ok(Err(bad)) => {
            connected.shared.counters.bad_requests.add();
            return Ok(refusal(bad));
        }
        Err(_) => return Ok(status(StatusCode::REQUEST_TIMEOUT)),
    };
    let (to, answer) = oneshot::channel();
    if let Submitted::NoRoom = connected.submit(&query, ReplyTo::Request(to, slot)) {
        return Ok(status(StatusCode::SERVICE_UNAVAILABLE));
    }
    // Rules may want no answer at all. HTTP has no silence: it is an error of the server, as with CoreDNS.
    let Ok(answer) = answer.await else { return Ok(status(StatusCode::INTERNAL_SERVER_ERROR)) };
    let max_age = HeaderValue::try_from(format!("max-age={}", doh::max_age(&answer.message)));
    let mut response = Response::new(AnswerBody::new(answer));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(MEDIA_TYPE));
    if let Ok(max_age) = max_age {
        headers.insert(CACHE_CONTROL, max_age);
    }
    Ok(response)
}

/// The DNS query of a request.
async fn query_of(request: Request<Incoming>) -> Result<Vec<u8>, BadRequest> {
    if request.uri().path() != doh::PATH {
        return Err(BadRequest::Path);
    }
    if request.method() == Method::GET {
        return doh::query_of_get(request.uri().query());
    }
    if request.method() != Method::POST {
        return Err(BadRequest::Method);
    }
    let media_type = request.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if !media_type.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case(MEDIA_TYPE) {
        return Err(BadRequest::MediaType);
    }
    match Limited::new(request.into_body(), LONGEST_QUERY).collect().await {
        Ok(body) => doh::query_of_post(body.to_bytes().to_vec()),
        Err(error) if error.is::<LengthLimitError>() => Err(BadRequest::TooLong),
        Err(_) => Err(BadRequest::NotAQuery),
    }
}

fn refusal(bad: BadRequest) -> Response<AnswerBody> {
    let mut response = status(StatusCode::from_u16(bad.status()).unwrap_or(StatusCode::BAD_REQUEST));
    if bad == BadRequest::Method {
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, POST"));
    }
    response
}

fn status(code: StatusCode) -> Response<AnswerBody> {
    let mut response = Response::new(AnswerBody { bytes: None, _slot: None });
    *response.status_mut() = code;
    response
}

/// The body of a response. It has the slot of its question until it is sent or dropped.
pub(super) struct AnswerBody {
    bytes: Option<Bytes>,
    _slot: Option<Slot>,
}

impl AnswerBody {
    fn new(Outgoing { message, slot }: Outgoing) -> Self {
        Self { bytes: Some(message.into()), _slot: Some(slot) }
    }
}

impl Body for AnswerBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        Poll::Ready(self.bytes.take().map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        self.bytes.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
    }
}
