//! Engines as a Corefile configures them.

use namewall_corefile::{
    AttributeKind, Balance, HttpUrl, Kubernetes, Opa, OpaAt, OpaField, Patience, Themis, ThemisAt, Tls,
};
use namewall_engines::Engine;
use namewall_engines::http::{ServerUrl, TlsFiles};
use namewall_engines::opa::{InputField, OpaEngine, OpaError, OpaSettings, OpaSource, RegoFiles};
use namewall_engines::rbac::{Rbac, RbacError, RbacSettings};
use namewall_engines::themis::remote::{self, RemoteSettings};
use namewall_engines::themis::{self, AttributeSetting, CacheSettings, Settings, Source, StartError, ThemisEngine};
use std::sync::Arc;
use std::time::Duration;

/// Without a bound of its own the cache of an engine holds so much.
const CACHE_MEGABYTES: usize = 16;
/// Nobody waits longer for a server to come up: clients give up long before.
const LONGEST_WAIT: Duration = Duration::from_secs(2);

pub(crate) fn themis(name: &str, themis: &Themis) -> Result<Arc<dyn Engine>, StartError> {
    let source = match &themis.at {
        ThemisAt::Here { policy, content } => Source::Files { policy: policy.clone(), contents: content.clone() },
        ThemisAt::Remote(servers) => {
            let mut remote = RemoteSettings::of(servers.iter().map(ToString::to_string));
            remote.streams = themis.streams.map_or(remote.streams, |streams| streams as usize);
            remote.balance = match themis.balance {
                Balance::RoundRobin => remote::Balance::RoundRobin,
                Balance::HotSpot => remote::Balance::HotSpot,
            };
            remote.connection_timeout = match themis.connection_timeout {
                Patience::Forever => LONGEST_WAIT,
                Patience::For(time) => time.min(LONGEST_WAIT),
            };
            remote.request_timeout = themis.timeout.unwrap_or(remote.request_timeout);
            Source::Remote(remote)
        }
    };
    let mut settings = Settings::new(name, source);
    settings.attributes = themis
        .attributes
        .iter()
        .map(|attribute| AttributeSetting {
            name: attribute.name.to_string(),
            fact: attribute.fact.clone(),
            kind: match attribute.kind {
                AttributeKind::String => themis::Type::String,
                AttributeKind::Domain => themis::Type::Domain,
                AttributeKind::Address => themis::Type::Address,
            },
        })
        .collect();
    settings.transfer = themis.transfer.iter().map(ToString::to_string).collect();
    settings.debug_id = themis.debug.id.as_ref().map(ToString::to_string);
    settings.cache = themis.cache.map(|cache| CacheSettings {
        ttl: cache.ttl,
        bytes: cache.megabytes.map_or(CACHE_MEGABYTES, |megabytes| megabytes as usize) << 20,
    });
    settings.max_request_size = themis.max_request_size.map_or(settings.max_request_size, |size| size as usize);
    settings.max_response_attributes = themis.max_response_attributes.map_or(usize::MAX, |most| most as usize);
    Ok(Arc::new(ThemisEngine::start(settings)?))
}

pub(crate) fn opa(opa: &Opa) -> Result<Arc<dyn Engine>, OpaError> {
    let at = match &opa.at {
        OpaAt::Remote { url, tls } => OpaSource::Server { url: server_url(url), tls: tls.as_ref().map(tls_files) },
        OpaAt::Here { policies, data, query, is_v0 } => OpaSource::Files(RegoFiles {
            policies: policies.clone(),
            data: data.clone(),
            query: query.clone(),
            is_v0: *is_v0,
        }),
    };
    let field = |field: &OpaField| InputField { name: field.name.clone(), fact: field.fact.clone() };
    let fields = opa.fields.iter().map(field).collect();
    let settings = OpaSettings { at, fields, timeout: opa.timeout, concurrency: opa.concurrency };
    Ok(Arc::new(OpaEngine::start(&settings)?))
}

/// Why `kubernetes rbac` cannot be asked.
#[derive(Debug, thiserror::Error)]
pub(crate) enum KubernetesError {
    #[error("`kubernetes rbac` does not read a kubeconfig; write `endpoint URL` and `tls CERT KEY CA` instead")]
    Kubeconfig,
    #[error(transparent)]
    Rbac(#[from] RbacError),
}

/// The engine behind `kubernetes rbac`.
pub(crate) fn rbac(
    kubernetes: &Kubernetes,
    environment: &dyn Fn(&str) -> Option<String>,
) -> Result<Arc<dyn Engine>, KubernetesError> {
    Ok(Arc::new(Rbac::start(&rbac_settings(kubernetes, environment)?)?))
}

/// The API server at the endpoint of the directive, or of the cluster that this process is a pod of.
fn rbac_settings(
    kubernetes: &Kubernetes,
    environment: &dyn Fn(&str) -> Option<String>,
) -> Result<RbacSettings, KubernetesError> {
    match &kubernetes.endpoint {
        _ if kubernetes.kubeconfig.is_some() => Err(KubernetesError::Kubeconfig),
        Some(server) => {
            let tls = kubernetes.tls.as_ref().map(tls_files);
            Ok(RbacSettings { tls, ..RbacSettings::at(server_url(server)) })
        }
        None => Ok(RbacSettings::in_cluster(environment)?),
    }
}

fn server_url(url: &HttpUrl) -> ServerUrl {
    ServerUrl { is_tls: url.is_tls, host_port: url.at.to_string(), path: url.path.to_string() }
}

pub(crate) fn tls_files(tls: &Tls) -> TlsFiles {
    TlsFiles { client: tls.client.clone(), authority: tls.authority.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use namewall_corefile::{NoFiles, read};

    #[test]
    fn rbac_asks_the_endpoint_of_the_corefile_or_the_cluster_of_the_pod() {
        let kubernetes = |options: &str| {
            let rules = "firewall query {\n kubernetes rbac\n default block\n}";
            let text = format!(". {{\n kubernetes {{\n{options}\n}}\n {rules}\n}}");
            read("Corefile", &text, &NoFiles, &|_| None).unwrap().servers[0].kubernetes.clone().unwrap()
        };
        let environment = |variable: &str| match variable {
            "KUBERNETES_SERVICE_HOST" => Some("fd00::1".to_owned()),
            "KUBERNETES_SERVICE_PORT" => Some("443".to_owned()),
            _ => None,
        };
        let inside = rbac_settings(&kubernetes(""), &environment).unwrap();
        assert_eq!(inside.server.to_string(), "https://[fd00::1]:443/");
        assert!(inside.token.is_some() && inside.tls.is_some());
        let error = rbac_settings(&kubernetes(""), &|_| None).unwrap_err().to_string();
        assert!(error.contains("KUBERNETES_SERVICE_HOST is not set"), "{error}");
        let endpoint = "endpoint https://api.example:6443/k8s/";
        let outside = rbac_settings(&kubernetes(endpoint), &|_| None).unwrap();
        assert_eq!(outside.server.to_string(), "https://api.example:6443/k8s/");
        assert!(rbac_settings(&kubernetes("kubeconfig x"), &environment).is_err());
    }
}
