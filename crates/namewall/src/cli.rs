//! What can be typed.

mod help;
mod leased_name;

use crate::logging::Logging;
use crate::unread::Lenient;
use clap::builder::NonEmptyStringValueParser;
use clap::{Args, Parser, Subcommand, ValueEnum};
use help::{
    AGENT_HELP, AUDIT_PATHS_HELP, CHECK_HELP, CNI_HELP, CONTROLLER_HELP, DIFF_HELP, DNS_HELP, EXPLAIN_HELP,
    LEASES_HELP, MATRIX_HELP, POLICIES_HELP, RULES_HELP, RUN_HELP, SANDBOX_EXEC_HELP, SANDBOX_HELP, SANDBOX_PROBE_HELP,
    STATUS_HELP, TEST_HELP, UNINSTALL_HELP, crds_help,
};
use leased_name::LeasedName;
use namewall_cluster::{API_SERVER_PORT, Key};
use namewall_policy::addr::{Cidr, parse_address};
use namewall_policy::ask::{Host, Target};
use namewall_policy::domain::DomainName;
use namewall_policy::port::{Protocol, TransportPort};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

/// A firewall that understands names: who may talk to whom, and why.
///
/// Reads Kubernetes manifests of every network policy kind and answers offline,
/// without a cluster.
#[derive(Parser, Debug)]
#[command(name = "namewall", version, max_term_width = 100, arg_required_else_help = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// Validate manifests against every published limit, and lint them
    #[command(after_help = CHECK_HELP)]
    Check(Check),
    /// May this workload open this connection, and why?
    #[command(after_help = EXPLAIN_HELP)]
    Explain(Explain),
    /// Who may reach whom: every pair of workloads, and the outside
    #[command(after_help = MATRIX_HELP)]
    Matrix(Matrix),
    /// Which connections a change adds, removes or changes
    #[command(after_help = DIFF_HELP)]
    Diff(Diff),
    /// Run policy unit tests: scenario files with probes
    #[command(after_help = TEST_HELP)]
    Test(Test),
    /// Which policies apply to a workload, in the order they are asked
    #[command(after_help = POLICIES_HELP)]
    Policies(Policies),
    /// Every way from a pod, or from outside, to a destination, and what closes it
    #[command(after_help = AUDIT_PATHS_HELP)]
    AuditPaths(AuditPaths<FilesOrCluster>),
    /// Print the kernel's rules for a cluster, as nftables would show them
    #[command(after_help = RULES_HELP)]
    Rules(Rules),
    /// Build a cluster in network namespaces on this machine, and try it with real packets
    #[command(after_help = SANDBOX_HELP)]
    Sandbox(Sandbox),
    /// Be the firewall of this machine: enforce manifests in the kernel, serve DNS, learn names
    #[command(after_help = RUN_HELP)]
    Run(Run),
    /// Be the firewall of a node: as `run`, with what the API server says
    #[command(after_help = AGENT_HELP)]
    Agent(Agent),
    /// Keep the names of policies resolved for all nodes; one for a cluster
    #[command(after_help = CONTROLLER_HELP)]
    Controller(Controller),
    /// Serve a Corefile: a DNS firewall with rules for queries and responses
    #[command(after_help = DNS_HELP)]
    Dns(Dns),
    /// How the namewall that runs here is doing
    #[command(after_help = STATUS_HELP)]
    Status(Live),
    /// Which addresses are open by name now: through which name and rule, and until when
    #[command(after_help = LEASES_HELP)]
    Leases(Leases),
    /// What is missing on this node or in a cluster, and what to do about it
    #[command(after_help = crate::commands::DOCTOR_HELP)]
    Doctor(crate::commands::Doctor),
    /// Remove what namewall has put into this machine's kernel
    #[command(after_help = UNINSTALL_HELP)]
    Uninstall(Uninstall),
    /// Put the CNI plugin into this node's container runtime, or take it out
    #[command(after_help = CNI_HELP)]
    Cni(Cni),
    /// Print the definitions of the kinds that a cluster may lack, for kubectl to apply
    #[command(after_help = crds_help())]
    Crds(Crds),
    /// Print a completion script for a shell
    #[command(after_help = "Example:\n  namewall completions bash > /etc/bash_completion.d/namewall")]
    Completions { shell: clap_complete::Shell },
    /// Print a manual page: of namewall, or of one of its commands
    #[command(
        after_help = "Examples:\n  namewall man > /usr/share/man/man1/namewall.1\n  namewall man explain | man -l -"
    )]
    Man { command: Option<String> },
}

