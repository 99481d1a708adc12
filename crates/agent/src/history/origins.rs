//! Which answer opened a lease: of which server, by way of which names, for how
//! long. It decides nothing; it says later where a lease came from.

use namewall_policy::domain::DomainName;
use rustc_hash::FxHashMap;
use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The answer that opened a lease.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Origin {
    /// The server that gave it.
    pub(crate) upstream: Option<SocketAddr>,
    /// Its TTL, in seconds.
    pub(crate) ttl: u32,
    /// The names that its CNAMEs lead over, in order; the last one owns the address. Empty if that is the name of the
    /// question. Of a long chain, only the last one is kept.
    pub(crate) owners: Vec<DomainName>,
}

/// Owners that take more bytes than this are not all kept.
const MOST_OWNER_BYTES: usize = 512;

impl Origin {
    pub(crate) fn new(upstream: Option<SocketAddr>, ttl: u32, mut owners: Vec<DomainName>) -> Self {
        if owners.iter().map(|owner| owner.as_str().len()).sum::<usize>() > MOST_OWNER_BYTES {
            owners.drain(..owners.len() - 1);
        }
        Self { upstream, ttl, owners }
    }
}

/// Which lease is meant, whatever its pattern.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct LeaseKey {
    pub(crate) name: DomainName,
    pub(crate) address: IpAddr,
}

type Client = Option<IpAddr>;

/// So many origins are kept.
const MOST: usize = 16_384;

/// The origins of leases, within a bound that is shared by the clients that asked.
#[derive(Debug)]
pub(crate) struct Origins {
    inner: Mutex<Inner>,
    most: usize,
}

#[derive(Default, Debug)]
struct Inner {
    known: HashMap<LeaseKey, Arc<Origin>>,
    /// As they came.
    by_client: FxHashMap<Client, VecDeque<LeaseKey>>,
    forgotten: u64,
}

impl Default for Origins {
    fn default() -> Self {
        Self { inner: Mutex::default(), most: MOST }
    }
}

impl Origins {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes the answer that opens a lease. Where there is no room, the client with the most gives up its oldest.
    pub(crate) fn note(&self, key: LeaseKey, client: Client, origin: Arc<Origin>) {
        let mut inner = self.lock();
        if let Some(known) = inner.known.get_mut(&key) {
            *known = origin;
            return;
        }
        if inner.known.len() >= self.most {
            inner.forget_oldest_of_the_largest();
        }
        inner.by_client.entry(client).or_default().push_back(key.clone());
        inner.known.insert(key, origin);
    }

    pub(crate) fn get(&self, key: &LeaseKey) -> Option<Arc<Origin>> {
        self.lock().known.get(key).cloned()
    }

    /// Forgets the origins of leases that are gone.
    pub(crate) fn keep_only(&self, is_kept: impl Fn(&LeaseKey) -> bool) {
        let Inner { known, by_client, .. } = &mut *self.lock();
        by_client.retain(|_, keys| {
            keys.retain(|key| {
                let stays = is_kept(key);
                if !stays {
                    known.remove(key);
                }
                stays
            });
            !keys.is_empty()
        });
    }

    /// How many were forgotten to make room.
    pub(crate) fn forgotten(&self) -> u64 {
        self.lock().forgotten
    }
}

impl Inner {
    fn forget_oldest_of_the_largest(&mut self) {
        let largest = self.by_client.iter_mut().max_by_key(|(_, keys)| keys.len());
        let Some((&client, keys)) = largest else { return };
        if let Some(oldest) = keys.pop_front() {
            self.known.remove(&oldest);
            self.forgotten += 1;
        }
        if keys.is_empty() {
            self.by_client.remove(&client);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: u32) -> LeaseKey {
        LeaseKey { name: "api.example.com".parse().expect("a name"), address: IpAddr::V4(number.into()) }
    }

    fn origin(ttl: u32) -> Arc<Origin> {
        Arc::new(Origin::new(Some(([192, 0, 2, 53], 53).into()), ttl, Vec::new()))
    }

    #[test]
    fn s6_5_a_flood_of_answers_forgets_the_origins_of_its_own() {
        let origins = Origins { most: 100, ..Origins::default() };
        let (small, flood) = (Some([10, 0, 0, 1].into()), Some([10, 0, 0, 2].into()));
        (0..10).for_each(|number| origins.note(key(number), small, origin(1)));
        (100..1_100).for_each(|number| origins.note(key(number), flood, origin(2)));
        assert!((0..10).all(|number| origins.get(&key(number)).is_some()), "no other client's");
        assert_eq!(origins.forgotten(), 910);
        assert!(origins.get(&key(100)).is_none() && origins.get(&key(1_099)).is_some(), "the oldest go first");
        // A lease that is renewed takes no more room, and has the answer that renewed it.
        origins.note(key(1_099), flood, origin(3));
        assert_eq!((origins.forgotten(), origins.get(&key(1_099)).map(|one| one.ttl)), (910, Some(3)));
        origins.keep_only(|key| key.address == IpAddr::V4(5.into()));
        assert!(origins.get(&key(5)).is_some() && origins.get(&key(6)).is_none());
        let left = origins.lock();
        assert_eq!((left.known.len(), left.by_client.len()), (1, 1));
    }

    #[test]
    fn of_a_long_chain_the_owner_of_the_address_is_kept() {
        let owner = |at: usize| format!("{}{at}.example.com", "a".repeat(60)).parse().expect("a name");
        let owners: Vec<DomainName> = (0..16).map(owner).collect();
        assert_eq!(Origin::new(None, 1, owners.clone()).owners, owners[15..]);
        assert_eq!(Origin::new(None, 1, owners[..3].to_vec()).owners, owners[..3]);
    }
}
