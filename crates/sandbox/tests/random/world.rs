//! A cluster that changes by chance, step after step: labels, named ports,
//! pods that come and go, Services, policies, leases.

use super::policy::{PATTERNS, pattern, policy};
use namewall_policy::domain::{DomainPattern, Effect, RulePattern, Wildcard};
use namewall_policy::labels::{Labels, Requirement, Selector};
use namewall_policy::model::{
    Backend, BackendTarget, NamedPort, Namespace, NamespaceId, Node, NodeId, Policy, Role, ServedAddress, Service,
    ServiceForm, ServicePort, Workload, WorkloadId,
};
use namewall_policy::port::{Protocol, TransportPort};
use namewall_policy::{Instant, Lease, Snapshot};
use namewall_testbed::Dice;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

pub(crate) const NAMESPACES: [&str; 3] = ["shop", "bank", "farm"];
/// Of each node the last is among the pods', as a bridge's is.
const NODES: [(&str, &[&str]); 2] =
    [("n1", &["172.16.0.1", "fd01::1"]), ("n2", &["172.16.0.2", "fd01::2", "10.0.1.250"])];
/// Those with one family, those with a second interface, and on alternating nodes.
const PODS: [&[&str]; 7] = [
    &["10.0.0.2", "fd00::2"],
    &["10.0.1.3", "fd00:0:0:1::3"],
    &["10.0.0.4", "fd00::4", "198.51.100.4"],
    &["10.0.1.5", "fd00:0:0:1::5"],
    &["10.0.0.6"],
    &["10.0.1.7", "fd00:0:0:1::7"],
    &["10.0.0.8", "fd00::8"],
];
/// A `hostNetwork` pod has one that its node does not tell of.
const HOST_POD: [&str; 3] = ["172.16.0.2", "fd01::2", "192.0.2.99"];
const OUTSIDE: [&str; 4] = ["192.0.2.10", "203.0.113.5", "2001:db8::10", "2001:db8:1::5"];
const SERVICES: [[&str; 2]; 3] = [["10.96.0.1", "fd02::1"], ["10.96.0.2", "fd02::2"], ["10.96.0.3", "fd02::3"]];
/// Of the first Service.
const NODE_PORT: u16 = 30_000;
const POD_NETWORKS: [&[&str]; 4] =
    [&["10.0.0.0/23", "fd00::/48"], &["10.0.0.0/24"], &[], &["10.0.0.0/24", "10.0.1.0/24", "fd00:0:0:1::/64"]];
pub(crate) const PORTS: [u16; 4] = [80, 81, 443, 8080];

pub(crate) const NOW: Instant = Instant(Duration::from_secs(100));

#[derive(Debug)]
struct Pod {
    addresses: &'static [&'static str],
    there: bool,
    namespace: usize,
    labels: Labels,
    ports: Arc<[NamedPort]>,
}

#[derive(Clone, Copy, Debug)]
enum Target {
    Pod(usize),
    Outside,
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Served {
    Both,
    Only { is_ipv4: bool },
}

#[derive(Debug)]
pub(crate) struct World {
    pub(crate) dice: Dice,
    namespaces: Vec<(Labels, bool)>,
    nodes: Vec<Labels>,
    pods: Vec<Pod>,
    /// Pods that are gone while their objects are not: each claims the first address of one that there is (S1.9).
    stale: Vec<(usize, Pod)>,
    host_pod: bool,
    services: Vec<(usize, Target, u16)>,
    /// The versions of IP that each Service has addresses of.
    served: Vec<Served>,
    /// Dice of their own: all else of a seed's clusters stays as it was before Services had versions.
    dice_of_served: Dice,
    policies: Vec<Policy>,
    pod_networks: &'static [&'static str],
    /// Every Role there has been, in the order in which they came.
    roles: Vec<Role>,
    /// Whether more than pods changed last.
    #[allow(dead_code, reason = "only one of the tests wants it")]
    pub(crate) whole: bool,
    /// Every lease so far.
    #[allow(dead_code, reason = "only one of the tests wants it")]
    pub(crate) leases: Vec<Lease>,
}

impl World {
    pub(crate) fn new(seed: u64) -> Self {
        let mut dice = Dice::new(seed);
        let pods = PODS.map(|addresses| pod(&mut dice, addresses)).into();
        let mut world = Self {
            namespaces: vec![Default::default(); NAMESPACES.len()],
            nodes: vec![Labels::default(); NODES.len()],
            pods,
            stale: Vec::new(),
            host_pod: false,
            services: vec![(0, Target::Outside, PORTS[0]); SERVICES.len()],
            served: vec![Served::Both; SERVICES.len()],
            dice_of_served: Dice::new(!seed),
            policies: Vec::new(),
            pod_networks: dice.pick(&POD_NETWORKS),
            roles: Vec::new(),
            whole: true,
            leases: Vec::new(),
            dice,
        };
        world.change_all();
        world
    }

