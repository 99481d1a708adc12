//! Upstreams: by which ports and connections each is asked, and whether it answers.

use super::engine::HttpsLink;
use super::outbox::Outbox;
use super::ports::Ports;
use super::settings::{self, Health};
use crate::chain::Transport;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// How long an upstream that does not keep the letter case of questions is asked without it.
const CASELESS_FOR: Duration = Duration::from_secs(600);
/// After so many queries in a row without an answer an upstream counts as down.
const MAX_FAILURES: u32 = 3;
/// How often one that is down is asked whether it is back.
const PROBE_EVERY: Duration = Duration::from_secs(1);
/// However often it is to be asked, there is so much time between.
const PROBE_LEAST: Duration = Duration::from_millis(10);

/// How an upstream is doing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UpstreamState {
    pub address: SocketAddr,
    pub is_up: bool,
    pub answered: u64,
    pub failed: u64,
    /// Of these, such as were health checks.
    pub failed_checks: u64,
}

impl UpstreamState {
    /// What another loop knows of the same upstream.
    pub(super) fn add(&mut self, other: &Self) {
        self.is_up |= other.is_up;
        self.answered += other.answered;
        self.failed += other.failed;
        self.failed_checks += other.failed_checks;
    }
}

#[derive(Debug)]
pub(super) struct Upstream {
    pub(super) address: SocketAddr,
    pub(super) settings: settings::Upstream,
    pub(super) ports: Ports,
    pub(super) outbox: Outbox,
    failures: u32,
    next_probe: Option<Instant>,
    /// The connection queries go by, if there is one.
    pub(super) connection: Option<u32>,
    /// The connection over HTTPS, if it is asked so.
    pub(super) https: HttpsLink,
    /// Why its last connection ended before its time.
    pub(super) trouble: Option<String>,
    pub(super) answered: u64,
    pub(super) failed: u64,
    failed_checks: u64,
    /// Until when it is asked without random letter case: it has shown, over TCP, that it does not repeat it.
    caseless_until: Option<Instant>,
    /// No route leads to it any more: it is dropped when its last query is over.
    pub(super) is_replaced: bool,
}

impl Upstream {
    pub(super) fn new(settings: settings::Upstream) -> Self {
        Self {
            address: settings.address,
            ports: Ports::to(settings.address),
            settings,
            outbox: Outbox::new(),
            failures: 0,
            next_probe: None,
            connection: None,
            https: HttpsLink::default(),
            trouble: None,
            answered: 0,
            failed: 0,
            failed_checks: 0,
            caseless_until: None,
            is_replaced: false,
        }
    }

    pub(super) fn state(&self) -> UpstreamState {
        let Self { address, answered, failed, failed_checks, .. } = *self;
        UpstreamState { address, is_up: self.is_up(), answered, failed, failed_checks }
    }

    /// How a query goes to it.
    pub(super) fn transport(&self, is_by_stream: bool) -> Transport {
        match (&self.settings.tls, &self.settings.http_path) {
            (_, Some(_)) => Transport::Https,
            (Some(_), None) => Transport::Tls,
            (None, None) if is_by_stream => Transport::Tcp,
            (None, None) => Transport::Udp,
        }
    }

    pub(super) fn is_up(&self) -> bool {
        match self.settings.health {
            Health::ByQueries => self.failures < MAX_FAILURES,
            Health::ByChecks { failures, .. } => self.failures < failures,
            Health::Assumed => true,
        }
    }

    pub(super) fn has_answered(&mut self) {
        self.failures = 0;
        self.next_probe = None;
        self.trouble = None;
        self.answered += 1;
    }

    /// A query was not answered.
    pub(super) fn has_failed(&mut self, now: Instant) {
        self.failed += 1;
        match self.settings.health {
            Health::ByQueries => {
                self.failures = self.failures.saturating_add(1);
                if !self.is_up() && self.next_probe.is_none() {
                    self.next_probe = Some(now + PROBE_EVERY);
                }
            }
            Health::ByChecks { .. } => _ = self.next_probe.get_or_insert(now),
            Health::Assumed => {}
        }
    }

    /// Nor was the question whether it is back. One that was asked before another was answered says nothing.
    pub(super) fn has_failed_probe(&mut self) {
        self.failures = self.failures.saturating_add(u32::from(self.next_probe.is_some()));
        self.failed += 1;
        self.failed_checks += 1;
    }

    /// When it is to be asked whether it is back.
    pub(super) fn next_probe(&self) -> Option<Instant> {
        self.next_probe
    }

    /// Whether it is time to ask whether it is back.
    pub(super) fn must_be_probed(&mut self, now: Instant) -> bool {
        let due = self.next_probe.is_some_and(|at| at <= now);
        if due {
            let every = match self.settings.health {
                Health::ByChecks { every, .. } => every.max(PROBE_LEAST),
                Health::ByQueries | Health::Assumed => PROBE_EVERY,
            };
            self.next_probe = Some(now + every);
        }
        due
    }

    /// True if a question may go out in random letter case, which the reply must repeat.
    pub(super) fn keeps_case(&self, now: Instant) -> bool {
        self.caseless_until.is_none_or(|until| until <= now)
    }

    /// It has shown that it does not repeat the letter case of a question.
    pub(super) fn has_lost_case(&mut self, now: Instant) {
        self.caseless_until = Some(now + CASELESS_FOR);
    }

    /// Sends what there is to send; gives how many would not go.
    pub(super) fn send(&mut self) -> usize {
        self.ports.send(&mut self.outbox)
    }

    /// Sends what this turn still has to send, and ends it for the ports. Gives how many would not go.
    pub(super) fn flush(&mut self) -> usize {
        let unsent = self.send();
        self.ports.end_turn();
        self.outbox.clear();
        unsent
    }

    /// Lets go of everything it holds. Gives the numbers of its sockets.
    pub(super) fn drop_all(&mut self) -> Vec<u32> {
        self.next_probe = None;
        self.outbox.clear();
        self.ports.close_all()
    }
}
