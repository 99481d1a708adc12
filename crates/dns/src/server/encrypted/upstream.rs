//! Asks an upstream over HTTPS (RFC 8484): one connection of HTTP/2, many requests at once.
//!
//! ```text
//!   loop ── query, id ──► task of the upstream ──► POST ──► upstream
//!     ▲                                                        │
//!     └── wake ◄── heard: id, answer or why there is none ◄────┘
//! ```
//!
//! The loop has the time: it asks others, or gives up, as with upstreams over UDP. A task that cannot connect says so for
//! every query that it was given, and ends.

use crate::doh::{LONGEST, MEDIA_TYPE};
use crate::server::lock;
use crate::server::settings::Tls;
use crate::wire::Header;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper::client::conn::http2::{self, SendRequest};
use hyper::header::{ACCEPT, CONTENT_TYPE};
use hyper::{Request, Uri};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use nix::sys::eventfd::EventFd;
use rustls::pki_types::ServerName;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::AbortHandle;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

/// How long a connection may take, with its handshake.
const CONNECT: Duration = Duration::from_secs(5);
/// Longest wait for one request. The loop's own timeouts end much earlier.
const REQUEST: Duration = Duration::from_secs(10);
/// The longest head of a response.
const LONGEST_HEAD: u32 = 16 << 10;

/// Where requests go.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(crate) address: SocketAddr,
    pub(crate) tls: Tls,
    pub(crate) path: Arc<str>,
}

/// What became of a query.
#[derive(Debug)]
pub(in crate::server) struct HttpsHeard {
    /// The number of the connection.
    pub(in crate::server) number: u32,
    pub(in crate::server) id: u16,
    /// The answer, under the id of the query.
    pub(in crate::server) answer: Result<Vec<u8>, RequestError>,
    /// True if the connection has delivered an answer before.
    pub(in crate::server) has_answered: bool,
}

/// Why a query has no answer.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum RequestError {
    /// The connection could not be made, or has failed: none of its queries is answered.
    #[error("{0}")]
    Connection(String),
    /// The response carries no answer, or did not come in time. The connection serves other queries.
    #[error("{0}")]
    Response(String),
}

/// Where a loop finds what it asked for.
#[derive(Clone, Debug)]
pub(in crate::server) struct HeardBox {
    pub(in crate::server) heard: Arc<Mutex<Vec<HttpsHeard>>>,
    pub(in crate::server) wake: Arc<EventFd>,
}

impl HeardBox {
    fn put(&self, heard: HttpsHeard) {
        lock(&self.heard).push(heard);
        let _ = self.wake.write(1);
    }
}

/// A query, under the id by which its loop knows it.
struct Query {
    id: u16,
    message: Vec<u8>,
}

/// A connection to an upstream, as its loop has it.
#[derive(Debug)]
pub(in crate::server) struct HttpsConnection {
    pub(in crate::server) number: u32,
    queries: UnboundedSender<Query>,
    task: AbortHandle,
}

impl HttpsConnection {
    /// Begins to connect.
    pub(in crate::server) fn start(number: u32, target: Target, heard: HeardBox, threads: &Handle) -> Self {
        let (queries, asked) = unbounded_channel();
        let reporter = Reporter { number, heard, has_answered: Arc::default() };
        let task = threads.spawn(run(Arc::new(target), asked, reporter));
        Self { number, queries, task: task.abort_handle() }
    }

    /// Asks. False if the connection has ended.
    pub(in crate::server) fn ask(&self, message: &[u8], id: u16) -> bool {
        self.queries.send(Query { id, message: message.to_vec() }).is_ok()
    }

    /// True if its task takes no more queries: it could not connect, or the upstream has closed. The task notices a
    /// close only with the next query, whose failure it reports.
    pub(in crate::server) fn is_over(&self) -> bool {
        self.queries.is_closed()
    }

    /// Takes no more queries. Requests that were sent are tasks of their own: they still report, for up to [`REQUEST`].
    pub(in crate::server) fn abort(&self) {
        self.task.abort();
    }
}

#[derive(Clone, Debug)]
struct Reporter {
    number: u32,
    heard: HeardBox,
    has_answered: Arc<AtomicBool>,
}

impl Reporter {
    fn report(&self, id: u16, answer: Result<Vec<u8>, RequestError>) {
        let has_answered = self.has_answered.fetch_or(answer.is_ok(), Ordering::Relaxed);
        self.heard.put(HttpsHeard { number: self.number, id, answer, has_answered });
    }
}

