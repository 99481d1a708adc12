//! What can be set, on the command line and in a file.

use crate::cli::{Settings, parse_api_server};
use crate::commands::HttpAddress;
use crate::commands::sandbox::runtime_folder;
use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use namewall_agent::{
    AllowedSource, Config, DNS_PORT, DnsConfig, FixedSettings, Learning, NotASource, Settle, StorageSettings,
};
use namewall_cluster::yaml::Mark;
use namewall_cluster::{Document, Settings as ClusterSettings};
use namewall_dataplane::CutEstablished;
use namewall_dataplane::nft::Settings as NftSettings;
use namewall_dns::{OnLearnTimeout, Settings as ServerSettings};
use namewall_policy::addr::{Cidr, CidrError, parse_address};
use namewall_policy::domain::{DomainName, NameError};
use namewall_policy::lease::{Bounds, Lifetimes, is_nat64_prefix};
use nix::unistd::geteuid;
use serde::Deserialize;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

/// Above the ports that need rights, and not assigned to anything.
const FIRST_PORT: u16 = 1053;
const LOG_GROUP: u16 = 53;

#[derive(Args, Deserialize, Clone, Default, Debug)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Options {
    /// Which Node of the manifests this machine is; by default the one of its host name, or the only one
    #[arg(long, value_name = "NAME")]
    pub(crate) node: Option<String>,
    /// Let a pod talk before it is known; by default an address of the node's podCIDRs is closed until then, and with
    /// `run` also one of a --pod-network
    #[arg(long)]
    pub(crate) open_until_known: bool,
    /// As --pod-network, which counts more.
    #[arg(skip)]
    pub(crate) pod_network: Vec<Block>,
    /// As --api-server, which counts more.
    #[arg(skip)]
    pub(crate) api_server: Vec<ApiServer>,
    /// As --cluster-domain, which counts more.
    #[arg(skip)]
    pub(crate) cluster_domain: Option<ClusterDomain>,
    /// A DNS server to ask, in this order
    #[arg(long, value_name = "IP[:PORT]")]
    pub(crate) upstream: Vec<Server>,
    /// A DNS server that pods may mean, besides the upstreams
    #[arg(long, value_name = "IP[:PORT]")]
    pub(crate) trust: Vec<Server>,
    /// An address where DNS is served openly, too
    #[arg(long, value_name = "IP[:PORT]")]
    pub(crate) listen: Vec<Server>,
    /// An address of this machine that pods' DNS is taken to; by default the Node's first of each family
    #[arg(long, value_name = "IP")]
    pub(crate) address: Vec<IpAddr>,
    /// The first port that pods' DNS is taken to; each server that pods may mean has one after it
    #[arg(long, value_name = "PORT")]
    pub(crate) dns_port: Option<u16>,
    /// Leave pods' DNS alone; they must ask where --listen says
    #[arg(long)]
    pub(crate) no_intercept: bool,
    /// What a client gets if what its answer opens could not be opened in time
    #[arg(long, value_name = "WHAT")]
    pub(crate) on_learn_timeout: Option<OnTimeout>,
    /// How long an answer waits for the kernel [default: 100ms]
    #[arg(long, value_name = "TIME")]
    pub(crate) hold_limit: Option<Time>,
    /// Loops that serve DNS, each with threads of its own [default: one for each core, 4 at most]
    #[arg(long, value_name = "COUNT")]
    pub(crate) dns_loops: Option<Loops>,
    /// What a TTL of 0 counts as [default: 5s]
    #[arg(long, value_name = "TIME")]
    pub(crate) minimum_ttl: Option<Time>,
    /// What every longer TTL counts as [default: 60m]
    #[arg(long, value_name = "TIME")]
    pub(crate) maximum_ttl: Option<Time>,
    /// How long a lease outlives its TTL [default: 5s]
    #[arg(long, value_name = "TIME")]
    pub(crate) grace: Option<Time>,
    /// Let rules speak of names that an answer only leads over, by a CNAME
    #[arg(long)]
    pub(crate) match_aliases: bool,
    /// As --never-lease, which counts more.
    #[arg(skip)]
    pub(crate) never_lease: Vec<Block>,
    /// As --nat64-prefix, which counts more.
    #[arg(skip)]
    pub(crate) nat64_prefix: Vec<Nat64Prefix>,
    /// Addresses kept a name [default: 1000; at least 100]
    #[arg(long, value_name = "COUNT")]
    pub(crate) addresses_a_name: Option<usize>,
    /// Names kept a pattern [default: 100000]
    #[arg(long, value_name = "COUNT")]
    pub(crate) names_a_pattern: Option<usize>,
    /// Leases kept in all [default: 200000]
    #[arg(long, value_name = "COUNT")]
    pub(crate) most_leases: Option<usize>,
    /// Which connections a change of policies cuts [default: always]
    #[arg(long, value_name = "WHICH")]
    pub(crate) cut_established: Option<Cuts>,
    /// Without a change for so long, policies have settled, and what they forbid is cut [default: 200ms]
    #[arg(long, value_name = "TIME")]
    pub(crate) settle_time: Option<Time>,
    /// So long after the first change, policies count as settled [default: 2s]
    #[arg(long, value_name = "TIME")]
    pub(crate) max_settle_time: Option<Time>,
    /// Let these pods send from these addresses too: routers, VPNs, virtual addresses. A name may end with *
    #[arg(long, value_name = "NAMESPACE/POD=CIDR")]
    pub(crate) allow_source: Vec<Source>,
    /// The kernel's table [default: namewall]
    #[arg(long, value_name = "NAME")]
    pub(crate) table: Option<String>,
    /// The NFLOG group that denials are told to [default: 53]
    #[arg(long, value_name = "NUMBER")]
    pub(crate) log_group: Option<u16>,
    /// Where the last good version of every policy outlives the process [default: /var/lib/namewall]
    #[arg(long, value_name = "FOLDER")]
    pub(crate) state_dir: Option<PathBuf>,
    /// Serve /metrics, /health and /ready there [default: nowhere]
    #[arg(long, value_name = "[IP]:PORT")]
    pub(crate) metrics_address: Option<HttpAddress>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum OnTimeout {
    /// SERVFAIL: it will ask again
    Servfail,
    /// The answer, though its first connection may fail
    Release,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Cuts {
    /// Whatever it now forbids
    Always,
    /// Only what extensions/v1beta1 forbids
    V1beta1,
}

/// A server by its address, and its port if that is another than DNS's.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct Server(pub(crate) SocketAddr);

impl FromStr for Server {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(address) = parse_address(text) {
            return Ok(Self((address, DNS_PORT).into()));
        }
        let wrong = || format!("`{text}` is no address like 10.96.0.10, 10.96.0.10:5353 or [2001:db8::1]:53");
        text.parse().map(Self).map_err(|_| wrong())
    }
}

