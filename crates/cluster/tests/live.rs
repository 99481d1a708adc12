//! A Store that is kept up with says what one says that was filled at once,
//! whatever happened in between: the short way and the long way, side by side.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

use namewall_cluster::kinds::{self, Kind};
use namewall_cluster::{Key, Listing, Settings, Store};
use namewall_policy::model::{BackendTarget, DnsConfig, DnsPolicy, ServiceForm, WorkloadId};
use namewall_policy::port::Protocol;
use namewall_policy::{Flow, Instant, LeaseTable, Program, Snapshot, compile, compile_next, evaluate};
use proptest::prelude::*;
use serde_json::{Value as Json, json};
use std::collections::{BTreeMap, BTreeSet};

const NAMESPACES: [&str; 2] = ["shop", "bank"];
const APPS: [&str; 3] = ["web", "api", "db"];

fn kind(name: &str) -> &'static Kind {
    kinds::named(name).next().unwrap()
}

/// What happens to a cluster.
#[derive(Clone, Debug)]
enum Happening {
    Pod {
        number: usize,
        app: usize,
        address: Option<u8>,
        state: State,
    },
    PodGoes(usize),
    Slice {
        service: usize,
        addresses: Vec<u8>,
    },
    SliceGoes(usize),
    Service {
        number: usize,
        app: Option<usize>,
    },
    ServiceGoes(usize),
    Policy {
        number: usize,
        app: usize,
        peer: usize,
    },
    PolicyGoes(usize),
    /// A watch that began anew lists everything again.
    Relist(usize),
}

#[derive(Clone, Copy, Debug)]
enum State {
    Good,
    Ended,
    HostNetwork,
    /// It has an address that is none.
    Wrong,
}

fn happenings() -> impl Strategy<Value = Vec<Happening>> {
    let state = prop_oneof![
        8 => Just(State::Good), 1 => Just(State::Ended), 1 => Just(State::HostNetwork), 1 => Just(State::Wrong)
    ];
    let pod = (0..8_usize, 0..3_usize, proptest::option::weighted(0.9, 0..10_u8), state)
        .prop_map(|(number, app, address, state)| Happening::Pod { number, app, address, state });
    let addresses = proptest::collection::vec(0..12_u8, 0..4);
    let slice = (0..4_usize, addresses).prop_map(|(service, addresses)| Happening::Slice { service, addresses });
    let service = (0..4_usize, proptest::option::weighted(0.8, 0..3_usize))
        .prop_map(|(number, app)| Happening::Service { number, app });
    let policy =
        (0..4_usize, 0..3_usize, 0..3_usize).prop_map(|(number, app, peer)| Happening::Policy { number, app, peer });
    let one = prop_oneof![
        10 => pod,
        4 => (0..8_usize).prop_map(Happening::PodGoes),
        4 => slice,
        1 => (0..4_usize).prop_map(Happening::SliceGoes),
        1 => service,
        1 => (0..4_usize).prop_map(Happening::ServiceGoes),
        2 => policy,
        1 => (0..4_usize).prop_map(Happening::PolicyGoes),
        1 => (0..4_usize).prop_map(Happening::Relist),
    ];
    proptest::collection::vec(one, 1..40)
}

fn address(number: u8) -> String {
    format!("10.1.0.{number}")
}

fn metadata(number: usize, name: &str) -> Json {
    json!({"namespace": NAMESPACES[number % 2], "name": format!("{name}-{number}")})
}

fn pod(number: usize, app: usize, at: Option<u8>, state: State) -> Json {
    let mut pod = json!({
        "metadata": metadata(number, "pod"),
        "spec": {"nodeName": format!("node-{}", number % 2), "containers": [
            {"name": "c", "ports": [{"name": "http", "containerPort": 8080 + app}]}
        ]},
        "status": {"phase": "Running"},
    });
    // A label that nobody asks for.
    pod["metadata"]["labels"] = json!({"app": APPS[app], "pod-template-hash": format!("{number}-{app}")});
    if let Some(at) = at {
        pod["status"]["podIP"] = json!(address(at));
    }
    match state {
        State::Good => {}
        State::Ended => pod["status"]["phase"] = json!("Failed"),
        State::HostNetwork => {
            pod["spec"]["hostNetwork"] = json!(true);
            pod["status"]["podIP"] = json!(format!("192.0.2.{}", number % 2));
        }
        State::Wrong => pod["status"]["podIP"] = json!("nowhere"),
    }
    pod
}

fn service(number: usize, app: Option<usize>) -> Json {
    let mut service = json!({
        "metadata": metadata(number, "service"),
        "spec": {"clusterIP": format!("10.96.0.{number}"), "ports": [
            {"name": "http", "port": 80, "protocol": "TCP", "targetPort": "http"}, {"name": "dns", "port": 53, "protocol": "UDP"}
        ]},
    });
    if let Some(app) = app {
        service["spec"]["selector"] = json!({"app": APPS[app]});
    }
    service
}

