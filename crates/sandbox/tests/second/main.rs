//! Second interfaces of pods (S1.9, S7.4): what goes through them is shown to
//! pass where no namewall is, and to be judged where one is.

#[path = "../common/mod.rs"]
mod common;
mod cut;
#[path = "../attacks/frame.rs"]
#[allow(dead_code, reason = "the tests of attacks use the rest")]
mod frame;
mod kept;
mod tunnels;
mod world;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};
use world::{ATTACKER, Ear, FRIEND, Network, OPEN, OUTSIDE, Path, World};

/// A busy machine takes its time.
const DEADLINE: Duration = Duration::from_secs(60);
const AGAIN: Duration = Duration::from_millis(100);
/// What is not dropped has long arrived by then.
const SILENCE: Duration = Duration::from_millis(500);

/// The next nonce that no packet has carried yet.
static NEXT_NONCE: AtomicU64 = AtomicU64::new(1);

/// The paths that something came through. Where all of them should, they are tried until they do.
///
/// Each call uses new nonces. A packet may wait in the neighbour queue of its sender for a second or more,
/// so one that an earlier call sent while everything was open can arrive during a later call.
fn play(world: &World, paths: &[Path], all_should: bool) -> BTreeSet<String> {
    let began = Instant::now();
    let first = NEXT_NONCE.fetch_add(paths.len() as u64, Ordering::Relaxed);
    let mut open = BTreeSet::new();
    loop {
        for (nonce, path) in (first..).zip(paths).filter(|(_, path)| !open.contains(&path.name)) {
            world.send(path, nonce);
        }
        sleep(if all_should { AGAIN } else { SILENCE });
        for ear in Ear::ALL {
            let heard = world.hear(ear);
            let came = (first..).zip(paths).filter(|(nonce, path)| path.ear == ear && heard.contains(nonce));
            open.extend(came.map(|(_, path)| path.name.clone()));
        }
        if !all_should || open.len() == paths.len() || began.elapsed() > DEADLINE {
            return open;
        }
    }
}

fn names(paths: &[Path]) -> BTreeSet<String> {
    paths.iter().map(|path| path.name.clone()).collect()
}

/// Every path works without namewall. With it, those that policies deny do not, and the others do.
fn check(network: Network) {
    if !common::has_rights() {
        return;
    }
    let plain = World::without_namewall(network);
    let all: Vec<Path> = plain.denied().into_iter().chain(plain.allowed()).collect();
    let harmless: Vec<String> = names(&all).difference(&play(&plain, &all, true)).cloned().collect();
    assert_eq!(harmless, Vec::<String>::new(), "these do not work without namewall, so they show nothing");
    drop(plain);

    let world = World::with_namewall(network);
    let open = play(&world, &world.denied(), false);
    assert_eq!(open, BTreeSet::new(), "these come through");
    let allowed = world.allowed();
    let closed: Vec<String> = names(&allowed).difference(&play(&world, &allowed, true)).cloned().collect();
    assert_eq!(closed, Vec::<String>::new(), "these are allowed, and do not come through");
}

#[test]
fn s1_9_s7_4_policies_hold_on_a_macvlan() {
    check(Network::Macvlan);
}

#[test]
fn s1_9_s7_4_policies_hold_on_a_second_bridge() {
    check(Network::Bridge);
}

/// TCP and its answers pass where policies allow them: the pod's namespace has connection tracking of its own.
#[test]
fn s1_9_an_honest_pod_notices_nothing_on_its_second_interface() {
    if !common::has_rights() {
        return;
    }
    for network in [Network::Macvlan, Network::Bridge] {
        let world = World::with_namewall(network);
        for is_ipv4 in [true, false] {
            assert!(world.connects(OPEN, OUTSIDE, is_ipv4), "{network:?} {is_ipv4}");
            assert!(world.connects(OPEN, FRIEND, is_ipv4), "{network:?} {is_ipv4}");
            assert!(!world.connects(ATTACKER, OUTSIDE, is_ipv4), "{network:?} {is_ipv4}");
        }
    }
}
