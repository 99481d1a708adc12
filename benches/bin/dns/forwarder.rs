//! Who is measured: how each is started, as a plain forwarder without a cache.
//! Whether it is ready, it says by a right answer.

use crate::rules;
use anyhow::{Context, Result};
use clap::Args;
use std::fmt;
use std::fs;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Everyone has a network namespace of their own, so ports are free.
pub(crate) const LISTEN: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 5300);
pub(crate) const UPSTREAM: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 5301);

/// What follows `namewall` in a command line; the manifests are added.
const NAMEWALL: [&str; 6] = ["run", "--no-intercept", "--listen", "127.0.0.1:5300", "--upstream", "127.0.0.1:5301"];

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Forwarder {
    /// Nobody: the upstream is asked directly. What the harness can do, and how far its own noise goes.
    Nobody,
    /// This program itself, which only copies: what the kernel's sockets cost, whoever forwards.
    Copier,
    Namewall {
        learning: bool,
        /// Room for more leases than it has unless it is told.
        is_large: bool,
        loops: Loops,
    },
    /// A Corefile with so many rules of a DNS firewall, none of which speaks.
    Firewall {
        rules: u32,
    },
    Dnsdist,
    Unbound,
    CoreDns {
        /// With the other plugins that it has in Kubernetes, but for its cache and the cluster's names.
        kubernetes: bool,
    },
    /// With the same rules, as conditions of its plugin `view`: the expressions that CoreDNS itself has.
    CoreDnsView {
        rules: u32,
    },
}

/// How many loops serve, and on which cores.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Loops {
    /// As many as there are cores for forwarders: one.
    AsUsual,
    /// So many, on all cores of the machine.
    OnAllCores(u8),
}

/// Where programs are, if not where they usually are.
#[derive(Args, Clone, Debug)]
pub(crate) struct Programs {
    /// The namewall to be measured; beside this program by default
    #[arg(long)]
    namewall: Option<PathBuf>,
    /// A CoreDNS, as built from benches/coredns; without it there is none to compare with
    #[arg(long)]
    coredns: Option<PathBuf>,
}

impl fmt::Display for Forwarder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Nobody => "nobody",
            Self::Copier => "a forwarder that only copies",
            Self::Namewall { learning: true, .. } => "namewall, learning",
            Self::Namewall { learning: false, .. } => "namewall",
            Self::Dnsdist => "dnsdist",
            Self::Unbound => "unbound",
            Self::CoreDns { kubernetes: false } => "CoreDNS",
            Self::CoreDns { kubernetes: true } => "CoreDNS, as in Kubernetes",
            Self::Firewall { .. } => "namewall, rules",
            Self::CoreDnsView { .. } => "CoreDNS, rules",
        })
    }
}

impl Forwarder {
    /// Whether it may use all cores, not only that of forwarders.
    pub(crate) fn is_on_all_cores(self) -> bool {
        matches!(self, Self::Namewall { loops: Loops::OnAllCores(_), .. })
    }

    /// Configuration goes into the folder. None where there is nothing to start.
    pub(crate) fn command(self, programs: &Programs, folder: &Path) -> Result<Option<Command>> {
        let write = |name: &str, text: &str| -> Result<PathBuf> {
            let path = folder.join(name);
            fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
            Ok(path)
        };
        let command = match self {
            Self::Nobody => return Ok(None),
            Self::Copier => {
                let mut command = Command::new(std::env::current_exe().context("cannot find this program")?);
                command.arg("--copy");
                command
            }
            Self::Namewall { learning, is_large, loops } => {
                let mut command = Command::new(programs.namewall()?);
                let manifests = write("manifests.yaml", &manifests(learning))?;
                command.args(NAMEWALL).arg("--manifests").arg(manifests);
                if is_large {
                    // As many as are asked for, and room besides.
                    command.args(["--most-leases", "400000", "--names-a-pattern", "400000"]);
                }
                if let Loops::OnAllCores(loops) = loops {
                    command.args(["--dns-loops", &loops.to_string()]);
                }
                // What one case has stored is no other's to read.
                command.env("NAMEWALL_RUNTIME_DIR", folder.join("run"));
                command.arg("--state-dir").arg(folder.join("state"));
                command
            }
            Self::Dnsdist => {
                let mut command = Command::new(installed("dnsdist")?);
                command.args(["--supervised", "--disable-syslog", "--config"]).arg(write("dnsdist.conf", &dnsdist())?);
                command
            }
            Self::Unbound => {
                let mut command = Command::new(installed("unbound")?);
                command.args(["-d", "-c"]).arg(write("unbound.conf", &unbound(folder))?);
                command
            }
            Self::Firewall { rules } => {
                let mut command = Command::new(programs.namewall()?);
                command.args(["dns", "--conf"]).arg(write("Corefile", &rules::firewall(rules))?);
                command
            }
            Self::CoreDns { kubernetes } => coredns(programs, &write("Corefile", &corefile(kubernetes))?)?,
            Self::CoreDnsView { rules } => coredns(programs, &write("Corefile", &rules::view(rules))?)?,
        };
        Ok(Some(command))
    }
}

