//! The cluster: two nodes, two replicas of the controller, and policies by name.

use crate::node::SimulatedNode;
use crate::replica::Replica;
use crate::schedule::NAMES;
use jiff::SignedDuration;
use namewall_cluster::kinds::{CLUSTER_NETWORK_POLICY, DNS_NAME_RESOLVER, EGRESS_FIREWALL, NODE, POD};
use namewall_controller::testing::FakeDns;
use namewall_dataplane::memory::Memory;
use namewall_kubernetes::testing::{FakeServer, Faults};
use namewall_policy::Instant;
use namewall_runtime::testing::{Process, Simulation};
use namewall_runtime::{Clock, ManualClock, Random, Tasks};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

#[derive(Debug)]
pub struct Cluster {
    pub simulation: Simulation,
    pub server: FakeServer,
    pub dns: FakeDns,
    pub nodes: Vec<(SimulatedNode, Arc<Process>)>,
    pub replicas: Vec<(Replica, Arc<Process>)>,
    /// Of the nodes, then of the replicas.
    clocks: BTreeMap<usize, ManualClock>,
}

/// The most that the clock of a machine differs from the right time, in seconds.
const MOST_SKEW: u64 = 200;
/// The way of the first replica to the API server. Those of nodes are before it.
const FIRST_REPLICA: usize = 2;

impl Cluster {
    /// All of it, with nothing running yet but the API server and DNS.
    pub fn new(seed: u64) -> Self {
        let mut simulation = Simulation::new(seed);
        let server = FakeServer::start(&mut simulation);
        let dns = FakeDns::new(simulation.clock(), simulation.random());
        for (number, name) in (1..).zip(NAMES) {
            dns.set(name, &[([198, 51, 100, number].into(), 30)]);
        }
        let mut cluster =
            Self { simulation, server, dns, nodes: Vec::new(), replicas: Vec::new(), clocks: BTreeMap::new() };
        cluster.write_policies();
        for number in 1..=2 {
            cluster.add_node(number);
            let replica =
                Replica { identity: format!("replica-{number}"), leads: Arc::default(), usurps: Arc::default() };
            let process = cluster.simulation.process();
            cluster.replicas.push((replica, process));
            cluster.start_replica(usize::from(number) - 1);
        }
        cluster
    }

    /// Denies names to the pods, beside what the policies say otherwise.
    pub fn deny(&self, names: &[&str]) {
        let rule = |verb: &str, name: &str| json!({"type": verb, "to": {"dnsName": name}});
        let denied = names.iter().map(|name| rule("Deny", name));
        let rules: Vec<Value> = denied.chain([rule("Allow", "*.example.com")]).collect();
        let metadata = json!({"name": "default", "namespace": "shop"});
        self.server.put(&EGRESS_FIREWALL, json!({"metadata": metadata, "spec": {"egress": rules}}));
    }

    fn write_policies(&self) {
        let policy = json!({
            "metadata": {"name": "names"},
            "spec": {
                "tier": "Admin", "priority": 1, "subject": {"namespaces": {}},
                "egress": [
                    {"action": "Accept", "to": [{"domainNames": ["*.example.com"]}]},
                    {"action": "Deny", "to": [{"networks": ["0.0.0.0/0"]}]},
                ],
            },
        });
        self.server.put(&CLUSTER_NETWORK_POLICY, policy);
        let rule = json!({"type": "Allow", "to": {"dnsName": "*.example.com"}});
        let metadata = json!({"name": "default", "namespace": "shop"});
        self.server.put(&EGRESS_FIREWALL, json!({"metadata": metadata, "spec": {"egress": [rule]}}));
    }

