//! Which connections a Program forbids that were opened under another (S3.4).

use crate::conntrack::Connection;
use crate::inside::SecondConnection;
use crate::render::{Answerer, DNS, Intercept, Scope, may_ask};
use crate::tunnels::Tunnels;
use namewall_policy::addr::is_own_to_each_machine;
use namewall_policy::domain::RulePattern;
use namewall_policy::lease::LeaseTable;
use namewall_policy::model::{Direction, NodeId, PolicyKind, ServiceId};
use namewall_policy::port::Protocol;
use namewall_policy::program::Holder;
use namewall_policy::{Cause, Endpoint, Flow, Instant, Lease, LeaseStore, Program, Reason, Stage, Verdict, evaluate};
use rustc_hash::{FxHashMap, FxHashSet};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// Whether connections that exist are cut when a policy now forbids them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum CutEstablished {
    #[default]
    Always,
    /// Only what `extensions/v1beta1` forbids, since that kind promises it.
    V1Beta1,
}

/// How a connection that exists is judged.
enum Standing {
    Allowed,
    Denied,
    /// Denied as this flow.
    DeniedFlow(Flow),
}

/// Judges connections that exist by a Program that may not have been in force when they were opened.
#[derive(Debug)]
pub struct Judge<'a> {
    program: &'a Program,
    /// Every lease there has been: one that expired does not cut (S6.4).
    history: &'a LeaseTable,
    leases: &'a LeaseStore,
    services: FxHashMap<(IpAddr, Protocol, u16), ServiceId>,
    cut: CutEstablished,
    excused: Option<&'a Excused>,
    /// Whose connections these are.
    node: Option<NodeId>,
    dns: Option<&'a Intercept>,
    tunnels: Option<&'a Tunnels>,
}

/// Connections that no known lease explains, and that one of an earlier process may have opened: it has expired, so
/// nobody knows it any more, and a lease that expires cuts nothing (S6.4). They are found when the leases of the earlier
/// process are adopted. All others are judged by what is known.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Excused(FxHashSet<ConnectionKey>);

type ConnectionKey = (Protocol, SocketAddr, SocketAddr);

fn key_of(connection: &Connection) -> ConnectionKey {
    let source = SocketAddr::new(connection.source, connection.source_port);
    (connection.protocol, source, connection.destination.into())
}

impl Excused {
    /// Forgets those that have ended. A new connection between the same ports has no excuse.
    pub fn keep_only<'c>(&mut self, connections: impl Iterator<Item = &'c Connection>) {
        if self.0.is_empty() {
            return;
        }
        let there: FxHashSet<ConnectionKey> = connections.map(key_of).collect();
        self.0.retain(|key| there.contains(key));
    }
}

/// Before any lease ends.
const EVER: Instant = Instant(Duration::ZERO);

impl<'a> Judge<'a> {
    pub fn new(program: &'a Program, leases: &'a LeaseStore, cut: CutEstablished) -> Self {
        let mut services = FxHashMap::default();
        for (at, service) in program.services.iter().enumerate() {
            for &frontend in &service.frontends {
                // Where two claim the same, the first is meant, as in `ask`.
                services.entry(frontend).or_insert(ServiceId(at as u32));
            }
        }
        Self {
            program,
            history: leases.table(),
            leases,
            services,
            cut,
            excused: None,
            node: None,
            dns: None,
            tunnels: None,
        }
    }

    /// Spares these connections as long as a rule by name may have opened them.
    pub fn excusing(mut self, excused: &'a Excused) -> Self {
        self.excused = Some(excused);
        self
    }

    /// The node whose connections these are, and where it takes DNS to.
    pub fn on(mut self, scope: &'a Scope) -> Self {
        self.node = scope.node;
        self.dns = scope.dns.as_ref();
        self.tunnels = Some(&scope.tunnels);
        self
    }

    /// Whoever has the address. Connections that this node opens itself have its addresses, and it may always reach its
    /// own pods; only those addresses count for that which no pod can have (S7.2).
    fn source(&self, address: IpAddr) -> Endpoint {
        let found = self.program.endpoint_at(address);
        let has_it = |node: &NodeId| {
            let known = self.program.whereabouts.nodes.get(node.index());
            known.is_some_and(|addresses| addresses.contains(&address)) && !is_own_to_each_machine(address)
        };
        match (found.workload, self.node.filter(has_it)) {
            (None, Some(node)) => Endpoint { node: Some(node), ..found },
            _ => found,
        }
    }

    /// True if the connection is to be cut.
    pub fn forbids(&self, connection: &Connection) -> bool {
        self.cuts(connection, self.standing(connection))
    }

