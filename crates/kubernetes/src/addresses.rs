//! An agent publishes every address of its node (S7.2): a policy that speaks of
//! nodes means all of them, and Node objects name only some.

use crate::api::{ApiError, Applied, Verb};
use crate::environment::{Environment, cluster_wide};
use crate::names::MANAGED_BY;
use namewall_cluster::kinds::{NODE, NODE_ADDRESSES};
use serde_json::{Value, json};
use std::net::IpAddr;

const MANAGER: &str = "namewall-agent";

/// Which firewalls a node enforces: a digest of all of them, each as it was last made and changed.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Enforces {
    pub cluster_egress_firewalls: String,
    pub egress_firewalls: String,
}

impl Enforces {
    pub(crate) fn of(object: &Value) -> Self {
        let text = |field: &str| object["status"][field].as_str().unwrap_or_default().to_owned();
        Self { cluster_egress_firewalls: text("enforces"), egress_firewalls: text("enforcesEgressFirewalls") }
    }
}

impl Environment {
    /// Says that a node has these addresses, and enforces these firewalls. The object goes with its Node.
    pub async fn publish_node(&self, node: &str, addresses: &[IpAddr], enforces: &Enforces) -> Result<(), ApiError> {
        let texts: Vec<String> = addresses.iter().map(IpAddr::to_string).collect();
        let owner = self.at(NODE.preferred(), &cluster_wide(node)).get().await?;
        let remote = self.at(NODE_ADDRESSES.preferred(), &cluster_wide(node));
        let (version, kind) = (remote.resource.api_version(), remote.resource.kind);
        let object = json!({
            "apiVersion": version,
            "kind": kind,
            "metadata": {
                "name": node,
                "labels": {MANAGED_BY.0: MANAGED_BY.1},
                "ownerReferences": [{
                    "apiVersion": "v1", "kind": "Node", "name": node, "uid": owner["metadata"]["uid"],
                }],
            },
            "addresses": texts,
        });
        remote.ask(Verb::Apply(Applied { manager: MANAGER, object })).await?;
        let Enforces { cluster_egress_firewalls, egress_firewalls } = enforces;
        let status = json!({"enforces": cluster_egress_firewalls, "enforcesEgressFirewalls": egress_firewalls});
        let object = json!({"apiVersion": version, "kind": kind, "status": status});
        remote.ask(Verb::ApplyStatus(Applied { manager: MANAGER, object })).await.map(drop)
    }
}
