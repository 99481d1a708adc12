//! What stands in the node's way: nothing, the least a stateful firewall does,
//! namewall's table, and the list of rules it is not.

use anyhow::{Context, Result, ensure};
use namewall_bench::crowd::{self, Crowd, PORT, Pair};
use namewall_dataplane::nft::rule::{Action, End, Hardware, Rule, Test};
use namewall_dataplane::nft::table::{Chain, Fallback, Hook, HookKind, Point, Table};
use namewall_dataplane::nft::{Nft, Settings, put_table};
use namewall_dataplane::render::Scope;
use namewall_dataplane::{Dataplane as _, Guard, PodInterface, SingleThreaded};
use namewall_policy::addr::Cidr;
use namewall_policy::labels::{Labels, Selector};
use namewall_policy::model::{
    Action as PolicyAction, Clauses, Enforcement, Node, Peer, Peers, Placement, PodSet, Policy, PolicyKind, PolicyRef,
    Ports, Rule as PolicyRule, Subject,
};
use namewall_policy::{Snapshot, compile};
use std::fmt;
use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr};
use std::process::{Command, Stdio};
use std::sync::Arc;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Filter {
    /// No table at all.
    Nothing,
    /// Connections are tracked, and all accepted: what the others are held against.
    Tracked,
    /// The same once more: how far two of the same are apart on this machine today.
    TrackedAgain,
    /// So many policies, as namewall has them.
    Namewall(usize),
    /// The same with a guard for so many interfaces of pods.
    Guarded { policies: usize, interfaces: usize },
    /// 1,000 policies, and a ClusterEgressFirewall for all pods that denies so many networks.
    DeniedNetworks(usize),
    /// The same with one that denies nodes: so many, with four addresses each.
    DeniedNodes(usize),
    /// So many rules, one after another.
    Linear(usize),
}

/// The name of its figures.
impl fmt::Display for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => f.write_str("nothing"),
            Self::Tracked => f.write_str("tracked"),
            Self::TrackedAgain => f.write_str("control"),
            Self::Namewall(policies) => write!(f, "namewall_{policies}"),
            Self::Guarded { policies, interfaces } => write!(f, "namewall_{policies}_guarded_{interfaces}"),
            Self::DeniedNetworks(networks) => write!(f, "denied_networks_{networks}"),
            Self::DeniedNodes(nodes) => write!(f, "denied_nodes_{nodes}"),
            Self::Linear(rules) => write!(f, "linear_{rules}"),
        }
    }
}

impl Filter {
    /// To be called in the node's namespace, with the interfaces of its pods. What it gives must be kept: the table's
    /// owner.
    pub(crate) fn put(self, pods: Vec<PodInterface>) -> Result<Option<SingleThreaded<Nft>>> {
        match self {
            Self::Nothing => {}
            Self::Tracked | Self::TrackedAgain => put_table("tracked", &forward(Vec::new(), Action::Accept))?,
            Self::Linear(rules) => put_table("linear", &forward(linear(rules), Action::Drop))?,
            Self::Namewall(_) | Self::Guarded { .. } | Self::DeniedNetworks(_) | Self::DeniedNodes(_) => {
                let mut nft = SingleThreaded::new(Nft::open(Settings::default())?, Scope::default());
                let (program, _) = compile(&self.snapshot());
                nft.replace(&program, namewall_policy::Instant::default()).with_context(|| format!("{self}"))?;
                if let Self::Guarded { interfaces, .. } = self {
                    let others = interfaces.saturating_sub(pods.len());
                    let guarded: Vec<_> = pods.into_iter().chain(other_interfaces(others)?).collect();
                    nft.dataplane
                        .guard(&Guard { interfaces: &guarded, own: &[], log_group: 0 })
                        .context("the guard")?;
                }
                return Ok(Some(nft));
            }
        }
        Ok(None)
    }

