//! DNS in memory, for tests in virtual time.

use namewall_dns::lookup::{Done, Found, Lookups, NO_SUCH_NAME, Order};
use namewall_runtime::{Clock, Instant, ManualClock, Random};
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// What names resolve to. Clones are the same.
#[derive(Clone, Debug)]
pub struct FakeDns {
    clock: ManualClock,
    random: Arc<dyn Random>,
    state: Arc<Mutex<State>>,
}

#[derive(Default, Debug)]
struct State {
    names: BTreeMap<String, Found>,
    /// What one server says of a name instead.
    exceptions: BTreeMap<(SocketAddr, String), Found>,
    /// The longest that an answer takes.
    delay: Duration,
    asked: Vec<Asked>,
}

/// A name that was asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Asked {
    pub at: Instant,
    pub name: String,
}

impl FakeDns {
    pub fn new(clock: ManualClock, random: Arc<dyn Random>) -> Self {
        Self { clock, random, state: Arc::default() }
    }

    pub fn set(&self, name: &str, addresses: &[(IpAddr, u32)]) {
        self.lock().names.insert(name.to_owned(), Ok(addresses.to_vec()));
    }

    pub fn fail(&self, name: &str, why: &str) {
        self.lock().names.insert(name.to_owned(), Err(why.to_owned()));
    }

    /// One server says something else of a name than all others.
    pub fn disagree(&self, server: SocketAddr, name: &str, found: Found) {
        self.lock().exceptions.insert((server, name.to_owned()), found);
    }

    /// All servers say the same.
    pub fn agree(&self) {
        self.lock().exceptions.clear();
    }

    pub fn set_delay(&self, delay: Duration) {
        self.lock().delay = delay;
    }

    /// Which names were asked for since this was last asked.
    pub fn take_asked(&self) -> Vec<Asked> {
        std::mem::take(&mut self.lock().asked)
    }

    /// A client of it.
    pub fn lookups(&self) -> FakeLookups {
        FakeLookups { dns: self.clone(), under_way: Vec::new() }
    }

    /// What a name resolves to now. One that is not known does not exist.
    pub fn resolve(&self, name: &str) -> Found {
        self.lock().names.get(name).cloned().unwrap_or_else(|| Err(NO_SUCH_NAME.to_owned()))
    }

    /// What these servers say together.
    fn resolve_at(&self, servers: &[SocketAddr], name: &str) -> Found {
        let usual = self.resolve(name);
        let state = self.lock();
        let said = |server: &SocketAddr| state.exceptions.get(&(*server, name.to_owned())).unwrap_or(&usual).clone();
        let found = servers.iter().map(said).reduce(|one, other| match (one, other) {
            (Ok(mut all), Ok(more)) => {
                all.extend(more);
                Ok(all)
            }
            (Ok(all), Err(_)) | (Err(_), Ok(all)) => Ok(all),
            (Err(why), Err(_)) => Err(why),
        });
        found.unwrap_or(usual)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Lookups that take a while.
#[derive(Debug)]
pub struct FakeLookups {
    dns: FakeDns,
    under_way: Vec<Answer>,
}

#[derive(Debug)]
struct Answer {
    at: Instant,
    done: Done,
}

impl Lookups for FakeLookups {
    fn order(&mut self, order: Order) {
        let now = self.dns.clock.now();
        let found = match order.servers.is_empty() {
            true => Err("NoResolver".to_owned()),
            false => self.dns.resolve_at(&order.servers, &order.name),
        };
        let mut state = self.dns.lock();
        state.asked.push(Asked { at: now, name: order.name.clone() });
        let at = now + self.dns.random.part_of(state.delay);
        self.under_way.push(Answer { at, done: Done { name: order.name, found, is_whole: true } });
    }

    fn take_done(&mut self) -> Vec<Done> {
        let now = self.dns.clock.now();
        self.under_way.extract_if(.., |answer| answer.at <= now).map(|answer| answer.done).collect()
    }
}
