//! What is in pods' namespaces is kept current, outlives the agent, and is made
//! right when somebody else has changed it.

use crate::common::{self, run_in};
use crate::world::{ATTACKER, Network, World, policies};
use crate::{names, play};
use std::collections::BTreeSet;
use std::process::Command;

fn nft(world: &World, arguments: &str) -> std::process::Output {
    let run = || Command::new("nft").args(arguments.split_whitespace()).output();
    world.namespace(ATTACKER).enter(run).expect("in its namespace").expect("nft runs")
}

fn denies(world: &World) {
    assert_eq!(play(world, &world.denied(), false), BTreeSet::new(), "these come through");
}

#[test]
fn s1_9_policies_of_second_interfaces_follow_the_cluster() {
    if !common::has_rights() {
        return;
    }
    let mut world = World::with_namewall(Network::Macvlan);
    denies(&world);
    // Without policies the usual sockets are free. What packet sockets send is held to the interface's addresses.
    world.change(Vec::new(), false);
    let free: Vec<_> = world.denied().into_iter().filter(|path| path.name.contains(" to ")).collect();
    assert_eq!(play(&world, &free, true), names(&free));
    world.change(policies(), false);
    denies(&world);
}

#[test]
fn s1_9_what_an_agent_leaves_in_pods_stays_and_the_next_one_goes_on() {
    if !common::has_rights() {
        return;
    }
    let mut world = World::with_namewall(Network::Bridge);
    world.cluster().stop(false).expect("the agents are gone");
    denies(&world);
    world.change(policies(), true);
    denies(&world);
    world.change(Vec::new(), true);
    let free: Vec<_> = world.denied().into_iter().filter(|path| path.name.contains(" to ")).collect();
    assert_eq!(play(&world, &free, true), names(&free));
}

#[test]
fn s1_9_root_in_a_pod_cannot_change_tables_while_an_agent_lives_and_is_found_out_otherwise() {
    if !common::has_rights() {
        return;
    }
    let mut world = World::with_namewall(Network::Macvlan);
    assert!(!nft(&world, "delete table inet namewall").status.success(), "the agent owns it");
    assert!(nft(&world, "flush ruleset").status.success());
    denies(&world);
    // Tables of others are theirs, and no sign of anything.
    run_in(world.namespace(ATTACKER), Command::new("nft").args(["add", "table", "inet", "other"]));
    world.follow();
    assert_eq!(repaired(&mut world), 0);
    // Without an agent root may do it. The next agent makes it right.
    world.cluster().stop(false).expect("the agents are gone");
    assert!(nft(&world, "flush ruleset").status.success());
    let open = play(&world, &world.denied(), false);
    assert!(!open.is_empty(), "the attack works while nobody looks");
    world.change(policies(), true);
    denies(&world);
    assert_eq!(repaired(&mut world), 1);
}

fn repaired(world: &mut World) -> u64 {
    world.cluster().agent("n1").expect("an agent").repaired_inside()
}
