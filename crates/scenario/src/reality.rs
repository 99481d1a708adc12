//! A second witness: something that plays a scenario's steps for real, beside
//! the core, and is asked the same questions.

use crate::connections::Fate;
use crate::file::Probe;
use crate::lookup::{Lookup, Resolved};
use crate::settings::{AgentSettings, Going};
use crate::zones::{Name, Owner, Zones};
use namewall_policy::ask::Route;
use namewall_policy::{Decision, Flow, Instant, Lease, Prediction, Program, Snapshot};
use std::net::IpAddr;
use std::time::Duration;

/// The cluster as it is now.
#[derive(Clone, Copy, Debug)]
pub struct Now<'a> {
    pub snapshot: &'a Snapshot,
    pub program: &'a Program,
    /// The agent's `--cut-established`.
    pub cut_established: bool,
}

/// A probe, and what the core says of it.
#[derive(Clone, Debug)]
pub struct Predicted {
    pub probe: Probe,
    /// Every route must be open, by one of its connections.
    pub routes: Vec<Route>,
    pub verdict: Prediction,
    /// The connection that settles the verdict, and its decision.
    pub flow: Flow,
    pub decision: Decision,
}

/// What was seen of a probe, in words.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ProbeOutcome {
    AsPredicted(String),
    Otherwise(String),
    /// It cannot be tried, and why: an end has no address.
    NotTried(String),
}

/// Errors are words for the user: the step could not be taken at all.
pub trait Reality {
    /// Makes the cluster so, at once.
    fn change(&mut self, now: &Now<'_>) -> Result<(), String>;

    /// These leases are open when it returns. It may be told of one again.
    fn learn(&mut self, leases: &[Lease], now: Instant) -> Result<(), String>;

    /// Lets time pass.
    fn advance(&mut self, time: Duration) -> Result<(), String>;

    /// What was seen of each.
    fn probe(&mut self, now: &Now<'_>, probes: &[&Predicted]) -> Result<Vec<ProbeOutcome>, String>;

    /// Opens a connection and keeps it.
    fn connect(&mut self, now: &Now<'_>, name: &str, flow: &Flow) -> Result<(), String>;

    /// What became of it.
    fn fate(&mut self, name: &str) -> Result<Fate, String>;

    /// Whether it learns from the answers that pass through it. One that does
    /// not is told of what the core has learned.
    fn learns(&self) -> bool {
        false
    }

    /// The servers outside answer so, from the beginning.
    fn serve(&mut self, _zones: &Zones) -> Result<(), String> {
        cannot("DNS outside")
    }

    /// What these names have outside, from here on.
    fn rezone(&mut self, _changes: &[(Name, Option<Owner>)]) -> Result<(), String> {
        cannot("`zone`")
    }

    /// A client looks these names up; what came of each. Where the lookup says
    /// what is `then` to be opened, and it learns, it opens that at once.
    fn resolve(&mut self, _now: &Now<'_>, _lookup: &Lookup, _names: &[Name]) -> Result<Vec<Resolved>, String> {
        cannot("`resolve`")
    }

    /// How many queries a server outside got.
    fn queries(&mut self, _server: IpAddr) -> Result<u64, String> {
        cannot("`queries`")
    }

    /// Settings that are about names.
    fn set(&mut self, _now: &Now<'_>, _settings: &AgentSettings) -> Result<(), String> {
        cannot("`settings` of names")
    }

    /// The agent goes, and the kernel's table stays.
    fn stop(&mut self, _how: Going) -> Result<(), String> {
        cannot("`restart`")
    }

    /// It is back.
    fn start(&mut self, _now: &Now<'_>) -> Result<(), String> {
        cannot("`restart`")
    }
}

fn cannot<T>(what: &str) -> Result<T, String> {
    Err(format!("{what} cannot be played here"))
}
