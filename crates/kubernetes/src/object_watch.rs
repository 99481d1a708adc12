//! Objects of a cluster as they are, for callers that keep other things of them than a [`Watch`](crate::Watch) does.

use crate::client::Connection;
use crate::environment::Environment;
use crate::follow::{Sink, follow};
use futures_util::future::{AbortHandle, abortable};
use namewall_cluster::Key;
use namewall_cluster::kinds::{Kind, VersionedKind};
use serde_json::Value;
use std::fmt::Debug;
use std::sync::Arc;

/// Takes objects. A list of a kind comes before all else of the kind. Several threads may call it at once.
pub trait ObjectSink: Debug + Send + Sync + 'static {
    /// What is kept of an object.
    type Item: Send;

    /// Reads an object. Returns None if nothing is to be kept of it.
    fn read(&self, kind: &'static Kind, object: &Value) -> Option<Self::Item>;

    /// These are all objects of a kind.
    fn replace(&self, kind: &'static Kind, items: Vec<(Key, Self::Item)>);

    /// An object is new, has changed, or is gone.
    fn set(&self, kind: &'static Kind, key: Key, item: Option<Self::Item>);

    /// The API server cannot be asked about a kind. What is known of it stays.
    fn trouble(&self, kind: &'static Kind, what: &str);
}

/// Watches kinds of Kubernetes itself until it is dropped.
#[derive(Debug)]
pub struct ObjectWatch {
    /// Keeps the runtime alive.
    _environment: Environment,
    tasks: Vec<AbortHandle>,
}

impl Drop for ObjectWatch {
    fn drop(&mut self) {
        self.tasks.iter().for_each(AbortHandle::abort);
    }
}

impl ObjectWatch {
    pub fn start<S: ObjectSink>(
        connection: &Connection,
        kinds: impl IntoIterator<Item = &'static Kind>,
        sink: &Arc<S>,
    ) -> Self {
        Self::start_in(connection.environment(), kinds, sink)
    }

    /// Watches in an environment of any sort.
    pub fn start_in<S: ObjectSink>(
        environment: &Environment,
        kinds: impl IntoIterator<Item = &'static Kind>,
        sink: &Arc<S>,
    ) -> Self {
        let follow = |kind| {
            let (task, handle) = abortable(follow(environment.for_task(), kind, Arc::new(Objects(sink.clone()))));
            environment.tasks.spawn(Box::pin(async move { _ = task.await }));
            handle
        };
        let tasks = kinds.into_iter().map(follow).collect();
        Self { _environment: environment.clone(), tasks }
    }
}

/// The objects of a kind, as they come in parts.
struct ListedObjects<I> {
    kind: &'static Kind,
    items: Vec<(Key, I)>,
}

/// An [`ObjectSink`] as the [`Sink`] of a watch.
struct Objects<S>(Arc<S>);

impl<S: ObjectSink> Sink for Objects<S> {
    type Listing = ListedObjects<S::Item>;

    fn begin_list(&self, versioned: VersionedKind) -> Self::Listing {
        ListedObjects { kind: versioned.kind, items: Vec::new() }
    }

    fn push(&self, listing: &mut Self::Listing, object: &Value) {
        listing.items.extend(self.0.read(listing.kind, object).map(|item| (Key::of(object), item)));
    }

    fn replace(&self, kind: &'static Kind, listing: Self::Listing) {
        self.0.replace(kind, listing.items);
    }

    fn apply(&self, versioned: VersionedKind, object: &Value) {
        self.0.set(versioned.kind, Key::of(object), self.0.read(versioned.kind, object));
    }

    fn remove(&self, kind: &'static Kind, object: &Value) {
        self.0.set(kind, Key::of(object), None);
    }

    fn lose(&self, kind: &'static Kind) {
        self.0.replace(kind, Vec::new());
    }

    fn say(&self, kind: &'static Kind, what: String) {
        self.0.trouble(kind, &what);
    }

    fn hear(&self, _: &'static Kind) {}

    // Kinds of Kubernetes itself do not go.
    fn has_any(&self, _: &'static Kind) -> bool {
        true
    }
}
