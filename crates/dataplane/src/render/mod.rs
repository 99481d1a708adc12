//! Program → table: pure, so that what the kernel will be told can be read and
//! compared before it is told.
//!
//! A packet goes through two base chains, one a direction, since `accept` ends
//! only the base chain it stands in:
//!
//! ```text
//! forward, input  egress   established? own address? ─► class of the source      ─► its egress chain
//! forward         ingress  established? own address? ─► class of the destination ─► its ingress chain
//! ```
//! The first of them also resets what belongs to a TCP connection that was cut,
//! and so does one in the output hook, which does nothing else.
//! What they allow is accepted in one place, the chain `allowed` (see `moment`).
//! Where a policy is only audited, two more follow, which tell and do not drop.
//! An address leads to the chain of its class by one look-up, in a verdict map
//! for each direction: a pod that comes or goes is a few elements, whatever its
//! policies are.

mod closed;
mod delta;
mod dns;
mod elements;
mod ids;
mod inside;
mod joined;
mod moment;
mod names;
mod node_ports;
mod own_dns;
mod remote;
mod rules;
mod services;
mod stages;
mod tunnels;

pub(crate) use delta::Delta;
pub(crate) use dns::{Answerer, DNS, may_ask};
pub use dns::{Intercept, Listener};
pub use ids::Ids;
pub(crate) use inside::{Insider, render_inside};
pub(crate) use moment::{ALLOWED, Step};
pub(crate) use remote::GATES;
pub(crate) use stages::{AUDIT, ISOLATED};
pub(crate) use tunnels::REFUSE as TUNNELS_REFUSE;

use crate::leases::LeaseGroups;
use crate::nft::rule::{Action as Do, End, Rule, TCP, Test, Walk};
use crate::nft::set::{self, Field, Holds, SetSpec, Version};
use crate::nft::table::{Chain, Fallback, Hook, HookKind, Point, Table};
use crate::tunnels::Tunnels;
use elements::Pods;
use ids::{Group, Groups, Numbered, pods};
use joined::{JoinableTiers, Joins};
use namewall_policy::Program;
use namewall_policy::addr::Cidr;
use namewall_policy::model::{Direction, Enforcement, NodeId, PolicyId};
use namewall_policy::program::{ClassId, Plan, PortSpecId};
use remote::RemoteGates;
use rules::{Match, RuleWriter, Run, lease_group, runs};
use rustc_hash::{FxHashMap, FxHashSet};
use stages::{Mode, Stages};

/// Accepts errors about connections that were let through (S1), and not those that a helper expects.
const RELATED: &str = "related-errors";
const ICMP: [u8; 2] = [1, 58];
/// Resets what belongs to a TCP connection that was cut (S3.4).
const CUT: &str = "cut";
pub(crate) const RESET: &str = "cut-reset";
/// What `counts` calls its packets.
const CUT_PACKET: &str = "belongs to a connection that was cut";
const CUT_OUTPUT: &str = "cut-output";
/// Resets what belongs to a translated connection that was cut, before it is translated anew.
pub(crate) const CUT_EARLY: &str = "cut-prerouting";
/// Before other tables translate destinations, and before questions to DNS servers are taken.
const BEFORE_TRANSLATION: i32 = -110;
/// Accepts what a pod sends to itself.
const OWN_ADDRESS: &str = "own-address";
/// A rule tells of what it denies no more often than this a second.
pub(crate) const LOG_RATE: u64 = 10;
pub(crate) const LOG_BURST: u32 = 20;

/// What of a Program a table is for.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Scope {
    /// Only pods of this node, and those whose node nobody knows, are judged; without one, every pod is.
    pub node: Option<NodeId>,
    /// The NFLOG group denials are told to.
    pub log_group: u16,
    /// Where pods' DNS is taken to; without it, nowhere.
    pub dns: Option<Intercept>,
    /// Blocks that only pods of this node get addresses from: who has one and is not known yet is closed, so that
    /// no pod is open before its policies are in place.
    pub closed: Vec<Cidr>,
    /// The tunnel endpoints of this node, and so of the others: no pod may send there.
    pub tunnels: Tunnels,
    /// Sources of pods that are not their own addresses: what the settings allow them, and what the node routes to
    /// pods that nobody can tell apart.
    pub extra: Vec<Cidr>,
}

