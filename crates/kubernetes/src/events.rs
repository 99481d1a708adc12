//! Events: what `kubectl describe` shows under an object, beside what the object
//! says itself.

use crate::answers::{ALREADY_THERE, NOT_FOUND};
use crate::client::Connection;
use k8s_openapi::api::core::v1::{Event, EventSource, Node, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject, PostParams};
use std::hash::{DefaultHasher, Hash, Hasher};

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

/// One Event for each thing that is said of one version of an object.
pub(crate) async fn say(client: Client, said: Said<'_>) -> Result<(), kube::Error> {
    let Said { of, is_warning, reason, mut message, by, version } = said;
    if let Some((end, _)) = message.char_indices().nth(LONGEST) {
        message.truncate(end);
    }
    let mut hasher = DefaultHasher::new();
    (&of.uid, version, &message).hash(&mut hasher);
    // Events of what has no namespace are kept in this one.
    let namespace = of.namespace.clone().unwrap_or_else(|| "default".to_owned());
    let now = Time(jiff::Timestamp::now());
    let event = Event {
        metadata: ObjectMeta {
            name: Some(format!("{}.{:016x}", of.name.as_deref().unwrap_or_default(), hasher.finish())),
            namespace: Some(namespace.clone()),
            ..ObjectMeta::default()
        },
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
    let events: Api<Event> = Api::namespaced(client, &namespace);
    match events.create(&PostParams::default(), &event).await {
        // It was said before, by us or by who spoke before us.
        Err(kube::Error::Api(status)) if status.code == ALREADY_THERE => Ok(()),
        other => other.map(drop),
    }
}

impl Connection {
    /// Says of a Node that what is meant is not in force there, and why; or, without a reason, that it is again.
    pub fn tell_of_node(&self, node: &str, error: Option<&str>) -> Result<(), kube::Error> {
        let nodes: Api<DynamicObject> = Api::all_with(self.client.clone(), &ApiResource::erase::<Node>(&()));
        self.runtime.block_on(async {
            let object = match nodes.get(node).await {
                Ok(object) => object,
                Err(kube::Error::Api(status)) if status.code == NOT_FOUND => return Ok(()),
                Err(error) => return Err(error),
            };
            let of = ObjectReference {
                api_version: Some("v1".to_owned()),
                kind: Some("Node".to_owned()),
                name: object.metadata.name,
                uid: object.metadata.uid,
                ..ObjectReference::default()
            };
            let (reason, message) = match error {
                Some(error) => ("NamewallNotEnforcing", format!("What policies say now is not in force here: {error}")),
                None => ("NamewallEnforcing", "What policies say is in force here again".to_owned()),
            };
            let version = jiff::Timestamp::now().as_second();
            say(
                self.client.clone(),
                Said { of, is_warning: error.is_some(), reason, message, by: "namewall-agent", version },
            )
            .await
        })
    }
}
