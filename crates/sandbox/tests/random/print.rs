//! A cluster as a reader wants it when it fails.

use namewall_policy::model::{Clauses, Direction};
use namewall_policy::reach::Reach;
use namewall_policy::{Flow, Lease, LeaseTable, Program, Snapshot, explain};
use std::fmt::Write;

pub(crate) fn cluster(snapshot: &Snapshot, leases: &[Lease]) -> String {
    let mut text = format!("pod networks {:?}, API server {:?}\n", snapshot.pod_networks, snapshot.api_server);
    for namespace in snapshot.namespaces.iter() {
        let isolated = if namespace.default_deny_ingress { ", DefaultDeny" } else { "" };
        let _ = writeln!(text, "namespace {}: {}{isolated}", namespace.name, namespace.labels);
    }
    for node in snapshot.nodes.iter() {
        let _ = writeln!(text, "node {}: {}, {:?}", node.name, node.labels, node.addresses);
    }
    for id in snapshot.workload_ids() {
        let (pod, name) = (snapshot.workload(id), snapshot.workload_name(id));
        let labels = &snapshot.role(pod.role).labels;
        let ports: Vec<String> = pod.ports.iter().map(|p| format!("{} is {} {}", p.name, p.protocol, p.port)).collect();
        let _ = writeln!(text, "pod {name}: {labels}, {:?}, {}", pod.addresses, ports.join(", "));
    }
    for service in &snapshot.services {
        let namespace = &snapshot.namespace(service.namespace).name;
        let backends = service.ports.first().map(|port| &port.backends);
        let _ = writeln!(text, "service {namespace}/{}: {:?} to {backends:?}", service.name, service.addresses);
    }
    for lease in leases {
        let _ = writeln!(text, "lease of {} by {:?} until {:?}", lease.address, lease.pattern, lease.expiry.0);
    }
    for policy in snapshot.policies.iter() {
        let (id, subject) = (&policy.id, &policy.subject);
        let _ = writeln!(text, "{:?} {id}, {:?}, {:?}, for {subject}", id.kind, policy.placement, policy.enforcement);
        for direction in [Direction::Egress, Direction::Ingress] {
            for (index, rule) in policy.rules(direction).iter().enumerate() {
                let clauses = match &rule.clauses {
                    Clauses::Match { peers, ports } => format!("{peers} on {ports}"),
                    Clauses::Unreadable => "unreadable".to_owned(),
                };
                let _ = writeln!(text, "    {direction} {index}: {} {clauses}", rule.action);
            }
        }
    }
    text
}

/// Why the core judges as it does.
pub(crate) fn explanation(snapshot: &Snapshot, program: &Program, leases: &LeaseTable, flow: &Flow) -> String {
    let told = explain(snapshot, &Reach { program, leases, now: super::world::NOW }, flow);
    let mut text = format!("the core: {:?}\n", told.decision);
    for step in &told.steps {
        let _ = writeln!(text, "    {} {:?}: {:?}", step.direction, step.at, step.result);
    }
    text
}
