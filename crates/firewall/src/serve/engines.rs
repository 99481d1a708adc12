//! Engines as a Corefile configures them.

use crate::corefile::{AttributeKind, Balance, Decision, Patience, Themis, ThemisAt};
use crate::themis::remote::{self, RemoteSettings};
use crate::themis::{self, AttributeSetting, CacheSettings, Settings, Source, StartError, ThemisEngine};
use crate::{Engine, EngineError, Facts, Judged, Judgement};
use std::sync::Arc;
use std::time::Duration;

/// Without a bound of its own the cache of an engine holds so much.
const CACHE_MEGABYTES: usize = 16;
/// Nobody waits longer for a server to come up: clients give up long before.
const LONGEST_WAIT: Duration = Duration::from_secs(2);

pub(super) fn themis(name: &str, themis: &Themis) -> Result<Arc<dyn Engine>, StartError> {
    let source = match &themis.at {
        ThemisAt::Here { policy, content } => Source::Files { policy: policy.clone(), contents: content.clone() },
        ThemisAt::Remote(servers) => {
            let mut remote = RemoteSettings::of(servers.iter().map(ToString::to_string));
            remote.streams = themis.streams.map_or(remote.streams, |streams| streams as usize);
            remote.balance = match themis.balance {
                Balance::RoundRobin => remote::Balance::RoundRobin,
                Balance::HotSpot => remote::Balance::HotSpot,
            };
            remote.connection_timeout = match themis.connection_timeout {
                Patience::Forever => LONGEST_WAIT,
                Patience::For(time) => time.min(LONGEST_WAIT),
            };
            remote.request_timeout = themis.timeout.unwrap_or(remote.request_timeout);
            Source::Remote(remote)
        }
    };
    let mut settings = Settings::new(name, source);
    settings.attributes = themis
        .attributes
        .iter()
        .map(|attribute| AttributeSetting {
            name: attribute.name.to_string(),
            fact: attribute.fact.clone(),
            kind: match attribute.kind {
                AttributeKind::String => themis::Type::String,
                AttributeKind::Domain => themis::Type::Domain,
                AttributeKind::Address => themis::Type::Address,
            },
        })
        .collect();
    settings.transfer = themis.transfer.iter().map(ToString::to_string).collect();
    settings.debug_id = themis.debug.id.as_ref().map(ToString::to_string);
    settings.cache = themis.cache.map(|cache| CacheSettings {
        ttl: cache.ttl,
        bytes: cache.megabytes.map_or(CACHE_MEGABYTES, |megabytes| megabytes as usize) << 20,
    });
    settings.max_request_size = themis.max_request_size.map_or(settings.max_request_size, |size| size as usize);
    settings.max_response_attributes = themis.max_response_attributes.map_or(usize::MAX, |most| most as usize);
    Ok(or_else(ThemisEngine::start(settings)?, themis.default_decision.as_ref()))
}

/// What counts where an engine fails, if that is said.
pub(super) fn or_else(engine: impl Engine + 'static, decision: Option<&Decision>) -> Arc<dyn Engine> {
    match decision {
        Some(decision) => Arc::new(OrElse { engine: Arc::new(engine), decision: decision.clone() }),
        None => Arc::new(engine),
    }
}

/// An engine whose failures are decided.
#[derive(Debug)]
struct OrElse {
    engine: Arc<dyn Engine>,
    decision: Decision,
}

impl Engine for OrElse {
    fn judge(&self, facts: &dyn Facts) -> Judged {
        match self.engine.judge(facts) {
            Judged::Now(judgement) => Judged::Now(Ok(decided(judgement, &self.decision))),
            Judged::Later(judge) => {
                let decision = self.decision.clone();
                Judged::Later(Box::new(move || Ok(decided(judge(), &decision))))
            }
        }
    }
}

fn decided(judgement: Result<Judgement, EngineError>, decision: &Decision) -> Judgement {
    judgement.unwrap_or_else(|error| Judgement {
        outcome: decision.outcome,
        trace: vec![format!("it failed ({error}): the default decision counts")],
        labels: decision.attributes.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect(),
    })
}
