//! S1.11: frontends whose backends a pod's cluster gate denies: node ports, at
//! every address of every node, and addresses of Services that are backends of
//! other Services. The pod's own node closes them: the node that is asked may see
//! the first node's address in the place of the pod's, and cannot tell the pod any
//! more.
//!
//! Where the own node translates the node port itself, the packet has the
//! backend's address by now, and is judged by that.

use super::rules::{address_ways, numbered_ways, runs};
use super::stages::{Stages, described};
use crate::nft::rule::{Action as Do, End, Rule, Test};
use namewall_policy::addr::{AddrSet, Cidr};
use namewall_policy::model::Direction;
use namewall_policy::node_ports::FrontendAt;
use namewall_policy::port::Traffic;
use namewall_policy::program::{Plan, RuleId};
use std::collections::BTreeMap;

impl Stages<'_> {
    /// The chain that closes frontends for a plan; none if all are open.
    pub(super) fn node_port_gate(&mut self, plan: &Plan) -> Option<String> {
        let program = self.render.program;
        let mut closed: BTreeMap<(RuleId, FrontendAt), Traffic> = BTreeMap::new();
        for (frontend, denied) in program.closed_frontends(plan)? {
            let ports = closed.entry((denied.rule, frontend.at)).or_insert_with(Traffic::none);
            ports.insert(frontend.protocol, frontend.port, frontend.port);
        }
        let is_sure = |policy| !plan.in_doubt.contains(policy);
        let name = self.list_name("node-ports", plan.cluster_gate.iter().map(|policy| (*policy, is_sure(policy))));
        self.chain(&name, |stages| {
            let addresses = |at| match at {
                FrontendAt::Address(address) => [Cidr::host(address)].into_iter().collect::<AddrSet>(),
                FrontendAt::EveryNode { is_ipv4 } => {
                    let addresses = program.node_addresses.iter().map(|(address, _)| *address);
                    addresses.filter(|address| address.is_ipv4() == is_ipv4).map(Cidr::host).collect()
                }
            };
            let mut rules = Vec::new();
            for (&(rule, at), ports) in &closed {
                rules.extend(stages.node_port_rules(rule, ports, &addresses(at)));
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
