//! An immutable view of a cluster.

use crate::addr::Cidr;
use crate::labels::Labels;
use crate::model::{
    DnsConfig, Namespace, NamespaceId, Node, NodeId, Policy, PolicyId, Role, RoleId, ServedAddress, Service, Workload,
    WorkloadId, WorkloadKind,
};
use crate::pieces::Pieces;
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// Built with the `add_…` methods, then only read. The next one is a clone that
/// is changed: it shares what stays the same, which is how a compiler that has
/// seen the one before knows what to leave alone.
#[derive(Clone, Default, Debug)]
pub struct Snapshot {
    pub namespaces: Arc<Vec<Namespace>>,
    pub roles: Arc<Vec<Role>>,
    pub workloads: Pieces<Workload>,
    pub nodes: Arc<Vec<Node>>,
    pub services: Pieces<Service>,
    pub policies: Arc<Vec<Policy>>,
    /// The blocks pods get their addresses from, where known.
    pub pod_networks: Arc<Vec<Cidr>>,
    /// Every address of the API server, with the ports it serves there (S7.3).
    pub api_server: Vec<ServedAddress>,
    /// How pods look names up, where they do not do it in the default way.
    dns: Arc<FxHashMap<WorkloadId, DnsConfig>>,
    by_role: Arc<FxHashMap<Role, RoleId>>,
    by_namespace: Arc<FxHashMap<Arc<str>, NamespaceId>>,
    by_node: Arc<FxHashMap<Arc<str>, NodeId>>,
}

/// The label every namespace has, whatever its manifest says.
pub const NAMESPACE_NAME_LABEL: &str = "kubernetes.io/metadata.name";

impl Snapshot {
    /// Adds a namespace. One of that name which is there already is kept.
    pub fn add_namespace(&mut self, mut namespace: Namespace) -> NamespaceId {
        if let Some(&id) = self.by_namespace.get(&namespace.name) {
            return id;
        }
        if namespace.labels.get(NAMESPACE_NAME_LABEL) != Some(&namespace.name) {
            let named = std::iter::once((NAMESPACE_NAME_LABEL, &*namespace.name));
            let others = namespace.labels.iter().filter(|(key, _)| *key != NAMESPACE_NAME_LABEL);
            namespace.labels = named.chain(others).collect();
        }
        let id = NamespaceId(self.namespaces.len() as u32);
        Arc::make_mut(&mut self.by_namespace).insert(namespace.name.clone(), id);
        Arc::make_mut(&mut self.namespaces).push(namespace);
        id
    }

    /// The namespace of that name; one that nobody described exists all the same.
    pub fn ensure_namespace(&mut self, name: &str) -> NamespaceId {
        if let Some(&id) = self.by_namespace.get(name) {
            return id;
        }
        self.add_namespace(Namespace {
            name: name.into(),
            labels: Labels::default(),
            default_deny_ingress: false,
            source: None,
        })
    }

    pub fn namespace_named(&self, name: &str) -> Option<NamespaceId> {
        self.by_namespace.get(name).copied()
    }

    pub fn role_of(&mut self, role: Role) -> RoleId {
        if let Some(&id) = self.by_role.get(&role) {
            return id;
        }
        let id = RoleId(self.roles.len() as u32);
        Arc::make_mut(&mut self.by_role).insert(role.clone(), id);
        Arc::make_mut(&mut self.roles).push(role);
        id
    }

    /// A pod of this role without addresses, node and ports: fill in what it has, and add it.
    pub fn new_pod(&mut self, role: Role, name: &str) -> Workload {
        let (namespace, host_network) = (role.namespace, role.host_network);
        Workload {
            kind: WorkloadKind::Pod,
            namespace,
            name: name.into(),
            role: self.role_of(role),
            addresses: Arc::default(),
            second_addresses: Arc::default(),
            node: None,
            host_network,
            ports: Arc::default(),
            owner: None,
            source: None,
        }
    }

    pub fn add_workload(&mut self, workload: Workload) -> WorkloadId {
        self.workloads.push(workload);
        WorkloadId(self.workloads.len() as u32 - 1)
    }

    /// Says how the workload looks names up.
    pub fn set_dns(&mut self, workload: WorkloadId, config: DnsConfig) {
        // Only what is not the default has an entry.
        if config != DnsConfig::default() {
            Arc::make_mut(&mut self.dns).insert(workload, config);
        } else if self.dns.contains_key(&workload) {
            Arc::make_mut(&mut self.dns).remove(&workload);
        }
    }

    pub fn dns_of(&self, workload: WorkloadId) -> DnsConfig {
        self.dns.get(&workload).cloned().unwrap_or_default()
    }

    pub fn add_node(&mut self, node: Node) -> NodeId {
        let id = NodeId(self.nodes.len() as u32);
        Arc::make_mut(&mut self.by_node).insert(node.name.clone(), id);
        Arc::make_mut(&mut self.nodes).push(node);
        id
    }

    /// Has the nodes of another view, as it numbers them.
    pub fn clone_nodes(&mut self, other: &Self) {
        self.nodes = other.nodes.clone();
        self.by_node = other.by_node.clone();
    }

    pub fn node_named(&self, name: &str) -> Option<NodeId> {
        self.by_node.get(name).copied()
    }

    /// The node of that name; one that nobody described exists, without labels or addresses.
    pub fn ensure_node(&mut self, name: &str) -> NodeId {
        match self.node_named(name) {
            Some(id) => id,
            None => self.add_node(Node {
                name: name.into(),
                labels: Labels::default(),
                addresses: Vec::new(),
                source: None,
            }),
        }
    }

    pub fn namespace(&self, id: NamespaceId) -> &Namespace {
        &self.namespaces[id.index()]
    }

    pub fn role(&self, id: RoleId) -> &Role {
        &self.roles[id.index()]
    }

    /// True if labels of the workload or of its namespace could not be read: it is isolated (S10.1).
    pub fn labels_are_in_doubt(&self, id: WorkloadId) -> bool {
        let role = self.role(self.workload(id).role);
        role.labels.are_in_doubt() || self.namespace(role.namespace).labels.are_in_doubt()
    }

    pub fn workload(&self, id: WorkloadId) -> &Workload {
        &self.workloads[id.index()]
    }

    pub fn policy(&self, id: PolicyId) -> &Policy {
        &self.policies[id.index()]
    }

    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.index()]
    }

    /// How many workloads there are.
    pub fn pod_count(&self) -> usize {
        self.workloads.iter().filter(|workload| !workload.is_vacant()).count()
    }

    pub fn workload_ids(&self) -> impl Iterator<Item = WorkloadId> + use<> {
        (0..self.workloads.len() as u32).map(WorkloadId)
    }

    /// `namespace/name`.
    pub fn workload_name(&self, id: WorkloadId) -> String {
        let workload = self.workload(id);
        format!("{}/{}", self.namespace(workload.namespace).name, workload.name)
    }
}