/// A table and the numbers used in it.
#[derive(Clone, Debug, Default)]
pub struct Rendered {
    pub table: Table,
    pub ids: Ids,
    /// Which lease groups each pattern opens.
    pub lease_groups: LeaseGroups,
    pub(crate) numbers: Numbers,
}

impl Rendered {
    /// The table is of the next generation now.
    pub(crate) fn advance(&mut self, step: Option<Step>) {
        if let Some(step) = step {
            self.ids.generation = step.generation;
            step.note(&mut self.table);
        }
    }
}

/// What is needed to number one pod more.
#[derive(Clone, Debug, Default)]
pub(crate) struct Numbers {
    /// Where addresses of each class lead, for the classes of pods that are judged here.
    pub(crate) classes: FxHashMap<ClassId, Vec<Lead>>,
    pub(crate) groups: Vec<Group>,
    pub(crate) named: FxHashMap<PortSpecId, u32>,
    /// The versions of IP that pods speak, and rules ask for.
    pub(crate) spoken: Vec<Version>,
    pub(crate) remote: RemoteGates,
    pub(crate) joins: Joins,
    /// Whether the table has a set of the pods that are judged here.
    pub(crate) knows_local: bool,
}

/// An address leads to this chain by these maps.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Lead {
    pub(crate) maps: set::Twins,
    pub(crate) chain: String,
}

/// The table for a Program; `before` are the numbers in use now.
pub fn render(program: &Program, scope: &Scope, before: &Ids) -> Rendered {
    let render = Render { program, scope, names: policy_names(program) };
    let local = pods(program).filter(|(_, member)| scope.judges(member)).map(|(_, member)| member.class);
    let mut classes: FxHashMap<ClassId, Vec<Lead>> = local.map(|class| (class, Vec::new())).collect();
    let remote = render.remote_gates();
    let used = render.used(&classes, &remote);
    let (groups, lease_groups) = render.groups(&used, before);
    let named = render.named_ports(&used);
    let mut table = Table::default();
    render.declare_sets(&mut table);
    render.declare_joined(&mut table);
    render.dns_sets(&mut table);
    if scope.dns.is_some() || !scope.tunnels.is_empty() {
        render.node_sets(&mut table);
    }
    render.dns_chains(&mut table);
    let spoken: Vec<Version> =
        Version::BOTH.into_iter().filter(|version| pods(program).any(|(at, _)| Version::of(at) == *version)).collect();
    let writer = RuleWriter { program, groups: &groups, named: &named, spoken: &spoken };
    let mut joinable = JoinableTiers::new();
    for &mode in render.modes(&classes, &remote) {
        render.base_chains(&mut table, mode);
        let mut stages =
            Stages { joinable: &mut joinable, render: &render, writer: &writer, table: &mut table, mode, then: None };
        stages.class_chains(&mut classes);
        stages.remote_chains(&remote);
        render.service_gates(&mut table, &writer, mode);
        render.dns_policy(&mut table, mode);
    }
    render.tunnel_chains(&mut table);
    let joins = render.join(&mut table, &writer, &joinable);
    render.end_base_chains(&mut table, before.generation);
    if before.resets_early {
        table.chains.insert(CUT_EARLY.to_owned(), early_cut_chain());
    }
    for (name, chain) in &mut table.chains {
        chain.comment = chain.comment.take().or_else(|| names::purpose(name).map(str::to_owned));
    }
    render.fill_networks(&mut table);
    render.fill_closed(&mut table);
    let resets_early = before.resets_early;
    let ids = Ids { groups: groups.by_rule, generation: before.generation, resets_early, ..Ids::default() };
    let knows_local = render.knows_local();
    let numbers = Numbers { classes, groups: groups.groups, named, spoken, remote, joins, knows_local };
    Pods { program, scope, numbers: &numbers, groups: &numbers.groups }.fill(&mut table);
    Rendered { table, ids, lease_groups, numbers }
}

pub(crate) struct Render<'a> {
    program: &'a Program,
    scope: &'a Scope,
    /// A name for each policy that no other has.
    names: Vec<String>,
}

