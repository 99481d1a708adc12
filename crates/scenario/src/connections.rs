//! Connections that stay open across steps, and what becomes of them.
//!
//! A connection is judged when it is opened (S1), and again after every change
//! of policies, labels or pods: one that the new Program denies is cut, unless
//! `--cut-established` is off (S3.4). For TCP that is the end of it. The next
//! packet of a UDP flow is judged like a first one, so the flow is open again
//! as soon as the Program allows it. The way it took is kept: its addresses
//! after DNAT, whatever the Service or the name it was opened by says now.
//! When the pod at either end goes, it goes too, and whoever gets the address
//! next does not inherit it.
//!
//! A lease that expires cuts nothing (S6.4). So a connection is judged by every
//! lease there ever was, as long as the rule that has its pattern is there.

use crate::file::{Reader, ScenarioError, Step};
use namewall_cluster::yaml::{Node, Value};
use namewall_policy::ask::{Route, World};
use namewall_policy::explain::describe_reason;
use namewall_policy::model::{Direction, ServiceId, WorkloadId, WorkloadKind};
use namewall_policy::port::Protocol;
use namewall_policy::{
    Cause, Decision, Endpoint, Flow, Instant, LeaseTable, Program, Reason, Snapshot, Source, Stage, Verdict, evaluate,
};
use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;
use std::sync::Arc;

/// What has become of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    Open,
    Cut,
}

impl FromStr for Fate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "open" => Ok(Self::Open),
            "cut" => Ok(Self::Cut),
            other => Err(format!("a connection is open or cut, not `{other}`")),
        }
    }
}

impl fmt::Display for Fate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Open => "open",
            Self::Cut => "cut",
        })
    }
}

/// `connect: {NAME: FROM -> TO}`.
pub(crate) fn read_connect(reader: &Reader<'_>, body: &Node, steps: &mut Vec<Step>) -> Result<(), ScenarioError> {
    if !matches!(body.value, Value::Map(_)) {
        return reader.wrong(body, "connections are a map, like {shopping: shop/web -> shop/api:80/TCP}");
    }
    for entry in body.entries() {
        if opened(steps).any(|name| *name == *entry.key) {
            return reader.wrong(&entry.node, format!("there is a connection `{}` already", entry.key));
        }
        let (from, to) = reader.question(&entry.node, reader.text(&entry.node)?)?;
        if !matches!(to.protocol, Protocol::Tcp | Protocol::Udp) {
            return reader.wrong(&entry.node, format!("{} has no connections to keep; use TCP or UDP", to.protocol));
        }
        steps.push(Step::Connect { name: entry.key.to_string(), from, to, source: reader.place(&entry.node) });
    }
    Ok(())
}

/// `connections: {NAME: open}`.
pub(crate) fn read_fates(reader: &Reader<'_>, body: &Node, steps: &mut Vec<Step>) -> Result<(), ScenarioError> {
    if !matches!(body.value, Value::Map(_)) {
        return reader.wrong(body, "what became of connections is a map, like {shopping: open}");
    }
    for entry in body.entries() {
        if !opened(steps).any(|name| *name == *entry.key) {
            let known: Vec<&str> = opened(steps).collect();
            let known = if known.is_empty() { "none is".to_owned() } else { format!("known: {}", known.join(", ")) };
            return reader.wrong(&entry.node, format!("no connection `{}` is opened before this ({known})", entry.key));
        }
        let expect = reader.text(&entry.node)?.parse();
        let expect = expect.or_else(|error: String| reader.wrong(&entry.node, error))?;
        steps.push(Step::Connections { name: entry.key.to_string(), expect, source: reader.place(&entry.node) });
    }
    Ok(())
}

fn opened(steps: &[Step]) -> impl Iterator<Item = &str> {
    steps.iter().filter_map(|step| match step {
        Step::Connect { name, .. } => Some(name.as_str()),
        _ => None,
    })
}

/// How a check of a connection went.
#[derive(Debug)]
pub struct ConnectionResult {
    pub name: String,
    pub expect: Fate,
    pub passed: bool,
    /// What became of it and, where it was cut, why.
    pub got: String,
    pub source: Source,
}

