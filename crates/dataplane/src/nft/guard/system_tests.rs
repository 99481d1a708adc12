//! The guard's tables in a real kernel. Each test has a network namespace of its own.

use super::*;
use crate::nflog::Denied;
use crate::nft::rule::Hardware;
use crate::nft::{Settings, isolated, uninstall};
use crate::{Dataplane, ExtraSource};
use std::process::{Child, Command};

fn run(command: &str) -> String {
    let words: Vec<&str> = command.split(' ').collect();
    let output = Command::new(words[0]).args(&words[1..]).output().expect("it runs");
    assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn pod(name: &str) -> PodInterface {
    let index = std::fs::read_to_string(format!("/proc/thread-self/net/dev_snmp6/{name}")).unwrap_or_default();
    let index = index
        .lines()
        .find_map(|line| line.strip_prefix("ifIndex"))
        .map_or(0, |text| text.trim().parse().expect("a value"));
    PodInterface {
        name: name.to_owned(),
        index,
        hardware: Some(Hardware([2, 0, 0, 0, 0, 1])),
        addresses: vec![
            "10.0.0.1".parse().expect("a value"),
            "fd00::1".parse().expect("a value"),
            "fe80::1".parse().expect("a value"),
        ],
        extra: Vec::new(),
        is_shared: false,
        hears_groups: false,
    }
}

fn open() -> Nft {
    Nft::open(Settings::default()).expect("nftables")
}

impl Nft {
    fn guarded(&mut self, interfaces: &[PodInterface]) -> Result<Guarded, NftError> {
        self.guard(&Guard { interfaces, own: &[], log_group: 53 })
    }
}

#[test]
fn nft_shows_the_guard_and_an_interface_that_is_missing_spoils_nothing() {
    isolated(|| {
        run("ip link add pod1 type veth peer name far1");
        let mut nft = open();
        let done = nft.guarded(&[pod("pod1"), pod("missing")]).unwrap();
        // Since Linux 6.16 a chain waits for an interface that does not exist yet.
        assert!(done.missing.is_empty() || done.missing == ["missing"], "{done:?}");
        let list = run("nft list table netdev namewall");
        for part in [
            "hook ingress device \"pod1\"",
            "ether saddr 02:00:00:00:00:01 ip version 4 ip hdrlength 5 ip saddr 10.0.0.1 accept",
            "policy drop",
        ] {
            assert!(list.contains(part), "no {part} in:\n{list}");
        }
        assert!(!list.contains("invalid type"), "{list}");
        let list = run("nft list table bridge namewall");
        assert!(list.contains("type iface_index") && list.contains("\"pod1\""), "{list}");
        assert_eq!(nft.guarded(&[pod("pod1")]).unwrap().missing, Vec::<String>::new());
        let again = nft.guarded(&[pod("pod1")]).unwrap();
        assert_eq!(again.operations, 0, "nothing to do");
        assert_eq!(nft.guard_drops().unwrap(), GuardDrops::default());
    });
}

#[test]
fn a_process_goes_on_with_the_guard_of_the_one_before() {
    isolated(|| {
        run("ip link add pod1 type veth peer name far1");
        run("ip link add pod2 type veth peer name far2");
        let mut first = open();
        first.guarded(&[pod("pod1"), pod("pod2")]).unwrap();
        drop(first);
        let mut second = open();
        assert_eq!(second.guarded(&[pod("pod1"), pod("pod2")]).unwrap().operations, 0);
        // With an interface the kernel takes its hook away, or its chain.
        run("ip link del pod2");
        second.guarded(&[pod("pod1")]).unwrap();
        assert!(!run("nft list table netdev namewall").contains("chain pod/pod2"));
        run("ip link add pod2 type veth peer name far2");
        second.guarded(&[pod("pod1"), pod("pod2")]).unwrap();
        assert!(run("nft list table netdev namewall").contains("hook ingress device \"pod2\""));
        drop(second);
        run("ip link del pod2");
        let mut third = open();
        third.guarded(&[pod("pod1")]).unwrap();
        assert!(!run("nft list table netdev namewall").contains("chain pod/pod2"));
    });
}

#[test]
fn uninstall_removes_the_guard() {
    isolated(|| {
        run("ip link add pod1 type veth peer name far1");
        let mut nft = open();
        nft.guarded(&[pod("pod1")]).unwrap();
        drop(nft);
        assert!(uninstall("namewall", Duration::from_secs(10), &mut |_| {}).unwrap());
        assert_eq!(run("nft list tables").trim(), "");
    });
}

/// A pod: a network namespace of its own at a link of this one.
struct FarEnd(Child);

const GATEWAY_HARDWARE: &str = "02:00:00:00:00:fe";

impl FarEnd {
    /// A pod at a new interface, with these addresses beside its own, 10.0.0.1.
    fn new(name: &str, more: &[&str]) -> Self {
        let child = Command::new("unshare").args(["--net", "sleep", "900"]).spawn().expect("unshare runs");
        let pod = Self(child);
        let own = std::fs::read_link("/proc/thread-self/ns/net").expect("a namespace");
        while std::fs::read_link(pod.namespace()).is_ok_and(|other| other == own) {
            std::thread::sleep(Duration::from_millis(2));
        }
        let id = pod.0.id();
        run(&format!(
            "ip link add {name} address {GATEWAY_HARDWARE} type veth peer name eth0 address 02:00:00:00:00:01 netns {id}"
        ));
        run(&format!("ip link set {name} up"));
        let inside = |command: &str| run(&format!("nsenter --target {id} --net {command}"));
        inside("ip address add 10.0.0.1/24 dev eth0");
        for address in more {
            inside(&format!("ip address add {address}/32 dev eth0"));
        }
        // No frames but those that a test sends.
        inside("ip link set eth0 addrgenmode none");
        inside("ip link set eth0 up");
        inside(&format!("ip neighbour add 10.0.0.254 lladdr {GATEWAY_HARDWARE} dev eth0"));
        pod
    }

    fn namespace(&self) -> String {
        format!("/proc/{}/ns/net", self.0.id())
    }

    /// Sends a packet to the node from one of the pod's addresses.
    fn send(&self, source: &str) {
        let (file, source) = (std::fs::File::open(self.namespace()).expect("a namespace"), source.to_owned());
        let send = move || {
            nix::sched::setns(file, nix::sched::CloneFlags::CLONE_NEWNET).expect("it is entered");
            let socket = std::net::UdpSocket::bind((source.as_str(), 0)).expect("a socket");
            socket.send_to(b"hello", "10.0.0.254:9").expect("it is sent");
        };
        std::thread::spawn(send).join().expect("it ends well");
    }
}

impl Drop for FarEnd {
    fn drop(&mut self) {
        let _ = self.0.kill().and_then(|()| self.0.wait());
    }
}

/// Waits for a condition, for a minute.
fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let until = std::time::Instant::now() + Duration::from_secs(60);
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(std::time::Instant::now() < until, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// How many packets have come past the guard: the sum of all counters.
fn passed() -> u64 {
    let list = run("nft list chain inet seen early");
    let words: Vec<&str> = list.split_whitespace().collect();
    let counters = words.iter().zip(&words[1..]).filter(|(word, _)| **word == "packets");
    counters.map(|(_, number)| number.parse::<u64>().expect("a number")).sum()
}

/// The pod's hardware address, and another one.
const OWN_HARDWARE: &str = "02:00:00:00:00:01";
const OTHER_HARDWARE: &str = "02:00:00:00:00:02";

/// Sends a packet of these bytes to the node, as a process with NET_RAW can.
fn send_raw(pod: &FarEnd, kind: u16, packet: &[u8]) {
    send_from(pod, OWN_HARDWARE, kind, packet);
}

/// The same from this hardware address.
fn send_from(pod: &FarEnd, hardware: &str, kind: u16, packet: &[u8]) {
    send_frame(pod, [GATEWAY_HARDWARE, hardware], kind, packet);
}

/// The same between these hardware addresses, the receiver's first.
fn send_frame(pod: &FarEnd, ends: [&str; 2], kind: u16, packet: &[u8]) {
    let file = std::fs::File::open(pod.namespace()).expect("a namespace");
    let bytes = ends.into_iter().flat_map(|end| end.split(':'));
    let mut frame: Vec<u8> = bytes.map(|byte| u8::from_str_radix(byte, 16).expect("a byte")).collect();
    frame.extend_from_slice(&kind.to_be_bytes());
    frame.extend_from_slice(packet);
    let send = move || {
        nix::sched::setns(file, nix::sched::CloneFlags::CLONE_NEWNET).expect("it is entered");
        use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockType, sendto, socket};
        let socket =
            socket(AddressFamily::Packet, SockType::Raw, SockFlag::SOCK_CLOEXEC, None).expect("a packet socket");
        let all = nix::ifaddrs::getifaddrs().expect("interfaces");
        let link = all.filter(|one| one.interface_name == "eth0").find_map(|one| one.address?.as_link_addr().copied());
        sendto(std::os::fd::AsRawFd::as_raw_fd(&socket), &frame, &link.expect("eth0"), MsgFlags::empty())
            .expect("it is sent");
    };
    std::thread::spawn(send).join().expect("it ends well");
}

/// An IPv4 packet for UDP port 9 of the node, with options.
fn ipv4_with(options: &[u8]) -> Vec<u8> {
    let words = 5 + options.len() as u8 / 4;
    let mut header = vec![0x40 | words, 0, 0, words * 4 + 8, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 254];
    header.extend_from_slice(options);
    let sum: u32 = header.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1])).sum();
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    header.extend_from_slice(&[0x30, 0, 0, 9, 0, 8, 0, 0]);
    header
}