    /// True if a connection over a second interface of the pod with these addresses is to be cut.
    pub fn forbids_second(&self, addresses: &[IpAddr], second: &SecondConnection) -> bool {
        self.cuts(&second.connection, self.standing_of_second(addresses, second))
    }

    fn cuts(&self, connection: &Connection, standing: Standing) -> bool {
        let is_excused = |excused: &Excused| excused.0.contains(&key_of(connection));
        match standing {
            Standing::Allowed => false,
            Standing::Denied => true,
            Standing::DeniedFlow(flow) => !(self.excused.is_some_and(is_excused) && self.a_name_may_have_opened(&flow)),
        }
    }

    /// The connections that this Program denies, unless a lease opened them that nobody knows any more.
    pub fn excuse(&self, connections: &[Connection]) -> Excused {
        let excused = connections.iter().filter(|connection| self.may_be_excused(self.standing(connection)));
        Excused(excused.map(key_of).collect())
    }

    /// The same for connections over second interfaces of the pod with these addresses.
    pub fn excuse_second(&self, addresses: &[IpAddr], connections: &[SecondConnection], excused: &mut Excused) {
        let may_be = |second: &&SecondConnection| self.may_be_excused(self.standing_of_second(addresses, second));
        excused.0.extend(connections.iter().filter(may_be).map(|second| key_of(&second.connection)));
    }

    fn may_be_excused(&self, standing: Standing) -> bool {
        match standing {
            Standing::DeniedFlow(flow) => self.a_name_may_have_opened(&flow),
            Standing::Allowed | Standing::Denied => false,
        }
    }

    /// Only the policies of the pod count, as in the table inside its network namespace. The other end is where its
    /// address says; a pod's address does not come in by a second interface.
    fn standing_of_second(&self, addresses: &[IpAddr], second: &SecondConnection) -> Standing {
        let SecondConnection { connection, direction } = second;
        let own = addresses.iter().find_map(|address| Some((self.program.pod_at(*address)?, *address)));
        let Some((pod, address)) = own else { return Standing::Allowed };
        let pod = self.program.endpoint_of(pod, Some(address));
        let (destination, port) = connection.destination;
        let (from, to) = match direction {
            Direction::Egress if self.leads_into_a_tunnel(connection) => {
                let is_cut = self.cut == CutEstablished::Always;
                return if is_cut { Standing::Denied } else { Standing::Allowed };
            }
            Direction::Egress => (pod, self.program.endpoint_at(destination)),
            Direction::Ingress => {
                let source = connection.source;
                let is_foreign = self.program.pod_at(source).is_some()
                    || (self.program.pod_networks.contains(source) && !self.program.is_node_address(source));
                if is_foreign {
                    let is_cut = self.cut == CutEstablished::Always;
                    return if is_cut { Standing::Denied } else { Standing::Allowed };
                }
                // The node has no way in by a second interface, and no right of its own there.
                (Endpoint { address: Some(source), ..Endpoint::default() }, pod)
            }
        };
        let flow = Flow { from, hop: None, masker: None, to, protocol: connection.protocol, port, via: None };
        self.standing_of(flow, Some(*direction))
    }

    /// How the Program and the known leases judge the connection.
    fn standing(&self, connection: &Connection) -> Standing {
        let (destination, port) = connection.destination;
        let is_ours = |address| matches!(self.program.by_address.get(address), Some(Holder::Pod(_)));
        let (asked, asked_port) = connection.asked;
        // What our own DNS server took was meant for another, and is judged by that.
        if asked_port == DNS && self.dns.is_some_and(|dns| dns.is_at(destination, port)) {
            let is_cut = self.cut == CutEstablished::Always && !self.may_ask(connection);
            return if is_cut { Standing::Denied } else { Standing::Allowed };
        }
        // Nothing else gets to its ports; the node itself may.
        if connection.source != destination && self.dns.is_some_and(|dns| dns.is_at(destination, port)) {
            return if self.cut == CutEstablished::Always { Standing::Denied } else { Standing::Allowed };
        }
        if self.is_for_a_tunnel(connection) {
            return if self.cut == CutEstablished::Always { Standing::Denied } else { Standing::Allowed };
        }
        let answering = Answerer { address: destination, protocol: connection.protocol, port };
        if self.dns.is_some_and(|dns| dns.asks(self.program, connection.source, answering)) {
            return Standing::Allowed;
        }
        let via = self.services.get(&(asked, connection.protocol, asked_port)).copied();
        if !is_ours(&connection.source) && !is_ours(&destination) && via.is_none() {
            return Standing::Allowed;
        }
        let from = self.source(connection.source);
        let translated = connection.asked != connection.destination;
        // What was translated elsewhere was judged there.
        let hop = self.program.hop_at(&from, asked, asked_port);
        let hop = hop.filter(|hop| translated && hop.node == self.node);
        let flow = Flow {
            from,
            hop,
            // The kernel judges the source that it sees.
            masker: None,
            to: self.program.endpoint_at(destination),
            protocol: connection.protocol,
            port,
            via: via.filter(|_| asked != destination),
        };
        self.standing_of(flow, None)
    }

