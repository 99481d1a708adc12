//! What clients have asked lately, for rules against tunnels: how many questions a second (`client_rate`), and for how many
//! different names below one domain (`client_subdomains`).
//!
//! All of it takes a bounded number of places, which clients share. Where they are taken, the client with the most gives one
//! up: of its domains the one with the fewest names. So who asks for many domains in order to be forgotten loses these, and
//! the domain with most names stays.

mod domain;
mod sketch;

use domain::domain_of;
use namewall_dns::wire::Name;
use sketch::Sketch;
use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Places for clients and for the domains of each: some 300 bytes each, 5 MB in all.
const MOST_PLACES: usize = 16_384;
/// Domains of one client.
const MOST_DOMAINS: usize = 64;
/// Names are counted that were asked for in this and the last of such spans.
const NAMES_SPAN: Duration = Duration::from_secs(60);
/// The rate is that of so long.
const RATE_SPAN: Duration = Duration::from_secs(10);

/// What a client has asked lately, with the question that is judged.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Activity {
    /// Questions per second.
    pub(crate) rate: f64,
    /// Different names below the domain of the question: an estimate.
    pub(crate) subdomains: u64,
}

/// All clients.
#[derive(Debug)]
pub(crate) struct Clients {
    since: Instant,
    most_places: usize,
    /// Keyed by chance: clients must not know which names count as one.
    names: RandomState,
    known: Mutex<Known>,
    forgotten: AtomicU64,
}

#[derive(Debug, Default)]
struct Known {
    clients: HashMap<IpAddr, Client>,
    /// By who gives way: the last.
    order: BTreeSet<Rank>,
    /// A place for each client and for each domain of one.
    places: usize,
}

/// How many domains of a client are known, in which span of time it asked last, and its address.
type Rank = (usize, Reverse<u64>, IpAddr);

#[derive(Debug)]
struct Client {
    rate: Rate,
    /// The span in which it asked last.
    last: u64,
    domains: Vec<Domain>,
}

/// The names that a client asked for below a domain.
#[derive(Debug)]
struct Domain {
    /// The hash of the domain.
    key: u64,
    /// The span that `now` is of.
    span: u64,
    now: Sketch,
    before: Sketch,
    /// The last estimate.
    names: u64,
}

/// Questions in this span of time, and in the one before.
#[derive(Debug, Default)]
struct Rate {
    span: u64,
    now: u32,
    before: u32,
}

impl Default for Clients {
    fn default() -> Self {
        Self::new(MOST_PLACES, Instant::now())
    }
}

impl Clients {
    fn new(most_places: usize, since: Instant) -> Self {
        let (names, known) = (RandomState::new(), Mutex::default());
        Self { since, most_places, names, known, forgotten: AtomicU64::new(0) }
    }

    /// Counts a question.
    pub(crate) fn count(&self, client: IpAddr, name: &Name, now: Instant) -> Activity {
        let age = now.saturating_duration_since(self.since);
        let span = age.as_secs() / NAMES_SPAN.as_secs();
        let (domain, is_below) = domain_of(name.as_bytes());
        let (domain, name) = (self.names.hash_one(domain), self.names.hash_one(name.as_bytes()));
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let known = &mut *known;
        let forgotten = known.make_room_for(client, self.most_places);
        let of = known.visit(client, span);
        let rate = of.rate.count(age);
        let Some(at) = of.domains.iter().position(|one| one.key == domain) else {
            if !is_below {
                self.forgotten.fetch_add(forgotten, Ordering::Relaxed);
                return Activity { rate, subdomains: 0 };
            }
            let mut new = Domain::new(domain, span);
            let subdomains = new.count(name, span);
            let more = known.add(client, new, self.most_places);
            self.forgotten.fetch_add(forgotten + more, Ordering::Relaxed);
            return Activity { rate, subdomains };
        };
        self.forgotten.fetch_add(forgotten, Ordering::Relaxed);
        let domain = &mut of.domains[at];
        let subdomains = if is_below { domain.count(name, span) } else { domain.moved_to(span).names };
        Activity { rate, subdomains }
    }

    /// Clients and domains of clients that gave way to others.
    pub(crate) fn forgotten(&self) -> u64 {
        self.forgotten.load(Ordering::Relaxed)
    }
}

