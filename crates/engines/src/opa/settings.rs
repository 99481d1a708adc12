//! What an OPA is told, and where it is.

use crate::http::{ServerUrl, TlsFiles};
use namewall_expression::Fact;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// The settings of an OPA.
#[derive(Clone, PartialEq, Debug)]
pub struct OpaSettings {
    /// Where its policies are evaluated.
    pub at: OpaSource,
    /// What a policy is told.
    pub fields: Vec<InputField>,
    /// How long an evaluation may take, if not as long as usual.
    pub timeout: Option<Duration>,
    /// How many questions may be under way at a server, if not as many as usual.
    pub concurrency: Option<u32>,
}

/// Where the policies of an OPA are evaluated.
#[derive(Clone, PartialEq, Debug)]
pub enum OpaSource {
    /// By a server, at the URL of the rule.
    Server { url: ServerUrl, tls: Option<TlsFiles> },
    /// In this process.
    Files(RegoFiles),
}

/// Policies and data to be evaluated in this process.
#[derive(Clone, PartialEq, Debug)]
pub struct RegoFiles {
    pub policies: Vec<PathBuf>,
    pub data: Vec<PathBuf>,
    /// The rule that is asked: `data.dns.action`.
    pub query: Arc<str>,
    /// Whether the policies are of Rego's first version.
    pub is_v0: bool,
}

/// A fact, under the name by which a policy sees it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InputField {
    pub name: Arc<str>,
    pub fact: Fact,
}
