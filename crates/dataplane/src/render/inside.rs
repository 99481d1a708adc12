//! The table inside a pod's network namespace: what goes through the pod's
//! interfaces other than its own one in the cluster's network (S1.9, S7.4). The
//! node's hooks do not see that traffic.
//!
//! ```text
//! output  lo or own interface? accept  established? accept  cut? reset  ─► egress chain of the pod
//! input   lo or own interface? accept  established? accept  cut? reset  source of a pod? drop  ─► ingress chain of the pod
//! forward out by the own interface? accept: the node judges it  established? accept  cut? reset  ─► egress chain of the pod
//! ```
//! The chains are those of the pod's Class, as the node's table has them. Which
//! pod it is need not be found by an address: the namespace tells it. Until it is
//! known which pod that is, all of it is dropped.

use super::elements::Pods;
use super::joined::JoinableTiers;
use super::names::{COMMENT, shorten};
use super::rules::RuleWriter;
use super::stages::{Mode, Stages, described};
use super::{Ids, ids::pods, moment};
use super::{
    Lead, Numbers, RELATED, Render, Rendered, Scope, cut_chains, cut_rule, cut_set, policy_names, related_rules,
};
use crate::nft::rule::{Action as Do, End, FrameTest, ICMPV6, PacketInterface, Rule, Test};
use crate::nft::set::{self, Field, Holds, SetSpec, Version};
use crate::nft::table::{Chain, Fallback, Hook, HookKind, Point, Table};
use namewall_policy::Program;
use namewall_policy::model::Direction;
use namewall_policy::program::ClassId;
use rustc_hash::FxHashMap;
use std::net::{IpAddr, Ipv6Addr};

const OUTPUT: &str = "second-output";
const INPUT: &str = "second-input";
const FORWARD: &str = "second-forward";
const CLOSED: &str = "second-closed";
const FOREIGN: &str = "second-foreign";
/// The loopback interface is the first of every network namespace.
const LOOPBACK: u32 = 1;
/// Groups of one link.
const LINK_GROUPS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0);
/// Queries, reports and their end, of multicast listener discovery, version 1; and reports of version 2.
const LISTENER_MESSAGES: [(u8, u8); 2] = [(130, 132), (143, 143)];

/// Whom the table is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Insider {
    /// The index of the pod's own interface, which the node's hooks see. None if there is none: then every interface but
    /// the loopback is a second one.
    pub(crate) own: Option<u32>,
    /// None closes all second interfaces.
    pub(crate) class: Option<ClassId>,
}

/// The table for a pod; `before` are the numbers in use now.
pub(crate) fn render_inside(program: &Program, scope: &Scope, subject: Insider, before: &Ids) -> Rendered {
    let mut rendered = match subject.class {
        Some(class) => judged(program, scope, class, before),
        None => Rendered { ids: Ids { generation: before.generation, ..Ids::default() }, ..Rendered::default() },
    };
    let table = &mut rendered.table;
    table
        .chains
        .insert(RELATED.to_owned(), described(related_rules(), "ICMP errors about connections, and our own resets"));
    for (name, about) in
        [(CLOSED, "closed: the pod is not known yet"), (FOREIGN, "a pod's address does not come from a second network")]
    {
        let drop = Rule { tests: Vec::new(), actions: vec![Do::Count, Do::Drop], comment: None };
        table.chains.insert(name.to_owned(), described(vec![drop], about));
    }
    if subject.class.is_some() {
        cut_chains(table);
        for version in Version::BOTH {
            table.set(cut_set(version));
        }
    }
    moment::insert_allowed(table, before.generation);
    let to_tunnels = match subject.class {
        Some(_) => Render { program, scope, names: Vec::new() }.tunnel_chains_inside(table),
        None => Vec::new(),
    };
    let chains = [Direction::Egress, Direction::Ingress].map(|direction| rendered.lead(direction));
    let [egress, ingress] = chains.map(|chain| match subject.class {
        Some(_) => chain.map_or_else(|| Mode::Enforce.allowance(), Do::Goto),
        None => Do::Goto(CLOSED.to_owned()),
    });
    let table = &mut rendered.table;
    // What the pod forwards is judged like what it sends.
    for (name, point) in [(OUTPUT, Point::Output), (FORWARD, Point::Forward)] {
        let mut rules = usual(PacketInterface::Output, subject);
        rules.extend(to_tunnels.iter().cloned());
        rules.push(Rule::new([], egress.clone()));
        base(table, name, point, rules);
    }
    let mut input = usual(PacketInterface::Input, subject);
    if subject.class.is_some() {
        for version in Version::BOTH {
            for set in [set::PODS[version], set::POD_NETWORK[version]] {
                let within = Test::Within { end: End::Source, version, set: set.to_owned() };
                input.push(Rule::new([within], Do::Goto(FOREIGN.to_owned())));
            }
        }
    }
    input.push(Rule::new([], ingress));
    base(table, INPUT, Point::Input, input);
    rendered
}

