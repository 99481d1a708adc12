//! Any bytes as a file of manifests: it is read, lowered, compiled and asked,
//! and the answers agree with each other.

use namewall_cluster::{Document, Settings, lower};
use namewall_policy::lease::Learned;
use namewall_policy::port::{Protocol, TransportPort};
use namewall_policy::reach::{Matrix, Reach, exposure};
use namewall_policy::{
    Endpoint, Flow, Instant, Lease, LeaseTable, Program, Snapshot, Verdict, compile, evaluate, explain,
};
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

/// How many workloads are asked about each other.
const ASKED: usize = 5;
const NOW: Instant = Instant(Duration::ZERO);
const PORTS: [TransportPort; 6] = [
    TransportPort { protocol: Protocol::Tcp, port: 80 },
    TransportPort { protocol: Protocol::Tcp, port: 65535 },
    TransportPort { protocol: Protocol::Udp, port: 53 },
    TransportPort { protocol: Protocol::Sctp, port: 1 },
    TransportPort { protocol: Protocol::Icmp, port: 0 },
    TransportPort { protocol: Protocol::Other(47), port: 0 },
];

pub fn manifests(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let (documents, _) = Document::read_all(&"fuzz.yaml".into(), &text);
    let lowered = lower(&documents, &Settings::default());
    let (program, _) = compile(&lowered.snapshot);
    let mut leases = LeaseTable::default();
    for seen in lowered.resolved {
        let (name, addresses, expiry) = (seen.name, vec![seen.address], Instant(Duration::MAX));
        let learned = Learned { name, addresses, expiry, asked_by: None };
        for pattern in learned.patterns(&program) {
            let (pattern, name) = (pattern.clone(), learned.name.clone());
            leases.grant(Lease { pattern, name, address: seen.address, expiry, asked_by: None });
        }
    }
    let world = World { snapshot: &lowered.snapshot, program: &program, leases: &leases };
    world.workloads_agree();
    world.outside_agrees();
    exposure(&lowered.snapshot);
}

struct World<'a> {
    snapshot: &'a Snapshot,
    program: &'a Program,
    leases: &'a LeaseTable,
}

impl<'a> World<'a> {
    fn reach(&self) -> Reach<'a> {
        Reach { program: self.program, leases: self.leases, now: NOW }
    }

    /// The matrix says what the addresses say one by one, and those what single connections say.
    fn workloads_agree(&self) {
        let matrix = Matrix::new(self.snapshot, self.reach());
        for from in self.snapshot.workload_ids().take(ASKED) {
            for to in self.snapshot.workload_ids().take(ASKED) {
                let sources = self.program.endpoints(self.snapshot, from);
                let targets = self.program.endpoints(self.snapshot, to);
                let cell = matrix.cell(matrix.between(from, to));
                let pairs = self.program.address_pairs(&sources, &targets);
                for port in PORTS {
                    let mut open = false;
                    for (from, to) in &pairs {
                        open |= self.ask(from, to, port);
                    }
                    let pair = (self.snapshot.workload_name(from), self.snapshot.workload_name(to));
                    assert_eq!(cell.open.contains(port.protocol, port.port), open, "matrix of {pair:?} at {port:?}");
                }
            }
        }
    }

    /// The ranges outside speak for the addresses they begin and end with.
    fn outside_agrees(&self) {
        let matrix = Matrix::new(self.snapshot, self.reach());
        for id in self.snapshot.workload_ids().take(ASKED) {
            let Some(end) = self.program.endpoints(self.snapshot, id).into_iter().next() else { continue };
            for range in matrix.outside_to(id).iter().take(40) {
                for outside in self.strangers([range.range.first, range.range.last]) {
                    assert_eq!(self.reach().egress(&end, &outside), range.traffic, "to {outside:?}");
                    self.ask(&end, &outside, PORTS[0]);
                }
            }
            for range in matrix.outside_from(id).iter().take(40) {
                for outside in self.strangers([range.range.first, range.range.last]) {
                    assert_eq!(self.reach().ingress(&outside, &end), range.traffic, "from {outside:?}");
                    self.ask(&outside, &end, PORTS[0]);
                }
            }
            self.ask(&self.program.endpoint_at(Ipv4Addr::new(198, 51, 100, 7).into()), &end, PORTS[1]);
        }
    }

    /// Addresses that no workload has.
    fn strangers(&self, addresses: [IpAddr; 2]) -> impl Iterator<Item = Endpoint> {
        addresses.into_iter().map(|address| self.program.endpoint_at(address)).filter(|end| end.workload.is_none())
    }

    /// Whether it is open, by all three who can tell.
    fn ask(&self, from: &Endpoint, to: &Endpoint, port: TransportPort) -> bool {
        let TransportPort { protocol, port } = port;
        let flow = Flow { from: from.clone(), to: to.clone(), protocol, port, via: None, hop: None, masker: None };
        let decision = evaluate(self.program, self.leases, &flow, NOW);
        let open = decision.verdict == Verdict::Allow;
        assert_eq!(self.reach().between(from, to).open.contains(protocol, port), open, "reach of {flow:?}");
        let told = explain(self.snapshot, &self.reach(), &flow);
        assert_eq!(told.decision, decision, "explain of {flow:?}");
        open
    }
}
