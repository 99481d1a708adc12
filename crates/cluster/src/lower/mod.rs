//! API objects → the policy core's Snapshot.
//!
//! Every kind has its own file. What cannot be read is a Finding with the
//! object, the path and the place, and what it would have allowed stays closed
//! (S10): a rule that cannot be read in full becomes `Clauses::Unreadable`,
//! whose meaning the core decides.

mod admin;
mod cluster_egress_firewall;
mod egress_firewall;
mod network_policy;
mod nodes;
mod objects;
mod owner;
mod parts;
mod published_names;
mod scope;
mod services;
mod v1beta1;
mod workloads;

pub(crate) use objects::Objects;
pub(crate) use services::{Behind, add_api_server, read_service, read_slice, service_of};
pub use services::{DescribedService, Endpoints};
pub use workloads::{Described, pods};
pub(crate) use workloads::{Pool, read_pod, workload_of};

use crate::document::Document;
use namewall_policy::addr::Cidr;
use namewall_policy::domain::{DomainName, DomainPattern, Wildcard};
use namewall_policy::model::{Enforcement, Policy};
use namewall_policy::{Finding, Snapshot};
use objects::{Item, ReadWorkload};
use rustc_hash::FxHashMap;
use scope::Scope;
use std::collections::BTreeMap;
use std::net::IpAddr;

/// What manifests do not say.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Settings {
    /// Further addresses of the API server (S7.3).
    pub api_server: Vec<IpAddr>,
    /// Where pods get their addresses, besides the nodes' own blocks.
    pub pod_networks: Vec<Cidr>,
}

/// A name a DNSNameResolver has seen at an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolved {
    pub pattern: DomainPattern,
    pub name: DomainName,
    pub address: IpAddr,
}

#[derive(Debug, Default)]
pub struct Lowered {
    pub snapshot: Snapshot,
    pub findings: Vec<Finding>,
    pub resolved: Vec<Resolved>,
    /// How many objects of which other kinds were passed over.
    pub passed_over: BTreeMap<String, usize>,
}

/// What documents are counted as in [`Lowered::passed_over`] that have no kind.
pub const NO_KIND: &str = "no kind";

/// The annotations that anything here looks at.
pub(crate) const ANNOTATIONS: [&str; 3] =
    [ENFORCEMENT_ANNOTATION, v1beta1::ISOLATION_ANNOTATION, workloads::NETWORK_STATUS];

/// The annotation of S11.
pub const ENFORCEMENT_ANNOTATION: &str = "namewall.dev/enforcement";

/// Lowers all documents, in any order. Of two objects of one kind and name the
/// later counts, as with `kubectl apply`.
pub fn lower<'d>(documents: impl IntoIterator<Item = &'d Document>, settings: &Settings) -> Lowered {
    lower_items(documents.into_iter().map(Item::Tree), settings)
}

fn lower_items<'d>(items: impl Iterator<Item = Item<'d>>, settings: &Settings) -> Lowered {
    let mut lowering = Lowering::new(settings);
    let sorted = lowering.sort(items);
    lowering.nodes(&sorted);
    lowering.workloads(&sorted);
    lowering.services(&sorted);
    lowering.policies(&sorted);
    lowering.resolvers(&sorted);
    lowering.out
}

struct Lowering<'s> {
    settings: &'s Settings,
    out: Lowered,
    by_namespace: workloads::ByNamespace,
}

impl<'s> Lowering<'s> {
    fn new(settings: &'s Settings) -> Self {
        Self { settings, out: Lowered::default(), by_namespace: workloads::ByNamespace::default() }
    }
}

/// Documents by what reads them.
#[derive(Default)]
struct Sorted<'d> {
    by_reader: FxHashMap<Reader, Vec<&'d Document>>,
    workloads: FxHashMap<Reader, Vec<Sort<'d>>>,
    /// Where each object is in the list of its reader.
    seen: FxHashMap<ObjectKey<'d>, usize>,
}