fn slice(number: usize, addresses: &[u8]) -> Json {
    let mut metadata = metadata(number, "slice");
    metadata["labels"] = json!({"kubernetes.io/service-name": format!("service-{number}")});
    let addresses: Vec<String> = addresses.iter().map(|&number| address(number)).collect();
    json!({
        "metadata": metadata, "addressType": "IPv4", "endpoints": [{"addresses": addresses}],
        "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}, {"name": "dns", "port": 53, "protocol": "UDP"}],
    })
}

fn policy(number: usize, app: usize, peer: usize) -> Json {
    json!({
        "metadata": metadata(number, "policy"),
        "spec": {
            "podSelector": {"matchLabels": {"app": APPS[app]}},
            "ingress": [{"from": [{"podSelector": {"matchLabels": {"app": APPS[peer]}}}], "ports": [{"port": "http"}]}],
        },
    })
}

/// The objects there are now, beside a Store that hears of each change.
#[derive(Default)]
struct Cluster {
    objects: BTreeMap<&'static str, BTreeMap<Key, Json>>,
    store: Store,
}

impl Cluster {
    fn put(&mut self, name: &'static str, object: Json) {
        self.store.apply(kind(name).preferred(), &object);
        self.objects.entry(name).or_default().insert(Key::of(&object), object);
    }

    fn drop(&mut self, name: &'static str, number: usize, prefix: &str) {
        let key = Key::of(&json!({"metadata": metadata(number, prefix)}));
        let was_there = self.objects.entry(name).or_default().remove(&key).is_some();
        assert_eq!(self.store.remove(kind(name), &key), was_there);
    }

    fn happen(&mut self, what: &Happening) {
        match what {
            &Happening::Pod { number, app, address, state } => {
                self.put("Pod", pod(number, app, address, state));
            }
            &Happening::PodGoes(number) => self.drop("Pod", number, "pod"),
            Happening::Slice { service, addresses } => self.put("EndpointSlice", slice(*service, addresses)),
            &Happening::SliceGoes(number) => self.drop("EndpointSlice", number, "slice"),
            &Happening::Service { number, app } => self.put("Service", service(number, app)),
            &Happening::ServiceGoes(number) => self.drop("Service", number, "service"),
            &Happening::Policy { number, app, peer } => self.put("NetworkPolicy", policy(number, app, peer)),
            &Happening::PolicyGoes(number) => self.drop("NetworkPolicy", number, "policy"),
            Happening::Relist(which) => {
                let name = ["Pod", "EndpointSlice", "Service", "NetworkPolicy"][*which];
                let mut listing = Listing::new(kind(name).preferred());
                self.objects.get(name).into_iter().flatten().for_each(|(_, object)| listing.push(object));
                self.store.replace(listing);
            }
        }
    }

    /// A Store that has never known anything else.
    fn filled_at_once(&self) -> Store {
        let mut store = Store::default();
        for (name, objects) in &self.objects {
            objects.values().for_each(|object| _ = store.apply(kind(name).preferred(), object));
        }
        store
    }
}

/// All that can be seen of a cluster, in words.
fn seen(snapshot: &Snapshot, program: &Program) -> BTreeSet<String> {
    let mut seen = BTreeSet::new();
    let there = || snapshot.workload_ids().filter(|&id| !snapshot.workload(id).is_vacant());
    for from in there() {
        let workload = snapshot.workload(from);
        let name = snapshot.workload_name(from);
        let node = workload.node.map(|node| &snapshot.node(node).name);
        seen.insert(format!("{name} {node:?} {:?} {:?}", workload.addresses, workload.ports));
        for to in there() {
            for port in [53, 8080, 8081, 8082] {
                let end = |id| program.endpoint_of(id, snapshot.workload(id).addresses.first().copied());
                let flow = Flow {
                    from: end(from),
                    to: end(to),
                    protocol: Protocol::Tcp,
                    port,
                    via: None,
                    hop: None,
                    masker: None,
                };
                let decision = evaluate(program, &LeaseTable::default(), &flow, Instant::default());
                seen.insert(format!("{name} to {} {port}: {}", snapshot.workload_name(to), decision.verdict));
            }
        }
    }
    for at in 0..12 {
        let address: std::net::IpAddr = address(at).parse().unwrap();
        let pod = program.pod_at(address).map(|pod| snapshot.workload_name(pod));
        seen.insert(format!("{address} is {pod:?}"));
    }
    for service in &snapshot.services {
        for port in &service.ports {
            let backends = port.backends.iter().map(|backend| match backend.target {
                BackendTarget::Workload(id) => format!("{}:{}", snapshot.workload_name(id), backend.port),
                BackendTarget::Address(address) => format!("{address}:{}", backend.port),
            });
            let backends: BTreeSet<String> = backends.collect();
            seen.insert(format!("{} {} leads to {backends:?}", service.name, port.port));
        }
    }
    let resolvers = program.resolvers.iter().map(|resolver| {
        let backends: BTreeSet<_> = resolver.backends.iter().collect();
        format!("{} is asked, {backends:?} answer", resolver.address)
    });
    seen.extend(resolvers);
    seen
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn what_is_kept_up_with_is_what_is_read_anew(happenings in happenings()) {
        let settings = Settings::default();
        let mut cluster = Cluster::default();
        let mut known: Option<(Snapshot, Program)> = None;
        for what in &happenings {
            cluster.happen(what);
            let snapshot = cluster.store.read(&settings).lowered.snapshot;
            let (program, _) = match &known {
                Some((before, program)) => compile_next(before, program, &snapshot),
                None => compile(&snapshot),
            };
            let anew = cluster.filled_at_once().read(&settings).lowered.snapshot;
            let (long, _) = compile(&anew);
            // Which of two pods has an address that both claim is not promised: then all that is, is that one has.
            let claims = anew.workloads.iter().filter(|one| !one.host_network).flat_map(|one| one.addresses.iter());
            let mut claimed = BTreeSet::new();
            if claims.copied().all(|address| claimed.insert(address)) {
                prop_assert_eq!(seen(&snapshot, &program), seen(&anew, &long), "after {:?}", what);
            } else {
                prop_assert!(claimed.iter().all(|&address| program.pod_at(address).is_some()));
            }
            known = Some((snapshot, program));
        }
    }
}

