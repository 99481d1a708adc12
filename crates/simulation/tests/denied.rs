//! S8.7: a Deny by name keeps its last known addresses on every node until a
//! successful answer replaces them, whatever else is away.

use namewall_controller::testing::FakeDns;
use namewall_kubernetes::testing::Faults;
use namewall_simulation::Cluster;
use std::net::IpAddr;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);
const TTL: u32 = 30;
/// A name that a rule denies, and one under a wildcard that a rule denies.
const NAMES: [&str; 2] = ["bad.example.net.", "x.evil.example."];
const RULES: [&str; 2] = ["bad.example.net", "*.evil.example"];

fn address(last: u8) -> IpAddr {
    [203, 0, 113, last].into()
}

/// A cluster whose first node's pod asks for the denied names. All of them are known on both nodes.
fn denying(seed: u64) -> Cluster {
    let mut cluster = Cluster::new(seed);
    cluster.deny(&RULES);
    answer(&cluster.dns, 100);
    cluster.nodes[0].0.asks_for = NAMES.map(str::to_owned).to_vec();
    cluster.restart_node(0);
    cluster.simulation.run_for(90 * SECOND);
    assert_eq!(open(&cluster, 100), Vec::<String>::new(), "all is denied everywhere");
    cluster
}

/// Both names have one address each.
fn answer(dns: &FakeDns, first: u8) {
    for (last, name) in (first..).zip(NAMES) {
        dns.set(name, &[(address(last), TTL)]);
    }
}

fn fail(dns: &FakeDns, why: &str) {
    NAMES.iter().for_each(|name| dns.fail(name, why));
}

/// What should be denied and is not.
fn open(cluster: &Cluster, first: u8) -> Vec<String> {
    let mut open = Vec::new();
    for (node, denied) in cluster.open().iter().enumerate() {
        for (last, name) in (first..).zip(NAMES) {
            let name = name.trim_end_matches('.');
            if !denied.contains(&(name.to_owned(), address(last))) {
                open.push(format!("node {node} opens {name}"));
            }
        }
    }
    open
}

/// Nothing that is denied opens for so long.
fn stays_denied(cluster: &mut Cluster, seconds: u64) {
    for second in 0..seconds {
        cluster.simulation.run_for(SECOND);
        assert_eq!(open(cluster, 100), Vec::<String>::new(), "after {second} s");
    }
}

/// A successful answer replaces what was denied.
fn follows_dns_again(cluster: &mut Cluster) {
    answer(&cluster.dns, 200);
    cluster.simulation.run_for(180 * SECOND);
    assert_eq!(open(cluster, 200), Vec::<String>::new(), "the new addresses are denied");
    for denied in cluster.open() {
        let old = denied.iter().filter(|(_, denied)| [address(100), address(101)].contains(denied));
        assert_eq!(old.count(), 0, "the old ones are not");
    }
}

fn stop_controllers(cluster: &mut Cluster) {
    (0..2).for_each(|at| cluster.stop_replica(at));
}

#[test]
fn s8_7_a_deny_by_name_outlives_dns_and_the_controller() {
    for why in ["SERVFAIL", "Timeout", "NXDOMAIN"] {
        let mut cluster = denying(1);
        stop_controllers(&mut cluster);
        fail(&cluster.dns, why);
        stays_denied(&mut cluster, 900);
        follows_dns_again(&mut cluster);
    }
}

#[test]
fn s8_7_a_deny_by_name_outlives_dns_while_the_controller_leads() {
    for why in ["SERVFAIL", "NXDOMAIN"] {
        let mut cluster = denying(2);
        fail(&cluster.dns, why);
        stays_denied(&mut cluster, 900);
        follows_dns_again(&mut cluster);
    }
}

#[test]
fn s8_7_an_answer_without_addresses_does_not_open_a_deny_by_name() {
    let mut cluster = denying(3);
    NAMES.iter().for_each(|name| cluster.dns.set(name, &[]));
    stays_denied(&mut cluster, 300);
    stop_controllers(&mut cluster);
    stays_denied(&mut cluster, 300);
    follows_dns_again(&mut cluster);
}

#[test]
fn s8_7_a_deny_by_name_outlives_dns_and_the_api_server() {
    let mut cluster = denying(4);
    cluster.server.set_faults(Faults { is_away: true, ..Faults::default() });
    fail(&cluster.dns, "Timeout");
    stays_denied(&mut cluster, 900);
    cluster.server.set_faults(Faults::default());
    stays_denied(&mut cluster, 300);
    follows_dns_again(&mut cluster);
}

#[test]
fn s8_7_a_controller_that_comes_back_while_dns_fails_opens_no_deny_by_name() {
    let mut cluster = denying(5);
    stop_controllers(&mut cluster);
    fail(&cluster.dns, "SERVFAIL");
    stays_denied(&mut cluster, 300);
    (0..2).for_each(|at| cluster.start_replica(at));
    stays_denied(&mut cluster, 300);
    // A node that starts now knows only what the objects say.
    cluster.restart_node(1);
    stays_denied(&mut cluster, 300);
    follows_dns_again(&mut cluster);
}

#[test]
fn s8_7_what_a_pod_asked_for_while_the_api_server_was_away_stays_denied_on_its_node() {
    let mut cluster = Cluster::new(6);
    cluster.deny(&RULES);
    cluster.simulation.run_for(30 * SECOND);
    cluster.server.set_faults(Faults { is_away: true, ..Faults::default() });
    cluster.dns.set(NAMES[1], &[(address(101), TTL)]);
    cluster.nodes[0].0.asks_for = vec![NAMES[1].to_owned()];
    // The agent starts with the cluster that it knows.
    cluster.server.set_faults(Faults::default());
    cluster.restart_node(0);
    cluster.simulation.run_for(5 * SECOND);
    cluster.server.set_faults(Faults { is_away: true, ..Faults::default() });
    cluster.simulation.run_for(60 * SECOND);
    fail(&cluster.dns, "SERVFAIL");
    for second in 0..300 {
        cluster.simulation.run_for(SECOND);
        let denied = cluster.open();
        assert!(denied[0].contains(&("x.evil.example".to_owned(), address(101))), "after {second} s");
    }
}