/// An IPv6 packet for UDP port 9 of the node, behind these headers; the first of them has this number.
fn ipv6_with(first: u8, headers: &[u8]) -> Vec<u8> {
    let own: std::net::Ipv6Addr = "fd00::1".parse().expect("an address");
    let node: std::net::Ipv6Addr = "fd00::fe".parse().expect("an address");
    let mut packet = vec![0x60, 0, 0, 0, 0, headers.len() as u8 + 8, first, 64];
    packet.extend(own.octets().into_iter().chain(node.octets()));
    packet.extend_from_slice(headers);
    packet.extend_from_slice(&[0x30, 0, 0, 9, 0, 8, 0, 0]);
    packet
}

#[test]
fn s1_9_no_packet_of_a_pod_names_further_hops() {
    const UDP: u8 = 17;
    isolated(|| {
        run("nft add table inet seen");
        run("nft add chain inet seen early { type filter hook prerouting priority -500; }");
        run("nft add rule inet seen early udp dport 9 counter");
        let far = FarEnd::new("pod1", &[]);
        let mut nft = open();
        let unknown = || PodInterface {
            is_shared: true,
            hardware: None,
            extra: vec![ExtraSource { block: "fd00::/64".parse().expect("a block"), except: Vec::new() }],
            ..pod("pod1")
        };
        let (ipv4, ipv6) = (0x0800, 0x86dd);
        let route = [UDP, 2, 4, 1, 0, 0, 0, 0, 0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9];
        let behind = |first: u8| [&[first, 0, 1, 4, 0, 0, 0, 0][..], &route].concat();
        let packets = [
            ("plain", ipv4, ipv4_with(&[]), true),
            ("plain", ipv6, ipv6_with(UDP, &[]), true),
            ("a Router Alert", ipv4, ipv4_with(&[148, 4, 0, 0]), true),
            ("an IPv6 header of options", ipv6, ipv6_with(60, &[UDP, 0, 1, 4, 0, 0, 0, 0]), true),
            ("a loose source route", ipv4, ipv4_with(&[131, 7, 4, 10, 0, 0, 9, 0]), false),
            ("a strict source route", ipv4, ipv4_with(&[137, 7, 4, 10, 0, 0, 9, 0]), false),
            // nft's own test for source routes does not find this one.
            ("a used source route", ipv4, ipv4_with(&[131, 11, 8, 10, 0, 0, 8, 10, 0, 0, 9, 0]), false),
            ("a Router Alert and a route", ipv4, ipv4_with(&[148, 4, 0, 0, 131, 7, 4, 10, 0, 0, 9, 0]), false),
            ("another option of four bytes", ipv4, ipv4_with(&[1, 1, 1, 1]), false),
            ("a routing header", ipv6, ipv6_with(43, &route), false),
            ("a routing header behind options", ipv6, ipv6_with(60, &behind(43)), false),
            ("a routing header behind hop-by-hop options", ipv6, ipv6_with(0, &behind(43)), false),
        ];
        for (what, kind, packet, _) in &packets {
            let seen = passed();
            send_raw(&far, *kind, packet);
            eventually(&format!("{what} passes without the guard"), || (passed() > seen).then_some(()));
        }
        for interface in [pod("pod1"), unknown()] {
            let is_shared = interface.is_shared;
            nft.guarded(&[interface]).unwrap();
            for (what, kind, packet, passes) in &packets {
                let (seen, before) = (passed(), nft.guard_drops().unwrap());
                send_raw(&far, *kind, packet);
                let went = eventually("it passes or is counted", || {
                    let drops = nft.guard_drops().unwrap();
                    assert_eq!(drops.wrong_source, before.wrong_source, "{what}, shared: {is_shared}");
                    let dropped = drops.source_routes.packets > before.source_routes.packets;
                    (passed() > seen).then_some(true).or(dropped.then_some(false))
                });
                assert_eq!(went, *passes, "{what}, shared: {is_shared}");
            }
        }
    });
}

