//! Connections through changes (S3.4): what policies allow before a change and
//! after it has settled is never lost; what they forbid ends, TCP by a reset.
//!
//! Long-lived TCP, UDP and SCTP flows go through applies in every order, policies
//! of every tier and direction, policies that are replaced, rollouts, labels that
//! change and agents that start again. Every story
//! ends in a state that allows `web` and forbids `other`, however it gets there.
//! SCTP is raw packets: the kernel tracks it, and need not speak it.

mod common;

use common::{Cluster as Pods, PORT, address, has_rights};
use namewall_agent::Settle;
use namewall_dataplane::CutEstablished;
use namewall_policy::labels::{Labels, Selector};
use namewall_policy::model::{
    Action, Clauses, Enforcement, NamespaceScope, Peer, Peers, Placement, PodSet, Policy, PolicyKind, PolicyRef, Ports,
    Role, Rule, Subject, Workload,
};
use namewall_policy::port::Protocol;
use namewall_policy::{Snapshot, compile};
use namewall_sandbox::{Cluster, Connection, Listen, Wanted};
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// A busy machine takes its time.
const DEADLINE: Duration = Duration::from_secs(60);
const CUT_PACKETS: &str = "belongs to a connection that was cut";
const WEB: [&str; 2] = ["10.0.1.2", "fd00:1::2"];
const OTHER: [&str; 2] = ["10.0.1.3", "fd00:1::3"];
const PROTOCOLS: [Protocol; 3] = [Protocol::Tcp, Protocol::Udp, Protocol::Sctp];
const DB: [&str; 2] = ["10.0.2.2", "fd00:2::2"];

/// What the cluster is at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Moment {
    /// The policies of `bank/db`.
    policies: &'static [&'static str],
    /// The label of `shop/web`.
    web: &'static str,
    /// Whether the agents start again.
    restarts: bool,
    /// Whether a rollout has brought up new pods beside the old ones.
    surges: bool,
}

const fn with(policies: &'static [&'static str]) -> Moment {
    Moment { policies, web: "web", restarts: false, surges: false }
}

impl Moment {
    const fn after_restart(self) -> Self {
        Self { restarts: true, ..self }
    }

    const fn in_rollout(self) -> Self {
        Self { surges: true, ..self }
    }

    const fn relabelled(self) -> Self {
        Self { web: "stranger", ..self }
    }

    fn snapshot(self) -> Snapshot {
        let pods = Pods::default().node("n1", &["192.0.2.1", "2001:db8::1"]).node("n2", &["192.0.2.2", "2001:db8::2"]);
        let mut snapshot = pods.0;
        let mut pod = |app: &str, name: &str, node: &str, at: &[&str]| {
            let namespace = snapshot.ensure_namespace("shop");
            let node = Some(snapshot.ensure_node(node));
            let labels: Labels = [("app", app)].into_iter().collect();
            let pod = snapshot.new_pod(Role { namespace, labels, host_network: false }, name);
            snapshot.add_workload(Workload { addresses: common::addresses(at).into(), node, ..pod });
        };
        pod(self.web, "web", "n1", &WEB);
        pod("other", "other", "n1", &OTHER);
        pod("db", "db", "n2", &DB);
        if self.surges {
            pod("web", "web-next", "n1", &["10.0.1.4", "fd00:1::4"]);
            pod("db", "db-next", "n2", &["10.0.2.4", "fd00:2::4"]);
        }
        Arc::make_mut(&mut snapshot.policies).extend(self.policies.iter().map(|name| policy(name)));
        snapshot
    }
}

fn pods_of(app: &str) -> PodSet {
    PodSet { namespaces: NamespaceScope::Named("shop".into()), pods: Selector::label("app", app) }
}

