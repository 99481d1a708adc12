//! A control plane, and a client that says what it thinks of an object.

use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use namewall_cluster::kinds::{ObjectScope, VersionedKind};
use namewall_cluster::{Settings, Store};
use namewall_kubernetes::crds;
use namewall_policy::Severity;
use namewall_testbed::ControlPlane;
use serde_json::{Value, json};
use tokio::runtime::Runtime;

pub(crate) struct Server {
    pub(crate) plane: ControlPlane,
    runtime: Runtime,
    client: Client,
}

/// What becomes of an object that is applied.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stay {
    Kept,
    Tried,
}

impl Server {
    pub(crate) fn start() -> Self {
        let plane = ControlPlane::start().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let client = runtime.block_on(async {
            let kubeconfig = Kubeconfig::read_from(plane.kubeconfig()).unwrap();
            let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
            Client::try_from(config).unwrap()
        });
        Self { plane, runtime, client }
    }

    fn api(&self, versioned: VersionedKind, object: &Value) -> Api<DynamicObject> {
        let resource = ApiResource {
            group: versioned.kind.group.to_owned(),
            version: versioned.version.to_owned(),
            api_version: versioned.api_version(),
            kind: versioned.kind.name.to_owned(),
            plural: versioned.kind.plural.to_owned(),
        };
        match object["metadata"]["namespace"].as_str() {
            Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, &resource),
            None => Api::all_with(self.client.clone(), &resource),
        }
    }

    /// The object as the server has it then, or what it says against it.
    pub(crate) fn apply(&self, versioned: VersionedKind, object: &Value, stay: Stay) -> Result<Value, String> {
        let api = self.api(versioned, object);
        let name = object["metadata"]["name"].as_str().unwrap();
        let mut params = PatchParams::apply("test").force().validation_strict();
        params.dry_run = stay == Stay::Tried;
        let applied = self.runtime.block_on(api.patch(name, &params, &Patch::Apply(object)));
        told(applied)
    }

    pub(crate) fn apply_status(&self, versioned: VersionedKind, object: &Value) -> Result<Value, String> {
        let api = self.api(versioned, object);
        let name = object["metadata"]["name"].as_str().unwrap();
        let params = PatchParams::apply("test-status").force().validation_strict();
        let applied = self.runtime.block_on(api.patch_status(name, &params, &Patch::Apply(object)));
        told(applied)
    }
}

fn told(applied: Result<DynamicObject, kube::Error>) -> Result<Value, String> {
    match applied {
        Ok(object) => Ok(serde_json::to_value(object).unwrap()),
        Err(kube::Error::Api(status)) => Err(status.message.clone()),
        Err(error) => panic!("the server cannot be asked: {error}"),
    }
}

/// The versions of a kind.
pub(crate) fn versions(kind: &str) -> Vec<VersionedKind> {
    let kinds = crds::kinds().into_iter().filter(|one| one.name == kind);
    let versions: Vec<VersionedKind> = kinds.flat_map(|kind| kind.served()).collect();
    assert!(!versions.is_empty(), "{kind} is not defined");
    versions
}

/// An object of which all but the metadata is written as YAML.
pub(crate) fn object(versioned: VersionedKind, namespace: &str, name: &str, body: &str) -> Value {
    let mut object: Value = serde_saphyr::from_str(body).unwrap_or_else(|error| panic!("{body}: {error}"));
    object["apiVersion"] = json!(versioned.api_version());
    object["kind"] = json!(versioned.kind.name);
    object["metadata"] = json!({"name": name});
    if versioned.kind.scope == ObjectScope::Namespace {
        object["metadata"]["namespace"] = json!(namespace);
    }
    object
}

/// What is wrong with an object for those who read it.
pub(crate) fn errors(versioned: VersionedKind, object: &Value) -> Vec<String> {
    let mut store = Store::default();
    store.apply(versioned, object);
    let read = store.read(&Settings::default());
    let errors = read.findings.iter().filter(|one| one.severity == Severity::Error);
    errors.map(|one| format!("{}: {}", one.path, one.message)).collect()
}
