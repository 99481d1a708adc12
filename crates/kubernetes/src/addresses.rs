//! An agent publishes every address of its node (S7.2): a policy that speaks of
//! nodes means all of them, and Node objects name only some.

use crate::client::Connection;
use crate::names::MANAGED_BY;
use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams};
use namewall_cluster::kinds::NODE_ADDRESSES;
use serde_json::json;
use std::net::IpAddr;

impl Connection {
    /// Says that a node has these addresses, and enforces the ClusterEgressFirewalls with this digest. The object
    /// goes with its Node.
    pub fn publish_node(&self, node: &str, (addresses, enforces): (&[IpAddr], &str)) -> Result<(), kube::Error> {
        let resource = crate::follow::resource_of(NODE_ADDRESSES.preferred());
        let api: Api<DynamicObject> = Api::all_with(self.client.clone(), &resource);
        let nodes: Api<DynamicObject> = Api::all_with(self.client.clone(), &ApiResource::erase::<Node>(&()));
        let texts: Vec<String> = addresses.iter().map(IpAddr::to_string).collect();
        self.runtime.block_on(async {
            let owner = nodes.get(node).await?;
            let object = json!({
                "apiVersion": resource.api_version,
                "kind": resource.kind,
                "metadata": {
                    "name": node,
                    "labels": {MANAGED_BY.0: MANAGED_BY.1},
                    "ownerReferences": [{
                        "apiVersion": "v1", "kind": "Node", "name": node, "uid": owner.metadata.uid,
                    }],
                },
                "addresses": texts,
            });
            let apply = PatchParams::apply("namewall-agent").force();
            api.patch(node, &apply, &Patch::Apply(&object)).await?;
            let (version, kind) = (&resource.api_version, &resource.kind);
            let status = json!({"apiVersion": version, "kind": kind, "status": {"enforces": enforces}});
            api.patch_status(node, &apply, &Patch::Apply(&status)).await.map(drop)
        })
    }
}

type Node = k8s_openapi::api::core::v1::Node;
