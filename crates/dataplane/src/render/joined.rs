//! Several rules of a NetworkPolicy tier in one look-up. A packet that a tier
//! allows meets a look-up for every rule before the one that allows it. So a tier
//! begins with **joined look-ups**, one for a list of ports: a map from the
//! addresses of pods to the counter of the rule that allows them.
//!
//! ```text
//! network-ingress/…  tcp 80, source in joined4? count for its rule ─► allowed
//!                    ─► the chains of the policies, as without it
//! ```
//! A joined look-up decides nothing that the rules after it would decide
//! otherwise, and counts for the same rule. An address for which that is not
//! certain is left out, and so are large groups of pods: those go on to the rules.
//! See ADR 46.

use super::ids::{Group, pods};
use super::names::{by_content, chain_name, digest};
use super::rules::{Match, RuleWriter, Run, is_possible, runs};
use super::stages::Mode;
use super::{Render, Rendered};
use crate::nft::rule::{Action as Do, End, Rule, Test};
use crate::nft::set::{self, Element, Field, Holds, Key, SetSpec, Value, Version};
use crate::nft::table::Table;
use namewall_policy::Program;
use namewall_policy::addr::AddrSet;
use namewall_policy::model::{Action, Direction, PolicyId};
use namewall_policy::program::{PortSpec, PortSpecId};
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::BTreeMap;
use std::net::IpAddr;

/// All joined look-ups of a table have at most so many elements: a change of policies may write all of them in its
/// switch.
const MOST_ELEMENTS: usize = 16_384;
/// A group of pods with more addresses than this is never joined.
const LARGEST_GROUP: usize = 512;
/// A tier has no more joined look-ups than this: each tests the ports of every packet.
const MOST_IN_A_TIER: usize = 4;
/// What rules with joined look-ups say of themselves.
const ABOUT: &str = "pods that the rules after this one allow, in one look-up";

/// The NetworkPolicy tiers of a table, by the names of their chains.
pub(super) type JoinableTiers = BTreeMap<String, JoinableTier>;

/// A chain that asks the rules of some policies, which only allow.
#[derive(Debug)]
pub(super) struct JoinableTier {
    pub(super) policies: Vec<PolicyId>,
    pub(super) direction: Direction,
    pub(super) mode: Mode,
    /// How an allowance ends.
    pub(super) allowance: Do,
}

/// The joined look-ups of a table, and what they were chosen by.
#[derive(Clone, Debug, Default)]
pub(crate) struct Joins {
    joins: Vec<Join>,
    /// Where each group is asked for.
    places: FxHashMap<u32, Vec<PlaceId>>,
    /// The groups that could be joined.
    candidates: FxHashMap<u32, Candidate>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct PlaceId {
    join: u32,
    place: u32,
}

#[derive(Clone, Debug)]
struct Join {
    number: u32,
    places: Vec<Place>,
}

/// A rule that may match packets of a joined look-up, in the order of the tier.
#[derive(Clone, Debug)]
struct Place {
    group: Option<u32>,
    /// Networks that it speaks of besides.
    addresses: AddrSet,
    /// The counter of the rule, where pods of the group are joined.
    counter: Option<String>,
}

/// A group that could be joined.
#[derive(Clone, Copy, Debug, Default)]
struct Candidate {
    /// How often it is asked for.
    times: usize,
    addresses: usize,
    is_joined: bool,
}

/// How the ports of a rule and of a joined look-up lie to each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Relation {
    /// The rule has all of the look-up's ports.
    Covers,
    /// It has none of them.
    Apart,
    Unclear,
}

fn relation(rule: &PortSpec, joined: &PortSpec) -> Relation {
    if rule == joined || rule.numbered.is_all() {
        return Relation::Covers;
    }
    let are_numbers = rule.named.is_empty() && joined.named.is_empty();
    if joined.named.is_empty() && joined.numbered.is_subset(&rule.numbered) {
        Relation::Covers
    } else if are_numbers && joined.numbered.intersect(&rule.numbered).is_none() {
        Relation::Apart
    } else {
        Relation::Unclear
    }
}