/// A workload, read already or not.
#[derive(Clone, Copy)]
enum Sort<'d> {
    Tree(&'d Document),
    Read(&'d ReadWorkload),
}

impl Sort<'_> {
    fn place(self) -> namewall_policy::Source {
        match self {
            Self::Tree(document) => document.place(""),
            Self::Read(workload) => workload.place.clone(),
        }
    }
}

impl<'d> Sorted<'d> {
    /// The documents of a reader other than those of workloads.
    fn of(&self, reader: Reader) -> &[&'d Document] {
        self.by_reader.get(&reader).map_or(&[], Vec::as_slice)
    }

    fn workloads(&self, reader: Reader) -> &[Sort<'d>] {
        self.workloads.get(&reader).map_or(&[], Vec::as_slice)
    }

    fn place(&self, reader: Reader, at: usize) -> namewall_policy::Source {
        match reader.is_workload() {
            true => self.workloads[&reader][at].place(),
            false => self.by_reader[&reader][at].place(""),
        }
    }

    /// Adds an object, or replaces the one at that place. Returns its place.
    fn put(&mut self, reader: Reader, at: Option<usize>, one: Sort<'d>) -> usize {
        fn set<T>(list: &mut Vec<T>, at: Option<usize>, one: T) -> usize {
            match at {
                Some(at) => list[at] = one,
                None => list.push(one),
            }
            at.unwrap_or(list.len() - 1)
        }
        match one {
            Sort::Tree(document) if !reader.is_workload() => {
                set(self.by_reader.entry(reader).or_default(), at, document)
            }
            one => set(self.workloads.entry(reader).or_default(), at, one),
        }
    }
}

