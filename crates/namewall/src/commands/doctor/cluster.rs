//! What a cluster lacks.

use super::Check;
use crate::cli::ApiServer;
use namewall_cluster::kinds::{Component, DNS_NAME_RESOLVER, Kind, NODE, NODE_ADDRESSES};
use namewall_cluster::{Described, Key, Store, find_dns_service};
use namewall_kubernetes::{ConnectError, Connection, Trouble, Watch};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// How long the cluster may take to tell all; and how long after the first complaint the others are waited for.
const REPORT_TIMEOUT: Duration = Duration::from_secs(30);
const COMPLAINTS: Duration = Duration::from_secs(2);
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// Nodes that are named in one line.
const MOST_NAMES: usize = 5;

pub(super) fn look(server: &ApiServer, is_asked_for: bool) -> Vec<Check> {
    let connection = match Connection::open(&server.target()) {
        Ok(connection) => connection,
        Err(error @ ConnectError::Unknown(_)) if !is_asked_for => {
            return vec![Check::hint("API server", error.to_string(), "or leave it out: --only node")];
        }
        Err(error) => return vec![Check::missing("API server", error.to_string(), "say which with --kubeconfig")],
    };
    let watch = Watch::start(&connection, Component::Plugin);
    let trouble = wait(&watch);
    let mut checks = reached(connection.server(), &trouble);
    if trouble.is_empty() {
        checks.push(definitions_of(&watch.absent()));
        checks.extend(watch.with_store(|store| vec![agents(store), controller(store), dns(store)]));
    }
    checks
}

/// What is in the way when all is told, or does not come.
fn wait(watch: &Watch) -> Vec<Trouble> {
    let began = Instant::now();
    let mut complained: Option<Instant> = None;
    loop {
        let Err(trouble) = watch.wait_until_known(LOOK_EVERY) else { return Vec::new() };
        if trouble.is_empty() {
            complained = None;
        }
        let since = *complained.get_or_insert_with(Instant::now);
        let is_long = !trouble.is_empty() && since.elapsed() > COMPLAINTS;
        if is_long || began.elapsed() > REPORT_TIMEOUT {
            let silent = Trouble { kind: "the cluster", what: "it does not tell all of it in time".to_owned() };
            return if trouble.is_empty() { vec![silent] } else { trouble };
        }
    }
}

/// Whether the API server is there, and lets us read what policies can see.
fn reached(server: &str, trouble: &[Trouble]) -> Vec<Check> {
    let is_refused = |one: &&Trouble| one.what.contains("forbidden");
    if let Some(one) = trouble.iter().find(|one| !is_refused(one)) {
        let advice = "is it up, and may this machine reach it? kubectl get --raw /readyz";
        return vec![Check::missing("API server", format!("{server}: {}", one.what), advice)];
    }
    let mut checks = vec![Check::good("API server", format!("{server} answers"))];
    let refused: Vec<&str> = trouble.iter().map(|one| one.kind).collect();
    checks.push(if refused.is_empty() {
        Check::good("rights", "all that policies can see can be read")
    } else {
        let advice =
            "bind this user to the ClusterRole namewall-agent, or to one with get, list and watch of these kinds";
        Check::missing("rights", format!("this user may not read {}", refused.join(", ")), advice)
    });
    checks
}

/// Kinds that the cluster does not have. Our own, and the one by which nodes share names, are needed.
fn definitions_of(absent: &[&'static Kind]) -> Check {
    let is_needed = |kind: &Kind| kind.is_own() || *kind == DNS_NAME_RESOLVER;
    let advice = "namewall crds | kubectl apply --server-side -f -";
    let names: Vec<&str> = absent.iter().map(|kind| kind.name).collect();
    let found = format!("the cluster does not have {}", names.join(", "));
    match (absent.is_empty(), absent.iter().any(|kind| is_needed(kind))) {
        (true, _) => Check::good("kinds", "all are defined"),
        (false, true) => Check::missing("kinds", found, advice),
        (false, false) => Check::hint("kinds", format!("{found}: there can be no such policies"), advice),
    }
}

/// The running pods of a component, and the nodes they are on.
fn running<'s>(store: &'s Store, component: &'s str) -> impl Iterator<Item = &'s str> {
    let is_ours = move |pod: &&Described| {
        pod.labels.get("app.kubernetes.io/name") == Some("namewall")
            && pod.labels.get("app.kubernetes.io/component") == Some(component)
            && pod.is_running
    };
    store.pods().filter(is_ours).map(|pod| pod.node.as_deref().unwrap_or_default())
}

/// A node has an agent if its pod runs there; where agents are no pods, if one has told the node's addresses. These
/// stay when an agent goes, so that they say less.
fn agents(store: &Store) -> Check {
    let names = |kind| store.keys(kind).map(|key| key.name.to_string()).collect();
    let nodes: BTreeSet<String> = names(&NODE);
    let mut served: BTreeSet<String> = running(store, "agent").map(str::to_owned).collect();
    if served.is_empty() {
        served = names(&NODE_ADDRESSES);
    }
    let without: Vec<&String> = nodes.difference(&served).collect();
    if without.is_empty() {
        return Check::good("agents", format!("on all {} nodes", nodes.len()));
    }
    let named: Vec<&str> = without.iter().take(MOST_NAMES).map(|name| name.as_str()).collect();
    let more = if without.len() > MOST_NAMES { ", …" } else { "" };
    let (missing, all) = (without.len(), nodes.len());
    Check::missing(
        "agents",
        format!("{missing} of {all} nodes have none, and enforce nothing: {}{more}", named.join(", ")),
        "kubectl -n namewall get pods -o wide -l app.kubernetes.io/component=agent",
    )
}

fn dns(store: &Store) -> Check {
    match find_dns_service(store, None) {
        Some(Key { namespace, name }) => Check::good("DNS Service", format!("{namespace}/{name}")),
        None => Check::hint(
            "DNS Service",
            "none of the usual ones is there: without a name for it no name opens",
            "name it: dnsService of the chart, or --dns-service of agent and controller",
        ),
    }
}

fn controller(store: &Store) -> Check {
    let advice = "kubectl -n namewall describe deployment namewall-controller";
    match running(store, "controller").count() {
        0 => Check::missing("controller", "none runs: names in EgressFirewalls are not looked up", advice),
        1 => Check::hint("controller", "one runs, and none that could take over", advice),
        count => Check::good("controller", format!("{count} run")),
    }
}
