//! Policy zones of servers, kept current by the times of their SOA, each on a thread of its own.

use super::transfer::{Wanted, fetch};
use crate::metrics::ListCounts;
use crate::tell::Teller;
use crate::watch::{Loads, replace};
use namewall_corefile::{Expired, Zone};
use namewall_zones::{PolicyBounds, PolicyZone, Transferred};
use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};
use std::time::{Duration, Instant};

/// How often servers are asked, whatever an SOA says.
const LEAST: Duration = Duration::from_secs(1);
const MOST: Duration = Duration::from_secs(86_400);
/// How often they are asked while there is no version of the zone.
const WITHOUT: Duration = Duration::from_secs(5);
/// How soon a thread notices that nobody asks for its zone any more.
const STEP: Duration = Duration::from_millis(200);

/// What is followed.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Followed {
    pub(crate) zone: Zone,
    pub(crate) servers: Vec<SocketAddr>,
    pub(crate) expired: Expired,
    pub(crate) bounds: PolicyBounds,
}

/// A policy zone of servers.
pub(crate) struct Follower {
    followed: Followed,
    /// The name of the zone on the wire.
    origin: Vec<u8>,
    now: RwLock<Arc<Option<PolicyZone>>>,
    begun: Instant,
    /// Milliseconds from the beginning to when the zone expires.
    until: AtomicU64,
    is_told_expired: AtomicBool,
    loads: Loads,
}

/// All that are in use. They go on when the Corefile is read again.
#[derive(Debug, Default)]
pub(crate) struct Followers(Mutex<Vec<Weak<Follower>>>);

impl Followers {
    /// The zone, which is followed from now on if it is not already.
    pub(crate) fn open(&self, followed: Followed, teller: &Arc<Teller>) -> Result<Arc<Follower>, String> {
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|one| one.strong_count() > 0);
        if let Some(known) = open.iter().filter_map(Weak::upgrade).find(|one| one.followed == followed) {
            return Ok(known);
        }
        // With other options for the same zone, the version in memory counts until the servers have answered.
        let live = open.iter().filter_map(Weak::upgrade).filter(|one| one.has_version_for(&followed));
        let follower = Arc::new(match live.max_by_key(|one| one.expiry()) {
            Some(last) => last.with_options(followed),
            None => Follower::new(followed),
        });
        let (weak, teller) = (Arc::downgrade(&follower), teller.clone());
        let follow = move || follow(&weak, &teller);
        std::thread::Builder::new().name("rpz".to_owned()).spawn(follow).map_err(|error| error.to_string())?;
        open.push(Arc::downgrade(&follower));
        Ok(follower)
    }

    pub(crate) fn counts(&self) -> Vec<ListCounts> {
        let open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let counts = |one: Arc<Follower>| ListCounts {
            label: format!("rpz {}", one.followed.zone),
            entries: one.zone().as_ref().as_ref().map_or(0, PolicyZone::len) as u64,
            loaded: one.loads.last(),
            failures: one.loads.failures(),
        };
        open.iter().filter_map(Weak::upgrade).map(counts).collect()
    }
}

fn wire(zone: &Zone) -> Vec<u8> {
    let mut wire = Vec::new();
    if let Zone::Name(name) = zone {
        for label in name.labels() {
            wire.push(label.len() as u8);
            wire.extend(label.as_bytes());
        }
    }
    wire.push(0);
    wire
}

/// How long servers are not asked, by a time of the SOA: not so long that the zone expires while they could answer.
fn pause(time: Duration, expire: Duration) -> Duration {
    time.min(expire / 2).clamp(LEAST, MOST)
}

/// Asks the servers again and again, until nobody wants to know any more.
fn follow(weak: &Weak<Follower>, teller: &Teller) {
    loop {
        let Some(follower) = weak.upgrade() else { return };
        let next = Instant::now() + follower.refresh(teller);
        drop(follower);
        while Instant::now() < next {
            std::thread::sleep(STEP.min(next.saturating_duration_since(Instant::now())));
            let Some(follower) = weak.upgrade() else { return };
            follower.tell_expired(teller);
        }
    }
}

impl Follower {
    /// Without a version of the zone.
    fn new(followed: Followed) -> Self {
        Self {
            origin: wire(&followed.zone),
            followed,
            now: RwLock::new(Arc::new(None)),
            begun: Instant::now(),
            until: AtomicU64::new(0),
            is_told_expired: AtomicBool::new(false),
            loads: Loads::default(),
        }
    }

    /// With the version of this one, which expires when it would here.
    fn with_options(&self, followed: Followed) -> Self {
        Self {
            now: RwLock::new(self.zone()),
            begun: self.begun,
            until: AtomicU64::new(self.until.load(Ordering::Relaxed)),
            loads: self.loads.without_failures(),
            ..Self::new(followed)
        }
    }