/// Where the cluster is read from.
#[derive(Args, Debug)]
pub(crate) struct Settings {
    /// A block that pods get their addresses from, besides the nodes' podCIDRs
    #[arg(long, value_name = "CIDR")]
    pub(crate) pod_network: Vec<Cidr>,
    /// A further address of the API server, at port 6443 if none is given
    #[arg(long, value_name = "IP[:PORT]", value_parser = parse_api_server)]
    pub(crate) api_server: Vec<SocketAddr>,
    /// The cluster's DNS domain [default: cluster.local]
    #[arg(long, value_name = "NAME")]
    pub(crate) cluster_domain: Option<DomainName>,
    /// A network that no name opens, besides the inside of the cluster
    #[arg(long, value_name = "CIDR")]
    pub(crate) never_lease: Vec<crate::commands::Block>,
    /// The prefix of a translator from IPv6 to IPv4 in this network, besides 64:ff9b::/96 and 64:ff9b:1::/48
    #[arg(long, value_name = "CIDR")]
    pub(crate) nat64_prefix: Vec<crate::commands::Nat64Prefix>,
}

/// How files are read, for commands that can do without files.
#[derive(Args, Debug)]
pub(crate) struct Reading {
    #[command(flatten)]
    pub(crate) settings: Settings,
    #[command(flatten)]
    pub(crate) lenient: Lenient,
}

#[derive(Args, Debug)]
pub(crate) struct Input {
    /// Files, folders (read recursively), or - for standard input
    #[arg(required = true, value_name = "PATH")]
    pub(crate) paths: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) settings: Settings,
    #[command(flatten)]
    pub(crate) lenient: Lenient,
}

#[derive(Clone, Copy, ValueEnum, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    Text,
    Json,
}

/// The same for manifests and for a cluster that lives.
#[derive(Args, Debug)]
pub(crate) struct Check<I: Args = Input> {
    #[command(flatten)]
    pub(crate) input: I,
    /// How to print
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    pub(crate) output: Format,
}

/// What is asked, and how the answer is printed.
#[derive(Args, Debug)]
pub(crate) struct Question {
    /// Who opens the connection: NAMESPACE/POD or an address
    #[arg(long, value_name = "NS/POD|IP")]
    pub(crate) from: Host,
    /// To whom: NAMESPACE/POD, an address or a DNS name, with port and protocol
    #[arg(long, value_name = "HOST[:PORT[/PROTO]]")]
    pub(crate) to: Target,
    /// What a name resolves to, so that rules by name can open it
    #[arg(long, value_name = "NAME=IP[,IP...]", value_parser = parse_dns)]
    pub(crate) dns: Vec<DnsAnswer>,
    /// Fail with exit code 1 if the verdict is another
    #[arg(long, value_name = "VERDICT")]
    pub(crate) expect: Option<Expect>,
    /// How to print
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    pub(crate) output: Format,
}

#[derive(Args, Debug)]
pub(crate) struct Explain {
    #[command(flatten)]
    pub(crate) question: Question,
    /// Ask the namewall that runs here: by its policies, and what it has learned
    #[arg(long, conflicts_with_all = ["paths", "dns"])]
    pub(crate) live: bool,
    /// Files, folders (read recursively), or - for standard input
    #[arg(required_unless_present = "live", value_name = "PATH")]
    pub(crate) paths: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) reading: Reading,
}

/// What can be said of the firewall of a machine, wherever its policies come from.
#[derive(Args, Debug)]
pub(crate) struct Firewall {
    /// Take over from the namewall that runs here: its sockets, its rules, its leases; no question is lost
    #[arg(long)]
    pub(crate) take_over: bool,
    /// A file of settings; what is said here on the command line counts more
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) logging: Logging,
    #[command(flatten)]
    pub(crate) options: crate::commands::RunOptions,
    #[command(flatten)]
    pub(crate) settings: Settings,
}

