//! The attacks: each is a frame that a pod puts on its wire, and who must not hear it.

use crate::frame::{
    ADVERTISEMENT, ARP, Arp, BROADCAST, Ends, IPV6, Mac, Neighbour, PROVIDER_VLAN, REDIRECT, ROUTER_ADVERTISEMENT,
    SOLICITATION, VLAN, frame, group_mac, kind_of, udp, with_options,
};
use crate::world::{
    ATTACKER, Ear, FREE, FRIEND, FRIENDS_PORT, Families, Host, LOOPBACK_NODE_PORT, NODE, OPEN, PORT, SERVER, UNUSED,
    VICTIM, World, at,
};
use namewall_sandbox::{Wiring, gateway_of};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

pub(crate) struct Attack {
    pub(crate) name: String,
    pub(crate) from: Host,
    pub(crate) frame: Vec<u8>,
    pub(crate) ear: Ear,
}

const VERSIONS: [bool; 2] = [true, false];
const ALL_HOSTS: [&str; 2] = ["224.0.0.1", "ff02::1"];
/// A link-local address that nobody has.
const MADE_UP: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0x77);

/// What pods try, where frames carry these nonces in turn.
pub(crate) struct Arsenal<'a> {
    world: &'a World,
    attacks: Vec<Attack>,
}

/// Who sends a frame, and who must not hear it.
struct Parties {
    from: Host,
    ear: Ear,
}

/// Who sends a frame, to which hardware address, and who must not hear it.
struct Path {
    from: Host,
    to: Mac,
    ear: Ear,
}

/// A datagram of UDP.
struct Datagram {
    from: SocketAddr,
    to: SocketAddr,
}

impl<'a> Arsenal<'a> {
    pub(crate) fn new(world: &'a World) -> Self {
        Self { world, attacks: Vec::new() }
    }

    /// All of them. The number of each in the list is its nonce.
    pub(crate) fn all(mut self) -> Vec<Attack> {
        self.forged_sources();
        self.connections_of_others();
        self.groups_for_the_node();
        self.loopback();
        self.further_hops();
        self.link_local();
        self.link_local_v4();
        if self.world.wiring == Wiring::Bridged {
            self.tags();
            self.groups_for_pods();
            self.neighbours();
            self.other_frames();
        }
        self.attacks
    }

    /// Those that need no interface to be known: what no address of a pod can vouch for.
    pub(crate) fn of_unknown(mut self) -> Vec<Attack> {
        self.groups_for_the_node();
        self.loopback();
        self.further_hops();
        self.link_local();
        self.link_local_v4();
        self.tags();
        self.groups_for_pods();
        self.routers();
        self.strange_sources();
        self.attacks
    }

    /// What pods can do with IPv6 in a cluster that has none: every link has link-local addresses all the same.
    pub(crate) fn of_ipv4_clusters(mut self) -> Vec<Attack> {
        self.link_local();
        self.link_local_groups();
        self.attacks
    }

    fn add(&mut self, name: String, parties: Parties, frame: impl FnOnce(&[u8]) -> Vec<u8>) {
        let nonce = (self.attacks.len() as u64 + 1).to_be_bytes();
        let Parties { from, ear } = parties;
        self.attacks.push(Attack { name, from, frame: frame(&nonce), ear });
    }

    /// A datagram in a frame for this host.
    fn add_udp(&mut self, name: String, path: Path, datagram: Datagram) {
        let ends = Ends { from: self.world.mac(path.from), to: path.to };
        self.add(name, Parties { from: path.from, ear: path.ear }, |nonce| {
            frame(ends, &[], kind_of(datagram.to.ip()), &udp(datagram.from, datagram.to, nonce))
        });
    }

