//! The cluster and the world are built, and namewall is installed.

use crate::Settings;
use crate::report::{Observation, TIMEOUT, eventually, now, step};
use crate::stage::{Programs, Stage};
use anyhow::{Context, Result};
use namewall_testbed::{ControlPlane, Lan, Machine, Node, NodeSettings};
use std::path::{Path, PathBuf};

/// Of each two, the second is of IPv6, which the short form is without.
const US: [&str; 2] = ["192.0.2.1/24", "2001:db8:2::1/64"];
const INTERNET: [&str; 2] = ["192.0.2.254", "2001:db8:2::254"];
const EVERYTHING: [&str; 2] = ["0.0.0.0/0", "::/0"];
const PREFIXES: [u8; 2] = [24, 64];
/// Names, addresses, and those of their pods.
const NODES: [(&str, [&str; 2], [&str; 2]); 2] = [
    ("node-1", ["192.0.2.11", "2001:db8:2::11"], ["10.244.1.0/24", "fd00:10:244:1::/64"]),
    ("node-2", ["192.0.2.12", "2001:db8:2::12"], ["10.244.2.0/24", "fd00:10:244:2::/64"]),
];
/// Who knows names outside, and what pods ask.
const DNS_OUTSIDE: &str = "203.0.113.53";
const DNS_INSIDE: &str = "10.96.0.10";
const SERVERS: [&str; 4] = ["198.51.100.7", "198.51.100.8", "198.51.100.9", "198.51.100.10"];
const SERVERS_SIX: [&str; 3] = ["2001:db8:64::7", "2001:db8:64::8", "2001:db8:64::10"];
/// How long an answer from outside counts, in seconds.
pub(crate) const TTL: u32 = 5;
const DNS: &str = include_str!("../manifests/dns.yaml");

pub(crate) fn build(settings: &Settings) -> Result<Stage> {
    let logs = settings.folder.join("logs");
    let shared = settings.folder.join("shared");
    std::fs::create_dir_all(shared.join("pods"))?;
    std::fs::create_dir_all(settings.folder.join("bin"))?;
    std::os::unix::fs::symlink(shared.join("pods"), settings.folder.join("pods"))?;
    std::os::unix::fs::symlink(&settings.namewall, settings.folder.join("bin/kubectl-namewall"))?;
    let images = images(&settings.images)?;
    let families = if settings.short { 1 } else { 2 };
    let lan = Lan::new(&US.map(str::to_owned)[..families])?;
    let plane = step("etcd, an API server, controllers and a scheduler are there", ControlPlane::start_for_nodes)?;
    let mut internet = lan.machine("internet", &with_prefixes(INTERNET)[..families], &logs)?;
    let names = step("the world outside is there", || world(&mut internet, settings))?;
    let node = |nth: usize| {
        let (name, addresses, pods) = NODES[nth];
        let (_, other, other_pods) = NODES[1 - nth];
        let machine = lan.machine(name, &with_prefixes(addresses)[..families], &logs)?;
        for family in 0..families {
            machine.run("ip", &["route", "add", other_pods[family], "via", other[family]])?;
            machine.run("ip", &["route", "add", EVERYTHING[family], "via", INTERNET[family]])?;
            // Nobody translates pods' addresses on their way out: who is asked knows the way back.
            internet.run("ip", &["route", "add", pods[family], "via", addresses[family]])?;
            lan.route(pods[family], addresses[family])?;
        }
        let cgroup = format!("/{}/{name}", settings.cgroup);
        let node = NodeSettings {
            address: addresses[0],
            pods: pods[0],
            six: (!settings.short).then_some([addresses[1], pods[1]]),
            dns: [DNS_INSIDE, DNS_OUTSIDE],
            images: &images,
            shared: &shared,
            cgroup: &cgroup,
        };
        Node::start(machine, &plane, &node)
    };
    let nodes = step("two nodes have started", || Ok([node(0)?, node(1)?]))?;
    let programs =
        Programs { namewall: settings.namewall.clone(), helm: settings.helm.clone(), chart: settings.chart.clone() };
    let folder = settings.folder.clone();
    let stage =
        Stage { plane, nodes, _internet: internet, names, is_short: settings.short, was_away: false, folder, programs };
    let ready = step("both nodes are Ready, and the cluster has DNS", || {
        stage.plane.kubectl(&["wait", "--for=condition=Ready", "node", "--all", TIMEOUT])?;
        stage.plane.apply(DNS)?;
        let rollout = ["rollout", "status", "-n", "kube-system", "deployment/coredns", TIMEOUT];
        stage.plane.kubectl(&rollout).map(drop)
    });
    if ready.is_err() {
        stage.write_down();
    }
    ready.map(|()| stage)
}