impl Rendered {
    /// The chain of the one class that a table inside a namespace is for.
    fn lead(&self, direction: Direction) -> Option<String> {
        let maps = match direction {
            Direction::Egress => set::EGRESS,
            Direction::Ingress => set::INGRESS,
        };
        let mut leads = self.numbers.classes.values().flatten();
        leads.find(|lead| lead.maps == maps).map(|lead| lead.chain.clone())
    }
}

/// The chains of a class, and the sets that they ask.
fn judged(program: &Program, scope: &Scope, class: ClassId, before: &Ids) -> Rendered {
    let render = Render { program, scope, names: policy_names(program) };
    let used = render.runs_of(render.judging([class].iter()));
    let (groups, lease_groups) = render.groups(&used, before);
    let named = render.named_ports(&used);
    let spoken: Vec<Version> =
        Version::BOTH.into_iter().filter(|version| pods(program).any(|(at, _)| Version::of(at) == *version)).collect();
    let mut table = Table::default();
    for version in Version::BOTH {
        use Field::{Number, Port, Protocol};
        let address = Field::Address(version);
        table.set(SetSpec::new(set::PEERS[version], &[Number, address], Holds::Keys));
        table.set(SetSpec::new(set::NAMED[version], &[Number, address, Protocol, Port], Holds::Keys));
        table.set(SetSpec::new(set::PODS[version], &[address], Holds::Keys));
        table.set(SetSpec::new(set::LEASE[version], &[Number, Number, address], Holds::Keys).timeout());
        table.set(SetSpec::new(set::POD_NETWORK[version], &[address], Holds::Keys).interval());
    }
    let writer = RuleWriter { program, groups: &groups, named: &named, spoken: &spoken };
    // Second interfaces are few, and what goes through them is not joined.
    let (mode, joinable) = (Mode::Enforce, &mut JoinableTiers::new());
    let mut stages = Stages { joinable, render: &render, writer: &writer, table: &mut table, mode, then: None };
    let plan = &program.class(class).enforced;
    let mut leads = Vec::new();
    for (direction, maps) in [(Direction::Egress, set::EGRESS), (Direction::Ingress, set::INGRESS)] {
        leads.extend(stages.plan(plan, direction).map(|chain| Lead { maps, chain }));
    }
    render.fill_networks(&mut table);
    let classes: FxHashMap<ClassId, Vec<Lead>> = [(class, leads)].into_iter().collect();
    let ids = Ids { groups: groups.by_rule, generation: before.generation, ..Ids::default() };
    let numbers = Numbers { classes, groups: groups.groups, named, spoken, ..Numbers::default() };
    Pods { program, scope, numbers: &numbers, groups: &numbers.groups }.fill_peers(&mut table);
    Rendered { table, ids, lease_groups, numbers }
}

/// What every base chain begins with.
fn usual(which: PacketInterface, subject: Insider) -> Vec<Rule> {
    let interfaces = [Some(LOOPBACK), subject.own].into_iter().flatten();
    let mut rules: Vec<Rule> =
        interfaces.map(|index| Rule::new([Test::Interface { which, index, is_it: true }], Do::Accept)).collect();
    rules
        .extend([Rule::new([Test::Established], Do::Accept), Rule::new([Test::Related], Do::Jump(RELATED.to_owned()))]);
    rules.extend(subject.class.map(|_| cut_rule()));
    rules.push(Rule::new([Test::NeighbourDiscovery], Do::Accept));
    rules.extend(listener_discovery());
    rules
}

/// Which groups a host listens to. The kernel says so by itself, for the groups that neighbour discovery needs among
/// others: a switch that follows it sends solicitations nowhere else. It never leaves the link.
fn listener_discovery() -> [Rule; 2] {
    const LAST: Ipv6Addr = Ipv6Addr::from_bits(LINK_GROUPS.to_bits() | u128::MAX >> 16);
    LISTENER_MESSAGES.map(|(low, high)| {
        let end = End::Destination;
        let to_a_group = Test::Between { end, low: IpAddr::V6(LINK_GROUPS), high: IpAddr::V6(LAST) };
        let tests = [
            to_a_group,
            Test::Frame(FrameTest::HopLimit(1)),
            Test::Protocol(ICMPV6),
            Test::Frame(FrameTest::Icmpv6 { low, high }),
        ];
        Rule::new(tests, Do::Accept)
    })
}

fn base(table: &mut Table, name: &str, point: Point, rules: Vec<Rule>) {
    let (priority, kind) = (Mode::Enforce.priority(), HookKind::Filter);
    let hook = Some(Hook { point, device: None, priority, kind, fallback: Fallback::Drop });
    let comment = Some(shorten("the pod's policies, for its second interfaces", COMMENT));
    table.chains.insert(name.to_owned(), Chain { hook, rules, comment });
}
