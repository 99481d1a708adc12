//! S1.11: node ports whose backends a pod's cluster gate denies. The pod's own
//! node closes them, at every address of every node: the node that is asked may
//! see the first node's address in the place of the pod's, and cannot tell the
//! pod any more.
//!
//! Where the own node translates the node port itself, the packet has the
//! backend's address by now, and is judged by that.

use super::rules::{address_ways, numbered_ways, runs};
use super::stages::{Stages, described};
use crate::nft::rule::{Action as Do, End, Rule, Test};
use crate::nft::set::Version;
use namewall_policy::addr::{AddrSet, Cidr};
use namewall_policy::model::Direction;
use namewall_policy::port::Traffic;
use namewall_policy::program::{Plan, RuleId};
use std::collections::BTreeMap;

impl Stages<'_> {
    /// The chain that closes node ports for a plan; none if all are open.
    pub(super) fn node_port_gate(&mut self, plan: &Plan) -> Option<String> {
        let program = self.render.program;
        let mut closed: BTreeMap<(RuleId, Version), Traffic> = BTreeMap::new();
        for (at, denied) in program.closed_node_ports(plan)? {
            let version = if at.is_ipv4 { Version::V4 } else { Version::V6 };
            let ports = closed.entry((denied.rule, version)).or_insert_with(Traffic::none);
            ports.insert(at.protocol, at.port, at.port);
        }
        let is_sure = |policy| !plan.in_doubt.contains(policy);
        let name = self.list_name("node-ports", plan.cluster_gate.iter().map(|policy| (*policy, is_sure(policy))));
        self.chain(&name, |stages| {
            let nodes = |version| {
                let addresses = program.node_addresses.iter().map(|(address, _)| *address);
                addresses.filter(|at| Version::of(*at) == version).map(Cidr::host).collect::<AddrSet>()
            };
            let mut rules = Vec::new();
            for (&(rule, version), ports) in &closed {
                rules.extend(stages.node_port_rules(rule, ports, &nodes(version)));
            }
            described(rules, &format!("backends of node ports: {}", stages.listed(&plan.cluster_gate)))
        });
        Some(name)
    }

    fn node_port_rules(&mut self, rule: RuleId, ports: &Traffic, nodes: &AddrSet) -> Vec<Rule> {
        let program = self.render.program;
        let policy = program.rule(rule).policy;
        let run = runs(program, policy, Direction::Egress).into_iter().find(|run| run.ids.contains(&rule.0));
        let Some(run) = run else { return Vec::new() };
        let deny = self.deny_chain(&run);
        let (ports, nodes) = (numbered_ways(self.table, ports), address_ways(self.table, nodes, End::Destination));
        let both = |port: &Vec<Test>, node: &Vec<Test>| [port.as_slice(), node].concat();
        let pairs = ports.iter().flat_map(|port| nodes.iter().map(move |node| both(port, node)));
        pairs.map(|tests| Rule::new(tests, Do::Goto(deny.clone()))).collect()
    }
}
