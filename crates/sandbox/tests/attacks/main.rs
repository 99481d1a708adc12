//! What a pod can do with frames of its own making. Every attack is shown to
//! work where plain rules by address stand between the pods, in the same
//! cluster, and then to fail where namewall does (S1.9, S1.10).

#[path = "../common/mod.rs"]
mod common;
mod frame;
mod list;
mod nodes;
mod overlay;
mod world;

use common::run_in;
use frame::{Ends, frame, kind_of, udp};
use list::{Arsenal, Attack};
use namewall_sandbox::Wiring;
use namewall_testbed::program;
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};
use world::{ATTACKER, Ear, FREE, FRIEND, Families, Firewall, NODE, OPEN, PORT, VICTIM, World, at};

/// A busy machine takes its time.
const DEADLINE: Duration = Duration::from_secs(60);
const AGAIN: Duration = Duration::from_millis(200);
/// What is not dropped has long arrived by then.
const SILENCE: Duration = Duration::from_millis(500);
/// No attack has this number.
const FRIENDLY: u64 = 1 << 40;

/// The names of the attacks that came through. Where all of them should, they are repeated until they do.
fn play(world: &World, attacks: &[Attack], all_should: bool) -> BTreeSet<String> {
    world.friend_speaks(FRIENDLY);
    wait_for(world, Ear::Outside, FRIENDLY);
    let mut open: BTreeSet<usize> = BTreeSet::new();
    let began = Instant::now();
    loop {
        for (_, attack) in attacks.iter().enumerate().filter(|(number, _)| !open.contains(number)) {
            world.send(attack.from, &attack.frame);
        }
        sleep(if all_should { AGAIN } else { SILENCE });
        for ear in Ear::ALL {
            let heard = world.hear(ear);
            let by_this = attacks.iter().enumerate().filter(|(_, attack)| attack.ear == ear);
            open.extend(by_this.filter(|(number, _)| heard.contains(&(*number as u64 + 1))).map(|(number, _)| number));
        }
        if !all_should || open.len() == attacks.len() || began.elapsed() > DEADLINE {
            return open.into_iter().map(|number| attacks[number].name.clone()).collect();
        }
    }
}

/// The friend's own packets arrive, whatever the attacker does.
fn wait_for(world: &World, ear: Ear, nonce: u64) {
    let began = Instant::now();
    while !world.hear(ear).contains(&nonce) {
        assert!(began.elapsed() < DEADLINE, "{ear:?} does not hear the friend");
        world.friend_speaks(nonce);
        sleep(Duration::from_millis(20));
    }
}

