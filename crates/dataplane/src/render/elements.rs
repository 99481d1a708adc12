//! What changes with every pod: the elements of the sets. An address brings the
//! same elements whether the whole table is made or only that pod is new.

use super::ids::{Group, pods};
use super::joined::PlaceId;
use super::rules::{fill_networks, protocol_number};
use super::{Lead, Numbers, Render, Scope};
use crate::nft::set::{self, Element, Field, Holds, Key, SetSpec, Twins, Value, Version};
use crate::nft::table::{Set, Table};
use namewall_policy::Program;
use namewall_policy::addr::{AddrRange, AddrSet};
use namewall_policy::program::{Member, NamedPorts};
use rustc_hash::FxHashMap;
use std::net::IpAddr;

/// A set that was declared.
fn named<'t>(table: &'t mut Table, name: &str) -> &'t mut Set {
    table.sets.get_mut(name).expect("every set is declared before it is filled")
}

/// A new element of a set.
pub(crate) type Placed = (&'static str, Element);

/// The pods of a Program, as elements.
#[derive(Clone, Copy)]
pub(crate) struct Pods<'a> {
    pub(crate) program: &'a Program,
    pub(crate) scope: &'a Scope,
    pub(crate) numbers: &'a Numbers,
    /// Those of the numbers, or newer.
    pub(crate) groups: &'a [Group],
}

/// A pod at one of its addresses.
struct PodAt<'a> {
    address: IpAddr,
    member: &'a Member,
    /// The numbers of the groups it is in.
    groups: &'a [u32],
    /// Where joined look-ups know it.
    places: &'a [PlaceId],
}

impl Pods<'_> {
    pub(super) fn fill(&self, table: &mut Table) {
        self.fill_with(table, Self::elements_of);
    }

    /// Only as peers: no pod is judged by its address.
    pub(super) fn fill_peers(&self, table: &mut Table) {
        self.fill_with(table, |pods, pod, out| {
            let (version, key) = (Version::of(pod.address), Key::default().address(pod.address));
            out.push((set::PODS[version], Element::key(key)));
            pods.peer_elements(pod, out);
        });
    }

    fn fill_with(&self, table: &mut Table, elements_of: impl Fn(&Self, &PodAt<'_>, &mut Vec<Placed>)) {
        let mut by_role: FxHashMap<usize, Vec<u32>> = FxHashMap::default();
        for group in self.groups {
            for role in group.roles.iter() {
                by_role.entry(role).or_default().push(group.number);
            }
        }
        let joins = &self.numbers.joins;
        let places: FxHashMap<usize, Vec<PlaceId>> =
            by_role.iter().map(|(role, groups)| (*role, joins.places_of(groups))).collect();
        let mut elements = Vec::new();
        for (address, member) in pods(self.program) {
            let role = &member.role.index();
            let groups = by_role.get(role).map(Vec::as_slice).unwrap_or_default();
            let places = places.get(role).map(Vec::as_slice).unwrap_or_default();
            elements_of(self, &PodAt { address, member, groups, places }, &mut elements);
            for (set, element) in elements.drain(..) {
                named(table, set).insert(element);
            }
        }
    }

    /// The same for one address, its groups looked up.
    pub(super) fn elements(&self, address: IpAddr, member: &Member, out: &mut Vec<Placed>) {
        let groups = self.groups_of(member);
        let places = self.numbers.joins.places_of(&groups);
        self.elements_of(&PodAt { address, member, groups: &groups, places: &places }, out);
    }

    /// The numbers of the groups that a pod is in.
    pub(super) fn groups_of(&self, member: &Member) -> Vec<u32> {
        let of_role = self.groups.iter().filter(|group| group.roles.contains(member.role.index()));
        of_role.map(|group| group.number).collect()
    }

    fn elements_of(&self, pod: &PodAt<'_>, out: &mut Vec<Placed>) {
        let &PodAt { address, member, places, .. } = pod;
        let version = Version::of(address);
        let key = || Key::default().address(address);
        self.asks(address, member, out);
        let mut place = |twins: Twins, element| out.push((twins[version], element));
        place(set::PODS, Element::key(key()));
        if self.scope.judges(member) {
            for Lead { maps, chain } in self.numbers.classes.get(&member.class).into_iter().flatten() {
                place(*maps, Element::mapped(key(), Value::goto(chain.clone())));
            }
            for other in self.own(address, member).filter(|other| Version::of(*other) == version) {
                place(set::OWN, Element::key(key().address(other)));
            }
        }
        if !self.scope.judges(member)
            && let Some(Some(number)) = self.remote_gate(member)
        {
            place(set::GATED, Element::key(key()));
            place(set::GATES, Element::key(Key::default().number(number).address(address)));
        }
        let joined = places.iter().filter_map(|place| self.numbers.joins.element(*place, address));
        joined.for_each(|element| place(set::JOINED, element));
        self.peer_elements(pod, out);
    }

    /// What says of which rules a pod is a peer, and which ports it names.
    fn peer_elements(&self, &PodAt { address, member, groups, .. }: &PodAt<'_>, out: &mut Vec<Placed>) {
        let version = Version::of(address);
        let mut place = |twins: Twins, element| out.push((twins[version], element));
        for &group in groups {
            place(set::PEERS, Element::key(Key::default().number(group).address(address)));
        }
        for (&spec, &number) in self.numbers.named.iter().filter(|_| member.named_ports() != NamedPorts::default()) {
            for port in self.program.port_spec(spec).counting(member.named_ports()) {
                let key = Key::default().number(number).address(address);
                let key = key.protocol(protocol_number(port.protocol)).port(port.port);
                place(set::NAMED, Element::key(key));
            }
        }
    }

    /// The number of its cluster gates, as `RemoteGates` has it.
    pub(super) fn remote_gate(&self, member: &Member) -> Option<Option<u32>> {
        self.numbers.remote.number(member.class, self.program.class(member.class))
    }

    /// The addresses that are this pod's too, and nobody else's.
    pub(super) fn own(&self, address: IpAddr, member: &Member) -> impl Iterator<Item = IpAddr> {
        member.addresses.iter().copied().filter(move |other| self.program.have_one_holder(address, *other))
    }
}

impl Scope {
    /// Whether a pod is judged here as a subject. One that nobody knows the node of is judged everywhere.
    pub(crate) fn judges(&self, member: &Member) -> bool {
        self.node.is_none() || member.node.is_none() || member.node == self.node
    }
}

impl Render<'_> {
    pub(super) fn fill_networks(&self, table: &mut Table) {
        self.fill_blocks(table, set::POD_NETWORK, &self.program.pod_networks);
    }

    /// What of some blocks is no node's.
    pub(super) fn fill_blocks(&self, table: &mut Table, twins: set::Twins, blocks: &AddrSet) {
        let mut nodes = AddrSet::default();
        for &(address, _) in self.program.node_addresses.iter() {
            nodes.insert_address(address);
        }
        let networks = blocks.subtract(&nodes);
        for version in Version::BOTH {
            let of_version = |range: &AddrRange| Version::of(range.first) == version;
            let ranges: Vec<AddrRange> = networks.ranges().filter(of_version).collect();
            fill_networks(table, SetSpec::new(twins[version], &[Field::Address(version)], Holds::Keys), &ranges);
        }
    }
}