    /// How the flow is judged; where only one direction counts, by the policies for that.
    fn standing_of(&self, flow: Flow, only: Option<Direction>) -> Standing {
        let reason = evaluate(self.program, self.history, &flow, EVER).reason;
        let is_denied = match reason {
            Reason::Denied { stage, .. } => only.is_none_or(|direction| stage.direction() == direction),
            Reason::Allowed { .. } => false,
        };
        let is_cut = is_denied && (self.cut == CutEstablished::Always || self.is_v1beta1(&flow, &reason));
        if is_cut && !self.an_evicted_lease_allows(&flow) { Standing::DeniedFlow(flow) } else { Standing::Allowed }
    }

    /// True if a lease that had to make room allows the connection by a rule that is in force.
    fn an_evicted_lease_allows(&self, flow: &Flow) -> bool {
        let Some(address) = flow.to.address else { return false };
        // Each pattern once: many clients may have had a lease of the same address.
        let evicted: FxHashSet<&RulePattern> = self.leases.evicted_at(address).collect();
        !evicted.is_empty() && self.allows_by(flow, self.history.at(address).map(|lease| lease.pattern).chain(evicted))
    }

    /// True if rules allow the connection if its destination is open by these patterns.
    fn allows_by<'p>(&self, flow: &Flow, patterns: impl Iterator<Item = &'p RulePattern>) -> bool {
        let Some(address) = flow.to.address else { return false };
        let mut leases = LeaseTable::default();
        for pattern in patterns {
            let (pattern, name, expiry) = (pattern.clone(), pattern.names.domain().clone(), Instant(Duration::MAX));
            leases.grant(Lease { pattern, name, address, expiry, asked_by: None });
        }
        evaluate(self.program, &leases, flow, EVER).verdict == Verdict::Allow
    }

    /// True if a pod has opened it to a tunnel endpoint of a node, or a Service led there.
    fn is_for_a_tunnel(&self, connection: &Connection) -> bool {
        let is_pod = |address| {
            let is_inside = self.program.pod_at(address).is_some() || self.program.pod_networks.contains(address);
            is_inside && !self.program.is_node_address(address)
        };
        let is_translated = connection.asked != connection.destination;
        self.leads_into_a_tunnel(connection) && (is_translated || is_pod(connection.source))
    }

    /// True if its destination is a tunnel endpoint of a node.
    fn leads_into_a_tunnel(&self, connection: &Connection) -> bool {
        let (destination, port) = connection.destination;
        let is_node = self.program.is_node_address(destination) || is_own_to_each_machine(destination);
        is_node && self.tunnels.is_some_and(|tunnels| tunnels.has(connection.protocol, port))
    }

    fn may_ask(&self, connection: &Connection) -> bool {
        let (server, port) = connection.asked;
        if let Some(may) = may_ask(self.program, connection.source, server, connection.protocol) {
            return may;
        }
        let flow = Flow {
            from: self.program.endpoint_at(connection.source),
            hop: None,
            masker: None,
            to: self.program.endpoint_at(server),
            protocol: connection.protocol,
            port,
            via: None,
        };
        evaluate(self.program, self.history, &flow, EVER).verdict == Verdict::Allow
    }

    /// True if a rule by name allows the connection, whichever name its destination had.
    fn a_name_may_have_opened(&self, flow: &Flow) -> bool {
        self.allows_by(flow, self.program.patterns.iter().map(|(_, pattern)| pattern))
    }

    fn is_v1beta1(&self, flow: &Flow, reason: &Reason) -> bool {
        let Reason::Denied { stage: Stage::Network(Direction::Ingress), cause: Cause::Isolated } = reason else {
            return false;
        };
        let Some(workload) = flow.to.workload else { return false };
        let class = self.program.class(self.program.member(workload).class);
        // Only the Namespace's annotation isolates without a policy that does.
        let isolates = |id| self.program.isolates(id, Direction::Ingress);
        class.enforced.each().filter(|plan| plan.ingress.isolated).any(|plan| {
            let network = &plan.ingress.network;
            network.iter().any(|&id| self.program.policy(id).id.kind == PolicyKind::NetworkPolicyV1Beta1)
                || !network.iter().any(|&id| isolates(id))
        })
    }
}
