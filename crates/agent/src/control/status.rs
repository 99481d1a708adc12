//! `namewall status`.

use crate::identity::Attachments;
use crate::metrics::read;
use crate::source::StorageStatus;
use crate::state::State;
use namewall_dataplane::{Dataplane, FrameChecks};
use namewall_kubernetes::Published;
use namewall_policy::domain::RulePattern;
use serde_json::{Map, Value, json};
use std::collections::HashSet;
use std::net::IpAddr;

pub(super) fn status<D: Dataplane>(state: &State<D>, attachments: &Attachments) -> Value {
    let attached = attachments.summary();
    json!({
        "pid": std::process::id(),
        "seconds": state.node.now().since(state.started).as_secs(),
        "node": state.node_name,
        "pods": state.snapshot.pod_count(),
        "notEnforced": state.not_enforced,
        "policies": state.snapshot.policies.len(),
        "changes": state.changes,
        "findings": texts(&state.findings),
        "keptFiles": texts(&state.kept),
        "lastError": state.last_error,
        "atNextStart": state.at_next_start,
        "storage": storage(&state.storage),
        "trouble": state.trouble.iter().map(|one| json!({"kind": one.kind, "what": one.what})).collect::<Vec<_>>(),
        "dns": dns(state),
        "names": names(state),
        "unresolvedNames": state.unresolved,
        "shared": state.publisher.as_ref().map(|publisher| {
            let counts = publisher.counts();
            let Published { written, conflicts, failed, left_out, late, refused, evicted, waiting } = counts;
            json!({
                "written": written, "conflicts": conflicts, "failed": failed, "leftOut": left_out, "late": late,
                "refused": refused, "evicted": evicted, "waiting": waiting, "blocked": publisher.blocked(),
                "lastTrouble": publisher.trouble(),
            })
        }),
        "cuts": {
            "connections": read(&state.node.meter().cut),
            "forgotten": read(&state.node.meter().cuts_forgotten),
        },
        "denials": state.denials.total(),
        "denialLog": {
            "failures": read(&state.denials.failures),
            "error": state.denials.failure(),
        },
        "attachments": {
            "known": attached.known,
            "enforced": attached.enforced,
            "interfaces": attached.interfaces,
            "unreadable": attached.unreadable,
        },
        "guard": guard(state),
        "second": second(state),
    })
}

/// Second interfaces of pods, and whether policies are enforced on them.
fn second<D: Dataplane>(state: &State<D>) -> Value {
    let all = state.node.second();
    let with_interfaces = all.iter().filter(|pod| !pod.interfaces.is_empty());
    let pods: Vec<Value> = with_interfaces
        .map(|pod| {
            json!({
                "pod": pod.pod,
                "interfaces": pod.interfaces,
                "enforced": pod.failure.is_none() && pod.is_judged,
            })
        })
        .collect();
    let failures: Vec<String> =
        all.iter().filter_map(|pod| Some(format!("{}: {}", pod.pod, pod.failure.as_ref()?))).collect();
    let frames = all.first().map(|pod| match pod.frames {
        FrameChecks::Full => "full",
        FrameChecks::Sources => "sources",
        FrameChecks::None => "none",
    });
    let unlogged: Vec<String> =
        all.iter().filter_map(|pod| Some(format!("{}: {}", pod.pod, pod.unlogged.as_ref()?))).collect();
    let unreached = state.unreached_pods();
    json!({
        "reached": all.len(),
        "unreached": unreached.len(),
        "unreachedPods": unreached,
        "unlogged": unlogged,
        "pods": pods,
        "frames": frames,
        "repaired": state.node.repaired_inside(),
        "lastRepaired": state.node.last_repaired(),
        "failures": failures,
    })
}

fn storage(storage: &StorageStatus) -> Value {
    let StorageStatus { file, is_adopted, lost, failure, left_out, stands_in } = storage;
    json!({
        "file": file,
        "adopted": is_adopted,
        "lost": lost,
        "failure": failure,
        "leftOut": left_out,
        "standsIn": stands_in,
    })
}

fn guard<D: Dataplane>(state: &State<D>) -> Value {
    let guarded = state.node.guarded();
    let unknown: Vec<String> = state.interfaces.unknown().iter().map(ToString::to_string).collect();
    let drops = state.node.guard_drops().ok();
    json!({
        "error": state.node.guard_failure(),
        "interfaces": state.node.guards(),
        "unknown": unknown,
        "missing": guarded.missing,
        "lacking": guarded.lacking,
        "closedTunnels": state.node.tunnels().texts(),
        "refusedSources": state.refused_sources,
        "runtime": state.interfaces.sandboxes().map(|said| json!({
            "socket": said.socket,
            "error": said.error,
            "pods": said.pods.len(),
            "problems": said.pods.iter().filter_map(|pod| {
                Some(format!("{}/{}: {}", pod.namespace, pod.name, pod.problem.as_ref()?))
            }).collect::<Vec<_>>(),
        })),
        "unfilteredBridges": guarded.bridges.unfiltered,
        "wrongSource": drops.map(|drops| drops.wrong_source.packets),
        "sourceRoutes": drops.map(|drops| drops.source_routes.packets),
        "keptFromPods": drops.map(|drops| drops.groups.packets),
        "intoTunnels": drops.map(|drops| drops.tunnels.packets),
    })
}

fn dns<D: Dataplane>(state: &State<D>) -> Value {
    let server = state.node.dns();
    let upstreams = server.map(|server| server.upstreams()).unwrap_or_default();
    let upstreams = upstreams.iter().map(|one| {
        json!({"address": one.address.to_string(), "up": one.is_up, "answered": one.answered, "failed": one.failed})
    });
    let counters = server.map(|server| server.counters());
    let counts: Map<String, Value> =
        counters.iter().flat_map(|all| all.iter()).map(|(name, count)| (name.to_owned(), count.into())).collect();
    json!({
        "listens": texts(server.map_or(&[][..], |server| server.addresses())),
        "intercepts": state.node.intercepts_dns(),
        "upstreams": upstreams.collect::<Vec<_>>(),
        "trusted": texts(&state.dns.trusted),
        "service": state.dns_service.as_ref().map(|key| format!("{}/{}", key.namespace, key.name)),
        "counts": counts,
    })
}

fn names<D: Dataplane>(state: &State<D>) -> Value {
    let learned = state.node.counters();
    let (program, now) = (state.node.program(), state.node.now());
    let in_force: HashSet<&RulePattern> = program.patterns.iter().map(|(_, pattern)| pattern).collect();
    let (leases, evictions, [open, denied]) = state.node.with_leases(|leases| {
        // An address counts once, however many names lead to it.
        let current = leases.iter().filter(|lease| lease.expiry > now && in_force.contains(lease.pattern));
        let mut addresses: [HashSet<IpAddr>; 2] = Default::default();
        current.for_each(|lease| _ = addresses[usize::from(lease.pattern.denies())].insert(lease.address));
        (leases.len(), leases.evictions(), addresses.map(|addresses| addresses.len()))
    });
    json!({
        "leases": leases,
        "addressesOpen": open,
        "addressesDenied": denied,
        "answersLearned": learned.learned,
        "addressesRefused": learned.refused,
        "addressesForeign": learned.foreign,
        "addressesOverBound": learned.over_bound,
        "failures": learned.failed,
        "evicted": evictions.addresses_a_name + evictions.names_a_pattern + evictions.leases,
    })
}

fn texts<T: ToString>(list: &[T]) -> Vec<String> {
    list.iter().map(ToString::to_string).collect()
}
