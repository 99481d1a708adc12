//! Events: what `kubectl describe` shows under an object, beside what the object
//! says itself.

use crate::api::{ApiError, CONFLICT, NOT_FOUND, Resource, Verb};
use crate::environment::{Environment, cluster_wide};
use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use namewall_cluster::Key;
use namewall_cluster::kinds::NODE;
use serde_json::json;
use std::hash::{DefaultHasher, Hash, Hasher};

const EVENT: Resource = Resource { group: "", version: "v1", kind: "Event", plural: "events" };

/// The most an Event takes.
const LONGEST: usize = 1000;

/// What is said of an object.
pub(crate) struct Said<'a> {
    pub(crate) of: ObjectReference,
    pub(crate) is_warning: bool,
    pub(crate) reason: &'a str,
    pub(crate) message: String,
    /// By which component.
    pub(crate) by: &'a str,
    /// What tells it from the same said earlier: a version of the object, or a time.
    pub(crate) version: i64,
}

/// What an Event about a Node is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NodeTopic {
    /// Whether what policies say is in force there.
    Enforcement,
    /// Whether the node's container runtime says which pods run.
    Runtime,
    /// Whether the cluster's DNS Service is found.
    Dns,
    /// Whether somebody has changed namewall's tables inside a pod's network namespace.
    Tampering,
    /// Whether what the node learns of names can be written for other nodes.
    Sharing,
}

impl NodeTopic {
    /// The reason and the message of an Event: with an error, that something is wrong; without, that it is right again.
    fn words(self, error: Option<&str>) -> (&'static str, String) {
        match (self, error) {
            (Self::Enforcement, Some(error)) => {
                ("NamewallNotEnforcing", format!("What policies say now is not in force here: {error}"))
            }
            (Self::Enforcement, None) => ("NamewallEnforcing", "What policies say is in force here again".to_owned()),
            (Self::Runtime, Some(error)) => {
                let message = format!(
                    "The container runtime cannot be asked which pods run, so that pods from before the CNI plugin may be \
                     known by their addresses alone: {error}"
                );
                ("NamewallRuntimeSilent", message)
            }
            (Self::Runtime, None) => ("NamewallRuntimeAnswers", "The container runtime answers again".to_owned()),
            (Self::Dns, Some(error)) => ("NamewallNoDns", format!("Names may not open here: {error}")),
            (Self::Dns, None) => ("NamewallDnsFound", "The cluster's DNS Service is found".to_owned()),
            (Self::Tampering, Some(error)) => {
                let message = format!(
                    "Somebody changed namewall's tables inside a pod's network namespace: {error}. They were made right. \
                     Take NET_ADMIN from that pod"
                );
                ("NamewallTampered", message)
            }
            (Self::Sharing, Some(error)) => {
                let message = format!("Names that pods of this node look up are not shared with other nodes: {error}");
                ("NamewallNotSharing", message)
            }
            (Self::Sharing, None) => ("NamewallSharing", "Names are shared with other nodes again".to_owned()),
            (Self::Tampering, None) => {
                ("NamewallNotTampered", "Nobody has changed namewall's tables inside pods since".to_owned())
            }
        }
    }
}

impl Environment {
    /// One Event for each thing that is said of one version of an object.
    pub(crate) async fn say(&self, said: Said<'_>) -> Result<(), ApiError> {
        let Said { of, is_warning, reason, mut message, by, version } = said;
        if let Some((end, _)) = message.char_indices().nth(LONGEST) {
            message.truncate(end);
        }
        let mut hasher = DefaultHasher::new();
        (&of.uid, version, &message).hash(&mut hasher);
        let name = format!("{}.{:016x}", of.name.as_deref().unwrap_or_default(), hasher.finish());
        // Events of what has no namespace are kept in this one.
        let namespace = of.namespace.clone().unwrap_or_else(|| "default".to_owned());
        let key = Key { namespace: namespace.as_str().into(), name: name.as_str().into() };
        let now = Time(self.clock.wall());
        let event = Event {
            metadata: ObjectMeta { name: Some(name), namespace: Some(namespace), ..ObjectMeta::default() },
            involved_object: of,
            type_: Some(if is_warning { "Warning" } else { "Normal" }.to_owned()),
            reason: Some(reason.to_owned()),
            message: Some(message),
            source: Some(EventSource { component: Some(by.to_owned()), host: None }),
            count: Some(1),
            first_timestamp: Some(now.clone()),
            last_timestamp: Some(now),
            ..Event::default()
        };
        match self.at(EVENT, &key).ask(Verb::Create(json!(event))).await {
            // It was said before, by us or by who spoke before us.
            Err(error) if error.code() == Some(CONFLICT) => Ok(()),
            other => other.map(drop),
        }
    }

    /// Says of a Node what is wrong there; or, without an error, that it is right again.
    pub async fn tell_of_node(&self, node: &str, topic: NodeTopic, error: Option<&str>) -> Result<(), ApiError> {
        let object = match self.at(NODE.preferred(), &cluster_wide(node)).get().await {
            Ok(object) => object,
            Err(error) if error.code() == Some(NOT_FOUND) => return Ok(()),
            Err(error) => return Err(error),
        };
        let of = ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Node".to_owned()),
            name: Some(node.to_owned()),
            uid: object["metadata"]["uid"].as_str().map(str::to_owned),
            ..ObjectReference::default()
        };
        let (reason, message) = topic.words(error);
        let version = self.wall().as_second();
        self.say(Said { of, is_warning: error.is_some(), reason, message, by: "namewall-agent", version }).await
    }
}