impl TryFrom<String> for Server {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

/// How many loops serve DNS.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(try_from = "usize")]
pub(crate) struct Loops(usize);

impl TryFrom<usize> for Loops {
    type Error = String;

    fn try_from(count: usize) -> Result<Self, String> {
        let most = ServerSettings::MOST_LOOPS;
        (1..=most).contains(&count).then_some(Self(count)).ok_or_else(|| format!("{count} is not 1 to {most}"))
    }
}

impl FromStr for Loops {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        text.parse().map_err(|_| format!("`{text}` is no number")).and_then(|count: usize| count.try_into())
    }
}

/// A block of addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct Block(pub(crate) Cidr);

impl FromStr for Block {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        text.parse().map(Self).map_err(|error: CidrError| error.to_string())
    }
}

impl TryFrom<String> for Block {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

/// An address of the API server.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct ApiServer(pub(crate) SocketAddr);

impl TryFrom<String> for ApiServer {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        parse_api_server(&text).map(Self)
    }
}

/// The cluster's DNS domain.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct ClusterDomain(pub(crate) DomainName);

impl TryFrom<String> for ClusterDomain {
    type Error = NameError;

    fn try_from(text: String) -> Result<Self, NameError> {
        text.parse().map(Self)
    }
}

/// The prefix of a translator from IPv6 to IPv4 (RFC 6052).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct Nat64Prefix(pub(crate) Cidr);

impl FromStr for Nat64Prefix {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let Block(prefix) = text.parse()?;
        let wrong = || format!("`{text}` is no IPv6 prefix of 32, 40, 48, 56, 64 or 96 bits, like 2001:db8:64::/96");
        is_nat64_prefix(prefix).then_some(Self(prefix)).ok_or_else(wrong)
    }
}

impl TryFrom<String> for Nat64Prefix {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

/// Pods, and a block that they may send from.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct Source(pub(crate) AllowedSource);

impl FromStr for Source {
    type Err = NotASource;

    fn from_str(text: &str) -> Result<Self, NotASource> {
        text.parse().map(Self)
    }
}

impl TryFrom<String> for Source {
    type Error = NotASource;

    fn try_from(text: String) -> Result<Self, NotASource> {
        text.parse()
    }
}

/// A time like `100ms` or `5s`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct Time(pub(crate) Duration);

impl FromStr for Time {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is no time like 100ms, 5s or 2m");
        let digits = text.find(|c: char| !c.is_ascii_digit()).ok_or_else(wrong)?;
        let number: u32 = text[..digits].parse().map_err(|_| wrong())?;
        let unit = match &text[digits..] {
            "ms" => Duration::from_millis(1),
            "s" => Duration::from_secs(1),
            "m" => Duration::from_secs(60),
            _ => return Err(wrong()),
        };
        Ok(Self(unit * number))
    }
}