    fn snapshot(self) -> Snapshot {
        let policies = match self {
            Self::Namewall(policies) | Self::Guarded { policies, .. } => policies,
            _ => FEW,
        };
        let mut snapshot = Crowd { policies }.lowered().snapshot;
        match self {
            Self::DeniedNetworks(networks) => {
                // Every second one, so that none is next to another.
                let network = |at: usize| Cidr::new(Ipv4Addr::from_bits(FIRST_DENIED + 512 * at as u32).into(), 24);
                let peer = |at| Peer::Network { cidr: network(at), except: Vec::new() };
                deny(&mut snapshot, (0..networks).map(peer).collect());
            }
            Self::DeniedNodes(nodes) => {
                for at in 0..nodes as u32 {
                    let address = |kind: u32| Ipv4Addr::from_bits(FIRST_DENIED + (kind << 22) + 2 * at).into();
                    let (name, addresses) = (format!("far-{at}").into(), (0..4).map(address).collect());
                    snapshot.add_node(Node { name, labels: Labels::default(), addresses, source: None });
                }
                deny(&mut snapshot, vec![Peer::Nodes(Selector::default())]);
            }
            _ => {}
        }
        snapshot
    }
}

/// The policies beside a firewall with many destinations.
const FEW: usize = 1_000;
/// 20.0.0.0, where no pod is.
const FIRST_DENIED: u32 = 20 << 24;

/// A firewall for all pods that is asked before all others.
fn deny(snapshot: &mut Snapshot, peers: Vec<Peer>) {
    let clauses = Clauses::Match { peers: Peers::Listed(peers), ports: Ports::Any };
    Arc::make_mut(&mut snapshot.policies).push(Policy {
        id: PolicyRef { kind: PolicyKind::ClusterEgressFirewall, namespace: None, name: "denied".into() },
        placement: Placement::ClusterGate { priority: 0 },
        enforcement: Enforcement::Enforce,
        subject: Subject { pods: PodSet::all(), nodes: None },
        egress: vec![PolicyRule { name: None, action: PolicyAction::Deny, clauses, source: None }],
        ingress: Vec::new(),
        source: None,
    });
}

/// So many interfaces of pods that say nothing.
fn other_interfaces(number: usize) -> Result<Vec<PodInterface>> {
    let name = |number: usize| format!("other{number}");
    let lines: String = (0..number).map(|at| format!("link add {} type veth peer name far{at}\n", name(at))).collect();
    let mut ip = Command::new("ip").args(["-batch", "-"]).stdin(Stdio::piped()).spawn().context("ip")?;
    ip.stdin.take().context("ip reads")?.write_all(lines.as_bytes())?;
    ensure!(ip.wait()?.success(), "ip cannot make {number} interfaces");
    let interface = |at: usize| {
        let [high, low] = (at as u16).to_be_bytes();
        let hardware = Some(Hardware([0x0a, 0x58, 0, 1, high, low]));
        let addresses = vec![Ipv4Addr::new(10, 255, high, low).into()];
        let (name, index, extra) = (name(at), at as u32, Vec::new());
        PodInterface { name, index, hardware, addresses, extra, is_shared: false, hears_groups: true }
    };
    Ok((0..number).map(interface).collect())
}

/// One chain: what is established is accepted, the rules, the end.
fn forward(rules: Vec<Rule>, end: Action) -> Table {
    let hook = Some(Hook {
        point: Point::Forward,
        device: None,
        priority: 0,
        kind: HookKind::Filter,
        fallback: Fallback::Accept,
    });
    let established = Rule::new([Test::Established], Action::Accept);
    let rules = [vec![established], rules, vec![Rule::new([], end)]].concat();
    let mut table = Table::default();
    table.chains.insert("forward".to_owned(), Chain { hook, rules, ..Chain::default() });
    table
}

/// Each between two pods; the last two are of those that are measured.
fn linear(rules: usize) -> Vec<Rule> {
    let others = (0..rules.saturating_sub(2)).map(|number| {
        let (app, pod) = (2 + number / 2, number % 2);
        rule(Pair { client: crowd::address(app, pod), server: crowd::address(app, 1 - pod) }, 6)
    });
    others.chain([rule(crowd::TCP, 6), rule(crowd::UDP, 17)]).collect()
}

fn rule(pair: Pair, protocol: u8) -> Rule {
    let is = |end, address: Ipv4Addr| {
        let address = IpAddr::V4(address);
        Test::Between { end, low: address, high: address }
    };
    let tests = [
        is(End::Source, pair.client),
        is(End::Destination, pair.server),
        Test::Protocol(protocol),
        Test::Port { low: PORT, high: PORT },
    ];
    Rule::new(tests, Action::Accept)
}
