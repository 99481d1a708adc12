//! TCP connections that were cut, as the kernel is told to remember them.
//!
//! ```text
//! client                 node, after the cut                       server
//!   │                      (knows of no connection)        "hello"  │
//!   │      is it new? may the server open it? ◄─────────────────────┤
//! ```
//! To the kernel the server's packet is a connection that the server opens, and
//! where it may, the cut one would live on. So packets of either end are
//! answered with a reset, for as long as an end may still take the connection
//! for open. The addresses are those the forward hook sees: the client's own,
//! and the backend's behind a Service. Once the translation is forgotten the
//! backend's packets have them too; the client's packets get them by being
//! translated again. A client of a Service must hear the reset from the Service's
//! address: for it a third element has its packets as they come, before they are
//! translated.
//!
//! UDP and SCTP need no such memory. A datagram has no beginning that could be
//! told, so the next one of a flow that was cut is judged like any other; and
//! SCTP opens a connection only by an INIT.
//!
//! The room is shared: each connection is held by one pod, and when there is no
//! room left, the pod that holds most gives way with its oldest.

// Elements that an earlier process left may have any bytes: they must not make this code panic.
#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use crate::conntrack::Connection;
use crate::nft::rule::TCP;
use crate::nft::set::{Element, Key, Lifetime, Passing, SWEEP, Transient, Version, read_address};
use namewall_policy::port::Protocol;
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

/// Longer than an idle TCP connection takes to notice, by the kernel's keep-alive of two hours and eleven minutes. A
/// new connection between the same ports begins with a SYN and is not held up.
const TCP_LIFE: Duration = Duration::from_secs(3 * 3600);
/// What has expired takes room until the kernel sweeps.
const HELD_FOR: Duration = TCP_LIFE.saturating_add(SWEEP);
/// So many connections at most, two or three elements each: some 12 to 18 MB of the kernel's memory.
pub(crate) const MOST: usize = 50_000;

/// The ends of a TCP connection that was cut.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Ends {
    pub(crate) client: SocketAddr,
    pub(crate) server: SocketAddr,
    /// Where the client means it to go, if that is another address: a Service's.
    pub(crate) asked: Option<SocketAddr>,
}

impl Ends {
    /// The ends that are worth remembering.
    pub(crate) fn of(connection: &Connection) -> Option<Self> {
        let client = SocketAddr::new(connection.source, connection.source_port);
        let server = SocketAddr::from(connection.destination);
        let asked = Some(SocketAddr::from(connection.asked)).filter(|asked| *asked != server);
        (connection.protocol == Protocol::Tcp).then_some(Self { client, server, asked })
    }

    pub(crate) fn is_translated(self) -> bool {
        self.asked.is_some()
    }

    /// The ends by an element that was found. Of the two elements of a connection only one is taken: that with the
    /// higher port first, which most clients have.
    pub(crate) fn found(key: &[u8]) -> Option<Self> {
        let (addresses, rest) = key.split_last_chunk::<12>()?;
        let (from, to) = addresses.split_at_checked(addresses.len() >> 1)?;
        // Each is padded to four bytes.
        let [protocol, _, _, _, from_high, from_low, _, _, to_high, to_low, _, _] = *rest;
        let client = SocketAddr::new(read_address(from)?, u16::from_be_bytes([from_high, from_low]));
        let server = SocketAddr::new(read_address(to)?, u16::from_be_bytes([to_high, to_low]));
        let is_first = (client.port(), client.ip()) > (server.port(), server.ip());
        (protocol == TCP && is_first).then_some(Self { client, server, asked: None })
    }

    /// The pod that holds it: the client, or where that is no pod, the server.
    fn holder(self, is_pod: &impl Fn(IpAddr) -> bool) -> IpAddr {
        let client = self.client.ip();
        if is_pod(client) { client } else { self.server.ip() }
    }

    /// The packets of both directions, and what the client sends before it is translated.
    fn packets(self) -> Vec<Element> {
        let element = |from: SocketAddr, to: SocketAddr| {
            let addresses = Key::default().address(from.ip()).address(to.ip());
            Element::key(addresses.protocol(TCP).port(from.port()).port(to.port()))
        };
        let asked = self.asked.map(|asked| element(self.client, asked));
        [element(self.client, self.server), element(self.server, self.client)].into_iter().chain(asked).collect()
    }

    fn version(self) -> Version {
        Version::of(self.client.ip())
    }
}

#[derive(Debug)]
struct Held {
    ends: Ends,
    /// Until then it takes room: what has expired does until the kernel sweeps.
    until: Instant,
}

/// The connections that are remembered, by the pods that hold them.
#[derive(Debug)]
pub(crate) struct Remembered {
    by_holder: FxHashMap<IpAddr, VecDeque<Held>>,
    count: usize,
    most: usize,
}

impl Default for Remembered {
    fn default() -> Self {
        Self::with_room(MOST)
    }
}

