//! S7.4: what comes from outside through a Service must not go where the
//! tenants' own connections may not. Those outside have no class, so the gate
//! is found by the address and port they asked for. The same holds for what
//! other nodes send here (S1.11): behind a node's address may be any of its
//! pods, if it masquerades.
//!
//! ```text
//! pod on n1 ─► n1: may it reach n2:30080? source is n1 now ─► n2: DNAT ─► may the Service's tenants reach 198.51.100.7?
//! ```

use super::Render;
use super::rules::{RuleWriter, protocol_number};
use super::stages::{Mode, Stages};
use crate::nft::rule::{Action as Do, End, Rule, Test};
use crate::nft::set::{self, Element, Field, Holds, Key, SetSpec, Value, Version};
use crate::nft::table::Table;
use namewall_policy::model::{Enforcement, NamespaceId, NodeId, PolicyId};
use namewall_policy::port::Protocol;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// Asks the gates before Services.
const FROM_OUTSIDE: &str = "from-outside";

impl Render<'_> {
    pub(super) fn service_gates(&self, table: &mut Table, writer: &RuleWriter<'_>, mode: Mode) {
        let frontends = self.frontends(mode);
        for (&(address, protocol, port), gates) in &frontends {
            let chain = Stages { render: self, writer, table, mode, then: None }.service_gate(gates);
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
    fn frontends(&self, mode: Mode) -> BTreeMap<(IpAddr, u8, u16), Vec<(PolicyId, bool)>> {
        let mut frontends: BTreeMap<_, Vec<(PolicyId, bool)>> = BTreeMap::new();
        for service in self.program.services.iter() {
            let Some(gates) = self.gates(service.namespace, mode) else { continue };
            for &(address, protocol, port) in &service.frontends {
                let known = frontends.entry((address, protocol_number(protocol), port)).or_default();
                if known.is_empty() {
                    known.clone_from(&gates);
                } else if *known != gates {
                    let both: BTreeSet<PolicyId> = known.iter().chain(&gates).map(|(policy, _)| *policy).collect();
                    *known = both.into_iter().map(|policy| (policy, false)).collect();
                }
            }
        }
        frontends
    }

    /// The gates before a namespace's Services that count; audited, only if any is.
    fn gates(&self, namespace: NamespaceId, mode: Mode) -> Option<Vec<(PolicyId, bool)>> {
        let gates = self.program.service_gates.get(&namespace)?;
        let is_audited = |policy| self.program.policy(policy).enforcement == Enforcement::Audit;
        let wanted = match mode {
            Mode::Enforce => true,
            Mode::Audit => gates.iter().any(|gate| is_audited(gate.policy)),
        };
        let counts: Vec<(PolicyId, bool)> = gates
            .iter()
            .filter(|gate| mode == Mode::Audit || !is_audited(gate.policy))
            .map(|gate| (gate.policy, gate.selects_all))
            .collect();
        (wanted && !counts.is_empty()).then_some(counts)
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