#[derive(Args, Debug)]
pub(crate) struct Run {
    /// Files and folders (read recursively) to enforce
    #[arg(long, required = true, num_args = 1.., value_name = "PATH")]
    pub(crate) manifests: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) firewall: Firewall,
}

/// Which API server, and as whom.
#[derive(Args, Debug)]
pub(crate) struct ApiServer {
    /// A kubeconfig file; by default $KUBECONFIG, ~/.kube/config, or a pod's service account
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// A context of it
    #[arg(long, value_name = "NAME")]
    pub(crate) context: Option<String>,
}

impl ApiServer {
    pub(crate) fn target(&self) -> namewall_kubernetes::Target {
        namewall_kubernetes::Target { kubeconfig: self.kubeconfig.clone(), context: self.context.clone() }
    }
}

#[derive(Args, Debug)]
pub(crate) struct Agent {
    #[command(flatten)]
    pub(crate) server: ApiServer,
    /// The Service that pods ask for names. It is asked in their stead unless --upstream names others [default: the
    /// first that there is of kube-system/kube-dns, openshift-dns/dns-default, kube-system/coredns and RKE2's]
    #[arg(long, value_name = "NS/NAME", value_parser = parse_object)]
    pub(crate) dns_service: Option<Key>,
    /// Whose DNSNameResolvers are believed and written; by default those of the agent's own namespace, or of namewall
    #[arg(long, value_name = "NAME")]
    pub(crate) names_namespace: Vec<String>,
    #[command(flatten)]
    pub(crate) firewall: Firewall,
}

#[derive(Args, Debug)]
pub(crate) struct Controller {
    #[command(flatten)]
    pub(crate) logging: Logging,
    #[command(flatten)]
    pub(crate) server: ApiServer,
    /// Where its objects are; by default the namespace of its pod, or namewall
    #[arg(long, value_name = "NAME")]
    pub(crate) namespace: Option<String>,
    /// Another namespace whose DNSNameResolvers agents believe; names that have one there get none here
    #[arg(long, value_name = "NAME")]
    pub(crate) names_namespace: Vec<String>,
    /// A DNS server to ask; by default the pods of --dns-service
    #[arg(long, value_name = "IP[:PORT]")]
    pub(crate) resolver: Vec<crate::commands::DnsServer>,
    /// The Service whose pods are asked for names [default: as for the agent]
    #[arg(long, value_name = "NS/NAME", value_parser = parse_object)]
    pub(crate) dns_service: Option<Key>,
    /// Keep the names of all kinds of policies, not only of EgressFirewalls
    #[arg(long)]
    pub(crate) all_names: bool,
    /// What this replica is called; by default by its host
    #[arg(long, value_name = "NAME")]
    pub(crate) identity: Option<String>,
    /// Serve /metrics, /health and /ready there [default: nowhere]
    #[arg(long, value_name = "[IP]:PORT")]
    pub(crate) metrics_address: Option<crate::commands::HttpAddress>,
    /// The same at this port of all addresses
    #[arg(long, value_name = "PORT")]
    pub(crate) health_port: Option<u16>,
}

fn parse_object(text: &str) -> Result<Key, String> {
    let (namespace, name) = text.split_once('/').ok_or_else(|| format!("`{text}` is no NAMESPACE/NAME"))?;
    Ok(Key { namespace: namespace.into(), name: name.into() })
}

#[derive(Args, Debug)]
pub(crate) struct Dns {
    #[command(flatten)]
    pub(crate) logging: Logging,
    /// The Corefile
    #[arg(long, default_value = "Corefile", value_name = "FILE")]
    pub(crate) conf: PathBuf,
    /// Only check it
    #[arg(long, conflicts_with = "explain")]
    pub(crate) check: bool,
    /// Print what becomes of a question, and why
    #[arg(long, value_name = "QUESTION")]
    pub(crate) explain: Option<String>,
    /// How to print that
    #[arg(short, long, value_name = "FORMAT", default_value = "text", requires = "explain")]
    pub(crate) output: Format,
    #[command(flatten)]
    pub(crate) server: ApiServer,
    /// Files and folders that say which pod has which address, for rules by namespace and label
    #[arg(long, num_args = 1.., value_name = "PATH")]
    pub(crate) manifests: Vec<PathBuf>,
}

