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

Exit codes:
  0  every probe was answered as expected
  1  at least one was not
  2  a scenario could not be read";

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

#[derive(Args, Debug)]
pub(crate) struct Check {
    #[command(flatten)]
    pub(crate) input: Input,
    /// How to print
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    pub(crate) output: Format,
}

#[derive(Args, Debug)]
pub(crate) struct Explain {
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
    #[command(flatten)]
    pub(crate) input: Input,
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
pub(crate) struct Matrix {
    #[command(flatten)]
    pub(crate) input: Input,
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
    /// How to print
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    pub(crate) output: TestFormat,
}

#[derive(Args, Debug)]
pub(crate) struct Policies {
    /// The workload: NAMESPACE/POD, or a pod's address
    #[arg(value_name = "NS/POD|IP")]
    pub(crate) workload: Host,
    #[command(flatten)]
    pub(crate) input: Input,
    /// How to print
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    pub(crate) output: Format,
}
