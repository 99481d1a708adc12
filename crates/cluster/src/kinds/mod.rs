//! The table of kinds, and one file for each kind: its API types, its schema and how it is read.
//!
//! Everything that depends on which kinds there are is made from [`KINDS`]: what manifests may contain, what is
//! watched, what the store keeps, the CustomResourceDefinitions, the roles in `deploy`, and the tables in the
//! documentation. A new kind is a file here and a row below; the tests of the table, and `crates/namewall/tests/kinds`
//! for what lies outside of the code, say what is missing.
//!
//! `formats` and `meta` are what several kinds are made of, `peers` and `tiers` are what the kinds of the network
//! policy API have in common.

pub mod admin_network_policy;
pub mod baseline_admin_network_policy;
pub mod cluster_egress_firewall;
pub mod cluster_network_policy;
pub mod dns_name_resolver;
pub mod egress_firewall;
mod endpoint_slice;
mod endpoints;
mod formats;
mod kind;
mod lookup;
pub mod meta;
mod namespace;
mod network_policy;
mod network_policy_v1beta1;
mod node;
mod node_addresses;
mod peers;
mod pod;
mod schema;
mod service;
mod template;
#[cfg(test)]
mod tests;
mod tiers;

pub(crate) use dns_name_resolver::read_resolver;
pub(crate) use endpoint_slice::read_slice;
pub(crate) use endpoints::read_endpoints;
pub use formats::Verb;
pub use kind::{
    Column, Component, Definition, Kind, NameField, ObjectPart, ObjectScope, PolicyReader, Report, VersionedKind,
    Within, WriteAccess,
};
pub(crate) use kind::{Reader, Template};
pub(crate) use lookup::{Recognised, api_versions, is_cluster_wide, is_of, is_policy, meant_policy, recognise};
pub use lookup::{named, policies, watched};
pub(crate) use namespace::ACL_LOGGING_ANNOTATION;
pub(crate) use namespace::read_namespace;
pub(crate) use network_policy_v1beta1::ISOLATION_ANNOTATION;
pub(crate) use node::{ReadNode, read_node};
pub use node_addresses::MAX_NODE_ADDRESSES;
pub(crate) use node_addresses::read_addresses;
pub(crate) use pod::{MIRROR_ANNOTATION, NETWORK_STATUS, read_pod};
pub(crate) use service::{PROXY, read_service};
pub(crate) use template::read_template;

use Component::{Agent, Controller, Plugin};
use namewall_policy::model::WorkloadKind;

/// The components that answer what policies allow.
const EVERYONE: &[Component] = &[Agent, Controller, Plugin];

const POLICY_API: &str = "policy.networking.k8s.io";

const DOMAIN_NAMES: Option<NameField> = Some(NameField { key: "domainNames", always_resolved: false });

const fn template(workload: WorkloadKind) -> Reader {
    Reader::Template(Template { workload, path: &["spec", "template"] })
}