#[derive(Args, Debug)]
pub(crate) struct Live {
    /// How to print
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    pub(crate) output: Format,
}

#[derive(Args, Debug)]
pub(crate) struct Leases {
    /// Only of this name, and names under it; with `*.` before it, only of names under it
    #[arg(value_name = "NAME")]
    pub(crate) name: Option<LeasedName>,
    #[command(flatten)]
    pub(crate) live: Live,
}

#[derive(Clone, Copy, ValueEnum, Debug, PartialEq, Eq)]
pub(crate) enum Expect {
    #[value(alias = "allowed")]
    Allow,
    #[value(alias = "denied")]
    Deny,
    Depends,
}

/// `--dns name=ip,ip`.
#[derive(Clone, Debug)]
pub(crate) struct DnsAnswer {
    pub(crate) name: namewall_policy::domain::DomainName,
    pub(crate) addresses: Vec<IpAddr>,
}

fn parse_ip(text: &str) -> Result<IpAddr, String> {
    parse_address(text).ok_or_else(|| format!("`{text}` is not an IP address"))
}

/// `192.0.2.1`, `192.0.2.1:443`, `2001:db8::1` or `[2001:db8::1]:443`.
pub(crate) fn parse_api_server(text: &str) -> Result<SocketAddr, String> {
    let at_usual_port = parse_address(text).map(|address| SocketAddr::new(address, API_SERVER_PORT));
    let wrong = || format!("`{text}` is not an address: use IP, IP:PORT or [IPV6]:PORT");
    at_usual_port.or_else(|| text.parse().ok().filter(|at: &SocketAddr| at.port() != 0)).ok_or_else(wrong)
}

fn parse_dns(text: &str) -> Result<DnsAnswer, String> {
    let (name, addresses) = text.split_once('=').ok_or("write NAME=IP[,IP...]")?;
    let name = name.parse().map_err(|error| format!("{error}"))?;
    let addresses: Result<Vec<IpAddr>, String> = addresses.split(',').map(parse_ip).collect();
    Ok(DnsAnswer { name, addresses: addresses? })
}

#[derive(Clone, Copy, ValueEnum, Debug, PartialEq, Eq)]
pub(crate) enum MatrixFormat {
    Text,
    Json,
    /// The list in an object, beside what could not be read
    Json2,
    Csv,
    Dot,
    Svg,
    Html,
    Md,
}

/// What a row of a matrix is.
#[derive(Clone, Copy, ValueEnum, Debug, PartialEq, Eq)]
pub(crate) enum By {
    /// A Deployment, StatefulSet, … with all its pods
    Workload,
    /// Every pod by itself
    Pod,
}

#[derive(Args, Debug)]
pub(crate) struct Matrix<I: Args = Input> {
    #[command(flatten)]
    pub(crate) input: I,
    /// How to print
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    pub(crate) output: MatrixFormat,
    /// Only what this workload may open, and who may open what to it
    #[arg(long, value_name = "NS/WORKLOAD")]
    pub(crate) focus: Vec<Host>,
    /// What a row is; workload by default, pod for json
    #[arg(long, value_name = "ROW")]
    pub(crate) by: Option<By>,
    /// Only this port, like 443/TCP
    #[arg(long, value_name = "PORT[/PROTO]", value_parser = parse_port)]
    pub(crate) port: Option<TransportPort>,
    /// What each workload could exchange with pods that do not exist yet, by their labels, namespaces and named ports
    /// (text or json)
    #[arg(long)]
    pub(crate) exposure: bool,
}

fn parse_port(text: &str) -> Result<TransportPort, String> {
    let (port, protocol) = text.split_once('/').unwrap_or((text, "TCP"));
    let port = match port.parse::<u16>() {
        Ok(port @ 1..) => port,
        _ => return Err(format!("`{port}` is no port; use 1 to 65535")),
    };
    let protocol: Protocol = protocol.parse().map_err(|error| format!("{error}"))?;
    if !protocol.has_ports() {
        return Err(format!("{protocol} has no ports; use TCP, UDP or SCTP"));
    }
    Ok(TransportPort { protocol, port })
}