fn policy_names(program: &Program) -> Vec<String> {
    let mut seen: FxHashMap<String, u32> = FxHashMap::default();
    let mut unique = |name: String| {
        let count = seen.entry(name.clone()).or_insert(0);
        *count += 1;
        if *count == 1 { name } else { format!("{name}.{count}") }
    };
    program.policies.iter().map(|policy| unique(names::of_policy(&policy.id))).collect()
}

/// What passes of packets that are related to a connection: ICMP errors, and the resets that the kernel sends itself in
/// place of a packet of a connection that was cut. A reset that a process makes is invalid to it. For a node's own end
/// the reset comes in by the loopback, from the pod's address.
fn related_rules() -> Vec<Rule> {
    let tests = ICMP.map(Test::Protocol).into_iter().chain([Test::IsReset]);
    tests.map(|test| Rule::new([test], Do::Accept)).collect()
}

/// A TCP connection that was cut is unknown to the kernel, which takes the next packet of it, from either end, for the
/// first of a new one. A real beginning, a bare SYN, costs no look-up here. UDP has no beginning that could be told: the
/// next packet of a flow that was cut is judged like any other.
fn cut_rule() -> Rule {
    Rule::new([Test::MidStream], Do::Jump(CUT.to_owned()))
}

/// What every connection of a pod passes: where, after how many others, and whose class is asked for.
const BASE_CHAINS: [(&str, Point, i32, End); 3] = [
    ("egress-forward", Point::Forward, 0, End::Source),
    ("egress-input", Point::Input, 0, End::Source),
    ("ingress-forward", Point::Forward, 1, End::Destination),
];

const DIRECTIONS: [Direction; 2] = [Direction::Egress, Direction::Ingress];

