//! The objects that `kubernetes` answers from: watched at an API server, and read into what answers need.

use anyhow::{Context, Result};
use namewall_cluster::Key;
use namewall_cluster::kinds::{ENDPOINT_SLICE, Kind, NAMESPACE, POD, SERVICE};
use namewall_corefile::{Corefile, Kubernetes, PodMode};
use namewall_dns_firewall::{
    Before, ClusterIndex, ClusterKey, ClusterKind, ClusterObject, Clusters, EndpointRecord, PortRecord, ServiceForm,
    ServiceRecord, SliceRecord,
};
use namewall_kubernetes::{Connection, Endpoint, ObjectSink, ObjectWatch, Target};
use namewall_policy::labels::{Labels, Selector};
use serde_json::Value;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tracing::{info, warn};

const LOOK_EVERY: Duration = Duration::from_millis(20);
/// The label that names the Service of a slice.
const SERVICE_NAME: &str = "kubernetes.io/service-name";
/// The longest label of a name.
const MOST_LABEL: usize = 63;

/// For --check and --explain, which ask nobody: nothing is ever known.
#[derive(Debug)]
pub(super) struct Unasked {
    /// The API server of directives that name none.
    pub(super) target: Target,
    /// Whether the files that say how to reach an API server must be readable, as at the start.
    pub(super) reads_files: bool,
}

impl Clusters for Unasked {
    fn open(&self, directive: &Kubernetes) -> Result<Arc<ClusterIndex>, String> {
        // In a pod the service account counts, which is not there where a file is checked.
        let is_named = directive.kubeconfig.is_some() || directive.endpoint.is_some();
        if self.reads_files && (is_named || self.target.kubeconfig.is_some()) {
            connect(&self.target, directive).map_err(|error| format!("{error:#}"))?;
        }
        Ok(Arc::new(ClusterIndex::new(kinds(directive).map(|(_, kind)| kind).collect())))
    }
}

/// Watches the clusters that directives name.
#[derive(Debug)]
pub(super) struct Watched {
    /// The API server of directives that name none.
    target: Target,
    /// A watch stays as long as its directive does, also when the Corefile is read again.
    open: Mutex<Vec<Open>>,
}

#[derive(Debug)]
struct Open {
    directive: Kubernetes,
    index: Arc<ClusterIndex>,
    _watch: ObjectWatch,
}

impl Watched {
    pub(super) fn new(target: Target) -> Self {
        Self { target, open: Mutex::default() }
    }

    fn open(&self) -> MutexGuard<'_, Vec<Open>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// True if all clusters are known. Watches that no server block answers from any more end here.
    pub(super) fn are_known(&self) -> bool {
        let mut open = self.open();
        open.retain(|one| Arc::strong_count(&one.index) > 2);
        open.iter().filter(|one| !one.index.settle()).count() == 0
    }

