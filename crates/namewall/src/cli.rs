//! What can be typed.

use clap::{Args, Parser, Subcommand, ValueEnum};
use namewall_policy::addr::{Cidr, parse_address};
use namewall_policy::ask::{Host, Target};
use std::net::IpAddr;
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
    /// Print the definitions of the kinds that a cluster may lack, for kubectl to apply
    #[command(after_help = CRDS_HELP)]
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

const CHECK_HELP: &str = "\
Examples:
  namewall check examples/shop
  kubectl get netpol,ns,pods -A -o yaml | namewall check -

Exit codes:
  0  no error was found (there may be warnings and hints)
  1  at least one finding of severity error
  2  the input could not be read";

const EXPLAIN_HELP: &str = "\
Examples:
  namewall explain --from shop/web --to shop/db:5432 examples/shop
  namewall explain --from shop/api --to api.payments.example:443 \\
      --dns api.payments.example=198.51.100.7 examples/shop
  namewall explain --from 203.0.113.9 --to shop/web:22/TCP \\
      --expect deny examples/shop
  namewall explain --live --from shop/api --to api.payments.example:443

An end is NAMESPACE/NAME (NAMESPACE/KIND/NAME where two kinds share a name), an
address, or, as a destination, a DNS name. IPv6 addresses with a port stand in
brackets. Without a port the answer says which ports are open.

Exit codes:
  0  the question could be answered, whatever the verdict
  1  --expect was given and the verdict is the other one
  2  the question or the input could not be read";

const MATRIX_HELP: &str = "\
Examples:
  namewall matrix examples/shop
  namewall matrix --focus shop/web -o json examples/shop
  namewall matrix -o svg examples/shop > shop.svg
  namewall matrix --port 443/TCP examples/shop

Ranges of addresses speak of what is outside: addresses that no workload has.

Exit codes:
  0  done
  2  the input could not be read";

const DIFF_HELP: &str = "\
Examples:
  namewall diff main/manifests manifests
  namewall diff -o md old.yaml new.yaml >> comment.md

Exit codes:
  0  the same connections are open
  1  some connection was added, removed or changed
  2  the input could not be read";

