//! Identity by interface (S1.9): what comes from a pod's interface must carry a
//! source of that pod. From there on the address is proof of the pod, and the
//! rules of policies go by address.
//!
//! ```text
//! frame from a pod ─► netdev ingress of its interface: sender, source address, ARP, neighbour discovery
//!                     not the pod's, or with a VLAN tag: counted and dropped
//!                     IPv4 options, IPv6 routing headers: the same, since they can name further hops
//!                  ─► bridge or routing ─► inet forward, input: policies
//! frame between two ports of a bridge ─► bridge forward: broadcast and multicast for pods with ingress policies
//! ```
//! An interface that leads to a pod, but nobody knows to which, has a chain that
//! drops what no address of a pod or of its network can vouch for (`shared`).
//! The guard looks at every frame, and not only at new connections: else a pod
//! could send into a connection that another pod has. It keeps no state and
//! marks nothing. `render` says what the tables have, `nft::guard` puts them
//! into the kernel.

mod groups;
mod render;
mod shared;

pub(crate) use groups::{FOR_A_GROUP, add_groups, groups};
pub(crate) use render::{SOURCE_ROUTE, WRONG_SOURCE, frames, sent_frames};

use crate::Count;
use crate::netlink::bridges::Bridges;
use crate::netlink::shared::SharedLink;
use crate::nft::rule::Hardware;
use namewall_policy::Program;
use namewall_policy::addr::Cidr;
use namewall_policy::program::{Holder, Plan};
use std::net::{IpAddr, Ipv6Addr};

/// The interface of a pod, at the node's end, and what may come from it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PodInterface {
    pub name: String,
    pub index: u32,
    /// The hardware address of the pod's end. Without it any is taken, which is safe only where the interface is no
    /// port of a bridge.
    pub hardware: Option<Hardware>,
    /// The addresses that the pod may send from. Its link-local address follows from the hardware address. It is among
    /// these if the Program has it as the pod's; else only neighbour discovery may come from it, which no policy judges.
    pub addresses: Vec<IpAddr>,
    /// Sources that the settings allow the pod besides, and where nobody knows the pod, what the node routes that way.
    /// They never become its own addresses.
    pub extra: Vec<ExtraSource>,
    /// True if it leads to one of several pods and nobody knows to which; the addresses are those of all of them. What
    /// no address of a pod vouches for is dropped there, and the address tells the pod.
    pub is_shared: bool,
    /// False if broadcast and multicast that other pods send are kept from this one.
    pub hears_groups: bool,
}

/// A block that a pod may send from, besides its own addresses: what is behind a router or a VPN, or a virtual address.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ExtraSource {
    pub block: Cidr,
    /// Addresses in the block that others have. They do not pass.
    pub except: Vec<IpAddr>,
}

impl ExtraSource {
    /// The address, if it is only one and nobody else has it. The pod may then also answer for it, by ARP and neighbour
    /// discovery; for a larger block it may not.
    fn single(&self) -> Option<IpAddr> {
        let bits = if self.block.address().is_ipv4() { 32 } else { 128 };
        (self.block.prefix() == bits && self.except.is_empty()).then(|| self.block.address())
    }

    /// The block, if it is more than one address.
    fn block(&self) -> Option<Cidr> {
        let bits = if self.block.address().is_ipv4() { 32 } else { 128 };
        (self.block.prefix() < bits).then_some(self.block)
    }
}

impl PodInterface {
    /// An interface that leads to one of the pods with these addresses, and nobody knows to which.
    pub fn shared(link: SharedLink) -> Self {
        let SharedLink { name, index, addresses, blocks } = link;
        let extra = blocks.into_iter().map(|block| ExtraSource { block, except: Vec::new() }).collect();
        Self { name, index, hardware: None, addresses, extra, is_shared: true, hears_groups: false }
    }

    fn link_local(&self) -> Option<Ipv6Addr> {
        self.hardware.map(link_local)
    }

    /// Fills in what depends on the Program. Only addresses that the Program has as a pod's may pass: no rule judges
    /// what comes from any other. A pod with ingress policies hears no group: a bridge gives such a frame to
    /// all its ports, and no policy can tell for which of the pods it is.
    #[must_use]
    pub fn judged_by(mut self, program: &Program) -> Self {
        let has_ingress_policies = |plan: &Plan| {
            let tiers = &plan.ingress;
            tiers.isolated || !tiers.admin.is_empty() || !tiers.baseline.is_empty()
        };
        let is_judged = |address: &IpAddr| match program.by_address.get(address) {
            Some(Holder::Pod(id)) => has_ingress_policies(&program.class(program.member(*id).class).enforced),
            // A pod that is not known yet is closed.
            _ => !is_link_local(*address),
        };
        self.hears_groups = !self.addresses.iter().any(is_judged);
        let holder = |address: &IpAddr| program.by_address.get(address);
        let link_local = self.link_local().map(IpAddr::V6);
        let is_known = |address: &IpAddr| self.addresses.iter().any(|own| holder(own) == holder(address));
        let known = link_local.filter(|address| holder(address).is_some() && is_known(address));
        self.addresses.retain(|address| matches!(holder(address), Some(Holder::Pod(_))));
        self.addresses.extend(known.filter(|address| !self.addresses.contains(address)));
        self
    }
}

