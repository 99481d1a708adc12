//! What a row of the table says about its kind.

use crate::lower::Scope;
use namewall_policy::model::{Policy, WorkloadKind};
use serde_json::Value as Json;
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};

/// A kind of object. The table has the only value of this type for each kind.
pub struct Kind {
    /// As users write it, like `NetworkPolicy`.
    pub name: &'static str,
    pub plural: &'static str,
    pub short_names: &'static [&'static str],
    /// Empty for the core group.
    pub group: &'static str,
    /// Groups that served the kind in the past. Manifests may still name them.
    pub former_groups: &'static [&'static str],
    /// The versions that are read. Watches use the first one that the cluster serves; our definition stores objects
    /// in the first.
    pub versions: &'static [&'static str],
    /// True if any other version is read too: the fields that are looked at have never changed.
    pub any_version: bool,
    pub scope: ObjectScope,
    pub(crate) reader: Reader,
    /// The fields that the store keeps besides the metadata. A path leads through lists; everything below it is kept.
    pub(crate) kept: &'static [&'static str],
    /// The components that list and watch the kind.
    pub watched_by: &'static [Component],
    /// What components may write, except the status of policies: [`Kind::write_access`] has both.
    pub(super) access: &'static [WriteAccess],
    /// The CustomResourceDefinition that `namewall crds` prints. None for kinds that are part of Kubernetes.
    pub definition: Option<&'static Definition>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ObjectScope {
    Cluster,
    Namespace,
}

/// A program that talks to the API server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Component {
    Agent,
    Controller,
    /// `kubectl namewall` and `namewall doctor`. They have the rights of the user who runs them.
    Plugin,
}

/// How an object becomes a part of the Snapshot.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Reader {
    Namespace,
    Node,
    NodeAddresses,
    Pod,
    Template(Template),
    Service,
    EndpointSlice,
    Endpoints,
    Policy(PolicyReader),
    DnsNameResolver,
}

/// A workload that describes pods which need not exist yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Template {
    pub(crate) workload: WorkloadKind,
    /// Where the description of the pods is.
    pub(crate) path: &'static [&'static str],
}

/// How a policy is read, and how the controller treats it. To lose a policy would widen access, so these kinds are
/// never passed over silently.
#[derive(Clone, Copy, Debug)]
pub struct PolicyReader {
    pub(crate) lower: fn(&mut Scope<'_>) -> Option<Policy>,
    /// The field with DNS names. None for kinds without rules about names.
    pub names: Option<NameField>,
    pub report: Report,
}

/// A field of the spec, at any depth, that holds DNS names.
#[derive(Clone, Copy, Debug)]
pub struct NameField {
    pub key: &'static str,
    /// True if the controller always resolves these names. False if only `--all-names` asks for it.
    pub always_resolved: bool,
}

/// How the controller reports whether a policy is accepted. An Event says what is wrong in any case.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Report {
    /// The kind has no status.
    EventOnly,
    /// `status.status` and `status.messages`.
    Text,
    /// The condition `Accepted`.
    Condition,
}

/// A right to write objects of a kind.
#[derive(Clone, Copy, Debug)]
pub struct WriteAccess {
    pub by: Component,
    pub part: ObjectPart,
    pub within: Within,
    pub verbs: &'static [&'static str],
    pub purpose: &'static str,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ObjectPart {
    Object,
    Status,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Within {
    Cluster,
    /// The namespace that the component runs in.
    OwnNamespace,
}

const REPORT: WriteAccess = WriteAccess {
    by: Component::Controller,
    part: ObjectPart::Status,
    within: Within::Cluster,
    verbs: &["patch"],
    purpose: "Whether a policy is accepted, and what became of it.",
};

/// What a CustomResourceDefinition has besides names, versions and scope.
#[derive(Clone, Copy, Debug)]
pub struct Definition {
    /// Who publishes the kind, for the documentation.
    pub publisher: &'static str,
    pub columns: &'static [Column],
    /// Where the kind was approved. The API server asks for it in groups under `k8s.io`.
    pub approved: Option<&'static str>,
    /// The schema of an object, made from the types that it is read into.
    pub schema: fn() -> Json,
}

/// A column of `kubectl get`.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    pub name: &'static str,
    pub format: &'static str,
    pub path: &'static str,
}

impl Column {
    pub(super) const AGE: Self = Self::new("Age", "date", ".metadata.creationTimestamp");

    pub(super) const fn new(name: &'static str, format: &'static str, path: &'static str) -> Self {
        Self { name, format, path }
    }
}

impl Kind {
    /// A namespaced kind of version `v1` that nobody watches. Rows override what differs.
    pub(super) const fn new(group: &'static str, name: &'static str, plural: &'static str, reader: Reader) -> Self {
        Self {
            name,
            plural,
            short_names: &[],
            group,
            former_groups: &[],
            versions: &["v1"],
            any_version: false,
            scope: ObjectScope::Namespace,
            reader,
            // All of it: in a policy, a field that is not known may be a restriction.
            kept: &["spec"],
            watched_by: &[],
            access: &[],
            definition: None,
        }
    }

    pub fn policy(&self) -> Option<&PolicyReader> {
        match &self.reader {
            Reader::Policy(policy) => Some(policy),
            _ => None,
        }
    }

    pub fn is_policy(&self) -> bool {
        self.policy().is_some()
    }

    /// True for pods, and for the workloads whose templates stand for pods.
    pub fn is_workload(&self) -> bool {
        matches!(self.reader, Reader::Pod | Reader::Template(_))
    }

    /// True for namewall's own kinds: no other project brings them along.
    pub fn is_own(&self) -> bool {
        self.group == OWN_GROUP
    }

    /// Everything that components may write.
    pub fn write_access(&self) -> impl Iterator<Item = &WriteAccess> {
        let report = self.policy().filter(|policy| policy.report != Report::EventOnly).map(|_| &REPORT);
        report.into_iter().chain(self.access)
    }

    /// The versions that are read, in the order in which watches prefer them.
    pub fn served(&'static self) -> impl Iterator<Item = VersionedKind> {
        self.versions.iter().map(move |version| VersionedKind { kind: self, version })
    }

    /// The version that watches prefer.
    pub fn preferred(&'static self) -> VersionedKind {
        VersionedKind { kind: self, version: self.versions[0] }
    }
}

const OWN_GROUP: &str = "namewall.dev";

// The table has one value for each kind, so that its address is its identity.
impl PartialEq for Kind {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Eq for Kind {}

impl Hash for Kind {
    fn hash<H: Hasher>(&self, state: &mut H) {
        std::ptr::from_ref(self).hash(state);
    }
}

impl PartialOrd for Kind {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Kind {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.name, self.group).cmp(&(other.name, other.group))
    }
}

impl fmt::Debug for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.plural, self.group)
    }
}

/// A kind in one of its versions, as an API server serves it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct VersionedKind {
    pub kind: &'static Kind,
    pub version: &'static str,
}

impl VersionedKind {
    /// As objects write it: `networking.k8s.io/v1`, or `v1` in the core group.
    pub fn api_version(&self) -> String {
        match self.kind.group {
            "" => self.version.to_owned(),
            group => format!("{group}/{}", self.version),
        }
    }
}
