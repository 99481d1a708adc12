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
        for part in
            ["hook ingress device \"pod1\"", "ether saddr 02:00:00:00:00:01 ip saddr 10.0.0.1 accept", "policy drop"]
        {
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
        let child = Command::new("unshare").args(["--net", "sleep", "60"]).spawn().expect("unshare runs");
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

/// How many packets have come past the guard.
fn passed() -> u64 {
    let list = run("nft list chain inet seen early");
    let words: Vec<&str> = list.split_whitespace().collect();
    let at = words.iter().position(|word| *word == "packets").expect("a counter");
    words[at + 1].parse().expect("a number")
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