    #[allow(dead_code, reason = "only one of the tests wants it")]
    pub(crate) fn step(&mut self) {
        self.whole = self.dice.chance(65);
        match self.whole {
            true => self.change_all(),
            false => self.change_pods(40),
        }
    }

    fn change_pods(&mut self, percent: usize) {
        let dice = &mut self.dice;
        for member in &mut self.pods {
            if dice.chance(percent) {
                *member = pod(dice, member.addresses);
            }
        }
        self.stale = dice.times(0..3, |dice| {
            let at = dice.within(0..PODS.len());
            (at, pod(dice, &PODS[at][..1]))
        });
        for member in self.pods.iter().chain(self.stale.iter().map(|(_, pod)| pod)) {
            let namespace = NamespaceId(member.namespace as u32);
            let role = Role { namespace, labels: member.labels.clone(), host_network: false };
            if !self.roles.contains(&role) {
                self.roles.push(role);
            }
        }
    }

    pub(crate) fn change_all(&mut self) {
        self.change_pods(25);
        let dice = &mut self.dice;
        for namespace in &mut self.namespaces {
            if dice.chance(30) {
                *namespace = (labels(dice), dice.chance(25));
            }
        }
        for node in &mut self.nodes {
            if dice.chance(25) {
                *node = labels(dice);
            }
        }
        if dice.chance(20) {
            self.host_pod = !self.host_pod;
        }
        if dice.chance(10) {
            self.pod_networks = dice.pick(&POD_NETWORKS);
        }
        for service in &mut self.services {
            if dice.chance(20) {
                let target = if dice.chance(35) { Target::Outside } else { Target::Pod(dice.within(0..PODS.len())) };
                *service = (dice.within(0..NAMESPACES.len()), target, dice.pick(&PORTS));
            }
        }
        let choices = [Served::Both, Served::Both, Served::Only { is_ipv4: true }, Served::Only { is_ipv4: false }];
        for served in &mut self.served {
            if self.dice_of_served.chance(20) {
                *served = self.dice_of_served.pick(&choices);
            }
        }
        self.change_policies();
    }

    /// Every pod is there.
    #[allow(dead_code, reason = "only one of the tests wants it")]
    pub(crate) fn fill(&mut self) {
        self.pods.iter_mut().for_each(|pod| pod.there = true);
        self.host_pod = true;
    }

    /// From none to many; some stay as they were.
    fn change_policies(&mut self) {
        let dice = &mut self.dice;
        let keep = dice.pick(&[0, 40, 80]);
        self.policies.retain(|_| dice.chance(keep));
        for policy in dice.times(0..7, policy) {
            self.policies.retain(|other| other.id != policy.id);
            let at = dice.within(0..self.policies.len() + 1);
            self.policies.insert(at, policy);
        }
    }

    /// A few leases more, up to two.
    #[allow(dead_code, reason = "only one of the tests wants it")]
    pub(crate) fn learn(&mut self) {
        for _ in 0..self.dice.within(0..3) {
            let wildcard = self.dice.pick(&[Wildcard::Subdomains, Wildcard::OneLabel]);
            let names = pattern(self.dice.pick(&PATTERNS), wildcard);
            let name = match &names {
                DomainPattern::Exact(name) => name.clone(),
                wide => format!("w.{}", wide.domain()).parse().expect("a name"),
            };
            let address = read(self.dice.pick(&OUTSIDE));
            // One is over already. None lasts for longer than the maximum of the settings: a new process would shorten it.
            let left = self.dice.pick(&[1800, 3600, 0]);
            let effect = if self.leases.len().is_multiple_of(2) { Effect::Allow } else { Effect::Deny };
            let (pattern, expiry) = (RulePattern { names, effect }, NOW + Duration::from_secs(left));
            self.leases.push(Lease { pattern, name, address, expiry, asked_by: None });
        }
    }

    pub(crate) fn outside() -> Vec<IpAddr> {
        reads(&OUTSIDE)
    }

