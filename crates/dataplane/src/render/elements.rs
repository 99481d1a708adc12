//! What changes with every pod: the elements of the sets.

use super::Render;
use super::ids::{Numbered, pods};
use super::rules::{fill_networks, protocol_number};
use crate::nft::set::{self, Element, Key, Twins, Value, Version};
use crate::nft::table::{Set, Table};
use namewall_policy::addr::{AddrRange, AddrSet};
use namewall_policy::model::WorkloadId;
use namewall_policy::program::{ClassId, Holder, PortSpecId};
use rustc_hash::FxHashMap;
use std::net::IpAddr;

/// A set that was declared.
fn twin(table: &mut Table, twins: Twins, version: Version) -> &mut Set {
    table.sets.get_mut(twins[version]).expect("every set is declared before it is filled")
}

fn address_key(address: IpAddr) -> Vec<u8> {
    Key::default().address(address).done()
}

impl Render<'_> {
    pub(super) fn fill_who(
        &self,
        table: &mut Table,
        local: &FxHashMap<IpAddr, ClassId>,
        classes: &FxHashMap<ClassId, u32>,
    ) {
        for (&address, class) in local {
            let element = Element::mapped(address_key(address), Value::Number(classes[class]));
            twin(table, set::WHO, Version::of(address)).insert(element);
        }
    }

    /// Which addresses are one pod's.
    pub(super) fn fill_own(&self, table: &mut Table, local: &FxHashMap<IpAddr, ClassId>) {
        let mut by_pod: FxHashMap<WorkloadId, Vec<IpAddr>> = FxHashMap::default();
        for &address in local.keys() {
            if let Some(Holder::Pod(id)) = self.program.by_address.get(&address) {
                by_pod.entry(*id).or_default().push(address);
            }
        }
        for addresses in by_pod.values() {
            for &one in addresses {
                let version = Version::of(one);
                for &other in addresses.iter().filter(|other| Version::of(**other) == version) {
                    let key = Key::default().address(one).address(other).done();
                    twin(table, set::OWN, version).insert(Element::key(key));
                }
            }
        }
    }

    pub(super) fn fill_peers(&self, table: &mut Table, groups: &Numbered) {
        let mut by_role: FxHashMap<usize, Vec<u32>> = FxHashMap::default();
        for (group, roles) in &groups.roles {
            for role in roles.iter() {
                by_role.entry(role).or_default().push(*group);
            }
        }
        for (address, member) in pods(self.program) {
            for &group in by_role.get(&member.role.index()).into_iter().flatten() {
                let key = Key::default().number(group).address(address).done();
                twin(table, set::PEERS, Version::of(address)).insert(Element::key(key));
            }
        }
    }

    pub(super) fn fill_named(&self, table: &mut Table, named: &FxHashMap<PortSpecId, u32>) {
        if named.is_empty() {
            return;
        }
        for (address, member) in pods(self.program) {
            for port in member.ports.iter() {
                for (&spec, &number) in named {
                    let is_named = self.program.port_spec(spec).named.iter().any(|(protocol, name)| {
                        *name == port.name && protocol.is_none_or(|protocol| protocol == port.protocol)
                    });
                    if is_named {
                        let key = Key::default().number(number).address(address);
                        let key = key.protocol(protocol_number(port.protocol)).port(port.port).done();
                        twin(table, set::NAMED, Version::of(address)).insert(Element::key(key));
                    }
                }
            }
        }
    }

    /// The pod network, and every pod, since some may be outside of it.
    pub(super) fn fill_networks(&self, table: &mut Table) {
        let mut nodes = AddrSet::default();
        for (&address, holder) in &self.program.by_address {
            if let Holder::Node(_) = holder {
                nodes.insert_address(address);
            }
        }
        let networks = self.program.pod_networks.subtract(&nodes);
        for version in Version::BOTH {
            let of_version = |range: &AddrRange| Version::of(range.first) == version;
            let ranges: Vec<AddrRange> = networks.ranges().filter(of_version).collect();
            let spec = twin(table, set::POD_NETWORK, version).spec.clone();
            fill_networks(table, spec, &ranges);
        }
        for (address, _) in pods(self.program) {
            twin(table, set::PODS, Version::of(address)).insert(Element::key(address_key(address)));
        }
    }
}
