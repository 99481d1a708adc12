//! What is served, by path.

use crate::export::Metrics;
use crate::format::Format;
use crate::health::Health;
use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{ACCEPT, ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;

const PLAIN: &str = "text/plain; charset=utf-8";

#[derive(Clone, Debug)]
pub enum Page {
    /// `/health` and `/healthz`: whether it is alive.
    Health(Health),
    /// `/ready` and `/readyz`: whether it does its work.
    Ready(Health),
    /// `/metrics`
    Metrics(Arc<Metrics>),
}

impl Page {
    fn paths(&self) -> &'static [&'static str] {
        match self {
            Self::Health(_) => &["/health", "/healthz"],
            Self::Ready(_) => &["/ready", "/readyz"],
            Self::Metrics(_) => &["/metrics"],
        }
    }
}

/// What is said to a request.
struct Reply {
    status: StatusCode,
    content_type: &'static str,
    body: Bytes,
}

impl Reply {
    fn plain(status: StatusCode, body: &'static str) -> Self {
        Self { status, content_type: PLAIN, body: Bytes::from_static(body.as_bytes()) }
    }

    fn of(check: Result<(), &'static str>) -> Self {
        match check {
            Ok(()) => Self::plain(StatusCode::OK, "OK"),
            Err(why) => Self::plain(StatusCode::SERVICE_UNAVAILABLE, why),
        }
    }

    fn response(self) -> Response<Full<Bytes>> {
        let mut response = Response::new(Full::new(self.body));
        *response.status_mut() = self.status;
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(self.content_type));
        if self.status == StatusCode::METHOD_NOT_ALLOWED {
            response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        }
        response
    }
}

pub(super) async fn reply<B>(
    request: Request<B>,
    pages: Arc<[Page]>,
    scraping: Arc<Semaphore>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        return Ok(Reply::plain(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD are served\n").response());
    }
    let path = request.uri().path();
    let reply = match pages.iter().find(|page| page.paths().contains(&path)) {
        None => Reply::plain(StatusCode::NOT_FOUND, "nothing is here\n"),
        Some(Page::Health(health)) => Reply::of(health.check_alive(Instant::now())),
        Some(Page::Ready(health)) => Reply::of(health.check_ready(Instant::now())),
        Some(Page::Metrics(metrics)) => {
            let accept = request.headers().get(ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
            scrape(metrics.clone(), Format::accepted(accept), scraping).await
        }
    };
    Ok(reply.response())
}

/// Collects the metrics on another thread, one scrape after the other: they may wait for a lock of the daemon.
async fn scrape(metrics: Arc<Metrics>, format: Format, scraping: Arc<Semaphore>) -> Reply {
    let failed = Reply::plain(StatusCode::INTERNAL_SERVER_ERROR, "the metrics cannot be collected\n");
    // The permit goes along, so that a client that leaves does not let a second scrape begin.
    let Ok(permit) = scraping.acquire_owned().await else { return failed };
    let collect = move || {
        let text = metrics.text(format);
        drop(permit);
        text
    };
    match spawn_blocking(collect).await {
        Ok(text) => Reply { status: StatusCode::OK, content_type: format.content_type(), body: text.into() },
        Err(_) => failed,
    }
}
