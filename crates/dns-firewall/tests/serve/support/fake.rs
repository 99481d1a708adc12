//! Engines that do what a test says.

use namewall_corefile::EngineSettings;
use namewall_engines::{Engine, EngineError, Judged, Judgement};
use namewall_expression::Facts;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Longer than any test takes.
pub(crate) const PATIENCE: Duration = Duration::from_secs(600);

type Judge = dyn Fn(&dyn Facts) -> Judged + Send + Sync;

/// An engine that is a function, and keeps how long it would have been waited for each time it was asked.
#[derive(Clone)]
pub(crate) struct Fake {
    judge: Arc<Judge>,
    asked: Arc<Mutex<Vec<Duration>>>,
}

impl Fake {
    pub(crate) fn new(judge: impl Fn(&dyn Facts) -> Judged + Send + Sync + 'static) -> Self {
        Self { judge: Arc::new(judge), asked: Arc::default() }
    }

    /// One that knows at once.
    pub(crate) fn now(said: impl Into<Judgement>) -> Self {
        let said = said.into();
        Self::new(move |_| Judged::Now(Ok(said.clone())))
    }

    /// One that has to be waited for.
    pub(crate) fn later(said: impl Fn() -> Result<Judgement, EngineError> + Send + Sync + 'static) -> Self {
        let said = Arc::new(said);
        Self::new(move |_| {
            let said = said.clone();
            Judged::Later(Box::new(move || said()))
        })
    }

    pub(crate) fn asked(&self) -> usize {
        self.waited_for().len()
    }

    /// How long it would have been waited for, for each time it was asked.
    pub(crate) fn waited_for(&self) -> Vec<Duration> {
        self.asked.lock().unwrap().clone()
    }
}

impl Engine for Fake {
    fn judge_until(&self, facts: &dyn Facts, until: Instant) -> Judged {
        self.asked.lock().unwrap().push(until.saturating_duration_since(Instant::now()));
        (self.judge)(facts)
    }

    fn patience(&self) -> Duration {
        PATIENCE
    }
}

impl fmt::Debug for Fake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Fake")
    }
}

/// Engines by the names a Corefile gives them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Engines(Vec<(&'static str, Fake)>);

impl Engines {
    pub(crate) fn none() -> Self {
        Self::default()
    }

    pub(crate) fn of<const N: usize>(engines: [(&'static str, &Fake); N]) -> Self {
        Self(engines.into_iter().map(|(name, fake)| (name, fake.clone())).collect())
    }

    pub(crate) fn get(&self, settings: &EngineSettings) -> Option<Arc<dyn Engine>> {
        let (_, fake) = self.0.iter().find(|(name, _)| *settings.name == **name)?;
        Some(Arc::new(fake.clone()))
    }
}