#[derive(Clone, Copy, ValueEnum, Debug, PartialEq, Eq)]
pub(crate) enum DiffFormat {
    Text,
    Json,
    /// The list in an object, beside what could not be read
    Json2,
    Md,
}

#[derive(Args, Debug)]
pub(crate) struct Diff {
    /// The manifests before: a file or a folder
    pub(crate) old: PathBuf,
    /// The manifests after
    pub(crate) new: PathBuf,
    /// How to print
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    pub(crate) output: DiffFormat,
    /// What is compared: workloads, whose pods may have other names afterwards, or pods by their names
    #[arg(long, value_name = "ROW", default_value = "workload")]
    pub(crate) by: By,
    #[command(flatten)]
    pub(crate) settings: Settings,
    #[command(flatten)]
    pub(crate) lenient: Lenient,
}

#[derive(Clone, Copy, ValueEnum, Debug, PartialEq, Eq)]
pub(crate) enum TestFormat {
    Text,
    Json,
    /// The list in an object, beside what could not be read
    Json2,
    Junit,
}

#[derive(Args, Debug)]
pub(crate) struct Test {
    /// Scenario files, or folders of them
    #[arg(required = true, value_name = "SCENARIO")]
    pub(crate) scenarios: Vec<PathBuf>,
    /// Try everything with real packets too
    #[arg(long)]
    pub(crate) real: bool,
    /// Tell what happens step by step, and why, not only what failed
    #[arg(long)]
    pub(crate) tell: bool,
    #[command(flatten)]
    pub(crate) lenient: Lenient,
    /// How to print
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    pub(crate) output: TestFormat,
}

#[derive(Args, Debug)]
pub(crate) struct Policies<I: Args = Input> {
    /// The workload: NAMESPACE/POD, or a pod's address
    #[arg(value_name = "NS/POD|IP")]
    pub(crate) workload: Host,
    #[command(flatten)]
    pub(crate) input: I,
    /// How to print
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    pub(crate) output: Format,
}

#[derive(Args, Debug)]
pub(crate) struct AuditPaths<I: Args> {
    /// An address, a CIDR, a node's name, or nodes, apiserver, metadata
    #[arg(value_name = "DEST")]
    pub(crate) destination: crate::commands::audit_paths::Destination,
    /// Try each way with packets, in a sandbox of the same objects (Linux; root or user namespaces)
    #[arg(long)]
    pub(crate) attack: bool,
    #[command(flatten)]
    pub(crate) input: I,
    /// How to print
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    pub(crate) output: Format,
}

/// Files, or a cluster that is read through its API server.
#[derive(Args, Debug)]
pub(crate) struct FilesOrCluster {
    /// Read the cluster through its API server
    #[arg(long, conflicts_with = "paths")]
    pub(crate) live: bool,
    /// Files, folders (read recursively), or - for standard input
    #[arg(required_unless_present = "live", value_name = "PATH")]
    pub(crate) paths: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) server: ApiServer,
    #[command(flatten)]
    pub(crate) reading: Reading,
}

#[derive(Clone, Copy, ValueEnum, Debug, PartialEq, Eq)]
pub(crate) enum CrdsFormat {
    Yaml,
    Json,
}

#[derive(Args, Debug)]
pub(crate) struct Crds {
    /// Only these kinds
    #[arg(long, num_args = 1.., value_name = "KIND", ignore_case = true,
          value_parser = clap::builder::PossibleValuesParser::new(crate::commands::crds::names()))]
    pub(crate) only: Vec<String>,
    /// How to print
    #[arg(short, long, value_name = "FORMAT", default_value = "yaml")]
    pub(crate) output: CrdsFormat,
}

#[derive(Args, Debug)]
pub(crate) struct Rules {
    /// Files, folders (read recursively), or - for standard input; with --live they only tell the names of pods
    #[arg(required_unless_present = "live", value_name = "PATH")]
    pub(crate) paths: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) reading: Reading,
    /// The rules of this node; without it, of one that has every pod
    #[arg(long, value_name = "NODE", conflicts_with = "live")]
    pub(crate) node: Option<String>,
    /// Read the table that this machine's kernel has, and say in words what it does
    #[arg(long)]
    pub(crate) live: bool,
    /// Only this pod of the kernel's table: an address, or its name in the manifests
    #[arg(long, value_name = "NS/POD|IP", requires = "live")]
    pub(crate) pod: Option<String>,
    /// Only the pods of this namespace of the manifests
    #[arg(long, value_name = "NAMESPACE", requires = "live")]
    pub(crate) namespace: Option<String>,
    /// The table's name
    #[arg(long, value_name = "NAME", default_value = "namewall", requires = "live", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) table: String,
}

