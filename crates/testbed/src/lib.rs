//! A real control plane of Kubernetes on loopback, for tests: etcd and an API
//! server as they are, with certificates, users and a folder of their own.
//! Nothing of it is left when it is dropped. Where a test has namespaces of its
//! own, there are `machine`s on a network beside it, and a `node` can be one.
//! `dice` makes the random choices of tests that generate their input.
//!
//! `scripts/peers/kubernetes` builds the programs; `tools` finds these and others.

mod certificates;
mod command;
mod dice;
mod front;
mod machine;
mod mmdb;
mod node;
mod process;
mod proxy;
mod tools;

pub use command::{output_with_input, run_with_input};
pub use dice::Dice;
pub use front::{Front, Refusal};
pub use mmdb::Mmdb;
pub use proxy::{Proxy, ProxyMode};
pub use tools::{give_up, peer, program};

pub use machine::{Lan, Machine};
pub use node::{Node, NodeSettings};

use anyhow::{Context, Result, bail, ensure};
pub use process::Process;
use serde_json::Value;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// How long an API server may take to be ready on a busy machine.
const API_SERVER_TIMEOUT: Duration = Duration::from_secs(180);
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Where the Service `kubernetes` leads. The API server refuses to name a loopback address there.
pub(crate) const ADVERTISED: &str = "192.0.2.1";
const ADMIN: &str = "admin-of-the-testbed";
const SCHEDULER: &str = "scheduler-of-the-testbed";

/// Whom the API server serves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Clients {
    /// Tests on this machine, which are kubelet and scheduler themselves.
    Loopback,
    /// Nodes that are there, each with its own rights.
    Nodes,
}

/// etcd and an API server.
#[derive(Debug)]
pub struct ControlPlane {
    programs: PathBuf,
    folder: PathBuf,
    clients: Clients,
    etcd_port: u16,
    port: u16,
    etcd: Option<Process>,
    server: Option<Process>,
    manager: Option<Process>,
    scheduler: Option<Process>,
}

