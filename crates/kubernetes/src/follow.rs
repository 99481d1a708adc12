//! One kind of a cluster: found, listed and watched from there, for as long as
//! the cluster has it.
//!
//! A server that does not answer, or a watch that is silent for longer than its
//! bookmarks are apart, is given up and asked anew: a connection may lead
//! nowhere without anybody being told. A history that the server no longer has
//! is made up for by a list.

use crate::answers::{GONE, NOT_FOUND};
use crate::publish::some_of;
use crate::watch::{Shared, enforces};
use futures_util::StreamExt;
use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject, ListParams, WatchEvent, WatchParams};
use namewall_cluster::kinds::{Kind, VersionedKind};
use namewall_cluster::{Key, Listing};
use std::collections::BTreeMap;
use std::fmt::{self, Display};
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::time::{sleep, timeout};

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

/// Whom to ask.
#[derive(Clone)]
pub(crate) struct Server {
    pub(crate) client: Client,
    pub(crate) patience: Patience,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    /// How long an answer may take to begin, and a part of a list to come.
    pub(crate) answer: Duration,
    /// How long a watch may say nothing. The server says at least once a minute how far it is.
    pub(crate) silence: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self { answer: Duration::from_secs(30), silence: Duration::from_secs(90) }
    }
}

#[derive(Debug)]
enum Failure {
    Server(kube::Error),
    Silence(Duration),
    /// A list that does not say what it is a list of: there is nothing to watch from.
    Versionless,
}

impl From<kube::Error> for Failure {
    fn from(error: kube::Error) -> Self {
        Self::Server(error)
    }
}

impl Failure {
    fn code(&self) -> Option<u16> {
        match self {
            Self::Server(kube::Error::Api(status)) => Some(status.code),
            _ => None,
        }
    }
}

impl Display for Failure {
    /// What a reader can do something about, without how it came to us.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Server(kube::Error::Api(status)) => f.write_str(&status.message),
            Self::Server(error) => f.write_str(&last_cause(error)),
            Self::Silence(time) => write!(f, "the API server does not answer within {} s", time.as_secs()),
            Self::Versionless => f.write_str("the API server lists objects without their version"),
        }
    }
}

/// The last cause says most: that a connection was refused, say.
fn last_cause(error: &dyn std::error::Error) -> String {
    let mut last = error;
    while let Some(cause) = last.source() {
        last = cause;
    }
    last.to_string()
}

/// Follows a kind, in the first of its versions that the cluster serves, for as long as the cluster serves it.
pub(crate) async fn follow(server: Server, kind: &'static Kind, shared: Arc<Shared>) {
    let mut looks = 0;
    loop {
        let found = find(&server, kind).await;
        looks = if matches!(found, Ok(None)) { looks + 1 } else { 0 };
        match found {
            Ok(Some(versioned)) => follow_version(&server, versioned, &shared).await,
            // A server that has only just started may not know its definitions yet. To believe it would let go of
            // policies that are in force.
            Ok(None) if looks < BELIEVED && shared.has_any(kind) => {
                shared.say(kind, format!("the API server says that there is no {} any more", kind.name));
            }
            // Objects go with their definition.
            Ok(None) => shared.change(kind, |known| known.lose(kind)),
            Err(error) => shared.say(kind, error.to_string()),
        }
        sleep(LOOK_FOR_KINDS).await;
    }
}

