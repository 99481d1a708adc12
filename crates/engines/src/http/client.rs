//! One server, asked over connections that are kept.

use super::addresses::Addresses;
use super::tls::{self, TlsError};
use super::{ServerUrl, TlsFiles};
use std::fmt;
use std::io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, NotConnected, UnexpectedEof};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use ureq::unversioned::transport::DefaultConnector;
use ureq::{Agent, Error};

/// Who asks one server.
pub(crate) struct Client {
    url: String,
    /// None asks in plain text, and needs no certificates.
    tls: Option<TlsFiles>,
    /// As many as may be in use at once.
    connections: usize,
    current: Mutex<Current>,
}

struct Current {
    agent: Agent,
    /// Of the files its certificates are from.
    digest: u64,
}

#[derive(Clone, Copy)]
pub(crate) struct Question<'a> {
    /// JSON.
    pub(crate) body: &'a [u8],
    /// Who asks, where the server wants to know.
    pub(crate) bearer: Option<&'a str>,
    pub(crate) until: Instant,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum HttpError {
    #[error("no answer in time")]
    Late,
    #[error("it answers with status {status}{}{said}", if said.is_empty() { "" } else { ": " })]
    Status { status: u16, said: String },
    #[error("its answer is longer than {MOST_BYTES} bytes")]
    TooLong,
    #[error("{0}")]
    Broken(String),
}

/// Of an answer. Those that are expected have some hundred bytes.
const MOST_BYTES: u64 = 1 << 20;
/// How long a connection is kept that nobody uses.
const MOST_IDLE: Duration = Duration::from_secs(30);
/// Of what a server says with an error.
const SAID_BYTES: usize = 300;

impl Client {
    pub(crate) fn new(url: &ServerUrl, tls: Option<&TlsFiles>, connections: usize) -> Result<Self, TlsError> {
        let tls = url.is_tls.then(|| tls.cloned().unwrap_or_default());
        let current = Mutex::new(Current::new(tls.as_ref(), connections)?);
        Ok(Self { url: url.to_string(), tls, connections, current })
    }

    /// Reads the certificates again; whether there are new ones. Bad ones change nothing.
    pub(crate) fn reload(&self) -> Result<bool, TlsError> {
        let new = Current::new(self.tls.as_ref(), self.connections)?;
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        let has_changed = new.digest != current.digest;
        if has_changed {
            *current = new;
        }
        Ok(has_changed)
    }

    /// What the server says, before the deadline.
    pub(crate) fn ask(&self, question: Question<'_>) -> Result<Vec<u8>, HttpError> {
        let agent = self.current.lock().unwrap_or_else(PoisonError::into_inner).agent.clone();
        match self.try_once(&agent, question, MOST_IDLE) {
            // A connection that was kept may die with its server: that says nothing of the one that is
            // there now. Judging changes nothing, so it can be asked again, on a connection of its own.
            Err(error) if is_disconnect(&error) => self.try_once(&agent, question, Duration::ZERO),
            first => first,
        }
        .map_err(told)
        .and_then(|(status, body)| match status {
            200..300 => Ok(body),
            _ => Err(HttpError::Status { status, said: excerpt(&String::from_utf8_lossy(&body)) }),
        })
    }

    fn try_once(&self, agent: &Agent, question: Question<'_>, idle: Duration) -> Result<(u16, Vec<u8>), Error> {
        let left = question.until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(Error::Timeout(ureq::Timeout::Global));
        }
        let mut request = agent.post(&self.url).content_type("application/json");
        if let Some(bearer) = question.bearer {
            request = request.header("authorization", format!("Bearer {bearer}"));
        }
        let request = request.config().timeout_global(Some(left)).max_idle_age(idle).build();
        let mut answer = request.send(question.body)?;
        // With the deadline above: the client counts all of it.
        let body = answer.body_mut().with_config().limit(MOST_BYTES).read_to_vec()?;
        Ok((answer.status().as_u16(), body))
    }
}

impl Current {
    fn new(tls: Option<&TlsFiles>, connections: usize) -> Result<Self, TlsError> {
        let mut config = Agent::config_builder()
            // What it says with an error is told.
            .http_status_as_error(false)
            // Neither questions nor certificates go anywhere else: not by redirects, not by HTTP_PROXY.
            .max_redirects(0)
            .max_redirects_will_error(false)
            .proxy(None)
            .user_agent(concat!("namewall/", env!("CARGO_PKG_VERSION")))
            .max_idle_connections(connections)
            .max_idle_connections_per_host(connections)
            .max_idle_age(MOST_IDLE);
        let mut digest = 0;
        if let Some(tls) = tls {
            let trust = tls::read(tls)?;
            config = config.tls_config(trust.config);
            digest = trust.digest;
        }
        let agent = Agent::with_parts(config.build(), DefaultConnector::default(), Addresses::default());
        Ok(Self { agent, digest })
    }
}

fn is_disconnect(error: &Error) -> bool {
    let kinds = [BrokenPipe, ConnectionAborted, ConnectionReset, NotConnected, UnexpectedEof];
    matches!(error, Error::Io(error) if kinds.contains(&error.kind()))
}

fn told(error: Error) -> HttpError {
    match error {
        Error::Timeout(_) => HttpError::Late,
        Error::BodyExceedsLimit(_) => HttpError::TooLong,
        Error::Io(error) if matches!(error.kind(), std::io::ErrorKind::TimedOut | std::io::ErrorKind::WouldBlock) => {
            HttpError::Late
        }
        Error::Io(error) => HttpError::Broken(error.to_string()),
        error => HttpError::Broken(error.to_string()),
    }
}

/// A line of what somebody else says, for a message.
fn excerpt(text: &str) -> String {
    let line: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(SAID_BYTES) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("url", &self.url).field("tls", &self.tls).finish_non_exhaustive()
    }
}
