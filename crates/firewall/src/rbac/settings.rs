//! Where Kubernetes' API is, and how it is asked.

use crate::corefile::{Host, HostPort, HttpUrl, Kubernetes, Tls};
use crate::http::TlsError;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

#[derive(Clone, PartialEq, Debug)]
pub struct RbacSettings {
    /// Of the API server; its path is what all of its own begin with.
    pub server: HttpUrl,
    pub tls: Option<Tls>,
    /// The file of the token that says who asks.
    pub token: Option<PathBuf>,
    pub timeout: Duration,
    /// How many questions may be under way.
    pub concurrency: u32,
    /// How long an answer is kept.
    pub ttl: Duration,
    /// How many are.
    pub most_kept: usize,
}

#[derive(Debug, thiserror::Error)]
pub enum RbacError {
    #[error("this is no pod of a cluster: {variable} {problem}; write `endpoint URL` in `kubernetes`")]
    NoCluster { variable: &'static str, problem: &'static str },
    #[error("`kubernetes rbac` does not read a kubeconfig; write `endpoint URL` and `tls CERT KEY CA` instead")]
    Kubeconfig,
    #[error(transparent)]
    Tls(#[from] TlsError),
}

/// What every pod is given.
const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
const REVIEWS: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";

impl RbacSettings {
    /// Of a server, with what holds unless it is said otherwise.
    pub fn at(server: HttpUrl) -> Self {
        Self {
            server,
            tls: None,
            token: None,
            timeout: Duration::from_secs(1),
            concurrency: 32,
            ttl: Duration::from_secs(30),
            most_kept: 10_000,
        }
    }

    /// As `kubernetes { … }` says it: its endpoint, or the cluster this is a pod of. The environment is
    /// asked for variables.
    pub fn of(kubernetes: &Kubernetes, environment: &dyn Fn(&str) -> Option<String>) -> Result<Self, RbacError> {
        match &kubernetes.endpoint {
            _ if kubernetes.kubeconfig.is_some() => Err(RbacError::Kubeconfig),
            Some(server) => Ok(Self { tls: kubernetes.tls.clone(), ..Self::at(server.clone()) }),
            None => Self::in_cluster(environment),
        }
    }

    fn in_cluster(environment: &dyn Fn(&str) -> Option<String>) -> Result<Self, RbacError> {
        let get = |variable| environment(variable).ok_or(RbacError::NoCluster { variable, problem: "is not set" });
        let bad = |variable, problem| RbacError::NoCluster { variable, problem };
        let (host, port) = ("KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT");
        let written = get(host)?;
        let address = written.parse::<IpAddr>().map(Host::Address);
        let at = address.or_else(|_| written.parse().map(Host::Name)).map_err(|_| bad(host, "is no host"))?;
        let port = get(port)?.parse().map_err(|_| bad(port, "is no port"))?;
        let server = HttpUrl { is_tls: true, at: HostPort { host: at, port }, path: "/".into() };
        let file = |name: &str| Some(PathBuf::from(SERVICE_ACCOUNT).join(name));
        let tls = Some(Tls { client: None, authority: file("ca.crt") });
        Ok(Self { tls, token: file("token"), ..Self::at(server) })
    }

    pub(super) fn review_url(&self) -> HttpUrl {
        let path = format!("{}{REVIEWS}", self.server.path.trim_end_matches('/'));
        HttpUrl { path: path.into(), ..self.server.clone() }
    }
}