fn with_prefixes(addresses: [&str; 2]) -> [String; 2] {
    [0, 1].map(|family| format!("{}/{}", addresses[family], PREFIXES[family]))
}

fn images(folder: &Path) -> Result<Vec<PathBuf>> {
    let found = std::fs::read_dir(folder).with_context(|| format!("cannot list {}", folder.display()))?;
    Ok(found.collect::<Result<Vec<_>, _>>()?.into_iter().map(|entry| entry.path()).collect())
}

/// Servers outside, and who knows their names.
fn world(internet: &mut Machine, settings: &Settings) -> Result<(u32, PathBuf)> {
    for address in SERVERS.iter().chain([&DNS_OUTSIDE]) {
        internet.run("ip", &["address", "add", &format!("{address}/32"), "dev", "lo"])?;
    }
    if !settings.short {
        for address in SERVERS_SIX {
            internet.run("ip", &["address", "add", &format!("{address}/128"), "dev", "lo", "nodad"])?;
        }
    }
    let mut server = internet.command(&settings.probe);
    server.args(["serve", "443"]);
    internet.start("server", server)?;
    let file = settings.folder.join("names");
    std::fs::write(&file, "")?;
    let mut dns = internet.command("dnsmasq");
    dns.args(["--keep-in-foreground", "--no-resolv", "--no-hosts", "--bind-interfaces", "--user=root", "--pid-file="])
        .args(["--local=/#/", "--conf-file=/dev/null", "--log-facility=-", "--log-queries"])
        .arg(format!("--addn-hosts={}", file.display()))
        .arg(format!("--local-ttl={TTL}"))
        .arg(format!("--listen-address={DNS_OUTSIDE}"));
    Ok((internet.start("dns", dns)?, file))
}

pub(crate) fn install(stage: &Stage) -> Result<()> {
    step("helm installs the chart", || {
        let chart = stage.programs.chart.display().to_string();
        stage.helm(&["install", "namewall", &chart]).map(drop)
    })?;
    step("an agent on both nodes and two controllers are Ready", || {
        for workload in ["daemonset/namewall-agent", "deployment/namewall-controller"] {
            stage.plane.kubectl(&["rollout", "status", "-n", "namewall", workload, TIMEOUT])?;
        }
        Ok(())
    })?;
    step("the doctor is content, with both nodes and the cluster", || {
        for node in 0..2 {
            // Pods that were there before the CNI plugin, like the cluster's DNS, get their guard when the container
            // runtime was asked.
            eventually("all is good, and every pod has a guard", || {
                let said = stage.ask_agent(node, &["doctor", "--only", "node"])?;
                Ok(Observation::new(is_content(&said), said))
            })?;
        }
        eventually("all is good", || {
            let output = stage.namewall(&["doctor", "--only", "cluster"])?;
            let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
            Ok(Observation::new(output.status.success() && !said.contains('·'), said))
        })
    })
}

/// True if a node lacks nothing, but for second interfaces of pods that were there before the CNI plugin.
fn is_content(said: &str) -> bool {
    let is_meant = |line: &str| line.contains("second interfaces of") && line.contains("not judged by policies");
    !said.contains('✗') && said.lines().filter(|line| line.contains('·')).all(is_meant)
}

/// What agents and controllers have said so far, but for the API server that was away.
pub(crate) fn nothing_is_complained_of(stage: &Stage) -> Result<()> {
    step("neither agents nor controllers complain of anything", || {
        let selector = "--selector=app.kubernetes.io/name=namewall";
        let said = stage.plane.kubectl(&["logs", "-n", "namewall", selector, "--prefix", "--tail=-1"])?;
        let is_complaint = |line: &&str| {
            // The client says of each request itself that the server is gone.
            let away = ["cannot watch", "cannot write", "cannot make", "cannot delete", "cannot say", "kube_client::"];
            let complains = ["cannot", "did not", "error", "panicked"].iter().any(|word| line.contains(word));
            complains && !(stage.was_away && away.iter().any(|word| line.contains(word)))
        };
        let complaints: Vec<&str> = said.lines().filter(is_complaint).collect();
        now("nothing", Ok(Observation::new(complaints.is_empty(), complaints.join("\n"))))
    })
}