fn coredns(programs: &Programs, corefile: &Path) -> Result<Command> {
    let program = programs.coredns.as_ref().context("none was built (scripts/bench builds it)")?;
    let mut command = Command::new(program);
    command.args(["-quiet", "-conf"]).arg(corefile).env("GOMAXPROCS", "1");
    Ok(command)
}

impl Programs {
    fn namewall(&self) -> Result<PathBuf> {
        let beside = || Some(std::env::current_exe().ok()?.with_file_name("namewall"));
        let path = self.namewall.clone().or_else(beside).filter(|path| path.is_file());
        path.context("it is not built: cargo build --release --package namewall")
    }
}

/// Not everybody has the folders of servers in the PATH.
fn installed(name: &str) -> Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(["/usr/sbin", "/usr/local/sbin"].map(PathBuf::from));
    folders.map(|folder| folder.join(name)).find(|path| path.is_file()).context("it is not installed")
}

/// Whoever asks is a pod, and learns the names it asks for or has no rule by name.
fn manifests(learning: bool) -> String {
    let to = if learning { "domainNames: [\"*.load.example\"]" } else { "networks: [198.18.0.0/15]" };
    format!(
        "apiVersion: v1\n\
         kind: Pod\n\
         metadata: {{name: load, namespace: default, labels: {{app: load}}}}\n\
         spec: {{containers: [{{name: load, image: load}}]}}\n\
         status: {{phase: Running, podIP: 127.0.0.1, podIPs: [{{ip: 127.0.0.1}}]}}\n\
         ---\n\
         apiVersion: policy.networking.k8s.io/v1alpha2\n\
         kind: ClusterNetworkPolicy\n\
         metadata: {{name: names}}\n\
         spec:\n  \
           tier: Admin\n  \
           priority: 10\n  \
           subject: {{pods: {{namespaceSelector: {{}}, podSelector: {{matchLabels: {{app: load}}}}}}}}\n  \
           egress: [{{action: Accept, to: [{{{to}}}]}}]\n"
    )
}

/// One thread that takes questions. The upstream is taken to be up: its health is nobody's load.
fn dnsdist() -> String {
    format!(
        "setSecurityPollSuffix('')\n\
         setUDPSocketBufferSizes(4194304, 4194304)\n\
         addLocal('{LISTEN}')\n\
         newServer({{address='{UPSTREAM}'}}):setUp()\n"
    )
}

/// It has no way to run without a cache at all: one of no bytes that forgets at once comes nearest.
fn unbound(folder: &Path) -> String {
    let (listen, port) = (LISTEN.ip(), LISTEN.port());
    format!(
        "server:\n  \
           interface: {listen}@{port}\n  \
           access-control: 127.0.0.0/8 allow\n  \
           num-threads: 1\n  \
           module-config: \"iterator\"\n  \
           msg-cache-size: 0\n  \
           rrset-cache-size: 0\n  \
           cache-max-ttl: 0\n  \
           cache-max-negative-ttl: 0\n  \
           so-rcvbuf: 4m\n  \
           num-queries-per-thread: 4096\n  \
           qname-minimisation: no\n  \
           do-not-query-localhost: no\n  \
           do-ip6: no\n  \
           do-daemonize: no\n  \
           use-syslog: no\n  \
           username: \"\"\n  \
           chroot: \"\"\n  \
           directory: \"{}\"\n  \
           pidfile: \"\"\n\
         remote-control:\n  \
           control-enable: no\n\
         forward-zone:\n  \
           name: \".\"\n  \
           forward-addr: {}@{}\n",
        folder.display(),
        UPSTREAM.ip(),
        UPSTREAM.port()
    )
}

/// In Kubernetes as its installer writes it, without `cache` and `kubernetes`.
fn corefile(kubernetes: bool) -> String {
    let (others, limit) = if kubernetes {
        let others = "  errors\n  health {\n    lameduck 5s\n  }\n  ready\n  prometheus :9153\n  loop\n  reload\n  loadbalance\n";
        (others, " {\n    max_concurrent 1000\n  }")
    } else {
        ("", "")
    };
    // It listens at every address: its namespace has but one.
    format!(".:{} {{\n{others}  forward . {UPSTREAM}{limit}\n}}\n", LISTEN.port())
}