/// NetworkPolicies for db: `allow…` opens it to web, `deny` to nobody. For clients: `open-web` lets web reach db only,
/// `close-…` lets a client reach nobody. ClusterNetworkPolicies for db: `cluster-allow` opens it to web, `cluster-deny`
/// closes it to all clients, and counts less.
fn policy(name: &str) -> Policy {
    let rule = |action, of: &str| {
        let clauses = Clauses::Match { peers: Peers::Listed(vec![Peer::Pods(pods_of(of))]), ports: Ports::Any };
        Rule { name: None, action, clauses, source: None }
    };
    let isolating = |isolates_ingress| Placement::Network { isolates_ingress, isolates_egress: !isolates_ingress };
    let (allow, deny) = (Action::Allow, Action::Deny);
    let (placement, subject, ingress, egress) = match name {
        "open-web" => (isolating(false), "web", Vec::new(), vec![rule(allow, "db")]),
        "close-web" | "close-other" => (isolating(false), name.trim_start_matches("close-"), Vec::new(), Vec::new()),
        "cluster-allow" => (Placement::Admin { priority: 10 }, "db", vec![rule(allow, "web")], Vec::new()),
        "cluster-deny" => {
            (Placement::Admin { priority: 20 }, "db", vec![rule(deny, "web"), rule(deny, "other")], Vec::new())
        }
        _ if name.starts_with("allow") => (isolating(true), "db", vec![rule(allow, "web")], Vec::new()),
        _ => (isolating(true), "db", Vec::new(), Vec::new()),
    };
    let (kind, namespace) = match placement {
        Placement::Admin { .. } => (PolicyKind::ClusterNetworkPolicy, None),
        _ => (PolicyKind::NetworkPolicy, Some("shop".into())),
    };
    Policy {
        id: PolicyRef { kind, namespace, name: name.into() },
        placement,
        enforcement: Enforcement::Enforce,
        subject: Subject { pods: pods_of(subject), nodes: None },
        egress,
        ingress,
        source: None,
    }
}

const NOTHING: Moment = with(&[]);
const BOTH: Moment = with(&["allow", "deny"]);

/// Each begins with flows of both clients open, and ends with web allowed and other forbidden.
const STORIES: [(&str, &[Moment]); 13] = [
    ("deny, then allow", &[NOTHING, with(&["deny"]), BOTH]),
    ("allow, then deny", &[NOTHING, with(&["allow"]), BOTH]),
    ("both at once", &[NOTHING, BOTH]),
    ("a policy under another name", &[NOTHING, BOTH, with(&["deny"]), with(&["allow-again", "deny"])]),
    ("a policy that goes and comes back", &[NOTHING, BOTH, with(&["deny"]), BOTH]),
    ("a label that changes back", &[NOTHING, BOTH, BOTH.relabelled(), BOTH]),
    ("a restart between deny and allow", &[NOTHING, with(&["deny"]), with(&["deny"]).after_restart(), BOTH]),
    ("a restart before what is forbidden is cut", &[NOTHING, BOTH, BOTH.after_restart()]),
    ("egress rules", &[NOTHING, with(&["close-other", "close-web"]), with(&["close-other", "close-web", "open-web"])]),
    ("egress rules that allow first", &[NOTHING, with(&["open-web"]), with(&["close-other", "open-web"])]),
    ("cluster policies", &[NOTHING, with(&["cluster-deny"]), with(&["cluster-allow", "cluster-deny"])]),
    ("a rollout", &[NOTHING, BOTH, BOTH.in_rollout(), BOTH]),
    ("a restart in a rollout", &[NOTHING, BOTH.in_rollout(), BOTH.in_rollout().after_restart(), BOTH]),
];
/// These are applied one after the other, in every order.
const IN_EVERY_ORDER: [&str; 3] = ["allow", "deny", "open-web"];