/// An IPv4 packet of UDP between these ends.
fn datagram(from: &str, to: &str, ports: [u16; 2]) -> Vec<u8> {
    let mut header = vec![0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0];
    for end in [from, to] {
        header.extend(end.parse::<std::net::Ipv4Addr>().expect("an address").octets());
    }
    let words = header.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1]));
    let sum: u32 = words.sum();
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    header.extend(ports.into_iter().flat_map(u16::to_be_bytes));
    header.extend_from_slice(&[0, 8, 0, 0]);
    header
}

/// A message of router discovery to all routers.
fn discovery(from: &str, kind: u8, hops: u8) -> Vec<u8> {
    let ends = [from, "ff02::2"].map(|text| text.parse::<std::net::Ipv6Addr>().expect("an address").octets());
    let mut message = vec![kind, 0, 0, 0, 0, 0, 0, 0];
    if kind == 134 {
        message.extend_from_slice(&[0; 8]);
    }
    let mut words = ends.concat();
    words.extend_from_slice(&[0, 0, 0, message.len() as u8, 0, 0, 0, 58]);
    words.extend_from_slice(&message);
    let mut sum: u32 = words.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1])).sum();
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    message[2..4].copy_from_slice(&(!(sum as u16)).to_be_bytes());
    let mut packet = vec![0x60, 0, 0, 0, 0, message.len() as u8, 58, hops];
    packet.extend(ends.concat());
    packet.extend_from_slice(&message);
    packet
}

