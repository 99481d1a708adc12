//! What can go wrong in an agent.

use crate::config::ConfigError;
use crate::node::NodeError;
use crate::takeover::TakeoverError;
use namewall_cluster::LoadError;
use std::error::Error;
use std::io;
use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    #[error(transparent)]
    Node(#[from] NodeError),
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Of who reads the settings for us.
    #[error(transparent)]
    Settings(Box<dyn Error + Send + Sync>),
    #[error(transparent)]
    Load(#[from] LoadError),
    #[error(transparent)]
    Takeover(#[from] TakeoverError),
    #[error("a namewall runs here already; end it first, or start this one with --take-over")]
    RunsAlready,
    #[error("{0}; the namewall that runs here goes on")]
    Gap(String),
    /// A signal, or another agent, has ended a start that had to wait.
    #[error("the start was ended before anything was enforced")]
    Ended,
    #[error("there is no Node {0} any more, which this machine is")]
    NodeGone(String),
    #[error("cannot listen at {}", .path.display())]
    Listen {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("cannot read the addresses of this machine")]
    Machine(#[from] namewall_dataplane::netlink::Error),
    #[error("cannot start a thread")]
    Thread(#[source] io::Error),
}

/// An error and its causes, in one line.
pub(crate) fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        text.push_str(": ");
        text.push_str(&next.to_string());
        cause = next.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_told_with_its_causes() {
        let source = io::Error::new(io::ErrorKind::PermissionDenied, "denied");
        let error = AgentError::Listen { path: "/run/a".into(), source };
        assert_eq!(with_causes(&error), "cannot listen at /run/a: denied");
    }
}