impl Render<'_> {
    fn policy_name(&self, policy: PolicyId) -> &str {
        &self.names[policy.index()]
    }

    fn chain_of(&self, policy: PolicyId, direction: Direction) -> String {
        format!("{}/{direction}", self.policy_name(policy))
    }

    /// The runs of the policies that judge a pod here, or stand before a Service.
    fn used(&self, classes: &FxHashMap<ClassId, Vec<Lead>>, remote: &RemoteGates) -> Vec<Run> {
        let mut used = self.judging(classes.keys());
        used.extend(remote.policies());
        let gates = self.program.service_gates.values().flatten();
        used.extend(gates.map(|gate| (gate.policy, Direction::Egress)));
        self.runs_of(used)
    }

    /// The policies that judge the pods of these classes.
    fn judging<'c>(&self, classes: impl Iterator<Item = &'c ClassId>) -> FxHashSet<(PolicyId, Direction)> {
        let mut used: FxHashSet<(PolicyId, Direction)> = FxHashSet::default();
        let mut add = |plan: &Plan| {
            let gates = plan.cluster_gate.iter().chain(&plan.namespace_gate);
            used.extend(gates.map(|policy| (*policy, Direction::Egress)));
            for direction in DIRECTIONS {
                let tiers = plan.tiers(direction);
                let last = if tiers.isolated { &tiers.network } else { &tiers.baseline };
                used.extend(tiers.admin.iter().chain(last).map(|policy| (*policy, direction)));
            }
        };
        for class in classes {
            let class = self.program.class(*class);
            class.enforced.each().for_each(&mut add);
            class.audited.iter().flat_map(Plan::each).for_each(&mut add);
        }
        used
    }

    fn runs_of(&self, used: FxHashSet<(PolicyId, Direction)>) -> Vec<Run> {
        let mut used: Vec<(PolicyId, Direction)> = used.into_iter().collect();
        used.sort_unstable();
        used.into_iter().flat_map(|(policy, direction)| runs(self.program, policy, direction)).collect()
    }

    fn groups(&self, used: &[Run], before: &Ids) -> (Numbered, LeaseGroups) {
        let mut groups = Groups::default();
        let mut leases = LeaseGroups::default();
        for run in used {
            let Match::Clauses { peers, .. } = &run.matcher else { continue };
            if peers.anyone {
                continue;
            }
            if !peers.roles.is_empty() {
                groups.want(&peers.roles, run.key(self.program), run.ids.clone());
            }
            if peers.domains.is_empty() {
                continue;
            }
            let group = lease_group(self.program, &peers.domains);
            for &pattern in &peers.domains {
                let known = leases.entry(self.program.patterns.get(pattern).clone()).or_default();
                if !known.contains(&group) {
                    known.push(group);
                }
            }
        }
        (groups.number(before), leases)
    }

    /// A number for each port list with names in it, made of the names.
    fn named_ports(&self, used: &[Run]) -> FxHashMap<PortSpecId, u32> {
        let mut numbers: FxHashMap<PortSpecId, u32> = FxHashMap::default();
        let mut taken: FxHashMap<u32, Vec<String>> = FxHashMap::default();
        for run in used {
            let Match::Clauses { ports, .. } = run.matcher else { continue };
            let spec = self.program.port_spec(ports);
            if spec.named.is_empty() || numbers.contains_key(&ports) {
                continue;
            }
            let text = |(protocol, name): &_| format!("{protocol:?} {name}");
            let mut texts: Vec<String> = spec.named.iter().map(text).collect();
            texts.sort_unstable();
            texts.extend(spec.counts_doubtful.then(|| "doubtful".to_owned()));
            let mut number = names::digest(&texts) as u32;
            while taken.get(&number).is_some_and(|other| *other != texts) {
                number = number.wrapping_add(1);
            }
            taken.insert(number, texts);
            numbers.insert(ports, number);
        }
        numbers
    }

    fn declare_sets(&self, table: &mut Table) {
        use Field::{Number, Port, Protocol};
        for version in Version::BOTH {
            let address = Field::Address(version);
            let mut declare = |twins: set::Twins, key: &[Field]| {
                table.set(SetSpec::new(twins[version], key, Holds::Keys));
            };
            declare(set::PEERS, &[Number, address]);
            declare(set::NAMED, &[Number, address, Protocol, Port]);
            declare(set::OWN, &[address, address]);
            declare(set::PODS, &[address]);
            if self.knows_local() {
                declare(set::LOCAL, &[address]);
            }
            table.set(SetSpec::new(set::LEASE[version], &[Number, Number, address], Holds::Keys).timeout());
            table.set(cut_set(version));
            table.set(SetSpec::new(set::POD_NETWORK[version], &[address], Holds::Keys).interval());
        }
    }

    /// Whether any policy is only audited here, so that a second, shadow walk is worth its price (S11).
    fn modes(&self, classes: &FxHashMap<ClassId, Vec<Lead>>, remote: &RemoteGates) -> &'static [Mode] {
        let is_audited = |policy: PolicyId| self.program.policy(policy).enforcement == Enforcement::Audit;
        let at_services = self.program.service_gates.values().flatten().any(|gate| is_audited(gate.policy));
        let audited = at_services
            || remote.are_audited()
            || classes.keys().any(|class| self.program.class(*class).audited.is_some());
        if audited { &[Mode::Enforce, Mode::Audit] } else { &[Mode::Enforce] }
    }

    fn base_chains(&self, table: &mut Table, mode: Mode) {
        let (egress, ingress) = mode.walks();
        for (name, point, later, end) in BASE_CHAINS {
            let chain = table.chains.entry(format!("{}{name}", mode.prefix())).or_default();
            let (priority, kind) = (mode.priority() + later, HookKind::Filter);
            chain.hook = Some(Hook { point, device: None, priority, kind, fallback: mode.fallback() });
            let (walk, about) = match end {
                End::Source => (egress, "egress policies of the source"),
                End::Destination => (ingress, "ingress policies of the destination"),
            };
            let dispatch = |version| Rule::new([], Do::Dispatch { end, version, walk }).about(about);
            chain.rules = vec![
                Rule::new([Test::Established], Do::Accept),
                Rule::new([Test::Related], Do::Jump(RELATED.to_owned())),
            ];
            // Every packet meets one such chain, and the first it meets.
            if (mode, end) == (Mode::Enforce, End::Source) {
                chain.rules.push(cut_rule());
            }
            chain.rules.extend([
                // Only a Service sends a pod back to itself by way of its node.
                Rule::new([Test::Translated], Do::Jump(OWN_ADDRESS.to_owned())),
                dispatch(Version::V4),
                Rule::new([Test::NeighbourDiscovery], Do::Accept),
                dispatch(Version::V6),
            ]);
            if mode == Mode::Enforce {
                chain.rules.extend(self.closed_rules(end));
            }
        }
        self.closed_chains(table);
        let own = Version::BOTH.map(|version| Rule::new([Test::OwnAddress(version)], Do::Accept));
        table.chains.entry(OWN_ADDRESS.to_owned()).or_default().rules = own.to_vec();
        table.chains.entry(RELATED.to_owned()).or_default().rules = related_rules();
        // What a node says to its own pod passes no other hook. It may say anything, but not go on with what was cut.
        let output = table.chains.entry(CUT_OUTPUT.to_owned()).or_default();
        let (point, priority, kind) = (Point::Output, Mode::Enforce.priority(), HookKind::Filter);
        output.hook = Some(Hook { point, device: None, priority, kind, fallback: Fallback::Accept });
        output.rules = vec![Rule::new([Test::Established], Do::Accept), cut_rule()];
        cut_chains(table);
    }
}

