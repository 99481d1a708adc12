//! One kind of a cluster: found, listed and watched from there, for as long as
//! the cluster has it.
//!
//! A server that does not answer, or a watch that is silent for longer than its
//! bookmarks are apart, is given up and asked anew: a connection may lead
//! nowhere without anybody being told. A history that the server no longer has
//! is made up for by a list.

use crate::api::{ApiError, GONE, NOT_FOUND, Part, Resource, WatchEvent};
use crate::environment::Environment;
use futures_util::StreamExt;
use namewall_cluster::kinds::{Kind, VersionedKind};
use namewall_runtime::{TimedOut, in_time};
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;

/// How often a kind that a cluster does not have is looked for.
const LOOK_FOR_KINDS: Duration = Duration::from_secs(5);
/// So often in a row a kind must be missing before objects that are known are let go.
const BELIEVED: u32 = 4;
/// Objects in a part of a list.
const PART: u32 = 500;
/// How soon what failed is tried again, and how late at the latest.
const AGAIN: Duration = Duration::from_millis(500);
const AGAIN_AT_LATEST: Duration = Duration::from_secs(5);
/// A watch that ends sooner is not started anew at once.
const SHORT: Duration = Duration::from_secs(1);

#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Server(#[from] ApiError),
    #[error("the API server does not answer within {} s", .0.as_secs())]
    Silence(Duration),
    /// There is nothing to watch from.
    #[error("the API server lists objects without their version")]
    Versionless,
}

impl Failure {
    fn code(&self) -> Option<u16> {
        match self {
            Self::Server(error) => error.code(),
            _ => None,
        }
    }
}

/// Where the objects of kinds go.
pub(crate) trait Sink: Send + Sync {
    /// All objects of a kind, as they come in parts.
    type Listing: Send;

    fn begin_list(&self, versioned: VersionedKind) -> Self::Listing;

    fn push(&self, listing: &mut Self::Listing, object: &Value);

