//! An agent publishes every address of its node (S7.2): a policy that speaks of
//! nodes means all of them, and Node objects name only some.

use crate::api::{ApiError, Applied, Verb};
use crate::environment::{Environment, cluster_wide};
use crate::names::MANAGED_BY;
use namewall_cluster::kinds::{NODE, NODE_ADDRESSES};
use serde_json::json;
use std::net::IpAddr;

const MANAGER: &str = "namewall-agent";

impl Environment {
    /// Says that a node has these addresses, and enforces the ClusterEgressFirewalls with this digest. The object
    /// goes with its Node.
    pub async fn publish_node(&self, node: &str, addresses: &[IpAddr], enforces: &str) -> Result<(), ApiError> {
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
        let object = json!({"apiVersion": version, "kind": kind, "status": {"enforces": enforces}});
        remote.ask(Verb::ApplyStatus(Applied { manager: MANAGER, object })).await.map(drop)
    }
}
