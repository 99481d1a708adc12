//! What the kernel tells of denied packets, through NFLOG: which rule denied,
//! and who wanted to talk to whom.

// What the kernel says carries bytes that anybody may have sent.
#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use crate::conntrack::protocol_of;
use crate::netlink::{Attributes, Error, Family, Messages, Received, Socket};
use crate::nft::batch_fixed;
use namewall_policy::port::Protocol;
use nix::errno::Errno;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};

const SUBSYSTEM: u16 = 4;
const PACKET: u16 = SUBSYSTEM << 8;
const CONFIGURE: u16 = SUBSYSTEM << 8 | 1;
const FIXED: usize = 4;
const COMMAND: u16 = 1;
const MODE: u16 = 2;
const BIND: u8 = 1;
const COPY_PACKET: u8 = 2;
/// Enough for the longest headers we look into.
const COPY_BYTES: u32 = 96;
const AT_ONCE: u16 = 5;
const PAYLOAD: u16 = 9;
const PREFIX: u16 = 10;
const FLAGS: u16 = 6;
/// Lines are numbered, so that a gap shows how many were lost.
const NUMBERED: u16 = 1;
const NUMBER: u16 = 12;

/// What the kernel's log lines begin with.
pub(crate) const DENY: &str = "namewall deny: ";
pub(crate) const WOULD_DENY: &str = "namewall would deny: ";

/// A packet that was denied, or would have been.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Denied {
    /// False if the policy is only audited: the packet went through.
    pub enforced: bool,
    /// The policy and its rule, as the kernel's rule is called.
    pub rule: String,
    pub source: IpAddr,
    pub destination: IpAddr,
    pub protocol: Protocol,
    /// The destination's port; 0 where the protocol has none.
    pub port: u16,
}

/// What the kernel has told at once.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Told {
    pub denials: Vec<Denied>,
    /// Lines before these that were lost, since nobody read them in time.
    pub lost: u64,
}

/// Listens to one NFLOG group of one network namespace.
#[derive(Debug)]
pub struct DenialLog {
    socket: Socket,
    /// The group that it listens to; None before `listen`.
    group: Option<u16>,
    /// The number of the next line; None before the first.
    next: Option<u32>,
}

impl DenialLog {
    pub fn open(group: u16) -> Result<Self, Error> {
        let mut log = Self::at(Socket::open(Family::NetlinkNetFilter)?);
        log.listen(group)?;
        Ok(log)
    }

    /// A log of the namespace that the socket was opened in. It listens to no group yet.
    pub(crate) fn at(socket: Socket) -> Self {
        Self { socket, group: None, next: None }
    }

    /// Listens to a group, unless it does already. A group has one listener in a namespace.
    pub(crate) fn listen(&mut self, group: u16) -> Result<(), Error> {
        if self.group != Some(group) {
            self.bind(group)?;
            self.group = Some(group);
        }
        Ok(())
    }

    /// Listens to the same group through a new socket of the thread's network namespace. After an error it has to be
    /// called again: the old socket is closed, since it may still have the group.
    pub fn reopen(&mut self) -> Result<(), Error> {
        self.socket = Socket::open(Family::NetlinkNetFilter)?;
        // The kernel numbers a new listener's lines from the beginning.
        self.next = None;
        self.group.map_or(Ok(()), |group| self.bind(group))
    }

    fn bind(&mut self, group: u16) -> Result<(), Error> {
        let socket = &mut self.socket;
        let mut request = Messages::new();
        request.begin(CONFIGURE, 0, &batch_fixed(0, group));
        request.bytes(COMMAND, &[BIND]);
        request.acknowledge();
        socket.commit(&request)?;
        let mut request = Messages::new();
        request.begin(CONFIGURE, 0, &batch_fixed(0, group));
        let [a, b, c, d] = COPY_BYTES.to_be_bytes();
        request.bytes(MODE, &[a, b, c, d, COPY_PACKET, 0]);
        // Rules tell of little anyway; the kernel need not collect it for a second first.
        request.u32(AT_ONCE, 1);
        request.u16(FLAGS, NUMBERED);
        request.acknowledge();
        socket.commit(&request)
    }

    /// Waits for the next denials. Lines of others in the group are passed over. An overrun of the socket ends nothing:
    /// the next line shows by its number how many were lost.
    pub fn wait(&mut self) -> Result<Told, Error> {
        match self.socket.receive() {
            Ok(datagram) => {
                let lost = numbers(datagram).map(|number| lost_before(&mut self.next, number)).sum();
                Ok(Told { denials: read_datagram(datagram), lost })
            }
            Err(error) if error.errno() == Some(Errno::ENOBUFS) => Ok(Told::default()),
            Err(error) => Err(error),
        }
    }