/// The connections of a scenario.
#[derive(Debug)]
pub(crate) struct Connections {
    /// The agent's `--cut-established`.
    pub(crate) cut_established: bool,
    by_name: BTreeMap<String, Connection>,
}

impl Default for Connections {
    fn default() -> Self {
        Self { cut_established: true, by_name: BTreeMap::new() }
    }
}

#[derive(Debug)]
pub(crate) struct Connection {
    /// As it was opened.
    flow: Flow,
    way: ConnectionPath,
    cut: Option<WasCut>,
}

#[derive(Debug)]
struct WasCut {
    why: String,
    /// An end of it is gone.
    is_gone: bool,
}

/// The way a connection took, by what stays the same when the cluster changes.
#[derive(Debug)]
struct ConnectionPath {
    from: ConnectionEnd,
    to: ConnectionEnd,
    protocol: Protocol,
    port: u16,
    /// The namespace and name of the Service.
    via: Option<(Arc<str>, Arc<str>)>,
    /// The node port it was passed on at.
    hop: Option<SocketAddr>,
}

#[derive(Debug)]
struct ConnectionEnd {
    address: IpAddr,
    /// The namespace and name of the pod, where it is one.
    pod: Option<(Arc<str>, Arc<str>)>,
}

/// What a connection is judged by.
#[derive(Clone, Copy)]
pub(crate) struct PolicyState<'a> {
    pub(crate) snapshot: &'a Snapshot,
    pub(crate) program: &'a Program,
    /// Every lease there ever was: none is dropped while a scenario is played.
    pub(crate) leases: &'a LeaseTable,
    pub(crate) now: Instant,
}

impl Connection {
    /// Opens a connection, or says why it cannot be.
    pub(crate) fn open(world: &World<'_>, routes: &[Route]) -> Result<Self, String> {
        let route = match routes {
            [] => return Err("the Service has no endpoint to send it to".to_owned()),
            [route] => route,
            several => {
                return Err(format!("there are {} ways to go, and nobody can tell which it takes", several.len()));
            }
        };
        let mut refusal = None;
        for flow in &route.flows {
            let decision = evaluate(world.program, world.leases, flow, world.now);
            if decision.verdict == Verdict::Allow {
                let way = ConnectionPath::of(world.snapshot, flow).ok_or("an end of it has no address")?;
                return Ok(Self { flow: flow.clone(), way, cut: None });
            }
            refusal.get_or_insert_with(|| describe_reason(world.snapshot, world.program, &decision.reason, flow));
        }
        Err(refusal.unwrap_or_else(|| "its ends have no addresses of one family".to_owned()))
    }
}

impl Connection {
    pub(crate) fn flow(&self) -> &Flow {
        &self.flow
    }

    /// True if a change may still cut it, or let it go on.
    fn has_a_future(&self) -> bool {
        self.cut.as_ref().is_none_or(|cut| !cut.is_gone && self.flow.protocol != Protocol::Tcp)
    }
}

impl Connections {
    pub(crate) fn keep(&mut self, name: &str, connection: Connection) {
        self.by_name.insert(name.to_owned(), connection);
    }

    /// Judges all that a change can do something to.
    pub(crate) fn judge(&mut self, state: PolicyState<'_>) {
        for connection in self.by_name.values_mut().filter(|connection| connection.has_a_future()) {
            let cut = |why| WasCut { why, is_gone: false };
            connection.cut = match connection.way.now(state) {
                Ok(flow) if connection.cut.is_some() => denial_of_new(state, &flow).map(cut),
                Ok(flow) => denial(state, &flow, self.cut_established).map(cut),
                Err(why) => Some(WasCut { why, is_gone: true }),
            };
        }
    }

    pub(crate) fn any_to_judge(&self) -> bool {
        self.by_name.values().any(Connection::has_a_future)
    }

    /// What became of it, and why.
    pub(crate) fn fate(&self, name: &str) -> (Fate, String) {
        match self.by_name.get(name) {
            Some(Connection { cut: None, .. }) => (Fate::Open, Fate::Open.to_string()),
            Some(Connection { cut: Some(cut), .. }) => (Fate::Cut, format!("cut: {}", cut.why)),
            None => (Fate::Cut, "cut: it was never opened".to_owned()),
        }
    }
}

