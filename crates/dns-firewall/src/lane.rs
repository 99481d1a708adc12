//! How engines are waited for. Each has a pool of threads and a queue of its own: one that hangs holds up the
//! questions that are asked of it, and no others.
//!
//! A walk through the rules ends where somebody has to be waited for. What the engine says is kept with the exchange,
//! and the walk is done again from its first rule, on the engine's thread: expressions take less than a microsecond.

use crate::message::Message;
use crate::metrics::EngineMeter;
use crate::rules::Rule;
use namewall_corefile::Decision;
use namewall_dns::{WorkerSlot, Workers};
use namewall_engines::{Engine, EngineError, Judged, Judgement};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What a rule comes to, or why it does not.
pub(crate) type Said = Result<Judgement, String>;

/// An engine, and the threads that wait for it.
#[derive(Debug)]
pub(crate) struct Lane {
    /// As rules name it: `opa clients`.
    label: String,
    engine: Arc<dyn Engine>,
    workers: Workers,
    /// What counts where the engine fails.
    default_decision: Option<Arc<Decision>>,
}

/// Which question to an engine it is, in one exchange: by the rule, and by the address that is judged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Key {
    rule: usize,
    address: Option<IpAddr>,
}

impl Key {
    /// Rules stay where they are as long as an exchange lasts.
    pub(crate) fn new(rule: &Rule, address: Option<IpAddr>) -> Self {
        Self { rule: std::ptr::from_ref(rule).addr(), address }
    }

    pub(crate) fn is_of_same_rule(self, other: Self) -> bool {
        self.rule == other.rule
    }
}

/// What an engine has said that had to be waited for.
#[derive(Clone, Debug)]
pub(crate) struct Heard {
    pub(crate) key: Key,
    pub(crate) said: Said,
    /// How long it was waited for.
    pub(crate) took: Duration,
}

/// One question to an engine.
pub(crate) struct Ask<'a> {
    pub(crate) key: Key,
    pub(crate) until: Instant,
    pub(crate) meter: Option<&'a Arc<EngineMeter>>,
}

/// Somebody has to be waited for, on a thread of this pool.
pub(crate) struct MustWait {
    pub(crate) slot: WorkerSlot,
    pub(crate) ask: Box<dyn FnOnce() -> Heard + Send>,
}

impl Lane {
    pub(crate) fn new(label: String, engine: Arc<dyn Engine>, default_decision: Option<Decision>) -> Self {
        let workers = Workers::with_threads(engine.workers());
        Self { label, engine, workers, default_decision: default_decision.map(Arc::new) }
    }

    /// As rules name the engine.
    pub(crate) fn label(&self) -> &str {
        &self.label
    }

    /// How long a message waits for the engine.
    pub(crate) fn patience(&self) -> Duration {
        self.engine.patience()
    }

    /// Asks, and waits for the answer.
    pub(crate) fn ask(&self, message: &Message<'_>, ask: Ask<'_>) -> Heard {
        let Ask { key, until, meter } = ask;
        let begun = Instant::now();
        let judged = caught(|| self.engine.judge_until(message, until));
        let judged = judged.and_then(|judged| caught(|| judged.wait()).flatten());
        let said = ended(judged, begun, meter, self.default_decision.as_deref());
        Heard { key, said, took: begun.elapsed() }
    }

    /// What the engine says at once; else it has to be waited for. If its queue is full, it has failed.
    pub(crate) fn begin(&self, message: &Message<'_>, ask: Ask<'_>) -> Result<Said, MustWait> {
        let Ask { key, until, meter } = ask;
        let begun = Instant::now();
        let ended_now = |judged| Ok(ended(judged, begun, meter, self.default_decision.as_deref()));
        let judge = match caught(|| self.engine.judge_until(message, until)) {
            Err(error) => return ended_now(Err(error)),
            Ok(Judged::Now(judged)) => return ended_now(judged),
            Ok(Judged::Later(judge)) => judge,
        };
        if begun >= until {
            return ended_now(Err(EngineError("no answer in time about the addresses before".to_owned())));
        }
        let Some(slot) = self.workers.reserve(Some(message.exchange.client.ip())) else {
            return ended_now(Err(EngineError("too many questions wait for it".to_owned())));
        };
        let (meter, default_decision) = (meter.cloned(), self.default_decision.clone());
        let ask = move || {
            let said = ended(caught(judge).flatten(), begun, meter.as_ref(), default_decision.as_deref());
            Heard { key, said, took: begun.elapsed() }
        };
        Err(MustWait { slot, ask: Box::new(ask) })
    }
}

/// Counts a judgement, and decides where there is none.
fn ended(
    judged: Result<Judgement, EngineError>,
    begun: Instant,
    meter: Option<&Arc<EngineMeter>>,
    default_decision: Option<&Decision>,
) -> Said {
    if let Some(meter) = meter {
        meter.add(begun.elapsed(), judged.is_err());
    }
    match (judged, default_decision) {
        (Ok(judgement), _) => Ok(judgement),
        (Err(error), None) => Err(error.to_string()),
        (Err(error), Some(decision)) => Ok(Judgement {
            outcome: decision.outcome,
            trace: vec![format!("it failed ({error}): the default decision counts")],
            labels: decision.attributes.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect(),
        }),
    }
}

/// A bug in an engine is an error of that engine, and no more.
fn caught<T>(judge: impl FnOnce() -> T) -> Result<T, EngineError> {
    namewall_dns::caught(judge).ok_or_else(|| EngineError("it panicked, which is a bug".to_owned()))
}