/// What must be written to remember connections.
#[derive(PartialEq, Debug, Default)]
pub(crate) struct Memory {
    pub(crate) new: Passing,
    /// Elements that give way, a list for each version of IP.
    pub(crate) gone: [Vec<Element>; 2],
    /// How many connections gave way.
    pub(crate) forgotten: usize,
}

impl Memory {
    /// What gave way to others of the same moment is not written at all: it would stay in the kernel and take room.
    fn leave_out_forgotten(&mut self) {
        for (new, gone) in self.new.iter_mut().zip(&self.gone) {
            let gone: FxHashSet<Key> = gone.iter().map(|element| element.key).collect();
            if !gone.is_empty() {
                new.retain(|one| !gone.contains(&one.element.key));
            }
        }
    }
}

impl Remembered {
    pub(crate) fn with_room(most: usize) -> Self {
        Self { by_holder: FxHashMap::default(), count: 0, most: most.min(MOST) }
    }

    /// Takes over what an earlier process left, whenever that was.
    pub(crate) fn adopt(&mut self, found: Vec<Ends>, is_pod: impl Fn(IpAddr) -> bool, now: Instant) {
        self.were_lost();
        for ends in found {
            self.hold(ends, &is_pod, now);
        }
    }

    pub(crate) fn were_lost(&mut self) {
        *self = Self { most: self.most, ..Self::default() };
    }

    /// What must be written to answer what is still sent through these with a reset.
    pub(crate) fn remember(
        &mut self,
        cut: impl Iterator<Item = Ends>,
        is_pod: impl Fn(IpAddr) -> bool,
        now: Instant,
    ) -> Memory {
        self.drop_swept(now);
        let mut memory = Memory::default();
        for ends in cut {
            if self.count >= self.most {
                self.make_room(&mut memory);
            }
            self.hold(ends, &is_pod, now);
            let packet = |element| Transient { element, lifetime: Lifetime(TCP_LIFE), note: None };
            of_version(&mut memory.new, ends.version()).extend(ends.packets().into_iter().map(packet));
        }
        memory.leave_out_forgotten();
        memory
    }

    fn hold(&mut self, ends: Ends, is_pod: &impl Fn(IpAddr) -> bool, now: Instant) {
        let held = Held { ends, until: now.checked_add(HELD_FOR).unwrap_or(now) };
        self.by_holder.entry(ends.holder(is_pod)).or_default().push_back(held);
        self.count = self.count.saturating_add(1);
    }

    /// The largest holder gives way: with one connection, or with what it holds more than the next one.
    fn make_room(&mut self, memory: &mut Memory) {
        let mut sizes: Vec<usize> = self.by_holder.values().map(VecDeque::len).collect();
        sizes.sort_unstable();
        let second = sizes.iter().rev().nth(1).copied().unwrap_or(0);
        let Some((&holder, held)) = self.by_holder.iter_mut().max_by_key(|(address, held)| (held.len(), **address))
        else {
            return;
        };
        let surplus = held.len().saturating_sub(second).clamp(1, EVICTED_AT_ONCE).min(held.len());
        for Held { ends, .. } in held.drain(..surplus) {
            of_version(&mut memory.gone, ends.version()).extend(ends.packets());
        }
        if held.is_empty() {
            self.by_holder.remove(&holder);
        }
        self.count = self.count.saturating_sub(surplus);
        memory.forgotten = memory.forgotten.saturating_add(surplus);
    }

    fn drop_swept(&mut self, now: Instant) {
        self.by_holder.retain(|_, held| {
            while held.front().is_some_and(|first| first.until <= now) {
                held.pop_front();
                self.count = self.count.saturating_sub(1);
            }
            !held.is_empty()
        });
    }
}

/// The list of one version of IP.
fn of_version<T>([v4, v6]: &mut [T; 2], version: Version) -> &mut T {
    match version {
        Version::V4 => v4,
        Version::V6 => v6,
    }
}

/// More than one gives way at once, since the largest holder is looked for among all.
const EVICTED_AT_ONCE: usize = 100;

#[cfg(test)]
#[allow(clippy::indexing_slicing, clippy::arithmetic_side_effects, reason = "a test may panic")]
mod tests {
    use super::*;

    const SERVER: ([u8; 4], u16) = ([10, 0, 0, 9], 80);

    fn is_pod(address: IpAddr) -> bool {
        address.to_string().starts_with("10.")
    }

    fn cut(client: [u8; 4], ports: std::ops::Range<u16>) -> Vec<Ends> {
        ports.map(|port| Ends { client: (client, port).into(), server: SERVER.into(), asked: None }).collect()
    }

    fn held(remembered: &Remembered, by: [u8; 4]) -> usize {
        remembered.by_holder.get(&IpAddr::from(by)).map_or(0, VecDeque::len)
    }

    fn with_room(most: usize) -> Remembered {
        Remembered::with_room(most)
    }