    /// Waits until all clusters are known, as long as their directives let the start wait.
    pub(super) fn wait(&self, corefile: &Corefile) {
        let directives = corefile.servers.iter().filter_map(|server| server.kubernetes.as_ref());
        let Some(patience) = directives.map(|directive| directive.startup_timeout).max() else { return };
        let until = Instant::now() + patience;
        while !self.are_known() {
            if Instant::now() >= until {
                warn!("the API server has not said yet what the cluster has; its names get SERVFAIL until then");
                return;
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }
}

/// How the API server of a directive is asked.
pub(super) fn connect(target: &Target, directive: &Kubernetes) -> Result<Connection> {
    if let Some(kubeconfig) = &directive.kubeconfig {
        let context = kubeconfig.context.as_ref().map(ToString::to_string);
        return Ok(Connection::open(&Target { kubeconfig: Some(kubeconfig.file.clone()), context })?);
    }
    let Some(url) = &directive.endpoint else {
        return Connection::open(target).context("`kubernetes` needs the API server");
    };
    let tls = directive.tls.clone().unwrap_or_default();
    let url = format!("{}://{}{}", if url.is_tls { "https" } else { "http" }, url.at, url.path);
    Ok(Connection::open_at(&Endpoint { url, client: tls.client, authority: tls.authority })?)
}

impl Clusters for Watched {
    fn open(&self, directive: &Kubernetes) -> Result<Arc<ClusterIndex>, String> {
        let mut open = self.open();
        if let Some(known) = open.iter().find(|one| is_same(&one.directive, directive)) {
            return Ok(known.index.clone());
        }
        let connection = connect(&self.target, directive).map_err(|error| format!("{error:#}"))?;
        info!(server = %connection.server(), "watching for names of the cluster");
        // What another choice of the same cluster's objects has shown so far is shown until this one is listed.
        let before = open.iter().rev().filter(|one| has_same_zones(&one.directive, directive)).find_map(Open::before);
        let index = Arc::new(ClusterIndex::after(kinds(directive).map(|(_, kind)| kind).collect(), before));
        let sink = Arc::new(Feed {
            index: index.clone(),
            labels: directive.labels.clone(),
            namespace_labels: directive.namespace_labels.clone(),
        });
        let watch = ObjectWatch::start(&connection, kinds(directive).map(|(kind, _)| kind), &sink);
        open.push(Open { directive: directive.clone(), index: index.clone(), _watch: watch });
        Ok(index)
    }
}

impl Open {
    /// What is answered from now.
    fn before(&self) -> Option<Before> {
        let now = || Before { index: self.index.clone(), directive: Arc::new(self.directive.clone()) };
        self.index.before().or_else(|| self.index.is_known().then(now))
    }
}

/// True if two directives show names of the same cluster in the same zones.
fn has_same_zones(one: &Kubernetes, other: &Kubernetes) -> bool {
    has_same_server(one, other) && one.zones == other.zones
}

fn has_same_server(one: &Kubernetes, other: &Kubernetes) -> bool {
    (&one.endpoint, &one.tls, &one.kubeconfig) == (&other.endpoint, &other.tls, &other.kubeconfig)
}

/// True if two directives want the same objects of the same cluster.
fn is_same(one: &Kubernetes, other: &Kubernetes) -> bool {
    let choice = |directive: &Kubernetes| (directive.labels.clone(), directive.namespace_labels.clone());
    let kinds = |directive: &Kubernetes| kinds(directive).map(|(_, kind)| kind).collect::<Vec<_>>();
    has_same_server(one, other) && choice(one) == choice(other) && kinds(one) == kinds(other)
}

/// The kinds that a directive answers from.
fn kinds(directive: &Kubernetes) -> impl Iterator<Item = (&'static Kind, ClusterKind)> {
    let (endpoints, pods) = (directive.has_endpoints, directive.pods == PodMode::Verified);
    let always: [(&'static Kind, ClusterKind); 2] =
        [(&NAMESPACE, ClusterKind::Namespace), (&SERVICE, ClusterKind::Service)];
    let slices: (&'static Kind, ClusterKind) = (&ENDPOINT_SLICE, ClusterKind::Slice);
    let all_pods: (&'static Kind, ClusterKind) = (&POD, ClusterKind::Pod);
    always.into_iter().chain(endpoints.then_some(slices)).chain(pods.then_some(all_pods))
}

/// Feeds an index with the objects of a cluster.
#[derive(Debug)]
struct Feed {
    index: Arc<ClusterIndex>,
    labels: Selector,
    namespace_labels: Option<Selector>,
}

impl ObjectSink for Feed {
    type Item = ClusterObject;

    fn read(&self, kind: &'static Kind, object: &Value) -> Option<ClusterObject> {
        let labels = object.pointer("/metadata/labels").and_then(Value::as_object);
        let pairs = labels.into_iter().flatten().filter_map(|(key, value)| Some((key.as_str(), value.as_str()?)));
        let labels: Labels = pairs.collect();
        if kind_of(kind) == ClusterKind::Namespace {
            let is_meant = self.namespace_labels.as_ref().is_none_or(|selector| selector.matches(&labels));
            return is_meant.then_some(ClusterObject::Namespace);
        }
        if !self.labels.matches(&labels) {
            return None;
        }
        match kind_of(kind) {
            ClusterKind::Service => Some(ClusterObject::Service(service(object))),
            ClusterKind::Slice => slice(object, labels.get(SERVICE_NAME)?).map(ClusterObject::Slice),
            _ => pod(object).map(ClusterObject::Pod),
        }
    }

    fn replace(&self, kind: &'static Kind, items: Vec<(Key, ClusterObject)>) {
        self.index.replace(kind_of(kind), items.into_iter().map(|(key, object)| (cluster_key(key), object)).collect());
    }

    fn set(&self, kind: &'static Kind, key: Key, item: Option<ClusterObject>) {
        self.index.set(kind_of(kind), cluster_key(key), item);
    }

    fn trouble(&self, kind: &'static Kind, what: &str) {
        warn!(kind = kind.name, "the API server cannot be asked: {what}");
    }
}

fn kind_of(kind: &Kind) -> ClusterKind {
    match kind {
        _ if *kind == NAMESPACE => ClusterKind::Namespace,
        _ if *kind == SERVICE => ClusterKind::Service,
        _ if *kind == ENDPOINT_SLICE => ClusterKind::Slice,
        _ => ClusterKind::Pod,
    }
}

fn cluster_key(key: Key) -> ClusterKey {
    ClusterKey { namespace: key.namespace, name: key.name }
}

fn texts(list: &Value) -> impl Iterator<Item = &str> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str)
}

fn service(object: &Value) -> ServiceRecord {
    let spec = &object["spec"];
    let cluster_ips: Vec<&str> = texts(&spec["clusterIPs"]).collect();
    let cluster_ips =
        if cluster_ips.is_empty() { spec["clusterIP"].as_str().into_iter().collect() } else { cluster_ips };
    let form = match spec["type"].as_str() {
        Some("ExternalName") => ServiceForm::ExternalName(spec["externalName"].as_str().unwrap_or_default().into()),
        _ if cluster_ips.first() == Some(&"None") => ServiceForm::Headless,
        _ => ServiceForm::Balanced(cluster_ips.iter().filter_map(|text| text.parse().ok()).collect()),
    };
    ServiceRecord { form, ports: ports(&spec["ports"]) }
}

/// The ports of an object; without any one that stands for none.
fn ports(list: &Value) -> Vec<PortRecord> {
    let read = |port: &Value| PortRecord {
        name: port["name"].as_str().unwrap_or_default().into(),
        protocol: port["protocol"].as_str().unwrap_or_default().into(),
        number: port["port"].as_u64().and_then(|number| u16::try_from(number).ok()),
    };
    let ports: Vec<PortRecord> = list.as_array().into_iter().flatten().map(read).collect();
    if ports.is_empty() { vec![PortRecord::none()] } else { ports }
}

/// The endpoints that are ready.
fn slice(object: &Value, service: &str) -> Option<SliceRecord> {
    let mut endpoints = Vec::new();
    for endpoint in object["endpoints"].as_array().into_iter().flatten() {
        // What is not said counts as ready.
        if endpoint["conditions"]["ready"].as_bool() == Some(false) {
            continue;
        }
        let named = |text: &Value| text.as_str().filter(|name| !name.is_empty()).map(Arc::<str>::from);
        let target = named(&endpoint["targetRef"]["name"]).filter(|name| name.len() <= MOST_LABEL);
        for address in texts(&endpoint["addresses"]).filter_map(|text| text.parse::<IpAddr>().ok()) {
            let host_name = named(&endpoint["hostname"]);
            endpoints.push(EndpointRecord { address, host_name, target: target.clone() });
        }
    }
    (!service.is_empty()).then(|| SliceRecord { service: service.into(), endpoints, ports: ports(&object["ports"]) })
}

/// The addresses of a pod. One that is being deleted has none, as with CoreDNS.
fn pod(object: &Value) -> Option<Vec<IpAddr>> {
    if object["metadata"]["deletionTimestamp"].is_string() {
        return None;
    }
    let addresses = object["status"]["podIPs"].as_array().into_iter().flatten();
    let addresses: Vec<IpAddr> = addresses.filter_map(|one| one["ip"].as_str()?.parse().ok()).collect();
    (!addresses.is_empty()).then_some(addresses)
}