/// Why the connection may not go on, if so.
fn denial(state: PolicyState<'_>, flow: &Flow, cut_established: bool) -> Option<String> {
    // At the beginning of time every lease there ever was is alive.
    let decision = evaluate(state.program, state.leases, flow, Instant::default());
    let cuts = decision.verdict == Verdict::Deny && (cut_established || is_by_v1beta1(state, flow, &decision));
    cuts.then(|| describe_reason(state.snapshot, state.program, &decision.reason, flow))
}

/// Why its next packet may not open it again, if so.
fn denial_of_new(state: PolicyState<'_>, flow: &Flow) -> Option<String> {
    let decision = evaluate(state.program, state.leases, flow, state.now);
    let is_denied = decision.verdict == Verdict::Deny;
    is_denied.then(|| describe_reason(state.snapshot, state.program, &decision.reason, flow))
}

/// S3.4: what `extensions/v1beta1` forbids is cut, whatever the setting. There it is the namespace that isolates.
fn is_by_v1beta1(state: PolicyState<'_>, flow: &Flow, decision: &Decision) -> bool {
    let isolated =
        matches!(decision.reason, Reason::Denied { stage: Stage::Network(Direction::Ingress), cause: Cause::Isolated });
    let namespace = flow.to.workload.map(|id| state.snapshot.namespace(state.snapshot.workload(id).namespace));
    isolated && namespace.is_some_and(|namespace| namespace.default_deny_ingress)
}

impl ConnectionPath {
    fn of(snapshot: &Snapshot, flow: &Flow) -> Option<Self> {
        let via = flow.via.map(|id| {
            let service = &snapshot.services[id.index()];
            (snapshot.namespace(service.namespace).name.clone(), service.name.clone())
        });
        let (from, to) = (ConnectionEnd::of(snapshot, &flow.from)?, ConnectionEnd::of(snapshot, &flow.to)?);
        let hop = flow.hop.map(|hop| SocketAddr::new(hop.address, hop.port));
        Some(Self { from, to, protocol: flow.protocol, port: flow.port, via, hop })
    }

    /// The same way as it is now; or which end is gone.
    fn now(&self, state: PolicyState<'_>) -> Result<Flow, String> {
        let services = &state.snapshot.services;
        let via = self.via.as_ref().and_then(|(namespace, name)| {
            let namespace = state.snapshot.namespace_named(namespace);
            services.iter().position(|service| Some(service.namespace) == namespace && service.name == *name)
        });
        let from = self.from.now(state)?;
        let hop = self.hop.and_then(|at| state.program.hop_at(&from, at.ip(), at.port()));
        Ok(Flow {
            from,
            hop,
            masker: None,
            to: self.to.now(state)?,
            protocol: self.protocol,
            port: self.port,
            via: via.map(|at| ServiceId(at as u32)),
        })
    }
}

impl ConnectionEnd {
    fn of(snapshot: &Snapshot, end: &Endpoint) -> Option<Self> {
        let pod = end.workload.map(|id| {
            let workload = snapshot.workload(id);
            (snapshot.namespace(workload.namespace).name.clone(), workload.name.clone())
        });
        end.address.map(|address| Self { address, pod })
    }

    fn now(&self, state: PolicyState<'_>) -> Result<Endpoint, String> {
        let Some((namespace, name)) = &self.pod else { return Ok(state.program.endpoint_at(self.address)) };
        let namespace_id = state.snapshot.namespace_named(namespace);
        let is_it = |id: &WorkloadId| {
            let workload = state.snapshot.workload(*id);
            let same_name = Some(workload.namespace) == namespace_id && workload.name == *name;
            same_name && workload.kind == WorkloadKind::Pod && workload.addresses.contains(&self.address)
        };
        match state.snapshot.workload_ids().find(is_it) {
            Some(id) => Ok(state.program.endpoint_of(id, Some(self.address))),
            None => Err(format!("the pod {namespace}/{name} at {} is gone", self.address)),
        }
    }
}