async fn find(server: &Server, kind: &'static Kind) -> Result<Option<VersionedKind>, Failure> {
    if is_builtin(kind) {
        return Ok(Some(kind.preferred()));
    }
    for versioned in kind.served() {
        let api_version = versioned.api_version();
        match in_time(server.patience.answer, server.client.list_api_group_resources(&api_version)).await {
            Ok(list) if list.resources.iter().any(|one| one.name == kind.plural) => return Ok(Some(versioned)),
            Ok(_) => {}
            Err(error) if error.code() == Some(NOT_FOUND) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

/// True for kinds of Kubernetes itself: every cluster serves them. Others come and go with their definitions.
fn is_builtin(kind: &Kind) -> bool {
    kind.definition.is_none()
}

async fn in_time<T>(time: Duration, asked: impl Future<Output = Result<T, kube::Error>>) -> Result<T, Failure> {
    timeout(time, asked).await.map_err(|_| Failure::Silence(time))?.map_err(Failure::Server)
}

/// Ends when the cluster no longer has the kind.
async fn follow_version(server: &Server, versioned: VersionedKind, shared: &Shared) {
    let kind = versioned.kind;
    let api: Api<DynamicObject> = Api::all_with(server.client.clone(), &resource_of(versioned));
    // Up to where we have heard all.
    let mut version: Option<String> = None;
    let mut pause = AGAIN;
    let following = Following { api: &api, versioned, patience: server.patience, shared };
    loop {
        let began = Instant::now();
        let done = match &mut version {
            None => following.list().await.map(|listed| version = Some(listed)),
            Some(version) => {
                let done = following.watch(version).await;
                // Only a server that is in trouble ends a watch as soon as it has begun.
                if done.is_ok() && began.elapsed() < SHORT {
                    sleep(AGAIN).await;
                }
                done
            }
        };
        match done {
            Ok(()) => pause = AGAIN,
            // What happened since is no longer told: it is seen in a list.
            Err(error) if error.code() == Some(GONE) => {
                version = None;
                sleep(AGAIN).await;
            }
            Err(error) => {
                shared.say(kind, error.to_string());
                if !is_builtin(kind) && error.code() == Some(NOT_FOUND) {
                    return;
                }
                sleep(pause / 2 + some_of(pause / 2)).await;
                pause = (pause * 2).min(AGAIN_AT_LATEST);
            }
        }
    }
}

/// A kind on its way into what is known.
struct Following<'f> {
    api: &'f Api<DynamicObject>,
    versioned: VersionedKind,
    patience: Patience,
    shared: &'f Shared,
}

impl Following<'_> {
    /// Takes all objects there are; gives the version they are of.
    async fn list(&self) -> Result<String, Failure> {
        let mut listing = Listing::new(self.versioned);
        let mut enforced = BTreeMap::new();
        let mut part = ListParams::default().limit(PART);
        loop {
            let list = in_time(self.patience.answer, self.api.list(&part)).await?;
            for object in list.items {
                let object = whole(object);
                enforced.extend(enforces(self.versioned.kind, &object));
                listing.push(&object);
            }
            match list.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => part.continue_token = Some(token),
                None => {
                    let version = list.metadata.resource_version.ok_or(Failure::Versionless)?;
                    self.shared.change(self.versioned.kind, |known| known.replace(listing, enforced));
                    return Ok(version);
                }
            }
        }
    }

    /// Takes what changes after a version, until the server ends it or is silent for too long.
    async fn watch(&self, version: &mut String) -> Result<(), Failure> {
        let Self { versioned, patience, shared, .. } = *self;
        let kind = versioned.kind;
        let events = in_time(patience.answer, self.api.watch(&WatchParams::default(), version)).await?;
        let mut events = pin!(events);
        shared.hear(kind);
        while let Ok(Some(event)) = timeout(patience.silence, events.next()).await {
            let (is_there, object) = match event? {
                WatchEvent::Added(object) | WatchEvent::Modified(object) => (true, object),
                WatchEvent::Deleted(object) => (false, object),
                WatchEvent::Bookmark(bookmark) => {
                    shared.hear(kind);
                    *version = bookmark.metadata.resource_version;
                    continue;
                }
                WatchEvent::Error(status) => return Err(kube::Error::Api(status).into()),
            };
            let seen = object.metadata.resource_version.clone();
            let object = whole(object);
            shared.change(kind, |known| match is_there {
                true => known.apply(versioned, &object),
                false => known.remove(kind, &Key::of(&object)),
            });
            if let Some(seen) = seen {
                *version = seen;
            }
        }
        Ok(())
    }
}

fn whole(object: DynamicObject) -> serde_json::Value {
    serde_json::to_value(object).unwrap_or_default()
}

pub(crate) fn resource_of(versioned: VersionedKind) -> ApiResource {
    ApiResource {
        group: versioned.kind.group.to_owned(),
        version: versioned.version.to_owned(),
        api_version: versioned.api_version(),
        kind: versioned.kind.name.to_owned(),
        plural: versioned.kind.plural.to_owned(),
    }
}
