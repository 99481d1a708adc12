//! The pod's end of its interface and the host's end, as the kernel knows them.
//!
//! A veth names its peer by index and by the number of the peer's network
//! namespace. Both ends are asked, and must name each other: the order of
//! interfaces in a result is a convention, this is not.

// What the kernel says of a pod's links carries what the pod has set.
#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use crate::attachment::{HostLink, Mac};
use namewall_dataplane::netlink::link::{
    GET_LINK, INFO_KIND, LINK_HARDWARE, LINK_HEADER, LINK_INFO, LINK_NAME, LINK_NAMESPACE, LINK_PEER, uninterrupted,
};
use namewall_dataplane::netlink::{ACK, DUMP, Error as NetlinkError, Family, Messages, PodSockets, Received, Socket};
use nix::errno::Errno;
use nix::sched::{CloneFlags, setns};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::thread;

const GET_NAMESPACE_ID: u16 = 90;
/// The fixed part of messages about namespaces.
const GENERIC_HEADER: usize = 4;

const NAMESPACE_ID: u16 = 1;
const NAMESPACE_FD: u16 = 3;

/// Kinds of the host's ends that lead to one pod alone, for results where the pod's end is no veth: taps of virtual
/// machines.
const ENDS_OF_ONE: [&str; 2] = ["veth", "tun"];

#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    #[error("cannot open the network namespace {}", .path.display())]
    Open {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("cannot enter the network namespace {}", .path.display())]
    Enter {
        path: PathBuf,
        #[source]
        source: Errno,
    },
    #[error("cannot start a thread")]
    Thread(#[source] io::Error),
    #[error("cannot ask the kernel for interface {interface}")]
    Ask {
        interface: String,
        #[source]
        source: NetlinkError,
    },
}

impl LinkError {
    /// True if the interface, or its network namespace, is not there.
    pub fn is_gone(&self) -> bool {
        match self {
            Self::Open { source, .. } => source.kind() == io::ErrorKind::NotFound,
            Self::Ask { source, .. } => matches!(source, NetlinkError::Refused { errno: Errno::ENODEV, .. }),
            Self::Enter { .. } | Self::Thread(_) => false,
        }
    }
}

/// What the kernel says of a pod's interface.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PodLink {
    /// None if it has none of six bytes.
    pub mac: Option<Mac>,
    /// None if the host has no end that leads to this pod alone.
    pub host: Option<HostLink>,
}

/// Finds an interface in a network namespace, and its other end in this one. `listed` are the names that a result has
/// for it, the likeliest first.
pub fn find(namespace: &Path, interface: &str, listed: &[String]) -> Result<PodLink, LinkError> {
    let file = File::open(namespace).map_err(|source| LinkError::Open { path: namespace.to_owned(), source })?;
    let pod = inside(&file, namespace, interface)?;
    let failed = |source| LinkError::Ask { interface: interface.to_owned(), source };
    let mut socket = Socket::open(Family::NetlinkRoute).map_err(failed)?;
    let host = match pod.kind.as_deref() {
        Some("veth") => {
            let peer =
                pod.peer.map(|peer| get(&mut socket, &Wanted::Index(peer))).transpose().map_err(failed)?.flatten();
            // The number of a namespace is known once a link to it was asked for.
            let number = namespace_id(&mut socket, &file).map_err(failed)?;
            peer.filter(|peer| peer.peer == Some(pod.index) && number.is_some() && peer.namespace == number)
        }
        // An interface of the host that others use too is no pod's: macvlan, ipvlan, vlan.
        Some("macvlan" | "ipvlan" | "vlan" | "macvtap") => None,
        _ => of_result(&mut socket, listed).map_err(failed)?,
    };
    Ok(PodLink { mac: pod.mac, host: host.map(|link| HostLink { name: link.name, index: link.index }) })
}

/// The first interface that a result has, and that leads to one pod alone.
fn of_result(socket: &mut Socket, listed: &[String]) -> Result<Option<Link>, NetlinkError> {
    for name in listed {
        let link = get(socket, &Wanted::Name(name))?;
        if link.as_ref().and_then(|link| link.kind.as_deref()).is_some_and(|kind| ENDS_OF_ONE.contains(&kind)) {
            return Ok(link);
        }
    }
    Ok(None)
}

/// The interface of the host with this name, if there is one.
pub fn host_link(name: &str) -> Result<Option<HostLink>, LinkError> {
    let failed = |source| LinkError::Ask { interface: name.to_owned(), source };
    let mut socket = Socket::open(Family::NetlinkRoute).map_err(failed)?;
    let link = get(&mut socket, &Wanted::Name(name)).map_err(failed)?;
    Ok(link.map(|link| HostLink { name: link.name, index: link.index }))
}