    /// A source that is another's, or nobody's.
    fn forged_sources(&mut self) {
        let targets = [(OPEN, Ear::Open), (SERVER, Ear::Outside)];
        for is_ipv4 in VERSIONS {
            let version = if is_ipv4 { "IPv4" } else { "IPv6" };
            for (to, ear) in targets {
                let hop = self.world.next_hop(to);
                for source in [FRIEND, UNUSED] {
                    let of = if source.name.is_empty() { "no pod" } else { source.name };
                    let name = format!("{version} from the address of {of} to {}", to.name);
                    let datagram = Datagram { from: at(source.at(is_ipv4), 7), to: at(to.at(is_ipv4), PORT) };
                    self.add_udp(name, Path { from: ATTACKER, to: hop, ear }, datagram);
                }
            }
            let hop = self.world.next_hop(VICTIM);
            let name = format!("{version} from the address of a pod that may, to {}", VICTIM.name);
            let datagram = Datagram { from: at(FRIEND.at(is_ipv4), 7), to: at(VICTIM.at(is_ipv4), PORT) };
            self.add_udp(name, Path { from: ATTACKER, to: hop, ear: Ear::Victim }, datagram);
            let hop = self.world.next_hop(NODE);
            let to =
                if self.world.wiring == Wiring::Bridged { gateway_of(ATTACKER.at(is_ipv4)) } else { NODE.at(is_ipv4) };
            let name = format!("{version} from the address of no pod to the node");
            let datagram = Datagram { from: at(UNUSED.at(is_ipv4), 7), to: at(to, PORT) };
            self.add_udp(name, Path { from: ATTACKER, to: hop, ear: Ear::Node }, datagram);
            if self.world.wiring == Wiring::Bridged {
                let name = format!("{version} from the node's address, which may reach its pods, to {}", VICTIM.name);
                let from = at(gateway_of(ATTACKER.at(is_ipv4)), 7);
                let datagram = Datagram { from, to: at(VICTIM.at(is_ipv4), PORT) };
                let hop = self.world.next_hop(VICTIM);
                self.add_udp(name, Path { from: ATTACKER, to: hop, ear: Ear::Victim }, datagram);
            }
        }
    }

    /// From a bridge, sources that no pod of it can have: the node's own, and those that the node routes elsewhere.
    fn strange_sources(&mut self) {
        for is_ipv4 in VERSIONS {
            let nobody: IpAddr = if is_ipv4 { "203.0.113.9" } else { "2001:db8:9::9" }.parse().expect("an address");
            let sources = [
                ("the node", NODE.at(is_ipv4)),
                ("the node on its bridge", gateway_of(ATTACKER.at(is_ipv4))),
                ("nobody", nobody),
                ("a server outside", SERVER.at(is_ipv4)),
            ];
            for (of, source) in sources {
                for (to, ear) in [(OPEN, Ear::Open), (NODE, Ear::Node), (SERVER, Ear::Outside)] {
                    // A kernel takes nothing from its own address.
                    let is_own = source == to.at(is_ipv4) || (to.name == NODE.name && of.starts_with("the node"));
                    if is_own || (of.starts_with("the node") && to.name == SERVER.name) {
                        continue;
                    }
                    let name = format!("from the address {source} of {of} to {}", to.name);
                    let datagram = Datagram { from: at(source, 7), to: at(to.at(is_ipv4), PORT) };
                    self.add_udp(name, Path { from: ATTACKER, to: self.world.next_hop(to), ear }, datagram);
                }
            }
            let name = format!("as the answer of a server outside to {}, at {}", FRIEND.name, FRIEND.at(is_ipv4));
            let datagram = Datagram { from: at(SERVER.at(is_ipv4), PORT), to: at(FRIEND.at(is_ipv4), FRIENDS_PORT) };
            self.add_udp(name, Path { from: ATTACKER, to: self.world.next_hop(FRIEND), ear: Ear::Friend }, datagram);
        }
    }

    /// Into a connection that two others have.
    fn connections_of_others(&mut self) {
        for is_ipv4 in VERSIONS {
            let version = if is_ipv4 { "IPv4" } else { "IPv6" };
            let friend = at(FRIEND.at(is_ipv4), FRIENDS_PORT);
            let name = format!("{version} into the connection of {} with {}", FRIEND.name, VICTIM.name);
            let datagram = Datagram { from: friend, to: at(VICTIM.at(is_ipv4), PORT) };
            self.add_udp(name, Path { from: ATTACKER, to: self.world.next_hop(VICTIM), ear: Ear::Victim }, datagram);
            let name = format!("{version} as the answer of a server outside to {}", FRIEND.name);
            let datagram = Datagram { from: at(SERVER.at(is_ipv4), PORT), to: friend };
            self.add_udp(name, Path { from: ATTACKER, to: self.world.next_hop(FRIEND), ear: Ear::Friend }, datagram);
        }
    }