/// What a pod asks of its own network's servers and routers passes; what it says as another, or as a server or a router,
/// does not.
#[test]
fn s1_10_dhcp_and_router_solicitations_of_the_pod_pass_and_forged_ones_do_not() {
    isolated(|| {
        run("nft add table inet seen");
        run("nft add chain inet seen early { type filter hook prerouting priority -500; }");
        run("nft add rule inet seen early udp dport { 67, 68 } counter");
        run("nft add rule inet seen early icmpv6 type { nd-router-solicit, nd-router-advert } counter");
        let far = FarEnd::new("pod1", &[]);
        let mut nft = open();
        // Its link-local address is made of its hardware address, and the Program does not have it as the pod's.
        let known = PodInterface {
            addresses: vec!["10.0.0.1".parse().expect("an address"), "fd00::1".parse().expect("an address")],
            ..pod("pod1")
        };
        let unknown = PodInterface { is_shared: true, hardware: None, ..known.clone() };
        let (ipv4, ipv6) = (0x0800, 0x86dd);
        let (any, all, node) = ("0.0.0.0", "255.255.255.255", "10.0.0.254");
        let own = "fe80::ff:fe00:1";
        // Whether it passes where the pod is known, and where it is not.
        let packets = [
            ("a DHCP request", OWN_HARDWARE, ipv4, datagram(any, all, [68, 67]), [true, true]),
            ("a renewal", OWN_HARDWARE, ipv4, datagram("10.0.0.1", node, [68, 67]), [true, true]),
            ("a request as another host", OTHER_HARDWARE, ipv4, datagram(any, all, [68, 67]), [false, true]),
            ("a renewal as another pod", OWN_HARDWARE, ipv4, datagram("10.0.0.9", node, [68, 67]), [false, false]),
            ("an answer of a server", OWN_HARDWARE, ipv4, datagram(any, all, [67, 68]), [false, false]),
            ("a request to one host", OWN_HARDWARE, ipv4, datagram(any, node, [68, 67]), [false, false]),
            ("a router solicitation", OWN_HARDWARE, ipv6, discovery(own, 133, 255), [true, true]),
            ("one without an address", OWN_HARDWARE, ipv6, discovery("::", 133, 255), [true, true]),
            ("one from a routable address", OWN_HARDWARE, ipv6, discovery("fd00::1", 133, 255), [true, true]),
            ("one as another host", OTHER_HARDWARE, ipv6, discovery(own, 133, 255), [false, true]),
            ("one from another's address", OWN_HARDWARE, ipv6, discovery("fe80::9", 133, 255), [false, true]),
            ("one from another pod's address", OWN_HARDWARE, ipv6, discovery("fd00::9", 133, 255), [false, false]),
            ("one that was forwarded", OWN_HARDWARE, ipv6, discovery(own, 133, 64), [false, false]),
            ("a forwarded one without an address", OWN_HARDWARE, ipv6, discovery("::", 133, 64), [false, false]),
            ("a router advertisement", OWN_HARDWARE, ipv6, discovery(own, 134, 255), [false, false]),
        ];
        for (what, hardware, kind, packet, _) in &packets {
            let seen = passed();
            send_from(&far, hardware, *kind, packet);
            eventually(&format!("{what} passes without the guard"), || (passed() > seen).then_some(()));
        }
        for (at, interface) in [known, unknown].into_iter().enumerate() {
            nft.guarded(&[interface]).unwrap();
            for (what, hardware, kind, packet, passes) in &packets {
                let (seen, before) = (passed(), nft.guard_drops().unwrap().wrong_source.packets);
                send_from(&far, hardware, *kind, packet);
                let went = eventually("it passes or is counted", || {
                    let dropped = nft.guard_drops().unwrap().wrong_source.packets > before;
                    (passed() > seen).then_some(true).or(dropped.then_some(false))
                });
                assert_eq!(went, passes[at], "{what}, unknown: {}", at == 1);
            }
        }
    });
}