/// Declares the rows, and the list of all of them.
macro_rules! table {
    ($($(#[$doc:meta])* $name:ident = $row:expr;)*) => {
        $($(#[$doc])* pub static $name: Kind = $row;)*

        /// All kinds. Policies are lowered in this order.
        pub static KINDS: &[&Kind] = &[$(&$name),*];
    };
}

table! {
    NAMESPACE = Kind {
        short_names: &["ns"],
        scope: ObjectScope::Cluster,
        kept: &["spec.networkPolicy"],
        watched_by: EVERYONE,
        ..Kind::new("", "Namespace", "namespaces", Reader::Namespace)
    };

    NODE = Kind {
        short_names: &["no"],
        scope: ObjectScope::Cluster,
        kept: &["spec.podCIDR", "spec.podCIDRs", "status.addresses"],
        watched_by: EVERYONE,
        ..Kind::new("", "Node", "nodes", Reader::Node)
    };

    /// The addresses of a node that its agent publishes, and what the node enforces (S7.2, S7.5).
    NODE_ADDRESSES = Kind {
        short_names: &["nodeaddr"],
        versions: &["v1alpha1"],
        scope: ObjectScope::Cluster,
        kept: &["addresses"],
        watched_by: EVERYONE,
        access: &[
            WriteAccess {
                by: Agent,
                part: ObjectPart::Object,
                within: Within::Cluster,
                verbs: &["create", "patch"],
                purpose: "The addresses of its node.",
            },
            WriteAccess {
                by: Agent,
                part: ObjectPart::Status,
                within: Within::Cluster,
                verbs: &["patch"],
                purpose: "What its node enforces.",
            },
        ],
        definition: Some(&node_addresses::DEFINITION),
        ..Kind::new("namewall.dev", "NodeAddresses", "nodeaddresses", Reader::NodeAddresses)
    };

    POD = Kind {
        short_names: &["po"],
        kept: pod::KEPT,
        watched_by: EVERYONE,
        ..Kind::new("", "Pod", "pods", Reader::Pod)
    };

    DEPLOYMENT = Kind {
        short_names: &["deploy"],
        former_groups: &["extensions"],
        any_version: true,
        ..Kind::new("apps", "Deployment", "deployments", template(WorkloadKind::Deployment))
    };

    REPLICA_SET = Kind {
        short_names: &["rs"],
        former_groups: &["extensions"],
        any_version: true,
        ..Kind::new("apps", "ReplicaSet", "replicasets", template(WorkloadKind::ReplicaSet))
    };

    STATEFUL_SET = Kind {
        short_names: &["sts"],
        former_groups: &["extensions"],
        any_version: true,
        ..Kind::new("apps", "StatefulSet", "statefulsets", template(WorkloadKind::StatefulSet))
    };

    DAEMON_SET = Kind {
        short_names: &["ds"],
        former_groups: &["extensions"],
        any_version: true,
        ..Kind::new("apps", "DaemonSet", "daemonsets", template(WorkloadKind::DaemonSet))
    };

    JOB = Kind {
        any_version: true,
        ..Kind::new("batch", "Job", "jobs", template(WorkloadKind::Job))
    };

    CRON_JOB = Kind {
        short_names: &["cj"],
        any_version: true,
        ..Kind::new(
            "batch",
            "CronJob",
            "cronjobs",
            Reader::Template(Template {
                workload: WorkloadKind::CronJob,
                path: &["spec", "jobTemplate", "spec", "template"],
            }),
        )
    };

    REPLICATION_CONTROLLER = Kind {
        short_names: &["rc"],
        ..Kind::new("", "ReplicationController", "replicationcontrollers", template(WorkloadKind::ReplicationController))
    };

    SERVICE = Kind {
        short_names: &["svc"],
        kept: service::KEPT,
        watched_by: EVERYONE,
        ..Kind::new("", "Service", "services", Reader::Service)
    };

    ENDPOINT_SLICE = Kind {
        any_version: true,
        kept: &["addressType", "endpoints.addresses", "endpoints.conditions.ready", "ports"],
        watched_by: EVERYONE,
        ..Kind::new("discovery.k8s.io", "EndpointSlice", "endpointslices", Reader::EndpointSlice)
    };

    /// Read from manifests only: a cluster has EndpointSlices.
    ENDPOINTS = Kind {
        short_names: &["ep"],
        ..Kind::new("", "Endpoints", "endpoints", Reader::Endpoints)
    };

    CLUSTER_EGRESS_FIREWALL = Kind {
        short_names: &["cef"],
        versions: &["v1alpha1"],
        scope: ObjectScope::Cluster,
        watched_by: EVERYONE,
        definition: Some(&cluster_egress_firewall::DEFINITION),
        ..Kind::new(
            "namewall.dev",
            "ClusterEgressFirewall",
            "clusteregressfirewalls",
            Reader::Policy(PolicyReader {
                lower: cluster_egress_firewall::lower,
                names: DOMAIN_NAMES,
                report: Report::Condition,
            }),
        )
    };

    EGRESS_FIREWALL = Kind {
        watched_by: EVERYONE,
        definition: Some(&egress_firewall::DEFINITION),
        ..Kind::new(
            "k8s.ovn.org",
            "EgressFirewall",
            "egressfirewalls",
            Reader::Policy(PolicyReader {
                lower: egress_firewall::lower,
                // Other systems that enforce EgressFirewalls learn names from DNSNameResolvers only.
                names: Some(NameField { key: "dnsName", always_resolved: true }),
                report: Report::Text,
            }),
        )
    };

    ADMIN_NETWORK_POLICY = Kind {
        short_names: &["anp"],
        versions: &["v1alpha1"],
        scope: ObjectScope::Cluster,
        watched_by: EVERYONE,
        definition: Some(&admin_network_policy::DEFINITION),
        ..Kind::new(
            POLICY_API,
            "AdminNetworkPolicy",
            "adminnetworkpolicies",
            Reader::Policy(PolicyReader {
                lower: admin_network_policy::lower,
                names: DOMAIN_NAMES,
                report: Report::Condition,
            }),
        )
    };

    CLUSTER_NETWORK_POLICY = Kind {
        short_names: &["cnp"],
        // The two have the same shape.
        versions: &["v1beta1", "v1alpha2"],
        scope: ObjectScope::Cluster,
        watched_by: EVERYONE,
        definition: Some(&cluster_network_policy::DEFINITION),
        ..Kind::new(
            POLICY_API,
            "ClusterNetworkPolicy",
            "clusternetworkpolicies",
            Reader::Policy(PolicyReader {
                lower: cluster_network_policy::lower,
                names: DOMAIN_NAMES,
                report: Report::Condition,
            }),
        )
    };

    BASELINE_ADMIN_NETWORK_POLICY = Kind {
        short_names: &["banp"],
        versions: &["v1alpha1"],
        scope: ObjectScope::Cluster,
        watched_by: EVERYONE,
        definition: Some(&baseline_admin_network_policy::DEFINITION),
        ..Kind::new(
            POLICY_API,
            "BaselineAdminNetworkPolicy",
            "baselineadminnetworkpolicies",
            Reader::Policy(PolicyReader {
                lower: baseline_admin_network_policy::lower,
                names: None,
                report: Report::Condition,
            }),
        )
    };

    NETWORK_POLICY = Kind {
        short_names: &["netpol"],
        watched_by: EVERYONE,
        ..Kind::new(
            "networking.k8s.io",
            "NetworkPolicy",
            "networkpolicies",
            Reader::Policy(PolicyReader { lower: network_policy::lower, names: None, report: Report::EventOnly }),
        )
    };

    /// Read from manifests only: no API server serves it any more. Its semantics are its own (S3).
    NETWORK_POLICY_V1BETA1 = Kind {
        short_names: &["netpol"],
        versions: &["v1beta1"],
        ..Kind::new(
            "extensions",
            "NetworkPolicy",
            "networkpolicies",
            Reader::Policy(PolicyReader { lower: network_policy_v1beta1::lower, names: None, report: Report::EventOnly }),
        )
    };

    /// Nodes share what they have learned by these objects (S8).
    DNS_NAME_RESOLVER = Kind {
        versions: &["v1alpha1"],
        kept: &["spec", "status"],
        watched_by: EVERYONE,
        access: &[
            WriteAccess {
                by: Agent,
                part: ObjectPart::Status,
                within: Within::Cluster,
                verbs: &["update"],
                purpose: "What pods of its node have looked up, for the other nodes.",
            },
            WriteAccess {
                by: Controller,
                part: ObjectPart::Status,
                within: Within::Cluster,
                verbs: &["update"],
                purpose: "What it has looked up, also in objects that somebody else created.",
            },
            WriteAccess {
                by: Controller,
                part: ObjectPart::Object,
                within: Within::OwnNamespace,
                verbs: &["create", "delete"],
                purpose: "An object for every name that it keeps resolved.",
            },
        ],
        definition: Some(&dns_name_resolver::DEFINITION),
        ..Kind::new("network.openshift.io", "DNSNameResolver", "dnsnameresolvers", Reader::DnsNameResolver)
    };
}
