//! What the kernel's table does, as far as `nft list` does not say it: which
//! policies and rules judge which addresses, what each rule has counted, and
//! what is open by name. It is read from the kernel alone, so it is also right
//! where no namewall runs any more.

mod words;

use super::error::NftError;
use super::expression::{Expression, verdict};
use super::kernel::open_socket;
use super::read::{self, Live, LiveRule};
use super::rule::{Walk, gate_number, lease_group};
use super::session::Session;
use super::set::{self, Value, Version, read_address};
use crate::Count;
use crate::leases::Found;
use crate::render::{ALLOWED, AUDIT, GATES, ISOLATED};
use namewall_policy::domain::DomainName;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;
use words::Sets;

/// A table in the kernel.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct View {
    /// The number of the last change.
    pub generation: u16,
    /// Addresses with the same policies, together.
    pub classes: Vec<ClassView>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClassView {
    pub addresses: Vec<IpAddr>,
    pub walks: Vec<WalkView>,
}

/// The rules that a packet meets, in order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WalkView {
    pub part: Part,
    pub rules: Vec<RuleView>,
}

/// Which way a packet goes. The order is that in which they are shown.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Part {
    Pods(Walk),
    /// The cluster gates of pods of other nodes.
    Gates,
    /// The same with policies that are only audited.
    AuditGates,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RuleView {
    /// The policy and its rule; none for what no rule speaks of.
    pub label: Option<String>,
    pub effect: Effect,
    /// How often it has matched, of all pods that it is for, since it was last written. None if it does not count.
    pub count: Option<Count>,
    /// What it matches, in words; each is one way to match.
    pub matches: Vec<String>,
    /// What is open by the names of the rule.
    pub leases: Vec<LeaseView>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effect {
    Allow,
    Deny,
    /// The next policies decide.
    Continue,
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct LeaseView {
    pub name: Option<DomainName>,
    pub address: IpAddr,
    pub left: Duration,
}

/// Reads the table of this name. None if there is none, or one of another layout.
pub fn view(table: &str) -> Result<Option<View>, NftError> {
    let mut socket = open_socket()?;
    let mut session = Session { socket: &mut socket, table: table.into() };
    if !session.exists()? {
        return Ok(None);
    }
    let live = read::read(session.socket, table).map_err(|source| session.unread(source))?;
    let leases = read::read_leases(table).map_err(|source| session.unread(source))?;
    Ok(View::of(&live, &leases))
}

const WALKS: [Walk; 4] = [Walk::Egress, Walk::Ingress, Walk::AuditEgress, Walk::AuditIngress];

/// The chains that an address leads to.
type Leads = BTreeMap<Part, String>;

impl View {
    fn of(live: &Live, leases: &[Found]) -> Option<Self> {
        let generation = live.sets.keys().find_map(|set| set::generation_of(set))?;
        let mut leads: BTreeMap<IpAddr, Leads> = BTreeMap::new();
        for walk in WALKS {
            for set in live.twins(walk.maps()) {
                for element in set.elements.iter() {
                    if let (Some(address), Value::Goto(chain)) = (read_address(element.key.as_bytes()), element.value) {
                        leads.entry(address).or_default().insert(Part::Pods(walk), *chain);
                    }
                }
            }
        }
        for (part, prefix) in [(Part::Gates, ""), (Part::AuditGates, "audit/")] {
            let gates = live.gates(&format!("{prefix}{GATES}"));
            for element in live.twins(set::GATES).flat_map(|set| set.elements.iter()) {
                let Some((number, address)) = element.key.as_bytes().split_first_chunk::<4>() else { continue };
                let chain = gates.get(&u32::from_ne_bytes(*number));
                if let (Some(address), Some(chain)) = (read_address(address), chain) {
                    leads.entry(address).or_default().insert(part, chain.clone());
                }
            }
        }
        let mut by_chains: BTreeMap<Leads, Vec<IpAddr>> = BTreeMap::new();
        for (address, chains) in leads {
            by_chains.entry(chains).or_default().push(address);
        }
        let reader = Reader { live, leases, sets: Sets::of(live), joined: live.joined_counts() };
        let class = |(chains, addresses): (Leads, Vec<IpAddr>)| ClassView {
            addresses,
            walks: chains.iter().map(|(part, chain)| WalkView { part: *part, rules: reader.rules(chain) }).collect(),
        };
        let mut classes: Vec<ClassView> = by_chains.into_iter().map(class).collect();
        classes.sort_by(|a, b| a.addresses.cmp(&b.addresses));
        Some(Self { generation, classes })
    }
}

impl Live {
    fn twins(&self, twins: set::Twins) -> impl Iterator<Item = &read::LiveSet> {
        Version::BOTH.into_iter().filter_map(move |version| self.sets.get(twins[version]))
    }

    fn joined_counts(&self) -> BTreeMap<&str, Count> {
        let mut counts: BTreeMap<&str, Count> = BTreeMap::new();
        for counter in self.counters.values() {
            if let Some(comment) = &counter.comment {
                *counts.entry(comment).or_default() += counter.count;
            }
        }
        counts
    }

    /// The chains that the numbers of cluster gates lead to.
    fn gates(&self, chain: &str) -> BTreeMap<u32, String> {
        let rules = self.chains.get(chain).into_iter().flat_map(|chain| &chain.rules);
        let gate = |rule: &LiveRule| match end_of(rule)? {
            End::Jump(gate) => Some((gate_number(&rule.expressions)?, gate.to_owned())),
            _ => None,
        };
        rules.filter_map(gate).collect()
    }
}

impl LiveRule {
    fn is_joined(&self) -> bool {
        self.expressions.iter().any(|expression| matches!(expression, Expression::CountIn { .. }))
    }
}

struct Reader<'a> {
    live: &'a Live,
    leases: &'a [Found],
    sets: Sets<'a>,
    /// What joined look-ups have counted, by the comments of the rules that they counted for.
    joined: BTreeMap<&'a str, Count>,
}

impl Reader<'_> {
    /// The rules of a chain and of those it leads to, in the order in which a packet meets them.
    fn rules(&self, chain: &str) -> Vec<RuleView> {
        let (mut rules, mut seen) = (Vec::new(), BTreeSet::new());
        self.collect(chain, &mut seen, &mut rules);
        rules
    }

    fn collect<'s>(&'s self, chain: &'s str, seen: &mut BTreeSet<&'s str>, out: &mut Vec<RuleView>) {
        let mut then = None;
        // A table that somebody has changed may have circles.
        let Some(found) = self.live.chains.get(chain).filter(|_| seen.insert(chain)) else { return };
        // A joined look-up repeats what the rules after it say.
        for rule in found.rules.iter().filter(|rule| !rule.is_joined()) {
            match (&rule.comment, end_of(rule)) {
                (Some(label), Some(end)) => {
                    self.add(&PolicyRule { label, end, rule }, out);
                    if let End::Jump(next) = end
                        && !is_denial(next)
                    {
                        then = Some(next);
                    }
                }
                (None, Some(End::Jump(next))) => self.collect(next, seen, out),
                (None, Some(End::Allow)) if !out.last().is_some_and(RuleView::denies_all) => {
                    out.push(RuleView::default_allow());
                }
                _ => {}
            }
        }
        // What it allows, other pods of that address must allow too.
        then.into_iter().for_each(|next| self.collect(next, seen, out));
    }

    /// One rule of a policy may be several in the kernel.
    fn add(&self, &PolicyRule { label: comment, end, rule }: &PolicyRule<'_>, out: &mut Vec<RuleView>) {
        let label = comment.strip_prefix(AUDIT).unwrap_or(comment);
        let (effect, count) = match end {
            End::Allow | End::Drop if label.starts_with(ISOLATED) => (Effect::Deny, rule.count),
            End::Allow => (Effect::Allow, rule.count),
            End::Return => (Effect::Continue, rule.count),
            End::Drop => (Effect::Deny, rule.count),
            // What is denied is counted in a chain of its own.
            End::Jump(chain) if is_denial(chain) => (Effect::Deny, self.count_in(chain)),
            End::Jump(_) => (Effect::Continue, rule.count),
        };
        let at = match out.iter().position(|known| known.label.as_deref() == Some(label)) {
            Some(at) => at,
            None => {
                let (matches, leases) = (Vec::new(), Vec::new());
                let count = self.joined.get(comment).copied();
                out.push(RuleView { label: Some(label.to_owned()), effect, count, matches, leases });
                out.len() - 1
            }
        };
        let view = &mut out[at];
        // The kernel rules of one that denies share a counter; all others have their own.
        let is_shared = matches!(end, End::Jump(chain) if is_denial(chain));
        match (count, &mut view.count) {
            (Some(more), Some(known)) if !is_shared => *known += more,
            (Some(first), known) => *known = Some(first),
            (None, _) => {}
        }
        let words = self.sets.words(&rule.expressions);
        if !view.matches.contains(&words) {
            view.matches.push(words);
        }
        if let Some(group) = lease_group(&rule.expressions) {
            let open = self.leases.iter().filter(|lease| lease.group == group).map(|lease| LeaseView {
                name: lease.note.as_ref().map(|note| note.name.clone()),
                address: lease.address,
                left: lease.left,
            });
            let all: BTreeSet<LeaseView> = view.leases.drain(..).chain(open).collect();
            view.leases = all.into_iter().collect();
        }
    }

    fn count_in(&self, chain: &str) -> Option<Count> {
        self.live.chains.get(chain)?.rules.iter().find_map(|rule| rule.count)
    }
}

