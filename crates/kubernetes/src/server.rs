//! The API server by kube. The only module, beside `client`, that knows it.

use crate::api::{
    Answer, ApiError, ApiServer, Applied, Listed, NOT_FOUND, Part, Request, Resource, Verb, WatchEvent, Watching,
};
use futures_util::StreamExt;
use kube::Client;
use kube::api::{DeleteParams, GetParams, ListParams, Patch, PatchParams, PostParams, WatchParams};
use kube::core::Request as Path;
use kube::core::request::Error as BuildError;
use namewall_cluster::Key;
use serde_json::Value;

/// Two clients to one server.
#[derive(Clone)]
pub(crate) struct KubeServer {
    /// For lists and watches, where nothing may be said for minutes.
    pub(crate) watching: Client,
    /// For all else: who asks waits, and a server that hangs must not keep it.
    pub(crate) client: Client,
}

impl std::fmt::Debug for KubeServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KubeServer").finish_non_exhaustive()
    }
}

impl From<kube::Error> for ApiError {
    fn from(error: kube::Error) -> Self {
        match error {
            kube::Error::Api(status) => Self::Refused { code: status.code, message: status.message },
            other => Self::Unreachable(last_cause(&other)),
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

impl ApiServer for KubeServer {
    fn ask(&self, request: Request) -> Answer<Value> {
        let client = self.client.clone();
        Box::pin(async move {
            let request = to_http(request).map_err(kube::Error::BuildRequest)?;
            Ok(client.request(request).await?)
        })
    }

    fn list(&self, resource: Resource, part: Part) -> Answer<Listed> {
        let client = self.watching.clone();
        Box::pin(async move {
            let mut params = ListParams::default().limit(part.limit);
            params.continue_token = part.token;
            let request = path(resource, "").list(&params).map_err(kube::Error::BuildRequest)?;
            let mut list: Value = client.request(request).await?;
            let text = |value: &Value| value.as_str().filter(|text| !text.is_empty()).map(str::to_owned);
            let (version, token) = (text(&list["metadata"]["resourceVersion"]), text(&list["metadata"]["continue"]));
            let items = match list["items"].take() {
                Value::Array(items) => items,
                _ => Vec::new(),
            };
            Ok(Listed { items, version, token })
        })
    }

    fn watch(&self, resource: Resource, version: String) -> Answer<Watching> {
        let client = self.watching.clone();
        Box::pin(async move {
            let request = path(resource, "").watch(&WatchParams::default(), &version);
            let events = client.request_events::<Value>(request.map_err(kube::Error::BuildRequest)?).await?;
            Ok(events.map(|event| read_event(event?)).boxed())
        })
    }

    fn serves(&self, resource: Resource) -> Answer<bool> {
        let client = self.watching.clone();
        Box::pin(async move {
            match client.list_api_group_resources(&resource.api_version()).await.map_err(ApiError::from) {
                Ok(list) => Ok(list.resources.iter().any(|one| one.name == resource.plural)),
                Err(error) if error.code() == Some(NOT_FOUND) => Ok(false),
                Err(error) => Err(error),
            }
        })
    }
}

fn read_event(event: kube::api::WatchEvent<Value>) -> Result<WatchEvent, ApiError> {
    Ok(match event {
        kube::api::WatchEvent::Added(object) | kube::api::WatchEvent::Modified(object) => WatchEvent::Applied(object),
        kube::api::WatchEvent::Deleted(object) => WatchEvent::Deleted(object),
        kube::api::WatchEvent::Bookmark(bookmark) => WatchEvent::Bookmark(bookmark.metadata.resource_version),
        kube::api::WatchEvent::Error(status) => return Err(kube::Error::Api(status).into()),
    })
}

/// Where the objects of a namespace are; of all, if it is empty.
fn path(resource: Resource, namespace: &str) -> Path {
    let Resource { group, version, plural, .. } = resource;
    let root = if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{group}/{version}") };
    Path::new(match namespace {
        "" => format!("{root}/{plural}"),
        _ => format!("{root}/namespaces/{namespace}/{plural}"),
    })
}

fn to_http(request: Request) -> Result<http::Request<Vec<u8>>, BuildError> {
    let Request { resource, key: Key { namespace, name }, verb } = request;
    let path = path(resource, &namespace);
    let bytes = |object: &Value| serde_json::to_vec(object).map_err(BuildError::SerializeBody);
    let apply = |manager: &str| PatchParams::apply(manager).force();
    let post = PostParams::default();
    match &verb {
        Verb::Get => path.get(&name, &GetParams::default()),
        Verb::Create(object) => path.create(&post, bytes(object)?),
        Verb::Replace(object) => path.replace(&name, &post, bytes(object)?),
        Verb::ReplaceStatus(object) => path.replace_subresource("status", &name, &post, bytes(object)?),
        Verb::Apply(Applied { manager, object }) => path.patch(&name, &apply(manager), &Patch::Apply(object)),
        Verb::ApplyStatus(Applied { manager, object }) => {
            path.patch_subresource("status", &name, &apply(manager), &Patch::Apply(object))
        }
        Verb::Delete => path.delete(&name, &DeleteParams::default()),
    }
}
