//! Tells users what became of ClusterEgressFirewalls (S7.5): in their status, and in Events where a Service points at
//! what one of them denies.

use crate::api::{ApiError, Applied, NOT_FOUND, Verb};
use crate::environment::Environment;
use crate::events::Said;
use crate::report::{AT_ONCE, MANAGER};
use futures_util::future::ready;
use futures_util::{StreamExt, stream};
use k8s_openapi::api::core::v1::ObjectReference;
use namewall_cluster::Key;
use namewall_cluster::kinds::CLUSTER_EGRESS_FIREWALL;
use namewall_cluster::kinds::cluster_egress_firewall::{ClusterEgressFirewallStatus, OffendingService};
use serde_json::{Value, json};

/// What became of a firewall, besides whether it counts.
#[derive(Clone, PartialEq, Debug)]
pub struct FirewallReport {
    /// Of which it is said.
    pub generation: i64,
    /// Without conditions.
    pub status: ClusterEgressFirewallStatus,
    pub conditions: Vec<Truth>,
}

/// What a condition says, but for the time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Truth {
    /// What may be true, in CamelCase.
    pub kind: &'static str,
    pub is_true: bool,
    /// Why, in one CamelCase word.
    pub reason: &'static str,
    /// Why, for people.
    pub message: String,
}

/// What a condition needs to know of its object.
pub(crate) struct Since<'a> {
    pub(crate) generation: i64,
    pub(crate) now: &'a str,
    /// The status until now.
    pub(crate) before: &'a Value,
}

impl Truth {
    /// The condition. Its time stays as it is while its status does.
    pub(crate) fn condition(&self, since: &Since<'_>) -> Value {
        let status = if self.is_true { "True" } else { "False" };
        let known = since.before["conditions"].as_array().into_iter().flatten();
        let same = known.filter(|one| one["type"] == self.kind && one["status"] == status);
        let transition = same.filter_map(|one| one["lastTransitionTime"].as_str()).next().unwrap_or(since.now);
        json!({
            "type": self.kind,
            "status": status,
            "reason": self.reason,
            "message": self.message,
            "observedGeneration": since.generation,
            "lastTransitionTime": transition,
        })
    }
}

/// What an Event says of a firewall.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FirewallNotice {
    pub is_warning: bool,
    pub reason: &'static str,
    pub message: String,
}

impl Environment {
    /// Writes what became of firewalls; gives those of which it could not be written, and why.
    pub async fn write_firewalls(&self, reports: Vec<(Key, FirewallReport)>) -> Vec<(Key, ApiError)> {
        let write = |(key, report): (Key, FirewallReport)| async move {
            let done = self.write_firewall(&key, &report).await;
            done.err().map(|error| (key, error))
        };
        stream::iter(reports).map(write).buffer_unordered(AT_ONCE).filter_map(ready).collect().await
    }

    async fn write_firewall(&self, key: &Key, report: &FirewallReport) -> Result<(), ApiError> {
        let Some(object) = self.firewall(key).await? else { return Ok(()) };
        let (now, before) = (self.wall().to_string(), &object["status"]);
        let since = Since { generation: report.generation, now: &now, before };
        let conditions: Vec<Value> = report.conditions.iter().map(|truth| truth.condition(&since)).collect();
        let mut status = json!(report.status);
        status["conditions"] = json!(conditions);
        // Also if there are none any more.
        status["offendingServices"] = json!(report.status.offending_services);
        let remote = self.at(CLUSTER_EGRESS_FIREWALL.preferred(), key);
        let (version, kind) = (remote.resource.api_version(), remote.resource.kind);
        let object = json!({"apiVersion": version, "kind": kind, "status": status});
        // Another manager than who says that they count, or each would take back what the other says.
        let applied = Applied { manager: "namewall-controller-firewalls", object };
        match remote.ask(Verb::ApplyStatus(applied)).await {
            Err(error) if error.code() == Some(NOT_FOUND) => Ok(()),
            other => other.map(drop),
        }
    }

    /// The Services that its status names now: users were told of these.
    pub async fn offending_services(&self, key: &Key) -> Result<Vec<OffendingService>, ApiError> {
        let mut object = self.firewall(key).await?.unwrap_or_default();
        // A list that cannot be read was written by somebody else, and nobody was told of it.
        Ok(serde_json::from_value(object["status"]["offendingServices"].take()).unwrap_or_default())
    }

    /// Says it in an Event of the firewall. The same is said once only of each generation.
    pub async fn tell_of_firewall(&self, key: &Key, notice: FirewallNotice) -> Result<(), ApiError> {
        let Some(object) = self.firewall(key).await? else { return Ok(()) };
        let versioned = CLUSTER_EGRESS_FIREWALL.preferred();
        let of = ObjectReference {
            api_version: Some(versioned.api_version()),
            kind: Some(versioned.kind.name.to_owned()),
            name: Some(key.name.to_string()),
            uid: object["metadata"]["uid"].as_str().map(str::to_owned),
            ..ObjectReference::default()
        };
        let FirewallNotice { is_warning, reason, message } = notice;
        let version = object["metadata"]["generation"].as_i64().unwrap_or_default();
        self.say(Said { of, is_warning, reason, message, by: MANAGER, version }).await
    }

    /// None if it is gone.
    async fn firewall(&self, key: &Key) -> Result<Option<Value>, ApiError> {
        match self.at(CLUSTER_EGRESS_FIREWALL.preferred(), key).get().await {
            Ok(object) => Ok(Some(object)),
            Err(error) if error.code() == Some(NOT_FOUND) => Ok(None),
            Err(error) => Err(error),
        }
    }
}