/// A joined look-up that a tier could have.
struct Proposal<'t> {
    chain: &'t str,
    tier: &'t JoinableTier,
    ports: PortSpecId,
    rules: Vec<ProposedPlace>,
}

struct ProposedPlace {
    run: Run,
    group: Option<u32>,
    addresses: AddrSet,
    /// Whether a packet of the look-up from or to a pod of the group is surely allowed by this rule.
    is_sure: bool,
}

impl Proposal<'_> {
    fn joinable(&self) -> impl Iterator<Item = u32> {
        self.rules.iter().filter(|place| place.is_sure).filter_map(|place| place.group)
    }
}

impl RuleWriter<'_> {
    /// The joined look-ups that a tier could have, those of most rules first.
    fn proposals<'t>(&self, chain: &'t str, tier: &'t JoinableTier) -> Vec<Proposal<'t>> {
        let all: Vec<Run> =
            tier.policies.iter().flat_map(|policy| runs(self.program, *policy, tier.direction)).collect();
        let mut seen: FxHashSet<PortSpecId> = FxHashSet::default();
        let mut proposals = Vec::new();
        for run in &all {
            let Match::Clauses { ports, .. } = run.matcher else { continue };
            if self.group(run).is_none() || !seen.insert(ports) {
                continue;
            }
            let proposal = Proposal { chain, tier, ports, rules: self.places(&all, ports) };
            if proposal.joinable().nth(1).is_some() {
                proposals.push(proposal);
            }
        }
        proposals.sort_by_key(|proposal| std::cmp::Reverse(proposal.joinable().count()));
        proposals.truncate(MOST_IN_A_TIER);
        proposals
    }

    fn group(&self, run: &Run) -> Option<u32> {
        let Match::Clauses { peers, .. } = &run.matcher else { return None };
        let speaks_of_pods = !peers.anyone && !peers.roles.is_empty();
        speaks_of_pods.then(|| self.groups.by_rule.get(&run.key(self.program)).copied()).flatten()
    }

    /// The rules that packets to some ports may match, as far as an address tells which of them is the first.
    fn places(&self, runs: &[Run], joined: PortSpecId) -> Vec<ProposedPlace> {
        let mut places = Vec::new();
        for run in runs {
            let Match::Clauses { peers, ports } = &run.matcher else { break };
            let relation = relation(self.program.port_spec(*ports), self.program.port_spec(joined));
            if relation == Relation::Apart {
                continue;
            }
            if peers.anyone {
                break;
            }
            let is_sure = relation == Relation::Covers && run.action == Action::Allow;
            let (group, addresses) = (self.group(run), peers.addresses.clone());
            places.push(ProposedPlace { run: run.clone(), group, addresses, is_sure });
            // A name may lead to any address.
            if !peers.domains.is_empty() {
                break;
            }
        }
        places
    }
}

/// How many addresses of pods each Role has.
fn addresses_by_role(program: &Program) -> FxHashMap<usize, usize> {
    let mut counts = FxHashMap::default();
    pods(program).for_each(|(_, member)| *counts.entry(member.role.index()).or_default() += 1);
    counts
}

/// The largest groups that are joined: all that are no larger have together no more elements than a table may have.
fn largest_joined(candidates: impl Iterator<Item = Candidate> + Clone) -> usize {
    let mut largest = LARGEST_GROUP;
    let elements = |largest: usize| {
        let joined = candidates.clone().filter(|group| group.addresses <= largest);
        joined.map(|group| group.times * group.addresses).sum::<usize>()
    };
    while largest > 0 && elements(largest) > MOST_ELEMENTS {
        largest /= 2;
    }
    largest
}

