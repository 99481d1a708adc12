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

use frame::{Ends, frame, kind_of, udp};
use list::{Arsenal, Attack};
use namewall_sandbox::Wiring;
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::thread::sleep;
use std::time::{Duration, Instant};
use world::{ATTACKER, Ear, FRIEND, Firewall, PORT, VICTIM, World, at};

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
        for ear in [Ear::Victim, Ear::Friend, Ear::Open, Ear::Node, Ear::Outside, Ear::VictimsWire, Ear::AttackersWire]
        {
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

/// What is tried: how many attacks at least, and against whom.
struct Trial {
    wiring: Wiring,
    firewall: Firewall,
    at_least: usize,
    attacks: fn(Arsenal<'_>) -> Vec<Attack>,
}

fn check(trial: &Trial) {
    let &Trial { wiring, firewall, at_least, attacks: list } = trial;
    let plain = World::build(Firewall::Plain, wiring);
    let attacks = list(Arsenal::new(&plain));
    assert!(attacks.len() >= at_least, "only {} attacks", attacks.len());
    let open = play(&plain, &attacks, true);
    let harmless: Vec<&str> =
        attacks.iter().map(|attack| attack.name.as_str()).filter(|name| !open.contains(*name)).collect();
    assert_eq!(harmless, Vec::<&str>::new(), "no attack at all: plain rules stop it");
    drop(plain);

    let world = World::build(firewall, wiring);
    let attacks = list(Arsenal::new(&world));
    let open: Vec<String> = play(&world, &attacks, false).into_iter().collect();
    assert_eq!(open, Vec::<String>::new(), "these come through");
    wait_for(&world, Ear::Victim, FRIENDLY + 1);
    wait_for(&world, Ear::Outside, FRIENDLY + 2);
}

#[test]
fn s1_9_s1_10_pods_on_a_bridge_cannot_pretend() {
    if common::has_rights() {
        let (wiring, firewall) = (Wiring::Bridged, Firewall::Namewall);
        check(&Trial { wiring, firewall, at_least: 104, attacks: |arsenal| arsenal.all() });
    }
}

#[test]
fn s1_9_s1_10_pods_on_links_of_their_own_cannot_pretend() {
    if common::has_rights() {
        let (wiring, firewall) = (Wiring::Routed, Firewall::Namewall);
        check(&Trial { wiring, firewall, at_least: 32, attacks: |arsenal| arsenal.all() });
    }
}

/// Without a CNI plugin, as `run` has it on a bridge of Podman or Docker.
#[test]
fn s1_10_pods_whose_interface_nobody_knows_use_no_address_that_nobody_vouches_for() {
    if common::has_rights() {
        let (wiring, firewall) = (Wiring::Bridged, Firewall::Unknowing);
        check(&Trial { wiring, firewall, at_least: 45, attacks: |arsenal| arsenal.of_unknown() });
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
