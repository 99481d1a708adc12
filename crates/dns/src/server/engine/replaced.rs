//! Upstreams by their numbers. One that no route leads to any more is dropped when the last query that may still go
//! there is over: its sockets and its connection are closed, it is not probed, and another may have its number.

use super::Engine;
use super::queries::registering;
use crate::learn::Learn;
use crate::server::pending::Pending;
use crate::server::ports;
use crate::server::settings;
use crate::server::tcp::ConnectionOwner;
use crate::server::upstream::Upstream;

/// So many sockets are closed once a second while no question is under way: all of an upstream's in half a minute.
pub(super) const CLOSED_IN_A_SWEEP: usize = 32;

impl<L: Learn> Engine<L> {
    /// The numbers of upstreams; such as are new are added.
    pub(super) fn upstreams_at(&mut self, servers: &[settings::Upstream]) -> Vec<usize> {
        let at = |server: &settings::Upstream| {
            let known = self.upstreams.iter().position(|upstream| upstream.settings == *server);
            let place = known.or_else(|| self.vacant.pop());
            let at = place.unwrap_or(self.upstreams.len());
            match self.upstreams.get_mut(at) {
                None => self.upstreams.push(Upstream::new(server.clone())),
                Some(_) if known.is_some() => {}
                Some(place) => *place = Upstream::new(server.clone()),
            }
            at
        };
        let numbers: Vec<usize> = servers.iter().map(at).collect();
        self.vacant.retain(|at| !numbers.contains(at));
        for &at in &numbers {
            self.upstreams[at].is_replaced = false;
        }
        numbers
    }

    /// Sockets that each upstream may have.
    pub(super) fn sockets_of_each(&self) -> usize {
        let upstreams = self.upstreams.len() - self.vacant.len();
        (self.most_sockets / upstreams.max(1)).clamp(1, ports::MOST_SOCKETS)
    }

    /// Marks upstreams that no route leads to, and drops those of them that no query waits for.
    pub(super) fn drop_replaced(&mut self) {
        let routes = || self.routes.iter().chain(&self.named_routes).chain(self.servers.values());
        let wanted: Vec<bool> =
            (0..self.upstreams.len()).map(|at| routes().any(|route| route.upstreams.contains(&at))).collect();
        for (at, is_wanted) in wanted.into_iter().enumerate() {
            self.upstreams[at].is_replaced = !is_wanted;
            if !is_wanted {
                for number in self.upstreams[at].ports.close_spare() {
                    self.sockets.remove(&number);
                }
            }
            if !is_wanted && !self.vacant.contains(&at) && !self.pending.iter().any(|one| may_ask(one, at)) {
                self.vacate(at);
            }
        }
    }

    fn vacate(&mut self, at: usize) {
        for number in self.upstreams[at].drop_all() {
            self.sockets.remove(&number);
        }
        let of_it = |end| end == ConnectionOwner::Upstream(at);
        let connections: Vec<u32> =
            self.connections.iter().filter(|(_, one)| of_it(one.end)).map(|(slot, _)| slot).collect();
        connections.into_iter().for_each(|slot| self.end(slot));
        self.upstreams[at].https.end();
        self.vacant.push(at);
    }

    /// Opens and closes sockets to upstreams, one of each in a turn. It is called after a turn has sent what it had to
    /// send.
    pub(super) fn tend_ports(&mut self) {
        if !self.upstreams.iter().any(|upstream| upstream.ports.want_tending()) {
            return;
        }
        // Turns at a pace have time between them.
        let is_calm = self.is_busy || self.pending.len() == 0;
        let most = self.sockets_of_each();
        for at in 0..self.upstreams.len() {
            let is_asked = !self.upstreams[at].is_replaced;
            let (ports, random) = (&mut self.upstreams[at].ports, &mut self.random);
            let (epoll, sockets, next) = (&self.epoll, &mut self.sockets, &mut self.next_socket);
            if is_asked && ports.want_another(is_calm) {
                ports.open_ahead(random, most, registering(epoll, sockets, next, at));
            }
            if let Some(number) = ports.close_one() {
                sockets.remove(&number);
            }
        }
    }

    /// Drops what upstreams no longer need, once a second.
    pub(super) fn sweep_upstreams(&mut self) {
        let (most, is_idle) = (self.sockets_of_each(), self.pending.len() == 0);
        for upstream in &mut self.upstreams {
            upstream.ports.retire_old(self.now, most);
            // Without questions there are few turns, and nobody waits.
            let at_once = if is_idle { CLOSED_IN_A_SWEEP } else { 0 };
            for number in std::iter::from_fn(|| upstream.ports.close_one()).take(at_once) {
                self.sockets.remove(&number);
            }
            let idle = upstream.settings.idle_timeout.unwrap_or(self.settings.idle_timeout);
            upstream.https.end_idle(self.now, idle);
        }
        if self.upstreams.iter().filter(|upstream| upstream.is_replaced).count() > self.vacant.len() {
            self.drop_replaced();
        }
    }
}

/// True if a query waits for an upstream, or may still be sent to it.
fn may_ask(pending: &Pending, upstream: usize) -> bool {
    let by_chain = pending.chain_version.iter().flat_map(|version| &version.routes);
    pending.upstream == upstream
        || pending.route.iter().chain(by_chain).any(|route| route.upstreams.contains(&upstream))
}