impl Render<'_> {
    pub(super) fn declare_joined(&self, table: &mut Table) {
        for version in Version::BOTH {
            let key = [Field::Number, Field::Address(version)];
            table.set(SetSpec::new(set::JOINED[version], &key, Holds::Counters));
        }
    }

    /// Puts joined look-ups before the rules of tiers.
    pub(super) fn join(&self, table: &mut Table, writer: &RuleWriter<'_>, tiers: &JoinableTiers) -> Joins {
        let proposals: Vec<Proposal<'_>> =
            tiers.iter().flat_map(|(chain, tier)| writer.proposals(chain, tier)).collect();
        let mut candidates: FxHashMap<u32, Candidate> = FxHashMap::default();
        for group in proposals.iter().flat_map(Proposal::joinable) {
            candidates.entry(group).or_default().times += 1;
        }
        let by_role = addresses_by_role(self.program);
        for Group { number, roles, .. } in &writer.groups.groups {
            if let Some(candidate) = candidates.get_mut(number) {
                candidate.addresses = roles.iter().filter_map(|role| by_role.get(&role)).sum();
            }
        }
        let largest = largest_joined(candidates.values().copied());
        candidates.values_mut().for_each(|group| group.is_joined = group.addresses <= largest);
        let mut joins = Joins { candidates, ..Joins::default() };
        let mut taken = FxHashSet::default();
        for proposal in &proposals {
            self.join_one(&mut Joining { table, writer, joins: &mut joins, taken: &mut taken }, proposal);
        }
        joins
    }

    fn join_one(&self, joining: &mut Joining<'_>, proposal: &Proposal<'_>) {
        let Proposal { chain, tier, ports, rules } = proposal;
        let is_joined = |place: &ProposedPlace| {
            let candidate = place.group.and_then(|group| joining.joins.candidates.get(&group));
            place.is_sure && candidate.is_some_and(|group| group.is_joined)
        };
        // Nothing is gained for pods of the first rule that asks for any.
        let asking = rules.iter().filter(|place| place.group.is_some());
        if !asking.skip(1).any(is_joined) {
            return;
        }
        let kept: Vec<bool> = rules.iter().map(is_joined).collect();
        let places = rules.iter().zip(kept).map(|(place, is_joined)| Place {
            group: place.group,
            addresses: place.addresses.clone(),
            counter: is_joined.then(|| self.counter(joining, tier.mode, &place.run)),
        });
        let places = places.collect();
        let Joining { table, writer, joins, taken } = joining;
        let ways = writer.ports(table, *ports);
        let texts = ways.iter().flatten().map(Test::to_string);
        let mut number = digest([(*chain).to_owned()].into_iter().chain(texts)) as u32;
        while !taken.insert(number) {
            number = number.wrapping_add(1);
        }
        let end = match tier.direction {
            Direction::Egress => End::Destination,
            Direction::Ingress => End::Source,
        };
        let look_ups = ways.iter().flat_map(|way| {
            let joined = |&version| [way.as_slice(), &[Test::Joined { end, version, number }]].concat();
            writer.spoken.iter().map(joined)
        });
        let look_ups = look_ups.filter(|tests| is_possible(tests));
        let rules = look_ups.map(|tests| Rule::new(tests, tier.allowance.clone()).about(ABOUT));
        if let Some(chain) = table.chains.get_mut(*chain) {
            let before = chain.rules.iter().take_while(|rule| is_joined_rule(rule)).count();
            chain.rules.splice(before..before, rules);
        }
        joins.add(Join { number, places });
    }

    /// The counter of a rule of a policy. A rule that changes gets another.
    fn counter(&self, joining: &mut Joining<'_>, mode: Mode, run: &Run) -> String {
        let label = run.key(self.program);
        let name = format!("{}{}/{}", mode.prefix(), self.chain_of(run.policy, run.direction), run.indices.start());
        let tests = joining.writer.tests(joining.table, run);
        // The number of a group says nothing of the rule.
        let text = |test: &Test| match test {
            Test::Peer { version, .. } => format!("pods, {version:?}"),
            test => test.to_string(),
        };
        let texts = tests.iter().flatten().map(text);
        let name = by_content(&chain_name(&name), [label.clone()].into_iter().chain(texts));
        joining.table.counters.insert(name.clone(), format!("{}{label}", mode.comment()));
        name
    }
}

