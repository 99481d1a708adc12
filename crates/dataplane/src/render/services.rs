//! S7.4: what comes from outside through a Service must not go where the
//! tenants' own connections may not. Clients outside have no class, so the
//! gates are found by the address and port that they asked for. The same holds
//! for what other nodes send here (S1.11): behind a node's address may be any
//! of its pods, if it masquerades. There are two gates, and both must pass: the
//! ClusterEgressFirewalls and the EgressFirewall of the Service's namespace.
//!
//! ```text
//! pod on n1 ─► n1: may it reach n2:30080? source is n1 now ─► n2: DNAT ─► may the Service's tenants reach 198.51.100.7?
//! ```

use super::Render;
use super::joined::JoinableTiers;
use super::rules::{RuleWriter, protocol_number};
use super::stages::{Mode, Stages, described};
use crate::nft::rule::{Action as Do, End, Rule, Test};
use crate::nft::set::{self, Element, Field, Holds, Key, SetSpec, Value, Version};
use crate::nft::table::Table;
use namewall_policy::model::{Enforcement, NamespaceId, NodeId, PolicyId};
use namewall_policy::port::Protocol;
use namewall_policy::program::ServiceGate;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// Asks the gates before Services.
const FROM_OUTSIDE: &str = "from-outside";

/// The two gates before a Service that count: with each policy, whether its Allow rules do.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
struct Gates {
    cluster: Vec<(PolicyId, bool)>,
    namespace: Vec<(PolicyId, bool)>,
}

/// The gate of two Services at one address.
fn join(known: &mut Vec<(PolicyId, bool)>, other: &[(PolicyId, bool)]) {
    if known.is_empty() {
        known.extend_from_slice(other);
    } else if !other.is_empty() && *known != other {
        let both: BTreeSet<PolicyId> = known.iter().chain(other).map(|(policy, _)| *policy).collect();
        *known = both.into_iter().map(|policy| (policy, false)).collect();
    }
}

impl Stages<'_> {
    /// The gates before the backends of a namespace's Services.
    fn before_service(&mut self, gates: &Gates) -> String {
        let cluster = (!gates.cluster.is_empty()).then(|| self.service_gate(&gates.cluster));
        let both: Vec<String> = cluster.into_iter().chain(self.outward_gate(&gates.namespace)).collect();
        self.then_allow("to-service", &both)
    }

    fn service_gate(&mut self, gates: &[(PolicyId, bool)]) -> String {
        let name = self.list_name("service", gates.iter().copied());
        self.chain(&name, |stages| {
            let about = stages.listed(gates.iter().map(|(policy, _)| policy));
            let rules = gates.iter().flat_map(|&(policy, allows)| stages.gate_rules(policy, allows)).collect();
            described(rules, &about)
        });
        name
    }
}