impl Reader {
    fn is_workload(self) -> bool {
        matches!(self, Self::Pod | Self::Template | Self::CronJob)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Reader {
    Namespace,
    Node,
    NodeAddresses,
    Pod,
    Template,
    CronJob,
    Service,
    EndpointSlice,
    Endpoints,
    NetworkPolicy,
    NetworkPolicyV1Beta1,
    AdminNetworkPolicy,
    BaselineAdminNetworkPolicy,
    ClusterNetworkPolicy,
    EgressFirewall,
    ClusterEgressFirewall,
    DnsNameResolver,
}

/// The kinds whose loss would widen access, and the versions that are read.
const POLICY_KINDS: [(&str, &str); 6] = [
    ("NetworkPolicy", "networking.k8s.io/v1 or extensions/v1beta1"),
    ("AdminNetworkPolicy", "policy.networking.k8s.io/v1alpha1"),
    ("BaselineAdminNetworkPolicy", "policy.networking.k8s.io/v1alpha1"),
    ("ClusterNetworkPolicy", "policy.networking.k8s.io/v1beta1 or policy.networking.k8s.io/v1alpha2"),
    ("EgressFirewall", "k8s.ovn.org/v1"),
    ("ClusterEgressFirewall", "namewall.dev/v1alpha1"),
];

/// What an object is called that has no name.
const UNNAMED: &str = "(unnamed)";

/// What some kind of object may be called; none is called otherwise.
fn is_object_name(text: &str) -> bool {
    let good = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_' | b':');
    text.len() <= 253 && text.bytes().all(good)
}

/// Whether a kind is that one, or a slip of the pen away from it.
fn means(written: &str, kind: &str) -> bool {
    let plural = kind.strip_suffix('y').map_or_else(|| format!("{kind}s"), |stem| format!("{stem}ies"));
    written.eq_ignore_ascii_case(kind) || written.eq_ignore_ascii_case(&plural)
}

/// Groups with kinds of these names that mean something else.
const FOREIGN_GROUPS: [&str; 2] = ["projectcalico.org", "antrea.io"];

/// Reader, kind, namespace, name: what makes two documents the same object.
type ObjectKey<'d> = (Reader, &'d str, &'d str, &'d str);

/// How an object is read.
enum Known {
    As(Reader),
    /// A kind of ours in a version we do not read: never skipped silently.
    OtherVersion {
        reader: Reader,
        accepted: &'static str,
    },
    No,
}

fn known(api_version: &str, kind: &str) -> Known {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let (reader, accepted) = match (group, kind) {
        ("", "Namespace") => (Reader::Namespace, "v1"),
        ("", "Node") => (Reader::Node, "v1"),
        ("", "Pod") => (Reader::Pod, "v1"),
        ("", "ReplicationController") => (Reader::Template, "v1"),
        ("", "Service") => (Reader::Service, "v1"),
        ("", "Endpoints") => (Reader::Endpoints, "v1"),
        ("apps" | "extensions", "Deployment" | "ReplicaSet" | "StatefulSet" | "DaemonSet") => {
            return Known::As(Reader::Template);
        }
        ("batch", "Job") => return Known::As(Reader::Template),
        ("batch", "CronJob") => return Known::As(Reader::CronJob),
        ("discovery.k8s.io", "EndpointSlice") => return Known::As(Reader::EndpointSlice),
        ("networking.k8s.io", "NetworkPolicy") => (Reader::NetworkPolicy, "v1"),
        ("extensions", "NetworkPolicy") => (Reader::NetworkPolicyV1Beta1, "v1beta1"),
        ("policy.networking.k8s.io", "AdminNetworkPolicy") => (Reader::AdminNetworkPolicy, "v1alpha1"),
        ("policy.networking.k8s.io", "BaselineAdminNetworkPolicy") => (Reader::BaselineAdminNetworkPolicy, "v1alpha1"),
        // v1beta1 has the shape of v1alpha2.
        ("policy.networking.k8s.io", "ClusterNetworkPolicy") if matches!(version, "v1beta1" | "v1alpha2") => {
            return Known::As(Reader::ClusterNetworkPolicy);
        }
        ("policy.networking.k8s.io", "ClusterNetworkPolicy") => (Reader::ClusterNetworkPolicy, "v1beta1 or v1alpha2"),
        ("k8s.ovn.org", "EgressFirewall") => (Reader::EgressFirewall, "v1"),
        ("network.openshift.io", "DNSNameResolver") => (Reader::DnsNameResolver, "v1alpha1"),
        ("namewall.dev", "ClusterEgressFirewall") => (Reader::ClusterEgressFirewall, "v1alpha1"),
        ("namewall.dev", "NodeAddresses") => (Reader::NodeAddresses, "v1alpha1"),
        _ => return Known::No,
    };
    if version == accepted { Known::As(reader) } else { Known::OtherVersion { reader, accepted } }
}

fn is_known_version(document: &Document) -> bool {
    let (Some(api_version), Some(kind)) = (document.api_version(), document.kind()) else { return false };
    matches!(known(api_version, kind), Known::As(_))
}

impl Lowering<'_> {
    fn sort<'d>(&mut self, items: impl Iterator<Item = Item<'d>>) -> Sorted<'d> {
        let mut sorted = Sorted::default();
        for item in items {
            let (reader, kind, document) = match item {
                Item::PassedOver(kind) => {
                    *self.out.passed_over.entry(kind.to_owned()).or_default() += 1;
                    continue;
                }
                Item::Workload(workload) => {
                    let ReadWorkload { reader, kind, namespace, name, .. } = workload;
                    self.put(&mut sorted, (*reader, kind, namespace, name), Sort::Read(workload));
                    continue;
                }
                Item::Tree(document) => match self.reader_of(document) {
                    Some((reader, kind)) => (reader, kind, document),
                    None => continue,
                },
            };
            let Some(name) = document.name().filter(|name| !name.is_empty()) else {
                // It counts all the same: a policy without a name must not be lost.
                let finding = Finding::error("missing-name", kind, "metadata.name is missing; every object has one");
                self.out.findings.push(finding.at("metadata.name").from_source(Some(document.place("metadata"))));
                sorted.put(reader, None, Sort::Tree(document));
                continue;
            };
            let namespace = document.namespace().filter(|name| !name.is_empty()).unwrap_or("default");
            for (path, text) in [("metadata.name", name), ("metadata.namespace", namespace)] {
                if !is_object_name(text) {
                    let message =
                        format!("{text:?} cannot be a name; letters, digits, `-`, `.`, `_` and `:` are accepted");
                    let finding = Finding::error("bad-name", object_name(document, kind), message).at(path);
                    self.out.findings.push(finding.from_source(Some(document.place(path))));
                }
            }
            self.put(&mut sorted, (reader, kind, namespace, name), Sort::Tree(document));
        }
        sorted
    }

    /// How a document is read, and its kind; `None` if it is not, which is said.
    fn reader_of<'d>(&mut self, document: &'d Document) -> Option<(Reader, &'d str)> {
        let (Some(api_version), Some(kind)) = (document.api_version(), document.kind()) else {
            self.pass_over_kindless(document);
            return None;
        };
        match known(api_version, kind) {
            Known::As(reader) => Some((reader, kind)),
            Known::No => {
                self.pass_over(document, api_version, kind);
                None
            }
            Known::OtherVersion { reader, accepted } => {
                let object = object_name(document, kind);
                let message = format!("version {api_version} of {kind} is not read; {accepted} is");
                let finding = Finding::error("unknown-version", object, message).at("apiVersion");
                self.out.findings.push(finding.from_source(Some(document.place("apiVersion"))));
                // A policy is not lost: its subject is read as far as it can be, and closed.
                is_policy(kind).then_some((reader, kind))
            }
        }
    }

    /// Of two objects with the same key the later counts, in the place of the first.
    fn put<'d>(&mut self, sorted: &mut Sorted<'d>, key: ObjectKey<'d>, one: Sort<'d>) {
        let (reader, kind, namespace, name) = key;
        let first = sorted.seen.get(&key).copied();
        if let Some(at) = first {
            let first = sorted.place(reader, at);
            let message = format!("it is defined twice, first at {first}; the later one counts");
            let object = named(kind, namespace, name);
            let finding = Finding::warning("defined-twice", object, message);
            self.out.findings.push(finding.from_source(Some(one.place())));
        }
        let at = sorted.put(reader, first, one);
        sorted.seen.insert(key, at);
    }

    fn pass_over(&mut self, document: &Document, api_version: &str, kind: &str) {
        *self.out.passed_over.entry(kind.to_owned()).or_default() += 1;
        let Some(accepted) = POLICY_KINDS.iter().find(|(known, _)| means(kind, known)).map(|(_, accepted)| accepted)
        else {
            return;
        };
        let object = object_name(document, kind);
        let message = format!("{kind} of {api_version} is not read, and has no effect here; {accepted} is");
        // Other systems have kinds of the same name; a misspelt group is a policy that is lost.
        let group = api_version.split('/').next().unwrap_or_default();
        let is_foreign =
            |known: &&str| group == *known || group.strip_suffix(known).is_some_and(|rest| rest.ends_with('.'));
        let foreign = FOREIGN_GROUPS.iter().any(is_foreign);
        let finding = match foreign {
            true => Finding::warning("foreign-kind", object, message),
            false => Finding::error("unknown-version", object, message),
        };
        self.out.findings.push(finding.at("apiVersion").from_source(Some(document.place("apiVersion"))));
    }

    /// What looks like an object but does not say what it is may be a policy.
    fn pass_over_kindless(&mut self, document: &Document) {
        *self.out.passed_over.entry(NO_KIND.to_owned()).or_default() += 1;
        let has = |key| document.node.get(key).is_some();
        if has("metadata") && (has("spec") || has("kind") || has("apiVersion")) {
            let missing = if document.kind().is_none() { "kind" } else { "apiVersion" };
            let message = format!("`{missing}` is missing, so nobody can tell what this is; it has no effect");
            let finding = Finding::error("missing-kind", document.name().unwrap_or_default(), message);
            self.out.findings.push(finding.from_source(Some(document.place(""))));
        }
    }

    fn policies(&mut self, sorted: &Sorted<'_>) {
        type Lower = fn(&mut Scope<'_>) -> Option<Policy>;
        let readers: [(Reader, Lower); 7] = [
            (Reader::ClusterEgressFirewall, cluster_egress_firewall::lower),
            (Reader::EgressFirewall, egress_firewall::lower),
            (Reader::AdminNetworkPolicy, admin::lower_admin),
            (Reader::ClusterNetworkPolicy, admin::lower_cluster),
            (Reader::BaselineAdminNetworkPolicy, admin::lower_baseline),
            (Reader::NetworkPolicy, network_policy::lower),
            (Reader::NetworkPolicyV1Beta1, v1beta1::lower),
        ];
        for (reader, lower) in readers {
            for document in sorted.of(reader) {
                let mut scope = Scope::new(document, &mut self.out.findings);
                if let Some(policy) = lower(&mut scope) {
                    if let Some(namespace) = &policy.id.namespace {
                        self.out.snapshot.ensure_namespace(namespace);
                    }
                    std::sync::Arc::make_mut(&mut self.out.snapshot.policies).push(policy);
                }
            }
        }
    }

    fn resolvers(&mut self, sorted: &Sorted<'_>) {
        for document in sorted.of(Reader::DnsNameResolver) {
            let mut scope = Scope::new(document, &mut self.out.findings);
            let Some(object) = scope.read_whole::<crate::api::dns_name_resolver::DnsNameResolver>() else { continue };
            let Some(pattern) = parts::domain_pattern(&mut scope, &object.spec.name, Wildcard::OneLabel, "spec.name")
            else {
                continue;
            };
            for (at, item) in object.status.resolved_names.iter().enumerate() {
                let path = format!("status.resolvedNames[{at}]");
                // The wildcard itself may have been looked up; it is no name a client asks for.
                if item.dns_name.starts_with("*.") {
                    continue;
                }
                let name = match item.dns_name.parse::<DomainName>() {
                    Ok(name) if pattern.matches(&name) => name,
                    Ok(name) => {
                        scope.warning(
                            "foreign-name",
                            &format!("{path}.dnsName"),
                            format!("{name} does not match {pattern}; it opens nothing"),
                        );
                        continue;
                    }
                    Err(error) => {
                        scope.error("bad-name", &format!("{path}.dnsName"), error.to_string());
                        continue;
                    }
                };
                for address in &item.resolved_addresses {
                    if let Some(address) = parts::address(&mut scope, &address.ip, &format!("{path}.resolvedAddresses"))
                    {
                        self.out.resolved.push(Resolved { pattern: pattern.clone(), name: name.clone(), address });
                    }
                }
            }
        }
    }
}

