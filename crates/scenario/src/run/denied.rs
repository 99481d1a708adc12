//! Names that a rule denies, as time goes by: the agent keeps their addresses
//! until a successful answer replaces them (S8.7). A lease whose TTL is over is
//! granted again, and the agent looks its name up.

use super::Player;
use crate::zones::{Message, Name, Rcode, RecordType, Transport};
use namewall_policy::domain::DomainName;
use namewall_policy::lease::Learned;
use namewall_policy::{Instant, Lease, LeaseRef};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

/// How often the agent looks.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How soon it looks a name up, and how soon again after failures: at first, and after so many.
const WAIT: Duration = Duration::from_secs(1);
const TRY_AGAIN: Duration = Duration::from_secs(5);
const SOON: u32 = 5;
const TRY_RARELY: Duration = Duration::from_secs(60);
/// Leases are granted again so long before they end, or with their grace if that is longer.
const KEEP_BEFORE: Duration = Duration::from_secs(3);

/// A name whose addresses are kept.
#[derive(Debug)]
pub(super) struct KeptName {
    due: Instant,
    failures: u32,
    /// When an answer last replaced all addresses that were kept until then.
    answered: Option<Instant>,
    /// Since when each address is kept, and the end of the lease that was granted last.
    kept: BTreeMap<IpAddr, (Instant, Instant)>,
}

pub(super) type KeptNames = BTreeMap<DomainName, KeptName>;

impl KeptName {
    fn interval(&self) -> Duration {
        if self.failures > SOON { TRY_RARELY } else { TRY_AGAIN }
    }
}

impl Player<'_> {
    /// Lets time go by. While a rule denies a name of which an address is known, second by second.
    pub(super) fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            let last = self.now;
            let is_kept = self.agent.gone.is_none() && self.denies_a_name(last);
            self.now = if is_kept { end.min(last + LOOK_EVERY) } else { end };
            if is_kept {
                self.keep_denied(last);
            }
        }
    }

    /// True if a rule denies an address by its name.
    fn denies_a_name(&self, now: Instant) -> bool {
        self.leases.iter().any(|lease| lease.pattern.denies() && lease.expiry > now)
    }

    /// Grants again what ends soon, or has ended since it was last looked.
    fn keep_denied(&mut self, last: Instant) {
        let (now, grace) = (self.now, self.agent.lifetimes.grace);
        let ends = |lease: &LeaseRef<'_>| lease.expiry > last && lease.expiry <= now + grace.max(KEEP_BEFORE);
        let denied = self.leases.iter().filter(|lease| lease.pattern.denies() && ends(lease));
        let ending: Vec<Lease> = denied.map(LeaseRef::to_lease).collect();
        for lease in ending {
            let name = self.kept.entry(lease.name.clone()).or_insert_with(|| KeptName {
                due: now + WAIT,
                failures: 0,
                answered: None,
                kept: BTreeMap::new(),
            });
            let same = name.kept.get(&lease.address).filter(|(_, expiry)| *expiry == lease.expiry);
            let since = same.map_or(now, |(since, _)| *since);
            if name.answered.is_some_and(|answered| answered >= since) {
                continue;
            }
            let expiry = now + name.interval() + grace + LOOK_EVERY;
            name.kept.insert(lease.address, (since, expiry));
            let again = Lease { expiry, ..lease };
            if self.given.has(&again, last) {
                self.given.grant(again.clone());
            }
            self.leases.grant(again);
        }
        for name in self.kept.values_mut() {
            name.kept.retain(|_, (_, expiry)| *expiry > now);
        }
        self.kept.retain(|_, name| !name.kept.is_empty());
        let due: Vec<DomainName> =
            self.kept.iter().filter(|(_, name)| name.due <= now).map(|(name, _)| name.clone()).collect();
        due.into_iter().for_each(|name| self.look_up_denied(&name));
    }

    fn look_up_denied(&mut self, name: &DomainName) {
        let (now, found) = (self.now, self.whole_answer(name));
        let Some(kept) = self.kept.get_mut(name) else { return };
        match &found {
            Some(_) => (kept.answered, kept.failures, kept.due) = (Some(now), 0, now + TRY_RARELY),
            None => {
                kept.failures += 1;
                kept.due = now + kept.interval();
            }
        }
        self.state();
        let Some(state) = &self.state else { return };
        for (address, ttl) in found.into_iter().flatten() {
            let (name, addresses, expiry) = (name.clone(), vec![address], self.agent.lifetimes.expiry(ttl, now));
            let learned = Learned { name, addresses, expiry, asked_by: None };
            state.never_leased.learn(&state.program, &learned, &mut self.leases);
        }
    }

    /// The addresses of a name, from a server that has answered for both A and AAAA; None if there is no such server, or
    /// if it knows no address.
    fn whole_answer(&mut self, name: &DomainName) -> Option<Vec<(IpAddr, Duration)>> {
        let name: Name = name.as_str().parse().ok()?;
        let servers = self.upstreams();
        let mut whole = None;
        for server in servers {
            let answer = |player: &mut Self, kind| player.agent_asks(server, &name, kind);
            let (Some(v4), Some(v6)) = (answer(self, RecordType::A), answer(self, RecordType::AAAA)) else { continue };
            whole = Some([v4, v6].concat());
            break;
        }
        whole.filter(|addresses| !addresses.is_empty())
    }

    /// What a server answers the agent itself: None if it does not, or not with NOERROR.
    fn agent_asks(&mut self, server: IpAddr, name: &Name, kind: RecordType) -> Option<Vec<(IpAddr, Duration)>> {
        let query = Message::query(kind.0, name.clone(), kind).write();
        for transport in [Transport::Udp, Transport::Tcp] {
            let (message, leasable) = self.first_reply(server, &query, transport)?;
            if message.truncated {
                continue;
            }
            return (message.rcode == Rcode::NOERROR).then_some(leasable.addresses);
        }
        None
    }
}