async fn run(target: Arc<Target>, mut queries: UnboundedReceiver<Query>, reporter: Reporter) {
    let connected = match timeout(CONNECT, connect(&target)).await {
        Ok(connected) => connected,
        Err(_) => Err("i/o timeout".to_owned()),
    };
    let requests = match connected {
        Ok(requests) => requests,
        Err(error) => {
            // From now on nobody asks by this connection; those that have are told.
            queries.close();
            while let Some(query) = queries.recv().await {
                reporter.report(query.id, Err(RequestError::Connection(error.clone())));
            }
            return;
        }
    };
    while let Some(Query { id, message }) = queries.recv().await {
        if requests.is_closed() {
            queries.close();
            reporter.report(id, Err(RequestError::Connection("the connection was closed".to_owned())));
            continue;
        }
        let (target, requests, reporter) = (target.clone(), requests.clone(), reporter.clone());
        tokio::spawn(async move {
            let answer = timeout(REQUEST, post(&target, requests, message)).await;
            let answer = answer.unwrap_or_else(|_| Err(RequestError::Response("i/o timeout".to_owned())));
            let answer = answer.map(|mut answer| {
                Header::set_id(&mut answer, id);
                answer
            });
            reporter.report(id, answer);
        });
    }
}

type Requests = SendRequest<Full<Bytes>>;

/// Connects, with TLS and HTTP/2.
async fn connect(target: &Target) -> Result<Requests, String> {
    let text = |error: &dyn std::fmt::Display| error.to_string();
    let tcp = TcpStream::connect(target.address).await.map_err(|error| text(&error))?;
    tcp.set_nodelay(true).map_err(|error| text(&error))?;
    let connector = TlsConnector::from(target.tls.config.clone());
    let stream = connector.connect(target.tls.name.clone(), tcp).await.map_err(|error| text(&error))?;
    if stream.get_ref().1.alpn_protocol() != Some(b"h2") {
        return Err("the server does not speak HTTP/2".to_owned());
    }
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder.timer(TokioTimer::new()).max_header_list_size(LONGEST_HEAD);
    let (requests, connection) = builder.handshake(TokioIo::new(stream)).await.map_err(|error| text(&error))?;
    // It ends with the last request and its answer.
    tokio::spawn(connection);
    Ok(requests)
}

/// Sends one query, and waits for its answer. Both have the id 0, so that HTTP caches can know them again.
async fn post(target: &Target, mut requests: Requests, mut message: Vec<u8>) -> Result<Vec<u8>, RequestError> {
    Header::set_id(&mut message, 0);
    let request = Request::post(uri(target).map_err(RequestError::Response)?)
        .header(CONTENT_TYPE, MEDIA_TYPE)
        .header(ACCEPT, MEDIA_TYPE)
        .body(Full::new(Bytes::from(message)))
        .map_err(|error| RequestError::Response(error.to_string()))?;
    let sent = requests.send_request(request).await;
    // A stream that the upstream resets counts as a lost connection, too: the next query takes another one.
    let response = sent.map_err(|error| RequestError::Connection(error.to_string()))?;
    if !response.status().is_success() {
        return Err(RequestError::Response(format!("HTTP {}", response.status().as_u16())));
    }
    let media_type = response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if !media_type.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case(MEDIA_TYPE) {
        let error = format!("the content type is `{media_type}` instead of `{MEDIA_TYPE}`");
        return Err(RequestError::Response(error));
    }
    let body = Limited::new(response.into_body(), LONGEST).collect().await.map_err(|error| {
        let text = error.to_string();
        if error.is::<LengthLimitError>() { RequestError::Response(text) } else { RequestError::Connection(text) }
    })?;
    let answer = body.to_bytes().to_vec();
    match Header::read(&answer) {
        Ok(header) if header.id == 0 => Ok(answer),
        _ => Err(RequestError::Response("the body is not the answer to the query".to_owned())),
    }
}

/// The URL of requests: the host is the name whose certificate the server has.
fn uri(target: &Target) -> Result<Uri, String> {
    let host = match &target.tls.name {
        ServerName::DnsName(name) => name.as_ref().to_owned(),
        _ if target.address.is_ipv6() => format!("[{}]", target.address.ip()),
        _ => target.address.ip().to_string(),
    };
    let authority = match target.address.port() {
        443 => host,
        port => format!("{host}:{port}"),
    };
    Uri::builder()
        .scheme("https")
        .authority(authority)
        .path_and_query(&*target.path)
        .build()
        .map_err(|error| error.to_string())
}

/// Asks once over a connection of its own, and waits: for callers that may wait.
pub(crate) fn ask_once(target: Target, message: &[u8], patience: Duration) -> Result<Vec<u8>, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build();
    let runtime = runtime.map_err(|error| error.to_string())?;
    let asked = async {
        let requests = connect(&target).await?;
        post(&target, requests, message.to_vec()).await.map_err(|error| error.to_string())
    };
    let answer = runtime.block_on(async { timeout(patience, asked).await });
    answer.unwrap_or_else(|_| Err("i/o timeout".to_owned()))
}
