//! A policy's rules as kernel rules. A rule of a policy has peers of several
//! sorts and ports of several protocols, any of which will do; a kernel rule
//! is one conjunction. So one becomes several, all with the same end.

use super::ids::Numbered;
use super::names;
use super::stages::Stages;
use crate::nft::rule::{Action as Do, End, Rule, Test};
use crate::nft::set::{Element, Field, Holds, Key, SetSpec, Version};
use crate::nft::table::Table;
use namewall_policy::Program;
use namewall_policy::addr::{AddrRange, AddrSet, next_address};
use namewall_policy::bits::BitSet;
use namewall_policy::domain::{DomainPattern, Effect, PatternId, RulePattern};
use namewall_policy::model::{Action, Direction, PolicyId};
use namewall_policy::port::{Protocol, Traffic, all_ports};
use namewall_policy::program::{Matcher, PortSpec, PortSpecId, RuleId};
use rustc_hash::FxHashMap;
use std::net::IpAddr;
use std::ops::{Range, RangeInclusive};

/// Up to here ranges are compared one by one; more are a set.
const FEW_RANGES: usize = 4;
const FEW_PORTS: usize = 2;
/// So many rules in a row that differ only in their peers become one. Fewer
/// stay apart, so that each is counted by itself.
const MANY_RULES: usize = 8;

/// Neighbouring rules of one policy that can be judged as one.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    pub(crate) policy: PolicyId,
    pub(crate) direction: Direction,
    pub(crate) indices: RangeInclusive<u32>,
    /// The ids of its rules.
    pub(crate) ids: Range<u32>,
    /// How many parts of the policy's rule come before it, where the rule is compiled to several.
    pub(crate) part: u32,
    pub(crate) action: Action,
    pub(crate) matcher: Match,
}

#[derive(Clone, Debug)]
pub(crate) enum Match {
    Everything,
    Clauses { peers: Peers, ports: PortSpecId },
}

/// Whom a run speaks of.
#[derive(Clone, Default, Debug)]
pub(crate) struct Peers {
    pub(crate) anyone: bool,
    pub(crate) roles: BitSet,
    pub(crate) addresses: AddrSet,
    pub(crate) domains: Vec<PatternId>,
}

impl Run {
    /// `AdminNetworkPolicy/dns egress rule 3`, shortened if it is too long for a comment.
    pub(crate) fn label(&self, program: &Program) -> String {
        names::shorten(&self.text(program), names::LABEL)
    }

    fn text(&self, program: &Program) -> String {
        let policy = names::of_policy(&program.policy(self.policy).id);
        let (first, last) = (self.indices.start(), self.indices.end());
        let direction = self.direction;
        match first == last {
            true => format!("{policy} {direction} rule {first}"),
            false => format!("{policy} {direction} rules {first}-{last}"),
        }
    }
}

impl Run {
    /// What its group is known by, and its rules in the kernel, by which numbers are found again. Parts of one rule
    /// that speak of pods have different groups.
    pub(crate) fn key(&self, program: &Program) -> String {
        match &self.matcher {
            Match::Clauses { peers, .. } if self.part > 0 && !peers.roles.is_empty() => {
                names::shorten(&format!("{} part {}", self.text(program), self.part), names::LABEL)
            }
            _ => self.label(program),
        }
    }
}

/// A policy's rules, those alike and many in a row taken together.
pub(crate) fn runs(program: &Program, policy: PolicyId, direction: Direction) -> Vec<Run> {
    let rules: Vec<RuleId> = program.policy(policy).rules(direction).collect();
    let alike = |a: &RuleId, b: &RuleId| {
        let (a, b) = (program.rule(*a), program.rule(*b));
        match (a.matcher, b.matcher) {
            (Matcher::Clauses { ports, .. }, Matcher::Clauses { ports: others, .. }) => {
                a.action == b.action && ports == others
            }
            _ => false,
        }
    };
    let mut runs = Vec::new();
    for row in rules.chunk_by(alike) {
        if row.len() >= MANY_RULES {
            runs.extend(run_of(program, row));
        } else {
            runs.extend(row.iter().filter_map(|rule| run_of(program, &[*rule])));
        }
    }
    runs
}