impl TryFrom<String> for Time {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

/// The state directory of this user. A runtime folder of its own has a state of its own.
pub(crate) fn state_folder() -> Result<PathBuf> {
    let has_own_folder = std::env::var_os("NAMEWALL_RUNTIME_DIR").is_some_and(|value| !value.is_empty());
    match geteuid().is_root() && !has_own_folder {
        true => Ok(PathBuf::from("/var/lib/namewall")),
        false => Ok(runtime_folder()?.join("state")),
    }
}

/// Where something is wrong in a file.
fn marked(file: &str, mark: Mark) -> String {
    format!("{file}:{}:{}", mark.line, mark.column)
}

impl Options {
    /// What the file says, where the command line says nothing.
    pub(crate) fn with_file(&self, path: &Path) -> Result<Self> {
        let text = namewall_cluster::read_text(path).with_context(|| format!("cannot read {}", path.display()))?;
        let file: Arc<str> = path.display().to_string().into();
        // A file that was cut off must not put every setting back to its default.
        if text.trim().is_empty() {
            bail!("{file} is empty; write {{}} if all settings are to have their defaults");
        }
        let (documents, findings) = Document::read_all(&file, &text);
        if let Some(finding) = findings.first() {
            let at = finding.source.as_ref();
            let at = at.map_or(file.to_string(), |at| format!("{file}:{}:{}", at.line, at.column));
            bail!("{at}: {}", finding.message);
        }
        let Some(document) = documents.first() else { return Ok(self.clone()) };
        let (said, unknown) = namewall_cluster::yaml::read::<Options>(&document.node, "")
            .map_err(|error| anyhow::anyhow!("{}: {}: {}", marked(&file, error.mark), error.path, error.message))?;
        if let Some(unknown) = unknown.first() {
            let at = marked(&file, unknown.mark);
            bail!("{at}: there is no setting `{}`; `namewall run --help` lists them", unknown.path);
        }
        let or = |own: &Vec<Server>, other: Vec<Server>| if own.is_empty() { other } else { own.clone() };
        Ok(Self {
            node: self.node.clone().or(said.node),
            open_until_known: self.open_until_known || said.open_until_known,
            pod_network: said.pod_network,
            api_server: said.api_server,
            cluster_domain: said.cluster_domain,
            upstream: or(&self.upstream, said.upstream),
            trust: or(&self.trust, said.trust),
            listen: or(&self.listen, said.listen),
            address: if self.address.is_empty() { said.address } else { self.address.clone() },
            dns_port: self.dns_port.or(said.dns_port),
            no_intercept: self.no_intercept || said.no_intercept,
            on_learn_timeout: self.on_learn_timeout.or(said.on_learn_timeout),
            hold_limit: self.hold_limit.or(said.hold_limit),
            dns_loops: self.dns_loops.or(said.dns_loops),
            minimum_ttl: self.minimum_ttl.or(said.minimum_ttl),
            maximum_ttl: self.maximum_ttl.or(said.maximum_ttl),
            grace: self.grace.or(said.grace),
            match_aliases: self.match_aliases || said.match_aliases,
            never_lease: said.never_lease,
            nat64_prefix: said.nat64_prefix,
            addresses_a_name: self.addresses_a_name.or(said.addresses_a_name),
            names_a_pattern: self.names_a_pattern.or(said.names_a_pattern),
            most_leases: self.most_leases.or(said.most_leases),
            cut_established: self.cut_established.or(said.cut_established),
            settle_time: self.settle_time.or(said.settle_time),
            max_settle_time: self.max_settle_time.or(said.max_settle_time),
            allow_source: match self.allow_source.is_empty() {
                true => said.allow_source,
                false => self.allow_source.clone(),
            },
            table: self.table.clone().or(said.table),
            log_group: self.log_group.or(said.log_group),
            state_dir: self.state_dir.clone().or(said.state_dir),
            metrics_address: self.metrics_address.or(said.metrics_address),
        })
    }

    /// How the cluster is read: what the command line says, else the file.
    pub(crate) fn cluster(&self, settings: &Settings) -> ClusterSettings {
        let mut cluster = settings.cluster();
        if cluster.pod_networks.is_empty() {
            cluster.pod_networks = self.pod_network.iter().map(|block| block.0).collect();
        }
        if cluster.api_server.is_empty() {
            cluster.api_server = self.api_server.iter().map(|server| server.0).collect();
        }
        cluster
    }

    /// What the command line says, else the file.
    pub(crate) fn cluster_domain(&self, settings: &Settings) -> DomainName {
        let said = self.cluster_domain.as_ref().filter(|_| settings.cluster_domain.is_none());
        said.map_or_else(|| settings.cluster_domain(), |domain| domain.0.clone())
    }