#[derive(Args, Debug)]
pub(crate) struct Uninstall {
    /// The table's name
    #[arg(long, value_name = "NAME", default_value = "namewall", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) table: String,
    /// Where `run` or `agent` has kept its state; by default where the last one since the boot has
    #[arg(long, value_name = "FOLDER")]
    pub(crate) state_dir: Option<PathBuf>,
}

#[derive(Args, Debug)]
pub(crate) struct Cni {
    #[command(subcommand)]
    pub(crate) command: CniCommand,
}

#[derive(Subcommand, Debug)]
pub(crate) enum CniCommand {
    /// Copy the plugin and chain it behind the runtime's first configuration
    Install(CniInstall),
    /// Remove the plugin, its configuration and its records
    Uninstall(CniUninstall),
    /// Take the plugin out of all nodes of a cluster, before its agents are deleted
    Withdraw(CniWithdraw),
}

#[derive(Args, Debug)]
pub(crate) struct CniUninstall {
    #[command(flatten)]
    pub(crate) folders: CniFolders,
    /// Leave the records, for an agent that goes on
    #[arg(long)]
    pub(crate) keep_records: bool,
}

#[derive(Args, Debug)]
pub(crate) struct CniWithdraw {
    #[command(flatten)]
    pub(crate) server: ApiServer,
    /// The namespace of the agents
    #[arg(long, value_name = "NAME", default_value = "namewall")]
    pub(crate) namespace: String,
    /// The DaemonSet of the agents
    #[arg(long, value_name = "NAME", default_value = "namewall-agent")]
    pub(crate) daemon_set: String,
    /// How long the nodes may take
    #[arg(long, value_name = "TIME", default_value = "4m")]
    pub(crate) timeout: crate::commands::Time,
    #[command(flatten)]
    pub(crate) logging: Logging,
}

#[derive(Args, Debug)]
pub(crate) struct CniFolders {
    /// Where the runtime finds plugins
    #[arg(long, value_name = "FOLDER", default_value = "/opt/cni/bin")]
    pub(crate) bin_dir: PathBuf,
    /// Where the runtime finds configurations
    #[arg(long, value_name = "FOLDER", default_value = "/etc/cni/net.d")]
    pub(crate) conf_dir: PathBuf,
}

#[derive(Args, Debug)]
pub(crate) struct CniInstall {
    #[command(flatten)]
    pub(crate) folders: CniFolders,
    /// Go on, and follow changes of the runtime's configuration
    #[arg(long)]
    pub(crate) watch: bool,
    /// How long a configuration may take to appear; with --watch, before that is logged
    #[arg(long, value_name = "TIME", default_value = "60s")]
    pub(crate) wait: crate::commands::Time,
    /// What becomes of a new pod while no agent answers
    #[arg(long, value_name = "WHAT", value_enum, default_value_t = WhenAgentAway::Deny)]
    pub(crate) when_agent_away: WhenAgentAway,
    /// How many seconds a new pod waits for the agent [default: 10]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=100))]
    pub(crate) timeout: Option<u64>,
    /// Where the agent answers [default: /run/namewall/run.sock]
    #[arg(long, value_name = "PATH")]
    pub(crate) socket: Option<PathBuf>,
    /// Where the plugin keeps its records [default: /run/namewall/attachments]
    #[arg(long, value_name = "FOLDER")]
    pub(crate) records: Option<PathBuf>,
    /// With --watch, also ask the container runtime at this CRI socket for pods that were there before the plugin
    #[arg(long, value_name = "PATH", requires = "watch")]
    pub(crate) runtime_socket: Option<PathBuf>,
    /// Where the network namespaces of pods are
    #[arg(long, value_name = "FOLDER", default_value = "/run/netns")]
    pub(crate) netns_dir: PathBuf,
    #[command(flatten)]
    pub(crate) logging: Logging,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum WhenAgentAway {
    /// It does not start; kubelet tries again
    Deny,
    /// It starts, and is closed until an agent knows its address
    Allow,
}

impl WhenAgentAway {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Deny => "deny",
            Self::Allow => "allow",
        }
    }
}