    #[test]
    fn s3_4_no_more_is_written_than_there_is_room_for_however_much_is_cut_at_once() {
        let mut remembered = with_room(100);
        let memory = remembered.remember(cut([10, 0, 0, 1], 1..1_001).into_iter(), is_pod, Instant::now());
        assert_eq!((memory.new[0].len(), remembered.count), (2 * remembered.count, remembered.count));
        assert!(remembered.count <= 100 && memory.forgotten + remembered.count == 1_000);
        let newest = cut([10, 0, 0, 1], 1_000..1_001)[0].packets();
        assert!(newest.iter().all(|packet| memory.new[0].iter().any(|one| one.element.key == packet.key)));
    }

    #[test]
    fn s3_4_both_directions_of_tcp_are_remembered_and_nothing_of_udp() {
        let connection = |protocol| Connection::between(protocol, ([10, 0, 0, 1], 1000).into(), SERVER.into());
        let ends = Ends::of(&connection(Protocol::Tcp)).expect("TCP is remembered");
        let memory = Remembered::default().remember([ends].into_iter(), is_pod, Instant::now());
        let [there, back] = memory.new[0].as_slice() else { panic!("{memory:?}") };
        assert_eq!(there.element.key.as_bytes(), [10, 0, 0, 1, 10, 0, 0, 9, 6, 0, 0, 0, 3, 232, 0, 0, 0, 80, 0, 0]);
        assert_eq!(back.element.key.as_bytes(), [10, 0, 0, 9, 10, 0, 0, 1, 6, 0, 0, 0, 0, 80, 0, 0, 3, 232, 0, 0]);
        assert_eq!((&memory.gone, memory.forgotten), (&Default::default(), 0));
        for protocol in [Protocol::Udp, Protocol::Sctp, Protocol::Icmp] {
            assert_eq!(Ends::of(&connection(protocol)), None, "{protocol}");
        }
    }

    #[test]
    fn s3_4_the_pod_that_holds_most_gives_way_and_no_other() {
        let (now, mut remembered) = (Instant::now(), with_room(100));
        let (small, flood) = ([10, 0, 0, 1], [10, 0, 0, 2]);
        let first = remembered.remember(cut(small, 1..11).into_iter(), is_pod, now);
        assert_eq!(first.forgotten, 0);
        let flooded = remembered.remember(cut(flood, 1..1001).into_iter(), is_pod, now);
        assert!(flooded.forgotten >= 900, "{}", flooded.forgotten);
        assert_eq!(flooded.gone[0].len(), 2 * flooded.forgotten);
        assert!(flooded.gone[0].iter().all(|gone| gone.key.as_bytes()[..8].contains(&2)), "only its own");
        assert_eq!(held(&remembered, small), 10);
        let more = remembered.remember(cut(small, 11..31).into_iter(), is_pod, now);
        assert_eq!(held(&remembered, small), 30, "there is room for the others: {}", more.forgotten);
        assert!(remembered.count <= 100);
    }

    #[test]
    fn clients_outside_share_the_room_of_the_pod_that_they_talk_to() {
        let (now, mut remembered) = (Instant::now(), with_room(100));
        remembered.remember(cut([10, 0, 0, 1], 1..11).into_iter(), is_pod, now);
        let outside = (0..200).flat_map(|last| cut([192, 0, 2, last], 1..2));
        remembered.remember(outside, is_pod, now);
        assert_eq!(held(&remembered, [10, 0, 0, 1]), 10, "addresses outside are free");
        assert_eq!(held(&remembered, SERVER.0) + 10, remembered.count);
    }

    #[test]
    fn what_the_kernel_has_swept_takes_no_room_and_what_was_found_does() {
        let (now, mut remembered) = (Instant::now(), with_room(10));
        remembered.remember(cut([10, 0, 0, 1], 1..11).into_iter(), is_pod, now);
        let swept = now + TCP_LIFE + SWEEP;
        assert_eq!(remembered.remember(cut([10, 0, 0, 2], 1..11).into_iter(), is_pod, swept).forgotten, 0);
        let ends = cut([10, 0, 0, 1], 1000..1010);
        let elements = ends.iter().flat_map(|ends| ends.packets());
        let found: Vec<Ends> = elements.filter_map(|element| Ends::found(element.key.as_bytes())).collect();
        assert_eq!(found, ends, "one of the two elements of each");
        remembered.adopt(found, is_pod, now);
        assert_eq!(held(&remembered, [10, 0, 0, 1]), 10);
        assert_eq!(remembered.remember(cut([10, 0, 0, 3], 1..2).into_iter(), is_pod, now).forgotten, 10);
        for length in 0..64 {
            let is_key = length == 20 || length == 44;
            let mut key = vec![6; length];
            // Else both ends are one.
            key.iter_mut().take(1).for_each(|first| *first = 7);
            assert_eq!(Ends::found(&key).is_some(), is_key, "{length}");
        }
    }

    #[test]
    fn ipv6_ends_are_found_again() {
        let ends =
            Ends { client: "[fd00::1]:40000".parse().unwrap(), server: "[fd00::2]:80".parse().unwrap(), asked: None };
        let found: Vec<Ends> = ends.packets().iter().filter_map(|one| Ends::found(one.key.as_bytes())).collect();
        assert_eq!(found, [ends]);
    }
}