/// What joined look-ups are written to.
struct Joining<'a> {
    table: &'a mut Table,
    writer: &'a RuleWriter<'a>,
    joins: &'a mut Joins,
    /// Numbers of joined look-ups.
    taken: &'a mut FxHashSet<u32>,
}

fn is_joined_rule(rule: &Rule) -> bool {
    rule.tests.iter().any(|test| matches!(test, Test::Joined { .. }))
}

impl Joins {
    fn add(&mut self, join: Join) {
        let at = self.joins.len() as u32;
        for (place, group) in join.places.iter().enumerate().filter_map(|(at, place)| Some((at, place.group?))) {
            self.places.entry(group).or_default().push(PlaceId { join: at, place: place as u32 });
        }
        self.joins.push(join);
    }

    /// The first place for pods of these groups, in each joined look-up that knows one of them.
    pub(super) fn places_of(&self, groups: &[u32]) -> Vec<PlaceId> {
        let mut places: Vec<PlaceId> =
            groups.iter().filter_map(|group| self.places.get(group)).flatten().copied().collect();
        places.sort_unstable();
        places.dedup_by_key(|place| place.join);
        places
    }

    /// The element of an address at its first place, if the rule there is surely the first that allows it.
    pub(super) fn element(&self, at: PlaceId, address: IpAddr) -> Option<Element> {
        let join = &self.joins[at.join as usize];
        let (before, rest) = join.places.split_at(at.place as usize);
        if before.iter().any(|place| place.addresses.contains(address)) {
            return None;
        }
        let counter = rest.first()?.counter.clone()?;
        Some(Element::mapped(Key::default().number(join.number).address(address), Value::counter(counter)))
    }

    /// The sizes of the groups that could be joined, after some have got or lost so many addresses. None if others are
    /// to be joined now.
    pub(super) fn resized(&self, changes: &FxHashMap<u32, isize>) -> Option<Vec<(u32, usize)>> {
        let size = |number: &u32, candidate: &Candidate| {
            candidate.addresses.saturating_add_signed(changes.get(number).copied().unwrap_or_default())
        };
        let sizes: Vec<(u32, usize)> =
            changes.keys().filter_map(|number| Some((*number, size(number, self.candidates.get(number)?)))).collect();
        if sizes.is_empty() {
            return Some(sizes);
        }
        let resized =
            self.candidates.iter().map(|(number, group)| Candidate { addresses: size(number, group), ..*group });
        let largest = largest_joined(resized.clone());
        let mut resized = resized;
        resized.all(|group| group.is_joined == (group.addresses <= largest)).then_some(sizes)
    }

    /// True if groups are left out since all of them together would be too many. Fewer joined look-ups may then join
    /// more.
    pub(super) fn are_bounded(&self) -> bool {
        self.candidates.values().any(|group| !group.is_joined && group.addresses <= LARGEST_GROUP)
    }

    /// The numbers of all joined look-ups.
    pub(crate) fn numbers(&self) -> impl Iterator<Item = u32> {
        self.joins.iter().map(|join| join.number)
    }

    pub(crate) fn resize(&mut self, sizes: &[(u32, usize)]) {
        for (number, addresses) in sizes {
            self.candidates.entry(*number).or_default().addresses = *addresses;
        }
    }
}

impl Rendered {
    /// Takes joined look-ups out, for a kernel that cannot do them.
    pub(crate) fn without_joins(&mut self) {
        self.numbers.joins = Joins::default();
        self.table.counters.clear();
        for version in Version::BOTH {
            self.table.sets.remove(set::JOINED[version]);
        }
        self.table.chains.values_mut().for_each(|chain| chain.rules.retain(|rule| !is_joined_rule(rule)));
    }
}

#[cfg(test)]
mod tests;