    /// Broadcast and multicast, which no list of a node's addresses has in it.
    fn groups_for_the_node(&mut self) {
        for from in [ATTACKER, OPEN] {
            let mut groups: Vec<IpAddr> = ALL_HOSTS.map(|text| text.parse().expect("a group")).into();
            groups.push(Ipv4Addr::BROADCAST.into());
            if self.world.wiring == Wiring::Bridged {
                groups.push(Ipv4Addr::new(10, 244, 1, 255).into());
            }
            for group in groups {
                let mac = if is_broadcast(group) { BROADCAST } else { group_mac(group) };
                let name = format!("from {} to {group}, for the node", from.name);
                let source = if group.is_ipv6() && self.world.wiring == Wiring::Bridged {
                    self.world.link_local(from).into()
                } else {
                    from.at(group.is_ipv4())
                };
                let datagram = Datagram { from: at(source, 7), to: at(group, PORT) };
                self.add_udp(name, Path { from, to: mac, ear: Ear::Node }, datagram);
            }
        }
    }

    /// Loopback addresses of the node, which takes packets for them from its links (`route_localnet`), as kube-proxy
    /// sets it for node ports on loopback.
    fn loopback(&mut self) {
        for from in [ATTACKER, OPEN] {
            let ways = [
                ("127.0.0.1", PORT, "a service"),
                ("127.255.255.254", PORT, "a service"),
                ("127.0.0.1", LOOPBACK_NODE_PORT, "a node port"),
            ];
            for (to, port, what) in ways {
                let name = format!("from {} to {what} of the node at {to}", from.name);
                let to: IpAddr = to.parse().expect("an address");
                let datagram = Datagram { from: at(from.v4, 7), to: at(to, port) };
                self.add_udp(name, Path { from, to: self.world.hop_of(from), ear: Ear::Node }, datagram);
            }
        }
    }

    /// Packets for the node, which this pod may reach, with an option that sends them on to a pod that it may not.
    fn further_hops(&mut self) {
        const LOOSE: u8 = 131;
        const STRICT: u8 = 137;
        const NOTHING: u8 = 1;
        const END: u8 = 0;
        let [a, b, c, d] = VICTIM.v4.octets();
        let [e, f, g, h] = NODE.v4.octets();
        let ways: [(&str, &[u8]); 5] = [
            ("a loose source route", &[LOOSE, 7, 4, a, b, c, d, END]),
            ("a strict source route", &[STRICT, 7, 4, a, b, c, d, END]),
            ("a source route that has been used in part", &[LOOSE, 11, 8, e, f, g, h, a, b, c, d, END]),
            ("a source route behind an option without a meaning", &[NOTHING, LOOSE, 7, 4, a, b, c, d]),
            ("a source route behind a Router Alert", &[148, 4, 0, 0, LOOSE, 7, 4, a, b, c, d, END]),
        ];
        let ends = Ends { from: self.world.mac(FREE), to: self.world.hop_of(FREE) };
        // By a strict one, the next hop must be on a network of the node's.
        let is_bridged = self.world.wiring == Wiring::Bridged;
        for (what, options) in ways.into_iter().filter(|(_, options)| is_bridged || options[0] != STRICT) {
            let name = format!("by {what} from {} to {}", FREE.name, VICTIM.name);
            self.add(name, Parties { from: FREE, ear: Ear::Victim }, |nonce| {
                let packet = udp(at(FREE.v4, 7), at(NODE.v4, PORT), nonce);
                frame(ends, &[], kind_of(NODE.v4.into()), &with_options(packet, options))
            });
        }
    }

    fn groups_for_pods(&mut self) {
        for from in [ATTACKER, OPEN, FREE] {
            for group in ["224.0.0.1", "ff02::1", "255.255.255.255", "10.244.1.255"] {
                let group: IpAddr = group.parse().expect("a group");
                let mac = if is_broadcast(group) { BROADCAST } else { group_mac(group) };
                for (how, mac) in [("", mac), (" in a frame for it alone", self.world.mac(VICTIM))] {
                    let name = format!("from {} to {group}, for {}{how}", from.name, VICTIM.name);
                    let datagram = Datagram { from: at(from.at(group.is_ipv4()), 7), to: at(group, PORT) };
                    self.add_udp(name, Path { from, to: mac, ear: Ear::Victim }, datagram);
                }
            }
        }
    }