    /// Whether its version may count for other options. Zones of the same name that have no server in common may be
    /// different ones.
    fn has_version_for(&self, followed: &Followed) -> bool {
        let is_same = self.followed.zone == followed.zone
            && self.followed.servers.iter().any(|server| followed.servers.contains(server));
        is_same && self.zone().as_ref().as_ref().is_some_and(|zone| zone.fits(followed.bounds))
    }

    fn expiry(&self) -> Instant {
        let until = Duration::from_millis(self.until.load(Ordering::Relaxed));
        self.begun.checked_add(until).unwrap_or(self.begun)
    }

    fn zone(&self) -> Arc<Option<PolicyZone>> {
        self.now.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Asks the zone as it is now. An error is that there is none, or that it has expired.
    pub(crate) fn with<T>(&self, ask: impl FnOnce(&PolicyZone) -> T) -> Result<T, &'static str> {
        let zone = self.zone();
        match zone.as_ref() {
            None => Err("the policy zone has not been transferred yet"),
            Some(_) if self.is_expired() && self.followed.expired == Expired::ServFail => {
                Err("the policy zone has expired")
            }
            Some(zone) => Ok(ask(zone)),
        }
    }

    fn is_expired(&self) -> bool {
        self.begun.elapsed().as_millis() as u64 > self.until.load(Ordering::Relaxed)
    }

    /// Whether there is a version of the zone, or servers were asked for one in vain.
    pub(crate) fn is_settled(&self) -> bool {
        self.zone().is_some() || self.loads.failures() > 0
    }

    /// Asks the servers. Returns when they are to be asked again.
    fn refresh(&self, teller: &Teller) -> Duration {
        let Followed { zone, servers, bounds, .. } = &self.followed;
        let before = self.zone();
        let timers = before.as_ref().as_ref().and_then(PolicyZone::timers);
        for server in servers {
            let wanted = Wanted { origin: &self.origin, before: before.as_ref().as_ref(), bounds: *bounds };
            match fetch(*server, wanted) {
                Ok(transferred) => {
                    drop(before);
                    return self.take(transferred, *server, teller);
                }
                Err(why) => teller.tell(format!("[ERROR] rpz {zone}: {server}: {why}{}", self.consequence())),
            }
        }
        self.loads.failed();
        timers.map_or(WITHOUT, |timers| pause(timers.retry, timers.expire))
    }

    /// What counts while the zone cannot be transferred.
    fn consequence(&self) -> &'static str {
        match self.zone().as_ref() {
            None => "; questions get SERVFAIL until it is transferred",
            Some(_) => "; the last version goes on to count",
        }
    }

    fn take(&self, transferred: Transferred, server: SocketAddr, teller: &Teller) -> Duration {
        let zone = &self.followed.zone;
        if let Transferred::Zone(new) = transferred {
            if new.of_servers() > 0 {
                teller.tell(format!("[WARNING] rpz {zone}: {}", not_asked(new.of_servers())));
            }
            let serial = new.timers().map_or(0, |timers| timers.serial);
            teller.tell(format!("[INFO] rpz {zone}: serial {serial}, {} records from {server}", new.len()));
            replace(&self.now, Some(*new));
        }
        self.loads.succeeded();
        let Some(timers) = self.zone().as_ref().as_ref().and_then(PolicyZone::timers) else { return WITHOUT };
        let until = self.begun.elapsed() + timers.expire;
        self.until.store(u64::try_from(until.as_millis()).unwrap_or(u64::MAX), Ordering::Relaxed);
        self.is_told_expired.store(false, Ordering::Relaxed);
        pause(timers.refresh, timers.expire)
    }

    /// Tells once that the zone has expired.
    fn tell_expired(&self, teller: &Teller) {
        if self.zone().is_none() || !self.is_expired() || self.is_told_expired.swap(true, Ordering::Relaxed) {
            return;
        }
        let what = match self.followed.expired {
            Expired::ServFail => "questions get SERVFAIL until it is transferred",
            Expired::Keep => "the last version goes on to count (`expired keep`)",
        };
        teller.tell(format!("[ERROR] rpz {}: it has expired; {what}", self.followed.zone));
    }
}

/// The warning about triggers that a forwarder cannot evaluate (name servers of a domain).
pub(super) fn not_asked(count: usize) -> String {
    format!(
        "{count} triggers of `rpz-nsdname` or `rpz-nsip` are not supported: a forwarder does not see servers of zones"
    )
}

impl fmt::Debug for Follower {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Follower({})", self.followed.zone)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_asked_before_the_zone_expires() {
        let seconds = Duration::from_secs;
        for (time, expire, expected) in [
            (3600, 86_400, 3600),
            (7200, 3600, 1800),
            (86_400, 60, 30),
            (0, 3600, 1),
            (5, 1, 1),
            (604_800, 2_419_200, 86_400),
        ] {
            assert_eq!(pause(seconds(time), seconds(expire)), seconds(expected), "{time} {expire}");
        }
    }
}
