//! Pods that are added to a cluster: what `exposure` speaks of.

use super::{NAMESPACES, ips};
use namewall_policy::Snapshot;
use namewall_policy::labels::Labels;
use namewall_policy::model::{NamedPort, Namespace, Role, Workload, WorkloadId};
use namewall_policy::port::Protocol;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};

/// The last is the one that only new pods have.
const VALUES: [Option<&str>; 4] = [None, Some("x"), Some("y"), Some("z")];

#[derive(Clone, Debug)]
pub(crate) struct NewPod {
    namespace: &'static str,
    /// Where the namespace does not exist.
    namespace_labels: Labels,
    labels: Labels,
    pub(crate) ports: Vec<NamedPort>,
    addresses: Vec<&'static str>,
}

/// A number has one name at most.
pub(crate) fn new_pods() -> impl Strategy<Value = NewPod> {
    let namespaces = select(vec![NAMESPACES[0], NAMESPACES[1], NAMESPACES[2], "new"]);
    let numbers = subsequence(vec![80, 443, 8080, 1, 65535], 0..=3);
    let names = prop::collection::vec((select(vec!["web", "dns", "own"]), any::<bool>()), 3);
    let addresses = subsequence(vec!["10.0.0.77", "fd00::77"], 0..=2);
    (namespaces, labels(), labels(), (numbers, names), addresses).prop_map(
        |(namespace, namespace_labels, labels, (numbers, names), addresses)| {
            let port = |(port, (name, udp)): (u16, (&str, bool))| NamedPort {
                name: name.into(),
                protocol: if udp { Protocol::Udp } else { Protocol::Tcp },
                port,
            };
            let ports = numbers.into_iter().zip(names).map(port).collect();
            NewPod { namespace, namespace_labels, labels, ports, addresses }
        },
    )
}

fn labels() -> impl Strategy<Value = Labels> {
    let values = || select(VALUES.to_vec());
    (values(), values())
        .prop_map(|(a, b)| [("a", a), ("b", b)].into_iter().filter_map(|(k, v)| Some((k, v?))).collect())
}

impl NewPod {
    pub(crate) fn add(&self, snapshot: &mut Snapshot, with_addresses: bool) -> WorkloadId {
        let namespace = snapshot.add_namespace(Namespace {
            name: self.namespace.into(),
            labels: self.namespace_labels.clone(),
            default_deny_ingress: false,
            source: None,
        });
        let pod = snapshot.new_pod(Role { namespace, labels: self.labels.clone(), host_network: false }, "new-pod");
        let addresses = if with_addresses { ips(&self.addresses) } else { Vec::new() };
        snapshot.add_workload(Workload { addresses: addresses.into(), ports: self.ports.clone().into(), ..pod })
    }
}
