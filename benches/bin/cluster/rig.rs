//! Two nodes of a sandbox with a pod and an agent each, whose cluster a real API
//! server has: what `nodes` and `events` measure in.

use crate::process::Process;
use crate::{Folder, control_plane, namewall};
use anyhow::{Context, Result, ensure};
use namewall_cluster as cluster;
use namewall_sandbox::Sandbox;
use namewall_scenario::Scenario;
use namewall_testbed::{ControlPlane, Proxy};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

pub(crate) const SERVER: &str = "203.0.113.53";
pub(crate) const NODES: [&str; 2] = ["node-1", "node-2"];
const CONDITION_TIMEOUT: Duration = Duration::from_secs(30);
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// Names of the world's DNS, and their TTL in seconds.
#[derive(Clone, Copy)]
pub(crate) struct Zone {
    pub(crate) names: usize,
    pub(crate) ttl: u32,
}

pub(crate) struct Rig {
    // Dropped in this order: whoever watches goes before what is watched.
    _agents: Vec<Process>,
    _ways: Vec<Proxy>,
    pub(crate) sandbox: Sandbox,
    pub(crate) plane: ControlPlane,
    /// Where each agent answers.
    pub(crate) sockets: [PathBuf; 2],
    pub(crate) folder: Folder,
    /// Where sockets and records of attachments are.
    _runtime: Folder,
}

impl Rig {
    /// All of it, at work; the world's DNS knows so many names.
    pub(crate) fn build(name: &str, names: usize) -> Result<Self> {
        Self::build_with(name, Zone { names, ttl: 300 })
    }

    pub(crate) fn build_with(name: &str, zone: Zone) -> Result<Self> {
        let (plane, folder) = (control_plane()?, Folder::create(name)?);
        let runtime = Folder::create_in_memory(&format!("{name}-run"))?;
        populate(&plane)?;
        std::fs::write(folder.0.join("cluster.yaml"), manifests())?;
        std::fs::write(folder.0.join("scenario.yaml"), scenario(zone)?)?;
        let sandbox = build(&folder.0)?;
        let ways = NODES.iter().map(|node| way(&sandbox, node, &plane)).collect::<Result<_>>()?;
        let agents =
            NODES.iter().map(|node| start(&sandbox, node, [&folder, &runtime], &plane)).collect::<Result<_>>()?;
        let sockets = NODES.map(|node| runtime.0.join(node).join("run.sock"));
        for socket in &sockets {
            wait_until(|| ask(socket, &json!({"status": true})).is_ok_and(|told| told["policies"] == 1))?;
        }
        Ok(Self { _agents: agents, _ways: ways, sandbox, plane, sockets, folder, _runtime: runtime })
    }
}

impl Rig {
    /// A replica of the controller on a node.
    pub(crate) fn start_controller(&self, node: &str, identity: &str) -> Result<Process> {
        let mut command = Command::new(namewall()?);
        command.args(["controller", "--namespace", "namewall", "--resolver", SERVER, "--identity", identity]);
        command.arg("--kubeconfig").arg(self.plane.kubeconfig());
        let log = self.folder.0.join(format!("controller-{identity}.log"));
        self.sandbox.node(node).context("there is the node")?.enter(|| Process::start(command, &log))?
    }

    /// Waits until the controller has made the object of the wildcard. Returns how many objects there are.
    pub(crate) fn wait_for_names(&self) -> Result<usize> {
        wait_until(|| self.name_objects().is_ok_and(|count| count > 0))?;
        self.name_objects()
    }

    /// How many DNSNameResolvers there are.
    pub(crate) fn name_objects(&self) -> Result<usize> {
        let all = self.plane.get(&["dnsnameresolvers", "-n", "namewall"])?;
        Ok(all["items"].as_array().map_or(0, Vec::len))
    }
}

/// Nodes and pods, for the sandbox; the API server has their statuses told apart.
fn manifests() -> String {
    let mut text = "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\n".to_owned();
    for number in [1, 2] {
        text += &format!(
            "---\n{}status: {{addresses: [{{type: InternalIP, address: 192.0.2.1{number}}}]}}\n",
            node(number)
        );
        let address = format!("10.244.{number}.10");
        text +=
            &format!("---\n{}status: {{phase: Running, podIP: {address}, podIPs: [{{ip: {address}}}]}}\n", pod(number));
    }
    text
}

