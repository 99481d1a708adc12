//! Of several replicas one leads: the one whose name a Lease object of
//! `coordination.k8s.io` holds, as long as it is renewed.
//!
//! Clocks are not compared: whoever wants to take over watches for how long the
//! object stays as it is, by its own clock.

use crate::answers::NOT_FOUND;
use crate::client::Connection;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::api::{Api, PostParams};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;

/// How long a leader that is not heard of stays one, how often it renews, and how long before the end it stops
/// to act as one: a write that is under way must be over when another begins.
const LASTS: Duration = Duration::from_secs(8);
const RENEW_EVERY: Duration = Duration::from_secs(2);
const MARGIN: Duration = Duration::from_secs(2);

/// One of those who want to lead.
#[derive(Debug)]
pub struct Leadership {
    connection: Connection,
    candidate: Candidate,
    until: Arc<Mutex<Option<Instant>>>,
    task: JoinHandle<()>,
}

/// Who wants to lead what.
#[derive(Clone, Debug)]
pub struct Candidate {
    pub namespace: String,
    /// The object's name.
    pub name: String,
    /// Nobody else's: a pod's name.
    pub identity: String,
}

impl Leadership {
    pub fn seek(connection: &Connection, candidate: Candidate) -> Self {
        let until: Arc<Mutex<Option<Instant>>> = Arc::default();
        let api = Api::namespaced(connection.client.clone(), &candidate.namespace);
        let task = connection.runtime.spawn(seek(api, candidate.clone(), until.clone()));
        Self { connection: connection.clone(), candidate, until, task }
    }

    /// Whether it leads now, and will for a moment.
    pub fn is_held(&self) -> bool {
        let until = *self.until.lock().unwrap_or_else(PoisonError::into_inner);
        until.is_some_and(|until| Instant::now() + MARGIN < until)
    }

    /// Lets another lead at once.
    pub fn give_up(self) {
        self.task.abort();
        if !self.is_held() {
            return;
        }
        let api: Api<Lease> = Api::namespaced(self.connection.client.clone(), &self.candidate.namespace);
        let Candidate { name, identity, .. } = &self.candidate;
        // Should this fail, the others wait until its time is over.
        let _ = self.connection.runtime.block_on(async {
            let mut lease = api.get(name).await?;
            if let Some(spec) = lease.spec.as_mut().filter(|spec| spec.holder_identity.as_ref() == Some(identity)) {
                spec.holder_identity = None;
                api.replace(name, &PostParams::default(), &lease).await?;
            }
            Ok::<(), kube::Error>(())
        });
    }
}

async fn seek(api: Api<Lease>, candidate: Candidate, until: Arc<Mutex<Option<Instant>>>) {
    // The object as it was last seen to change, and when.
    let mut seen: Option<(Option<LeaseSpec>, Instant)> = None;
    loop {
        // Before it is asked: what is granted counts from then.
        let began = Instant::now();
        match try_to_lead(&api, &candidate, &mut seen).await {
            Ok(true) => *until.lock().unwrap_or_else(PoisonError::into_inner) = Some(began + LASTS),
            Ok(false) => *until.lock().unwrap_or_else(PoisonError::into_inner) = None,
            // Not heard: what was granted ends by itself.
            Err(_) => {}
        }
        tokio::time::sleep(RENEW_EVERY).await;
    }
}

async fn try_to_lead(
    api: &Api<Lease>,
    candidate: &Candidate,
    seen: &mut Option<(Option<LeaseSpec>, Instant)>,
) -> Result<bool, kube::Error> {
    let Candidate { name, identity, namespace } = candidate;
    let now = MicroTime(jiff::Timestamp::now());
    let own = |transitions: i32, since: Option<MicroTime>| LeaseSpec {
        holder_identity: Some(identity.clone()),
        lease_duration_seconds: Some(LASTS.as_secs() as i32),
        acquire_time: Some(since.unwrap_or_else(|| now.clone())),
        renew_time: Some(now.clone()),
        lease_transitions: Some(transitions),
        ..LeaseSpec::default()
    };
    let mut lease = match api.get(name).await {
        Ok(lease) => lease,
        Err(kube::Error::Api(status)) if status.code == NOT_FOUND => {
            let metadata =
                ObjectMeta { name: Some(name.clone()), namespace: Some(namespace.clone()), ..ObjectMeta::default() };
            let lease = Lease { metadata, spec: Some(own(0, None)) };
            return api.create(&PostParams::default(), &lease).await.map(|_| true);
        }
        Err(error) => return Err(error),
    };
    if seen.as_ref().is_none_or(|(known, _)| *known != lease.spec) {
        *seen = Some((lease.spec.clone(), Instant::now()));
    }
    let spec = lease.spec.take().unwrap_or_default();
    let holder = spec.holder_identity.as_deref().filter(|holder| !holder.is_empty());
    let is_ours = holder == Some(identity);
    let is_over = seen.as_ref().is_some_and(|(_, since)| since.elapsed() > LASTS);
    if !is_ours && holder.is_some() && !is_over {
        return Ok(false);
    }
    let transitions = spec.lease_transitions.unwrap_or(0) + i32::from(!is_ours);
    lease.spec = Some(own(transitions, spec.acquire_time.filter(|_| is_ours)));
    // Of two who try, one is too late.
    api.replace(name, &PostParams::default(), &lease).await.map(|_| true)
}
