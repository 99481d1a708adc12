//! The objects of a cluster, and questions about them with what must be answered.

use anyhow::{Context, Result};
use kube::api::{Api, ApiResource, DynamicObject, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use namewall_testbed::ControlPlane;
use serde_json::{Value, json};
use std::net::Ipv4Addr;
use std::sync::Arc;
use tokio::runtime::Runtime;

const NAMESPACES: usize = 100;
/// How many objects are written at once.
const WRITERS: usize = 24;
/// Endpoints of a Service.
const ENDPOINTS: usize = 3;
/// One of so many Services has no address of its own.
const HEADLESS: usize = 5;

/// A Service, by its number.
#[derive(Clone, Debug)]
struct Made {
    name: String,
    /// None for a headless one.
    address: Option<Ipv4Addr>,
    endpoint: Ipv4Addr,
}

#[derive(Debug)]
pub(crate) struct Cluster {
    services: Vec<Made>,
}

/// What an answer must be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Expected {
    rcode: u8,
    answers: u16,
    /// An address that is among the answers.
    address: Option<Ipv4Addr>,
}

impl Expected {
    pub(crate) fn is(self, answer: &[u8]) -> bool {
        let Some(header) = answer.first_chunk::<12>() else { return false };
        let is_like = header[2] & 0x80 != 0
            && header[3] & 0x0f == self.rcode
            && u16::from_be_bytes([header[6], header[7]]) == self.answers;
        let has = |address: Ipv4Addr| answer.windows(4).any(|bytes| bytes == address.octets());
        is_like && self.address.is_none_or(has)
    }
}

/// A question on the wire, without its id.
#[derive(Clone, Debug)]
pub(crate) struct Question {
    pub(crate) bytes: Vec<u8>,
    pub(crate) expected: Expected,
}

impl Cluster {
    /// Writes the objects into an API server.
    pub(crate) fn make(plane: &ControlPlane, services: usize) -> Result<Self> {
        let runtime = Runtime::new()?;
        let kubeconfig = Kubeconfig::read_from(plane.kubeconfig())?;
        let services = runtime.block_on(async {
            let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
            let client = Client::try_from(config)?;
            for number in 0..NAMESPACES {
                let namespace =
                    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": format!("n{number}")}});
                create(&client, namespace).await?;
            }
            let mut tasks = Vec::new();
            for writer in 0..WRITERS {
                let client = client.clone();
                tasks.push(tokio::spawn(async move {
                    let mut made = Vec::new();
                    for number in (writer..services).step_by(WRITERS) {
                        made.push((number, make_service(&client, number).await?));
                    }
                    anyhow::Ok(made)
                }));
            }
            let mut all = Vec::new();
            for task in tasks {
                all.extend(task.await??);
            }
            all.sort_by_key(|(number, _)| *number);
            anyhow::Ok(all.into_iter().map(|(_, made)| made).collect())
        })?;
        Ok(Self { services })
    }

    /// The last Service, which servers know when they know all.
    pub(crate) fn last(&self) -> Question {
        let made = &self.services[self.services.len() - 1];
        question(&made.name, 1, made.expected_v4())
    }

    /// A question by its number: the A and the AAAA record of Services in turn, as resolvers ask for them, and of every
    /// tenth look-up the name that a search path makes first and that nobody has.
    pub(crate) fn question(&self, number: u64) -> Question {
        let (lookup, kind) = (number / 2, if number.is_multiple_of(2) { 1 } else { 28 });
        // In no order, and each as often as any other.
        let made = &self.services[(lookup.wrapping_mul(2_654_435_761) % self.services.len() as u64) as usize];
        if lookup.is_multiple_of(10) {
            let name = format!("{}.n0.svc.cluster.local", made.name);
            return question(&name, kind, Expected { rcode: 3, answers: 0, address: None });
        }
        let expected = if kind == 1 { made.expected_v4() } else { Expected { rcode: 0, answers: 0, address: None } };
        question(&made.name, kind, expected)
    }
}

impl Made {
    fn expected_v4(&self) -> Expected {
        match self.address {
            Some(address) => Expected { rcode: 0, answers: 1, address: Some(address) },
            None => Expected { rcode: 0, answers: ENDPOINTS as u16, address: Some(self.endpoint) },
        }
    }
}

