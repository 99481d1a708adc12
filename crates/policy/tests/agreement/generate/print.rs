//! A case as a reader wants it when it fails: one line a thing.

use super::Case;
use namewall_policy::model::{Clauses, Direction, Policy, Workload};
use namewall_policy::{Endpoint, Flow, Snapshot};
use std::fmt;

impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Snapshot { namespaces, nodes, workloads, services, policies, pod_networks, api_server, .. } =
            &self.snapshot;
        writeln!(f, "pod networks {pod_networks:?}, API server {api_server:?}, now {:?}", self.now.0)?;
        for namespace in namespaces.iter() {
            let isolated = if namespace.default_deny_ingress { ", DefaultDeny" } else { "" };
            writeln!(f, "namespace {}: {}{isolated}", namespace.name, namespace.labels)?;
        }
        for node in nodes.iter() {
            writeln!(f, "{}: {}, {:?}", node.name, node.labels, node.addresses)?;
        }
        for workload in workloads {
            print_workload(f, &self.snapshot, workload)?;
        }
        for service in services {
            writeln!(f, "service {} in {}", service.name, self.snapshot.namespace(service.namespace).name)?;
            for port in &service.ports {
                writeln!(f, "  {} at node port {:?}: {:?}", port.protocol, port.node_port, port.backends)?;
            }
        }
        for lease in &self.leases {
            writeln!(f, "lease of {} by {} until {:?}", lease.address, lease.pattern, lease.expiry.0)?;
        }
        for policy in policies.iter() {
            print_policy(f, policy)?;
        }
        for flow in &self.flows {
            writeln!(f, "{}", flow_text(&self.snapshot, flow))?;
        }
        Ok(())
    }
}

fn print_workload(f: &mut fmt::Formatter<'_>, snapshot: &Snapshot, workload: &Workload) -> fmt::Result {
    let role = snapshot.role(workload.role);
    write!(f, "{} {} in {}: {}", workload.kind, workload.name, snapshot.namespace(role.namespace).name, role.labels)?;
    if let Some(node) = workload.node {
        write!(f, ", on {}", snapshot.node(node).name)?;
    }
    if workload.host_network {
        write!(f, ", hostNetwork")?;
    }
    write!(f, ", {:?}", workload.addresses)?;
    for port in workload.ports.iter() {
        write!(f, ", {} is {} {}", port.name, port.protocol, port.port)?;
    }
    writeln!(f)
}

fn print_policy(f: &mut fmt::Formatter<'_>, policy: &Policy) -> fmt::Result {
    let Policy { id, placement, enforcement, subject, .. } = policy;
    writeln!(f, "{:?} {id}, {placement:?}, {enforcement:?}, for {subject}", id.kind)?;
    for direction in [Direction::Egress, Direction::Ingress] {
        for (index, rule) in policy.rules(direction).iter().enumerate() {
            write!(f, "    {direction} {index}: {} ", rule.action)?;
            match &rule.clauses {
                Clauses::Match { peers, ports } => writeln!(f, "{peers}; {ports}")?,
                Clauses::Unreadable => writeln!(f, "(unreadable)")?,
            }
        }
    }
    Ok(())
}

pub(crate) fn flow_text(snapshot: &Snapshot, flow: &Flow) -> String {
    let end = |end: &Endpoint| {
        let mut parts = Vec::new();
        parts.extend(end.workload.map(|id| snapshot.workload_name(id)));
        parts.extend(end.node.map(|id| snapshot.node(id).name.to_string()));
        parts.extend(end.address.map(|address| address.to_string()));
        parts.extend(end.name.as_ref().map(ToString::to_string));
        parts.join(" ")
    };
    let via = flow.via.map(|id| format!(" via {}", snapshot.services[id.index()].name)).unwrap_or_default();
    let via = flow.hop.map_or(via.clone(), |hop| format!("{via} passed on at {}:{}", hop.address, hop.port));
    format!("flow {} -> {}, {} {}{via}", end(&flow.from), end(&flow.to), flow.protocol, flow.port)
}