/// A story for each order.
fn permutations() -> Vec<(String, Vec<Moment>)> {
    let mut stories = Vec::new();
    for (first, second) in (0..3).flat_map(|first| (0..3).map(move |second| (first, second))) {
        if first == second {
            continue;
        }
        let order = [first, second, 3 - first - second].map(|at| IN_EVERY_ORDER[at]);
        // A test has a few of these, for as long as it runs.
        let applied = |count: usize| with(Box::leak(order[..count].to_vec().into_boxed_slice()));
        stories.push((order.join(", "), (0..=order.len()).map(applied).collect()));
    }
    stories
}

struct Flows {
    web: Vec<Connection>,
    other_tcp: Vec<Connection>,
    /// UDP and SCTP.
    other_datagrams: Vec<Connection>,
}

fn open(cluster: &Cluster, from: &str, to: &str, protocol: Protocol) -> Connection {
    let place = cluster.sandbox.place(address(from)).expect("a place");
    let began = Instant::now();
    loop {
        match cluster.sandbox.connect(&place, SocketAddr::new(address(to), PORT), protocol).expect("a socket") {
            Ok(connection) => return connection,
            Err(measured) if began.elapsed() > DEADLINE => panic!("{from} -> {to}/{protocol}: {measured}"),
            Err(_) => {}
        }
    }
}

fn open_all(cluster: &Cluster) -> Flows {
    let of = |from: [&str; 2], protocol| [0, 1].map(|family| open(cluster, from[family], DB[family], protocol));
    let web = PROTOCOLS.into_iter().flat_map(|protocol| of(WEB, protocol)).collect();
    let other_datagrams = [Protocol::Udp, Protocol::Sctp].into_iter().flat_map(|protocol| of(OTHER, protocol));
    Flows { web, other_tcp: of(OTHER, Protocol::Tcp).into(), other_datagrams: other_datagrams.collect() }
}

fn go_to(cluster: &mut Cluster, moment: Moment) {
    let snapshot = moment.snapshot();
    let program = compile(&snapshot).0;
    let wanted =
        Wanted { snapshot: &snapshot, program: &program, outside: &[], cut: CutEstablished::Always, dns: None };
    match moment.restarts {
        true => drop(cluster.restart(&wanted).expect("new agents")),
        false => cluster.update(&wanted).expect("the change is taken"),
    }
}

/// Waits for as long as policies take to settle. Then it is decided what to cut.
fn let_settle(cluster: &mut Cluster) -> usize {
    sleep(Settle::default().quiet + Duration::from_millis(1));
    cluster.settle().expect("what is forbidden is cut")
}

/// A cluster in the sandbox that has no policies yet.
fn without_policies() -> Cluster {
    let snapshot = NOTHING.snapshot();
    let program = compile(&snapshot).0;
    let wanted =
        Wanted { snapshot: &snapshot, program: &program, outside: &[], cut: CutEstablished::Always, dns: None };
    Cluster::build(&wanted, &mut |_| {}).expect("the sandbox is built")
}

fn cut_packets(cluster: &mut Cluster) -> u64 {
    cluster.counts().expect("the rules are read").get(CUT_PACKETS).map_or(0, |count| count.packets)
}

#[test]
fn s3_4_what_is_allowed_before_and_after_is_never_lost_and_what_is_forbidden_ends() {
    if !has_rights() {
        return;
    }
    let mut cluster = without_policies();
    cluster.set_settle(Settle::default());
    let listen = |at: &&str| PROTOCOLS.map(|protocol| Listen { address: address(at), protocol, port: PORT });
    cluster.sandbox.ensure_listening(&DB.iter().flat_map(listen).collect::<Vec<_>>()).expect("db listens");
    let mut lost = Vec::new();
    for (story, moments) in STORIES {
        play(&mut cluster, story, moments, &mut lost);
    }
    for (story, moments) in permutations() {
        play(&mut cluster, &story, &moments, &mut lost);
    }
    assert_eq!(lost, [""; 0], "connections were lost that both states allow");
}