#[derive(Args, Debug)]
pub(crate) struct Sandbox {
    #[command(subcommand)]
    pub(crate) command: SandboxCommand,
}

#[derive(Subcommand, Debug)]
pub(crate) enum SandboxCommand {
    /// Build it, in place of the one there is
    Up(SandboxUp),
    /// Try every connection, and show what happened beside what is predicted
    #[command(after_help = SANDBOX_PROBE_HELP)]
    Probe(SandboxProbe),
    /// Run a command in the network of a pod, of a node, or outside
    #[command(after_help = SANDBOX_EXEC_HELP)]
    Exec(SandboxExec),
    /// Take it away
    Down,
    /// Hold a sandbox, for `up`
    #[command(hide = true)]
    Keep(SandboxUp),
}

#[derive(Args, Debug)]
pub(crate) struct SandboxUp {
    #[command(flatten)]
    pub(crate) input: Input,
    /// What a name resolves to, so that rules by name can open it
    #[arg(long, value_name = "NAME=IP[,IP...]", value_parser = parse_dns)]
    pub(crate) dns: Vec<DnsAnswer>,
    /// A host outside the cluster
    #[arg(long, value_name = "IP", value_parser = parse_ip)]
    pub(crate) outside: Vec<IpAddr>,
}

impl SandboxUp {
    /// The same, as arguments for another process.
    pub(crate) fn as_arguments(&self) -> Vec<std::ffi::OsString> {
        let mut arguments: Vec<std::ffi::OsString> = Vec::new();
        let settings = &self.input.settings;
        arguments.extend(settings.pod_network.iter().map(|block| format!("--pod-network={block}").into()));
        arguments.extend(settings.api_server.iter().map(|address| format!("--api-server={address}").into()));
        arguments.push(format!("--cluster-domain={}", settings.cluster_domain()).into());
        arguments.extend(settings.never_lease.iter().map(|block| format!("--never-lease={}", block.0).into()));
        arguments.extend(settings.nat64_prefix.iter().map(|prefix| format!("--nat64-prefix={}", prefix.0).into()));
        for DnsAnswer { name, addresses } in &self.dns {
            let addresses: Vec<String> = addresses.iter().map(IpAddr::to_string).collect();
            arguments.push(format!("--dns={name}={}", addresses.join(",")).into());
        }
        arguments.extend(self.outside.iter().map(|address| format!("--outside={address}").into()));
        arguments.push("--".into());
        arguments.extend(self.input.paths.iter().map(|path| path.into()));
        arguments
    }
}

#[derive(Args, Debug)]
pub(crate) struct SandboxProbe {
    /// Try this port too, on every pod, node and host outside
    #[arg(long, value_name = "PORT[/PROTO]", value_parser = parse_port)]
    pub(crate) port: Vec<TransportPort>,
    /// How to print
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    pub(crate) output: Format,
}

#[derive(Args, Debug)]
pub(crate) struct SandboxExec {
    /// The pod
    #[arg(value_name = "NS/POD", conflicts_with_all = ["node", "outside"])]
    pub(crate) pod: Option<String>,
    /// A node, instead of a pod
    #[arg(long, value_name = "NODE", conflicts_with = "outside")]
    pub(crate) node: Option<String>,
    /// The world outside, instead of a pod
    #[arg(long)]
    pub(crate) outside: bool,
    /// What to run
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(crate) command: Vec<std::ffi::OsString>,
}

impl SandboxExec {
    /// How the keeper calls the place.
    pub(crate) fn place(&self) -> anyhow::Result<String> {
        match (&self.pod, &self.node, self.outside) {
            (Some(pod), None, false) => Ok(pod.clone()),
            (None, Some(node), false) => Ok(format!("node:{node}")),
            (None, None, true) => Ok("outside:".to_owned()),
            _ => anyhow::bail!("say where: NS/POD, --node NODE or --outside"),
        }
    }
}
