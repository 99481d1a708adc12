//! Where Kubernetes' API is, and how it is asked.

use crate::http::{ServerUrl, TlsError, TlsFiles};
use namewall_policy::domain::DomainName;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

/// The settings of [`super::Rbac`].
#[derive(Clone, PartialEq, Debug)]
pub struct RbacSettings {
    /// Of the API server; its path is what all of its own begin with.
    pub server: ServerUrl,
    pub tls: Option<TlsFiles>,
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

/// Why the API server cannot be asked.
#[derive(Debug, thiserror::Error)]
pub enum RbacError {
    #[error("this is no pod of a cluster: {variable} {problem}; write `endpoint URL` in `kubernetes`")]
    NoCluster { variable: &'static str, problem: &'static str },
    #[error(transparent)]
    Tls(#[from] TlsError),
}

/// What every pod is given.
const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
const REVIEWS: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";

impl RbacSettings {
    /// Of a server, with what holds unless it is said otherwise.
    pub fn at(server: ServerUrl) -> Self {
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

    /// The API server of the cluster that this process is a pod of. `environment` gives the variables.
    pub fn in_cluster(environment: &dyn Fn(&str) -> Option<String>) -> Result<Self, RbacError> {
        let get = |variable| environment(variable).ok_or(RbacError::NoCluster { variable, problem: "is not set" });
        let bad = |variable, problem| RbacError::NoCluster { variable, problem };
        let (host, port) = ("KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT");
        let written = get(host)?;
        let at = match written.parse::<IpAddr>() {
            Ok(IpAddr::V6(address)) => format!("[{address}]"),
            Ok(address) => address.to_string(),
            Err(_) => written.parse::<DomainName>().map_err(|_| bad(host, "is no host"))?.to_string(),
        };
        let port: u16 = get(port)?.parse().map_err(|_| bad(port, "is no port"))?;
        let server = ServerUrl { is_tls: true, host_port: format!("{at}:{port}"), path: "/".into() };
        let file = |name: &str| Some(PathBuf::from(SERVICE_ACCOUNT).join(name));
        let tls = Some(TlsFiles { client: None, authority: file("ca.crt") });
        Ok(Self { tls, token: file("token"), ..Self::at(server) })
    }

    pub(super) fn review_url(&self) -> ServerUrl {
        let path = format!("{}{REVIEWS}", self.server.path.trim_end_matches('/'));
        ServerUrl { path, ..self.server.clone() }
    }
}
