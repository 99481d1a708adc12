//! How a daemon is doing.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// What probes are told. A daemon shares it with its HTTP server.
#[derive(Clone, Debug)]
pub struct Health(Arc<State>);

#[derive(Debug)]
struct State {
    is_ready: AtomicBool,
    /// What is said while it is not ready.
    not_ready: &'static str,
    started: Instant,
    /// When the loop last turned, in milliseconds since the start.
    turned: AtomicU64,
    /// A loop that has not turned for so long is stuck.
    patience: Option<Duration>,
}

impl Health {
    /// Of a daemon that is alive as long as it answers, and not ready yet.
    pub fn new(not_ready: &'static str) -> Self {
        Self::start(not_ready, None)
    }

    /// Of a daemon with a loop that turns. One that has not turned for so long is not alive.
    pub fn with_loop(not_ready: &'static str, patience: Duration) -> Self {
        Self::start(not_ready, Some(patience))
    }

    fn start(not_ready: &'static str, patience: Option<Duration>) -> Self {
        let (is_ready, turned) = (AtomicBool::new(false), AtomicU64::new(0));
        Self(Arc::new(State { is_ready, not_ready, started: Instant::now(), turned, patience }))
    }

    /// The loop turns.
    pub fn turn(&self) {
        self.0.turned.store(self.milliseconds(Instant::now()), Ordering::Relaxed);
    }

    pub fn is_ready(&self) -> bool {
        self.0.is_ready.load(Ordering::SeqCst)
    }

    pub fn set_ready(&self, is_ready: bool) {
        self.0.is_ready.store(is_ready, Ordering::SeqCst);
    }

    fn milliseconds(&self, now: Instant) -> u64 {
        u64::try_from(now.saturating_duration_since(self.0.started).as_millis()).unwrap_or(u64::MAX)
    }

    /// Why it is not alive.
    pub(crate) fn check_alive(&self, now: Instant) -> Result<(), &'static str> {
        let idle = self.milliseconds(now).saturating_sub(self.0.turned.load(Ordering::Relaxed));
        match self.0.patience {
            Some(patience) if Duration::from_millis(idle) > patience => Err("the loop is stuck\n"),
            _ => Ok(()),
        }
    }

    /// Why it is not ready.
    pub(crate) fn check_ready(&self, now: Instant) -> Result<(), &'static str> {
        self.check_alive(now)?;
        if self.0.is_ready.load(Ordering::SeqCst) { Ok(()) } else { Err(self.0.not_ready) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONGEST_TURN: Duration = Duration::from_secs(120);

    #[test]
    fn a_daemon_is_ready_when_it_says_so_and_alive_while_its_loop_turns() {
        let health = Health::with_loop("not yet\n", LONGEST_TURN);
        let now = Instant::now();
        assert_eq!((health.check_alive(now), health.check_ready(now)), (Ok(()), Err("not yet\n")));
        health.set_ready(true);
        assert_eq!(health.check_ready(now), Ok(()));
        let late = now + LONGEST_TURN + Duration::from_secs(1);
        assert_eq!(health.check_alive(late), Err("the loop is stuck\n"));
        assert_eq!(health.check_ready(late), Err("the loop is stuck\n"));
        health.set_ready(false);
        assert_eq!(health.check_ready(now), Err("not yet\n"));
    }

    #[test]
    fn a_daemon_without_a_loop_is_alive_as_long_as_it_answers() {
        let health = Health::new("not yet\n");
        assert_eq!(health.check_alive(Instant::now() + LONGEST_TURN * 100), Ok(()));
    }
}
