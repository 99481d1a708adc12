//! Of several replicas one leads: the one whose name a Lease object of
//! `coordination.k8s.io` holds, as long as it is renewed.
//!
//! Clocks are not compared: whoever wants to take over watches for how long the
//! object stays as it is, by its own clock.

use crate::api::{ApiError, NOT_FOUND, Resource, Verb};
use crate::environment::{Environment, Remote};
use futures_util::future::{AbortHandle, abortable};
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::LeaseSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use namewall_cluster::Key;
use namewall_runtime::Instant;
use serde_json::{Value, json};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

const LEASE: Resource = Resource { group: "coordination.k8s.io", version: "v1", kind: "Lease", plural: "leases" };

/// How long a leader that is not heard of stays one, how often it renews, and how long before the end it stops
/// to act as one: a write that is under way must be over when another begins.
const LASTS: Duration = Duration::from_secs(8);
const RENEW_EVERY: Duration = Duration::from_secs(2);
const MARGIN: Duration = Duration::from_secs(2);

/// One of those who want to lead.
#[derive(Debug)]
pub struct Leadership {
    environment: Environment,
    candidate: Candidate,
    until: Granted,
    task: AbortHandle,
}

/// Until when it leads.
type Granted = Arc<Mutex<Option<Instant>>>;

/// Who wants to lead what.
#[derive(Clone, Debug)]
pub struct Candidate {
    pub namespace: String,
    /// The object's name.
    pub name: String,
    /// Nobody else's: a pod's name.
    pub identity: String,
}

impl Candidate {
    fn lease<'e>(&self, environment: &'e Environment) -> Remote<'e> {
        let key = Key { namespace: self.namespace.as_str().into(), name: self.name.as_str().into() };
        environment.at(LEASE, &key)
    }
}

impl Drop for Leadership {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Leadership {
    pub fn seek(environment: &Environment, candidate: Candidate) -> Self {
        let until = Granted::default();
        let (task, handle) = abortable(seek(environment.for_task(), candidate.clone(), until.clone()));
        environment.tasks.spawn(Box::pin(async move { _ = task.await }));
        Self { environment: environment.clone(), candidate, until, task: handle }
    }

    /// Whether it leads now, and will for a moment.
    pub fn is_held(&self) -> bool {
        let until = *self.until.lock().unwrap_or_else(PoisonError::into_inner);
        until.is_some_and(|until| self.environment.clock.now() + MARGIN < until)
    }

    /// Lets another lead at once. Should this fail, the others wait until its time is over.
    pub async fn give_up(self) {
        self.task.abort();
        if !self.is_held() {
            return;
        }
        let remote = self.candidate.lease(&self.environment);
        let Ok(mut lease) = remote.get().await else { return };
        if lease["spec"]["holderIdentity"] == *self.candidate.identity {
            lease["spec"]["holderIdentity"] = Value::Null;
            _ = remote.ask(Verb::Replace(lease)).await;
        }
    }
}

async fn seek(environment: Environment, candidate: Candidate, until: Granted) {
    let mut seeker = Seeker { environment, candidate, seen: None };
    loop {
        // Before it is asked: what is granted counts from then.
        let began = seeker.environment.clock.now();
        match seeker.try_to_lead().await {
            Ok(true) => *until.lock().unwrap_or_else(PoisonError::into_inner) = Some(began + LASTS),
            Ok(false) => *until.lock().unwrap_or_else(PoisonError::into_inner) = None,
            // Not heard: what was granted ends by itself.
            Err(_) => {}
        }
        seeker.environment.tasks.sleep(RENEW_EVERY).await;
    }
}

struct Seeker {
    environment: Environment,
    candidate: Candidate,
    seen: Option<Seen>,
}

/// The object as it was last seen to change, and when.
struct Seen {
    spec: LeaseSpec,
    since: Instant,
}

impl Seeker {
    async fn try_to_lead(&mut self) -> Result<bool, ApiError> {
        let Self { environment, candidate, seen } = self;
        let (remote, wall) = (candidate.lease(environment), environment.clock.wall());
        let mut lease = match remote.get().await {
            Ok(lease) => lease,
            Err(error) if error.code() == Some(NOT_FOUND) => {
                let lease = json!({
                    "apiVersion": LEASE.api_version(),
                    "kind": LEASE.kind,
                    "metadata": {"name": candidate.name, "namespace": candidate.namespace},
                    "spec": candidate.own(LeaseSpec::default(), wall),
                });
                return remote.ask(Verb::Create(lease)).await.map(|_| true);
            }
            Err(error) => return Err(error),
        };
        let spec: LeaseSpec = serde_json::from_value(lease["spec"].take()).unwrap_or_default();
        let now = environment.clock.now();
        let since = match seen.take() {
            Some(known) if known.spec == spec => known.since,
            _ => now,
        };
        *seen = Some(Seen { spec: spec.clone(), since });
        let holder = spec.holder_identity.as_deref().filter(|holder| !holder.is_empty());
        let is_ours = holder == Some(candidate.identity.as_str());
        if !is_ours && holder.is_some() && now.since(since) <= LASTS {
            return Ok(false);
        }
        lease["spec"] = json!(candidate.own(spec, wall));
        // Of two who try, one is too late.
        remote.ask(Verb::Replace(lease)).await.map(|_| true)
    }
}

impl Candidate {
    /// What the object says of us, after what it said before.
    fn own(&self, before: LeaseSpec, wall: Timestamp) -> LeaseSpec {
        // The first to hold it takes over from nobody.
        let is_first = before == LeaseSpec::default();
        let is_ours = before.holder_identity.as_ref() == Some(&self.identity);
        LeaseSpec {
            holder_identity: Some(self.identity.clone()),
            lease_duration_seconds: Some(LASTS.as_secs() as i32),
            acquire_time: before.acquire_time.filter(|_| is_ours).or(Some(MicroTime(wall))),
            renew_time: Some(MicroTime(wall)),
            lease_transitions: Some(before.lease_transitions.unwrap_or(0) + i32::from(!is_first && !is_ours)),
            ..LeaseSpec::default()
        }
    }
}

#[cfg(test)]
mod tests;
