//! Tells users, in the objects they wrote, whether these count: a condition in
//! the status where a kind has one, and an Event where something is wrong.

use crate::answers::NOT_FOUND;
use crate::client::Connection;
use crate::events::{Said, say};
use crate::follow::resource_of;
use futures_util::future::ready;
use futures_util::{StreamExt, stream};
use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use namewall_cluster::Key;
use namewall_cluster::kinds::cluster_egress_firewall::ClusterEgressFirewallStatus;
use namewall_cluster::kinds::{CLUSTER_EGRESS_FIREWALL, Report, VersionedKind};
use serde_json::{Value, json};

/// Requests that are under way at the same time.
const AT_ONCE: usize = 16;
const MANAGER: &str = "namewall-controller";
const ACCEPTED: &str = "Accepted";

/// What is said of a policy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Verdict {
    pub versioned: VersionedKind,
    /// Of which it is said.
    pub generation: i64,
    /// What cannot be read, and fails closed; none if all of it counts.
    pub errors: Vec<String>,
}

impl Verdict {
    fn message(&self) -> String {
        match self.errors.is_empty() {
            true => "all of it counts".to_owned(),
            false => self.errors.join("; "),
        }
    }

    /// The status that says it. None for kinds without a status.
    fn status(&self, now: &str, before: &Value) -> Option<Value> {
        let is_good = self.errors.is_empty();
        match self.versioned.kind.policy()?.report {
            Report::EventOnly => None,
            Report::Text => {
                let words =
                    if is_good { "accepted" } else { "not accepted as a whole: what cannot be read fails closed" };
                Some(json!({"status": words, "messages": self.errors}))
            }
            Report::Condition => {
                let status = if is_good { "True" } else { "False" };
                let known = before["conditions"].as_array().into_iter().flatten();
                let same = known.filter(|one| one["type"] == ACCEPTED && one["status"] == status);
                let since = same.filter_map(|one| one["lastTransitionTime"].as_str()).next().unwrap_or(now);
                Some(json!({"conditions": [{
                    "type": ACCEPTED,
                    "status": status,
                    "reason": if is_good { "Accepted" } else { "Invalid" },
                    "message": self.message(),
                    "observedGeneration": self.generation,
                    "lastTransitionTime": since,
                }]}))
            }
        }
    }
}

impl Connection {
    /// Says what there is to say of policies; gives those of which it could not be said, and why.
    pub fn report(&self, verdicts: Vec<(Key, Verdict)>) -> Vec<(Key, String)> {
        let report = |(key, verdict): (Key, Verdict)| {
            let client = self.client.clone();
            async move {
                match report(client, &key, &verdict).await {
                    Ok(()) => None,
                    Err(error) => Some((key, error.to_string())),
                }
            }
        };
        let all = stream::iter(verdicts).map(report).buffer_unordered(AT_ONCE).filter_map(ready);
        self.runtime.block_on(all.collect())
    }
}

impl Connection {
    /// Writes what became of ClusterEgressFirewalls, besides whether they count; gives those of which it could not
    /// be written, and why.
    pub fn write_statuses(&self, statuses: Vec<(Key, ClusterEgressFirewallStatus)>) -> Vec<(Key, String)> {
        let resource = resource_of(CLUSTER_EGRESS_FIREWALL.preferred());
        let api: Api<DynamicObject> = Api::all_with(self.client.clone(), &resource);
        let write = |(key, status): (Key, ClusterEgressFirewallStatus)| {
            let (api, resource) = (api.clone(), &resource);
            async move {
                let patch = json!({"apiVersion": resource.api_version, "kind": resource.kind, "status": status});
                // Another manager than who says that they count, or each would take back what the other says.
                let apply = PatchParams::apply("namewall-controller-firewalls").force();
                match api.patch_status(&key.name, &apply, &Patch::Apply(&patch)).await {
                    Ok(_) => None,
                    Err(kube::Error::Api(status)) if status.code == NOT_FOUND => None,
                    Err(error) => Some((key, error.to_string())),
                }
            }
        };
        let all = stream::iter(statuses).map(write).buffer_unordered(AT_ONCE).filter_map(ready);
        self.runtime.block_on(all.collect())
    }
}

async fn report(client: Client, key: &Key, verdict: &Verdict) -> Result<(), kube::Error> {
    let resource = resource_of(verdict.versioned);
    let api: Api<DynamicObject> = match key.namespace.is_empty() {
        true => Api::all_with(client.clone(), &resource),
        false => Api::namespaced_with(client.clone(), &key.namespace, &resource),
    };
    let object = match api.get(&key.name).await {
        Ok(object) => object,
        Err(kube::Error::Api(status)) if status.code == NOT_FOUND => return Ok(()),
        Err(error) => return Err(error),
    };
    // It has changed since: what is said of it then is on its way.
    if object.metadata.generation.is_some_and(|generation| generation != verdict.generation) {
        return Ok(());
    }
    let now = jiff::Timestamp::from_second(jiff::Timestamp::now().as_second()).unwrap_or_default();
    let before = &object.data["status"];
    if let Some(status) = verdict.status(&now.to_string(), before)
        && !says(before, &status)
    {
        let patch = json!({"apiVersion": resource.api_version, "kind": resource.kind, "status": status});
        let apply = PatchParams::apply(MANAGER).force();
        api.patch_status(&key.name, &apply, &Patch::Apply(&patch)).await?;
    }
    if verdict.errors.is_empty() { Ok(()) } else { warn(client, &object, verdict).await }
}

/// Whether a status says that already.
fn says(before: &Value, wanted: &Value) -> bool {
    match (before, wanted) {
        (Value::Object(_), Value::Object(fields)) => fields.iter().all(|(key, value)| says(&before[key], value)),
        (Value::Array(items), Value::Array(wanted)) => {
            wanted.iter().all(|one| items.iter().any(|item| says(item, one)))
        }
        // An empty list need not be written.
        (Value::Null, Value::Array(items)) => items.is_empty(),
        _ => before == wanted,
    }
}

async fn warn(client: Client, object: &DynamicObject, verdict: &Verdict) -> Result<(), kube::Error> {
    let metadata = object.metadata.clone();
    let of = ObjectReference {
        api_version: Some(verdict.versioned.api_version()),
        kind: Some(verdict.versioned.kind.name.to_owned()),
        name: metadata.name,
        namespace: metadata.namespace,
        uid: metadata.uid,
        ..ObjectReference::default()
    };
    let message = format!("What cannot be read fails closed: {}", verdict.message());
    let version = verdict.generation;
    say(client, Said { of, is_warning: true, reason: "Invalid", message, by: MANAGER, version }).await
}