    pub(crate) fn snapshot(&self) -> Snapshot {
        let mut snapshot = Snapshot::default();
        let blocks = self.pod_networks.iter().map(|text| text.parse().expect("a block"));
        snapshot.pod_networks = Arc::new(blocks.collect());
        let served = reads(&["192.0.2.10", "172.16.0.1", "fd01::2"]).into_iter().zip([443, 80, 443]);
        let served = served
            .map(|(address, port)| ServedAddress { address, port: TransportPort { protocol: Protocol::Tcp, port } });
        snapshot.api_server = served.collect();
        for (name, (labels, default_deny_ingress)) in NAMESPACES.into_iter().zip(self.namespaces.clone()) {
            snapshot.add_namespace(Namespace { name: name.into(), labels, default_deny_ingress, source: None });
        }
        for ((name, addresses), labels) in NODES.into_iter().zip(self.nodes.clone()) {
            snapshot.add_node(Node { name: name.into(), labels, addresses: reads(addresses), source: None });
        }
        for role in &self.roles {
            snapshot.role_of(role.clone());
        }
        let mut ids = Vec::new();
        for (at, pod) in self.pods.iter().enumerate() {
            ids.push(pod.there.then(|| add_pod(&mut snapshot, at, pod)));
        }
        for (number, (at, pod)) in self.stale.iter().enumerate().filter(|(_, (at, _))| self.pods[*at].there) {
            let id = add_pod(&mut snapshot, *at, pod);
            if let Some(stale) = snapshot.workloads.get_mut(id.index()) {
                stale.name = format!("stale{number}").into();
            }
        }
        if self.host_pod {
            let namespace = NamespaceId(0);
            let pod = snapshot.new_pod(Role { namespace, labels: Labels::default(), host_network: true }, "host");
            let (node, addresses) = (Some(NodeId(1)), reads(&HOST_POD).into());
            let ports = named_ports(&[("web", Protocol::Tcp, 80)]);
            snapshot.add_workload(Workload { addresses, node, ports, ..pod });
        }
        for (at, &(namespace, target, port)) in self.services.iter().enumerate() {
            let mut service = service(at, target, port, &ids);
            if let Served::Only { is_ipv4 } = self.served[at] {
                service.addresses.retain(|address| address.is_ipv4() == is_ipv4);
            }
            snapshot.services.push(Service {
                form: ServiceForm::Balanced,
                namespace: NamespaceId(namespace as u32),
                ..service
            });
        }
        snapshot.policies = self.policies.clone().into();
        snapshot
    }
}

fn pod(dice: &mut Dice, addresses: &'static [&'static str]) -> Pod {
    let ports = dice.times(0..3, |dice| {
        (dice.pick(&["web", "dns"]), dice.pick(&[Protocol::Tcp, Protocol::Udp, Protocol::Sctp]), dice.pick(&PORTS))
    });
    Pod {
        addresses,
        there: dice.chance(90),
        namespace: dice.within(0..NAMESPACES.len()),
        labels: labels(dice),
        ports: named_ports(&ports),
    }
}

fn add_pod(snapshot: &mut Snapshot, at: usize, pod: &Pod) -> WorkloadId {
    let namespace = NamespaceId(pod.namespace as u32);
    let role = Role { namespace, labels: pod.labels.clone(), host_network: false };
    let workload = Workload {
        addresses: reads(pod.addresses).into(),
        node: Some(NodeId((at % NODES.len()) as u32)),
        ports: pod.ports.clone(),
        ..snapshot.new_pod(role, &format!("p{at}"))
    };
    snapshot.add_workload(workload)
}

/// One backend a family; none, if its pod is not there.
fn service(at: usize, target: Target, port: u16, pods: &[Option<WorkloadId>]) -> Service {
    let targets = match target {
        Target::Pod(pod) => pods[pod].iter().map(|&id| BackendTarget::Workload(id)).collect(),
        Target::Outside => vec![BackendTarget::Address(read(OUTSIDE[0])), BackendTarget::Address(read(OUTSIDE[2]))],
    };
    let backends: Vec<Backend> = targets.into_iter().map(|target| Backend { target, port }).collect();
    let ports = [Protocol::Tcp, Protocol::Udp].map(|protocol| ServicePort {
        name: None,
        protocol,
        port: 8000,
        node_port: Some(NODE_PORT + at as u16),
        backends: backends.clone(),
    });
    Service {
        namespace: NamespaceId(0),
        name: format!("s{at}").into(),
        form: ServiceForm::Balanced,
        addresses: reads(&SERVICES[at]),
        external: Vec::new(),
        proxied: Vec::new(),
        ports: ports.into(),
        source: None,
    }
}

fn named_ports(ports: &[(&str, Protocol, u16)]) -> Arc<[NamedPort]> {
    ports.iter().map(|&(name, protocol, port)| NamedPort { name: name.into(), protocol, port }).collect()
}

fn labels(dice: &mut Dice) -> Labels {
    let mut label = |key| Some((key, dice.pick(&[None, Some("x"), Some("y")])?));
    [label("a"), label("b")].into_iter().flatten().collect()
}

pub(crate) fn selector(dice: &mut Dice) -> Selector {
    let requirements = dice.times(1..3, |dice| {
        let (key, value): (Arc<str>, Arc<str>) = (dice.pick(&["a", "b"]).into(), dice.pick(&["x", "y"]).into());
        match dice.within(0..6) {
            0..3 => Requirement::In { key, values: vec![value] },
            3 => Requirement::NotIn { key, values: vec![value] },
            4 => Requirement::Exists { key },
            _ => Requirement::DoesNotExist { key },
        }
    });
    Selector { requirements }
}

fn read(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

fn reads(texts: &[&str]) -> Vec<IpAddr> {
    texts.iter().map(|text| read(text)).collect()
}
