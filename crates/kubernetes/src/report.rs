//! Tells users, in the objects they wrote, whether these count: a condition in
//! the status where a kind has one, and an Event where something is wrong.

use crate::api::{ApiError, Applied, NOT_FOUND, Verb};
use crate::environment::Environment;
use crate::events::Said;
use crate::firewall_report::{Since, Truth};
use futures_util::future::ready;
use futures_util::{StreamExt, stream};
use k8s_openapi::api::core::v1::ObjectReference;
use namewall_cluster::Key;
use namewall_cluster::kinds::{Report, VersionedKind};
use serde_json::{Value, json};
use std::sync::Arc;

/// Requests that are under way at the same time.
pub(crate) const AT_ONCE: usize = 16;
pub(crate) const MANAGER: &str = "namewall-controller";
const ACCEPTED: &str = "Accepted";

/// What is said of a policy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Verdict {
    pub versioned: VersionedKind,
    /// Of which it is said.
    pub generation: i64,
    /// What cannot be read, and fails closed; none if all of it counts.
    pub errors: Vec<String>,
    /// What nodes say of it, for kinds whose status is a text.
    pub nodes: Option<Arc<NodesReport>>,
}

/// What nodes say of an EgressFirewall, in the words of OVN-Kubernetes.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct NodesReport {
    /// Empty until all of them enforce it.
    pub status: &'static str,
    /// One of each node that enforces it.
    pub messages: Vec<String>,
}

/// What OVN-Kubernetes writes for a firewall that it cannot apply.
const NOT_APPLIED: &str = "EgressFirewall Rules not correctly applied";

impl Verdict {
    fn message(&self) -> String {
        match self.errors.is_empty() {
            true => "all of it counts".to_owned(),
            false => self.errors.join("; "),
        }
    }

    /// The Event that says what is wrong with an object.
    fn warning(&self, object: &Value) -> Said<'static> {
        let text = |name: &str| object["metadata"][name].as_str().map(str::to_owned);
        let of = ObjectReference {
            api_version: Some(self.versioned.api_version()),
            kind: Some(self.versioned.kind.name.to_owned()),
            name: text("name"),
            namespace: text("namespace"),
            uid: text("uid"),
            ..ObjectReference::default()
        };
        let message = format!("What cannot be read fails closed: {}", self.message());
        Said { of, is_warning: true, reason: "Invalid", message, by: MANAGER, version: self.generation }
    }

    /// The status that says it. None for kinds without a status.
    fn status(&self, now: &str, before: &Value) -> Option<Value> {
        let is_good = self.errors.is_empty();
        match self.versioned.kind.policy()?.report {
            Report::EventOnly => None,
            Report::Text if !is_good => {
                let message = |error: &String| format!("{NOT_APPLIED}: what cannot be read fails closed: {error}");
                let messages: Vec<String> = self.errors.iter().map(message).collect();
                Some(json!({"status": NOT_APPLIED, "messages": messages}))
            }
            Report::Text => {
                let NodesReport { status, messages } = self.nodes.as_deref()?;
                Some(json!({"status": status, "messages": messages}))
            }
            Report::Condition => {
                let accepted = Truth {
                    kind: ACCEPTED,
                    is_true: is_good,
                    reason: if is_good { "Accepted" } else { "Invalid" },
                    message: self.message(),
                };
                let since = Since { generation: self.generation, now, before };
                Some(json!({"conditions": [accepted.condition(&since)]}))
            }
        }
    }
}

impl Environment {
    /// Says what there is to say of policies; gives those of which it could not be said, and why.
    pub async fn report(&self, verdicts: Vec<(Key, Verdict)>) -> Vec<(Key, ApiError)> {
        let report = |(key, verdict): (Key, Verdict)| async move {
            let done = self.report_one(&key, &verdict).await;
            done.err().map(|error| (key, error))
        };
        stream::iter(verdicts).map(report).buffer_unordered(AT_ONCE).filter_map(ready).collect().await
    }

    async fn report_one(&self, key: &Key, verdict: &Verdict) -> Result<(), ApiError> {
        let remote = self.at(verdict.versioned, key);
        let object = match remote.get().await {
            Ok(object) => object,
            Err(error) if error.code() == Some(NOT_FOUND) => return Ok(()),
            Err(error) => return Err(error),
        };
        // It has changed since: what is said of it then is on its way.
        if object["metadata"]["generation"].as_i64().is_some_and(|generation| generation != verdict.generation) {
            return Ok(());
        }
        let before = &object["status"];
        if let Some(status) = verdict.status(&self.wall().to_string(), before)
            && !says(before, &status)
        {
            let (version, kind) = (remote.resource.api_version(), remote.resource.kind);
            let object = json!({"apiVersion": version, "kind": kind, "status": status});
            remote.ask(Verb::ApplyStatus(Applied { manager: MANAGER, object })).await?;
        }
        if verdict.errors.is_empty() { Ok(()) } else { self.say(verdict.warning(&object)).await }
    }
}

/// Whether a status says that already.
fn says(before: &Value, wanted: &Value) -> bool {
    match (before, wanted) {
        (Value::Object(_), Value::Object(fields)) => fields.iter().all(|(key, value)| says(&before[key], value)),
        (Value::Array(items), Value::Array(wanted)) => {
            // Others may have conditions there. Texts are all ours.
            let is_ours = items.len() == wanted.len() || !items.iter().any(Value::is_string);
            is_ours && wanted.iter().all(|one| items.iter().any(|item| says(item, one)))
        }
        // An empty list need not be written.
        (Value::Null, Value::Array(items)) => items.is_empty(),
        _ => before == wanted,
    }
}
