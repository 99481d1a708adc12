//! S7.4: what comes from outside through a Service must not go where the
//! tenants' own connections may not. Those outside have no class, so the gate
//! is found by the address and port they asked for.

use super::Render;
use super::rules::{RuleWriter, protocol_number};
use super::stages::{Mode, Stages};
use crate::nft::rule::{Action as Do, End, Rule, Test};
use crate::nft::set::{self, Element, Field, Holds, Key, SetSpec, Value, Version};
use crate::nft::table::Table;
use namewall_policy::model::{Enforcement, NamespaceId, PolicyId};
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

    fn declare(&self, table: &mut Table, mode: Mode) {
        for version in Version::BOTH {
            table.set(services_spec(version, mode));
            table.set(SetSpec::new(set::NODES[version], &[Field::Address(version)], Holds::Keys));
        }
        for &(address, _) in self.program.node_addresses.iter() {
            let version = Version::of(address);
            let nodes = table.set(SetSpec::new(set::NODES[version], &[Field::Address(version)], Holds::Keys));
            nodes.insert(Element::key(Key::default().address(address)));
        }
    }

    /// Only what is from outside and goes to no pod.
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
            let not_judged =
                [within(End::Source, set::PODS), within(End::Source, set::NODES), within(End::Destination, set::PODS)];
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

fn services_spec(version: Version, mode: Mode) -> SetSpec {
    let name = match mode {
        Mode::Enforce => set::SERVICES[version],
        Mode::Audit => set::AUDIT_SERVICES[version],
    };
    SetSpec::new(name, &[Field::Address(version), Field::Protocol, Field::Port], Holds::Verdicts)
}
