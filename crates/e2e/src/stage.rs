//! The cluster and the world: what can be done there, and what can be seen.

use crate::report::{Observation, TIMEOUT};
use anyhow::{Context, Result, bail, ensure};
use namewall_testbed::{ControlPlane, Machine, Node};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

/// How long a connection may take; one that is denied takes as long.
const CONNECT_MILLISECONDS: u32 = 1_500;
/// A pod may have to look a name up, and whom it reaches may be slow to say who they are.
const ANSWER: Duration = Duration::from_secs(90);

#[derive(Debug)]
pub(crate) struct Stage {
    pub(crate) plane: ControlPlane,
    pub(crate) nodes: [Node; 2],
    /// Every address outside: servers, and the DNS server that knows their names.
    pub(crate) _internet: Machine,
    /// The process that answers for names outside, and the file it answers from.
    pub(crate) names: (u32, PathBuf),
    pub(crate) is_short: bool,
    /// Whether the API server was away in between.
    pub(crate) was_away: bool,
    pub(crate) folder: PathBuf,
    pub(crate) programs: Programs,
}

#[derive(Clone, Debug)]
pub(crate) struct Programs {
    pub(crate) namewall: PathBuf,
    pub(crate) helm: PathBuf,
    pub(crate) chart: PathBuf,
}

impl Stage {
    /// Starts a pod that does what it is told.
    pub(crate) fn run_pod(&self, pod: ProbePod<'_>) -> Result<()> {
        self.plane.apply(&pod.manifest(&["pod", &format!("{}.{}", pod.namespace, pod.name), "80"]))
    }

    pub(crate) fn pod_address(&self, namespace: &str, name: &str) -> Result<String> {
        let pod = self.plane.get(&["pod", "-n", namespace, name])?;
        pod["status"]["podIP"].as_str().map(str::to_owned).context("the pod has no address yet")
    }

    /// Its other one.
    pub(crate) fn pod_address_six(&self, namespace: &str, name: &str) -> Result<String> {
        let pod = self.plane.get(&["pod", "-n", namespace, name])?;
        let addresses = pod["status"]["podIPs"].as_array().into_iter().flatten();
        let mut addresses = addresses.filter_map(|one| one["ip"].as_str());
        addresses.find(|address| address.contains(':')).map(str::to_owned).context("the pod has no IPv6 address")
    }

    /// Waits until pods are ready.
    pub(crate) fn pods_are_ready(&self, namespace: &str) -> Result<()> {
        self.plane.kubectl(&["wait", "--for=condition=Ready", "pod", "--all", "-n", namespace, TIMEOUT])?;
        Ok(())
    }

    /// Tells a pod (`namespace/name`) to do something; what it answers.
    pub(crate) fn tell(&self, pod: &str, what: &str) -> Result<Result<String, String>> {
        let path = self.folder.join("pods").join(pod.replace('/', "."));
        let mut stream = UnixStream::connect(&path).with_context(|| format!("{pod} does not listen"))?;
        stream.set_read_timeout(Some(ANSWER))?;
        writeln!(stream, "{what}")?;
        let mut said = String::new();
        stream.read_to_string(&mut said).with_context(|| format!("{pod} does not answer to `{what}`"))?;
        match said.trim().split_once(' ').unwrap_or((said.trim(), "")) {
            ("yes", answer) => Ok(Ok(answer.to_owned())),
            ("no", why) => Ok(Err(why.to_owned())),
            _ => bail!("{pod} said `{said}`"),
        }
    }

    /// Whether a connection from a pod comes about as it should, to an address or a name with a port.
    pub(crate) fn goes(&self, pod: &str, place: &str, is_allowed: bool) -> Result<Observation> {
        let heard = self.tell(pod, &format!("connect {place} {CONNECT_MILLISECONDS}"))?;
        let what = match &heard {
            Ok(who) => format!("{pod} reaches {place}: {who}"),
            Err(why) => format!("{pod} does not reach {place}: {why}"),
        };
        Ok(Observation::new(heard.is_ok() == is_allowed, what))
    }

    /// What the world outside answers for names from now on: `ADDRESS NAME` lines.
    pub(crate) fn set_names(&self, lines: &[&str]) -> Result<()> {
        let (process, file) = &self.names;
        std::fs::write(file, lines.join("\n") + "\n")?;
        Ok(kill(Pid::from_raw(*process as i32), Signal::SIGHUP)?)
    }

    /// namewall as a user has it, with the administrator's kubeconfig; or by another name, as kubectl's plugin.
    pub(crate) fn namewall(&self, arguments: &[&str]) -> Result<Output> {
        let kubeconfig = self.plane.kubeconfig();
        let output = Command::new(&self.programs.namewall).args(arguments).env("KUBECONFIG", kubeconfig).output()?;
        Ok(output)
    }