/// Opens flows, goes through the moments of a story, and sees what has become of them. It notes the story for each
/// flow that was lost and is allowed.
fn play(cluster: &mut Cluster, story: &str, moments: &[Moment], lost: &mut Vec<String>) {
    go_to(cluster, moments[0]);
    let_settle(cluster);
    let mut flows = open_all(cluster);
    moments[1..].iter().for_each(|moment| go_to(cluster, *moment));
    assert!(let_settle(cluster) > 0, "{story}: something is cut");
    let alive = Connection::all_alive(&mut flows.web, DEADLINE).expect("they are asked");
    lost.extend(alive.iter().filter(|alive| !**alive).map(|_| story.to_owned()));
    // The far end of the first speaks, so that its own node answers it; the near end of the other.
    let [first, second] = flows.other_tcp.as_mut_slice() else { panic!("a flow of each family") };
    let before = cut_packets(cluster);
    assert!(!cluster.sandbox.hears_far_end(first), "{story}: the far end is not heard");
    let waited = Instant::now();
    while cut_packets(cluster) == before {
        assert!(waited.elapsed() < DEADLINE, "{story}: what the far end says is answered with a reset");
        sleep(Duration::from_millis(10));
    }
    assert!(first.is_reset(DEADLINE) && second.is_reset(DEADLINE), "{story}: TCP ends by a reset");
    let timeout = cluster.sandbox.timeout;
    let alive = Connection::all_alive(&mut flows.other_datagrams, timeout).expect("they are asked");
    assert_eq!(alive, [false; 4], "{story}: UDP and SCTP are dropped while they are denied");
    go_to(cluster, NOTHING);
    let waited = Instant::now();
    while Connection::all_alive(&mut flows.other_datagrams, timeout).expect("they are asked").contains(&false) {
        assert!(waited.elapsed() < DEADLINE, "{story}: UDP and SCTP go on when they are allowed again");
    }
}

/// Agents remember so many cut connections, and one pod has many more.
const MOST_CUTS: usize = 300;
const FLOOD: usize = 1_500;

#[test]
fn s3_4_a_flood_of_cuts_by_one_pod_revives_no_connection_of_another() {
    if !has_rights() {
        return;
    }
    let mut cluster = without_policies();
    cluster.set_most_cuts(MOST_CUTS);
    go_to(&mut cluster, NOTHING.after_restart());
    let listen = Listen { address: address(DB[0]), protocol: Protocol::Tcp, port: PORT };
    cluster.sandbox.ensure_listening(&[listen]).expect("db listens");
    // Cut before the flood, and with it: in both cases it is the oldest of all, or one among many.
    let connect = |cluster: &Cluster, from: &str| open(cluster, from, DB[0], Protocol::Tcp);
    let mut before = connect(&cluster, WEB[0]);
    go_to(&mut cluster, with(&["deny"]));
    go_to(&mut cluster, NOTHING);
    let mut with_it = connect(&cluster, WEB[0]);
    let mut flood: Vec<Connection> = (0..FLOOD).map(|_| connect(&cluster, OTHER[0])).collect();
    assert_eq!(cluster.forgotten_cuts(), 0);
    go_to(&mut cluster, with(&["deny"]));
    // The node of db enforces the policy, and counts.
    let forgotten = cluster.forgotten_cuts();
    assert!(forgotten >= (FLOOD - MOST_CUTS) as u64, "{forgotten} are counted");
    // db may open connections to both, so what is forgotten lives again when db speaks. So the memory is what keeps
    // the others dead.
    let revived = flood.iter_mut().take(50).any(|connection| cluster.sandbox.hears_far_end(connection));
    assert!(revived, "there are more than the memory holds");
    for (when, connection) in [("before the flood", &mut before), ("with the flood", &mut with_it)] {
        assert!(!cluster.sandbox.hears_far_end(connection), "{when}: the far end is not heard");
        assert!(connection.is_reset(DEADLINE), "{when}: it ends by a reset");
    }
}
