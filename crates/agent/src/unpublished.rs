//! Names that pods of this node have opened while it could not write to the objects that they belong to: the API server
//! is away or refuses writes. No other node and no controller knows them, so this node looks them up before their
//! leases end (S8.7).

use crate::sharing::PublishedName;
use namewall_policy::domain::DomainPattern;
use namewall_policy::{Instant, Lease};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

/// So many names that wildcards have collected are looked up. Names that rules speak of are not counted: their number
/// is that of the rules.
const MOST_COLLECTED: usize = 1_000;

#[derive(Debug, Default)]
pub(crate) struct Unpublished {
    names: BTreeMap<String, UnpublishedName>,
    /// How many names that wildcards have collected each client has.
    collected: BTreeMap<Option<IpAddr>, usize>,
}

#[derive(Debug)]
struct UnpublishedName {
    /// Each with the end of its TTL.
    addresses: BTreeMap<IpAddr, Instant>,
    is_collected: bool,
    /// Whom it is counted to where there is little room.
    asked_by: Option<IpAddr>,
}

impl Unpublished {
    /// Takes leases that end soon, and that have not ended.
    pub(crate) fn add(&mut self, ending: Vec<Lease>, grace: Duration, published: &BTreeMap<&str, PublishedName>) {
        for Lease { pattern, name, address, expiry, asked_by } in ending {
            let name = format!("{name}.");
            if published.contains_key(name.as_str()) {
                continue;
            }
            let is_collected = !matches!(pattern.names, DomainPattern::Exact(_));
            if is_collected && !self.names.contains_key(&name) && !self.has_room_for(asked_by) {
                continue;
            }
            let known = self.names.entry(name).or_insert_with(|| {
                *self.collected.entry(asked_by).or_default() += usize::from(is_collected);
                UnpublishedName { addresses: BTreeMap::new(), is_collected, asked_by }
            });
            if known.is_collected && !is_collected {
                known.is_collected = false;
                uncount(&mut self.collected, known.asked_by);
            }
            known.addresses.insert(address, Instant(expiry.0.saturating_sub(grace)));
        }
    }

    /// Whether one more collected name of this client has room. The client with the most names gives one up for a client
    /// that has fewer.
    fn has_room_for(&mut self, client: Option<IpAddr>) -> bool {
        if self.collected.values().sum::<usize>() < MOST_COLLECTED {
            return true;
        }
        let Some((&heaviest, &most)) = self.collected.iter().max_by_key(|(_, count)| **count) else { return true };
        if self.collected.get(&client).copied().unwrap_or_default() + 1 >= most {
            return false;
        }
        let is_of_heaviest = |one: &UnpublishedName| one.is_collected && one.asked_by == heaviest;
        let evicted = self.names.iter().find(|(_, one)| is_of_heaviest(one)).map(|(name, _)| name.clone());
        let is_evicted = evicted.is_some_and(|name| self.names.remove(&name).is_some());
        if is_evicted {
            uncount(&mut self.collected, heaviest);
        }
        is_evicted
    }

    /// Forgets the names that an object has now, and those that are not wanted any more.
    pub(crate) fn retain(&mut self, is_wanted: impl Fn(&str) -> bool) {
        self.names.retain(|name, one| {
            let stays = is_wanted(name);
            if !stays && one.is_collected {
                uncount(&mut self.collected, one.asked_by);
            }
            stays
        });
    }

    /// What is known of each, in the form of names that others have published and do not look up any more.
    pub(crate) fn names(&self) -> impl Iterator<Item = (&str, PublishedName)> {
        self.names
            .iter()
            .map(|(name, one)| (name.as_str(), PublishedName::unpublished(one.addresses.clone(), one.is_collected)))
    }

    /// Who asked for the name; None if it is not one of these names.
    pub(crate) fn asked_by(&self, name: &str) -> Option<Option<IpAddr>> {
        self.names.get(name).map(|one| one.asked_by)
    }
}

fn uncount(collected: &mut BTreeMap<Option<IpAddr>, usize>, client: Option<IpAddr>) {
    if let Some(count) = collected.get_mut(&client) {
        *count = count.saturating_sub(1);
        if *count == 0 {
            collected.remove(&client);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use namewall_policy::domain::{DomainName, RulePattern};

    fn lease(number: usize, asked_by: u8, is_collected: bool) -> Lease {
        let name: DomainName = format!("n{number}.example.com").parse().expect("it is a name");
        let names = match is_collected {
            true => DomainPattern::Subdomains("example.com".parse().expect("it is a name")),
            false => DomainPattern::Exact(name.clone()),
        };
        let (address, expiry) = ([192, 0, 2, 1].into(), Instant(Duration::from_secs(35)));
        Lease { pattern: RulePattern::allow(names), name, address, expiry, asked_by: Some([10, 0, 0, asked_by].into()) }
    }

    #[test]
    fn s6_5_a_client_with_many_names_gives_way_to_others_and_to_names_of_rules() {
        let mut unpublished = Unpublished::default();
        let mut add = |leases: Vec<Lease>| {
            unpublished.add(leases, Duration::from_secs(5), &BTreeMap::new());
            let count = |client: u8| {
                let is_of = |one: &&UnpublishedName| one.asked_by == Some([10, 0, 0, client].into());
                unpublished.names.values().filter(is_of).count()
            };
            [count(1), count(2)]
        };
        assert_eq!(add((0..5_000).map(|number| lease(number, 1, true)).collect()), [1_000, 0]);
        assert_eq!(add((6_000..6_010).map(|number| lease(number, 2, true)).collect()), [990, 10]);
        assert_eq!(add((7_000..9_000).map(|number| lease(number, 2, true)).collect()), [500, 500], "a share for each");
        assert_eq!(add((9_000..9_010).map(|number| lease(number, 1, false)).collect()), [510, 500]);
    }
}
