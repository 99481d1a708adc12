//! The addresses of this machine, which an agent publishes.

use nix::ifaddrs::getifaddrs;
use nix::net::if_::InterfaceFlags;
use std::collections::BTreeSet;
use std::net::IpAddr;

/// All addresses but loopback and link-local ones.
pub(crate) fn own_addresses() -> BTreeSet<IpAddr> {
    let mut own = BTreeSet::new();
    for interface in getifaddrs().into_iter().flatten() {
        let Some(address) = interface.address else { continue };
        let v4 = address.as_sockaddr_in().map(|v4| IpAddr::V4(v4.ip()));
        let v6 = address.as_sockaddr_in6().map(|v6| v6.ip()).filter(|v6| !v6.is_unicast_link_local());
        let is_up = interface.flags.contains(InterfaceFlags::IFF_UP);
        own.extend(v4.or(v6.map(IpAddr::V6)).filter(|address| is_up && !address.is_loopback()));
    }
    own
}