/// The veths of this network namespace that lead to others.
#[derive(Debug)]
pub struct HostEnds {
    socket: Socket,
    /// By the number of the namespace that they lead to.
    ends: Vec<(i32, HostLink)>,
}

impl HostEnds {
    pub fn read() -> Result<Self, LinkError> {
        let failed = |source| LinkError::Ask { interface: "of every pod".to_owned(), source };
        let mut socket = Socket::open(Family::NetlinkRoute).map_err(failed)?;
        let mut request = Messages::new();
        request.begin(GET_LINK, DUMP, &[0; LINK_HEADER]);
        let links = uninterrupted(|| {
            let mut links = Vec::new();
            socket.dump(&request, |message| links.extend(Link::read(message))).map(|()| links)
        });
        let veths = links.map_err(failed)?.into_iter().filter(|link| link.kind.as_deref() == Some("veth"));
        let end = |link: Link| Some((link.namespace?, HostLink { name: link.name, index: link.index }));
        Ok(Self { socket, ends: veths.filter_map(end).collect() })
    }

    /// Those that lead to this namespace. It is not entered.
    pub fn of(&mut self, namespace: &Path) -> Result<Vec<HostLink>, LinkError> {
        let file = File::open(namespace).map_err(|source| LinkError::Open { path: namespace.to_owned(), source })?;
        let failed = |source| LinkError::Ask { interface: format!("of {}", namespace.display()), source };
        let number = namespace_id(&mut self.socket, &file).map_err(failed)?;
        let ends = self.ends.iter().filter(|(leads_to, _)| Some(*leads_to) == number);
        Ok(ends.map(|(_, link)| link.clone()).collect())
    }
}

/// Asks inside the pod's namespace.
fn inside(file: &File, namespace: &Path, interface: &str) -> Result<Link, LinkError> {
    entered(file, namespace, || {
        let failed = |source| LinkError::Ask { interface: interface.to_owned(), source };
        let mut socket = Socket::open(Family::NetlinkRoute).map_err(failed)?;
        let link = get(&mut socket, &Wanted::Name(interface)).map_err(failed)?;
        link.ok_or_else(|| failed(NetlinkError::Refused { sequence: 1, errno: Errno::ENODEV }))
    })
}

/// Opens sockets in a pod's network namespace. It needs the right to enter it, which the plugin has and the agent has
/// not.
pub fn pod_sockets(namespace: &Path) -> Result<PodSockets, LinkError> {
    let file = File::open(namespace).map_err(|source| LinkError::Open { path: namespace.to_owned(), source })?;
    entered(&file, namespace, || {
        PodSockets::open().map_err(|source| LinkError::Ask { interface: "of the pod".to_owned(), source })
    })
}

