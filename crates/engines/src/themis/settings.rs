//! What a Corefile says of a Themis engine.

use super::cache::CacheSettings;
use super::policy::{File, Policies, PolicyError};
use super::remote::RemoteSettings;
use super::value::Type;
use namewall_expression::{Fact, Outcome};
use std::io;
use std::path::{Path, PathBuf};

#[derive(Debug)]
pub struct Settings {
    /// Of the engine, in messages.
    pub name: String,
    pub source: Source,
    /// `attr NAME LABEL [TYPE]`: sent with every query, where the fact is set. One of a name that is
    /// sent anyway takes its place.
    pub attributes: Vec<AttributeSetting>,
    /// Obligations on a query that are sent with its responses. They come back as the facts
    /// [`Fact::Label`] of their names.
    pub transfer: Vec<String>,
    /// What is said where the engine fails; `None`: that it failed.
    pub on_error: Option<Outcome>,
    /// Which instance this is, in traces.
    pub debug_id: Option<String>,
    /// Of servers' answers; what is decided in process needs none.
    pub cache: Option<CacheSettings>,
    pub max_request_size: usize,
    /// `usize::MAX` for `auto`.
    pub max_response_attributes: usize,
}

impl Settings {
    /// With Themis' defaults.
    pub fn new(name: &str, source: Source) -> Self {
        Self {
            name: name.to_owned(),
            source,
            attributes: Vec::new(),
            transfer: Vec::new(),
            on_error: None,
            debug_id: None,
            cache: None,
            max_request_size: 10 << 10,
            max_response_attributes: 64,
        }
    }
}

#[derive(Clone, Debug)]
pub struct AttributeSetting {
    pub name: String,
    pub fact: Fact,
    pub kind: Type,
}

/// Who decides.
#[derive(Debug)]
pub enum Source {
    /// Servers.
    Remote(RemoteSettings),
    /// These files, in process: `pdp POLICY CONTENT…`.
    Files { policy: PathBuf, contents: Vec<PathBuf> },
    /// What was read already.
    Policies(Policies),
}

/// Why an engine cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("{}: {source}", path.display())]
    File { path: PathBuf, source: io::Error },
    #[error(transparent)]
    Policy(#[from] PolicyError),
    #[error("`{0}` is no server; write HOST:PORT")]
    Endpoint(String),
    #[error("there is no server to ask")]
    NoEndpoint,
    #[error("its thread cannot start: {0}")]
    Thread(io::Error),
}

pub(super) fn read_files(policy: &Path, contents: &[PathBuf]) -> Result<Policies, StartError> {
    let read = |path: &Path| match std::fs::read_to_string(path) {
        Ok(text) => Ok((path.display().to_string(), text)),
        Err(source) => Err(StartError::File { path: path.to_owned(), source }),
    };
    let (name, text) = read(policy)?;
    let contents: Vec<(String, String)> = contents.iter().map(|path| read(path)).collect::<Result<_, _>>()?;
    let files: Vec<File<'_>> = contents.iter().map(|(name, text)| File { name, text }).collect();
    Ok(Policies::read(File { name: &name, text: &text }, &files)?)
}

/// `HOST:PORT`, an IPv6 address in brackets.
pub(super) fn check_endpoints(settings: &RemoteSettings) -> Result<(), StartError> {
    if settings.endpoints.is_empty() {
        return Err(StartError::NoEndpoint);
    }
    let is_endpoint = |text: &String| {
        let authority = text.parse::<http::uri::Authority>().ok();
        authority.is_some_and(|authority| authority.port_u16().is_some() && !authority.host().is_empty())
    };
    match settings.endpoints.iter().find(|text| !is_endpoint(text)) {
        Some(text) => Err(StartError::Endpoint(text.clone())),
        None => Ok(()),
    }
}