fn run_of(program: &Program, row: &[RuleId]) -> Option<Run> {
    let (first, last) = (program.rule(*row.first()?), program.rule(*row.last()?));
    let matcher = match first.matcher {
        Matcher::Nothing => return None,
        // A list of no ports; nobody needs to know whom it does not speak of.
        Matcher::Clauses { ports, .. } if *program.port_spec(ports) == PortSpec::default() => return None,
        Matcher::Everything => Match::Everything,
        Matcher::Clauses { ports, .. } => {
            let mut all = Peers::default();
            for &rule in row {
                if let Matcher::Clauses { peers, .. } = program.rule(rule).matcher {
                    let set = program.peer_set(peers);
                    all.anyone |= set.anyone;
                    all.roles.union_with(&set.roles);
                    all.addresses =
                        if row.len() == 1 { set.addresses.clone() } else { all.addresses.union(&set.addresses) };
                    all.domains.extend(&set.domains);
                }
            }
            all.domains.sort_unstable();
            all.domains.dedup();
            Match::Clauses { peers: all, ports }
        }
    };
    Some(Run {
        policy: first.policy,
        direction: first.direction,
        indices: first.index..=last.index,
        ids: row.first()?.0..row.last()?.0 + 1,
        part: part_of(program, *row.first()?),
        action: first.action,
        matcher,
    })
}

fn part_of(program: &Program, id: RuleId) -> u32 {
    let before = (0..id.0).rev().map(RuleId).take_while(|earlier| program.is_part_of_same(*earlier, id));
    before.count() as u32
}

/// Writes runs as kernel rules.
pub(crate) struct RuleWriter<'a> {
    pub(crate) program: &'a Program,
    pub(crate) groups: &'a Numbered,
    /// The number of every port list that has names in it.
    pub(crate) named: &'a FxHashMap<PortSpecId, u32>,
    /// The versions of IP that pods speak: nobody asks for pods of another.
    pub(crate) spoken: &'a [Version],
}

impl Stages<'_> {
    /// The kernel rules of a run, which all end the same way.
    pub(super) fn write(&mut self, run: &Run, end: &Do) -> Vec<Rule> {
        let comment = format!("{}{}", self.mode.comment(), run.key(self.writer.program));
        // What denies is counted where it is told of.
        let actions = match end {
            Do::Goto(_) if *end != self.allowance() => vec![end.clone()],
            _ => vec![Do::Count, end.clone()],
        };
        let rule = |tests| Rule { tests, actions: actions.clone(), comment: Some(comment.clone()) };
        self.writer.tests(self.table, run).into_iter().map(rule).collect()
    }
}

impl RuleWriter<'_> {
    /// The tests of a run, one list for each kernel rule; sets they need are added to the table.
    pub(super) fn tests(&self, table: &mut Table, run: &Run) -> Vec<Vec<Test>> {
        match &run.matcher {
            Match::Everything => vec![Vec::new()],
            Match::Clauses { peers, ports } => {
                let ports = self.ports(table, *ports);
                let peers = self.peers(table, peers, run);
                let both = |port: &Vec<Test>, peer: &Vec<Test>| [port.as_slice(), peer].concat();
                let pairs = ports.iter().flat_map(|port| peers.iter().map(move |peer| both(port, peer)));
                pairs.filter(|tests| is_possible(tests)).collect()
            }
        }
    }

    fn peers(&self, table: &mut Table, peers: &Peers, run: &Run) -> Vec<Vec<Test>> {
        if peers.anyone {
            return vec![Vec::new()];
        }
        let end = match run.direction {
            Direction::Egress => End::Destination,
            Direction::Ingress => End::Source,
        };
        let mut ways = Vec::new();
        if !peers.roles.is_empty()
            && let Some(&group) = self.groups.by_rule.get(&run.key(self.program))
        {
            ways.extend(self.spoken.iter().map(|&version| vec![Test::Peer { end, version, group }]));
        }
        ways.extend(address_ways(table, &peers.addresses, end));
        if !peers.domains.is_empty() && run.direction == Direction::Egress {
            let group = lease_group(self.program, &peers.domains);
            ways.extend(Version::BOTH.map(|version| vec![Test::Leased { version, group }]));
        }
        ways
    }

    pub(super) fn ports(&self, table: &mut Table, id: PortSpecId) -> Vec<Vec<Test>> {
        let traffic = &self.program.port_spec(id).numbered;
        let mut ways = numbered_ways(table, traffic);
        if !traffic.is_all()
            && let Some(&group) = self.named.get(&id)
        {
            ways.extend(self.spoken.iter().map(|&version| vec![Test::NamedPort { version, group }]));
        }
        ways
    }
}

/// A packet is of one version.
pub(super) fn is_possible(tests: &[Test]) -> bool {
    let version = |test: &Test| match test {
        Test::Peer { version, .. }
        | Test::Joined { version, .. }
        | Test::Leased { version, .. }
        | Test::NamedPort { version, .. }
        | Test::Within { version, .. } => Some(*version),
        Test::Between { low, .. } => Some(Version::of(*low)),
        _ => None,
    };
    let mut versions = tests.iter().filter_map(version);
    let first = versions.next();
    versions.all(|other| Some(other) == first)
}

