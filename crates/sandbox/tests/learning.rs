//! Names under load: what a pod has just looked up is open to it, however many
//! look up at once.

mod common;

use common::{address, has_rights};

use namewall_policy::port::Protocol;
use namewall_sandbox::{Ask, Cluster, Heard, Measured, Opening, Packets, Questions};
use namewall_scenario::zones::{Rcode, Transport};
use namewall_scenario::{Scenario, run_in};
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Two tenants on one node, and names that have ten thousand addresses between them.
const TOPOLOGY: &str = "
topology:
  manifests: [base/cluster.yaml, base/closed.yaml]
  objects:
    - apiVersion: policy.networking.k8s.io/v1alpha2
      kind: ClusterNetworkPolicy
      metadata: {name: names}
      spec:
        tier: Admin
        priority: 10
        subject: {pods: {namespaceSelector: {}, podSelector: {matchLabels: {app: api}}}}
        egress: [{action: Accept, to: [{domainNames: ['*.wild.example.com']}]}]
    - apiVersion: policy.networking.k8s.io/v1alpha2
      kind: ClusterNetworkPolicy
      metadata: {name: other}
      spec:
        tier: Admin
        priority: 11
        subject: {pods: {namespaceSelector: {}, podSelector: {matchLabels: {app: client}}}}
        egress: [{action: Accept, to: [{domainNames: ['*.other.example.com']}]}]
  dns:
    servers: {203.0.113.53: {}}
    zones:
      '*.wild.example.com': {A: [198.18.0.0/19, 198.18.32.0/21], rotate: 1, ttl: 60}
      '*.other.example.com': {A: [198.51.100.0/24], rotate: 1, ttl: 60}
steps:
  # What is promised is not how fast this machine is.
  - settings: {holdLimit: 5s}
probes:
  - shop/api -> 198.51.100.7:443/TCP: deny by ClusterNetworkPolicy/rest rule 0
";
const PORT: u16 = 8443;
const API: &str = "10.244.2.10";
const CLIENT: &str = "10.244.2.11";

fn up() -> Packets {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/scenarios/names");
    let scenario = Scenario::parse(TOPOLOGY, "inline", &folder).unwrap_or_else(|error| panic!("{error}"));
    let mut packets = Packets::for_scenario(&scenario);
    let outcome = run_in(&mut packets, &scenario);
    assert!(outcome.passed(), "{}", outcome.failures(&scenario).join("\n"));
    packets
}

/// Answers at every address outside, while `work` is done.
fn answering(cluster: &Cluster, work: impl FnOnce()) {
    let listener = cluster.sandbox.outside().enter(|| TcpListener::bind(("0.0.0.0", PORT)));
    let listener = listener.expect("the outside is entered").expect("nobody listens there yet");
    listener.set_nonblocking(true).expect("it does not block");
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _over = Over(&is_over);
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                while listener.accept().is_ok() {}
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        work();
    });
}

/// Says so when it is dropped, also by a panic: whoever waits for it must not wait for ever.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn question(name: &str, via: Option<Transport>) -> Ask {
    let (name, kind) = (name.parse().expect("a name"), "A".parse().expect("a type"));
    Ask { server: SocketAddr::new(address("203.0.113.53"), 53), name, kind, via, edns: Some(1232), mixed_case: false }
}

/// How often a client asks for what was not answered, or by SERVFAIL. On a busy machine an answer may come too late, for
/// the client or for the hold limit.
const TRIES: usize = 5;

/// Looks them up, and opens a connection with each answer in hand. Whether it had to wait is not what is asked here:
/// that nothing was dropped is told by the kernel.
fn look_up(cluster: &Cluster, from: &str, asks: &[Ask], at_once: usize) -> Vec<Option<Heard>> {
    let source: IpAddr = address(from);
    let timeout = Duration::from_secs(10);
    let then = Opening { protocol: Protocol::Tcp, port: PORT, sources: vec![source], timeout };
    let place = cluster.sandbox.place(source).expect("a place");
    let mut all: Vec<Option<Heard>> = vec![None; asks.len()];
    for _ in 0..TRIES {
        let has_failed = |heard: &Option<Heard>| heard.as_ref().is_none_or(|heard| heard.rcode == Rcode::SERVFAIL);
        let left: Vec<usize> = (0..asks.len()).filter(|&at| has_failed(&all[at])).collect();
        let again: Vec<Ask> = left.iter().map(|&at| asks[at].clone()).collect();
        let questions = Questions { asks: &again, at_once, then: Some(&then) };
        let heard = cluster.sandbox.ask_and_open(&place, &questions).unwrap_or_else(|error| panic!("{error}"));
        left.into_iter().zip(heard).for_each(|(at, heard)| all[at] = heard);
    }
    all
}

/// Packets that the last policy has dropped on the node.
fn dropped(cluster: &Cluster) -> u64 {
    let counts = cluster.agent("n2").expect("a node").counts().unwrap_or_else(|error| panic!("{error}"));
    let last = counts.iter().filter(|(label, _)| label.contains("ClusterNetworkPolicy/rest egress"));
    last.map(|(_, count)| count.packets).reduce(|a, b| a + b).expect("the policy has a count")
}