/// With EDNS, as a stub resolver's.
fn question(name: &str, kind: u16, expected: Expected) -> Question {
    let mut bytes = vec![0, 0, 1, 0, 0, 1, 0, 0, 0, 0, 0, 1];
    for label in name.split('.') {
        bytes.push(label.len() as u8);
        bytes.extend(label.as_bytes());
    }
    bytes.push(0);
    bytes.extend(kind.to_be_bytes());
    bytes.extend([0, 1, 0, 0, 41, 4, 208, 0, 0, 0, 0, 0, 0]);
    Question { bytes, expected }
}

async fn make_service(client: &Client, number: usize) -> Result<Made> {
    let (namespace, name) = (format!("n{}", number % NAMESPACES), format!("s{number}"));
    let is_headless = number.is_multiple_of(HEADLESS);
    let ports = json!([{"name": "http", "port": 80, "protocol": "TCP"}]);
    let mut spec = json!({"ports": ports, "selector": {"app": name}});
    if is_headless {
        spec["clusterIP"] = "None".into();
    }
    let metadata = json!({"name": name, "namespace": namespace, "labels": {"app": name}});
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec});
    let service = create(client, service).await?;
    let address = service["spec"]["clusterIP"].as_str().filter(|_| !is_headless);
    let address = address.map(str::parse).transpose().context("a Service has an address")?;
    let endpoint = |at: usize| Ipv4Addr::from_bits(0x0a80_0000 + (number * ENDPOINTS + at) as u32);
    let endpoints: Vec<Value> = (0..ENDPOINTS)
        .map(|at| {
            let target = json!({"kind": "Pod", "name": format!("{name}-{at}"), "namespace": namespace});
            json!({"addresses": [endpoint(at)], "conditions": {"ready": true}, "targetRef": target})
        })
        .collect();
    let labels = json!({"kubernetes.io/service-name": name, "app": name});
    let slice = json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4", "endpoints": endpoints,
        "ports": ports, "metadata": {"name": format!("{name}-a"), "namespace": namespace, "labels": labels},
    });
    create(client, slice).await?;
    Ok(Made { name: format!("{name}.{namespace}.svc.cluster.local"), address, endpoint: endpoint(0) })
}

async fn create(client: &Client, object: Value) -> Result<Value> {
    let text = |key: &str| object[key].as_str().unwrap_or_default().to_owned();
    let (version, kind) = (text("apiVersion"), text("kind"));
    let (group, version) = version.split_once('/').unwrap_or(("", &version));
    let resource = ApiResource::from_gvk(&kube::core::GroupVersionKind::gvk(group, version, &kind));
    let namespace = object["metadata"]["namespace"].as_str().map(Arc::<str>::from);
    let objects: Api<DynamicObject> = match &namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    };
    let made = objects.create(&PostParams::default(), &serde_json::from_value(object)?).await?;
    Ok(serde_json::to_value(made)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_must_be_the_one_that_is_expected() {
        let expected = Expected { rcode: 0, answers: 1, address: Some([10, 96, 0, 7].into()) };
        let mut answer = vec![0, 1, 0x81, 0x80, 0, 1, 0, 1, 0, 0, 0, 0, 10, 96, 0, 7];
        assert!(expected.is(&answer));
        for (at, byte) in [(2, 0x01), (3, 0x83), (7, 2), (15, 8)] {
            let before = std::mem::replace(&mut answer[at], byte);
            assert!(!expected.is(&answer), "{at}");
            answer[at] = before;
        }
        assert!(!expected.is(&answer[..11]));
    }

    #[test]
    fn every_tenth_lookup_is_of_a_name_that_nobody_has() {
        let made = Made { name: "s1.n1.svc.cluster.local".into(), address: None, endpoint: Ipv4Addr::LOCALHOST };
        let cluster = Cluster { services: vec![made] };
        let rcodes: Vec<u8> = (0..24).map(|number| cluster.question(number).expected.rcode).collect();
        assert_eq!(rcodes.iter().filter(|rcode| **rcode == 3).count(), 4);
        assert_eq!(cluster.question(2).expected.answers, 3);
        assert_eq!(cluster.question(3).expected.answers, 0);
    }
}
