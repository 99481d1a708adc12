//! API objects → the policy core's Snapshot.
//!
//! `kinds` has a file for each kind that says how its objects are read; here is what they have in common. `sort`
//! finds the kind of each object, `scope` reads one object and collects what is wrong with it, `parts` are what
//! policies are made of. What cannot be read is a Finding with the object, the path and the place, and what it would
//! have allowed stays closed (S10): a rule that cannot be read in full becomes `Clauses::Unreadable`, whose meaning
//! the core decides.

mod objects;
pub(crate) mod owner;
pub(crate) mod parts;
mod pool;
pub(crate) mod published_names;
mod scope;
mod services;
mod sort;
mod workloads;

pub(crate) use objects::Objects;
pub(crate) use pool::Pool;
pub(crate) use scope::{ReadRule, RuleForm, RuleList, Scope};
pub use services::API_SERVER_PORT;
pub(crate) use services::{Behind, DescribedPort, add_api_server, service_of};
pub use services::{DescribedService, Endpoints};
pub(crate) use workloads::workload_of;
pub use workloads::{Described, pods};

use crate::document::Document;
use crate::kinds::{self, ReadNode, Recognised, read_addresses, read_namespace, read_node, read_resolver};
use namewall_policy::addr::Cidr;
use namewall_policy::domain::DomainName;
use namewall_policy::model::Enforcement;
use namewall_policy::{Finding, Snapshot};
use objects::Item;
use sort::Sorted;
use std::collections::{BTreeMap, HashSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// What manifests do not say.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Settings {
    /// Where else the API server is asked, over TCP (S7.3).
    pub api_server: Vec<SocketAddr>,
    /// Where pods get their addresses, besides the nodes' own blocks.
    pub pod_networks: Vec<Cidr>,
}

/// A name a DNSNameResolver has seen at an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolved {
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
    /// The blocks that pods of each Node get their addresses from. Only from documents: a store has its Nodes.
    pub pod_blocks: BTreeMap<Arc<str>, Vec<Cidr>>,
}

/// What documents are counted as in [`Lowered::passed_over`] that have no kind.
pub const NO_KIND: &str = "no kind";

/// The annotations that anything here looks at.
pub(crate) const ANNOTATIONS: [&str; 4] =
    [ENFORCEMENT_ANNOTATION, kinds::ISOLATION_ANNOTATION, kinds::NETWORK_STATUS, kinds::ACL_LOGGING_ANNOTATION];

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

impl Lowering<'_> {
    /// Namespaces, nodes, and the addresses of nodes.
    fn nodes(&mut self, sorted: &Sorted<'_>) {
        let Lowered { snapshot, findings, pod_blocks: blocks_of, .. } = &mut self.out;
        for document in sorted.of(&kinds::NAMESPACE) {
            snapshot.add_namespace(read_namespace(document, findings));
        }
        let mut pod_networks = self.settings.pod_networks.clone();
        let mut seen: HashSet<Cidr> = pod_networks.iter().copied().collect();
        for document in sorted.of(&kinds::NODE) {
            let ReadNode { node, pod_blocks } = read_node(document, findings);
            blocks_of.insert(node.name.clone(), pod_blocks.clone());
            pod_networks.extend(pod_blocks.into_iter().filter(|block| seen.insert(*block)));
            snapshot.add_node(node);
        }
        snapshot.pod_networks = Arc::new(pod_networks);
        for document in sorted.of(&kinds::NODE_ADDRESSES) {
            let (name, published) = read_addresses(document, findings);
            let node = snapshot.ensure_node(&name);
            let known = &mut Arc::make_mut(&mut snapshot.nodes)[node.index()].addresses;
            let mut seen: HashSet<IpAddr> = known.iter().copied().collect();
            known.extend(published.into_iter().filter(|address| seen.insert(*address)));
        }
    }

    fn policies(&mut self, sorted: &Sorted<'_>) {
        let Lowered { snapshot, findings, .. } = &mut self.out;
        for kind in kinds::policies() {
            let Some(reader) = kind.policy() else { continue };
            for document in sorted.of(kind) {
                let Some(policy) = (reader.lower)(&mut Scope::new(document, findings)) else { continue };
                if let Some(namespace) = &policy.id.namespace {
                    snapshot.ensure_namespace(namespace);
                }
                Arc::make_mut(&mut snapshot.policies).push(policy);
            }
        }
    }

    fn resolvers(&mut self, sorted: &Sorted<'_>) {
        let Lowered { resolved, findings, .. } = &mut self.out;
        for document in sorted.of(&kinds::DNS_NAME_RESOLVER) {
            resolved.extend(read_resolver(document, findings));
        }
    }
}

/// What an object is called that has no name.
const UNNAMED: &str = "(unnamed)";

/// What some kind of object may be called; none is called otherwise.
fn is_object_name(text: &str) -> bool {
    let good = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_' | b':');
    text.len() <= 253 && text.bytes().all(good)
}

fn is_known_version(document: &Document) -> bool {
    let (Some(api_version), Some(kind)) = (document.api_version(), document.kind()) else { return false };
    matches!(kinds::recognise(api_version, kind), Recognised::Read(_))
}

/// `Kind namespace/name`, as findings name objects.
pub(crate) fn object_name(document: &Document, kind: &str) -> String {
    let namespace = document.namespace().filter(|name| !name.is_empty()).unwrap_or("default");
    named(kind, namespace, document.name().unwrap_or_default())
}

fn named(kind: &str, namespace: &str, name: &str) -> String {
    if kinds::is_cluster_wide(kind) { format!("{kind} {name}") } else { format!("{kind} {namespace}/{name}") }
}

/// S11: `namewall.dev/enforcement: audit` and nothing else means audit.
pub(crate) fn enforcement(scope: &mut Scope<'_>) -> Enforcement {
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
