//! The tunnel devices of a machine: at which UDP ports and by which IP protocols
//! it takes packets out of other packets.
//!
//! Every device counts, be it up or down: one that is down now may come up at any
//! time. WireGuard, IPsec (`vti`, `xfrm`), OpenVPN and MACsec devices do not
//! count: they take only what somebody with a key has sent. Nor do GTP, which
//! checks the source inside, and AMT, which carries only groups.

use super::link::{GET_LINK, INFO_DATA, INFO_KIND, LINK_HEADER, LINK_INFO, NEW_LINK, request, uninterrupted};
use super::{Attributes, Error, Received, Socket};
use crate::tunnels::Tunnels;

const IPIP: u8 = 4;
const IPV6_IN_IP: u8 = 41;
const GRE: u8 = 47;
const MPLS_IN_IP: u8 = 137;

const VXLAN_PORT: u16 = 15;
const GENEVE_PORT: u16 = 5;
const BAREUDP_PORT: u16 = 1;
/// What the kernel takes where a device does not say its port.
const USUAL_VXLAN_PORT: u16 = 8472;
const USUAL_GENEVE_PORT: u16 = 6081;

/// Of a tunnel inside UDP (FOU, GUE): the port it sends from, and the port it sends to, which is as a rule the port that
/// this machine receives at too.
struct Inside {
    from: u16,
    to: u16,
}

const GRE_INSIDE: Inside = Inside { from: 16, to: 17 };
const IP_INSIDE: Inside = Inside { from: 17, to: 18 };

impl Tunnels {
    /// Adds what a message about a link says.
    pub(super) fn read(&mut self, message: Received<'_>) {
        if message.kind != NEW_LINK {
            return;
        }
        let info = message.attributes(LINK_HEADER).nested(LINK_INFO);
        let data = info.nested(INFO_DATA);
        match info.text(INFO_KIND).unwrap_or_default() {
            "vxlan" => _ = self.ports.insert(port(data, VXLAN_PORT).unwrap_or(USUAL_VXLAN_PORT)),
            "geneve" => _ = self.ports.insert(port(data, GENEVE_PORT).unwrap_or(USUAL_GENEVE_PORT)),
            "bareudp" => self.ports.extend(port(data, BAREUDP_PORT)),
            "gre" | "gretap" | "erspan" | "ip6gre" | "ip6gretap" | "ip6erspan" => {
                self.protocols.insert(GRE);
                self.inside(data, &GRE_INSIDE);
            }
            // Each of them can be set to take all of these, and a device without a setting of its own does.
            "ipip" | "sit" | "ip6tnl" => {
                self.protocols.extend([IPIP, IPV6_IN_IP, MPLS_IN_IP]);
                self.inside(data, &IP_INSIDE);
            }
            _ => {}
        }
    }

    fn inside(&mut self, data: Attributes<'_>, inside: &Inside) {
        self.ports.extend([inside.from, inside.to].into_iter().filter_map(|at| port(data, at)));
    }
}

/// A port in the network's order. 0 is none.
fn port(data: Attributes<'_>, kind: u16) -> Option<u16> {
    data.get(kind)?.try_into().ok().map(u16::from_be_bytes).filter(|port| *port != 0)
}

/// The tunnel endpoints of the network namespace that the socket was opened in.
pub fn tunnels(socket: &mut Socket) -> Result<Tunnels, Error> {
    let request = request(GET_LINK, LINK_HEADER);
    uninterrupted(|| {
        let mut found = Tunnels::default();
        socket.dump(&request, |message| found.read(message)).map(|()| found)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::Messages;
    use std::collections::BTreeSet;

    /// A link of this kind, with ports at these attributes.
    fn found(kind: &str, ports: &[(u16, u16)]) -> (Vec<u16>, Vec<u8>) {
        let mut messages = Messages::new();
        messages.begin(NEW_LINK, 0, &[0; LINK_HEADER]);
        messages.nested(LINK_INFO, |info| {
            info.text(INFO_KIND, kind);
            info.nested(INFO_DATA, |data| ports.iter().for_each(|(at, port)| data.u16(*at, *port)));
        });
        let mut found = Tunnels::default();
        Received::all(messages.as_bytes()).for_each(|message| found.read(message));
        let list = |set: BTreeSet<u16>| set.into_iter().collect();
        (list(found.ports), found.protocols.into_iter().collect())
    }

    #[test]
    fn s1_9_tunnel_devices_tell_their_ports_and_protocols() {
        assert_eq!(found("vxlan", &[(15, 4789)]), (vec![4789], vec![]));
        assert_eq!(found("vxlan", &[]), (vec![8472], vec![]), "what the kernel takes without a setting");
        assert_eq!(found("geneve", &[(5, 6082)]), (vec![6082], vec![]));
        assert_eq!(found("geneve", &[]), (vec![6081], vec![]));
        assert_eq!(found("bareudp", &[(1, 6635)]), (vec![6635], vec![]));
        for kind in ["gre", "gretap", "erspan", "ip6gre", "ip6gretap", "ip6erspan"] {
            assert_eq!(found(kind, &[]), (vec![], vec![47]), "{kind}");
        }
        for kind in ["ipip", "sit", "ip6tnl"] {
            assert_eq!(found(kind, &[]), (vec![], vec![4, 41, 137]), "{kind}");
        }
        assert_eq!(found("gre", &[(16, 0), (17, 5555)]), (vec![5555], vec![47]), "inside UDP");
        assert_eq!(found("ipip", &[(17, 5556), (18, 5555)]), (vec![5555, 5556], vec![4, 41, 137]));
    }

    #[test]
    fn other_devices_have_no_endpoints() {
        for kind in ["wireguard", "vti", "vti6", "xfrm", "ovpn", "macsec", "gtp", "amt", "veth", "bridge", "dummy", ""]
        {
            assert_eq!(found(kind, &[(15, 4789), (5, 6081), (1, 1), (17, 17)]), (vec![], vec![]), "{kind}");
        }
    }
}
