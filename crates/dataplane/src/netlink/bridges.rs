//! Bridges whose frames pass the firewall of IP packets. Without it a bridge
//! forwards what one pod sends to another, and no rule for packets sees it.

use super::link::{
    GET_LINK, INFO_DATA, INFO_KIND, LINK_HEADER, LINK_INFO, LINK_MASTER, LINK_NAME, NEW_LINK, index, request,
    uninterrupted,
};
use super::{ACK, Error, Messages, Received, Socket};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

const BRIDGE: &str = "bridge";
/// Frames with IPv4 and with IPv6 packets pass the hooks of these. iptables is in the kernel's name, nftables is meant
/// as well.
const CALLS_IPTABLES: u16 = 36;
const CALLS_IP6TABLES: u16 = 37;
/// The module that calls the hooks is there if this is. A bridge's own flags say nothing of it.
const MODULE: &str = "/proc/sys/net/bridge";

#[derive(Default)]
pub(super) struct Links {
    /// The bridge of each port.
    pub(super) masters: BTreeMap<u32, u32>,
    pub(super) bridges: BTreeMap<u32, Bridge>,
}

pub(super) struct Bridge {
    name: String,
    is_filtered: bool,
}

/// What was done about bridges.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Bridges {
    /// Bridges whose frames did not pass, and do now.
    pub changed: Vec<String>,
    /// Bridges whose frames cannot be made to pass: the kernel's module br_netfilter is not loaded.
    pub unfiltered: Vec<String>,
}

/// Makes the frames of the bridges that these interfaces are ports of pass the firewall.
pub fn filter_bridges(socket: &mut Socket, ports: &BTreeSet<u32>) -> Result<Bridges, Error> {
    let links = links(socket)?;
    let used: BTreeSet<u32> = ports.iter().filter_map(|port| links.masters.get(port).copied()).collect();
    let mut done = Bridges::default();
    let has_module = Path::new(MODULE).exists();
    for (index, bridge) in links.bridges.iter().filter(|(index, _)| used.contains(index)) {
        if !has_module {
            done.unfiltered.push(bridge.name.clone());
        } else if !bridge.is_filtered {
            set(socket, *index)?;
            done.changed.push(bridge.name.clone());
        }
    }
    Ok(done)
}

pub(super) fn links(socket: &mut Socket) -> Result<Links, Error> {
    let request = request(GET_LINK, LINK_HEADER);
    uninterrupted(|| {
        let mut links = Links::default();
        socket.dump(&request, |message| links.read(message)).map(|()| links)
    })
}

impl Links {
    pub(super) fn read(&mut self, message: Received<'_>) {
        let Some(index) = index(message).filter(|_| message.kind == NEW_LINK) else { return };
        let attributes = message.attributes(LINK_HEADER);
        let master = attributes.get(LINK_MASTER).and_then(|bytes| bytes.try_into().ok()).map(u32::from_ne_bytes);
        self.masters.extend(master.map(|master| (index, master)));
        let info = attributes.nested(LINK_INFO);
        if info.text(INFO_KIND) == Some(BRIDGE) {
            let is_on = |flag| info.nested(INFO_DATA).get(flag) == Some(&[1][..]);
            let is_filtered = is_on(CALLS_IPTABLES) && is_on(CALLS_IP6TABLES);
            let name = attributes.text(LINK_NAME).unwrap_or_default().to_owned();
            self.bridges.insert(index, Bridge { name, is_filtered });
        }
    }
}

fn set(socket: &mut Socket, bridge: u32) -> Result<(), Error> {
    let mut header = [0; LINK_HEADER];
    header[4..8].copy_from_slice(&bridge.to_ne_bytes());
    let mut request = Messages::new();
    request.begin(NEW_LINK, ACK, &header);
    request.nested(LINK_INFO, |info| {
        info.text(INFO_KIND, BRIDGE);
        info.nested(INFO_DATA, |data| {
            data.bytes(CALLS_IPTABLES, &[1]);
            data.bytes(CALLS_IP6TABLES, &[1]);
        });
    });
    socket.commit(&request)
}

#[cfg(all(test, feature = "system"))]
mod tests {
    use super::*;
    use crate::netlink::Family;
    use crate::nft::isolated;
    use std::process::Command;

    fn ip(arguments: &str) -> String {
        let done = Command::new("ip").args(arguments.split_whitespace()).output().expect("ip runs");
        assert!(done.status.success(), "ip {arguments}");
        String::from_utf8_lossy(&done.stdout).into_owned()
    }

    #[test]
    fn bridges_of_pods_are_filtered_and_others_left_alone() {
        isolated(|| {
            ip("link add cni0 type bridge");
            ip("link add other0 type bridge");
            ip("link add pod1 index 77 type veth peer name far1");
            ip("link set pod1 master cni0");
            let mut socket = Socket::open(Family::NetlinkRoute).unwrap();
            let ports = BTreeSet::from([77]);
            let done = filter_bridges(&mut socket, &ports).unwrap();
            if !Path::new(MODULE).exists() {
                assert_eq!(done.unfiltered, ["cni0"]);
                return;
            }
            assert_eq!(done, Bridges { changed: vec!["cni0".to_owned()], unfiltered: Vec::new() });
            assert_eq!(filter_bridges(&mut socket, &ports).unwrap(), Bridges::default());
            let shown = |link: &str| ip(&format!("-details link show {link}"));
            assert!(shown("cni0").contains("nf_call_iptables 1 nf_call_ip6tables 1"), "{}", shown("cni0"));
            assert!(shown("other0").contains("nf_call_iptables 0"), "{}", shown("other0"));
        });
    }
}