impl Known {
    /// The client, as one that asks now.
    fn visit(&mut self, address: IpAddr, span: u64) -> &mut Client {
        let client = self.clients.entry(address).or_insert_with(|| {
            self.places += 1;
            self.order.insert((0, Reverse(span), address));
            Client { rate: Rate::default(), last: span, domains: Vec::new() }
        });
        if client.last != span {
            self.order.remove(&client.rank(address));
            let before = client.domains.len();
            client.domains.retain(|domain| domain.span + 1 >= span);
            self.places -= before - client.domains.len();
            client.last = span;
            self.order.insert(client.rank(address));
        }
        client
    }

    /// Adds a domain to a client that is known. Returns how many others gave way.
    fn add(&mut self, address: IpAddr, domain: Domain, most_places: usize) -> u64 {
        let mut forgotten = 0;
        if self.clients.get(&address).is_some_and(|client| client.domains.len() >= MOST_DOMAINS) {
            self.forget_from(address);
            forgotten += 1;
        }
        while self.places >= most_places && self.forget_one(address) {
            forgotten += 1;
        }
        let Some(client) = self.clients.get_mut(&address) else { return forgotten };
        self.order.remove(&client.rank(address));
        client.domains.push(domain);
        self.order.insert(client.rank(address));
        self.places += 1;
        forgotten
    }

    /// Makes room for a client, if it is new. Returns how many others gave way.
    fn make_room_for(&mut self, address: IpAddr, most_places: usize) -> u64 {
        let mut forgotten = 0;
        while !self.clients.contains_key(&address) && self.places >= most_places && self.forget_one(address) {
            forgotten += 1;
        }
        forgotten
    }

    /// The client with the most domains gives one up; of several with as many the one that has not asked for longest. A
    /// client without a domain is forgotten, unless it is the one that asks.
    fn forget_one(&mut self, asking: IpAddr) -> bool {
        let ranks = || self.order.iter().rev();
        let Some(&(_, _, address)) = ranks().find(|(domains, _, address)| *domains > 0 || *address != asking) else {
            return false;
        };
        self.forget_from(address);
        true
    }

    /// The domain of a client with the fewest names is forgotten, or the client if it has none.
    fn forget_from(&mut self, address: IpAddr) {
        let Some(client) = self.clients.get_mut(&address) else { return };
        self.order.remove(&client.rank(address));
        self.places -= 1;
        let fewest = client.domains.iter().enumerate().min_by_key(|(_, domain)| (domain.names, domain.span));
        match fewest.map(|(at, _)| at) {
            Some(at) => {
                client.domains.swap_remove(at);
                self.order.insert(client.rank(address));
            }
            None => _ = self.clients.remove(&address),
        }
    }
}

impl Client {
    fn rank(&self, address: IpAddr) -> Rank {
        (self.domains.len(), Reverse(self.last), address)
    }
}

impl Domain {
    fn new(key: u64, span: u64) -> Self {
        Self { key, span, now: Sketch::default(), before: Sketch::default(), names: 0 }
    }

    /// Counts a name; returns how many different ones there are.
    fn count(&mut self, name: u64, span: u64) -> u64 {
        let domain = self.moved_to(span);
        if domain.now.add(name) {
            domain.names = domain.now.count_with(&domain.before);
        }
        domain.names
    }

    /// Goes on to another span of time.
    fn moved_to(&mut self, span: u64) -> &mut Self {
        if self.span != span {
            let now = std::mem::take(&mut self.now);
            self.before = if self.span + 1 == span { now } else { Sketch::default() };
            self.span = span;
            self.names = self.now.count_with(&self.before);
        }
        self
    }
}

impl Rate {
    /// Counts a question; returns how many there are per second. Those of the span before count for as much of it as is not
    /// longer ago than a span.
    fn count(&mut self, age: Duration) -> f64 {
        let (span, length) = (age.as_secs() / RATE_SPAN.as_secs(), RATE_SPAN.as_secs_f64());
        if self.span != span {
            self.before = if self.span + 1 == span { self.now } else { 0 };
            (self.span, self.now) = (span, 0);
        }
        self.now = self.now.saturating_add(1);
        let left = 1.0 - (age.as_secs_f64() / length).fract();
        let rate = (f64::from(self.before) * left + f64::from(self.now)) / length;
        (rate * 10.0).round() / 10.0
    }
}

#[cfg(test)]
mod tests;