/// A list of patterns is a group of leases; its number says exactly which list, whoever computes it.
pub(crate) fn lease_group(program: &Program, domains: &[PatternId]) -> u64 {
    let text = |&id: &PatternId| {
        let RulePattern { names, effect } = program.patterns.get(id);
        let text = match names {
            DomainPattern::Exact(name) => format!("exactly {name}"),
            DomainPattern::Subdomains(name) => format!("below {name}"),
            DomainPattern::OneLabel(name) => format!("one label below {name}"),
        };
        match effect {
            Effect::Allow => text,
            Effect::Deny => format!("denied: {text}"),
        }
    };
    let mut texts: Vec<String> = domains.iter().map(text).collect();
    texts.sort_unstable();
    names::digest(texts)
}

pub(crate) fn address_ways(table: &mut Table, addresses: &AddrSet, end: End) -> Vec<Vec<Test>> {
    let mut ways = Vec::new();
    for version in Version::BOTH {
        let ranges: Vec<AddrRange> = addresses.ranges().filter(|range| Version::of(range.first) == version).collect();
        if ranges.len() <= FEW_RANGES {
            ways.extend(ranges.iter().map(|range| match is_everything(range) {
                true => vec![Test::Version(version)],
                false => vec![Test::Between { end, low: range.first, high: range.last }],
            }));
        } else {
            ways.push(vec![Test::Within { end, version, set: network_set(table, version, &ranges) }]);
        }
    }
    ways
}

fn is_everything(range: &AddrRange) -> bool {
    range.first.is_unspecified() && next_address(range.last).is_none()
}

fn network_set(table: &mut Table, version: Version, ranges: &[AddrRange]) -> String {
    let kind = match version {
        Version::V4 => "net4",
        Version::V6 => "net6",
    };
    let name = names::by_content(kind, ranges.iter().map(|range| range.to_string()));
    fill_networks(table, SetSpec::new(&name, &[Field::Address(version)], Holds::Keys), ranges);
    name
}

/// An interval is its first address and the first after it.
pub(crate) fn fill_networks(table: &mut Table, spec: SetSpec, ranges: &[AddrRange]) {
    let octets = |address: IpAddr| Key::default().address(address);
    let set = table.set(spec.interval());
    for range in ranges {
        set.insert(Element::key(octets(range.first)));
        if let Some(after) = next_address(range.last) {
            set.insert(Element { ends_interval: true, ..Element::key(octets(after)) });
        }
    }
}

pub(crate) fn protocol_number(protocol: Protocol) -> u8 {
    match protocol {
        Protocol::Tcp => 6,
        Protocol::Udp => 17,
        Protocol::Sctp => 132,
        Protocol::Icmp => 1,
        Protocol::Other(number) => number,
    }
}

pub(super) fn numbered_ways(table: &mut Table, traffic: &Traffic) -> Vec<Vec<Test>> {
    if traffic.is_all() {
        return vec![Vec::new()];
    }
    let mut ways = Vec::new();
    let mut ranges: Vec<(u8, u16, u16)> = Vec::new();
    for protocol in Protocol::WITH_PORTS {
        let (Some(ports), number) = (traffic.ports(protocol), protocol_number(protocol)) else { continue };
        if *ports == all_ports() {
            ways.push(vec![Test::Protocol(number)]);
        } else {
            ranges.extend(ports.ranges().iter().map(|&(low, high)| (number, low, high)));
        }
    }
    if ranges.len() <= FEW_PORTS {
        let way = |&(number, low, high): &_| vec![Test::Protocol(number), Test::Port { low, high }];
        ways.extend(ranges.iter().map(way));
    } else {
        ways.push(vec![Test::PortsIn(port_set(table, &ranges))]);
    }
    if traffic.portless {
        let no_ports = Protocol::WITH_PORTS.map(|protocol| Test::NotProtocol(protocol_number(protocol)));
        ways.push(no_ports.to_vec());
    }
    ways
}

fn port_set(table: &mut Table, ranges: &[(u8, u16, u16)]) -> String {
    let texts = ranges.iter().map(|(protocol, low, high)| format!("{protocol} {low}-{high}"));
    let name = names::by_content("ports", texts);
    let mut spec = SetSpec::new(&name, &[Field::Protocol, Field::Port], Holds::Keys);
    spec.interval = ranges.iter().any(|(_, low, high)| low != high);
    let interval = spec.interval;
    let set = table.set(spec);
    let key = |protocol, port| Key::default().protocol(protocol).port(port);
    for &(protocol, low, high) in ranges {
        let end = interval.then(|| Box::new(key(protocol, high)));
        set.insert(Element { key_end: end, ..Element::key(key(protocol, low)) });
    }
    name
}
