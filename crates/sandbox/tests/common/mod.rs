//! Clusters to build, and questions to ask of them.
#![allow(dead_code, reason = "each test file uses a part of it")]

use namewall_policy::Snapshot;
use namewall_policy::labels::Labels;
use namewall_policy::model::{
    Direction, Enforcement, Node, Placement, PodSet, Policy, PolicyKind, PolicyRef, Role, Subject, Workload,
};
use namewall_policy::port::Protocol;
use namewall_sandbox::{Listen, Measured, Namespace, Probe, Progress, Sandbox};
use namewall_testbed::{give_up, program};
use std::net::{IpAddr, SocketAddr};
use std::process::Command;
use std::sync::Arc;

pub(crate) const PORT: u16 = 8080;
pub(crate) const EVERY_PROTOCOL: [Protocol; 4] = [Protocol::Tcp, Protocol::Udp, Protocol::Sctp, Protocol::Icmp];

/// Whether this process may make network namespaces. Where it may not, the test
/// that asks is run again in a user namespace, must pass there, and is over here.
pub(crate) fn has_rights() -> bool {
    program("nft");
    if Namespace::create().is_ok() {
        return true;
    }
    let thread = std::thread::current();
    let test =
        thread.name().filter(|name| *name != "main").expect("the harness runs each test in a thread of its name");
    let mut again = Command::new(program("unshare"));
    again.args(["--user", "--map-root-user", "--net"]);
    again.arg(std::env::current_exe().expect("a path of its own")).args(["--exact", test, "--nocapture"]);
    let output = again.output().expect("unshare runs");
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    if said.starts_with("unshare: ") {
        give_up(format_args!("no network namespace can be made; run it as root, or allow user namespaces ({said})"));
    }
    assert!(output.status.success() && said.contains("1 passed"), "in a user namespace it says:\n{said}");
    false
}

pub(crate) fn address(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

pub(crate) fn addresses(texts: &[&str]) -> Vec<IpAddr> {
    texts.iter().map(|text| address(text)).collect()
}

#[derive(Clone, Default)]
pub(crate) struct Cluster(pub(crate) Snapshot);

impl Cluster {
    pub(crate) fn node(mut self, name: &str, at: &[&str]) -> Self {
        self.0.add_node(Node { name: name.into(), labels: Labels::default(), addresses: addresses(at), source: None });
        self
    }

    /// `shop/web`, on that node; `*shop/web` uses its node's network.
    pub(crate) fn pod(mut self, name: &str, node: &str, at: &[&str]) -> Self {
        let host_network = name.starts_with('*');
        let (namespace, name) = name.trim_start_matches('*').split_once('/').expect("NAMESPACE/NAME");
        let namespace = self.0.ensure_namespace(namespace);
        let node = Some(self.0.ensure_node(node));
        let pod = self.0.new_pod(Role { namespace, labels: Labels::default(), host_network }, name);
        self.0.add_workload(Workload { addresses: addresses(at).into(), node, ..pod });
        self
    }

    pub(crate) fn build(&self, outside: &[&str]) -> Sandbox {
        self.build_watched(outside, &mut |_| {})
    }

    pub(crate) fn build_watched(&self, outside: &[&str], progress: &mut dyn FnMut(Progress)) -> Sandbox {
        Sandbox::build(&self.0, &addresses(outside), progress).unwrap_or_else(|error| panic!("{error}"))
    }
}

/// The same with a policy that isolates every pod in one direction, and allows nothing.
pub(crate) fn isolating(mut snapshot: Snapshot, direction: Direction) -> Snapshot {
    let isolates_ingress = direction == Direction::Ingress;
    let id = PolicyRef { kind: PolicyKind::NetworkPolicy, namespace: Some("shop".into()), name: "closed".into() };
    Arc::make_mut(&mut snapshot.policies).push(Policy {
        id,
        placement: Placement::Network { isolates_ingress, isolates_egress: !isolates_ingress },
        enforcement: Enforcement::Enforce,
        subject: Subject { pods: PodSet::all(), nodes: None },
        egress: Vec::new(),
        ingress: Vec::new(),
        source: None,
    });
    snapshot
}

pub(crate) fn listen_everywhere(sandbox: &mut Sandbox, port: u16) {
    let wanted: Vec<Listen> = sandbox
        .topology()
        .addresses()
        .flat_map(|address| EVERY_PROTOCOL.map(|protocol| Listen { address, protocol, port }))
        .collect();
    sandbox.ensure_listening(&wanted).expect("listening everywhere");
}

pub(crate) fn probe(sandbox: &Sandbox, from: &str, to: &str, protocol: Protocol) -> Probe {
    let from = sandbox.place(address(from)).expect("a place");
    let to = to.parse().unwrap_or_else(|_| SocketAddr::new(address(to), PORT));
    Probe { from, to, protocol }
}

/// One probe, its ends as text: `10.0.0.1` means port 8080 there.
pub(crate) fn measure(sandbox: &Sandbox, from: &str, to: &str, protocol: Protocol) -> Measured {
    // An answer may be late on a busy machine; what is dropped is dropped every time.
    sandbox.probe_patiently(&[probe(sandbox, from, to, protocol)], 10).expect("a probe")[0]
}

/// Runs `nft` in the namespace, as an administrator would.
pub(crate) fn nft(namespace: &Namespace, commands: &str) {
    run_in(namespace, Command::new("nft").arg(commands));
}

pub(crate) fn run_in(namespace: &Namespace, command: &mut Command) -> String {
    let output = namespace.enter(|| command.output()).expect("the namespace is entered").expect("the command runs");
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Routes an address the way that another one goes.
pub(crate) fn route_like(namespace: &Namespace, to: &str, like: &str) {
    let ip = |words: &str| run_in(namespace, Command::new(program("ip")).args(words.split_whitespace()));
    let version = if to.contains(':') { "-6" } else { "-4" };
    let shown = ip(&format!("{version} route get {like}"));
    let words: Vec<&str> = shown.split_whitespace().collect();
    let after = |word: &str| words.iter().skip_while(|one| **one != word).nth(1).map(|next| format!("{word} {next}"));
    let gateway = after("via").map(|via| format!("{via} onlink")).unwrap_or_default();
    ip(&format!("{version} route replace {to} {gateway} {}", after("dev").expect("an interface")));
}

/// Thousands of probes leave nothing for later changes to look through.
pub(crate) fn forget_soon(node: &Namespace) {
    const SETTINGS: [&str; 9] = [
        "tcp_timeout_syn_sent",
        "tcp_timeout_syn_recv",
        "tcp_timeout_close",
        "udp_timeout",
        "udp_timeout_stream",
        "icmp_timeout",
        "icmpv6_timeout",
        "sctp_timeout_cookie_wait",
        "sctp_timeout_cookie_echoed",
    ];
    let write = |setting: &str| std::fs::write(format!("/proc/sys/net/netfilter/nf_conntrack_{setting}"), "2");
    // Where there is no such setting it is slower, and no less right.
    let written = node.enter(|| SETTINGS.iter().filter(|setting| write(setting).is_ok()).count());
    written.expect("the node is entered");
}
