//! How a plugin refuses: an object with a code of the CNI specification.

use serde_json::{Value, json};
use std::error::Error;

/// The codes that runtimes know.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Code {
    IncompatibleVersion = 1,
    InvalidEnvironment = 4,
    Io = 5,
    Undecodable = 6,
    InvalidNetwork = 7,
    TryAgainLater = 11,
    /// The plugin cannot serve ADD now (STATUS).
    NotAvailable = 50,
    /// Ours: what CHECK looks at is not as it was.
    Changed = 100,
}

/// A refusal.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{message}")]
pub struct CniError {
    pub code: Code,
    pub message: String,
    /// What to do about it, or the cause.
    pub details: String,
}

impl CniError {
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), details: String::new() }
    }

    #[must_use]
    pub fn with_details(mut self, details: impl Into<String>) -> Self {
        self.details = details.into();
        self
    }

    /// An error and its causes.
    pub fn of(code: Code, error: &dyn Error) -> Self {
        let mut message = error.to_string();
        let mut cause = error.source();
        while let Some(next) = cause {
            message.push_str(": ");
            message.push_str(&next.to_string());
            cause = next.source();
        }
        Self::new(code, message)
    }

    pub fn to_json(&self, version: &str) -> Value {
        let mut json =
            json!({"cniVersion": version, "code": self.code as u32, "msg": format!("namewall: {}", self.message)});
        if !self.details.is_empty() {
            json["details"] = self.details.as_str().into();
        }
        json
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_an_object_with_a_code() {
        let error = CniError::new(Code::TryAgainLater, "no agent answers").with_details("start it");
        let told =
            json!({"cniVersion": "1.0.0", "code": 11, "msg": "namewall: no agent answers", "details": "start it"});
        assert_eq!(error.to_json("1.0.0"), told);
    }
}
