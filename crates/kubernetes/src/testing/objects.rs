//! The objects of an API server in memory: versions, conflicts, statuses and the
//! history that watches are told from. Pure.
//!
//! `Apply` sets the fields it has; that a manager which no longer sets a field
//! loses it is not simulated.

use crate::api::{ApiError, Applied, CONFLICT, Listed, NOT_FOUND, Request, Resource, Verb, WatchEvent};
use namewall_cluster::Key;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, HashMap};

/// The object is not one that the server takes.
const INVALID: u16 = 422;

#[derive(Debug, Default)]
pub(super) struct Objects {
    all: BTreeMap<ObjectPlace, Value>,
    /// By group and plural: a watch looks at its kind alone, however much has happened to others.
    history: HashMap<(&'static str, &'static str), Vec<Change>>,
    revision: u64,
    /// What happened up to here can no longer be watched.
    pub(super) forgotten: u64,
}

/// Objects are the same in every version of their kind.
type ObjectPlace = (&'static str, &'static str, Key);

#[derive(Debug)]
struct Change {
    revision: u64,
    event: WatchEvent,
}

fn place(resource: Resource, key: &Key) -> ObjectPlace {
    (resource.group, resource.plural, key.clone())
}

fn refused(code: u16, message: impl Into<String>) -> ApiError {
    ApiError::Refused { code, message: message.into() }
}

impl Objects {
    pub(super) fn revision(&self) -> u64 {
        self.revision
    }

    pub(super) fn get(&self, resource: Resource, key: &Key) -> Option<&Value> {
        self.all.get(&place(resource, key))
    }

    pub(super) fn of(&self, resource: Resource) -> impl Iterator<Item = &Value> {
        let is_it = move |(group, plural, _): &ObjectPlace| (*group, *plural) == (resource.group, resource.plural);
        self.all.iter().filter(move |(place, _)| is_it(place)).map(|(_, object)| object)
    }

    pub(super) fn list(&self, resource: Resource) -> Listed {
        Listed { items: self.of(resource).cloned().collect(), version: Some(self.revision.to_string()), token: None }
    }

    /// What changed first after a revision, and in which.
    pub(super) fn after(&self, resource: Resource, revision: u64) -> Option<(u64, WatchEvent)> {
        let history = self.history.get(&(resource.group, resource.plural))?;
        let next = history.get(history.partition_point(|change| change.revision <= revision))?;
        Some((next.revision, next.event.clone()))
    }

    pub(super) fn answer(&mut self, request: &Request) -> Result<Value, ApiError> {
        let Request { resource, key, verb } = request;
        let place = place(*resource, key);
        let before = self.all.get(&place);
        let missing = || refused(NOT_FOUND, format!("{} \"{}\" not found", resource.plural, key.name));
        match verb {
            Verb::Get => before.cloned().ok_or_else(missing),
            Verb::Create(_) if before.is_some() => {
                Err(refused(CONFLICT, format!("{} \"{}\" already exists", resource.plural, key.name)))
            }
            Verb::Create(object) => {
                let mut object = object.clone();
                without_status(&mut object);
                Ok(self.put(*resource, key, object))
            }
            Verb::Replace(object) => {
                let before = before.ok_or_else(missing)?;
                check_version(before, object)?;
                let mut next = object.clone();
                without_status(&mut next);
                next["status"] = before["status"].clone();
                Ok(self.put(*resource, key, next))
            }
            Verb::ReplaceStatus(object) => {
                let before = before.ok_or_else(missing)?;
                check_version(before, object)?;
                let mut next = before.clone();
                next["status"] = object["status"].clone();
                Ok(self.put(*resource, key, next))
            }
            Verb::Apply(Applied { object, .. }) => {
                let mut next = before.cloned().unwrap_or_else(|| json!({}));
                let mut object = object.clone();
                without_status(&mut object);
                merge(&mut next, &object);
                Ok(self.put(*resource, key, next))
            }
            Verb::ApplyStatus(Applied { object, .. }) => {
                let mut next = before.ok_or_else(missing)?.clone();
                merge(&mut next["status"], &object["status"]);
                Ok(self.put(*resource, key, next))
            }
            Verb::Delete => {
                let object = self.all.remove(&place).ok_or_else(missing)?;
                self.remember(*resource, WatchEvent::Deleted, object.clone());
                Ok(object)
            }
        }
    }

    /// Stores an object as it is, and tells watches if it has changed.
    pub(super) fn put(&mut self, resource: Resource, key: &Key, mut object: Value) -> Value {
        let place = place(resource, key);
        let before = self.all.get(&place);
        if object["status"].is_null() {
            without_status(&mut object);
        }
        let metadata = &mut object["metadata"];
        metadata["name"] = json!(key.name);
        if !key.namespace.is_empty() {
            metadata["namespace"] = json!(key.namespace);
        }
        let known = |field: &str| before.map(|before| before["metadata"][field].clone());
        let generation = known("generation").and_then(|generation| generation.as_i64());
        let is_same_spec = before.is_some_and(|before| before["spec"] == object["spec"]);
        let metadata = &mut object["metadata"];
        metadata["uid"] = known("uid").unwrap_or_else(|| json!(format!("uid-{}", self.revision + 1)));
        metadata["generation"] = json!(generation.map_or(1, |number| number + i64::from(!is_same_spec)));
        metadata["resourceVersion"] = known("resourceVersion").unwrap_or_default();
        if before == Some(&object) {
            return object;
        }
        let object = self.remember(resource, WatchEvent::Applied, object);
        self.all.insert(place, object.clone());
        object
    }

    fn remember(&mut self, resource: Resource, event: fn(Value) -> WatchEvent, mut object: Value) -> Value {
        self.revision += 1;
        object["metadata"]["resourceVersion"] = json!(self.revision.to_string());
        let history = self.history.entry((resource.group, resource.plural)).or_default();
        history.push(Change { revision: self.revision, event: event(object.clone()) });
        object
    }
}

fn check_version(before: &Value, object: &Value) -> Result<(), ApiError> {
    let (is, wanted) = (&before["metadata"]["resourceVersion"], &object["metadata"]["resourceVersion"]);
    if wanted.is_null() {
        return Err(refused(INVALID, "metadata.resourceVersion: must be specified for an update"));
    }
    if wanted == is {
        return Ok(());
    }
    Err(refused(
        CONFLICT,
        "the object has been modified; please apply your changes to the latest version and try again",
    ))
}

fn without_status(object: &mut Value) {
    if let Value::Object(fields) = object {
        fields.remove("status");
    }
}

fn merge(into: &mut Value, from: &Value) {
    // As the API server merges conditions, which are a map by type.
    if let (Value::Array(items), Value::Array(from)) = (&mut *into, from)
        && items.iter().chain(from).all(|item| item["type"].is_string())
    {
        items.retain(|item| from.iter().all(|one| one["type"] != item["type"]));
        items.extend(from.iter().cloned());
        return;
    }
    let Value::Object(fields) = from else {
        into.clone_from(from);
        return;
    };
    if !into.is_object() {
        *into = Value::Object(Map::new());
    }
    for (name, value) in fields {
        merge(&mut into[name], value);
    }
}
