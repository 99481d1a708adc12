//! The HTTP server of a daemon. One thread serves all of its addresses, with a runtime of its own, so that nothing else
//! waits for a client. Everything is bounded: connections, heads, and how long a client may take. `connection` is what
//! becomes of one connection, `page` what is served.

mod connection;
mod page;

pub use page::Page;

use connection::Connections;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener as StdListener};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::oneshot;
use tokio::task::AbortHandle;

/// How long no connection is accepted after one could not be, for want of file descriptors for example.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

/// What is served at an address.
#[derive(Clone, Debug)]
pub struct Site {
    /// `[::]` is every address of both families, also where there is no IPv6.
    pub at: SocketAddr,
    pub pages: Vec<Page>,
}

#[derive(Debug, thiserror::Error)]
#[error("cannot listen at {at}")]
pub struct ListenError {
    pub at: SocketAddr,
    pub source: io::Error,
}

/// Serves until it is dropped.
#[derive(Debug)]
pub struct Server {
    handle: Handle,
    listening: Vec<Listening>,
    connections: Arc<Connections>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// A socket that accepts connections.
#[derive(Debug)]
struct Listening {
    /// As it was asked for.
    at: SocketAddr,
    /// As it is: the port may have been chosen by the system.
    bound: SocketAddr,
    pages: Arc<Pages>,
    accepting: AbortHandle,
}

/// What is served at an address; it can change while connections are open.
type Pages = Mutex<Arc<[Page]>>;

impl Server {
    /// Serves nothing yet.
    pub fn start() -> io::Result<Self> {
        // A scrape runs on the one thread for blocking calls, so that probes do not wait for it.
        let runtime = Builder::new_current_thread().max_blocking_threads(1).enable_io().enable_time().build()?;
        let (handle, (stop, stopped)) = (runtime.handle().clone(), oneshot::channel());
        let thread = std::thread::Builder::new().name("http".to_owned()).spawn(move || run(runtime, stopped))?;
        let connections = Arc::default();
        Ok(Self { handle, listening: Vec::new(), connections, stop: Some(stop), thread: Some(thread) })
    }

    /// Serves these sites and no others. Sites with the same address share it; an address that was served before keeps
    /// its socket. If one cannot be had, everything stays as it was.
    pub fn set(&mut self, sites: Vec<Site>) -> Result<(), ListenError> {
        let mut merged: Vec<Site> = Vec::new();
        for site in sites {
            match merged.iter_mut().find(|known| known.at == site.at) {
                Some(known) => known.pages.extend(site.pages),
                None => merged.push(site),
            }
        }
        let mut sockets = Vec::new();
        for Site { at, .. } in &merged {
            let is_known = self.listening.iter().any(|known| known.at == *at);
            let socket = (!is_known).then(|| self.bind(*at).map_err(|source| ListenError { at: *at, source }));
            sockets.push(socket.transpose()?);
        }
        let mut before = std::mem::take(&mut self.listening);
        for (Site { at, pages }, socket) in merged.into_iter().zip(sockets) {
            let known = before.iter().position(|known| known.at == at).map(|at| before.swap_remove(at));
            match (known, socket) {
                (Some(known), _) => {
                    *known.pages.lock().unwrap_or_else(PoisonError::into_inner) = pages.into();
                    self.listening.push(known);
                }
                (None, Some((socket, bound))) => {
                    let pages: Arc<Pages> = Arc::new(Mutex::new(pages.into()));
                    let accept = accept(socket, pages.clone(), self.connections.clone());
                    let accepting = self.handle.spawn(accept).abort_handle();
                    self.listening.push(Listening { at, bound, pages, accepting });
                }
                (None, None) => {}
            }
        }
        before.iter().for_each(|gone| gone.accepting.abort());
        Ok(())
    }

    /// The addresses that are served, in the order in which they were asked for.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.listening.iter().map(|one| one.bound).collect()
    }

    fn bind(&self, at: SocketAddr) -> io::Result<(TcpListener, SocketAddr)> {
        let socket = match StdListener::bind(at) {
            // A machine without IPv6.
            Err(error) if at.ip() == IpAddr::V6(Ipv6Addr::UNSPECIFIED) && error.kind() != io::ErrorKind::AddrInUse => {
                StdListener::bind((Ipv4Addr::UNSPECIFIED, at.port()))
            }
            other => other,
        }?;
        socket.set_nonblocking(true)?;
        let bound = socket.local_addr()?;
        let _inside = self.handle.enter();
        Ok((TcpListener::from_std(socket)?, bound))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Runs all tasks until the server is dropped. A scrape that is under way then is not waited for.
fn run(runtime: Runtime, stopped: oneshot::Receiver<()>) {
    let _ = runtime.block_on(stopped);
    runtime.shutdown_background();
}

async fn accept(listener: TcpListener, pages: Arc<Pages>, connections: Arc<Connections>) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let pages = pages.lock().unwrap_or_else(PoisonError::into_inner).clone();
                connections.serve(stream, pages);
            }
            Err(error) => {
                tracing::debug!(%error, "cannot accept a connection for HTTP");
                tokio::time::sleep(ACCEPT_AGAIN).await;
            }
        }
    }
}

#[cfg(test)]
mod tests;
