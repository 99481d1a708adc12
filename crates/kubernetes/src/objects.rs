//! Objects that namewall makes and takes away.

use crate::answers::{ALREADY_THERE, NOT_FOUND};
use crate::client::Connection;
use crate::names::MANAGED_BY;
use crate::publish::resource;
use futures_util::future::ready;
use futures_util::{StreamExt, stream};
use kube::api::{Api, DeleteParams, DynamicObject, PostParams};
use namewall_cluster::Key;
use namewall_cluster::resolver::object_name;
use serde_json::json;

/// Names whose hash is the same: more than two are none of chance.
const MOST_COLLISIONS: u32 = 8;

/// Requests that are under way at the same time.
const AT_ONCE: usize = 16;

impl Connection {
    /// Makes the DNSNameResolvers for names (S8.2), which are lower case and have their last dot. One that is
    /// there already is as good. Gives those that could not be made, and why.
    pub fn create_names(&self, namespace: &str, names: Vec<String>) -> Vec<(String, String)> {
        let api: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), namespace, &resource());
        let create = |name: String| {
            let api = api.clone();
            async move {
                let made = create_name(&api, namespace, &name).await;
                made.err().map(|error| (name, words(&error)))
            }
        };
        let all = stream::iter(names).map(create).buffer_unordered(AT_ONCE).filter_map(ready);
        self.runtime.block_on(all.collect())
    }

    pub fn delete_names(&self, keys: Vec<Key>) -> Vec<(Key, String)> {
        let delete = |key: Key| {
            let api: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), &key.namespace, &resource());
            async move {
                match api.delete(&key.name, &DeleteParams::default()).await {
                    Ok(_) => None,
                    Err(kube::Error::Api(status)) if status.code == NOT_FOUND => None,
                    Err(error) => Some((key, words(&error))),
                }
            }
        };
        let all = stream::iter(keys).map(delete).buffer_unordered(AT_ONCE).filter_map(ready);
        self.runtime.block_on(all.collect())
    }
}

async fn create_name(api: &Api<DynamicObject>, namespace: &str, name: &str) -> Result<(), kube::Error> {
    for collisions in 0..MOST_COLLISIONS {
        let called = object_name(name, collisions);
        let mut object = DynamicObject::new(&called, &resource());
        object.metadata.namespace = Some(namespace.to_owned());
        object.metadata.labels = Some([(MANAGED_BY.0.to_owned(), MANAGED_BY.1.to_owned())].into());
        object.data = json!({"spec": {"name": name}});
        match api.create(&PostParams::default(), &object).await {
            Ok(_) => return Ok(()),
            Err(kube::Error::Api(status)) if status.code == ALREADY_THERE => {
                let other = api.get(&called).await?;
                if other.data["spec"]["name"].as_str() == Some(name) {
                    return Ok(());
                }
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn words(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status.message.clone(),
        other => other.to_string(),
    }
}