/// What is tried, and against whom.
struct Trial {
    wiring: Wiring,
    families: Families,
    firewall: Firewall,
    /// How many attacks there are, so that none gets lost.
    count: usize,
    attacks: fn(Arsenal<'_>) -> Vec<Attack>,
}

fn check(trial: &Trial) {
    let &Trial { wiring, families, firewall, count, attacks: list } = trial;
    let plain = World::build_of(Firewall::Plain, wiring, families);
    let attacks = list(Arsenal::new(&plain));
    assert_eq!(attacks.len(), count, "attacks");
    let names: BTreeSet<&str> = attacks.iter().map(|attack| attack.name.as_str()).collect();
    assert_eq!(names.len(), count, "every attack has a name of its own");
    let open = play(&plain, &attacks, true);
    let harmless: Vec<&str> = names.into_iter().filter(|name| !open.contains(*name)).collect();
    assert_eq!(harmless, Vec::<&str>::new(), "no attack at all: plain rules stop it");
    drop(plain);

    let world = World::build_of(firewall, wiring, families);
    assert_every_ear_hears(&world);
    let attacks = list(Arsenal::new(&world));
    let open: Vec<String> = play(&world, &attacks, false).into_iter().collect();
    assert_eq!(open, Vec::<String>::new(), "these come through");
    assert_every_ear_hears(&world);
}

/// What policies allow reaches every ear in this world, over every version of IP, so that an attack which reaches an ear
/// would be heard.
fn assert_every_ear_hears(world: &World) {
    let of = |is_ipv4: bool| FRIENDLY + u64::from(is_ipv4);
    let nonces = || world.versions().iter().map(|&is_ipv4| of(is_ipv4));
    let mut missing: BTreeSet<(usize, u64)> =
        (0..Ear::ALL.len()).flat_map(|ear| nonces().map(move |nonce| (ear, nonce))).collect();
    let began = Instant::now();
    while !missing.is_empty() {
        let deaf: Vec<(Ear, u64)> = missing.iter().map(|&(ear, nonce)| (Ear::ALL[ear], nonce - FRIENDLY)).collect();
        assert!(began.elapsed() < DEADLINE, "these hear nothing over this version: {deaf:?}");
        world.speak_to_all(of);
        sleep(Duration::from_millis(20));
        let heard = Ear::ALL.map(|ear| world.hear(ear));
        missing.retain(|(ear, nonce)| !heard[*ear].contains(nonce));
    }
}

#[test]
fn s1_9_s1_10_pods_on_a_bridge_cannot_pretend() {
    if common::has_rights() {
        let (wiring, firewall) = (Wiring::Bridged, Firewall::Namewall);
        let families = Families::Both;
        check(&Trial { wiring, families, firewall, count: 108, attacks: |arsenal| arsenal.all() });
    }
}

#[test]
fn s1_9_s1_10_pods_on_links_of_their_own_cannot_pretend() {
    if common::has_rights() {
        let (wiring, firewall) = (Wiring::Routed, Firewall::Namewall);
        let families = Families::Both;
        check(&Trial { wiring, families, firewall, count: 39, attacks: |arsenal| arsenal.all() });
    }
}

/// Without a CNI plugin, as `run` has it on a bridge of Podman or Docker.
#[test]
fn s1_10_pods_whose_interface_nobody_knows_use_no_address_that_nobody_vouches_for() {
    if common::has_rights() {
        let (wiring, firewall) = (Wiring::Bridged, Firewall::Unknowing);
        let families = Families::Both;
        check(&Trial { wiring, families, firewall, count: 94, attacks: |arsenal| arsenal.of_unknown() });
    }
}

/// Nobody has an IPv6 address there but those that the kernels give themselves.
#[test]
fn s1_10_no_link_local_address_leads_round_the_policies_of_an_ipv4_cluster() {
    if common::has_rights() {
        let worlds = [
            (Wiring::Routed, Firewall::Namewall, 5),
            (Wiring::Bridged, Firewall::Namewall, 14),
            (Wiring::Bridged, Firewall::Unknowing, 14),
        ];
        for (wiring, firewall, count) in worlds {
            let families = Families::V4;
            check(&Trial { wiring, families, firewall, count, attacks: |arsenal| arsenal.of_ipv4_clusters() });
        }
    }
}

/// On a link of its own a pod has no neighbour but the node, and a kernel passes nothing on to a link-local address of
/// another link, whatever rules there are.
#[test]
fn s1_10_no_link_of_its_own_leads_to_the_link_local_address_of_another_pod() {
    if !common::has_rights() {
        return;
    }
    for families in [Families::Both, Families::V4] {
        let world = World::build_of(Firewall::Plain, Wiring::Routed, families);
        let ends = Ends { from: world.mac(FREE), to: world.hop_of(FREE) };
        let own = world.link_local(FREE);
        // The pod that is tried has another address than the one that tries.
        let other = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0x20);
        run_in(
            world.namespace(OPEN),
            Command::new(program("ip")).args(["address", "add", &format!("{other}/64"), "dev", "eth0", "nodad"]),
        );
        let send = |from: Ipv6Addr, to: Ipv6Addr, nonce: u64| {
            let packet = udp(at(from, 7), at(to, PORT), &nonce.to_be_bytes());
            world.send(FREE, &frame(ends, &[], kind_of(to.into()), &packet));
        };
        let (mut by_node, mut by_pod, began) = (BTreeSet::new(), BTreeSet::new(), Instant::now());
        while !by_node.contains(&1) {
            assert!(began.elapsed() < DEADLINE, "the node does not hear at its link-local address");
            for from in [own, FREE.v6] {
                send(from, other, 2);
            }
            send(own, world.link_local(NODE), 1);
            sleep(AGAIN);
            by_node.extend(world.hear(Ear::Node));
            by_pod.extend(world.hear(Ear::Open));
        }
        // The ear is not deaf.
        while !by_pod.contains(&3) {
            assert!(began.elapsed() < DEADLINE, "the pod does not hear the node");
            world.say(NODE, at(OPEN.v4, PORT), 3);
            sleep(AGAIN);
            by_pod.extend(world.hear(Ear::Open));
        }
        assert!(!by_pod.contains(&2), "another pod's link-local address, {families:?}");
    }
}

