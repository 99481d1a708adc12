//! Where only pods have come, gone or changed: the few elements that make the
//! difference, without the whole table being made again. A cluster of ten
//! thousand pods changes every second; a table of it takes a tenth of one.

use super::elements::{Placed, Pods};
use super::ids::{Group, pods};
use super::{Numbers, Rendered, Scope};
use crate::nft::set::Version;
use namewall_policy::Program;
use namewall_policy::bits::BitSet;
use namewall_policy::pieces::differing;
use namewall_policy::program::{Holder, Matcher, Member};
use rustc_hash::{FxHashMap, FxHashSet};
use std::net::IpAddr;
use std::sync::Arc;

/// Elements that go, and elements that come.
#[derive(Default, Debug)]
pub(crate) struct Delta {
    pub(crate) gone: Vec<Placed>,
    pub(crate) come: Vec<Placed>,
    /// The groups, if Roles came to them.
    pub(crate) groups: Option<Vec<Group>>,
    /// How many addresses groups have now, as far as it matters to what is joined.
    pub(crate) sizes: Vec<(u32, usize)>,
}

impl Delta {
    /// The difference, if it is one of pods only.
    pub(crate) fn between(before: &Program, next: &Program, scope: &Scope, rendered: &Rendered) -> Option<Self> {
        if !policies_are_the_same(before, next) {
            return None;
        }
        let numbers = &rendered.numbers;
        let groups = groups_with_new_roles(before, next, numbers)?;
        let old = Pods { program: before, scope, numbers, groups: &numbers.groups };
        let new = Pods { program: next, groups: groups.as_deref().unwrap_or(&numbers.groups), ..old };
        let mut delta = Self::default();
        let mut resized: FxHashMap<u32, isize> = FxHashMap::default();
        for address in touched(before, next) {
            let was = before.by_address.get(&address).and_then(|&holder| member(before, holder));
            let is = next.by_address.get(&address).and_then(|&holder| member(next, holder));
            let own = |pods: &Pods<'_>, member: Option<&Member>| {
                member.map(|member| pods.own(address, member).collect::<Vec<_>>())
            };
            if was == is && own(&old, was) == own(&new, is) {
                continue;
            }
            // Who may ask it changes with it, whoever that is.
            let answers = |program: &Program| program.resolvers.iter().any(|one| one.is_answered_by(address));
            if let Some(dns) = &scope.dns
                && (dns.servers.contains(&address) || answers(before) || answers(next))
            {
                return None;
            }
            if let Some(was) = was {
                let has_class = |(_, member): (IpAddr, &Member)| member.class == was.class && scope.judges(member);
                // The joined look-ups of a class without pods make room for others.
                if numbers.joins.are_bounded() && scope.judges(was) && !pods(next).any(has_class) {
                    return None;
                }
                old.groups_of(was).iter().for_each(|group| *resized.entry(*group).or_default() -= 1);
                old.elements(address, was, &mut delta.gone);
            }
            if let Some(is) = is {
                if scope.judges(is) {
                    // A class that nobody here had so far has no chain yet.
                    numbers.classes.get(&is.class)?;
                } else {
                    // Nor has a gate that nobody had.
                    new.remote_gate(is)?;
                }
                // Nor has a version that nobody spoke any rules.
                numbers.spoken.contains(&Version::of(address)).then_some(())?;
                new.groups_of(is).iter().for_each(|group| *resized.entry(*group).or_default() += 1);
                new.elements(address, is, &mut delta.come);
            }
        }
        delta.cancel();
        delta.sizes = numbers.joins.resized(&resized)?;
        delta.groups = groups;
        Some(delta)
    }

    /// What goes and comes again stays. What is said twice, as where two
    /// containers give one port one name, is one element: the kernel refuses to
    /// delete it a second time.
    fn cancel(&mut self) {
        let come: FxHashSet<Placed> = self.come.drain(..).collect();
        let gone: FxHashSet<Placed> = self.gone.drain(..).collect();
        self.come.extend(come.difference(&gone).cloned());
        self.gone.extend(gone.difference(&come).cloned());
    }
}

/// The addresses that may have changed hands.
fn touched(before: &Program, next: &Program) -> FxHashSet<IpAddr> {
    let changed = differing(&before.workloads, &next.workloads);
    let members = changed.flat_map(|at| [before.workloads.get(at), next.workloads.get(at)]).flatten();
    members.flat_map(|member| member.addresses.iter().copied()).collect()
}