impl Drop for ControlPlane {
    fn drop(&mut self) {
        // The server first: it complains at length about an etcd that is gone.
        (self.scheduler, self.manager, self.server, self.etcd) = (None, None, None, None);
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

impl ControlPlane {
    /// Starts both, and waits until the server is ready.
    pub fn start() -> Result<Self> {
        Self::start_for(Clients::Loopback)
    }

    /// The same with controllers and a scheduler, at all addresses of a network that is the test's own: for nodes.
    pub fn start_for_nodes() -> Result<Self> {
        let mut plane = Self::start_for(Clients::Nodes)?;
        plane.start_manager()?;
        let kubeconfig = plane.kubeconfig_for("scheduler", SCHEDULER)?;
        let mut scheduler = Command::new(programs(&["kube-scheduler"]).join("kube-scheduler"));
        scheduler.arg(format!("--kubeconfig={}", kubeconfig.display()));
        scheduler.args(["--secure-port=0", "--leader-elect=false"]);
        plane.scheduler = Some(Process::start(scheduler, &plane.folder.join("scheduler.log"))?);
        Ok(plane)
    }

    fn start_for(clients: Clients) -> Result<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("namewall-testbed-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder)?;
        certificates::write(&folder)?;
        let mut tokens = format!("{ADMIN},admin,1,system:masters\n{SCHEDULER},system:kube-scheduler,2\n");
        for name in node::NAMES {
            let [kubelet, proxy] = node::tokens(name);
            tokens += &format!("{kubelet},system:node:{name},kubelet-{name},system:nodes\n");
            tokens += &format!("{proxy},system:kube-proxy,proxy-{name}\n");
        }
        std::fs::write(folder.join("tokens"), tokens)?;
        let mut plane = Self {
            programs: programs(&["etcd", "kube-apiserver", "kubectl"]),
            etcd_port: free_port()?,
            port: free_port()?,
            folder,
            clients,
            etcd: None,
            server: None,
            manager: None,
            scheduler: None,
        };
        plane.write_kubeconfig("kubeconfig", ADMIN, plane.port)?;
        plane.start_etcd()?;
        plane.start_server()?;
        Ok(plane)
    }

    fn start_etcd(&mut self) -> Result<()> {
        let at = format!("http://127.0.0.1:{}", self.etcd_port);
        let mut etcd = Command::new(self.programs.join("etcd"));
        etcd.arg("--data-dir").arg(self.folder.join("etcd")).args(["--log-level", "error", "--unsafe-no-fsync"]);
        etcd.args(["--listen-client-urls", &at, "--advertise-client-urls", &at]);
        etcd.args(["--listen-peer-urls", "http://127.0.0.1:0"]);
        self.etcd = Some(Process::start(etcd, &self.folder.join("etcd.log"))?);
        Ok(())
    }

    /// Starts the API server, and waits until it is ready.
    pub fn start_server(&mut self) -> Result<()> {
        self.launch_server()?;
        let began = Instant::now();
        while !self.is_ready()? {
            ensure!(began.elapsed() < API_SERVER_TIMEOUT, "the API server is never ready:\n{}", self.log("server.log"));
            std::thread::sleep(LOOK_EVERY);
        }
        Ok(())
    }

    /// Starts the API server, and does not wait for it.
    pub fn launch_server(&mut self) -> Result<()> {
        let file = |name: &str| self.folder.join(name).display().to_string();
        let mut server = Command::new(self.programs.join("kube-apiserver"));
        server
            .arg(format!("--etcd-servers=http://127.0.0.1:{}", self.etcd_port))
            .arg(format!("--advertise-address={ADVERTISED}"))
            .arg(format!("--secure-port={}", self.port))
            .arg(format!("--tls-cert-file={}", file("server.crt")))
            .arg(format!("--tls-private-key-file={}", file("server.key")))
            .arg(format!("--token-auth-file={}", file("tokens")))
            .arg("--service-account-issuer=https://kubernetes.default.svc")
            .arg(format!("--service-account-key-file={}", file("accounts.pub")))
            .arg(format!("--service-account-signing-key-file={}", file("accounts.key")))
            .arg("--allow-privileged=true");
        match self.clients {
            // Pods are made here without the accounts that a controller would make.
            Clients::Loopback => {
                server.arg("--service-cluster-ip-range=10.96.0.0/16");
                server.args(["--bind-address=127.0.0.1", "--authorization-mode=RBAC"]);
                server.arg("--disable-admission-plugins=ServiceAccount");
            }
            Clients::Nodes => {
                server.arg("--service-cluster-ip-range=10.96.0.0/16,fd00:10:96::/112");
                server.args(["--bind-address=0.0.0.0", "--authorization-mode=Node,RBAC"]);
                server.args([
                    "--enable-admission-plugins=NodeRestriction",
                    "--kubelet-preferred-address-types=InternalIP",
                ]);
            }
        }
        self.server = Some(Process::start(server, &self.folder.join("server.log"))?);
        Ok(())
    }

    /// Whether the API server that was launched is ready. An error if it has ended.
    pub fn is_ready(&mut self) -> Result<bool> {
        if self.kubectl(&["get", "--raw", "/readyz"]).is_ok_and(|said| said.trim() == "ok") {
            return Ok(true);
        }
        let process = self.server.as_mut().context("it was started")?;
        ensure!(process.is_alive(), "the API server has ended:\n{}", self.log("server.log"));
        Ok(false)
    }

    /// The API server is gone, from one moment to the next.
    pub fn kill_server(&mut self) {
        self.server = None;
    }

    /// etcd forgets all that was before now, and an API server that starts after this with it.
    pub fn compact(&self) -> Result<()> {
        let at = |path: &str, body: &str| -> Result<Value> {
            let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.etcd_port))?;
            let length = body.len();
            write!(stream, "POST {path} HTTP/1.0\r\nContent-Length: {length}\r\n\r\n{body}")?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer)?;
            let (_, body) = answer.split_once("\r\n\r\n").context("etcd answers without a body")?;
            serde_json::from_str(body.trim()).with_context(|| format!("etcd answers {answer}"))
        };
        let last = at("/v3/kv/range", r#"{"key": "AA=="}"#)?;
        let revision = last["header"]["revision"].as_str().context("etcd says no revision")?;
        let done = at("/v3/kv/compaction", &format!(r#"{{"revision": "{revision}", "physical": true}}"#))?;
        ensure!(done["header"].is_object(), "etcd does not compact: {done}");
        Ok(())
    }

    /// Starts the controllers that a cluster has: endpoints, garbage, accounts.
    pub fn start_manager(&mut self) -> Result<()> {
        let kubeconfig = self.kubeconfig().display().to_string();
        let mut manager = Command::new(programs(&["kube-controller-manager"]).join("kube-controller-manager"));
        manager
            .arg(format!("--kubeconfig={kubeconfig}"))
            .arg(format!("--service-account-private-key-file={}", self.folder.join("accounts.key").display()))
            .args(["--secure-port=0", "--leader-elect=false", "--use-service-account-credentials=false"]);
        if self.clients == Clients::Nodes {
            // Pods check the API server by it.
            manager.arg(format!("--root-ca-file={}", self.folder.join("authority.crt").display()));
        }
        self.manager = Some(Process::start(manager, &self.folder.join("manager.log"))?);
        Ok(())
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// The administrator's.
    pub fn kubeconfig(&self) -> PathBuf {
        self.folder.join("kubeconfig")
    }

    /// One for whoever has this token.
    pub fn kubeconfig_for(&self, name: &str, token: &str) -> Result<PathBuf> {
        self.write_kubeconfig(name, token, self.port)?;
        Ok(self.folder.join(name))
    }

    /// The administrator's, for a server that is reached at another port.
    pub(crate) fn kubeconfig_at(&self, port: u16) -> Result<PathBuf> {
        let name = format!("kubeconfig-{port}");
        self.write_kubeconfig(&name, ADMIN, port)?;
        Ok(self.folder.join(name))
    }

    fn write_kubeconfig(&self, name: &str, token: &str, port: u16) -> Result<()> {
        let server = match self.clients {
            Clients::Loopback => "127.0.0.1",
            Clients::Nodes => ADVERTISED,
        };
        let authority = self.folder.join("authority.crt");
        let text = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: testbed\n\
             clusters: [{{name: testbed, cluster: {{server: \"https://{server}:{}\", certificate-authority: {}}}}}]\n\
             users: [{{name: testbed, user: {{token: \"{token}\"}}}}]\n\
             contexts: [{{name: testbed, context: {{cluster: testbed, user: testbed}}}}]\n",
            port,
            authority.display(),
        );
        Ok(std::fs::write(self.folder.join(name), text)?)
    }

    /// kubectl, for whoever needs it in another way than as below.
    pub fn kubectl_program(&self) -> PathBuf {
        self.programs.join("kubectl")
    }

    /// Runs kubectl as the administrator.
    pub fn kubectl(&self, arguments: &[&str]) -> Result<String> {
        self.kubectl_with(arguments, "")
    }

    /// The same, with something on its standard input.
    pub fn kubectl_with(&self, arguments: &[&str], input: &str) -> Result<String> {
        let mut kubectl = Command::new(self.programs.join("kubectl"));
        kubectl.arg(format!("--kubeconfig={}", self.kubeconfig().display())).args(arguments).env("HOME", &self.folder);
        let output = command::output_with_input(&mut kubectl, input)?;
        let complaint = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "kubectl {}: {complaint}", arguments.join(" "));
        Ok(String::from_utf8(output.stdout)?)
    }

    /// Makes or changes objects, as they are written.
    pub fn apply(&self, manifests: &str) -> Result<()> {
        self.kubectl_with(&["apply", "--server-side", "--force-conflicts", "-f", "-"], manifests).map(drop)
    }

    /// An object as JSON.
    pub fn get(&self, arguments: &[&str]) -> Result<Value> {
        let told = self.kubectl(&[&["get", "-o", "json"], arguments].concat())?;
        Ok(serde_json::from_str(&told)?)
    }

    /// A pod that runs on a node, as a kubelet would tell of it.
    pub fn run_pod(&self, manifest: &str, address: &str) -> Result<()> {
        let made = self.kubectl_with(&["create", "-o", "json", "-f", "-"], manifest)?;
        let pod: Value = serde_json::from_str(&made)?;
        let text = |key: &str| pod["metadata"][key].as_str().unwrap_or_default().to_owned();
        let status = serde_json::json!({"status": {
            "phase": "Running", "podIP": address, "podIPs": [{"ip": address}],
        }});
        let (name, namespace) = (text("name"), text("namespace"));
        let patch = status.to_string();
        let patched = ["patch", "pod", &name, "-n", &namespace, "--subresource=status", "--type=merge", "-p", &patch];
        self.kubectl(&patched).map(drop)
    }

    /// Where everything of it is, also what its programs say: `server.log`, `manager.log`, `scheduler.log`.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    fn log(&self, name: &str) -> String {
        std::fs::read_to_string(self.folder.join(name)).unwrap_or_default()
    }
}

/// The folder of these programs.
pub(crate) fn programs(wanted: &[&str]) -> PathBuf {
    tools::peer_programs("kubernetes", wanted)
}

/// A free port below those the kernel gives to who asks for any: none is taken in the moment before it is used.
fn free_port() -> Result<u16> {
    const FIRST: u32 = 5_000;
    const COUNT: u32 = 4_900;
    static NEXT: AtomicU32 = AtomicU32::new(0);
    for _ in 0..COUNT {
        // Processes that run at the same time begin far from each other.
        let next = std::process::id().wrapping_mul(7_919).wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed));
        let port = (FIRST + next % COUNT) as u16;
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return Ok(port);
        }
    }
    bail!("no port is free")
}
