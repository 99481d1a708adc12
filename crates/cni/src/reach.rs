//! Passing sockets of pods' network namespaces to an agent that has started and
//! cannot enter them.

use crate::attachment::AttachmentId;
use crate::client::{Agent, AskError};
use crate::link::pod_sockets;
use serde::Deserialize;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A namespace that the agent cannot reach.
#[derive(Debug, Deserialize)]
struct Unreached {
    id: AttachmentId,
    /// Its file, as the host sees it.
    netns: PathBuf,
}

/// What came of it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Passed {
    pub namespaces: usize,
    /// Those that could not be entered, and why.
    pub failures: Vec<String>,
}

/// Passes sockets of every namespace that the agent lacks. `folder` has the files of namespaces, as they are seen here.
pub fn pass_sockets(agent: &Agent, folder: &Path, patience: Duration) -> Result<Passed, AskError> {
    let answer = agent.ask(&json!({"unreached": {}}), patience)?;
    let listed = answer["unreached"].as_array().map(Vec::as_slice).unwrap_or_default();
    let mut passed = Passed::default();
    for Unreached { id, netns } in listed.iter().filter_map(|one: &Value| Unreached::deserialize(one).ok()) {
        let here = netns.file_name().map(|name| folder.join(name)).filter(|path| path.exists());
        match pod_sockets(&here.unwrap_or(netns)) {
            Ok(sockets) => {
                let answer = agent.ask_with(&json!({"reach": id}), &sockets.descriptors(), patience)?;
                passed.namespaces += usize::from(answer["reached"] == true);
            }
            Err(error) => passed.failures.push(format!("{id}: {error}: {}", cause(&error))),
        }
    }
    Ok(passed)
}

fn cause(error: &dyn std::error::Error) -> String {
    error.source().map(ToString::to_string).unwrap_or_default()
}
