//! The definitions of the kinds that a cluster may lack, made of Rust types: one file a kind, `parts` what they
//! have in common. What the objects mean is read elsewhere, in `cluster`; here is what an API server takes.
//!
//! Two kinds are our own. The others are other people's, in their published form: group, versions, names, scope and
//! fields are theirs. Where the published form takes what nobody can read (a protocol `TPC`, a CIDR that is none),
//! ours refuses it, so that a mistake is told of when it is made and not when it is read.

#[allow(dead_code, reason = "most types are there for their schemas alone")]
mod admin_network_policy;
#[allow(dead_code, reason = "most types are there for their schemas alone")]
mod baseline_admin_network_policy;
#[allow(dead_code, reason = "most types are there for their schemas alone")]
mod cluster_egress_firewall;
#[allow(dead_code, reason = "most types are there for their schemas alone")]
mod cluster_network_policy;
#[allow(dead_code, reason = "most types are there for their schemas alone")]
mod dns_name_resolver;
#[allow(dead_code, reason = "most types are there for their schemas alone")]
mod egress_firewall;
#[allow(dead_code, reason = "most types are there for their schemas alone")]
mod node_addresses;
#[allow(dead_code, reason = "most types are there for their schemas alone")]
mod parts;
mod schema;

pub use cluster_egress_firewall::{
    ClusterEgressFirewallStatus, ConcreteRule, OffendingService, Port as ConcretePort, Protocol, Verb,
};
pub use egress_firewall::EgressFirewallStatus;
pub use parts::{Condition, ConditionStatus, PolicyStatus};

use namewall_cluster::kinds::{Kind, WATCHED};
use serde_json::{Value, json};

/// A kind's definition.
#[derive(Clone, Debug)]
pub struct Definition {
    pub kind: &'static str,
    /// Whether the kind is ours, and no other system brings it along.
    pub is_own: bool,
    /// The CustomResourceDefinition.
    pub object: Value,
}

/// The kinds that are defined here, our own first.
pub const KINDS: [&str; 7] = [
    "ClusterEgressFirewall",
    "NodeAddresses",
    "EgressFirewall",
    "DNSNameResolver",
    "AdminNetworkPolicy",
    "BaselineAdminNetworkPolicy",
    "ClusterNetworkPolicy",
];

/// All of them, in that order.
pub fn definitions() -> Vec<Definition> {
    let forms = [
        cluster_egress_firewall::form(),
        node_addresses::form(),
        egress_firewall::form(),
        dns_name_resolver::form(),
        admin_network_policy::form(),
        baseline_admin_network_policy::form(),
        cluster_network_policy::form(),
    ];
    forms.into_iter().map(Form::define).collect()
}

/// Definitions as YAML documents.
pub fn to_yaml(definitions: &[Definition]) -> Result<String, serde_saphyr::ser::Error> {
    let objects: Vec<&Value> = definitions.iter().map(|definition| &definition.object).collect();
    serde_saphyr::to_string_multiple(&objects)
}

/// Definitions as one list, which is what kubectl prints and takes.
pub fn to_list(definitions: &[Definition]) -> Value {
    let items: Vec<&Value> = definitions.iter().map(|definition| &definition.object).collect();
    json!({"apiVersion": "v1", "kind": "List", "items": items})
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Scope {
    Cluster,
    Namespaced,
}

/// What a kind's file says of it. Group, versions and plural are those that are watched.
struct Form {
    kind: &'static str,
    scope: Scope,
    short_names: &'static [&'static str],
    /// Name, type and path of what `kubectl get` shows.
    columns: &'static [(&'static str, &'static str, &'static str)],
    /// Where the kind was approved, which the API server asks of groups under `k8s.io`.
    approved: Option<&'static str>,
    /// The object without what all objects have.
    schema: Value,
}

