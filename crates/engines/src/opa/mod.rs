//! Open Policy Agent: its policies evaluated here (`rego`), or asked of its servers (`remote`). `input`
//! makes a document of what is known of a question, `result` an outcome of what a policy says of it: both
//! are the same for either, so that a policy can move. `settings` says where an OPA is. docs/opa.md says what is read, and what differs.

mod input;
mod rego;
mod remote;
mod result;
mod settings;
#[cfg(test)]
mod tests;

pub use crate::http::TlsError;
pub use rego::{LoadError, Rego};
pub use remote::Remote;
pub use settings::{InputField, OpaSettings, OpaSource, RegoFiles};

use crate::{Engine, Judged};
use namewall_expression::Facts;
use std::time::{Duration, Instant};

/// The engine that `opa NAME { … }` configures. What counts where it fails (`default_decision`) is the
/// list's to say.
#[derive(Debug)]
pub enum OpaEngine {
    Here(Box<Rego>),
    Remote(Remote),
}

#[derive(Debug, thiserror::Error)]
pub enum OpaError {
    #[error(transparent)]
    Load(#[from] LoadError),
    #[error(transparent)]
    Tls(#[from] TlsError),
}

impl OpaEngine {
    /// Reads policies, data and certificates. Nobody is asked yet.
    pub fn start(settings: &OpaSettings) -> Result<Self, OpaError> {
        Ok(match &settings.at {
            OpaSource::Files(files) => Self::Here(Box::new(Rego::load(settings, files)?)),
            OpaSource::Server { url, tls } => Self::Remote(Remote::new(settings, url, tls.as_ref())?),
        })
    }

    /// Reads its files again; whether they have changed. Bad ones are refused, and what was read before
    /// stays in force.
    pub fn reload(&self) -> Result<bool, OpaError> {
        Ok(match self {
            Self::Here(rego) => rego.reload()?,
            Self::Remote(remote) => remote.reload()?,
        })
    }
}

impl Engine for OpaEngine {
    fn judge_until(&self, facts: &dyn Facts, until: Instant) -> Judged {
        match self {
            Self::Here(rego) => rego.judge_until(facts, until),
            Self::Remote(remote) => remote.judge_until(facts, until),
        }
    }

    fn patience(&self) -> Duration {
        match self {
            Self::Here(rego) => rego.patience(),
            Self::Remote(remote) => remote.patience(),
        }
    }

    fn workers(&self) -> usize {
        match self {
            Self::Here(rego) => rego.workers(),
            Self::Remote(remote) => remote.workers(),
        }
    }
}