fn node(number: usize) -> String {
    format!(
        "apiVersion: v1\nkind: Node\nmetadata: {{name: node-{number}}}\nspec: {{podCIDRs: [10.244.{number}.0/24]}}\n"
    )
}

fn pod(number: usize) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: pod-{number}, namespace: shop}}\n\
         spec: {{nodeName: node-{number}, containers: [{{name: c, image: none}}]}}\n"
    )
}

fn populate(plane: &ControlPlane) -> Result<()> {
    plane.kubectl(&["create", "namespace", "shop"])?;
    for number in [1, 2] {
        plane.apply(&node(number))?;
        let addresses = json!([{"type": "InternalIP", "address": format!("192.0.2.1{number}")}]);
        let (name, status) = (format!("node-{number}"), json!({"status": {"addresses": addresses}}).to_string());
        plane.kubectl(&["patch", "node", &name, "--subresource=status", "--type=merge", "-p", &status])?;
        plane.run_pod(&pod(number), &format!("10.244.{number}.10"))?;
    }
    plane.apply(&format!(
        "apiVersion: k8s.ovn.org/v1\nkind: EgressFirewall\nmetadata: {{name: default, namespace: shop}}\nspec:\n  egress:\n    \
         - {{type: Allow, to: {{dnsName: \"*.load.example\"}}}}\n    - {{type: Allow, to: {{cidrSelector: {SERVER}/32}}}}\n    \
         - {{type: Deny, to: {{cidrSelector: 0.0.0.0/0}}}}\n"
    ))
}

fn scenario(Zone { names, ttl }: Zone) -> Result<String> {
    let mut text = format!(
        "name: Names for two nodes\ntopology:\n  manifests: [cluster.yaml]\n  dns:\n    servers: {{{SERVER}: {{}}}}\n    zones:\n"
    );
    for number in 0..names {
        let (high, low) = (number / 250, 1 + number % 250);
        writeln!(text, "      n{number}.load.example: {{A: [198.51.{}.{low}], ttl: {ttl}}}", 100 + high)?;
    }
    text += "steps:\n  - probe:\n      - shop/pod-1 -> 198.51.100.1:443/TCP: allow\n";
    Ok(text)
}

fn build(folder: &Path) -> Result<Sandbox> {
    let manifests = cluster::load(&[folder.join("cluster.yaml")])?;
    let snapshot = cluster::lower(&manifests.documents, &cluster::Settings::default()).snapshot;
    let scenario = Scenario::load(&folder.join("scenario.yaml"))?;
    let mut sandbox = Sandbox::build(&snapshot, &[SERVER.parse()?], &mut |_| {})?;
    sandbox.serve_names(&scenario.zones)?;
    Ok(sandbox)
}

/// The API server as the node can reach it: at a loopback of its own.
fn way(sandbox: &Sandbox, node: &str, plane: &ControlPlane) -> Result<Proxy> {
    let node = sandbox.node(node).context("there is the node")?;
    Proxy::at(node.enter(|| TcpListener::bind((Ipv4Addr::LOCALHOST, plane.port())))??, plane)
}

fn start(sandbox: &Sandbox, node: &str, folders: [&Folder; 2], plane: &ControlPlane) -> Result<Process> {
    let [folder, runtime] = folders;
    let runtime = runtime.0.join(node);
    std::fs::create_dir_all(&runtime)?;
    let mut command = Command::new(namewall()?);
    command.env("NAMEWALL_RUNTIME_DIR", &runtime).args(["agent", "--node", node, "--upstream", SERVER, "--kubeconfig"]);
    command.arg(plane.kubeconfig());
    sandbox
        .node(node)
        .context("there is the node")?
        .enter(|| Process::start(command, &folder.0.join(format!("{node}.log"))))?
}

/// What an agent says.
pub(crate) fn ask(socket: &Path, question: &Value) -> Result<Value> {
    let mut stream = UnixStream::connect(socket)?;
    writeln!(stream, "{question}")?;
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer)?;
    Ok(serde_json::from_str(&answer)?)
}

pub(crate) fn wait_until(holds: impl Fn() -> bool) -> Result<()> {
    let began = Instant::now();
    while !holds() {
        ensure!(began.elapsed() < CONDITION_TIMEOUT, "it never comes true");
        std::thread::sleep(LOOK_EVERY);
    }
    Ok(())
}