    /// The denials that have been told by now; does not wait for more.
    pub fn drain(&mut self) -> Result<Vec<Denied>, Error> {
        self.told(usize::MAX).map(|told| told.denials)
    }

    /// What has been told by now, of that so many datagrams at most. Does not wait for more.
    pub(crate) fn told(&mut self, at_most: usize) -> Result<Told, Error> {
        let mut all = Told::default();
        for _ in 0..at_most {
            if !self.socket.has_more() {
                break;
            }
            let Told { denials, lost } = self.wait()?;
            all.denials.extend(denials);
            all.lost = all.lost.saturating_add(lost);
        }
        Ok(all)
    }
}

impl AsFd for DenialLog {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// The numbers of the lines in a datagram.
fn numbers(datagram: &[u8]) -> impl Iterator<Item = u32> {
    let packets = Received::all(datagram).filter(|message| message.kind == PACKET);
    packets.filter_map(|packet| packet.attributes(FIXED).u32(NUMBER))
}

/// How many lines are missing before this one. `next` is the number that is expected.
fn lost_before(next: &mut Option<u32>, number: u32) -> u64 {
    let expected = next.replace(number.wrapping_add(1)).unwrap_or(number);
    u64::from(number.wrapping_sub(expected))
}

/// What a datagram of the kernel tells. It carries the first bytes of packets that anybody may have made.
pub fn read_datagram(datagram: &[u8]) -> Vec<Denied> {
    let packets = Received::all(datagram).filter(|message| message.kind == PACKET);
    packets.filter_map(|packet| read_denial(packet.attributes(FIXED))).collect()
}

fn read_denial(of: Attributes<'_>) -> Option<Denied> {
    let prefix = of.text(PREFIX)?;
    let (enforced, rule) = match prefix.strip_prefix(DENY) {
        Some(rule) => (true, rule),
        None => (false, prefix.strip_prefix(WOULD_DENY)?),
    };
    let headers = read_headers(of.get(PAYLOAD)?)?;
    Some(Denied { enforced, rule: rule.to_owned(), ..headers })
}

/// The ends of a packet, from its first bytes.
fn read_headers(packet: &[u8]) -> Option<Denied> {
    let (source, destination, number, transport) = match packet.first()? >> 4 {
        4 => {
            let length = usize::from(packet.first()? & 0xf) << 2;
            let address = |at: usize| Some(IpAddr::from(*packet.get(at..)?.first_chunk::<4>()?));
            (address(12)?, address(16)?, *packet.get(9)?, packet.get(length..)?)
        }
        6 => {
            let address = |at: usize| Some(IpAddr::from(*packet.get(at..)?.first_chunk::<16>()?));
            let (number, transport) = skip_extensions(*packet.get(6)?, packet.get(40..)?);
            (address(8)?, address(24)?, number, transport)
        }
        _ => return None,
    };
    let protocol = protocol_of(number);
    let port = match transport.get(2..4) {
        Some(bytes) if protocol.has_ports() => u16::from_be_bytes(bytes.try_into().ok()?),
        _ => 0,
    };
    Some(Denied { enforced: true, rule: String::new(), source, destination, protocol, port })
}

/// Over hop-by-hop, routing and destination options to what the packet carries.
fn skip_extensions(mut number: u8, mut rest: &[u8]) -> (u8, &[u8]) {
    while let (0 | 43 | 60, [next, length, ..]) = (number, rest) {
        let skipped = usize::from(*length).saturating_add(1) << 3;
        let Some(after) = rest.get(skipped..) else { break };
        (number, rest) = (*next, after);
    }
    (number, rest)
}

#[cfg(test)]
#[allow(clippy::indexing_slicing, clippy::arithmetic_side_effects, reason = "a test may panic")]
mod tests {
    use super::*;

    #[test]
    fn ends_are_read_from_the_first_bytes() {
        let mut v4 = vec![0x45, 0, 0, 40, 0, 0, 0, 0, 64, 6, 0, 0, 10, 0, 0, 1, 192, 0, 2, 7];
        v4.extend([0x30, 0x39, 0x01, 0xbb, 0, 0, 0, 0]);
        let read = read_headers(&v4).unwrap();
        assert_eq!((read.source.to_string(), read.destination.to_string()), ("10.0.0.1".into(), "192.0.2.7".into()));
        assert_eq!((read.protocol, read.port), (Protocol::Tcp, 443));
        let mut v6 = vec![0x60, 0, 0, 0, 0, 16, 60, 64];
        v6.extend([0x20; 16]);
        v6.extend([0x30; 16]);
        v6.extend([17, 0, 0, 0, 0, 0, 0, 0]);
        v6.extend([0, 1, 0, 53, 0, 8, 0, 0]);
        assert_eq!(read_headers(&v6).map(|read| (read.protocol, read.port)), Some((Protocol::Udp, 53)));
        for end in 0..v4.len() {
            read_headers(&v4[..end]);
        }
        for end in 0..v6.len() {
            read_headers(&v6[..end]);
        }
    }