#[test]
fn s1_9_extra_sources_pass_for_their_pod_alone_and_the_log_says_why_others_do_not() {
    isolated(|| {
        run("nft add table inet seen");
        run("nft add chain inet seen early { type filter hook prerouting priority -200; }");
        run("nft add rule inet seen early udp dport 9 counter");
        // In the block, somebody else's, and outside the block.
        let more = ["10.8.0.5", "10.8.0.9", "10.7.0.5", "192.0.2.7"];
        let (router, other) = (FarEnd::new("pod1", &more), FarEnd::new("pod2", &more));
        let mut nft = open();
        let mut log = crate::nflog::DenialLog::open(53).unwrap();
        let plain = || [pod("pod1"), pod("pod2")];
        let mut allowed = plain();
        let others = vec!["10.8.0.9".parse().expect("an address")];
        allowed[0].extra = vec![
            ExtraSource { block: "10.8.0.0/16".parse().expect("a block"), except: others },
            ExtraSource { block: "192.0.2.7/32".parse().expect("a block"), except: Vec::new() },
        ];
        let mut check = |interfaces: &[PodInterface], from: &FarEnd, source: &str, expected: bool| {
            nft.guarded(interfaces).unwrap();
            let drops = nft.guard_drops().unwrap().wrong_source.packets;
            let seen = passed();
            from.send(source);
            let went = eventually("it passes or is counted", || {
                let dropped = nft.guard_drops().unwrap().wrong_source.packets > drops;
                (passed() > seen).then_some(true).or(dropped.then_some(false))
            });
            assert_eq!(went, expected, "{source}");
        };
        check(&plain(), &router, "10.0.0.1", true);
        check(&plain(), &router, "10.8.0.5", false);
        check(&plain(), &router, "192.0.2.7", false);
        log.drain().unwrap();
        check(&allowed, &router, "10.0.0.1", true);
        check(&allowed, &router, "10.8.0.5", true);
        check(&allowed, &router, "192.0.2.7", true);
        check(&allowed, &router, "10.8.0.9", false);
        check(&allowed, &router, "10.7.0.5", false);
        check(&allowed, &other, "10.0.0.1", true);
        check(&allowed, &other, "10.8.0.5", false);
        check(&allowed, &other, "192.0.2.7", false);
        let mut told = Vec::new();
        let spoofed = eventually("the log has the frame", || {
            told.extend(log.drain().unwrap());
            told.iter().find(|denied: &&Denied| denied.source.to_string() == "10.7.0.5").cloned()
        });
        assert_eq!(spoofed.rule, "its source is not the pod's at that interface");
        assert_eq!((spoofed.enforced, spoofed.destination.to_string().as_str()), (true, "10.0.0.254"));
        assert_eq!((spoofed.protocol, spoofed.port), (namewall_policy::port::Protocol::Udp, 9));
        assert!(told.iter().all(|denied| denied.source.to_string() != "10.0.0.1"), "{told:?}");
    });
}

