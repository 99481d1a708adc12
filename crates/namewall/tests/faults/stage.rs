//! Two nodes with a pod and an agent each, two replicas of the controller, a real
//! API server and DNS servers outside: all of it can fail.

use crate::dns::{Dns, Mood, NEVER, TTL};
use crate::fault::Fault;
use crate::openshift::{Openshift, Setting, programs};
use crate::world::plane::{DNS_SERVICE, define, populate};
use crate::world::{Process, World, address, lookup};
use namewall_testbed::{ControlPlane, Front, Proxy, ProxyMode, Refusal};
use nix::sys::signal::Signal;
use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

pub(crate) const NODES: [&str; 2] = ["node-1", "node-2"];
/// A pod of each node.
pub(crate) const PODS: [&str; 2] = ["10.244.1.10", "10.244.2.11"];
const CONTROLLERS: [&str; 2] = ["one", "two"];
/// What nodes ask, and whom the controller asks.
const SERVICE: &str = "10.96.0.10";
const DNS_PODS: [&str; 2] = ["203.0.113.53", "203.0.113.54"];
/// The name that moves, and where it can be.
pub(crate) const MOVING: &str = "moving.example";
const PLACES: u8 = 40;
/// Of one address, of two, and under a wildcard.
const STEADY: [(&str, &[u8]); 3] = [("steady.example", &[1]), ("pair.example", &[2, 3]), (UNDER_WILDCARD, &[4])];
const UNDER_WILDCARD: &str = "some.wild.example";
const FIREWALL: &str = "apiVersion: k8s.ovn.org/v1
kind: EgressFirewall
metadata: {name: default, namespace: shop}
spec:
  egress:
    - {type: Allow, to: {dnsName: steady.example}}
    - {type: Allow, to: {dnsName: pair.example}}
    - {type: Allow, to: {dnsName: moving.example}}
    - {type: Allow, to: {dnsName: \"*.wild.example\"}}
    - {type: Allow, to: {cidrSelector: 203.0.113.53/32}}
    - {type: Deny, to: {cidrSelector: 0.0.0.0/0}}
";
/// How long a lease outlives its TTL: longer than by default, since the machine may be busy.
pub(crate) const GRACE: Duration = Duration::from_secs(10);
/// An agent that takes longer to start than this may lose leases: the machine is to blame.
const PROMPT_START: Duration = Duration::from_secs(4);
const PATIENCE: Duration = Duration::from_secs(60);
/// Rules of one EgressFirewall.
const RULES: usize = 5_000;

pub(crate) struct Stage {
    // Dropped in this order: a process that watches goes before what it watches.
    agents: [Option<Process>; 2],
    controllers: Vec<Process>,
    _openshift: Option<Openshift>,
    /// Of the agents, then of the controllers.
    ways: Vec<Proxy>,
    front: Front,
    pub(crate) plane: ControlPlane,
    pub(crate) world: World,
    pub(crate) dns: Dns,
    place: u8,
    /// Nodes whose agent was slow to start, and until when they are not judged.
    pub(crate) excused: [Option<Instant>; 2],
}

fn outside(last: u8) -> Ipv4Addr {
    Ipv4Addr::new(198, 51, 100, last)
}

impl Stage {
    pub(crate) fn build() -> Self {
        let plane = ControlPlane::start().unwrap();
        define(&plane);
        let source = write_world();
        populate(&plane, &source);
        plane.kubectl(&["create", "namespace", "namewall"]).unwrap();
        plane.apply(DNS_SERVICE).unwrap();
        plane.apply(&endpoints(true)).unwrap();
        plane.apply(FIREWALL).unwrap();
        let world = World::of("faults", &source);
        std::fs::remove_dir_all(&source).unwrap();
        let dns = Dns::default();
        STEADY.iter().for_each(|(name, all)| dns.set(name, &all.iter().map(|last| outside(*last)).collect::<Vec<_>>()));
        let front = Front::start(&plane).unwrap();
        let servers = [SERVICE, DNS_PODS[0], DNS_PODS[1]];
        let openshift = programs().map(|programs| {
            let setting = Setting { world: &world, plane: &plane, front: &front, dns: &dns };
            Openshift::start(&setting, &programs, &servers, &DNS_PODS)
        });
        for server in servers.iter().filter(|_| openshift.is_none()) {
            let place = world.sandbox.place(address(server)).unwrap();
            dns.serve(address(server), place.namespace.enter(|| UdpSocket::bind((*server, 53))).unwrap().unwrap());
        }
        let way = |node: &str| {
            let bind = || TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
            Proxy::to(world.sandbox.node(node).unwrap().enter(bind).unwrap().unwrap(), front.port()).unwrap()
        };
        let ways = NODES.iter().chain(&NODES).map(|node| way(node)).collect();
        let (agents, controllers) = ([None, None], Vec::new());
        let (place, excused, _openshift) = (9, [None; 2], openshift);
        let mut stage = Self { agents, controllers, _openshift, ways, front, plane, world, dns, place, excused };
        stage.move_name();
        for node in 0..2 {
            stage.set_clock(node, 0);
            stage.start_agent(node);
            stage.start_controller(node);
        }
        stage
    }

    fn kubeconfig(&self, way: usize) -> String {
        self.front.kubeconfig(&self.plane, self.ways[way].port()).unwrap().display().to_string()
    }

    fn clock(&self, node: usize) -> PathBuf {
        self.world.folder.join(format!("clock-{node}"))
    }

    /// Moves the time of day of a node by seconds. Its monotonic time stays.
    fn set_clock(&self, node: usize, seconds: i64) {
        let draft = self.world.folder.join("clock-draft");
        std::fs::write(&draft, format!("0 {seconds}")).unwrap();
        std::fs::rename(draft, self.clock(node)).unwrap();
    }

    fn start_agent(&mut self, node: usize) {
        let (kubeconfig, grace) = (self.kubeconfig(node), format!("{}s", GRACE.as_secs()));
        self.world.environment = vec![("NAMEWALL_TEST_CLOCK", self.clock(node))];
        let arguments = ["agent", "--node", NODES[node], "--kubeconfig", &kubeconfig, "--hold-limit", "1500ms"];
        self.agents[node] = Some(self.world.start_on(NODES[node], &[&arguments[..], &["--grace", &grace]].concat()));
    }

    fn start_controller(&mut self, at: usize) {
        let kubeconfig = self.kubeconfig(2 + at);
        self.world.environment = vec![("NAMEWALL_TEST_CLOCK", self.clock(at))];
        let arguments = ["controller", "--namespace", "namewall", "--identity", CONTROLLERS[at]];
        let process = self.world.start_on(NODES[at], &[&arguments[..], &["--kubeconfig", &kubeconfig]].concat());
        self.controllers.push(process);
    }

    /// The name moves to an address that it did not have lately. Returns where it was.
    pub(crate) fn move_name(&mut self) -> Ipv4Addr {
        let before = outside(self.place);
        self.place = 10 + (self.place + 1 - 10) % PLACES;
        self.dns.set(MOVING, &[outside(self.place)]);
        before
    }

    /// A pod of the first node asks for a name under the wildcard. True when its object has the name.
    pub(crate) fn shares_wildcard(&self) -> bool {
        self.world.answered(PODS[0], &[lookup("203.0.113.53:53", UNDER_WILDCARD)]);
        let told = self.plane.kubectl(&["get", "dnsnameresolvers", "-n", "namewall", "-o", "json"]);
        told.is_ok_and(|told| told.contains(&format!("{UNDER_WILDCARD}.")))
    }

    pub(crate) fn begin(&mut self, fault: Fault) {
        match fault {
            Fault::NotReady => {
                self.plane.apply(&endpoints(false)).unwrap();
                self.dns.set_mood(address(DNS_PODS[1]), Mood::Forging);
            }
            Fault::Pod(pod, mood) => self.dns.set_mood(address(DNS_PODS[pod]), mood),
            Fault::Disagreement => {
                self.dns.set_mood(address(DNS_PODS[0]), Mood::First);
                self.dns.set_mood(address(DNS_PODS[1]), Mood::Last);
            }
            Fault::AllServers(mood) => self.set_moods(mood),
            Fault::ApiStalls => self.ways.iter().for_each(|way| way.set(ProxyMode::Stalled)),
            Fault::ApiRestarts | Fault::ApiLosesHistory => self.plane.kill_server(),
            Fault::ApiThrottles => self.front.refuse(Some(Refusal { code: 429, method: None, path: "/" })),
            Fault::ApiRefuses(code) => {
                self.front.refuse(Some(Refusal { code, method: Some("PUT"), path: "/dnsnameresolvers/" }));
            }
            Fault::TwoLeaders => self.signal_leader(Signal::SIGSTOP),
            Fault::ClockSkew(node, seconds) => self.set_clock(node, seconds),
            Fault::AgentKilled(node) => self.restart_agent(node),
            Fault::AgentCutOff(node) => self.ways[node].set(ProxyMode::Cut),
            Fault::ManyNames(count) => many_names(count).iter().for_each(|text| self.plane.apply(text).unwrap()),
            Fault::Flood(count) => {
                let question = |number| lookup("203.0.113.53:53", &format!("f{number}.wild.example"));
                let asks: Vec<_> = (0..count).map(question).collect();
                // Whether they are answered does not matter.
                self.world.answered(PODS[0], &asks);
            }
        }
    }

    /// Ends a fault. What takes its time is done while `watch` looks on.
    pub(crate) fn end(&mut self, fault: Fault, watch: &mut dyn FnMut(&Self)) {
        match fault {
            Fault::NotReady => {
                self.set_moods(Mood::Honest);
                self.plane.apply(&endpoints(true)).unwrap();
            }
            Fault::Pod(..) | Fault::Disagreement | Fault::AllServers(_) => self.set_moods(Mood::Honest),
            Fault::ApiStalls => self.ways.iter().for_each(|way| way.set(ProxyMode::Open)),
            Fault::ApiRestarts | Fault::ApiLosesHistory => {
                if fault == Fault::ApiLosesHistory {
                    self.plane.compact().unwrap();
                }
                self.plane.launch_server().unwrap();
                while !self.plane.is_ready().unwrap() {
                    watch(self);
                }
            }
            Fault::ApiThrottles | Fault::ApiRefuses(_) => self.front.refuse(None),
            Fault::TwoLeaders => self.controllers.iter().for_each(|process| process.signal(Signal::SIGCONT)),
            Fault::ClockSkew(node, _) => self.set_clock(node, 0),
            Fault::AgentCutOff(node) => self.ways[node].set(ProxyMode::Open),
            Fault::ManyNames(_) => {
                let label = ["delete", "egressfirewall", "-A", "-l", "many=yes", "--ignore-not-found"];
                self.plane.kubectl(&label).unwrap();
            }
            Fault::AgentKilled(_) | Fault::Flood(_) => {}
        }
    }

    fn set_moods(&self, mood: Mood) {
        [SERVICE].iter().chain(&DNS_PODS).for_each(|server| self.dns.set_mood(address(server), mood));
    }

    fn signal_leader(&self, signal: Signal) {
        let told = self.plane.get(&["lease", "namewall-controller", "-n", "namewall"]).unwrap();
        let leader = CONTROLLERS.iter().position(|identity| told["spec"]["holderIdentity"] == *identity);
        self.controllers[leader.expect("one of them leads")].signal(signal);
    }

    /// Kills an agent and starts another one, which has to answer soon.
    fn restart_agent(&mut self, node: usize) {
        let began = Instant::now();
        self.agents[node].as_ref().expect("it runs").signal(Signal::SIGKILL);
        self.agents[node] = None;
        self.start_agent(node);
        let agent = self.agents[node].as_ref().expect("it was started");
        self.world.wait_up_to(PATIENCE, || self.world.answers_on(NODES[node], agent));
        if began.elapsed() > PROMPT_START {
            println!("  {} took {:?} to start: it is not judged for a while", NODES[node], began.elapsed());
            self.excused[node] = Some(Instant::now() + PATIENCE / 2);
        }
    }

    /// What OpenShift's programs have said of their writes, if they run.
    pub(crate) fn openshift(&self) -> Option<String> {
        let said = std::fs::read_to_string(self.world.folder.join("openshift")).ok()?;
        let count = |what: &str| said.lines().filter(|line| line.contains(what)).count();
        Some(format!(
            "OpenShift's plugin gave up {} writes and read {} objects anew; its operator removed addresses {} times and \
             met {} conflicts",
            count("Encountered error"),
            count("lister was stale"),
            count("removed addresses"),
            count("conflict "),
        ))
    }

    /// What is known of names, for a report.
    pub(crate) fn describe(&self) -> String {
        let leases = |node: &&str| format!("leases of {node}:\n{}", self.world.says_on(node, &["leases"]));
        let objects = self.plane.kubectl(&["get", "dnsnameresolvers", "-n", "namewall", "-o", "yaml"]);
        let log = self.world.log();
        let lines: Vec<&str> = log.lines().filter(|line| !line.contains("denied")).collect();
        let mut log = lines[lines.len().saturating_sub(60)..].join("\n");
        if let Ok(said) = std::fs::read_to_string(self.world.folder.join("openshift")) {
            log += &format!("\nOpenShift's programs:\n{}", &said[said.len().saturating_sub(10_000)..]);
        }
        let leases: Vec<String> = NODES.iter().map(leases).collect();
        format!(
            "{}\n{}\nthe end of the log:\n{log}",
            leases.join("\n"),
            objects.unwrap_or_else(|error| error.to_string())
        )
    }
}

/// The cluster and the world outside, in a folder.
fn write_world() -> PathBuf {
    let folder = std::env::temp_dir().join(format!("namewall-faults-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let nodes = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/two_nodes/cluster.yaml");
    std::fs::copy(nodes, folder.join("cluster.yaml")).unwrap();
    std::fs::write(folder.join("policies.yaml"), FIREWALL).unwrap();
    // The sandbox listens at every address that a zone has. The servers of the test answer in place of its own.
    let all = (1..=4).chain(9..10 + PLACES).map(outside).chain([NEVER]).map(|one| one.to_string());
    let all: Vec<String> = all.chain([SERVICE, DNS_PODS[0], DNS_PODS[1]].map(str::to_owned)).collect();
    let scenario = format!(
        "name: The world outside\ntopology:\n  manifests: [cluster.yaml, policies.yaml]\n  dns:\n    \
         servers: {{203.0.113.60: {{}}}}\n    zones:\n      all.example: {{A: [{}], ttl: {TTL}}}\n\
         steps:\n  - probe:\n      - shop/api -> 198.51.100.1:443/TCP: deny\n",
        all.join(", ")
    );
    std::fs::write(folder.join("scenario.yaml"), scenario).unwrap();
    folder
}

/// The DNS pods. The second is ready, or not.
fn endpoints(is_ready: bool) -> String {
    let [first, second] = DNS_PODS;
    format!(
        "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\naddressType: IPv4\n\
         metadata: {{name: kube-dns-1, namespace: kube-system, labels: {{kubernetes.io/service-name: kube-dns}}}}\n\
         ports: [{{name: dns, port: 53, protocol: UDP}}]\n\
         endpoints:\n  - {{addresses: [{first}], conditions: {{ready: true}}}}\n  \
         - {{addresses: [{second}], conditions: {{ready: {is_ready}}}}}\n"
    )
}

/// EgressFirewalls of namespaces of their own, with so many names together.
fn many_names(count: usize) -> Vec<String> {
    let numbers: Vec<usize> = (0..count).collect();
    let firewall = |(at, numbers): (usize, &[usize])| {
        let rules: String = numbers
            .iter()
            .map(|number| format!("\n    - {{type: Allow, to: {{dnsName: n{number}.many.example}}}}"))
            .collect();
        format!(
            "apiVersion: v1\nkind: Namespace\nmetadata: {{name: many-{at}}}\n---\n\
             apiVersion: k8s.ovn.org/v1\nkind: EgressFirewall\n\
             metadata: {{name: default, namespace: many-{at}, labels: {{many: \"yes\"}}}}\nspec:\n  egress:{rules}\n"
        )
    };
    numbers.chunks(RULES).enumerate().map(firewall).collect()
}
