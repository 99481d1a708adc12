//! Connections to be judged: pods to pods, mostly within their own namespace,
//! pods to the outside, the outside to pods.

use crate::random::Random;
use namewall_policy::model::WorkloadId;
use namewall_policy::port::Protocol;
use namewall_policy::{Endpoint, Flow, Program, Snapshot};
use std::net::{IpAddr, Ipv4Addr};

const PORTS: [u16; 8] = [443, 8080, 9090, 5432, 53, 8443, 50051, 22];

/// The same list for the same cluster.
pub fn flows(snapshot: &Snapshot, program: &Program, count: usize) -> Vec<Flow> {
    let mut by_namespace = vec![Vec::new(); snapshot.namespaces.len()];
    for id in snapshot.workload_ids() {
        by_namespace[snapshot.workload(id).namespace.index()].push(id);
    }
    let mut picker = Picker { snapshot, program, by_namespace, random: Random::new(4) };
    (0..count).map(|_| picker.flow()).collect()
}

struct Picker<'a> {
    snapshot: &'a Snapshot,
    program: &'a Program,
    by_namespace: Vec<Vec<WorkloadId>>,
    random: Random,
}

impl Picker<'_> {
    fn flow(&mut self) -> Flow {
        let pod = self.anyone();
        match self.random.below(100) {
            0..35 => {
                let namespace = self.snapshot.workload(pod).namespace.index();
                let other = *self.random.pick(&self.by_namespace[namespace]);
                self.flow_to(self.end(pod), other)
            }
            35..60 => {
                let other = self.anyone();
                self.flow_to(self.end(pod), other)
            }
            60..85 => {
                let (from, to) = (self.end(pod), self.outside());
                let port = if self.random.percent(70) { 443 } else { *self.random.pick(&PORTS) };
                Flow { from, to, protocol: Protocol::Tcp, port, via: None, hop: None, masker: None }
            }
            _ => {
                let from = self.outside();
                self.flow_to(from, pod)
            }
        }
    }

    /// Mostly to a port the pod listens on.
    fn flow_to(&mut self, from: Endpoint, to: WorkloadId) -> Flow {
        let named = &self.snapshot.workload(to).ports;
        let (protocol, port) = if !named.is_empty() && self.random.percent(75) {
            let port = self.random.pick(named);
            (port.protocol, port.port)
        } else {
            (Protocol::Tcp, *self.random.pick(&PORTS))
        };
        Flow { from, to: self.end(to), protocol, port, via: None, hop: None, masker: None }
    }

    fn anyone(&mut self) -> WorkloadId {
        WorkloadId(self.random.below(self.snapshot.workloads.len()) as u32)
    }

    fn end(&self, id: WorkloadId) -> Endpoint {
        self.program.endpoint_of(id, self.snapshot.workload(id).addresses.first().copied())
    }

    fn outside(&mut self) -> Endpoint {
        let bits = self.random.next() as u32;
        let address = match self.random.below(4) {
            0 => Ipv4Addr::from_bits(Ipv4Addr::new(198, 0, 0, 0).to_bits() | bits >> 8),
            1 => Ipv4Addr::new(203, 0, 113, bits as u8),
            _ => Ipv4Addr::from_bits(bits),
        };
        self.program.endpoint_at(IpAddr::V4(address))
    }
}