    /// A node with a pod, which asks for names that no other node's pod asks for.
    fn add_node(&mut self, number: u8) {
        let name = format!("n{number}");
        let pod = IpAddr::from([10, 0, number, 1]);
        let addresses = json!([{"type": "InternalIP", "address": format!("203.0.113.{number}")}]);
        self.server.put(&NODE, json!({"metadata": {"name": name}, "status": {"addresses": addresses}}));
        let status = json!({"phase": "Running", "podIP": pod});
        let metadata = json!({"name": format!("web-{number}"), "namespace": "shop", "labels": {"app": "web"}});
        self.server.put(&POD, json!({"metadata": metadata, "spec": {"nodeName": name}, "status": status}));
        let asks_for = NAMES.iter().skip(usize::from(number) - 1).step_by(2).map(ToString::to_string).collect();
        let node = SimulatedNode { name, pod, asks_for, memory: Memory::default() };
        let process = self.simulation.process();
        self.nodes.push((node, process));
        self.start_node(usize::from(number) - 1);
    }

    /// The clock of a machine. Clocks differ by minutes.
    fn clock(&mut self, machine: usize) -> ManualClock {
        let skew = self.random_below(2 * MOST_SKEW) as i64 - MOST_SKEW as i64;
        let clock = self.simulation.clock().skewed_by(SignedDuration::from_secs(skew));
        self.clocks.insert(machine, clock.clone());
        clock
    }

    /// Sets the time of day of a node forward, or back.
    pub fn step_clock(&self, node: usize, seconds: i64) {
        self.clocks[&node].step_wall(seconds);
    }

    /// Cuts a node off from the API server, or ends that. All others reach it.
    pub fn cut_off(&self, node: usize, is_cut: bool) {
        self.server.set_cut(node, is_cut);
    }

    fn start_node(&mut self, at: usize) {
        let clock = self.clock(at);
        let (node, process) = &self.nodes[at];
        let environment = self.server.by_way(at).environment(process, clock);
        process.spawn(Box::pin(node.clone().run(environment, self.dns.clone())));
    }

    pub fn start_replica(&mut self, at: usize) {
        let clock = self.clock(FIRST_REPLICA + at);
        let (replica, process) = &self.replicas[at];
        let environment = self.server.by_way(FIRST_REPLICA + at).environment(process, clock);
        process.spawn(Box::pin(replica.clone().run(environment, self.dns.clone())));
    }

    /// Kills a node's agent and starts another. What was in the kernel stays there.
    pub fn restart_node(&mut self, at: usize) {
        let next = self.simulation.process();
        let before = std::mem::replace(&mut self.nodes[at].1, next);
        self.simulation.kill(&before);
        self.start_node(at);
    }

    pub fn restart_replica(&mut self, at: usize) {
        self.stop_replica(at);
        self.start_replica(at);
    }

    pub fn stop_replica(&mut self, at: usize) {
        let next = self.simulation.process();
        let before = std::mem::replace(&mut self.replicas[at].1, next);
        self.simulation.kill(&before);
        self.replicas[at].0.leads.store(false, Ordering::Relaxed);
    }

    pub fn random_below(&self, most: u64) -> u64 {
        self.simulation.random().number() % most
    }

    pub fn now(&self) -> Instant {
        self.simulation.clock().now()
    }

    /// Everything is slow, and some of it is lost.
    pub fn disturb(&self) {
        self.server.set_faults(Faults {
            delay: Duration::from_millis(400),
            lost_requests: 5,
            lost_answers: 5,
            repeated_events: 10,
            ended_watches: 5,
            is_away: false,
        });
        self.dns.set_delay(Duration::from_secs(2));
    }

    pub fn calm(&self) {
        self.server.set_faults(Faults::default());
        self.dns.set_delay(Duration::ZERO);
    }

    pub fn leaders(&self) -> usize {
        self.replicas.iter().filter(|(replica, _)| replica.leads.load(Ordering::Relaxed)).count()
    }

    /// What is open on each node.
    pub fn open(&self) -> Vec<BTreeSet<(String, IpAddr)>> {
        self.nodes.iter().map(|(node, _)| node.open(self.now())).collect()
    }

    /// The names that the DNSNameResolvers are for.
    pub fn resolvers(&self) -> Vec<String> {
        let objects = self.server.all(&DNS_NAME_RESOLVER).into_iter();
        objects.filter_map(|object| object["spec"]["name"].as_str().map(str::to_owned)).collect()
    }
}