/// The interfaces to guard.
#[derive(Clone, Copy, Debug)]
pub struct Guard<'a> {
    pub interfaces: &'a [PodInterface],
    /// The node's own addresses, those of broadcast among them. No bridge has a reason to give a packet for one of them
    /// to a pod, a pod takes its network's broadcast address out of a frame for itself, and no pod sends from them.
    pub own: &'a [IpAddr],
    /// The NFLOG group that dropped frames are reported to.
    pub log_group: u16,
}

/// What the guard has dropped.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct GuardDrops {
    /// Frames with a source that is not the pod's.
    pub wrong_source: Count,
    /// Packets that may name further hops, by IPv4 options or an IPv6 routing header.
    pub source_routes: Count,
    /// Broadcast and multicast that was kept from pods with ingress policies.
    pub groups: Count,
    /// Packets that pods, or others through a Service, have sent into the tunnels of nodes.
    pub tunnels: Count,
}

/// Which interfaces are guarded.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Guarded {
    /// Messages to the kernel; none if nothing had to be changed.
    pub operations: usize,
    /// Interfaces that do not exist.
    pub missing: Vec<String>,
    /// What the kernel cannot do, and what that means. Empty where it can do all.
    pub lacking: Vec<&'static str>,
    /// True if no interface is guarded, since the kernel lacks the hook: the address alone tells the pod.
    pub by_address_alone: bool,
    /// The bridges of these interfaces.
    pub bridges: Bridges,
}

/// The link-local address that Linux gives an interface by default: made of its hardware address.
pub fn link_local(Hardware([a, b, c, d, e, f]): Hardware) -> Ipv6Addr {
    Ipv6Addr::from([0xfe, 0x80, 0, 0, 0, 0, 0, 0, a ^ 2, b, c, 0xff, 0xfe, d, e, f])
}

fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{self, Sample};
    use namewall_policy::model::PolicyKind;

    fn interface(addresses: Vec<IpAddr>) -> PodInterface {
        PodInterface {
            name: "a".to_owned(),
            index: 1,
            hardware: None,
            addresses,
            extra: Vec::new(),
            is_shared: false,
            hears_groups: false,
        }
    }

    #[test]
    fn a_link_local_address_follows_from_the_hardware_address() {
        let hardware = Hardware([0x0a, 0x58, 0x0a, 0xf4, 0x01, 0x05]);
        assert_eq!(link_local(hardware).to_string(), "fe80::858:aff:fef4:105");
    }

    #[test]
    fn only_a_pod_without_ingress_policies_hears_groups() {
        let isolates = sample::policy(PolicyKind::NetworkPolicy, "isolates", "web");
        let pods = Sample::default().pod("web", &["10.0.0.1"], "n1").pod("db", &["10.0.0.2"], "n1");
        let program = pods.policy(isolates).program();
        let hears = |address: &str| {
            let addresses = vec![address.parse().unwrap()];
            interface(addresses).judged_by(&program).hears_groups
        };
        assert!(!hears("10.0.0.1"));
        assert!(hears("10.0.0.2"));
        assert!(!hears("10.0.0.3"), "a pod that is not known yet");
    }

    #[test]
    fn s1_10_a_link_local_address_counts_only_where_the_program_has_it() {
        let hardware = Hardware([2, 0, 0, 0, 0, 1]);
        let own = link_local(hardware).to_string();
        let addresses_of = |pod: &[&str]| {
            let program = Sample::default().pod("web", pod, "n1").program();
            let addresses = vec!["10.0.0.1".parse().unwrap()];
            let hardware = Some(hardware);
            let one = PodInterface { hardware, ..interface(addresses) };
            one.judged_by(&program).addresses.len()
        };
        assert_eq!(addresses_of(&["10.0.0.1", &own]), 2);
        assert_eq!(addresses_of(&["10.0.0.1"]), 1);
        assert_eq!(
            addresses_of(&["10.0.0.9"]),
            0,
            "an address that is no pod's is judged by nobody, and does not pass"
        );
    }
}
