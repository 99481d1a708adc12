//! The seam to the API server: what namewall asks of it, and how it refuses.
//! `server` implements it with kube; `testing` has one in memory.
//!
//! Objects are JSON, as the server has them: whoever reads one knows its kind.

use futures_util::stream::BoxStream;
use namewall_cluster::Key;
use namewall_cluster::kinds::VersionedKind;
use namewall_runtime::BoxFuture;
use serde_json::Value;
use std::fmt::Debug;

/// A kind of objects in one version, as the API server serves it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Resource {
    /// Empty for the core group.
    pub group: &'static str,
    pub version: &'static str,
    pub kind: &'static str,
    pub plural: &'static str,
}

impl From<VersionedKind> for Resource {
    fn from(versioned: VersionedKind) -> Self {
        let VersionedKind { kind, version } = versioned;
        Self { group: kind.group, version, kind: kind.name, plural: kind.plural }
    }
}

impl Resource {
    /// As objects write it: `networking.k8s.io/v1`, or `v1` in the core group.
    pub fn api_version(&self) -> String {
        match self.group {
            "" => self.version.to_owned(),
            group => format!("{group}/{}", self.version),
        }
    }
}

/// A request about one object.
#[derive(Clone, PartialEq, Debug)]
pub struct Request {
    pub resource: Resource,
    /// An object without a namespace has an empty one.
    pub key: Key,
    pub verb: Verb,
}

#[derive(Clone, PartialEq, Debug)]
pub enum Verb {
    Get,
    /// Refused with [`CONFLICT`] if there is one of that name.
    Create(Value),
    /// Refused with [`CONFLICT`] if the object has another `resourceVersion` meanwhile. Its status stays.
    Replace(Value),
    /// The same for the status; all else stays.
    ReplaceStatus(Value),
    /// Sets fields, and takes them from other managers.
    Apply(Applied),
    ApplyStatus(Applied),
    Delete,
}

/// Fields and who sets them.
#[derive(Clone, PartialEq, Debug)]
pub struct Applied {
    pub manager: &'static str,
    pub object: Value,
}

/// Which part of a list is asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Part {
    pub limit: u32,
    /// From the part before; none for the first.
    pub token: Option<String>,
}

/// A part of a list.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct Listed {
    pub items: Vec<Value>,
    /// From where the objects can be watched.
    pub version: Option<String>,
    /// For the next part, if there is one.
    pub token: Option<String>,
}

/// What a watch says.
#[derive(Clone, PartialEq, Debug)]
pub enum WatchEvent {
    /// An object as it is now.
    Applied(Value),
    Deleted(Value),
    /// All up to this version has been said.
    Bookmark(String),
}

pub type Watching = BoxStream<'static, Result<WatchEvent, ApiError>>;

/// The object is not there, or the kind is not served.
pub const NOT_FOUND: u16 = 404;
/// The object exists already, or has changed meanwhile.
pub const CONFLICT: u16 = 409;
/// The history that was asked for is no longer known.
pub const GONE: u16 = 410;
/// The request cannot be read, is too large, or breaks the schema: it will be refused again.
const PERMANENT: [u16; 3] = [400, 413, 422];

#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ApiError {
    /// The server's answer.
    #[error("{message}")]
    Refused { code: u16, message: String },
    /// There was no answer. The request may have had its effect.
    #[error("{0}")]
    Unreachable(String),
}

impl ApiError {
    pub fn code(&self) -> Option<u16> {
        match self {
            Self::Refused { code, .. } => Some(*code),
            Self::Unreachable(_) => None,
        }
    }

    /// Whether the same request would be refused again.
    pub fn is_permanent(&self) -> bool {
        self.code().is_some_and(|code| PERMANENT.contains(&code))
    }
}

pub type Answer<T> = BoxFuture<Result<T, ApiError>>;

pub trait ApiServer: Debug + Send + Sync {
    /// Reads or changes one object. Returns it as it is then; of one that is deleted whatever the server says.
    fn ask(&self, request: Request) -> Answer<Value>;

    /// Lists the objects of all namespaces.
    fn list(&self, resource: Resource, part: Part) -> Answer<Listed>;

    /// Says what changes after a version, in the order it does.
    fn watch(&self, resource: Resource, version: String) -> Answer<Watching>;

    /// Whether the cluster has the kind in this version.
    fn serves(&self, resource: Resource) -> Answer<bool>;
}
