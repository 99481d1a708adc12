//! Objects that namewall makes and takes away.

use crate::api::{ApiError, CONFLICT, NOT_FOUND, Resource, Verb};
use crate::environment::Environment;
use crate::names::MANAGED_BY;
use futures_util::future::ready;
use futures_util::{StreamExt, stream};
use namewall_cluster::Key;
use namewall_cluster::kinds::DNS_NAME_RESOLVER;
use namewall_cluster::resolver::object_name;
use serde_json::{Value, json};

/// How many names with the same hash are tried. More than two do not happen by chance.
const MOST_COLLISIONS: u32 = 8;

/// Requests that are under way at the same time.
const AT_ONCE: usize = 16;

impl Environment {
    /// Makes the DNSNameResolvers for names (S8.2), which are lower case and have their last dot. One that is
    /// there already is as good. Gives those that could not be made, and why.
    pub async fn create_names(&self, namespace: &str, names: Vec<String>) -> Vec<(String, ApiError)> {
        let create = |name: String| async move {
            let made = self.create_name(namespace, &name).await;
            made.err().map(|error| (name, error))
        };
        stream::iter(names).map(create).buffer_unordered(AT_ONCE).filter_map(ready).collect().await
    }

    /// Makes further parts of wildcards, each with its object's name and the wildcard. Gives those that could not be
    /// made, and why.
    pub async fn create_parts(&self, namespace: &str, parts: Vec<(String, String)>) -> Vec<(String, ApiError)> {
        let create = |(called, wildcard): (String, String)| async move {
            let remote = self.at(
                Resource::from(DNS_NAME_RESOLVER.preferred()),
                &Key { namespace: namespace.into(), name: called.as_str().into() },
            );
            let made = remote.ask(Verb::Create(new_object(namespace, &called, &wildcard))).await;
            let failed = made.err().filter(|error| error.code() != Some(CONFLICT));
            failed.map(|error| (wildcard, error))
        };
        stream::iter(parts).map(create).buffer_unordered(AT_ONCE).filter_map(ready).collect().await
    }

    pub async fn delete_names(&self, keys: Vec<Key>) -> Vec<(Key, ApiError)> {
        let delete = |key: Key| async move {
            match self.at(DNS_NAME_RESOLVER.preferred(), &key).ask(Verb::Delete).await {
                Ok(_) => None,
                Err(error) if error.code() == Some(NOT_FOUND) => None,
                Err(error) => Some((key, error)),
            }
        };
        stream::iter(keys).map(delete).buffer_unordered(AT_ONCE).filter_map(ready).collect().await
    }

    async fn create_name(&self, namespace: &str, name: &str) -> Result<(), ApiError> {
        let resource = Resource::from(DNS_NAME_RESOLVER.preferred());
        for collisions in 0..MOST_COLLISIONS {
            let called = object_name(name, collisions);
            let remote = self.at(resource, &Key { namespace: namespace.into(), name: called.as_str().into() });
            match remote.ask(Verb::Create(new_object(namespace, &called, name))).await {
                Ok(_) => return Ok(()),
                Err(error) if error.code() == Some(CONFLICT) => {
                    if remote.get().await?["spec"]["name"] == *name {
                        return Ok(());
                    }
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

fn new_object(namespace: &str, called: &str, name: &str) -> Value {
    let resource = Resource::from(DNS_NAME_RESOLVER.preferred());
    json!({
        "apiVersion": resource.api_version(),
        "kind": resource.kind,
        "metadata": {"name": called, "namespace": namespace, "labels": {MANAGED_BY.0: MANAGED_BY.1}},
        "spec": {"name": name},
    })
}