/// Kinds that have no namespace.
const CLUSTER_WIDE: [&str; 7] = [
    "Namespace",
    "Node",
    "NodeAddresses",
    "AdminNetworkPolicy",
    "BaselineAdminNetworkPolicy",
    "ClusterNetworkPolicy",
    "ClusterEgressFirewall",
];

pub(crate) fn is_cluster_wide(kind: &str) -> bool {
    CLUSTER_WIDE.contains(&kind)
}

/// True for the kinds whose loss would widen access.
pub(crate) fn is_policy(kind: &str) -> bool {
    POLICY_KINDS.iter().any(|(known, _)| *known == kind)
}

/// `Kind namespace/name`, as findings name objects.
pub(crate) fn object_name(document: &Document, kind: &str) -> String {
    let namespace = document.namespace().filter(|name| !name.is_empty()).unwrap_or("default");
    named(kind, namespace, document.name().unwrap_or_default())
}

fn named(kind: &str, namespace: &str, name: &str) -> String {
    if is_cluster_wide(kind) { format!("{kind} {name}") } else { format!("{kind} {namespace}/{name}") }
}

/// S11: `namewall.dev/enforcement: audit` and nothing else means audit.
fn enforcement(scope: &mut Scope<'_>) -> Enforcement {
    match scope.meta.annotations.get(ENFORCEMENT_ANNOTATION).map(String::as_str) {
        Some("audit") => Enforcement::Audit,
        None | Some("enforce") => Enforcement::Enforce,
        Some(other) => {
            let message =
                format!("`{other}` is not accepted for {ENFORCEMENT_ANNOTATION}; use audit or enforce. It is enforced");
            scope.error("bad-enforcement", "metadata.annotations", message);
            Enforcement::Enforce
        }
    }
}