/// Ports of a bridge that are pods.
struct Bridged {
    speaker: FarEnd,
    listener: FarEnd,
}

impl Bridged {
    fn new() -> Self {
        run("ip link add cni0 type bridge");
        run("ip link set cni0 up");
        let (speaker, listener) = (FarEnd::new("pod1", &[]), FarEnd::new("pod2", &[]));
        for port in ["pod1", "pod2"] {
            run(&format!("ip link set {port} master cni0"));
        }
        let pod = Self { speaker, listener };
        pod.inside("nft add table netdev seen");
        pod.inside("nft add chain netdev seen early { type filter hook ingress device eth0 priority 0; }");
        for kind in ["ip", "arp"] {
            pod.inside(&format!("nft add rule netdev seen early ether type {kind} counter"));
        }
        pod
    }

    fn inside(&self, command: &str) -> String {
        run(&format!("nsenter --target {} --net {command}", self.listener.0.id()))
    }

    /// How many frames of this kind the listener has heard.
    fn heard(&self, kind: &str) -> u64 {
        let list = self.inside("nft list chain netdev seen early");
        let is_meant = |line: &&str| line.contains(&format!("type {kind} counter"));
        let words: Vec<&str> = list.lines().find(is_meant).expect("a rule").split_whitespace().collect();
        let at = words.iter().position(|word| *word == "packets").expect("a counter");
        words[at + 1].parse().expect("a number")
    }

    fn speak(&self, kind: u16, packet: &[u8]) {
        send_frame(&self.speaker, ["ff:ff:ff:ff:ff:ff", OWN_HARDWARE], kind, packet);
    }
}

