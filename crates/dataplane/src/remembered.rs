//! Connections that were cut, as the kernel is told to remember them.
//!
//! ```text
//! client                 node, after the cut                       server
//!   │                      (knows of no connection)        "hello"  │
//!   │      is it new? may the server open it? ◄─────────────────────┤
//! ```
//! To the kernel the server's word is a connection that the server opens, and
//! where it may, the cut one would live on. So its packets are dropped, in
//! both directions, for as long as either end may still take it for open.
//! The addresses are those the forward hook sees: the client's own, and the
//! backend's behind a Service. Once the translation is forgotten the backend's
//! packets bear them too; and a client's come to them by being translated anew.

use crate::conntrack::Connection;
use crate::nft::rule::{TCP, UDP};
use crate::nft::set::{Element, Key, Lifetime, Passing, SWEEP, Transient, Version};
use namewall_policy::port::Protocol;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// Longer than an idle TCP connection takes to notice, by the kernel's keep-alive of two hours and eleven minutes. A
/// new connection between the same ports begins with a SYN and is not held up.
const TCP_LIFE: Duration = Duration::from_secs(3 * 3600);
/// Longer than conntrack remembers a silent UDP connection. A new one between the same ports cannot be told from it,
/// and waits.
const UDP_LIFE: Duration = Duration::from_secs(180);
/// So many elements at most, two a connection: some 12 MB of the kernel's memory.
pub(crate) const MOST: usize = 100_000;

/// How much there is to remember.
#[derive(Default, Debug)]
pub(crate) struct Remembered {
    /// Until when so many elements take room: what has expired does until the kernel sweeps.
    room_taken: Vec<(Instant, usize)>,
}

impl Remembered {
    /// Takes over what an earlier process left, whenever that was.
    pub(crate) fn adopt(&mut self, elements: usize, now: Instant) {
        self.room_taken = vec![(now + TCP_LIFE + SWEEP, elements)];
    }

    pub(crate) fn were_lost(&mut self) {
        self.room_taken.clear();
    }

    /// What must be written to keep these dead, and how many of them there is no room for.
    pub(crate) fn packets<'c>(
        &mut self,
        connections: impl Iterator<Item = &'c Connection>,
        now: Instant,
    ) -> (Passing, usize) {
        self.room_taken.retain(|(until, _)| *until > now);
        let taken: usize = self.room_taken.iter().map(|(_, elements)| elements).sum();
        let mut room = MOST.saturating_sub(taken);
        let (mut packets, mut without) = (Passing::default(), 0);
        for connection in connections {
            let Some((number, life)) = remembered_for(connection.protocol) else { continue };
            if room < 2 {
                without += 1;
                continue;
            }
            room -= 2;
            let client = SocketAddr::new(connection.source, connection.source_port);
            let server = SocketAddr::from(connection.destination);
            for (from, to) in [(client, server), (server, client)] {
                let packet = Transient { element: packet(number, from, to), lifetime: Lifetime(life), note: None };
                packets[Version::of(from.ip()) as usize].push(packet);
            }
            self.room_taken.push((now + life + SWEEP, 2));
        }
        (packets, without)
    }
}

/// SCTP is not among them: only an INIT opens it, so nothing else is taken for a beginning, and every packet of one
/// that was cut is judged by itself.
fn remembered_for(protocol: Protocol) -> Option<(u8, Duration)> {
    match protocol {
        Protocol::Tcp => Some((TCP, TCP_LIFE)),
        Protocol::Udp => Some((UDP, UDP_LIFE)),
        Protocol::Sctp | Protocol::Icmp | Protocol::Other(_) => None,
    }
}

fn packet(protocol: u8, from: SocketAddr, to: SocketAddr) -> Element {
    let addresses = Key::default().address(from.ip()).address(to.ip());
    Element::key(addresses.protocol(protocol).port(from.port()).port(to.port()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connections(count: usize, protocol: Protocol) -> Vec<Connection> {
        let destination = SocketAddr::from(([10, 0, 0, 2], 80));
        let one = |at: usize| Connection::between(protocol, SocketAddr::from(([10, 0, 0, 1], at as u16)), destination);
        (0..count).map(one).collect()
    }

    #[test]
    fn s3_4_both_directions_are_remembered() {
        let (packets, without) = Remembered::default().packets(connections(1, Protocol::Tcp).iter(), Instant::now());
        let [there, back] = packets[0].as_slice() else { panic!("{packets:?}") };
        assert_eq!(there.element.key.as_bytes(), [10, 0, 0, 1, 10, 0, 0, 2, 6, 0, 0, 0, 0, 0, 0, 0, 0, 80, 0, 0]);
        assert_eq!(back.element.key.as_bytes(), [10, 0, 0, 2, 10, 0, 0, 1, 6, 0, 0, 0, 0, 80, 0, 0, 0, 0, 0, 0]);
        assert_eq!(without, 0);
    }

    #[test]
    fn what_there_is_no_room_for_is_told() {
        let now = Instant::now();
        let mut remembered = Remembered::default();
        let udp = connections(MOST / 2 + 3, Protocol::Udp);
        let (packets, without) = remembered.packets(udp.iter(), now);
        assert_eq!((packets[0].len(), without), (MOST, 3));
        let swept = now + UDP_LIFE + SWEEP;
        assert_eq!(remembered.packets(udp[..1].iter(), swept - Duration::from_secs(1)).1, 1);
        assert_eq!(remembered.packets(udp[..1].iter(), swept).1, 0);
        remembered.adopt(MOST, now);
        assert_eq!(remembered.packets(udp[..1].iter(), swept).1, 1, "what was found counts as long as it may stay");
    }

    #[test]
    fn only_what_a_later_packet_would_open_again_is_remembered() {
        let icmp = connections(1, Protocol::Icmp);
        assert_eq!(Remembered::default().packets(icmp.iter(), Instant::now()), (Passing::default(), 0));
    }
}
