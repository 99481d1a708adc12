//! The guard's tables in a real kernel. Each test has a network namespace of its own.

use super::*;
use crate::Dataplane;
use crate::nft::rule::Hardware;
use crate::nft::{Settings, isolated, uninstall};
use std::process::Command;

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
        hears_groups: false,
    }
}

fn open() -> Nft {
    Nft::open(Settings::default()).expect("nftables")
}

impl Nft {
    fn guarded(&mut self, interfaces: &[PodInterface]) -> Result<Guarded, NftError> {
        self.guard(&Guard { interfaces, log_group: 53 })
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
        assert!(uninstall("namewall", std::time::Duration::from_secs(10), &mut |_| {}).unwrap());
        assert_eq!(run("nft list tables").trim(), "");
    });
}