/// Groups are then kept from pods where frames leave for them, and bridges are looked at all the same.
#[test]
fn s1_10_without_tables_for_bridges_groups_are_kept_from_pods_at_their_ports() {
    isolated(|| {
        let pods = Bridged::new();
        let mut nft = open();
        if !nft.features.egress_hook.is_there {
            return;
        }
        nft.features.guard.bridges = false;
        let speaker = || PodInterface { hears_groups: true, ..pod("pod1") };
        let listener = |hears_groups| PodInterface { hears_groups, ..pod("pod2") };
        let group = datagram("10.0.0.1", "255.255.255.255", [9, 9]);
        let mut question = vec![0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 1, 10, 0, 0, 1];
        question.extend_from_slice(&[0, 0, 0, 0, 0, 0, 10, 0, 0, 9]);
        let (ipv4, arp) = (0x0800, 0x0806);

        let done = nft.guarded(&[speaker(), listener(true)]).unwrap();
        assert_eq!(done.lacking, [NO_BRIDGES]);
        assert_eq!([done.bridges.changed, done.bridges.unfiltered].concat(), ["cni0"], "it is looked at");
        // What is heard of ARP is heard after all that was sent before.
        let hears = |name: &str, kind, packet: &[u8]| {
            let before = pods.heard(name);
            eventually("it is heard", || {
                pods.speak(kind, packet);
                (pods.heard(name) > before).then_some(())
            });
        };
        hears("ip", ipv4, &group);
        hears("arp", arp, &question);
        nft.guarded(&[speaker(), listener(false)]).unwrap();
        let (heard, dropped) = (pods.heard("ip"), nft.guard_drops().unwrap().groups.packets);
        pods.speak(ipv4, &group);
        eventually("it is counted", || (nft.guard_drops().unwrap().groups.packets > dropped).then_some(()));
        hears("arp", arp, &question);
        assert_eq!(pods.heard("ip"), heard, "a pod with ingress policies hears no group");
        assert!(!run("nft list tables").contains("table bridge"), "the kernel is not asked for what it lacks");
    });
}

/// A kernel without the hook still has bridges pass their frames to the rules of policies, and says what it lacks.
#[test]
fn s1_9_without_a_hook_for_frames_bridges_are_filtered_and_what_is_lacking_is_named() {
    isolated(|| {
        let pods = Bridged::new();
        let mut nft = open();
        nft.features.guard.frames = false;
        let done = nft.guarded(&[pod("pod1"), pod("pod2")]).unwrap();
        assert_eq!((done.lacking, done.by_address_alone), (vec![NO_FRAMES], true));
        assert_eq!([done.bridges.changed, done.bridges.unfiltered].concat(), ["cni0"]);
        let tables = run("nft list tables");
        assert!(tables.contains("table bridge") && !tables.contains("table netdev"), "{tables}");
        nft.features.guard.bridges = false;
        assert_eq!(nft.guarded(&[pod("pod1")]).unwrap().lacking, [NO_FRAMES, NO_GROUPS]);
        drop(pods);
    });
}

#[test]
fn a_bridge_whose_frames_somebody_takes_from_the_firewall_is_set_right_again() {
    isolated(|| {
        let _pods = Bridged::new();
        let mut nft = open();
        let done = nft.guarded(&[pod("pod1"), pod("pod2")]).unwrap();
        if !done.bridges.unfiltered.is_empty() {
            assert_eq!(nft.filter_bridges().unwrap().unfiltered, ["cni0"], "it is told again");
            return;
        }
        assert_eq!(nft.filter_bridges().unwrap(), Bridges::default());
        let mut notices = crate::netlink::LinkNotices::open().unwrap();
        run("ip link set cni0 type bridge nf_call_iptables 0");
        assert!(notices.have_come(), "the kernel tells of it");
        assert_eq!(nft.filter_bridges().unwrap().changed, ["cni0"]);
        assert!(run("ip -details link show cni0").contains("nf_call_iptables 1"));
    });
}
