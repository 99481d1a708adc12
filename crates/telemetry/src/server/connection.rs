//! One connection: a request, its reply, and the end.

use super::page::{self, Page};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::task::AbortHandle;
use tokio::time::timeout;

/// Connections at a time. One more ends the oldest, which has had its time.
const MOST: usize = 64;
/// How long the head of a request may take.
const TIME_TO_ASK: Duration = Duration::from_secs(2);
/// How long a connection may take in all, with a scrape that waits for others.
const TIME_IN_ALL: Duration = Duration::from_secs(15);
/// How long the client has to read the end.
const TIME_TO_PART: Duration = Duration::from_secs(2);
/// The longest head of a request. hyper takes no less.
pub(super) const LONGEST_HEAD: usize = 8 << 10;
const MOST_HEADERS: usize = 64;

/// The open connections, the oldest first.
#[derive(Debug)]
pub(super) struct Connections {
    open: Mutex<VecDeque<AbortHandle>>,
    /// One scrape at a time.
    scraping: Arc<Semaphore>,
}

impl Default for Connections {
    fn default() -> Self {
        Self { open: Mutex::default(), scraping: Arc::new(Semaphore::new(1)) }
    }
}

impl Connections {
    /// Serves a connection in a task of its own.
    pub(super) fn serve(&self, stream: TcpStream, pages: Arc<[Page]>) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|one| !one.is_finished());
        while open.len() >= MOST
            && let Some(oldest) = open.pop_front()
        {
            oldest.abort();
        }
        open.push_back(tokio::spawn(serve(stream, pages, self.scraping.clone())).abort_handle());
    }
}

async fn serve(mut stream: TcpStream, pages: Arc<[Page]>, scraping: Arc<Semaphore>) {
    let reply = service_fn(|request| page::reply(request, pages.clone(), scraping.clone()));
    let http = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(TIME_TO_ASK)
        .max_buf_size(LONGEST_HEAD)
        .max_headers(MOST_HEADERS)
        .keep_alive(false)
        .serve_connection(TokioIo::new(&mut stream), reply);
    let is_slow = match timeout(TIME_IN_ALL, http).await {
        Ok(done) => done.is_err_and(|error| error.is_timeout()),
        Err(_) => true,
    };
    if !is_slow {
        // To close while there is something to read would take the reply back.
        let _ = timeout(TIME_TO_PART, drain(&stream)).await;
    }
}

/// Reads until the client closes.
async fn drain(stream: &TcpStream) -> io::Result<()> {
    let mut bytes = [0; 1_024];
    loop {
        stream.readable().await?;
        match stream.try_read(&mut bytes) {
            Ok(0) => return Ok(()),
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error),
            _ => {}
        }
    }
}