    /// Of the addresses in rules, a link-local one is none. A link of its own leads a pod to no other pod's.
    fn link_local(&mut self) {
        let is_bridged = self.world.wiring == Wiring::Bridged;
        let targets = [(NODE, Ear::Node), (VICTIM, Ear::Victim), (OPEN, Ear::Open)];
        for (to, ear) in targets.into_iter().filter(|(to, _)| is_bridged || to.name == NODE.name) {
            let target = self.world.link_local(to);
            for (source, of) in self.link_local_sources() {
                let name = format!("to the link-local address of {} from {of}", to.name);
                let datagram = Datagram { from: at(source, 7), to: at(target, PORT) };
                self.add_udp(name, Path { from: ATTACKER, to: self.world.next_hop(to), ear }, datagram);
            }
        }
        if is_bridged {
            let target = self.world.link_local(VICTIM);
            let name = format!("to the link-local address of {} from that of {}", VICTIM.name, OPEN.name);
            let datagram = Datagram { from: at(self.world.link_local(OPEN), 7), to: at(target, PORT) };
            self.add_udp(name, Path { from: OPEN, to: self.world.mac(VICTIM), ear: Ear::Victim }, datagram);
        }
        if self.world.families == Families::Both {
            for (source, of) in [self.world.link_local(ATTACKER), MADE_UP].into_iter().zip(["its", "a made-up"]) {
                let name = format!("to {} from {of} link-local address", NODE.v6);
                let datagram = Datagram { from: at(source, 7), to: at(NODE.v6, PORT) };
                self.add_udp(name, Path { from: ATTACKER, to: self.world.hop_of(ATTACKER), ear: Ear::Node }, datagram);
            }
        }
    }

    /// Sources of what goes to a link-local address.
    fn link_local_sources(&self) -> [(Ipv6Addr, &'static str); 3] {
        let own = self.world.link_local(ATTACKER);
        [(own, "its link-local address"), (ATTACKER.v6, "a routable address"), (MADE_UP, "a made-up one")]
    }

    /// Groups of a link, from link-local addresses.
    fn link_local_groups(&mut self) {
        let group: IpAddr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1).into();
        let ears: &[Ear] = match self.world.wiring {
            Wiring::Bridged => &[Ear::Node, Ear::Victim],
            Wiring::Routed => &[Ear::Node],
        };
        for from in [ATTACKER, OPEN] {
            for &ear in ears {
                let name = format!("from {} to {group}, for {ear:?}", from.name);
                let datagram = Datagram { from: at(self.world.link_local(from), 7), to: at(group, PORT) };
                self.add_udp(name, Path { from, to: group_mac(group), ear }, datagram);
            }
        }
    }

    /// An address that every host may give itself, and that no policy speaks of.
    fn link_local_v4(&mut self) {
        for (to, ear) in [(VICTIM, Ear::Victim), (OPEN, Ear::Open)] {
            let name = format!("from an IPv4 link-local address to {}", to.name);
            let datagram = Datagram { from: at(Ipv4Addr::new(169, 254, 7, 7), 7), to: at(to.v4, PORT) };
            self.add_udp(name, Path { from: ATTACKER, to: self.world.next_hop(to), ear }, datagram);
        }
    }

    /// A receiver takes a VLAN tag with the number 0 off, and the bridge's firewall does not look behind it.
    fn tags(&mut self) {
        let tags: [&[u16]; 4] = [&[VLAN], &[VLAN, VLAN], &[PROVIDER_VLAN], &[PROVIDER_VLAN, VLAN]];
        for is_ipv4 in VERSIONS {
            for tags in tags {
                for (to, ear) in [(OPEN, Ear::Open), (VICTIM, Ear::Victim)] {
                    let version = if is_ipv4 { "IPv4" } else { "IPv6" };
                    let ends = Ends { from: self.world.mac(ATTACKER), to: self.world.mac(to) };
                    let (from, to_at) = (at(ATTACKER.at(is_ipv4), 7), at(to.at(is_ipv4), PORT));
                    let name = format!("{version} behind VLAN tags {tags:04x?} to {}", to.name);
                    self.add(name, Parties { from: ATTACKER, ear }, |nonce| {
                        frame(ends, tags, kind_of(to_at.ip()), &udp(from, to_at, nonce))
                    });
                }
            }
        }
    }