impl Render<'_> {
    pub(super) fn service_gates(&self, table: &mut Table, writer: &RuleWriter<'_>, mode: Mode) {
        let frontends = self.frontends(mode);
        for (&(address, protocol, port), gates) in &frontends {
            let joinable = &mut JoinableTiers::new();
            let chain = Stages { joinable, render: self, writer, table, mode, then: None }.before_service(gates);
            let key = Key::default().address(address).protocol(protocol).port(port);
            let map = table.set(services_spec(Version::of(address), mode));
            map.insert(Element::mapped(key, Value::goto(chain)));
        }
        if !frontends.is_empty() {
            self.declare(table, mode);
            self.dispatch(table, mode);
        }
    }

    /// Where Services are asked, and the gates before each. Where two claim the same, nobody can tell which is meant,
    /// and a tenant must not take another's gates away: those of both deny, and none allows.
    fn frontends(&self, mode: Mode) -> BTreeMap<(IpAddr, u8, u16), Gates> {
        let mut frontends: BTreeMap<_, Gates> = BTreeMap::new();
        for service in self.program.services.iter() {
            let Some(gates) = self.gates(service.namespace, mode) else { continue };
            for &(address, protocol, port) in &service.frontends {
                let known = frontends.entry((address, protocol_number(protocol), port)).or_default();
                join(&mut known.cluster, &gates.cluster);
                join(&mut known.namespace, &gates.namespace);
            }
        }
        frontends
    }

    /// The gates before a namespace's Services that count; audited, only if any is.
    fn gates(&self, namespace: NamespaceId, mode: Mode) -> Option<Gates> {
        let gates = self.program.service_gates.get(&namespace)?;
        let is_audited = |policy| self.program.policy(policy).enforcement == Enforcement::Audit;
        let wanted = match mode {
            Mode::Enforce => true,
            Mode::Audit => gates.each().any(|gate| is_audited(gate.policy)),
        };
        let counting = |gates: &[ServiceGate]| {
            let counts = gates.iter().filter(|gate| mode == Mode::Audit || !is_audited(gate.policy));
            counts.map(|gate| (gate.policy, gate.selects_all)).collect::<Vec<_>>()
        };
        let counts = Gates { cluster: counting(&gates.cluster), namespace: counting(&gates.namespace) };
        (wanted && counts != Gates::default()).then_some(counts)
    }

    /// Whether the table has to know which pods are judged here: for our DNS server, or to tell them from those of
    /// other nodes.
    pub(super) fn knows_local(&self) -> bool {
        let has_gates = || self.program.service_gates.values().any(|gates| !gates.is_empty());
        self.scope.dns.is_some() || (self.scope.node.is_some() && has_gates())
    }

    fn declare(&self, table: &mut Table, mode: Mode) {
        for version in Version::BOTH {
            table.set(services_spec(version, mode));
            table.set(own_spec(version));
        }
        for address in self.own_addresses() {
            table.set(own_spec(Version::of(address))).insert(Element::key(Key::default().address(address)));
        }
    }

    /// The addresses of this node; of all, where the table is for all of them.
    fn own_addresses(&self) -> Vec<IpAddr> {
        let all = || self.program.node_addresses.iter().map(|(address, _)| *address).collect();
        let of = |node: NodeId| self.program.whereabouts.nodes.get(node.index()).cloned().unwrap_or_default();
        let mut own: Vec<IpAddr> = self.scope.node.map_or_else(all, of);
        own.retain(|address| self.program.is_node_address(*address));
        own
    }

    /// Only what is from outside or from another node, and goes to no pod.
    fn dispatch(&self, table: &mut Table, mode: Mode) {
        let name = format!("{}{FROM_OUTSIDE}", mode.prefix());
        for base in ["egress-forward", "egress-input"] {
            if let Some(chain) = table.chains.get_mut(&format!("{}{base}", mode.prefix())) {
                chain.rules.push(Rule::new([Test::Translated], Do::Jump(name.clone())));
            }
        }
        let mut rules = Vec::new();
        for version in Version::BOTH {
            let within = |end, set: set::Twins| Test::Within { end, version, set: set[version].to_owned() };
            let known = if self.scope.node.is_some() { set::LOCAL } else { set::PODS };
            let not_judged =
                [within(End::Source, known), within(End::Source, set::THIS_NODE), within(End::Destination, set::PODS)];
            rules.extend(not_judged.map(|test| Rule::new([test], mode.allowance())));
            let map = services_spec(version, mode).name;
            // nft knows what the port that was asked for is only after a test of the protocol.
            rules.extend(Protocol::WITH_PORTS.map(|protocol| {
                let action = Do::DispatchService { version, map: map.clone() };
                Rule::new([Test::Version(version), Test::Protocol(protocol_number(protocol))], action)
            }));
        }
        table.chains.entry(name).or_default().rules = rules;
    }
}

fn own_spec(version: Version) -> SetSpec {
    SetSpec::new(set::THIS_NODE[version], &[Field::Address(version)], Holds::Keys)
}

fn services_spec(version: Version, mode: Mode) -> SetSpec {
    let name = match mode {
        Mode::Enforce => set::SERVICES[version],
        Mode::Audit => set::AUDIT_SERVICES[version],
    };
    SetSpec::new(name, &[Field::Address(version), Field::Protocol, Field::Port], Holds::Verdicts)
}