    /// kubectl with its plugin where it finds it.
    pub(crate) fn kubectl_namewall(&self, arguments: &[&str]) -> Result<Output> {
        let folder = self.folder.join("bin");
        let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap_or_default());
        Command::new(self.plane.kubectl_program())
            .arg("namewall")
            .args(arguments)
            .env("PATH", path)
            .env("KUBECONFIG", self.plane.kubeconfig())
            .stdin(Stdio::null())
            .output()
            .context("kubectl namewall")
    }

    /// What the agent on a node says, asked in its pod.
    pub(crate) fn ask_agent(&self, node: usize, arguments: &[&str]) -> Result<String> {
        let pod = self.agent(node)?;
        self.plane.kubectl(&[&["exec", "-n", "namewall", &pod, "--", "/namewall"], arguments].concat())
    }

    /// The pod of a node's agent.
    pub(crate) fn agent(&self, node: usize) -> Result<String> {
        let selector = "app.kubernetes.io/component=agent";
        let on = format!("spec.nodeName={}", self.nodes[node].machine.name());
        let pods = self.plane.get(&["pods", "-n", "namewall", "-l", selector, "--field-selector", &on])?;
        pods["items"][0]["metadata"]["name"].as_str().map(str::to_owned).context("there is no agent")
    }

    pub(crate) fn helm(&self, arguments: &[&str]) -> Result<String> {
        let home = self.folder.join("helm");
        let output = Command::new(&self.programs.helm)
            .args(arguments)
            .env("KUBECONFIG", self.plane.kubeconfig())
            .env("HELM_CONFIG_HOME", &home)
            .env("HELM_CACHE_HOME", &home)
            .env("HELM_DATA_HOME", &home)
            .output()?;
        ensure!(output.status.success(), "helm {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        Ok(String::from_utf8(output.stdout)?)
    }

    /// DNSNameResolvers, as they are now.
    pub(crate) fn resolvers(&self) -> Result<Vec<Value>> {
        let mut all = self.plane.get(&["dnsnameresolvers", "-A"])?;
        match all["items"].take() {
            Value::Array(items) => Ok(items),
            other => bail!("{other} is no list"),
        }
    }

    /// What a node's kernel has of ours.
    pub(crate) fn tables(&self, node: usize) -> Result<String> {
        self.nodes[node].machine.run("nft", &["list", "tables"])
    }

    /// For who looks afterwards: what the cluster was like, and what the control plane has said.
    pub(crate) fn write_down(&self) {
        let logs = self.folder.join("logs");
        let kinds =
            "pods,services,endpointslices,networkpolicies,egressfirewalls,clusternetworkpolicies,dnsnameresolvers";
        for (file, arguments) in [
            ("objects.yaml", &["get", kinds, "-A", "-o", "yaml"][..]),
            ("pods.txt", &["get", "pods", "-A", "-o", "wide"]),
            ("described.txt", &["describe", "pods,nodes", "-A"]),
            ("events.txt", &["get", "events", "-A", "--sort-by=.lastTimestamp"]),
        ] {
            let said = self.plane.kubectl(arguments).unwrap_or_else(|error| format!("{error:#}"));
            let _ = std::fs::write(logs.join(file), said);
        }
        for node in &self.nodes {
            let rules = node.machine.run("nft", &["list", "ruleset"]).unwrap_or_else(|error| format!("{error:#}"));
            let _ = std::fs::write(logs.join(format!("{}.nft", node.machine.name())), rules);
        }
        for name in ["server", "manager", "scheduler", "etcd"] {
            let log = format!("{name}.log");
            let _ = std::fs::copy(self.plane.folder().join(&log), logs.join(&log));
        }
    }
}

/// A pod of the probe's image.
#[derive(Clone, Copy)]
pub(crate) struct ProbePod<'a> {
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
    pub(crate) node: &'a str,
    /// Further labels, each after a comma.
    pub(crate) labels: &'a str,
}

impl ProbePod<'_> {
    pub(crate) fn manifest(self, arguments: &[&str]) -> String {
        let Self { namespace, name, node, labels } = self;
        format!(
            "apiVersion: v1\nkind: Pod\n\
             metadata: {{name: {name}, namespace: {namespace}, labels: {{app: {name}{labels}}}}}\n\
             spec:\n  nodeName: {node}\n  terminationGracePeriodSeconds: 0\n  automountServiceAccountToken: false\n  \
             containers: [{{name: probe, image: \"probe:e2e\", args: {arguments:?}, \
             volumeMounts: [{{name: e2e, mountPath: /e2e}}]}}]\n  \
             volumes: [{{name: e2e, hostPath: {{path: /run/e2e/pods}}}}]\n"
        )
    }
}

/// The process of namewall in a pod, with this argument. All that can be seen from here are of this run.
pub(crate) fn process_of(command: &str, argument: &str) -> Result<Pid> {
    let start = format!("/namewall\0{command}\0");
    let is_it = |line: &str| line.starts_with(&start) && line.contains(&format!("\0{argument}\0"));
    let entries = std::fs::read_dir("/proc")?.flatten();
    let mut numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let found =
        numbers.find(|id| std::fs::read_to_string(format!("/proc/{id}/cmdline")).is_ok_and(|line| is_it(&line)));
    found.map(Pid::from_raw).with_context(|| format!("no {command} runs with {argument}"))
}
