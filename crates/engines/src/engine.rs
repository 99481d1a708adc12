//! Whoever judges by rules of its own.

use namewall_expression::{Facts, Outcome};
use std::fmt;
use std::time::{Duration, Instant};

/// A policy engine under a name, as a Corefile configures it. It is asked from the thread that serves, and from threads
/// of other engines. Neither may wait for it: what takes time is given back as [`Judged::Later`].
pub trait Engine: Send + Sync + fmt::Debug {
    /// Nobody waits for the judgement after `until`.
    fn judge_until(&self, facts: &dyn Facts, until: Instant) -> Judged;

    /// How long one message waits for the engine, however many of its addresses are judged.
    fn patience(&self) -> Duration;

    /// The judgement of a message with one address, or none.
    fn judge(&self, facts: &dyn Facts) -> Judged {
        self.judge_until(facts, Instant::now() + self.patience())
    }

    /// How many questions it is worth to wait for at once, each on a thread.
    fn workers(&self) -> usize {
        128
    }
}

/// A judgement, or who will have it.
pub enum Judged {
    Now(Result<Judgement, EngineError>),
    /// To be run on a thread that may wait. It is over at `until`: a question that has waited for a thread that long is
    /// not asked any more.
    Later(Box<dyn FnOnce() -> Result<Judgement, EngineError> + Send>),
}

impl Judged {
    /// The judgement, however long it takes.
    pub fn wait(self) -> Result<Judgement, EngineError> {
        match self {
            Self::Now(judgement) => judgement,
            Self::Later(judge) => judge(),
        }
    }
}

impl fmt::Debug for Judged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Now(judgement) => f.debug_tuple("Now").field(judgement).finish(),
            Self::Later(_) => f.write_str("Later"),
        }
    }
}

/// What an engine says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Judgement {
    pub outcome: Outcome,
    /// How it came to that, for who debugs: a line each step.
    pub trace: Vec<String>,
    /// What it says besides (Themis' obligations), by name: facts for later rules, and for logs.
    pub labels: Vec<(String, String)>,
}

impl From<Outcome> for Judgement {
    fn from(outcome: Outcome) -> Self {
        Self { outcome, trace: Vec::new(), labels: Vec::new() }
    }
}

/// It failed, did not answer in time, or answered nonsense: SERVFAIL, or the configured default (S9.4).
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct EngineError(pub String);