/// Runs something in a namespace. A thread cannot leave what it has entered, so it ends with its work.
fn entered<T: Send>(
    file: &File,
    namespace: &Path,
    work: impl FnOnce() -> Result<T, LinkError> + Send,
) -> Result<T, LinkError> {
    let enter = || {
        setns(file, CloneFlags::CLONE_NEWNET)
            .map_err(|source| LinkError::Enter { path: namespace.to_owned(), source })?;
        work()
    };
    thread::scope(|scope| {
        let done = thread::Builder::new().name("namespace".to_owned()).spawn_scoped(scope, enter);
        done.map_err(LinkError::Thread)?.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

enum Wanted<'a> {
    Index(u32),
    Name(&'a str),
}

#[derive(Clone, Debug)]
struct Link {
    index: u32,
    name: String,
    mac: Option<Mac>,
    kind: Option<String>,
    /// The index of the other end, and the number of the namespace that it is in.
    peer: Option<u32>,
    namespace: Option<i32>,
}

impl Link {
    fn read(message: Received<'_>) -> Option<Self> {
        let attributes = message.attributes(LINK_HEADER);
        let native = |kind| attributes.get(kind).and_then(|bytes| <[u8; 4]>::try_from(bytes).ok());
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes.strip_suffix(&[0]).unwrap_or(bytes)).into_owned();
        let index = message.body.get(4..8).and_then(|bytes| <[u8; 4]>::try_from(bytes).ok());
        index.map(|index| Self {
            index: u32::from_ne_bytes(index),
            name: attributes.get(LINK_NAME).map(text).unwrap_or_default(),
            mac: attributes.get(LINK_HARDWARE).and_then(|bytes| bytes.try_into().ok()).map(Mac),
            kind: attributes.nested(LINK_INFO).get(INFO_KIND).map(text),
            peer: native(LINK_PEER).map(u32::from_ne_bytes),
            namespace: native(LINK_NAMESPACE).map(i32::from_ne_bytes),
        })
    }
}

/// A link, or None if there is none.
fn get(socket: &mut Socket, wanted: &Wanted<'_>) -> Result<Option<Link>, NetlinkError> {
    let mut header = [0; LINK_HEADER];
    if let Wanted::Index(index) = wanted {
        header[4..8].copy_from_slice(&index.to_ne_bytes());
    }
    let mut request = Messages::new();
    request.begin(GET_LINK, ACK, &header);
    if let Wanted::Name(name) = wanted {
        request.text(LINK_NAME, name);
    }
    let mut found = None;
    let asked = socket.commit_echoed(&request, |message| {
        found = Link::read(message);
    });
    match asked {
        Ok(()) => Ok(found),
        Err(NetlinkError::Refused { errno: Errno::ENODEV, .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The number that the host has for a namespace.
fn namespace_id(socket: &mut Socket, file: &File) -> Result<Option<i32>, NetlinkError> {
    let mut request = Messages::new();
    request.begin(GET_NAMESPACE_ID, ACK, &[0; GENERIC_HEADER]);
    request.native_u32(NAMESPACE_FD, file.as_raw_fd() as u32);
    let mut id = None;
    socket.commit_echoed(&request, |message| {
        let bytes = message.attributes(GENERIC_HEADER).get(NAMESPACE_ID);
        id = bytes.and_then(|bytes| bytes.try_into().ok()).map(i32::from_ne_bytes).filter(|id| *id >= 0);
    })?;
    Ok(id)
}

#[cfg(all(test, feature = "system"))]
mod tests {
    use super::*;
    use nix::sched::unshare;
    use std::process::Command;

    fn ip(arguments: &str) {
        let done = Command::new("ip").args(arguments.split_whitespace()).status().expect("ip runs");
        assert!(done.success(), "ip {arguments}");
    }

    /// A host and a pod, each a network namespace, with what `make` adds between them.
    fn check(make: &[&str], listed: &[&str], expected: Option<&str>) -> PodLink {
        let listed: Vec<String> = listed.iter().map(|&name| name.to_owned()).collect();
        let (make, expected) = (make.join("\n"), expected.map(str::to_owned));
        let run = move || {
            unshare(CloneFlags::CLONE_NEWNET).expect("a namespace can be made; run it as root");
            let mut pod = Command::new("unshare").args(["--net", "sleep", "60"]).spawn().expect("unshare runs");
            let own = std::fs::read_link("/proc/thread-self/ns/net").expect("a namespace");
            let path = PathBuf::from(format!("/proc/{}/ns/net", pod.id()));
            while std::fs::read_link(&path).is_ok_and(|other| other == own) {
                thread::sleep(std::time::Duration::from_millis(2));
            }
            make.replace("POD", &pod.id().to_string()).lines().for_each(ip);
            let found = find(&path, "eth0", &listed);
            pod.kill().and_then(|()| pod.wait()).expect("it ends");
            let found = found.expect("it is found");
            assert_eq!(found.host.as_ref().map(|host| host.name.clone()), expected);
            found
        };
        thread::spawn(run).join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    /// S1.9: what a result says of the host's end does not count where the kernel knows it.
    #[test]
    fn s1_9_the_peer_of_a_veth_is_the_kernels_word() {
        let make = [
            "link add other type veth peer name else",
            "link add host1 type veth peer name eth0 address 0a:58:0a:f4:01:05 netns POD",
        ];
        let found = check(&make, &["other"], Some("host1"));
        assert_eq!(found.mac.map(|mac| mac.to_string()).as_deref(), Some("0a:58:0a:f4:01:05"));
    }

    #[test]
    fn s1_9_a_macvlan_has_no_end_of_its_own_on_the_host() {
        let make =
            ["link add up0 type veth peer name up1", "link add link up0 name eth0 netns POD type macvlan mode bridge"];
        check(&make, &["up0"], None);
    }

    #[test]
    fn s1_9_what_no_kernel_knows_the_result_may_say_unless_it_is_shared() {
        let make = [
            "link add up0 type bridge",
            "link add tap1 type veth peer name tap2",
            "link add eth0 netns POD type bridge",
        ];
        check(&make, &["up0", "tap1"], Some("tap1"));
        check(&make, &["up0"], None);
    }
}
