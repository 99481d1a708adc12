//! Which files a Corefile's settings name, besides itself and what it imports: what serves it reads them,
//! so a change of one is a change of it.

use crate::directives::{OpaAt, ThemisAt, Upstream};
use crate::{ConfiguredEngine, Corefile, ServerBlock, Tls};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A file that is read when a Corefile is served.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NamedFile {
    pub path: PathBuf,
    /// How often it is looked at, where that is said of this file; else as often as the Corefile.
    pub every: Option<Duration>,
}

impl Corefile {
    /// Every file that is named, but for those that are said to be read once.
    pub fn named_files(&self) -> Vec<NamedFile> {
        self.servers.iter().flat_map(of_block).collect()
    }
}

fn of_block(server: &ServerBlock) -> Vec<NamedFile> {
    let mut all: Vec<NamedFile> = server.engines.iter().flat_map(|settings| of_engine(&settings.engine)).collect();
    for forward in &server.forwards {
        all.extend(of_tls(&forward.tls));
        all.extend(forward.to.iter().filter_map(|upstream| match upstream {
            Upstream::File(path) => Some(named(path)),
            Upstream::Plain(_) | Upstream::Tls(..) | Upstream::Https { .. } => None,
        }));
    }
    if let Some(tls) = &server.tls {
        all.extend([&tls.certificate, &tls.key].into_iter().chain(&tls.authority).map(|path| named(path)));
    }
    if let Some(kubernetes) = &server.kubernetes {
        all.extend(kubernetes.tls.iter().flat_map(of_tls));
        all.extend(kubernetes.kubeconfig.iter().map(|kubeconfig| named(&kubeconfig.file)));
    }
    all.extend(server.geoip.iter().map(|database| named(&database.file)));
    let hosts = server.hosts.iter().map(|hosts| (&hosts.file, hosts.reload));
    let zones = server.files.iter().map(|zone| (&zone.file, zone.reload));
    let with_own = hosts.chain(zones).filter_map(|(path, every)| Some((path, every?)));
    all.extend(with_own.map(|(path, every)| NamedFile { every: Some(every), ..named(path) }));
    all
}

fn of_engine(engine: &ConfiguredEngine) -> Vec<NamedFile> {
    match engine {
        ConfiguredEngine::Expression => Vec::new(),
        ConfiguredEngine::Opa(opa) => match &opa.at {
            OpaAt::Remote { tls, .. } => tls.iter().flat_map(of_tls).collect(),
            OpaAt::Here { policies, data, .. } => policies.iter().chain(data).map(|path| named(path)).collect(),
        },
        ConfiguredEngine::Themis(themis) => match &themis.at {
            ThemisAt::Remote(_) => Vec::new(),
            ThemisAt::Here { policy, content } => [policy].into_iter().chain(content).map(|path| named(path)).collect(),
        },
    }
}

fn of_tls(tls: &Tls) -> Vec<NamedFile> {
    let client = tls.client.iter().flat_map(|(certificate, key)| [certificate, key]);
    client.chain(&tls.authority).map(|path| named(path)).collect()
}

fn named(path: &Path) -> NamedFile {
    NamedFile { path: path.to_owned(), every: None }
}