impl Form {
    fn define(self) -> Definition {
        let versions: Vec<&Kind> = WATCHED.iter().filter(|kind| kind.name == self.kind).collect();
        // Every kind with a form is watched: a test holds this.
        let (group, plural) = versions.first().map_or(("", ""), |kind| (kind.group, kind.plural));
        let is_own = group == "namewall.dev";
        let singular = self.kind.to_lowercase();
        let mut names = json!({
            "kind": self.kind,
            "listKind": format!("{}List", self.kind),
            "plural": plural,
            "singular": singular,
        });
        if !self.short_names.is_empty() {
            names["shortNames"] = json!(self.short_names);
        }
        if is_own {
            names["categories"] = json!(["namewall"]);
        }
        let mut metadata = json!({"name": format!("{plural}.{group}")});
        if let Some(approved) = self.approved {
            metadata["annotations"] = json!({"api-approved.kubernetes.io": approved});
        }
        let columns: Vec<Value> = self
            .columns
            .iter()
            .map(|(name, kind, path)| json!({"name": name, "type": kind, "jsonPath": path}))
            .collect();
        // The first version is the one that is read if there are several, so it is the one that is stored.
        let version = |(at, kind): (usize, &&Kind)| {
            let mut version = json!({
                "name": kind.version,
                "served": true,
                "storage": at == 0,
                "schema": {"openAPIV3Schema": self.schema},
                "subresources": {"status": {}},
            });
            if !columns.is_empty() {
                version["additionalPrinterColumns"] = json!(columns);
            }
            version
        };
        let versions: Vec<Value> = versions.iter().enumerate().map(version).collect();
        let scope = if self.scope == Scope::Cluster { "Cluster" } else { "Namespaced" };
        let object = json!({
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": metadata,
            "spec": {"group": group, "names": names, "scope": scope, "versions": versions},
        });
        Definition { kind: self.kind, is_own, object }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_kind_that_a_cluster_may_lack_is_defined_as_it_is_watched() {
        let defined: BTreeSet<(String, String, String)> = definitions()
            .iter()
            .flat_map(|definition| {
                let spec = definition.object["spec"].clone();
                let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
                let (group, plural) = (text(&spec["group"]), text(&spec["names"]["plural"]));
                let versions = spec["versions"].as_array().cloned().unwrap_or_default();
                let names: Vec<String> = versions.iter().map(|version| text(&version["name"])).collect();
                names.into_iter().map(move |name| (group.clone(), name, plural.clone()))
            })
            .collect();
        let watched: BTreeSet<(String, String, String)> = WATCHED
            .iter()
            .filter(|kind| !kind.is_builtin)
            .map(|kind| (kind.group.to_owned(), kind.version.to_owned(), kind.plural.to_owned()))
            .collect();
        assert_eq!(defined, watched);
        assert!(definitions().iter().map(|definition| definition.kind).eq(KINDS));
    }

    #[test]
    fn what_is_printed_as_yaml_is_what_is_printed_as_json() {
        let definitions = definitions();
        let yaml = to_yaml(&definitions).expect("it can be written");
        let (documents, findings) = namewall_cluster::Document::read_all(&"crds.yaml".into(), &yaml);
        assert!(findings.is_empty(), "{findings:?}");
        let json = to_list(&definitions).to_string();
        let (expected, findings) = namewall_cluster::Document::read_all(&"crds.json".into(), &json);
        assert!(findings.is_empty(), "{findings:?}");
        assert_eq!(documents.len(), definitions.len());
        for (document, expected) in documents.iter().zip(&expected) {
            assert_eq!(plain(&document.node), plain(&expected.node));
        }
    }

    /// Without the places, in which the two differ.
    fn plain(node: &namewall_cluster::yaml::Node) -> Value {
        use namewall_cluster::yaml::Value as Tree;
        match node.plain() {
            Tree::Null | Tree::Written(_) => Value::Null,
            Tree::Bool(value) => json!(value),
            Tree::Int(value) => json!(value),
            Tree::Float(value) => json!(value),
            Tree::String(text) => json!(&**text),
            Tree::Seq(items) => items.iter().map(plain).collect(),
            Tree::Map(entries) => entries.iter().map(|entry| (entry.key.to_string(), plain(&entry.node))).collect(),
        }
    }
}
