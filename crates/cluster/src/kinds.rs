//! The kinds that a cluster is watched for.

/// A kind as the API server serves it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Kind {
    /// Empty for the core's.
    pub group: &'static str,
    pub version: &'static str,
    pub name: &'static str,
    pub plural: &'static str,
    /// Whether every cluster has it. Others may come and go with their definitions.
    pub is_builtin: bool,
}

impl Kind {
    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.to_owned() } else { format!("{}/{}", self.group, self.version) }
    }
}

const fn builtin(group: &'static str, name: &'static str, plural: &'static str) -> Kind {
    Kind { group, version: "v1", name, plural, is_builtin: true }
}

const fn defined(group: &'static str, version: &'static str, name: &'static str, plural: &'static str) -> Kind {
    Kind { group, version, name, plural, is_builtin: false }
}

/// The kind that nodes share by what they have learned.
pub const DNS_NAME_RESOLVER: Kind = defined("network.openshift.io", "v1alpha1", "DNSNameResolver", "dnsnameresolvers");

/// Of several versions of a kind that are listed here, a cluster is watched for the first it has.
pub const WATCHED: [Kind; 14] = [
    builtin("", "Namespace", "namespaces"),
    builtin("", "Node", "nodes"),
    builtin("", "Pod", "pods"),
    builtin("", "Service", "services"),
    builtin("discovery.k8s.io", "EndpointSlice", "endpointslices"),
    builtin("networking.k8s.io", "NetworkPolicy", "networkpolicies"),
    defined("policy.networking.k8s.io", "v1alpha1", "AdminNetworkPolicy", "adminnetworkpolicies"),
    defined("policy.networking.k8s.io", "v1alpha1", "BaselineAdminNetworkPolicy", "baselineadminnetworkpolicies"),
    defined("policy.networking.k8s.io", "v1beta1", "ClusterNetworkPolicy", "clusternetworkpolicies"),
    defined("policy.networking.k8s.io", "v1alpha2", "ClusterNetworkPolicy", "clusternetworkpolicies"),
    defined("k8s.ovn.org", "v1", "EgressFirewall", "egressfirewalls"),
    defined("namewall.dev", "v1alpha1", "ClusterEgressFirewall", "clusteregressfirewalls"),
    defined("namewall.dev", "v1alpha1", "NodeAddresses", "nodeaddresses"),
    DNS_NAME_RESOLVER,
];
