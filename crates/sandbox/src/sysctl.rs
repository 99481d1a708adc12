//! The settings of a network namespace, written from inside it.

use crate::error::Error;
use std::path::Path;
use std::{fs, io};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Manners {
    Host,
    /// It passes on what is not for itself.
    Router,
    /// A host on a bridge: it gives itself a link-local address, as every Linux host does.
    Bridged,
}

/// A new namespace takes some settings from the machine's own, so all that matter are written.
const EVERYWHERE: &[(&str, &str)] = &[
    ("ipv4/conf/all/rp_filter", "0"),
    ("ipv4/conf/default/rp_filter", "0"),
    // Port unreachable is what tells a closed UDP port from a dropped packet: none of it may be held back.
    ("ipv4/icmp_ratemask", "0"),
    ("ipv4/icmp_echo_ignore_all", "0"),
];

/// No address but those given, and none of them waits to be checked.
const EVERYWHERE_V6: &[(&str, &str)] = &[
    ("ipv6/conf/all/disable_ipv6", "0"),
    ("ipv6/conf/default/disable_ipv6", "0"),
    ("ipv6/conf/default/addr_gen_mode", "1"),
    ("ipv6/conf/default/accept_dad", "0"),
    ("ipv6/conf/default/accept_ra", "0"),
    ("ipv6/conf/default/router_solicitations", "0"),
    // A bit of a message that is never sent, since the list of those held back cannot be empty.
    ("ipv6/icmp/ratemask", "255"),
];

/// To be called inside the namespace, before its first link is made: links copy `default`.
pub(crate) fn set(manners: Manners) -> Result<(), Error> {
    let forward = if manners == Manners::Router { "1" } else { "0" };
    write_all(EVERYWHERE)?;
    write("ipv4/ip_forward", forward)?;
    // A kernel without IPv6 can still hold a cluster without it.
    if has_ipv6() {
        write_all(EVERYWHERE_V6)?;
        if manners == Manners::Bridged {
            write("ipv6/conf/default/addr_gen_mode", "0")?;
        }
        write("ipv6/conf/all/forwarding", forward)?;
    }
    Ok(())
}

pub(crate) fn has_ipv6() -> bool {
    Path::new("/proc/sys/net/ipv6/conf").exists()
}

fn write_all(settings: &[(&str, &'static str)]) -> Result<(), Error> {
    settings.iter().try_for_each(|(name, value)| write(name, value))
}

fn write(name: &str, value: &'static str) -> Result<(), Error> {
    let path = format!("/proc/sys/net/{name}");
    match fs::write(&path, value) {
        // An older kernel has no such setting per namespace.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result.map_err(|source| Error::Sysctl { path, value, source }),
    }
}