/// What did not go as it should, in words.
fn wrong(asks: &[Ask], heard: &[Option<Heard>]) -> Vec<String> {
    let is_right = |heard: &Option<Heard>| {
        heard.as_ref().is_some_and(|heard| {
            let reached: Vec<IpAddr> = heard.reached.iter().map(|(address, _)| *address).collect();
            let is_open = heard.reached.iter().all(|(_, measured)| *measured == Measured::Open);
            heard.rcode == Rcode::NOERROR && heard.addresses.len() == 1 && reached == heard.addresses && is_open
        })
    };
    let tell = |heard: &Option<Heard>| match heard {
        Some(heard) => format!("{}, {:?} after {:?}", heard.rcode, heard.reached, heard.took),
        None => "no answer".to_owned(),
    };
    let wrong = asks.iter().zip(heard).filter(|(_, heard)| !is_right(heard));
    wrong.map(|(ask, heard)| format!("{}: {}", ask.name, tell(heard))).collect()
}

fn counters(cluster: &Cluster) -> String {
    let node = cluster.agent("n2").expect("a node");
    format!("{:?} {:?}", node.counters(), node.dns().map(|server| server.counters()))
}

/// Questions that came to the node's server. Others went past it, and nothing was learned from their answers.
fn taken(cluster: &Cluster) -> u64 {
    cluster.agent("n2").and_then(|node| node.dns()).expect("it serves").counters().queries
}

#[track_caller]
fn all_right(cluster: &Cluster, asks: &[Ask], heard: &[Option<Heard>]) {
    let wrong = wrong(asks, heard);
    let few = wrong.iter().take(10).cloned().collect::<Vec<_>>().join("\n");
    assert!(wrong.is_empty(), "{} of {}:\n{few}\n{}", wrong.len(), asks.len(), counters(cluster));
}

/// Every name is looked up twice at once, and each of the two has an address that nobody knows yet (S6.6, S6.7).
#[test]
fn ten_thousand_first_connections_straight_after_their_lookups() {
    if !has_rights() {
        return;
    }
    let packets = up();
    let cluster = packets.cluster().expect("it is up");
    let asks: Vec<Ask> = (0..10_000_u16)
        .map(|at| {
            let name = format!("n{}.wild.example.com", at / 2);
            let ask = question(&name, if at % 10 == 0 { Some(Transport::Tcp) } else { None });
            // Questions that are equal byte for byte would share an answer.
            Ask { edns: Some(1232 + at % 2), ..ask }
        })
        .collect();
    let before = dropped(cluster);
    assert!(before > 0, "the probe was");
    answering(cluster, || {
        let heard = look_up(cluster, API, &asks, 50);
        all_right(cluster, &asks, &heard);
        assert!(taken(cluster) >= 10_000, "some went past: {}", counters(cluster));
        assert_eq!(dropped(cluster), before, "no connection came before its lease");
        let mut addresses: Vec<IpAddr> = heard.iter().flatten().flat_map(|heard| heard.addresses.clone()).collect();
        addresses.sort_unstable();
        addresses.dedup();
        assert_eq!(addresses.len(), 10_000, "no address came twice");
    });
}

/// One tenant looks up as many random names as it can, and another goes on as if it were alone (S6.5).
#[test]
fn a_flood_of_random_names_is_nobody_elses() {
    if !has_rights() {
        return;
    }
    let packets = up();
    let cluster = packets.cluster().expect("it is up");
    let flood: Vec<Ask> = (0..20_000).map(|at| question(&format!("x{at}.wild.example.com"), None)).collect();
    let first = [question("first.other.example.com", None)];
    answering(cluster, || {
        all_right(cluster, &first, &look_up(cluster, CLIENT, &first, 1));
        let (before, is_over) = (dropped(cluster), AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let _over = Over(&is_over);
                let place = cluster.sandbox.place(address(API)).expect("a place");
                let heard = cluster.sandbox.ask(&place, &flood, 200).unwrap_or_else(|error| panic!("{error}"));
                // Some may be too late, on a busy machine; most are a flood.
                let answered = heard.iter().flatten().filter(|heard| heard.rcode == Rcode::NOERROR).count();
                assert!(answered > flood.len() / 2, "{answered}; {}", counters(cluster));
                assert!(taken(cluster) >= answered as u64, "{answered}; {}", counters(cluster));
            });
            let mut rounds = 0;
            while !is_over.load(Ordering::Relaxed) {
                let asks = [question(&format!("y{rounds}.other.example.com"), None)];
                all_right(cluster, &asks, &look_up(cluster, CLIENT, &asks, 1));
                rounds += 1;
            }
            assert!(rounds > 20, "only {rounds}; {}", counters(cluster));
        });
        assert_eq!(dropped(cluster), before);
        all_right(cluster, &first, &look_up(cluster, CLIENT, &first, 1));
    });
}
