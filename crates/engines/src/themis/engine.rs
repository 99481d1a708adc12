//! The engine: attributes of facts, asked of policies here or servers there.

use super::answer::judgement;
use super::cache::Cache;
use super::codec::{Effect, Response, read_response, write_request};
use super::policy::Policies;
use super::remote::Client;
use super::request::Form;
use super::settings::{Settings, Source, StartError, check_endpoints, read_files};
use crate::{Engine, EngineError, Judged, Judgement};
use namewall_expression::{Facts, Outcome};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Themis under a name. What is decided in process is decided at once; servers are asked later.
#[derive(Debug)]
pub struct ThemisEngine {
    form: Arc<Form>,
    decider: Decider,
    said: Arc<Said>,
}

#[derive(Debug)]
enum Decider {
    Policies(Policies),
    Servers(Arc<Servers>),
}

/// What is done with an answer.
#[derive(Debug)]
struct Said {
    name: String,
    on_error: Option<Outcome>,
    debug_id: Option<String>,
}

#[derive(Debug)]
struct Servers {
    client: Client,
    cache: Option<Mutex<Cache>>,
    max_request_size: usize,
    max_response_attributes: usize,
}

impl ThemisEngine {
    pub fn start(settings: Settings) -> Result<Self, StartError> {
        let decider = match settings.source {
            Source::Policies(policies) => Decider::Policies(policies),
            Source::Files { policy, contents } => Decider::Policies(read_files(&policy, &contents)?),
            Source::Remote(remote) => {
                check_endpoints(&remote)?;
                Decider::Servers(Arc::new(Servers {
                    client: Client::start(remote).map_err(StartError::Thread)?,
                    cache: settings.cache.map(|cache| Mutex::new(Cache::new(cache))),
                    max_request_size: settings.max_request_size,
                    max_response_attributes: settings.max_response_attributes,
                }))
            }
        };
        Ok(Self {
            form: Arc::new(Form::new(settings.attributes, settings.transfer)),
            decider,
            said: Arc::new(Said { name: settings.name, on_error: settings.on_error, debug_id: settings.debug_id }),
        })
    }
}

impl Engine for ThemisEngine {
    fn judge_until(&self, facts: &dyn Facts, until: Instant) -> Judged {
        let attributes = match self.form.attributes(facts) {
            Ok(attributes) => attributes,
            Err(error) => return Judged::Now(self.said.judgement(Err(error), &self.form)),
        };
        let servers = match &self.decider {
            Decider::Policies(policies) => {
                let response = policies.decide(&attributes);
                return Judged::Now(self.said.judgement(Ok(&response), &self.form));
            }
            Decider::Servers(servers) => servers,
        };
        let request = match write_request(&attributes, servers.max_request_size) {
            Ok(request) => request,
            Err(error) => {
                let error = EngineError(format!("the request cannot be sent: {error}"));
                return Judged::Now(self.said.judgement(Err(error), &self.form));
            }
        };
        if let Some(response) = servers.cached(&request) {
            return Judged::Now(self.said.judgement(Ok(&response), &self.form));
        }
        let (servers, form, said) = (servers.clone(), self.form.clone(), self.said.clone());
        Judged::Later(Box::new(move || {
            let response = servers.ask(request, until);
            said.judgement(response.as_deref().map_err(EngineError::clone), &form)
        }))
    }

    fn patience(&self) -> Duration {
        match &self.decider {
            // Nobody waits for policies that are evaluated here.
            Decider::Policies(_) => Duration::ZERO,
            Decider::Servers(servers) => servers.client.patience(),
        }
    }
}

impl Servers {
    fn cached(&self, request: &[u8]) -> Option<Arc<Response>> {
        let cache = self.cache.as_ref()?.lock().unwrap_or_else(PoisonError::into_inner);
        cache.get(request, Instant::now())
    }

    fn ask(&self, request: Vec<u8>, deadline: Instant) -> Result<Arc<Response>, EngineError> {
        let answer =
            self.client.ask_until(request.clone(), deadline).map_err(|error| EngineError(error.to_string()))?;
        let response = read_response(&answer, self.max_response_attributes)
            .map_err(|error| EngineError(format!("the answer cannot be read: {error}")))?;
        let response = Arc::new(response);
        let is_certain = matches!(response.effect, Effect::Permit | Effect::Deny | Effect::NotApplicable);
        if let Some(cache) = self.cache.as_ref().filter(|_| is_certain && response.status.is_empty()) {
            let mut cache = cache.lock().unwrap_or_else(PoisonError::into_inner);
            cache.put(&request, response.clone(), Instant::now());
        }
        Ok(response)
    }
}

impl Said {
    fn judgement(&self, response: Result<&Response, EngineError>, form: &Form) -> Result<Judgement, EngineError> {
        let judged = response.and_then(|response| {
            form.learn(&response.obligations);
            judgement(response)
        });
        match (judged, self.on_error) {
            (Ok(judgement), _) => Ok(self.signed(judgement)),
            (Err(EngineError(message)), None) => Err(EngineError(format!("themis {}: {message}", self.name))),
            (Err(EngineError(message)), Some(outcome)) => {
                Ok(self.signed(Judgement { outcome, trace: vec![format!("failed: {message}")], labels: Vec::new() }))
            }
        }
    }

    fn signed(&self, mut judgement: Judgement) -> Judgement {
        for line in &mut judgement.trace {
            line.insert_str(0, ": ");
            line.insert_str(0, &self.name);
            line.insert_str(0, "themis ");
        }
        if let Some(id) = &self.debug_id {
            judgement.trace.insert(0, format!("ident: {id}"));
        }
        judgement
    }
}