    /// The list is complete: objects of the kind that are not in it are gone.
    fn replace(&self, kind: &'static Kind, listing: Self::Listing);

    /// An object is new, or has changed.
    fn apply(&self, versioned: VersionedKind, object: &Value);

    fn remove(&self, kind: &'static Kind, object: &Value);

    /// The cluster does not have the kind, nor any object of it.
    fn lose(&self, kind: &'static Kind);

    /// Something is in the way of a kind.
    fn say(&self, kind: &'static Kind, what: String);

    /// Nothing is in the way of a kind, whether or not anything of it has changed.
    fn hear(&self, kind: &'static Kind);

    fn has_any(&self, kind: &'static Kind) -> bool;
}

/// Follows a kind, in the first of its versions that the cluster serves, for as long as the cluster serves it.
pub(crate) async fn follow<S: Sink>(environment: Environment, kind: &'static Kind, sink: Arc<S>) {
    let mut looks = 0;
    loop {
        let found = find(&environment, kind).await;
        looks = if matches!(found, Ok(None)) { looks + 1 } else { 0 };
        match found {
            Ok(Some(versioned)) => follow_version(&environment, versioned, &*sink).await,
            // A server that has only just started may not know its definitions yet. To believe it would let go of
            // policies that are in force.
            Ok(None) if looks < BELIEVED && sink.has_any(kind) => {
                sink.say(kind, format!("the API server says that there is no {} any more", kind.name));
            }
            // Objects go with their definition.
            Ok(None) => sink.lose(kind),
            Err(error) => sink.say(kind, error.to_string()),
        }
        environment.tasks.sleep(LOOK_FOR_KINDS).await;
    }
}

async fn find(environment: &Environment, kind: &'static Kind) -> Result<Option<VersionedKind>, Failure> {
    if is_builtin(kind) {
        return Ok(Some(kind.preferred()));
    }
    for versioned in kind.served() {
        if answered(environment, environment.api.serves(versioned.into())).await? {
            return Ok(Some(versioned));
        }
    }
    Ok(None)
}

/// True for kinds of Kubernetes itself: every cluster serves them. Others come and go with their definitions.
fn is_builtin(kind: &Kind) -> bool {
    kind.definition.is_none()
}

/// An answer, if it begins in time.
async fn answered<T>(
    environment: &Environment,
    answer: impl Future<Output = Result<T, ApiError>>,
) -> Result<T, Failure> {
    let time = environment.patience.answer;
    Ok(in_time(&*environment.tasks, time, answer).await.map_err(|TimedOut| Failure::Silence(time))??)
}

/// Ends when the cluster no longer has the kind.
async fn follow_version<S: Sink>(environment: &Environment, versioned: VersionedKind, sink: &S) {
    let Environment { clock, tasks, random, .. } = environment;
    let kind = versioned.kind;
    // Up to where we have heard all.
    let mut version: Option<String> = None;
    let mut pause = AGAIN;
    let following = Following { environment, versioned, sink };
    loop {
        let began = clock.now();
        let done = match &mut version {
            None => following.list().await.map(|listed| version = Some(listed)),
            Some(version) => {
                let done = following.watch(version).await;
                // Only a server that is in trouble ends a watch as soon as it has begun.
                if done.is_ok() && clock.now().since(began) < SHORT {
                    tasks.sleep(AGAIN).await;
                }
                done
            }
        };
        match done {
            Ok(()) => pause = AGAIN,
            // What happened since is no longer told: it is seen in a list.
            Err(error) if error.code() == Some(GONE) => {
                version = None;
                tasks.sleep(AGAIN).await;
            }
            Err(error) => {
                sink.say(kind, error.to_string());
                if !is_builtin(kind) && error.code() == Some(NOT_FOUND) {
                    return;
                }
                tasks.sleep(pause / 2 + random.part_of(pause / 2)).await;
                pause = (pause * 2).min(AGAIN_AT_LATEST);
            }
        }
    }
}

/// A kind on its way into what is known.
struct Following<'f, S> {
    environment: &'f Environment,
    versioned: VersionedKind,
    sink: &'f S,
}

impl<S: Sink> Following<'_, S> {
    /// Takes all objects there are; gives the version they are of.
    async fn list(&self) -> Result<String, Failure> {
        let resource = Resource::from(self.versioned);
        let mut all = self.sink.begin_list(self.versioned);
        let mut part = Part { limit: PART, token: None };
        loop {
            let listed = answered(self.environment, self.environment.api.list(resource, part)).await?;
            listed.items.iter().for_each(|object| self.sink.push(&mut all, object));
            match listed.token {
                Some(token) => part = Part { limit: PART, token: Some(token) },
                None => {
                    let version = listed.version.ok_or(Failure::Versionless)?;
                    self.sink.replace(self.versioned.kind, all);
                    return Ok(version);
                }
            }
        }
    }

    /// Takes what changes after a version, until the server ends it or is silent for too long.
    async fn watch(&self, version: &mut String) -> Result<(), Failure> {
        let Self { environment, versioned, sink } = *self;
        let Environment { api, tasks, patience, .. } = environment;
        let kind = versioned.kind;
        let mut events = answered(environment, api.watch(versioned.into(), version.clone())).await?;
        sink.hear(kind);
        while let Ok(Some(event)) = in_time(&**tasks, patience.silence, events.next()).await {
            let (is_there, object) = match event? {
                WatchEvent::Applied(object) => (true, object),
                WatchEvent::Deleted(object) => (false, object),
                WatchEvent::Bookmark(seen) => {
                    sink.hear(kind);
                    *version = seen;
                    continue;
                }
            };
            match is_there {
                true => sink.apply(versioned, &object),
                false => sink.remove(kind, &object),
            }
            if let Some(seen) = object["metadata"]["resourceVersion"].as_str() {
                seen.clone_into(version);
            }
        }
        Ok(())
    }
}
