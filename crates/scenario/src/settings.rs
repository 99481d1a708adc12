//! What the agent is set to, and its going and coming back.

use crate::file::{Reader, ScenarioError, Step};
use namewall_cluster::yaml::Node;
use namewall_policy::addr::{Cidr, parse_address};
use namewall_policy::lease::is_nat64_prefix;
use std::net::IpAddr;
use std::time::Duration;

type Result<T> = std::result::Result<T, ScenarioError>;

/// Settings that change; what is None stays as it was.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct AgentSettings {
    /// `--cut-established`.
    pub cut_established: Option<bool>,
    /// `--on-learn-timeout`.
    pub on_learn_timeout: Option<OnLearnTimeout>,
    /// How long an answer is held for the kernel (S6.6).
    pub hold_limit: Option<Duration>,
    /// What a TTL of 0 counts as (S6.3).
    pub minimum_ttl: Option<Duration>,
    /// What every longer TTL counts as (S6.3).
    pub maximum_ttl: Option<Duration>,
    /// How long a lease outlives its TTL (S6.3).
    pub grace: Option<Duration>,
    /// Who is asked, in this order.
    pub upstreams: Option<Vec<IpAddr>>,
    /// `--never-lease`: networks that no name opens (S6.8).
    pub never_lease: Option<Vec<Cidr>>,
    /// `--nat64-prefix`: prefixes of translators (S6.8).
    pub nat64_prefixes: Option<Vec<Cidr>>,
    /// The kernel takes so long to acknowledge a lease.
    pub slow_kernel: Option<Duration>,
}

/// What the client gets when the kernel took too long (S6.6).
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum OnLearnTimeout {
    #[default]
    Servfail,
    Release,
}

/// How an agent goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Going {
    /// It is asked to.
    Stop,
    /// It does not get the time to do anything.
    Kill,
    /// Another takes over from it.
    Upgrade,
}

impl AgentSettings {
    /// Whether any of them is about names.
    pub fn is_about_names(&self) -> bool {
        *self != Self { cut_established: self.cut_established, ..Self::default() }
    }
}

const KEYS: &[&str] = &[
    "cutEstablished",
    "onLearnTimeout",
    "holdLimit",
    "minimumTtl",
    "maximumTtl",
    "grace",
    "upstreams",
    "neverLease",
    "nat64Prefix",
    "slowKernel",
];

pub(crate) fn read(reader: &Reader<'_>, body: &Node) -> Result<Step> {
    reader.only(body, KEYS)?;
    if body.entries().is_empty() {
        return reader.wrong(body, format!("which setting? There are {}", KEYS.join(", ")));
    }
    let time = |key: &str| body.get(key).map(|node| reader.duration(node)).transpose();
    let on_learn_timeout = match body.get("onLearnTimeout").map(|node| (node.as_str(), node)) {
        None => None,
        Some((Some("servfail"), _)) => Some(OnLearnTimeout::Servfail),
        Some((Some("release"), _)) => Some(OnLearnTimeout::Release),
        Some((_, node)) => return reader.wrong(node, "`onLearnTimeout` is servfail or release"),
    };
    let upstreams = match body.get("upstreams") {
        None => None,
        Some(node) => Some(addresses(reader, node)?),
    };
    Ok(Step::Settings(AgentSettings {
        cut_established: reader.flag(body, "cutEstablished")?,
        on_learn_timeout,
        hold_limit: time("holdLimit")?,
        minimum_ttl: time("minimumTtl")?,
        maximum_ttl: time("maximumTtl")?,
        grace: time("grace")?,
        upstreams,
        never_lease: body.get("neverLease").map(|node| networks(reader, node)).transpose()?,
        nat64_prefixes: body.get("nat64Prefix").map(|node| prefixes(reader, node)).transpose()?,
        slow_kernel: time("slowKernel")?,
    }))
}

pub(crate) fn addresses(reader: &Reader<'_>, node: &Node) -> Result<Vec<IpAddr>> {
    let mut addresses = Vec::new();
    for item in reader.items(Some(node))? {
        match parse_address(reader.text(item)?) {
            Some(address) => addresses.push(address),
            None => return reader.wrong(item, "this is not an IP address"),
        }
    }
    Ok(addresses)
}

fn networks(reader: &Reader<'_>, node: &Node) -> Result<Vec<Cidr>> {
    let mut networks = Vec::new();
    for item in reader.items(Some(node))? {
        match reader.text(item)?.parse() {
            Ok(network) => networks.push(network),
            Err(_) => return reader.wrong(item, "this is not a network: write it as 198.51.100.0/24"),
        }
    }
    Ok(networks)
}

fn prefixes(reader: &Reader<'_>, node: &Node) -> Result<Vec<Cidr>> {
    let prefixes = networks(reader, node)?;
    match prefixes.iter().all(|prefix| is_nat64_prefix(*prefix)) {
        true => Ok(prefixes),
        false => reader.wrong(node, "a NAT64 prefix is one of IPv6, of 32, 40, 48, 56, 64 or 96 bits"),
    }
}

/// `restart: {how: kill, for: 2s, meanwhile: [steps]}`: it goes, steps are taken, time passes, it is back.
pub(crate) fn read_restart(reader: &Reader<'_>, body: &Node, steps: &mut Vec<Step>) -> Result<()> {
    reader.only(body, &["how", "for", "meanwhile"])?;
    let how = match body.get("how").map(|node| (node.as_str(), node)) {
        None | Some((Some("stop"), _)) => Going::Stop,
        Some((Some("kill"), _)) => Going::Kill,
        Some((Some("upgrade"), _)) => Going::Upgrade,
        Some((_, node)) => return reader.wrong(node, "`how` is stop, kill or upgrade"),
    };
    steps.push(Step::Stop(how));
    for step in reader.items(body.get("meanwhile"))? {
        let before = steps.len();
        reader.step(step, steps)?;
        let needs_agent =
            |step: &Step| matches!(step, Step::Change(_) | Step::Settings(_) | Step::Stop(_) | Step::Start);
        if steps[before..].iter().any(needs_agent) {
            return reader.wrong(step, "meanwhile there is no agent: nothing of it can be changed");
        }
    }
    if let Some(time) = body.get("for") {
        steps.push(Step::Advance(reader.duration(time)?));
    }
    steps.push(Step::Start);
    Ok(())
}