#[test]
fn a_change_shares_what_it_does_not_touch() {
    let mut cluster = Cluster::default();
    for number in 0..300 {
        cluster.put(
            "Pod",
            json!({
                "metadata": {"namespace": "shop", "name": format!("pod-{number:03}"), "labels": {"app": "web"}},
                "status": {"phase": "Running", "podIP": format!("10.2.{}.{}", number / 250, number % 250)},
            }),
        );
    }
    let settings = Settings::default();
    let before = cluster.store.read(&settings).lowered.snapshot;
    let mut other = pod(0, 1, Some(7), State::Good);
    other["metadata"]["name"] = json!("pod-007");
    cluster.put("Pod", other);
    let next = cluster.store.read(&settings).lowered.snapshot;
    assert_eq!(next.workloads.not_shared_with(&before.workloads).count(), 128);
    let key = Key { namespace: "shop".into(), name: "pod-150".into() };
    assert!(cluster.store.remove(kind("Pod"), &key));
    cluster.put("Pod", pod(8, 1, Some(9), State::Good));
    let last = cluster.store.read(&settings).lowered.snapshot;
    // The one that came has the place of the one that went.
    assert_eq!((last.workloads.len(), last.pod_count()), (300, 300));
    assert_eq!(last.workloads.not_shared_with(&next.workloads).count(), 128);
}

/// How pods look names up, and where ExternalName Services lead, is known of a live cluster as of manifests.
#[test]
fn s10_4_a_live_cluster_says_how_names_are_resolved() {
    let config = |ndots: &str| {
        json!({
            "dnsPolicy": "None",
            "dnsConfig": {"searches": ["corp.example"], "options": [{"name": "ndots", "value": ndots}]},
        })
    };
    let put = |cluster: &mut Cluster, spec: Json| {
        cluster.put("Pod", json!({"metadata": {"namespace": "shop", "name": "web"}, "spec": spec}));
        let snapshot = cluster.store.read(&Settings::default()).lowered.snapshot;
        snapshot.dns_of(WorkloadId(0))
    };
    let mut cluster = Cluster::default();
    let external = json!({"type": "ExternalName", "externalName": "api.example.com"});
    cluster.put("Service", json!({"metadata": {"namespace": "shop", "name": "out"}, "spec": external}));
    // The first is read as a whole, the others are changes.
    for ndots in ["2", "3"] {
        let dns = put(&mut cluster, config(ndots));
        assert_eq!((dns.policy, dns.searches.len()), (DnsPolicy::None, 1));
        assert_eq!(dns.ndots, ndots.parse().ok());
    }
    assert_eq!(put(&mut cluster, json!({})), DnsConfig::default());
    put(&mut cluster, config("2"));
    let key = Key { namespace: "shop".into(), name: "web".into() };
    assert!(cluster.store.remove(kind("Pod"), &key));
    cluster.put("Pod", json!({"metadata": {"namespace": "shop", "name": "another"}}));
    let snapshot = cluster.store.read(&Settings::default()).lowered.snapshot;
    assert_eq!(snapshot.dns_of(WorkloadId(0)), DnsConfig::default(), "the place of the pod that went");
    assert_eq!(snapshot.services[0].form, ServiceForm::ExternalName("api.example.com".parse().unwrap()));
}
