//! All that the logic of this crate asks of the outside world.

use crate::api::{Answer, ApiServer, Request, Resource, Verb};
use crate::metrics::Requests;
use jiff::Timestamp;
use namewall_cluster::Key;
use namewall_runtime::{Clock, Random, Tasks};
use serde_json::Value;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

#[derive(Clone, Debug)]
pub struct Environment {
    pub api: Arc<dyn ApiServer>,
    pub clock: Arc<dyn Clock>,
    pub random: Arc<dyn Random>,
    pub tasks: Arc<dyn Tasks>,
    pub patience: Patience,
    /// Requests to the API server, where they are counted.
    pub(crate) requests: Arc<Requests>,
    /// Keeps the runtime of `tasks` alive. Tasks have an environment without it: the last task to end would end its
    /// own runtime.
    #[expect(dead_code, reason = "it is only held")]
    pub(crate) lifeline: Option<Arc<dyn Lifeline>>,
}

pub(crate) trait Lifeline: Debug + Send + Sync {}

/// How long the server may be silent.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// How long an answer to a watch may take to begin, and a part of a list to come.
    pub answer: Duration,
    /// How long a watch may say nothing. The server says at least once a minute how far it is.
    pub silence: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self { answer: Duration::from_secs(30), silence: Duration::from_secs(90) }
    }
}

/// One object at the API server.
#[derive(Clone, Debug)]
pub(crate) struct Remote<'e> {
    pub(crate) api: &'e dyn ApiServer,
    pub(crate) resource: Resource,
    pub(crate) key: Key,
}

impl Remote<'_> {
    pub(crate) fn get(&self) -> Answer<Value> {
        self.ask(Verb::Get)
    }

    pub(crate) fn ask(&self, verb: Verb) -> Answer<Value> {
        self.api.ask(Request { resource: self.resource, key: self.key.clone(), verb })
    }
}

impl Environment {
    pub fn new(api: Arc<dyn ApiServer>, tasks: Arc<dyn Tasks>, clock: Arc<dyn Clock>, random: Arc<dyn Random>) -> Self {
        Self { api, clock, random, tasks, patience: Patience::default(), requests: Arc::default(), lifeline: None }
    }

    pub(crate) fn for_task(&self) -> Self {
        Self { lifeline: None, ..self.clone() }
    }

    /// The time of day, as the API keeps times: in whole seconds.
    pub(crate) fn wall(&self) -> Timestamp {
        whole_seconds(&*self.clock)
    }

    pub(crate) fn at(&self, resource: impl Into<Resource>, key: &Key) -> Remote<'_> {
        Remote { api: &*self.api, resource: resource.into(), key: key.clone() }
    }
}

/// The key of an object without a namespace.
pub(crate) fn cluster_wide(name: &str) -> Key {
    Key { namespace: "".into(), name: name.into() }
}

/// The time of day, as the API keeps times: in whole seconds.
pub(crate) fn whole_seconds(clock: &dyn Clock) -> Timestamp {
    let now = clock.wall();
    Timestamp::from_second(now.as_second()).unwrap_or(now)
}