    /// Lies about who is at which hardware address, and about routers.
    fn neighbours(&mut self) {
        let (attacker, victim) = (self.world.mac(ATTACKER), self.world.mac(VICTIM));
        let ends = Ends { from: attacker, to: victim };
        let (IpAddr::V4(gateway), IpAddr::V6(gateway_v6)) =
            (gateway_of(VICTIM.v4.into()), gateway_of(VICTIM.v6.into()))
        else {
            panic!("a gateway of each version")
        };
        for (who, address) in [("the node", gateway), (FRIEND.name, FRIEND.v4)] {
            for (what, operation) in [("answer", 2), ("question", 1)] {
                let sender = (attacker, address);
                let arp = Arp { operation, sender, target: (victim, VICTIM.v4) };
                let name = format!("ARP: {who} is at the attacker's, in a {what}");
                self.add(name, Parties { from: ATTACKER, ear: Ear::VictimsWire }, |nonce| {
                    padded(frame(ends, &[], ARP, &arp.packet()), nonce)
                });
            }
        }
        let mac = attacker;
        let own = self.world.link_local(ATTACKER);
        let (from_gateway, to) = (gateway_v6, VICTIM.v6);
        let lies = [
            ("an answer of the node", ADVERTISEMENT, from_gateway, gateway_v6, false),
            ("an answer for the node from its own link-local address", ADVERTISEMENT, own, gateway_v6, false),
            ("an answer for the node behind other headers", ADVERTISEMENT, own, gateway_v6, true),
            ("an answer for another pod", ADVERTISEMENT, own, FRIEND.v6, false),
            ("a question of another pod", SOLICITATION, FRIEND.v6, VICTIM.v6, false),
            ("a router", ROUTER_ADVERTISEMENT, own, own, false),
            ("a router behind other headers", ROUTER_ADVERTISEMENT, own, own, true),
            ("a redirect", REDIRECT, own, own, false),
            (
                "that an address is in use that another begins to use",
                SOLICITATION,
                Ipv6Addr::UNSPECIFIED,
                VICTIM.v6,
                false,
            ),
        ];
        for (what, kind, from, target, hidden) in lies {
            let message = Neighbour { kind, from, to, target, mac, hidden };
            let name = format!("neighbour discovery: {what}");
            self.add(name, Parties { from: ATTACKER, ear: Ear::VictimsWire }, |nonce| {
                frame(ends, &[], IPV6, &message.packet(nonce))
            });
        }
    }

    /// A pod that says that it is a router, or knows a better one; and frames that nobody judges.
    fn routers(&mut self) {
        let (mac, own) = (self.world.mac(ATTACKER), self.world.link_local(ATTACKER));
        let ends = Ends { from: mac, to: self.world.mac(VICTIM) };
        for (what, kind, hidden) in [
            ("a router", ROUTER_ADVERTISEMENT, false),
            ("a router behind other headers", ROUTER_ADVERTISEMENT, true),
            ("a redirect", REDIRECT, false),
        ] {
            let message = Neighbour { kind, from: own, to: VICTIM.v6, target: own, mac, hidden };
            self.add(format!("of {what}"), Parties { from: ATTACKER, ear: Ear::VictimsWire }, |nonce| {
                frame(ends, &[], IPV6, &message.packet(nonce))
            });
        }
        for (what, kind) in [("an unknown type", 0x88b5), ("LLDP", 0x88cc)] {
            self.add(format!("a frame with {what}"), Parties { from: ATTACKER, ear: Ear::VictimsWire }, |nonce| {
                padded(frame(ends, &[], kind, &[0xaa; 30]), nonce)
            });
        }
    }

    fn other_frames(&mut self) {
        let (attacker, victim) = (self.world.mac(ATTACKER), self.world.mac(VICTIM));
        for (what, kind) in [("an unknown type", 0x88b5), ("a length in place of a type", 0x0020), ("LLDP", 0x88cc)] {
            let ends = Ends { from: attacker, to: victim };
            self.add(format!("a frame with {what}"), Parties { from: ATTACKER, ear: Ear::VictimsWire }, |nonce| {
                padded(frame(ends, &[], kind, &[0xaa; 30]), nonce)
            });
        }
        let ends = Ends { from: [0x0a, 0x58, 0xde, 0xad, 0, 1], to: victim };
        self.add(
            "a frame from a made-up hardware address".to_owned(),
            Parties { from: FRIEND, ear: Ear::Victim },
            |nonce| frame(ends, &[], IPV6, &udp(at(FRIEND.v6, 7), at(VICTIM.v6, PORT), nonce)),
        );
    }
}

fn is_broadcast(group: IpAddr) -> bool {
    group.is_ipv4() && !group.is_multicast()
}

/// The nonce at the end of a frame that is long enough for the wire.
fn padded(mut frame: Vec<u8>, nonce: &[u8]) -> Vec<u8> {
    frame.resize(frame.len().max(60), 0);
    frame.extend_from_slice(nonce);
    frame
}