    #[test]
    fn a_gap_in_the_numbers_is_what_was_lost() {
        let mut next = None;
        let lost: Vec<u64> = [7, 8, 11, 12].map(|number| lost_before(&mut next, number)).into();
        assert_eq!(lost, [0, 0, 2, 0], "the first line may have any number");
        let mut next = Some(u32::MAX);
        assert_eq!((lost_before(&mut next, u32::MAX), lost_before(&mut next, 1)), (0, 1), "numbers wrap");
    }

    #[cfg(feature = "system")]
    #[test]
    fn a_log_that_is_opened_again_hears_its_group() {
        use crate::nft::put_table;
        use crate::nft::rule::{Action, Rule, Test, UDP};
        use crate::nft::table::{Chain, Fallback, Hook, HookKind, Point, Table};
        const GROUP: u16 = 98;
        crate::nft::isolated(|| {
            let up = std::process::Command::new("ip").args(["link", "set", "lo", "up"]).status();
            assert!(up.expect("ip runs").success());
            let mut log = DenialLog::open(GROUP).unwrap();
            assert!(DenialLog::open(GROUP).is_err(), "a group has one listener, so the old one must be gone");
            log.reopen().unwrap();
            log.reopen().unwrap();
            let tells = Action::Log { group: GROUP, prefix: format!("{DENY}a rule") };
            let (point, kind, fallback) = (Point::Output, HookKind::Filter, Fallback::Accept);
            let hook = Some(Hook { point, device: None, priority: 0, kind, fallback });
            let rules = vec![Rule::new([Test::Protocol(UDP)], tells)];
            let mut table = Table::default();
            table.chains.insert("tell".to_owned(), Chain { hook, rules, comment: None });
            put_table("tells", &table).unwrap();
            let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
            socket.send_to(b"word", "127.0.0.1:9").unwrap();
            let told = log.wait().unwrap();
            assert_eq!((told.denials.len(), told.lost), (1, 0));
        });
    }

    /// The kernel drops what does not fit into the socket, and says so by ENOBUFS at the next read.
    #[cfg(feature = "system")]
    #[test]
    fn an_overrun_is_counted_and_does_not_end_the_log() {
        use crate::nft::put_table;
        use crate::nft::rule::{Action, Rule, Test, UDP};
        use crate::nft::table::{Chain, Fallback, Hook, HookKind, Point, Table};
        const GROUP: u16 = 99;
        const FLOOD: u64 = 5_000;
        crate::nft::isolated(|| {
            let up = std::process::Command::new("ip").args(["link", "set", "lo", "up"]).status();
            assert!(up.expect("ip runs").success());
            let mut log = DenialLog::open(GROUP).unwrap();
            nix::sys::socket::setsockopt(&log.socket.as_fd(), nix::sys::socket::sockopt::RcvBuf, &8192).unwrap();
            let tells = Action::Log { group: GROUP, prefix: format!("{DENY}a rule") };
            let (point, kind, fallback) = (Point::Output, HookKind::Filter, Fallback::Accept);
            let hook = Some(Hook { point, device: None, priority: 0, kind, fallback });
            let mut table = Table::default();
            let rules = vec![Rule::new([Test::Protocol(UDP)], tells)];
            table.chains.insert("tell".to_owned(), Chain { hook, rules, comment: None });
            put_table("tells", &table).unwrap();
            let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
            let send = || socket.send_to(b"word", "127.0.0.1:9").map(drop);
            // Nobody listens at the port, and some sends are told so.
            (0..FLOOD).for_each(|_| drop(send()));
            let (mut heard, mut lost) = (0, 0);
            while heard + lost < FLOOD {
                // What was lost before the last line shows with the line after it.
                if !log.socket.has_more() {
                    drop(send());
                }
                let told = log.wait().expect("an overrun is no end");
                heard += told.denials.len() as u64;
                lost += told.lost;
            }
            assert!(lost > 0, "nothing was lost of {FLOOD}, so this shows nothing");
            assert!(heard > 0);
        });
    }
}
