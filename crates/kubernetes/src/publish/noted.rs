//! What is to be written of a name, and how it grows old. Pure; time is an
//! argument.

use namewall_cluster::resolver::{DeniedNames, Lookup, Resolver, Settings};
use namewall_runtime::Instant;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

/// How long a failure is worth to be told.
const GIVE_UP: Duration = Duration::from_secs(30);

/// What became of a lookup.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// Addresses with their TTLs.
    Found(Vec<(IpAddr, u32)>),
    /// The name of the rcode, or why there is none.
    Failed(String),
    /// The same for a name that some rule denies: it keeps its addresses for as long as it fails (S8.7).
    Kept(String),
    /// The same for a name of which no address is known: its object says why (S8.7).
    Unresolved(String),
    /// The lookup still waits for its turn. The name keeps its addresses, and no failure is counted.
    Postponed,
    /// Time went by: what is over goes, unless it is of a name that some rule denies.
    Passed(DeniedNames),
}

/// What became of the lookups of names, in their order.
pub(super) type Batch = BTreeMap<String, Vec<Noted>>;

#[derive(Clone, Debug)]
pub(super) struct Noted {
    pub(super) outcome: Outcome,
    pub(super) at: Instant,
}

impl Noted {
    /// Whether it says all that another said, later.
    pub(super) fn replaces(&self, other: &Self) -> bool {
        let same = |ours: &[(IpAddr, u32)], theirs: &[(IpAddr, u32)]| {
            ours.len() == theirs.len() && theirs.iter().all(|(ip, _)| ours.iter().any(|(one, _)| one == ip))
        };
        match (&self.outcome, &other.outcome) {
            (Outcome::Found(ours), Outcome::Found(theirs)) => same(ours, theirs),
            (Outcome::Passed(_), Outcome::Passed(_)) | (Outcome::Postponed, Outcome::Postponed) => true,
            _ => false,
        }
    }

    /// How much longer it is worth to be told.
    pub(super) fn until(&self, settings: Settings) -> Instant {
        let longest = match &self.outcome {
            Outcome::Found(addresses) => addresses.iter().map(|(_, ttl)| lasts(*ttl, settings)).max(),
            _ => None,
        };
        self.at + longest.unwrap_or(GIVE_UP)
    }

    /// Changes a status by it. False if the status says so already.
    pub(super) fn apply(&self, lookup: Lookup<'_>, now: Instant, resolver: &mut Resolver<'_>) -> bool {
        let settings = lookup.settings;
        match &self.outcome {
            Outcome::Found(addresses) => {
                let age = Duration::from_secs(now.since(self.at).as_secs());
                let left = |ttl: u32| lasts(ttl, settings).checked_sub(age).filter(|left| !left.is_zero());
                let seconds = |left: Duration| u32::try_from(left.as_secs()).unwrap_or(u32::MAX);
                let good = addresses.iter().filter_map(|(ip, ttl)| Some((*ip, seconds(left(*ttl)?))));
                resolver.found(lookup, &good.collect::<Vec<_>>())
            }
            Outcome::Failed(rcode) => resolver.failed(lookup, rcode),
            Outcome::Kept(rcode) => resolver.failed(lookup.keeping_its_name(), rcode),
            Outcome::Unresolved(rcode) => resolver.unresolved(lookup, rcode),
            Outcome::Postponed => resolver.postponed(lookup),
            Outcome::Passed(denied) => resolver.prune(lookup.now, settings.grace, denied),
        }
    }
}

fn lasts(ttl: u32, settings: Settings) -> Duration {
    let minimum = u64::from(settings.minimum_ttl.unsigned_abs());
    Duration::from_secs(if ttl == 0 { minimum } else { ttl.into() })
}
