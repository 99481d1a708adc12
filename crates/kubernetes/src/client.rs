//! How the API server is reached.

use crate::environment::{Environment, Lifeline, Patience};
use crate::metrics::Requests;
use crate::server::KubeServer;
use http::Response;
use kube::client::{ClientBuilder, DynBody};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use namewall_cluster::digest;
use namewall_runtime::{BoxFuture, Clock, SeededRandom, SystemClock, Tasks};
use serde_json::json;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::{Handle, Runtime};
use tower::BoxError;
use tower::util::MapResultLayer;

/// How long a connection may take to come about, and the answer to a request that is no watch.
const CONNECT: Duration = Duration::from_secs(5);
const ANSWER: Duration = Duration::from_secs(5);
/// The same for watches, which nobody waits for.
const CONNECT_SLOWLY: Duration = Duration::from_secs(15);

/// Which API server, as whom.
#[derive(Clone, Debug, Default)]
pub struct Target {
    /// A kubeconfig file; without one `KUBECONFIG`, `~/.kube/config`, or the service account of a pod.
    pub kubeconfig: Option<PathBuf>,
    /// A context of it; without one the current.
    pub context: Option<String>,
}

/// An API server that is named by its address.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Endpoint {
    /// Like `https://10.96.0.1:443`.
    pub url: String,
    /// Files with the client's certificate and its key.
    pub client: Option<(PathBuf, PathBuf)>,
    /// A file with the certificate of the server's authority.
    pub authority: Option<PathBuf>,
}

/// Their causes are part of the words, not behind them: who prints a chain would print each twice.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    #[error("cannot start the thread that speaks to the API server: {0}")]
    Runtime(std::io::Error),
    #[error("cannot read {file}: {why}")]
    Kubeconfig { file: String, why: kube::config::KubeconfigError },
    #[error("it is not known which API server to ask; say it with --kubeconfig ({0})")]
    Unknown(kube::config::InferConfigError),
    #[error("cannot make a client: {0}")]
    Client(kube::Error),
}

/// An API server, and the runtime that requests to it run on.
#[derive(Clone, Debug)]
pub struct Connection {
    runtime: Arc<Runtime>,
    environment: Environment,
    server: String,
    cluster: String,
}

impl Lifeline for Runtime {}

/// Tasks on a thread with tokio.
#[derive(Debug)]
struct TokioTasks(Handle);

impl Tasks for TokioTasks {
    fn spawn(&self, task: BoxFuture<()>) {
        self.0.spawn(task);
    }

    fn sleep(&self, time: Duration) -> BoxFuture<()> {
        // Tokio's timers are made where they are waited for.
        Box::pin(async move { tokio::time::sleep(time).await })
    }
}

impl Connection {
    /// Says nothing to the server yet.
    pub fn open(target: &Target) -> Result<Self, ConnectError> {
        Self::open_with(configure(target))
    }

    /// The same for a server that is named by its address.
    pub fn open_at(endpoint: &Endpoint) -> Result<Self, ConnectError> {
        Self::open_with(configure_at(endpoint))
    }

    fn open_with(config: impl Future<Output = Result<Config, ConnectError>>) -> Result<Self, ConnectError> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("kubernetes")
            .enable_all()
            .build()
            .map_err(ConnectError::Runtime)?;
        let mut config = runtime.block_on(config)?;
        config.connect_timeout = Some(CONNECT_SLOWLY);
        let server = config.cluster_url.to_string();
        // Inside of every cluster the server has the same address; its authority is the cluster's own.
        let authority = digest(&config.root_cert.iter().flatten().flatten().copied().collect::<Vec<u8>>());
        let cluster = format!("cluster {server} {authority}");
        let inside = runtime.enter();
        let requests = Arc::default();
        let watching = counted(config.clone(), &requests)?;
        config.connect_timeout = Some(CONNECT);
        (config.read_timeout, config.write_timeout) = (Some(ANSWER), Some(ANSWER));
        let client = counted(config, &requests)?;
        drop(inside);
        let runtime = Arc::new(runtime);
        let environment = Environment {
            api: Arc::new(KubeServer { watching, client }),
            clock: Arc::new(SystemClock::start()),
            random: Arc::new(SeededRandom::from_system()),
            tasks: Arc::new(TokioTasks(runtime.handle().clone())),
            patience: Patience::default(),
            requests,
            lifeline: Some(runtime.clone()),
        };
        Ok(Self { runtime, environment, server, cluster })
    }

    /// For tests: watches that say nothing for so long are given up, and answers that take three times as long.
    pub fn impatient(mut self, silence: Duration) -> Self {
        self.environment.patience = Patience { answer: silence * 3, silence };
        self
    }

    /// With another clock than the system's.
    pub fn with_clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.environment.clock = clock;
        self
    }

    /// The server's address, as users know it.
    pub fn server(&self) -> &str {
        &self.server
    }

    /// What tells this cluster from others, as far as it is known before the server has answered.
    pub fn cluster(&self) -> &str {
        &self.cluster
    }

    pub fn environment(&self) -> &Environment {
        &self.environment
    }

    /// Runs a future in this thread, which waits for it.
    pub fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime.block_on(future)
    }
}

/// A client whose requests are counted.
fn counted(config: Config, requests: &Arc<Requests>) -> Result<Client, ConnectError> {
    let requests = requests.clone();
    let count = move |answer: Result<Response<Box<DynBody>>, BoxError>| {
        requests.count(answer.as_ref().ok().map(|answer| answer.status().as_u16()));
        answer
    };
    let builder = ClientBuilder::try_from(config).map_err(ConnectError::Client)?;
    Ok(builder.with_layer(&MapResultLayer::new(count)).build())
}

/// As a kubeconfig would say it, so that files are read and checked as for one.
async fn configure_at(endpoint: &Endpoint) -> Result<Config, ConnectError> {
    let mut cluster = json!({"server": endpoint.url});
    let mut user = json!({});
    if let Some(authority) = &endpoint.authority {
        cluster["certificate-authority"] = authority.display().to_string().into();
    }
    if let Some((certificate, key)) = &endpoint.client {
        user =
            json!({"client-certificate": certificate.display().to_string(), "client-key": key.display().to_string()});
    }
    let unusable = |why| ConnectError::Kubeconfig { file: endpoint.url.clone(), why };
    let written = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "endpoint", "cluster": cluster}],
        "users": [{"name": "endpoint", "user": user}],
        "contexts": [{"name": "endpoint", "context": {"cluster": "endpoint", "user": "endpoint"}}],
        "current-context": "endpoint",
    });
    let read = Kubeconfig::from_yaml(&written.to_string()).map_err(unusable)?;
    Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await.map_err(unusable)
}

async fn configure(target: &Target) -> Result<Config, ConnectError> {
    let options = KubeConfigOptions { context: target.context.clone(), ..KubeConfigOptions::default() };
    let Some(file) = &target.kubeconfig else {
        if target.context.is_none() {
            return Config::infer().await.map_err(ConnectError::Unknown);
        }
        let unreadable = |why| ConnectError::Kubeconfig { file: "the kubeconfig".to_owned(), why };
        return Config::from_kubeconfig(&options).await.map_err(unreadable);
    };
    let unreadable = |why| ConnectError::Kubeconfig { file: file.display().to_string(), why };
    let read = Kubeconfig::read_from(file).map_err(unreadable)?;
    Config::from_custom_kubeconfig(read, &options).await.map_err(unreadable)
}