/// The pod that has an address; None for a node.
fn member(program: &Program, holder: Holder) -> Option<&Member> {
    match holder {
        Holder::Pod(id) => Some(program.member(id)),
        Holder::Node(_) | Holder::SomeNode(_) => None,
    }
}

fn same<T: PartialEq>(a: &Arc<T>, b: &Arc<T>) -> bool {
    Arc::ptr_eq(a, b) || a == b
}

/// All that chains are made of, but for the Roles among the peers.
fn policies_are_the_same(before: &Program, next: &Program) -> bool {
    let alike = || {
        before.rules.len() == next.rules.len()
            && before.rules.iter().zip(next.rules.iter()).all(|(a, b)| {
                let same_matcher = match (a.matcher, b.matcher) {
                    (Matcher::Clauses { peers: a, ports: x }, Matcher::Clauses { peers: b, ports: y }) => {
                        let (a, b) = (before.peer_set(a), next.peer_set(b));
                        x == y && a.anyone == b.anyone && a.addresses == b.addresses && a.domains == b.domains
                    }
                    (a, b) => a == b,
                };
                same_matcher && (a.policy, a.direction, a.index, a.action) == (b.policy, b.direction, b.index, b.action)
            })
    };
    let same_rules =
        Arc::ptr_eq(&before.rules, &next.rules) && Arc::ptr_eq(&before.peer_sets, &next.peer_sets) || alike();
    same(&before.policies, &next.policies)
        && same(&before.port_specs, &next.port_specs)
        && (Arc::ptr_eq(&before.patterns, &next.patterns) || before.patterns.iter().eq(next.patterns.iter()))
        && (Arc::ptr_eq(&before.classes, &next.classes) || next.classes.starts_with(&before.classes))
        && same(&before.node_addresses, &next.node_addresses)
        && same(&before.pod_networks, &next.pod_networks)
        && same(&before.services, &next.services)
        && (Arc::ptr_eq(&before.node_ports, &next.node_ports) || before.node_ports.denies_as(&next.node_ports))
        && same(&before.service_gates, &next.service_gates)
        && before.resolvers == next.resolvers
        // An address that is shared is no longer the pod's own.
        && before.shares_as(next)
        && same_rules
}

/// The groups with the Roles that are new, if there are any; none at all if they are not the same groups any more.
fn groups_with_new_roles(before: &Program, next: &Program, numbers: &Numbers) -> Option<Option<Vec<Group>>> {
    if Arc::ptr_eq(&before.rules, &next.rules) && Arc::ptr_eq(&before.peer_sets, &next.peer_sets) {
        return Some(None);
    }
    let (roles_before, whole) = (before.roles_bound, next.roles_bound);
    let roles_of = |run: &std::ops::Range<u32>| {
        let mut roles = BitSet::default();
        for rule in &next.rules[run.start as usize..run.end as usize] {
            if let Matcher::Clauses { peers, .. } = rule.matcher {
                roles.union_with(&next.peer_set(peers).roles);
            }
        }
        roles
    };
    let mut groups = Vec::with_capacity(numbers.groups.len());
    for group in &numbers.groups {
        let (first, others) = group.runs.split_first()?;
        let roles = roles_of(first);
        let parted = others.iter().any(|run| !roles_of(run).same_below(&roles, whole));
        if parted || !roles.same_below(&group.roles, roles_before) {
            return None;
        }
        groups.push(Group { roles, ..group.clone() });
    }
    // A rule that spoke of no pod has no group, and may speak of one now.
    let speaks = |program: &Program, matcher| match matcher {
        Matcher::Clauses { peers, .. } => !program.peer_set(peers).roles.is_empty(),
        _ => false,
    };
    let mut rules = before.rules.iter().zip(next.rules.iter());
    let alike = rules.all(|(was, is)| speaks(before, was.matcher) == speaks(next, is.matcher));
    alike.then_some(Some(groups))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nft::set::{Element, Key, PODS};

    #[test]
    fn an_element_that_is_said_twice_goes_once() {
        let placed = |number| (PODS.0, Element::key(Key::default().number(number)));
        let (gone, come) = (vec![placed(1), placed(2), placed(1)], vec![placed(2), placed(3), placed(3)]);
        let mut delta = Delta { gone, come, ..Delta::default() };
        delta.cancel();
        assert_eq!((delta.gone, delta.come), (vec![placed(1)], vec![placed(3)]));
    }
}
