//! Tables up to numbering. Numbers of groups are kept from one Program to the
//! next, and changes are counted. So a table that was reached by
//! changes has other numbers than one that was made at once; what they stand
//! for must be the same.

use namewall_dataplane::nft::rule::Test;
use namewall_dataplane::nft::set::{Element, Key, PEERS, Twins, Version, generation, generation_of};
use namewall_dataplane::nft::table::{Set, Table};
use std::collections::{BTreeMap, BTreeSet};

/// Old number → new: its place among all there are, ordered by what they stand for.
struct Numbers(BTreeMap<u32, u32>);

impl Numbers {
    /// Of pairs of a number and an address it stands for.
    fn new(pairs: impl Iterator<Item = (u32, Vec<u8>)>) -> Self {
        let mut contents: BTreeMap<u32, BTreeSet<Vec<u8>>> = BTreeMap::new();
        for (number, address) in pairs {
            contents.entry(number).or_default().insert(address);
        }
        let ordered: BTreeSet<&BTreeSet<Vec<u8>>> = contents.values().collect();
        let place = |content| 1 + ordered.iter().position(|other| *other == content).unwrap_or_default() as u32;
        Self(contents.iter().map(|(&number, content)| (number, place(content))).collect())
    }

    /// A number that stands for nobody is 0.
    fn of(&self, number: u32) -> u32 {
        self.0.get(&number).copied().unwrap_or_default()
    }
}

fn number(bytes: &[u8]) -> u32 {
    bytes.try_into().map(u32::from_ne_bytes).unwrap_or_default()
}

fn elements(table: &Table, twins: Twins) -> impl Iterator<Item = Element> {
    Version::BOTH.into_iter().filter_map(move |version| table.sets.get(twins[version])).flat_map(|s| s.elements.iter())
}

fn rewrite(table: &mut Table, set: &str, change: impl Fn(&mut Element)) {
    let Some(old) = table.sets.get_mut(set) else { return };
    let mut new = Set::new(old.spec.clone());
    for mut element in old.elements.iter() {
        change(&mut element);
        new.insert(element);
    }
    *old = new;
}

fn canonical(table: &Table) -> Table {
    let groups =
        Numbers::new(elements(table, PEERS).map(|e| (number(&e.key.as_bytes()[..4]), e.key.as_bytes()[4..].to_vec())));
    let last = table.sets.keys().find_map(|set| generation_of(set)).expect("a change has a number");
    let mut table = table.clone();
    let renumbered = |key: &mut Key| {
        let (old, address) = key.as_bytes().split_at(4);
        let new = groups.of(number(old)).to_ne_bytes();
        *key = Key::from_bytes(&[&new, address].concat()).expect("it is as long as it was");
    };
    for version in Version::BOTH {
        rewrite(&mut table, PEERS[version], |element| renumbered(&mut element.key));
    }
    for test in table.chains.values_mut().flat_map(|chain| &mut chain.rules).flat_map(|rule| &mut rule.tests) {
        match test {
            Test::Peer { group, .. } => *group = groups.of(*group),
            // Only that rules and set agree is of meaning.
            Test::Generation(number) if *number == last => *number = 0,
            _ => {}
        }
    }
    if let Some(mut set) = table.sets.remove(&generation(last)) {
        set.spec.name = generation(0);
        table.sets.insert(generation(0), set);
    }
    table
}

/// What of two tables is not the same.
pub(crate) fn differences(one: &Table, other: &Table) -> Vec<String> {
    let (one, other) = (canonical(one), canonical(other));
    let chains = one.chains.keys().chain(other.chains.keys()).collect::<BTreeSet<_>>();
    let sets = one.sets.keys().chain(other.sets.keys()).collect::<BTreeSet<_>>();
    let chains = chains.into_iter().filter(|name| one.chains.get(*name) != other.chains.get(*name));
    let sets = sets.into_iter().filter(|name| one.sets.get(*name) != other.sets.get(*name));
    let chain = |name| format!("chain {name}: {:#?}\nand {:#?}", one.chains.get(name), other.chains.get(name));
    let set = |name| format!("set {name}: {:?}\nand {:?}", one.sets.get(name), other.sets.get(name));
    chains.map(chain).chain(sets.map(set)).collect()
}