/// One frame is enough for a bridge to send what is for one pod to another.
#[test]
fn s1_9_no_pod_takes_the_frames_of_another() {
    if !common::has_rights() {
        return;
    }
    let steals = |firewall: Firewall| {
        let world = World::build(firewall, Wiring::Bridged);
        wait_for(&world, Ear::Victim, FRIENDLY);
        let stolen = Ends { from: world.mac(VICTIM), to: world.mac(FRIEND) };
        let packet = udp(at(VICTIM.v4, 7), at(FRIEND.v4, 7), &[0; 8]);
        let mut nonce = FRIENDLY + 1;
        let began = Instant::now();
        loop {
            world.send(ATTACKER, &frame(stolen, &[], kind_of(FRIEND.v4.into()), &packet));
            nonce += 1;
            world.friend_speaks(nonce);
            sleep(Duration::from_millis(50));
            if world.hear(Ear::AttackersWire).contains(&nonce) {
                return true;
            }
            let is_over = if firewall == Firewall::Plain { DEADLINE } else { SILENCE };
            if began.elapsed() > is_over {
                return false;
            }
        }
    };
    assert!(steals(Firewall::Plain), "the attack works without namewall");
    assert!(!steals(Firewall::Namewall));
}

/// IPv6 has no `route_localnet`: a kernel takes nothing for ::1 from a link, whatever rules there are.
#[test]
fn s7_2_no_link_leads_to_the_ipv6_loopback() {
    if !common::has_rights() {
        return;
    }
    let world = World::build(Firewall::Plain, Wiring::Routed);
    let ends = Ends { from: world.mac(ATTACKER), to: world.mac(ATTACKER) };
    let send = |from: IpAddr, to: IpAddr, nonce: u64| {
        let packet = udp(at(from, 7), at(to, PORT), &nonce.to_be_bytes());
        world.send(ATTACKER, &frame(ends, &[], kind_of(to), &packet));
    };
    let (mut heard, began) = (BTreeSet::new(), Instant::now());
    while !heard.contains(&1) {
        assert!(began.elapsed() < DEADLINE, "the node does not hear its IPv4 loopback either");
        send(ATTACKER.v6.into(), Ipv6Addr::LOCALHOST.into(), 2);
        send(ATTACKER.v4.into(), Ipv4Addr::LOCALHOST.into(), 1);
        sleep(AGAIN);
        heard.extend(world.hear(Ear::Node));
    }
    assert!(!heard.contains(&2), "::1");
}

/// The guard lets through what pods need: ARP, neighbour discovery, their own addresses of both versions.
#[test]
fn s1_9_an_honest_pod_notices_nothing() {
    if !common::has_rights() {
        return;
    }
    let (guarded, unknowing) = (Firewall::Namewall, Firewall::Unknowing);
    for (firewall, wiring) in [(guarded, Wiring::Routed), (guarded, Wiring::Bridged), (unknowing, Wiring::Bridged)] {
        let world = World::build(firewall, wiring);
        for (nonce, ear) in [(FRIENDLY + 1, Ear::Victim), (FRIENDLY + 2, Ear::Outside)] {
            wait_for(&world, ear, nonce);
        }
    }
}