impl RuleView {
    /// Whether nothing comes after it.
    fn denies_all(&self) -> bool {
        self.effect == Effect::Deny && self.matches == [words::ANYTHING]
    }

    fn default_allow() -> Self {
        let (matches, leases) = (Vec::new(), Vec::new());
        Self { label: None, effect: Effect::Allow, count: None, matches, leases }
    }
}

/// A rule of the kernel that is one of a policy.
struct PolicyRule<'a> {
    label: &'a str,
    end: End<'a>,
    rule: &'a LiveRule,
}

/// Whether the chain is that of a rule which denies.
fn is_denial(chain: &str) -> bool {
    chain.strip_prefix("audit/").unwrap_or(chain).starts_with("deny/")
}

/// How a rule ends.
#[derive(Clone, Copy)]
enum End<'a> {
    Allow,
    Drop,
    Return,
    Jump(&'a str),
}

fn end_of(rule: &LiveRule) -> Option<End<'_>> {
    let Some(Expression::Verdict { code, chain }) = rule.expressions.last() else { return None };
    Some(match (*code, chain.as_deref()) {
        (verdict::ACCEPT, _) | (verdict::GOTO, Some(ALLOWED)) => End::Allow,
        (verdict::DROP, _) => End::Drop,
        (verdict::RETURN, _) => End::Return,
        (_, Some(chain)) => End::Jump(chain),
        _ => return None,
    })
}

#[cfg(test)]
mod tests;
