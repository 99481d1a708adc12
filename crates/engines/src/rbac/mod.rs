//! `kubernetes rbac`: whether Kubernetes lets the service account of the client's pod resolve a name. The
//! API server is asked with a SubjectAccessReview, and what it says is kept for a while. `settings` says
//! where it is, `cache` what is kept, `review` has its words. docs/opa.md says how to write roles.

mod cache;
mod review;
mod settings;
#[cfg(test)]
mod tests;

pub use settings::{RbacError, RbacSettings};

use crate::http::{Client, Question, QueueSlots, TlsError};
use crate::{Engine, EngineError, Judged, Judgement};
use cache::Cache;
use namewall_expression::{Fact, Facts, Outcome};
use review::Access;
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Kubernetes as an engine. RBAC itself only grants, so a name that no role has is the next rule's turn;
/// an authorizer that denies (a webhook) blocks.
pub struct Rbac {
    namespace: Fact,
    service_account: Fact,
    timeout: Duration,
    slots: Arc<QueueSlots>,
    asking: Arc<Asking>,
}

/// What a question needs on its thread.
struct Asking {
    client: Client,
    token: Option<PathBuf>,
    kept: Mutex<Cache>,
}

impl Rbac {
    /// Reads certificates. Nobody is asked yet.
    pub fn start(settings: &RbacSettings) -> Result<Self, RbacError> {
        let concurrency = settings.concurrency as usize;
        let client = Client::new(&settings.review_url(), settings.tls.as_ref(), concurrency)?;
        let kept = Mutex::new(Cache::new(settings.ttl, settings.most_kept));
        Ok(Self {
            namespace: Fact::named("kubernetes/client-namespace"),
            service_account: Fact::named("kubernetes/client-service-account"),
            timeout: settings.timeout,
            slots: QueueSlots::new(concurrency),
            asking: Arc::new(Asking { client, token: settings.token.clone(), kept }),
        })
    }

    /// Reads the certificates again; whether they have changed. If they are bad, those before are kept.
    /// The token is read for every question.
    pub fn reload(&self) -> Result<bool, TlsError> {
        self.asking.client.reload()
    }

    /// Who wants to resolve what; none if the client is no pod that is known.
    fn access(&self, facts: &dyn Facts) -> Option<Access> {
        let text = |fact| Some(facts.get(fact).to_string()).filter(|text| !text.is_empty());
        let (namespace, service_account) = (text(&self.namespace)?, text(&self.service_account)?);
        let name = facts.get(&Fact::Name).to_string();
        Some(Access { namespace, service_account, name })
    }
}

impl Engine for Rbac {
    fn judge_until(&self, facts: &dyn Facts, until: Instant) -> Judged {
        let Some(access) = self.access(facts) else {
            let mut judgement = Judgement::from(Outcome::Undefined);
            judgement.trace.push("the client is no pod whose service account is known".into());
            return Judged::Now(Ok(judgement));
        };
        if let Some(judgement) = self.asking.kept().get(&access, Instant::now()) {
            return Judged::Now(Ok(judgement));
        }
        let Some(mut place) = self.slots.take() else {
            return Judged::Now(Err(failed(&"too many questions are under way")));
        };
        let asking = self.asking.clone();
        Judged::Later(Box::new(move || {
            if !place.wait(until) {
                return Err(failed(&"no answer in time to the questions before"));
            }
            asking.ask(access, until).map_err(|EngineError(problem)| failed(&problem))
        }))
    }

    fn patience(&self) -> Duration {
        self.timeout
    }
}

impl Asking {
    fn ask(&self, access: Access, until: Instant) -> Result<Judgement, EngineError> {
        let body = access.review()?;
        // It changes every hour.
        let token = match &self.token {
            None => None,
            Some(path) => Some(
                std::fs::read_to_string(path)
                    .map_err(|error| EngineError(format!("cannot read {}: {error}", path.display())))?,
            ),
        };
        let bearer = token.as_deref().map(str::trim);
        let answer = self.client.ask(Question { body: body.as_bytes(), bearer, until });
        let answer = answer.map_err(|error| EngineError(error.to_string()))?;
        let judgement = review::judgement(&access, &answer)?;
        self.kept().put(access, judgement.clone(), Instant::now());
        Ok(judgement)
    }

    fn kept(&self) -> std::sync::MutexGuard<'_, Cache> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn failed(problem: &dyn fmt::Display) -> EngineError {
    EngineError(format!("Kubernetes' API: {problem}"))
}

impl fmt::Debug for Rbac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rbac").field("client", &self.asking.client).finish_non_exhaustive()
    }
}
