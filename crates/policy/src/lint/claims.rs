//! Addresses that a pod's annotation lists and that are somebody else's (S1.9).

use crate::finding::Finding;
use crate::flow::Endpoint;
use crate::model::WorkloadId;
use crate::program::Program;
use crate::snapshot::Snapshot;
use std::net::IpAddr;

pub(super) fn lint(snapshot: &Snapshot, program: &Program) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (id, workload) in snapshot.workload_ids().zip(&snapshot.workloads) {
        for &address in workload.second_addresses.iter() {
            let Some(holder) = holder(snapshot, program, address) else { continue };
            findings.push(claimed(snapshot, id, &format!("{address}, which is {holder}")));
        }
    }
    findings
}

/// Whose the address is, if it is a node's, a pod's or a Service's.
fn holder(snapshot: &Snapshot, program: &Program, address: IpAddr) -> Option<String> {
    match program.endpoint_at(address) {
        Endpoint { workload: Some(pod), .. } => {
            return Some(format!("the address of Pod {}", snapshot.workload_name(pod)));
        }
        Endpoint { node: Some(node), .. } => return Some(format!("an address of node {}", snapshot.node(node).name)),
        _ => {}
    }
    if !program.service_addresses.contains(address) {
        return None;
    }
    let service = snapshot.services.iter().find(|service| service.addresses.contains(&address))?;
    Some(format!("an address of Service {}/{}", snapshot.namespace(service.namespace).name, service.name))
}

fn claimed(snapshot: &Snapshot, pod: WorkloadId, what: &str) -> Finding {
    let message = format!(
        "the annotation lists {what}: it counts for nothing here. Only status.podIPs makes an address the pod's"
    );
    Finding::warning("claimed-address", format!("Pod {}", snapshot.workload_name(pod)), message)
        .at("metadata.annotations")
        .from_source(snapshot.workload(pod).source.clone())
}
