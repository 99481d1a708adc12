//! `namewall controller` as processes, against a real API server and a real resolver: names are kept, addresses
//! followed and let go, and another replica takes over.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[path = "dns/ports.rs"]
mod ports;

use jiff::{SignedDuration, Timestamp};
use namewall_cluster::Store;
use namewall_cluster::kinds::{CLUSTER_EGRESS_FIREWALL, DNS_NAME_RESOLVER};
use namewall_cluster::resolver::object_name;
use namewall_kubernetes::crds::{definitions, to_yaml};
use namewall_kubernetes::{Connection, Target, Watch};
use namewall_testbed::ControlPlane;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use ports::free_port;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A process that ends with the test.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Process {
    fn start(arguments: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_namewall"));
        Self(command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap())
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.0.id() as i32), signal).unwrap();
    }
}

/// A resolver whose answers can change: our own, with a hosts file.
struct Resolver {
    _process: Process,
    folder: PathBuf,
    at: String,
}

impl Drop for Resolver {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

impl Resolver {
    fn start(hosts: &str, ttl: u32) -> Self {
        let port = free_port();
        let folder = std::env::temp_dir().join(format!("namewall-controller-{}-{port}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("hosts"), hosts).unwrap();
        let hosts = folder.join("hosts").display().to_string();
        let corefile = format!(
            ".:{port} {{\n bind 127.0.0.1\n hosts {hosts} {{\n ttl {ttl}\n reload 200ms\n }}\n reload 2s 1s\n}}\n"
        );
        std::fs::write(folder.join("Corefile"), corefile).unwrap();
        let process = Process::start(&["dns", "--conf", folder.join("Corefile").to_str().unwrap()]);
        Self { _process: process, folder, at: format!("127.0.0.1:{port}") }
    }

    fn set(&self, hosts: &str) {
        let draft = self.folder.join("draft");
        std::fs::write(&draft, hosts).unwrap();
        std::fs::rename(draft, self.folder.join("hosts")).unwrap();
    }
}

struct World {
    _turn: MutexGuard<'static, ()>,
    plane: ControlPlane,
    resolver: Resolver,
}

impl World {
    fn build(hosts: &str) -> Self {
        Self::build_with(hosts, 2)
    }

    /// With the TTL that all names have.
    fn build_with(hosts: &str, ttl: u32) -> Self {
        // A control plane at a time is as much as a small machine bears.
        static TURN: Mutex<()> = Mutex::new(());
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let plane = ControlPlane::start().unwrap();
        plane.apply(&to_yaml(&definitions()).unwrap()).unwrap();
        plane.kubectl(&["wait", "--for=condition=Established", "crd", "--all"]).unwrap();
        for namespace in ["namewall", "shop", "office"] {
            plane.kubectl(&["create", "namespace", namespace]).unwrap();
        }
        Self { _turn: turn, plane, resolver: Resolver::start(hosts, ttl) }
    }

    fn controller(&self, identity: &str) -> Process {
        let kubeconfig = self.plane.kubeconfig().display().to_string();
        let options = ["--namespace", "namewall", "--resolver", &self.resolver.at, "--identity", identity];
        Process::start(&[&["controller", "--kubeconfig", &kubeconfig], &options[..]].concat())
    }

    /// An EgressFirewall of a namespace with rules for these names.
    fn firewall(&self, namespace: &str, names: &[&str]) {
        let rules: String =
            names.iter().map(|name| format!("\n    - {{type: Allow, to: {{dnsName: {name}}}}}")).collect();
        let manifest = format!(
            "apiVersion: k8s.ovn.org/v1\nkind: EgressFirewall\nmetadata: {{name: default, namespace: {namespace}}}\n\
             spec:\n  egress:{rules}\n"
        );
        self.plane.apply(&manifest).unwrap();
    }

    /// The objects that there are, as `NAME ADDRESS,…`.
    fn names(&self) -> Vec<String> {
        let told = self.plane.get(&["dnsnameresolvers", "-n", "namewall"]).unwrap();
        let mut names: Vec<String> = told["items"].as_array().unwrap().iter().map(tell).collect();
        names.sort();
        names
    }

    fn leader(&self) -> String {
        let told = self.plane.get(&["lease", "namewall-controller", "-n", "namewall"]).unwrap_or_default();
        told["spec"]["holderIdentity"].as_str().unwrap_or_default().to_owned()
    }

    fn wait_for(&self, what: &str, patience: Duration, holds: impl Fn() -> bool) -> Duration {
        let began = Instant::now();
        while !holds() {
            assert!(began.elapsed() < patience, "{what}: {:?}, led by {}", self.names(), self.leader());
            std::thread::sleep(Duration::from_millis(100));
        }
        began.elapsed()
    }
}

fn tell(object: &Value) -> String {
    let items = object["status"]["resolvedNames"].as_array().into_iter().flatten();
    let addresses = items.flat_map(|item| item["resolvedAddresses"].as_array().into_iter().flatten());
    let mut addresses: Vec<&str> = addresses.filter_map(|one| one["ip"].as_str()).collect();
    addresses.sort_unstable();
    format!("{} {}", object["spec"]["name"].as_str().unwrap_or_default(), addresses.join(","))
}

const SOON: Duration = Duration::from_secs(60);

#[test]
fn s8_2_names_come_and_go_with_the_rules_that_use_them_and_s8_4_addresses_are_followed() {
    let world = World::build("192.0.2.1 www.example.com\n192.0.2.5 mail.example.com\n");
    let _controller = world.controller("one");
    world.firewall("shop", &["WWW.example.com", "mail.example.com"]);
    world.firewall("office", &["www.example.com."]);
    let both = ["mail.example.com. 192.0.2.5", "www.example.com. 192.0.2.1"];
    world.wait_for("both names are resolved", SOON, || world.names() == both);

    // One object a name; it goes with the last rule that uses it.
    world.plane.kubectl(&["delete", "egressfirewall", "default", "-n", "shop"]).unwrap();
    world.wait_for("the unused name goes", SOON, || world.names() == ["www.example.com. 192.0.2.1"]);

    // The name moves: the new address is there a TTL later, the old one gone when its grace is over.
    world.resolver.set("192.0.2.2 www.example.com\n");
    world.wait_for("the new address is found", SOON, || world.names()[0].ends_with("192.0.2.1,192.0.2.2"));
    world.wait_for("the old address goes", SOON, || world.names() == ["www.example.com. 192.0.2.2"]);

    // It no longer resolves: after five failures it has no address any more, and the object stays.
    world.resolver.set("192.0.2.9 other.example.com\n");
    world.wait_for("the name goes", Duration::from_secs(90), || world.names() == ["www.example.com. "]);
}

#[test]
fn a_name_that_somebody_else_made_an_object_for_is_kept_and_not_deleted() {
    let world = World::build("192.0.2.1 www.example.com\n");
    let object = "apiVersion: network.openshift.io/v1alpha1\nkind: DNSNameResolver\n\
                  metadata: {name: by-hand, namespace: namewall}\nspec: {name: www.example.com.}\n";
    world.plane.apply(object).unwrap();
    let _controller = world.controller("one");
    world.firewall("shop", &["www.example.com"]);
    world.wait_for("the object at hand is used", SOON, || world.names() == ["www.example.com. 192.0.2.1"]);
    world.plane.kubectl(&["delete", "egressfirewall", "default", "-n", "shop"]).unwrap();
    std::thread::sleep(Duration::from_secs(2));
    assert_eq!(world.names().len(), 1, "it is not ours");
}

#[test]
fn another_replica_takes_over_and_a_restarted_api_server_is_caught_up_with() {
    let mut world = World::build("192.0.2.1 www.example.com\n192.0.2.5 mail.example.com\n192.0.2.6 ftp.example.com\n");
    let first = world.controller("first");
    world.wait_for("somebody leads", SOON, || world.leader() == "first");
    let second = world.controller("second");
    world.firewall("shop", &["www.example.com"]);
    world.wait_for("the name is resolved", SOON, || world.names() == ["www.example.com. 192.0.2.1"]);

    first.signal(Signal::SIGKILL);
    let took = world.wait_for("the other leads", SOON, || world.leader() == "second");
    assert!(took <= Duration::from_secs(15), "{took:?}");
    world.firewall("shop", &["www.example.com", "mail.example.com"]);
    let both = ["mail.example.com. 192.0.2.5", "www.example.com. 192.0.2.1"];
    world.wait_for("it does the work", SOON, || world.names() == both);

    // One that is told to end lets go at once.
    let third = world.controller("third");
    std::thread::sleep(Duration::from_secs(3));
    second.signal(Signal::SIGTERM);
    let took = world.wait_for("it lets go", SOON, || world.leader() == "third");
    assert!(took <= Duration::from_secs(6), "{took:?}");

    world.plane.kill_server();
    std::thread::sleep(Duration::from_secs(3));
    world.plane.start_server().unwrap();
    world.firewall("shop", &["www.example.com", "ftp.example.com"]);
    let others = ["ftp.example.com. 192.0.2.6", "www.example.com. 192.0.2.1"];
    world.wait_for("it catches up", Duration::from_secs(60), || world.names() == others);
    drop(third);
}

#[test]
fn who_wrote_a_policy_is_told_whether_it_counts() {
    let world = World::build("192.0.2.1 www.example.com\n");
    let _controller = world.controller("one");
    world.firewall("shop", &["www.example.com", "nowhere.example.com"]);
    // The API server takes it, and nobody can enforce it: a name is no more than its labels.
    let policies = "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: odd, namespace: shop}\n\
                    spec: {podSelector: {}, policyTypes: [Ingress], ingress: [{ports: [{port: 80, endPort: 90}]}]}\n---\n\
                    apiVersion: namewall.dev/v1alpha1\nkind: ClusterEgressFirewall\nmetadata: {name: good}\n\
                    spec: {priority: 5, rules: [{name: r, action: Deny, to: [{networks: [192.0.2.0/24]}]}]}\n";
    world.plane.apply(policies).unwrap();
    let firewall = || world.plane.get(&["egressfirewall", "default", "-n", "shop"]).unwrap();
    // No agent has said that it enforces it.
    world.wait_for("the EgressFirewall is read", SOON, || firewall()["status"]["status"] == "");
    // S8.7: a name that never resolved says so.
    let resolvers = || world.plane.get(&["dnsnameresolvers", "-n", "namewall"]).unwrap();
    world.wait_for("a name that never resolved has a condition", SOON, || {
        let objects = resolvers()["items"].as_array().cloned().unwrap_or_default();
        let mut names = objects.iter().flat_map(|one| one["status"]["resolvedNames"].as_array().into_iter().flatten());
        names.any(|name| {
            let condition = &name["conditions"][0];
            name["dnsName"] == "nowhere.example.com."
                && condition["type"] == "Degraded"
                && condition["status"] == "True"
        })
    });
    let good = || world.plane.get(&["clusteregressfirewall", "good"]).unwrap();
    let accepted = |object: &Value| object["status"]["conditions"].as_array().cloned().unwrap_or_default();
    world.wait_for("the ClusterEgressFirewall is accepted", SOON, || {
        accepted(&good()).iter().any(|one| {
            one["type"] == "Accepted"
                && one["status"] == "True"
                && one["observedGeneration"] == good()["metadata"]["generation"]
        })
    });

    // An annotation is checked by nobody but us.
    let audit = ["annotate", "egressfirewall", "default", "-n", "shop", "namewall.dev/enforcement=perhaps"];
    world.plane.kubectl(&audit).unwrap();
    world.wait_for("it is told of", SOON, || firewall()["status"]["messages"].to_string().contains("perhaps"));
    let events =
        || world.plane.kubectl(&["events", "--for", "egressfirewall/default", "-n", "shop"]).unwrap_or_default();
    world.wait_for("an event says so", SOON, || events().contains("use audit or enforce"));
    let described = world.plane.kubectl(&["describe", "egressfirewall", "default", "-n", "shop"]).unwrap();
    assert!(described.contains("use audit or enforce"), "{described}");
}

#[test]
fn s7_5_a_cluster_egress_firewall_says_what_became_of_it() {
    let world = World::build("192.0.2.1 www.example.com\n");
    let _controller = world.controller("one");
    let objects = "apiVersion: v1\nkind: Node\nmetadata: {name: node-1, labels: {zone: a}}\n---\n\
         apiVersion: v1\nkind: Service\nmetadata: {name: way-round, namespace: shop}\n\
         spec: {ports: [{port: 80, targetPort: 8080}]}\n---\n\
         apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\n\
         metadata: {name: way-round-1, namespace: shop, labels: {kubernetes.io/service-name: way-round}}\n\
         addressType: IPv4\nendpoints: [{addresses: [203.0.113.66]}]\nports: [{port: 8080, protocol: TCP}]\n---\n\
         apiVersion: namewall.dev/v1alpha1\nkind: NodeAddresses\nmetadata: {name: node-1}\n\
         addresses: [192.0.2.11, 192.0.2.12]\n---\n\
         apiVersion: namewall.dev/v1alpha1\nkind: ClusterEgressFirewall\nmetadata: {name: inside}\n\
         spec:\n  priority: 5\n  rules:\n\
           \x20   - {name: outside, action: Deny, to: [{networks: [203.0.113.0/24]}]}\n\
           \x20   - {name: nodes, action: Deny, to: [{nodes: {matchLabels: {zone: a}}}], ports: [{protocol: TCP, port: 22}]}\n";
    world.plane.apply(objects).unwrap();
    let status = || world.plane.get(&["clusteregressfirewall", "inside"]).unwrap()["status"].take();
    world.wait_for("its rules are told", SOON, || status()["concreteRules"][1]["networksCount"] == 8);
    let told = status();
    assert_eq!(told["concreteRules"][0]["networks"][0], "203.0.113.0/24", "{told}");
    // Also loopback, link-local and groups, which reach every node.
    let networks = &told["concreteRules"][1]["networks"];
    for network in ["192.0.2.11/32", "192.0.2.12/32", "127.0.0.0/8", "224.0.0.0/4", "fe80::/10", "ff00::/8"] {
        assert!(networks.as_array().unwrap().contains(&network.into()), "{network} in {networks}");
    }
    assert_eq!(told["concreteRules"][1]["ports"][0]["port"], 22);
    let offending = &told["offendingServices"][0];
    let wanted = serde_json::json!({"namespace": "shop", "name": "way-round", "rule": 0, "address": "203.0.113.66"});
    assert_eq!((offending, &told["offendingServicesCount"]), (&wanted, &1.into()), "{told}");
    assert_eq!(told["enforcingNodes"], 0, "no agent has said that it enforces it");
    // What a real API server stores of a condition is what its definition has.
    let condition = |kind: &str| {
        let told = status();
        let mut all = told["conditions"].as_array().cloned().unwrap_or_default().into_iter();
        all.find(|one| one["type"] == kind).unwrap_or_default()
    };
    assert_eq!(condition("Accepted")["status"], "True", "{told}");
    let waits = "1 of 1 nodes do not enforce it yet: node-1";
    world.wait_for("it is not enforced yet", SOON, || condition("Enforced")["message"] == waits);
    let words = "Services that point at a denied destination: shop/way-round (to 203.0.113.66, denied by rule 0); \
                 connections through them are denied too";
    world.wait_for("it is exposed", SOON, || condition("Exposed")["message"] == words);
    for (kind, is) in [("Enforced", "False"), ("Exposed", "True")] {
        let one = condition(kind);
        assert_eq!((&one["status"], &one["observedGeneration"]), (&is.into(), &1.into()), "{one}");
        assert!(
            ["reason", "lastTransitionTime"].iter().all(|key| one[key].as_str().is_some_and(|text| !text.is_empty())),
            "{one}"
        );
    }
    let events = || {
        let told = world.plane.get(&["events", "-A"]).unwrap_or_default();
        let all = told["items"].as_array().cloned().unwrap_or_default();
        let of = |event: &Value| {
            let about = &event["involvedObject"];
            (about["kind"] == "ClusterEgressFirewall" && about["name"] == "inside").then(|| {
                let texts = ["type", "reason", "message"].map(|key| event[key].as_str().unwrap_or_default().to_owned());
                texts.join(" ")
            })
        };
        all.iter().filter_map(of).collect::<Vec<String>>()
    };
    world.wait_for("an Event warns of it", SOON, || events() == [format!("Warning Exposed {words}")]);

    // Its agent says that it enforces it.
    let mut store = Store::default();
    let stored = world.plane.get(&["clusteregressfirewall", "inside"]).unwrap();
    _ = store.apply(CLUSTER_EGRESS_FIREWALL.preferred(), &stored);
    let digest = json!({"status": {"enforces": store.digest(&CLUSTER_EGRESS_FIREWALL)}}).to_string();
    let patch = ["patch", "nodeaddresses", "node-1", "--subresource=status", "--type=merge", "-p", &digest];
    world.plane.kubectl(&patch).unwrap();
    world.wait_for("it is enforced", SOON, || {
        condition("Enforced")["status"] == "True" && status()["enforcingNodes"] == 1
    });
    let enforced = "--for=condition=Enforced";
    world.plane.kubectl(&["wait", "clusteregressfirewall/inside", "--timeout=60s", enforced]).unwrap();

    // The Service is mended.
    world.plane.kubectl(&["delete", "endpointslice", "way-round-1", "-n", "shop"]).unwrap();
    world.wait_for("it offends no more", SOON, || status()["offendingServicesCount"] == 0);
    world.wait_for("it is exposed no more", SOON, || condition("Exposed")["status"] == "False");
}

const MANY: usize = 1_000;

/// Of the name with a number, as it is at first.
fn first_address(number: usize) -> String {
    format!("192.0.{}.{}", 100 + number / 250, 1 + number % 250)
}

fn hosts(changed: Option<(usize, &str)>) -> String {
    let line = |number: usize| match changed {
        Some((at, address)) if at == number => format!("{address} n{number}.example.com\n"),
        _ => format!("{} n{number}.example.com\n", first_address(number)),
    };
    (0..MANY).map(line).collect()
}

#[test]
fn a_thousand_names_are_kept_and_other_peoples_clocks_do_not_count() {
    let world = World::build_with(&hosts(None), 15);
    let _controller = world.controller("one");
    let names: Vec<String> = (0..MANY).map(|number| format!("n{number}.example.com")).collect();
    world.firewall("shop", &names.iter().map(String::as_str).collect::<Vec<_>>());
    let target = Target { kubeconfig: Some(world.plane.kubeconfig()), context: None };
    let watch = Watch::start_for(&Connection::open(&target).unwrap(), [&DNS_NAME_RESOLVER]);
    watch.wait_until_known(SOON).unwrap();
    let mut seen = Seen { watch, addresses: HashMap::new() };
    seen.wait_for("all are looked up", |addresses| addresses.values().filter(|one| !one.is_empty()).count() == MANY);
    seen.wait_for("each to its own", |addresses| {
        (0..MANY).all(|number| addresses.get(&format!("n{number}.example.com.")) == Some(&vec![first_address(number)]))
    });

    // One of them moves. A node whose clock is ahead by minutes has looked another up, and one whose clock is
    // behind a third.
    world.resolver.set(&hosts(Some((17, "192.0.2.17"))));
    let ahead = world.looked_up(
        &ResolvedAddress { name: "n18.example.com.", address: "192.0.2.18", ttl: 2 },
        SignedDuration::from_mins(10),
    );
    let began = Instant::now();
    world.looked_up(
        &ResolvedAddress { name: "n19.example.com.", address: "192.0.2.19", ttl: 6 },
        SignedDuration::from_mins(-10),
    );
    // It is there for its TTL and its grace, though both are over by its words.
    world.wait_for("the address goes", SOON, || world.last_lookup("n19.example.com.", "192.0.2.19").is_none());
    assert!(began.elapsed() > Duration::from_secs(6 + 5 - 1), "it went after {:?}", began.elapsed());
    world.wait_for("the name that was looked up in the future is looked up again", SOON, || {
        world.last_lookup("n18.example.com.", &first_address(18)).is_some_and(|at| at > ahead)
    });
    world.wait_for("its other address goes", SOON, || world.last_lookup("n18.example.com.", "192.0.2.18").is_none());
    seen.wait_for("the new address of the one that moved is found", |addresses| {
        addresses["n17.example.com."].contains(&"192.0.2.17".to_owned())
    });
}

/// What a node would see.
struct Seen {
    watch: Watch,
    addresses: HashMap<String, Vec<String>>,
}

impl Seen {
    fn wait_for(&mut self, what: &str, holds: impl Fn(&HashMap<String, Vec<String>>) -> bool) {
        let began = Instant::now();
        while !holds(&self.addresses) {
            // A thousand names are many for a busy machine.
            assert!(began.elapsed() < 3 * SOON, "{what}: of {} names", self.addresses.len());
            self.watch.wait(Duration::from_millis(100));
            self.watch.take_change();
            for (_, object) in self.watch.new_names() {
                let Some(object) = object else { continue };
                let mut addresses: Vec<String> = object.addresses().map(|one| one.address.to_string()).collect();
                addresses.sort();
                self.addresses.insert(object.pattern, addresses);
            }
        }
        println!("{what}: {:?}", began.elapsed());
    }
}

/// An address that a name was resolved to.
struct ResolvedAddress<'a> {
    name: &'a str,
    address: &'a str,
    ttl: i32,
}

impl World {
    /// The address of a name is looked up by somebody whose clock is off by so much. Gives when, by ours.
    fn looked_up(&self, found: &ResolvedAddress<'_>, off: SignedDuration) -> Timestamp {
        let ResolvedAddress { name, address, ttl } = *found;
        let now = Timestamp::now();
        let at = Timestamp::from_second((now + off).as_second()).unwrap().to_string();
        let status = json!({"status": {"resolvedNames": [{
            "dnsName": name,
            "conditions": [],
            "resolvedAddresses": [{"ip": address, "ttlSeconds": ttl, "lastLookupTime": at}],
            "resolutionFailures": 0,
        }]}});
        let (object, status) = (object_name(name, 0), status.to_string());
        let patch =
            ["patch", "dnsnameresolver", &object, "-n", "namewall", "--subresource=status", "--type=merge", "-p"];
        self.plane.kubectl(&[&patch[..], &[&status]].concat()).unwrap();
        now
    }

    /// When an address of a name was last looked up, if it has it.
    fn last_lookup(&self, name: &str, address: &str) -> Option<Timestamp> {
        let told = self.plane.get(&["dnsnameresolver", &object_name(name, 0), "-n", "namewall"]).unwrap();
        let items = told["status"]["resolvedNames"].as_array().into_iter().flatten();
        let mut addresses = items.flat_map(|item| item["resolvedAddresses"].as_array().into_iter().flatten());
        let found = addresses.find(|one| one["ip"] == address)?;
        found["lastLookupTime"].as_str().unwrap().parse().ok()
    }
}