const TEST_HELP: &str = "\
Examples:
  namewall test examples/shop/scenario.yaml
  namewall test -o junit tests/*.yaml > report.xml
  namewall test --real tests/scenarios/packets
  namewall test --real --tell examples/names

With --real every step is also taken in network namespaces, and every probe is
tried with packets: what is denied must go unanswered, and the kernel must tell of
it by the rule the core names. It takes root, or user namespaces; `advance` really
waits.

Exit codes:
  0  every probe was answered as expected
  1  at least one was not
  2  a scenario could not be read";

const RULES_HELP: &str = "\
Examples:
  namewall rules examples/shop
  namewall rules --node node-1 examples/shop | less

Sets are shown without their elements. Nothing is changed, and no rights are needed.

Exit codes:
  0  done
  2  the input could not be read";

const RUN_HELP: &str = "\
Examples:
  namewall run --manifests /etc/namewall
  namewall run --manifests policies.yaml --node node-1 --upstream 10.96.0.10 --upstream 9.9.9.9
  namewall run --manifests . --config namewall.yaml
  namewall run --manifests . --take-over

Pods' questions to any DNS server are taken to namewall's own and go on to the server
they were meant for, if that is an upstream or trusted, else to the upstreams; whose
answers are what names open. Without --upstream those of /etc/resolv.conf are asked.
What a name opens is in the kernel before the pod has its answer.

Files are watched: a change is enforced within a second, and a file that cannot be read
keeps its last good version. SIGHUP reads the configuration again, SIGTERM ends it. The
kernel's rules stay, whatever becomes of the process; `namewall uninstall` removes them.
With --take-over it takes over from one that runs, without losing a question.

Exit codes:
  0  it was told to end
  2  it could not start";

const AGENT_HELP: &str = "\
Examples:
  namewall agent --node node-1
  namewall agent --node node-1 --kubeconfig ~/.kube/config --upstream 10.96.0.10

The cluster's objects are watched, and what they say is enforced in this node's kernel as
they change. Nothing is enforced anew before all of them are known; while the API server
is away, what was known stays in force and names are learned as before. In a pod the
service account's token is used.

DNS is served as by `namewall run`, and so are `namewall status`, `leases`, `explain
--live` and `uninstall`.

Exit codes:
  0  it was told to end
  2  it could not start";

const CONTROLLER_HELP: &str = "\
Examples:
  namewall controller
  namewall controller --kubeconfig ~/.kube/config --namespace namewall --resolver 10.96.0.10
  namewall controller --all-names

There is one DNSNameResolver for every name in EgressFirewalls, made when the first rule
with it comes and deleted when the last one goes. Its addresses are looked up again when
their TTL is over, at up to five resolvers; agents open on their nodes what it says. Of
several replicas one leads; another takes over within 15 seconds.

Exit codes:
  0  it was told to end
  2  it could not start";

const DNS_HELP: &str = "\
Examples:
  namewall dns --conf Corefile
  namewall dns --conf Corefile --check
  namewall dns --conf Corefile --explain 'A www.example.com from 10.1.2.3 edns0:0xffed=abc'
  namewall dns --conf Corefile -o json --explain 'A www.example.com answer 192.0.2.1,192.0.2.2'
  namewall dns --conf Corefile --manifests cluster.yaml
  namewall dns --conf Corefile --kubeconfig ~/.kube/config

Directives and rules are those of CoreDNS and its policy plugins: see docs/corefile.md and
docs/expressions.md. A mistake is told with its place before any socket opens. The file, what
it imports and what its engines read are watched (`reload`), and SIGHUP has all of it read
again; what is wrong changes nothing. `dnsnameresolver` writes to the API server that
--kubeconfig names, or that of the pod it runs in; rules then know clients as its pods.

--explain prints what becomes of a question, rule by rule, and asks nobody but engines:
  TYPE NAME [from ADDRESS[:PORT]] [at ADDRESS[:PORT]] [over udp|tcp] [edns0:CODE=TEXT|0xHEX]...
      [answer ADDRESS,...|NODATA|NXDOMAIN|SERVFAIL|REFUSED]
With an answer, or where `hosts` has one, response rules are explained too.

Exit codes:
  0  it was told to end; with --check, the Corefile can be served
  1  with --check, it cannot; with --explain, the question does not pass
  2  it could not start";

const STATUS_HELP: &str = "\
Examples:
  namewall status
  namewall status -o json

Exit codes:
  0  it runs
  2  none runs, or it does not answer";

const LEASES_HELP: &str = "\
Examples:
  namewall leases
  namewall leases api.example.com
  namewall leases -o json

Exit codes:
  0  done
  2  none runs, or it does not answer";

const SANDBOX_HELP: &str = "\
Examples:
  namewall sandbox up examples/shop
  namewall sandbox probe
  namewall sandbox exec shop/web -- ping -c1 10.244.1.12
  namewall sandbox down

Every node and every pod is a network namespace, Services are translated as
kube-proxy does it, and the policies are enforced in the nodes by this machine's
own kernel. The machine's own network is not touched. It takes root, or user
namespaces. There is one sandbox a user; a second `up` replaces the first. To have
more, set NAMEWALL_RUNTIME_DIR to a folder for each.";

const SANDBOX_PROBE_HELP: &str = "\
Examples:
  namewall sandbox probe
  namewall sandbox probe --port 443/TCP --port 53/UDP -o json

Every pod and every host outside tries every pod's ports, every node and every
Service. `+` is open, `·` is denied (the packets are dropped, nobody answers), `!`
is not what was predicted.

Exit codes:
  0  everything is as predicted
  1  something is not
  2  no sandbox is up, or it could not be asked";

const SANDBOX_EXEC_HELP: &str = "\
Examples:
  namewall sandbox exec shop/web -- ip address
  namewall sandbox exec --node node-1 -- nft list ruleset
  namewall sandbox exec --outside -- nc -vz 10.244.1.10 8080

The command's exit code is passed on.";

const UNINSTALL_HELP: &str = "\
Examples:
  namewall uninstall
  namewall uninstall --table other

Only namewall's own table is removed. It takes root, or the capability NET_ADMIN.

Exit codes:
  0  nothing of it is left
  2  it could not be removed";

const CRDS_HELP: &str = "\
Examples:
  namewall crds | kubectl apply --server-side -f -
  namewall crds --only ClusterEgressFirewall NodeAddresses
  namewall crds -o json > crds.json

ClusterEgressFirewall and NodeAddresses are namewall's own. The others are in the
form their projects publish; leave them out where the cluster has them already.

Exit codes:
  0  done
  2  there is no such kind";

const POLICIES_HELP: &str = "\
Examples:
  namewall policies shop/web examples/shop

Exit codes:
  0  done
  2  the workload or the input could not be read";

/// Where the cluster is read from.
#[derive(Args, Debug)]
pub(crate) struct Settings {
    /// A block that pods get their addresses from, besides the nodes' podCIDRs
    #[arg(long, value_name = "CIDR")]
    pub(crate) pod_network: Vec<Cidr>,
    /// A further address of the API server
    #[arg(long, value_name = "IP", value_parser = parse_ip)]
    pub(crate) api_server: Vec<IpAddr>,
    /// The cluster's DNS domain
    #[arg(long, value_name = "NAME", default_value = "cluster.local")]
    pub(crate) cluster_domain: namewall_policy::domain::DomainName,
}

#[derive(Args, Debug)]
pub(crate) struct Input {
    /// Files, folders (read recursively), or - for standard input
    #[arg(required = true, value_name = "PATH")]
    pub(crate) paths: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) settings: Settings,
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
    pub(crate) settings: Settings,
}

#[derive(Args, Debug)]
pub(crate) struct Run {
    /// Files and folders (read recursively) to enforce
    #[arg(long, required = true, num_args = 1.., value_name = "PATH")]
    pub(crate) manifests: Vec<PathBuf>,
    /// Take over from the namewall that runs here: its sockets, its rules, its leases; no question is lost
    #[arg(long)]
    pub(crate) take_over: bool,
    /// A file of settings; what is said here on the command line counts more
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) options: crate::commands::RunOptions,
    #[command(flatten)]
    pub(crate) settings: Settings,
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
    /// The Service that pods ask for names, which is asked in their stead unless --upstream names others
    #[arg(long, value_name = "NS/NAME", default_value = "kube-system/kube-dns", value_parser = parse_object)]
    pub(crate) dns_service: (String, String),
    /// Whose DNSNameResolvers are believed and written; by default those of the agent's own namespace, or of namewall
    #[arg(long, value_name = "NAME")]
    pub(crate) names_namespace: Vec<String>,
    /// Let a pod talk before it is known; by default an address of the node's podCIDRs is closed until then
    #[arg(long)]
    pub(crate) open_until_known: bool,
    /// Take over from the namewall that runs here: its sockets, its rules, its leases; no question is lost
    #[arg(long)]
    pub(crate) take_over: bool,
    /// A file of settings; what is said here on the command line counts more
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) options: crate::commands::RunOptions,
    #[command(flatten)]
    pub(crate) settings: Settings,
}

#[derive(Args, Debug)]
pub(crate) struct Controller {
    #[command(flatten)]
    pub(crate) server: ApiServer,
    /// Where its objects are; by default the namespace of its pod, or namewall
    #[arg(long, value_name = "NAME")]
    pub(crate) namespace: Option<String>,
    /// A DNS server to ask; by default the pods of --dns-service
    #[arg(long, value_name = "IP[:PORT]")]
    pub(crate) resolver: Vec<crate::commands::DnsServer>,
    /// The Service whose pods are asked for names
    #[arg(long, value_name = "NS/NAME", default_value = "kube-system/kube-dns", value_parser = parse_object)]
    pub(crate) dns_service: (String, String),
    /// Keep the names of all kinds of policies, not only of EgressFirewalls
    #[arg(long)]
    pub(crate) all_names: bool,
    /// What this replica is called; by default by its host
    #[arg(long, value_name = "NAME")]
    pub(crate) identity: Option<String>,
    /// Answer probes at this port: /healthz and /readyz
    #[arg(long, value_name = "PORT")]
    pub(crate) health_port: Option<u16>,
}

fn parse_object(text: &str) -> Result<(String, String), String> {
    let (namespace, name) = text.split_once('/').ok_or_else(|| format!("`{text}` is no NAMESPACE/NAME"))?;
    Ok((namespace.to_owned(), name.to_owned()))
}

#[derive(Args, Debug)]
pub(crate) struct Dns {
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
    /// Only of this name, and names under it
    #[arg(value_name = "NAME")]
    pub(crate) name: Option<namewall_policy::domain::DomainName>,
    #[command(flatten)]
    pub(crate) live: Live,
}

#[derive(Clone, Copy, ValueEnum, Debug, PartialEq, Eq)]
pub(crate) enum Expect {
    Allow,
    Deny,
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
    Csv,
    Dot,
    Svg,
    Html,
    Md,
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
    /// Only this port, like 443/TCP
    #[arg(long, value_name = "PORT[/PROTO]", value_parser = parse_port)]
    pub(crate) port: Option<PortFilter>,
    /// What workloads that do not exist yet could reach, or be reached by (text or json)
    #[arg(long)]
    pub(crate) exposure: bool,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct PortFilter {
    pub(crate) protocol: namewall_policy::port::Protocol,
    pub(crate) port: u16,
}

fn parse_port(text: &str) -> Result<PortFilter, String> {
    let (port, protocol) = text.split_once('/').unwrap_or((text, "TCP"));
    let port = match port.parse::<u16>() {
        Ok(port @ 1..) => port,
        _ => return Err(format!("`{port}` is no port; use 1 to 65535")),
    };
    let protocol: namewall_policy::port::Protocol = protocol.parse().map_err(|error| format!("{error}"))?;
    if !protocol.has_ports() {
        return Err(format!("{protocol} has no ports; use TCP, UDP or SCTP"));
    }
    Ok(PortFilter { protocol, port })
}

#[derive(Clone, Copy, ValueEnum, Debug, PartialEq, Eq)]
pub(crate) enum DiffFormat {
    Text,
    Json,
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
    #[command(flatten)]
    pub(crate) settings: Settings,
}

#[derive(Clone, Copy, ValueEnum, Debug, PartialEq, Eq)]
pub(crate) enum TestFormat {
    Text,
    Json,
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

#[derive(Clone, Copy, ValueEnum, Debug, PartialEq, Eq)]
pub(crate) enum CrdsFormat {
    Yaml,
    Json,
}

#[derive(Args, Debug)]
pub(crate) struct Crds {
    /// Only these kinds
    #[arg(long, num_args = 1.., value_name = "KIND", ignore_case = true,
          value_parser = clap::builder::PossibleValuesParser::new(namewall_kubernetes::crds::KINDS))]
    pub(crate) only: Vec<String>,
    /// How to print
    #[arg(short, long, value_name = "FORMAT", default_value = "yaml")]
    pub(crate) output: CrdsFormat,
}

#[derive(Args, Debug)]
pub(crate) struct Rules {
    #[command(flatten)]
    pub(crate) input: Input,
    /// The rules of this node; without it, of one that has every pod
    #[arg(long, value_name = "NODE")]
    pub(crate) node: Option<String>,
}

#[derive(Args, Debug)]
pub(crate) struct Uninstall {
    /// The table's name
    #[arg(long, value_name = "NAME", default_value = "namewall")]
    pub(crate) table: String,
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
        arguments.push(format!("--cluster-domain={}", settings.cluster_domain).into());
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
    pub(crate) port: Vec<PortFilter>,
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
