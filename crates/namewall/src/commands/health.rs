//! HTTP for probes: `/healthz` says whether a process still turns, `/readyz`
//! whether it is ready.

use anyhow::{Context, Result};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Whoever has not turned for so long will not turn again.
const STUCK: Duration = Duration::from_secs(120);
/// Probes ask in one packet. Who does not is not waited for: one is answered after the other.
const PATIENCE: Duration = Duration::from_secs(1);
const LONGEST: u64 = 4 << 10;

/// What probes are told.
#[derive(Debug)]
struct State {
    turned: Mutex<Instant>,
    is_ready: AtomicBool,
}

/// How a process tells of itself.
#[derive(Clone, Debug)]
pub(crate) struct Health(Arc<State>);

impl Health {
    /// For a process that is not ready yet.
    pub(crate) fn new() -> Self {
        Self(Arc::new(State { turned: Mutex::new(Instant::now()), is_ready: AtomicBool::new(false) }))
    }

    /// Answers probes until the process ends.
    pub(crate) fn serve(&self, port: u16) -> Result<()> {
        // Where there is no IPv6 the one for both families cannot be had.
        let listener = TcpListener::bind((Ipv6Addr::UNSPECIFIED, port))
            .or_else(|_| TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)))
            .with_context(|| format!("cannot listen at port {port}"))?;
        let health = self.clone();
        let answer = move || {
            for stream in listener.incoming().flatten() {
                // Whoever went away needs no answer.
                let _ = health.answer(stream);
            }
        };
        std::thread::Builder::new().name("health".to_owned()).spawn(answer)?;
        Ok(())
    }

    /// It turns.
    pub(crate) fn turn(&self) {
        *self.0.turned.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    pub(crate) fn set_ready(&self) {
        self.0.is_ready.store(true, Ordering::Relaxed);
    }

    fn answer(&self, stream: TcpStream) -> std::io::Result<()> {
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let mut reader = BufReader::new(stream);
        let mut first = String::new();
        (&mut reader).take(LONGEST).read_line(&mut first)?;
        let (status, body) = self.reply(first.split(' ').nth(1).unwrap_or_default(), Instant::now());
        let length = body.len();
        let head = format!("HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nContent-Length: {length}\r\n");
        write!(reader.get_mut(), "{head}Connection: close\r\n\r\n{body}")
    }

    fn reply(&self, path: &str, now: Instant) -> (&'static str, &'static str) {
        let turned = *self.0.turned.lock().unwrap_or_else(PoisonError::into_inner);
        let is_stuck = now.saturating_duration_since(turned) > STUCK;
        let is_ready = self.0.is_ready.load(Ordering::Relaxed);
        match path {
            "/healthz" | "/readyz" if is_stuck => ("503 Service Unavailable", "it is stuck\n"),
            "/readyz" if !is_ready => ("503 Service Unavailable", "the cluster is not known yet\n"),
            "/healthz" | "/readyz" => ("200 OK", "ok\n"),
            _ => ("404 Not Found", "there are /healthz and /readyz\n"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ready_is_who_knows_the_cluster_and_alive_who_turns() {
        let health = Health::new();
        let now = Instant::now();
        assert_eq!(health.reply("/healthz", now).1, "ok\n");
        assert_eq!(health.reply("/readyz", now).1, "the cluster is not known yet\n");
        health.set_ready();
        assert_eq!(health.reply("/readyz", now).1, "ok\n");
        let late = now + STUCK + Duration::from_secs(1);
        assert_eq!(health.reply("/readyz", late).1, "it is stuck\n");
        assert_eq!(health.reply("/healthz", late).1, "it is stuck\n");
        assert!(health.reply("/", now).0.starts_with("404"));
    }
}
