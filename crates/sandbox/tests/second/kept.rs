//! What is in pods' namespaces is kept current, outlives the agent, and is made
//! right when somebody else has changed it.

use crate::common::{self, run_in};
use crate::world::{ATTACKER, Network, OUTSIDE, World, policies};
use crate::{DEADLINE, names, play};
use namewall_policy::domain::{DomainName, DomainPattern, RulePattern};
use namewall_policy::labels::Selector;
use namewall_policy::model::{
    Action, Clauses, Enforcement, NamespaceScope, Peer, Peers, Placement, PodSet, Policy, PolicyKind, PolicyRef, Ports,
    Rule, Subject,
};
use namewall_policy::{Instant, Lease};
use namewall_sandbox::Namespace;
use std::collections::BTreeSet;
use std::process::Command;
use std::time::Duration;

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

/// A name that a policy allows opens its addresses on second interfaces, too.
#[test]
fn s6_3_names_open_on_second_interfaces_and_for_nobody_else() {
    if !common::has_rights() {
        return;
    }
    let mut world = World::with_namewall(Network::Macvlan);
    let name: DomainName = "api.example.org".parse().expect("a name");
    let mut with_name = policies();
    with_name.push(allows_name(&name));
    world.change(with_name.clone(), false);
    denies(&world);
    let now = Instant(Duration::ZERO);
    let lease = Lease {
        pattern: RulePattern::allow(DomainPattern::Exact(name.clone())),
        name,
        address: OUTSIDE.at(true),
        expiry: now + Duration::from_secs(600),
        asked_by: None,
    };
    world.cluster().grant(&[lease], now).expect("it is granted");
    let expected = BTreeSet::from([format!("{} to {}", ATTACKER.name, OUTSIDE.at(true))]);
    let opened: Vec<_> = world.denied().into_iter().filter(|path| expected.contains(&path.name)).collect();
    assert_eq!(play(&world, &opened, true), expected);
    assert_eq!(play(&world, &world.denied(), false), expected, "nothing else is open");
    // The lease goes with the rule, and comes back with it.
    world.change(policies(), false);
    denies(&world);
}

/// `shop` may reach a name.
fn allows_name(name: &DomainName) -> Policy {
    let peers = Peers::Listed(vec![Peer::Domain(DomainPattern::Exact(name.clone()))]);
    Policy {
        id: PolicyRef { kind: PolicyKind::AdminNetworkPolicy, namespace: None, name: "by-name".into() },
        placement: Placement::Admin { priority: 1 },
        enforcement: Enforcement::Enforce,
        subject: Subject {
            pods: PodSet { namespaces: NamespaceScope::Named("shop".into()), pods: Selector::default() },
            nodes: None,
        },
        egress: vec![Rule {
            name: None,
            action: Action::Allow,
            clauses: Clauses::Match { peers, ports: Ports::Any },
            source: None,
        }],
        ingress: Vec::new(),
        source: None,
    }
}

/// What is in a pod's namespace can be shown by `nft list`, and read back.
#[test]
fn tables_inside_pods_are_shown_by_nft_and_read_back() {
    if !common::has_rights() {
        return;
    }
    let world = World::with_namewall(Network::Macvlan);
    let listed = nft(&world, "list ruleset");
    let text = String::from_utf8_lossy(&listed.stdout).into_owned();
    assert!(listed.status.success() && text.contains("second-output") && text.contains("hook egress"), "{text}");
    assert!(!text.contains("[invalid"), "{text}");
    // Where interfaces of these names are, and nobody owns such tables.
    let other = Namespace::create().expect("a namespace");
    for link in ["eth0", "net1"] {
        run_in(
            &other,
            Command::new("ip").args(["link", "add", link, "type", "veth", "peer", "name"]).arg(format!("{link}-peer")),
        );
    }
    let file = std::env::temp_dir().join(format!("namewall-second-{}", std::process::id()));
    std::fs::write(&file, text.replace("flags owner,persist", "").replace("flags owner", "")).expect("a file");
    run_in(&other, Command::new("nft").arg("--check").arg("--file").arg(&file));
    std::fs::remove_file(&file).expect("it is removed");
}

/// Marks are for others: kube-proxy, network plugins and administrators use them.
#[test]
fn s1_9_no_table_sets_the_mark_of_a_packet_or_of_a_connection() {
    if !common::has_rights() {
        return;
    }
    let mut world = World::with_namewall(Network::Bridge);
    let node = world.cluster().sandbox.node("n1").expect("the node").clone();
    let marks = |namespace: &Namespace| {
        let listed = run_in(namespace, Command::new("nft").args(["list", "ruleset"]));
        for table in ["inet namewall", "netdev namewall"] {
            assert!(listed.contains(&format!("table {table}")), "{listed}");
        }
        listed.lines().filter(|line| line.contains("mark set")).count()
    };
    let pod = world.namespace(ATTACKER);
    assert_eq!((marks(&node), marks(pod)), (0, 0));
    // Such rules would be seen.
    let others = "add table inet other; add chain inet other sets; \
                  add rule inet other sets meta mark set 1; add rule inet other sets ct mark set 1";
    for namespace in [&node, pod] {
        run_in(namespace, Command::new("nft").arg(others));
    }
    assert_eq!((marks(&node), marks(pod)), (2, 2));
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

/// What is changed in part while no agent runs is found by the next one, too. What the pod does with tables of its own,
/// and policies that change meanwhile, are no sign of it.
#[test]
fn s1_9_tables_that_were_changed_in_part_while_no_agent_ran_are_made_right_and_counted() {
    if !common::has_rights() {
        return;
    }
    let mut world = World::with_namewall(Network::Macvlan);
    let steps: [(&[&str], Vec<Policy>, u64); 7] = [
        (&[], policies(), 0),
        (&["add table inet other"], policies(), 0),
        (&[], Vec::new(), 0),
        (&[], policies(), 0),
        (&["delete table inet other"], policies(), 0),
        (&["insert rule inet namewall second-output accept", "delete table netdev namewall"], policies(), 1),
        (&["flush chain inet namewall second-input"], policies(), 1),
    ];
    for (commands, next, expected) in steps {
        world.cluster().stop(false).expect("the agents are gone");
        for command in commands {
            assert!(nft(&world, command).status.success(), "{command}");
        }
        if commands.iter().any(|command| command.contains("accept")) {
            let began = std::time::Instant::now();
            while play(&world, &world.denied(), false).is_empty() {
                assert!(began.elapsed() < DEADLINE, "the attack does not work while nobody looks");
            }
        }
        world.change(next, true);
        assert_eq!(repaired(&mut world), expected, "after {commands:?}");
    }
    denies(&world);
}

fn repaired(world: &mut World) -> u64 {
    world.cluster().agent("n1").expect("an agent").repaired_inside()
}