    /// The same, with what the command line says of names; it counts more than the file.
    pub(crate) fn with_settings(mut self, settings: &Settings) -> Self {
        if !settings.never_lease.is_empty() {
            self.never_lease.clone_from(&settings.never_lease);
        }
        if !settings.nat64_prefix.is_empty() {
            self.nat64_prefix.clone_from(&settings.nat64_prefix);
        }
        self
    }

    /// Where the last good objects are stored.
    pub(crate) fn storage(&self) -> Result<StorageSettings> {
        let table = self.table.clone().unwrap_or_else(|| NftSettings::default().table);
        let folder = self.state_dir.clone().map_or_else(state_folder, Ok)?;
        Ok(StorageSettings { folder, table })
    }

    pub(crate) fn config(&self) -> Config {
        Config {
            node: self.node.clone(),
            table: self.table.clone().unwrap_or_else(|| NftSettings::default().table),
            log_group: self.log_group.unwrap_or(LOG_GROUP),
            cut: match self.cut_established {
                Some(Cuts::V1beta1) => CutEstablished::V1Beta1,
                Some(Cuts::Always) | None => CutEstablished::Always,
            },
            settle: self.settle(),
            bounds: self.bounds(),
            learning: self.learning(),
            allowed_sources: self.allow_source.iter().map(|source| source.0.clone()).collect(),
            never_lease: self.never_lease.iter().map(|block| block.0).collect(),
            nat64_prefixes: self.nat64_prefix.iter().map(|prefix| prefix.0).collect(),
            dns: self.dns(),
            fixed: self.fixed(),
        }
    }

    /// Settings that a running process does not take.
    fn fixed(&self) -> FixedSettings {
        let Self { node, open_until_known, pod_network, listen, address, .. } = self;
        let Self { addresses_a_name, names_a_pattern, most_leases, table, log_group, .. } = self;
        let Self { state_dir, metrics_address, dns_loops, no_intercept, dns_port, .. } = self;
        let Self { api_server, cluster_domain, .. } = self;
        let values: [(&str, &dyn std::fmt::Debug); 17] = [
            ("node", node),
            ("apiServer", api_server),
            ("clusterDomain", cluster_domain),
            ("openUntilKnown", open_until_known),
            ("podNetwork", pod_network),
            ("listen", listen),
            ("address", address),
            ("dnsPort", dns_port),
            ("noIntercept", no_intercept),
            ("dnsLoops", dns_loops),
            ("addressesAName", addresses_a_name),
            ("namesAPattern", names_a_pattern),
            ("mostLeases", most_leases),
            ("table", table),
            ("logGroup", log_group),
            ("stateDir", state_dir),
            ("metricsAddress", metrics_address),
        ];
        FixedSettings(values.map(|(name, value)| (name, format!("{value:?}"))).into())
    }

    fn settle(&self) -> Settle {
        let usual = Settle::default();
        Settle {
            quiet: self.settle_time.map_or(usual.quiet, |time| time.0),
            at_most: self.max_settle_time.map_or(usual.at_most, |time| time.0),
        }
    }

    fn bounds(&self) -> Bounds {
        let usual = Bounds::default();
        Bounds {
            addresses_a_name: self.addresses_a_name.unwrap_or(usual.addresses_a_name),
            names_a_pattern: self.names_a_pattern.unwrap_or(usual.names_a_pattern),
            leases: self.most_leases.unwrap_or(usual.leases),
        }
    }

    fn learning(&self) -> Learning {
        let usual = Lifetimes::default();
        let lifetimes = Lifetimes {
            minimum: self.minimum_ttl.map_or(usual.minimum, |time| time.0),
            maximum: self.maximum_ttl.map_or(usual.maximum, |time| time.0),
            grace: self.grace.map_or(usual.grace, |time| time.0),
        };
        Learning { lifetimes, aliases: self.match_aliases, ..Learning::default() }
    }

    fn dns(&self) -> DnsConfig {
        let addresses = |servers: &[Server]| servers.iter().map(|server| server.0).collect();
        DnsConfig {
            upstreams: addresses(&self.upstream),
            trusted: addresses(&self.trust),
            listen: addresses(&self.listen),
            addresses: self.address.clone(),
            first_port: self.dns_port.unwrap_or(FIRST_PORT),
            intercept: !self.no_intercept,
            hold_limit: self.hold_limit.map_or(ServerSettings::default().hold_limit, |time| time.0),
            on_learn_timeout: match self.on_learn_timeout {
                Some(OnTimeout::Release) => OnLearnTimeout::Release,
                Some(OnTimeout::Servfail) | None => OnLearnTimeout::Fail,
            },
            loops: self.dns_loops.map_or_else(ServerSettings::usual_loops, |loops| loops.0),
        }
    }
}

#[cfg(test)]
mod tests;