/// The chains that `cut_rule` leads to.
fn cut_chains(table: &mut Table) {
    // A reset opens nothing, and the resets that we send pass the output hook themselves.
    let is_reset = Rule::new([Test::IsReset], Do::Return);
    let was_cut = Version::BOTH.map(|version| Rule {
        tests: vec![Test::WasCut(version)],
        actions: vec![Do::Count, Do::Goto(RESET.to_owned())],
        comment: Some(CUT_PACKET.to_owned()),
    });
    table.chains.entry(CUT.to_owned()).or_default().rules = std::iter::once(is_reset).chain(was_cut).collect();
    // A chain of its own: nft shows a reset only after a test of the protocol, and that changes how it shows ports.
    let reset = Rule::new([Test::Protocol(TCP)], Do::Reset);
    table.chains.entry(RESET.to_owned()).or_default().rules = vec![reset, Rule::new([], Do::Drop)];
}

/// A reset must come from the address that the client means, which is the Service's. In the forward hook the packet has
/// the backend's already, and for a packet that came by a bridge the kernel sends the reset without translating it back.
/// Only packets without a known connection meet a chain of this kind.
pub(crate) fn early_cut_chain() -> Chain {
    let (point, priority) = (Point::Prerouting, BEFORE_TRANSLATION);
    let hook = Hook { point, device: None, priority, kind: HookKind::Nat, fallback: Fallback::Accept };
    let comment = names::purpose(CUT_EARLY).map(str::to_owned);
    Chain { hook: Some(hook), rules: vec![cut_rule()], comment }
}

/// The packets of connections that were cut.
fn cut_set(version: Version) -> SetSpec {
    use Field::{Port, Protocol};
    let address = Field::Address(version);
    SetSpec::new(set::CUT[version], &[address, address, Protocol, Port, Port], Holds::Keys).timeout()
}

impl Stages<'_> {
    /// The chains of classes, and where the addresses of each class lead.
    fn class_chains(&mut self, classes: &mut FxHashMap<ClassId, Vec<Lead>>) {
        let (egress, ingress) = self.mode.walks();
        for walk in [egress, ingress] {
            declare_maps(self.table, walk);
        }
        for (class, leads) in classes {
            let class = self.render.program.class(*class);
            let plan = match self.mode {
                Mode::Enforce => &class.enforced,
                Mode::Audit => match &class.audited {
                    Some(plan) => plan,
                    None => continue,
                },
            };
            for (direction, walk) in [(Direction::Egress, egress), (Direction::Ingress, ingress)] {
                let chain = self.plan(plan, direction);
                leads.extend(chain.map(|chain| Lead { maps: walk.maps(), chain }));
            }
        }
    }
}

/// The maps by which addresses lead to the chains of a walk.
fn declare_maps(table: &mut Table, walk: Walk) {
    for version in Version::BOTH {
        table.set(SetSpec::new(walk.maps()[version], &[Field::Address(version)], Holds::Verdicts));
    }
}

#[cfg(test)]
mod tests;
