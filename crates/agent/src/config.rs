//! What can be set for an agent. The binary reads it from arguments and a file.

use crate::identity::AllowedSource;
use crate::learner::Learning;
use crate::node::DnsSettings;
use crate::settle::Settle;
use namewall_dataplane::CutEstablished;
use namewall_dns::{OnLearnTimeout, Settings as ServerSettings};
use namewall_policy::Snapshot;
use namewall_policy::addr::{Cidr, parse_address};
use namewall_policy::domain::DomainName;
use namewall_policy::lease::{Bounds, NeverLeased};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

pub const DNS_PORT: u16 = 53;

#[derive(Clone, Debug)]
pub struct Config {
    /// The Node that this machine is. None: the one with its host name, or the only one.
    pub node: Option<String>,
    /// The name of the kernel's table.
    pub table: String,
    /// The NFLOG group of denied packets.
    pub log_group: u16,
    pub cut: CutEstablished,
    /// When it is decided what to cut.
    pub settle: Settle,
    pub bounds: Bounds,
    pub learning: Learning,
    /// Sources that certain pods may have besides their own addresses.
    pub allowed_sources: Vec<AllowedSource>,
    /// Networks that no name opens (S6.8).
    pub never_lease: Vec<Cidr>,
    /// Prefixes of translators from IPv6 to IPv4 in this network.
    pub nat64_prefixes: Vec<Cidr>,
    pub dns: DnsConfig,
    pub fixed: FixedSettings,
}

/// Settings that count from the start of a process, by their names in the file of settings: a change of one of them is
/// told, and counts from the next start on.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct FixedSettings(pub Vec<(&'static str, String)>);

impl FixedSettings {
    /// The names of those that others have another value for.
    pub(crate) fn changed<'a>(&'a self, others: &'a Self) -> impl Iterator<Item = &'static str> + 'a {
        let own = self.0.iter().filter(|(name, value)| others.value(name) != Some(value));
        own.map(|(name, _)| *name)
    }

    fn value(&self, name: &str) -> Option<&String> {
        self.0.iter().find(|(own, _)| *own == name).map(|(_, value)| value)
    }
}

#[derive(Clone, Debug)]
pub struct DnsConfig {
    /// Servers to ask. None: the cluster's, or those of this machine.
    pub upstreams: Vec<SocketAddr>,
    /// Servers that pods may ask besides the upstreams.
    pub trusted: Vec<SocketAddr>,
    /// Addresses where anybody may ask.
    pub listen: Vec<SocketAddr>,
    /// Addresses of this machine that intercepted questions are sent to. None: the Node's first of each family.
    pub addresses: Vec<IpAddr>,
    /// The first port for intercepted questions. Each trusted server has one after it.
    pub first_port: u16,
    /// Whether pods' questions are intercepted.
    pub intercept: bool,
    pub hold_limit: Duration,
    pub on_learn_timeout: OnLearnTimeout,
    /// How many loops serve.
    pub loops: usize,
}

#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("there is no DNS server to ask; name one with --upstream, like --upstream 9.9.9.9")]
    NoUpstream,
    #[error(
        "nobody could ask namewall for a name: no Node of the manifests says which addresses this machine has; say \
         it with --address, or where to serve DNS openly with --listen"
    )]
    NoAddress,
    #[error(
        "nobody could ask namewall for a name: with --no-intercept (noIntercept) pods must ask it openly, and nothing \
         says where; name an address with --listen (listen), like --listen 192.0.2.1, or leave --no-intercept out"
    )]
    NowhereToAsk,
    #[error("there is no Node {name}; there are {}", .known.join(", "))]
    NoSuchNode { name: String, known: Vec<String> },
    #[error("which Node is this machine? Say --node, one of {}", .0.join(", "))]
    SeveralNodes(Vec<String>),
}

impl Config {
    /// What no name opens in a cluster with this domain.
    pub(crate) fn never_leased(&self, cluster_domain: &DomainName) -> NeverLeased {
        let inside = NeverLeased::new(cluster_domain.clone());
        inside.and_networks(&self.never_lease).translated_by(&self.nat64_prefixes)
    }
}

impl DnsConfig {
    /// How DNS is served on a node with these addresses, in a cluster with these DNS servers.
    pub fn settings(&self, node: &[IpAddr], cluster: &[SocketAddr]) -> Result<DnsSettings, ConfigError> {
        let choices = [self.upstreams.clone(), cluster.to_vec(), system_resolvers()];
        let upstreams = choices.into_iter().find(|servers| !servers.is_empty()).ok_or(ConfigError::NoUpstream)?;
        let first = |is_v4: bool| node.iter().copied().find(move |address| address.is_ipv4() == is_v4);
        let take_to: Vec<IpAddr> = match (self.intercept, self.addresses.is_empty()) {
            (false, _) => Vec::new(),
            (true, false) => self.addresses.clone(),
            (true, true) => [true, false].into_iter().filter_map(first).collect(),
        };
        if take_to.is_empty() && self.listen.is_empty() {
            return Err(if self.intercept { ConfigError::NoAddress } else { ConfigError::NowhereToAsk });
        }
        let mut trusted = upstreams.clone();
        trusted.extend(&self.trusted);
        Ok(DnsSettings {
            server: ServerSettings {
                listen: self.listen.iter().map(|&address| address.into()).collect(),
                upstreams,
                hold_limit: self.hold_limit,
                on_learn_timeout: self.on_learn_timeout,
                loops: self.loops,
                ..ServerSettings::default()
            },
            take_to,
            first_port: self.first_port,
            trusted,
        })
    }
}

/// The DNS servers of this machine.
fn system_resolvers() -> Vec<SocketAddr> {
    let text = std::fs::read_to_string("/etc/resolv.conf").unwrap_or_default();
    let servers = text.lines().filter_map(|line| line.trim().strip_prefix("nameserver"));
    servers.filter_map(|server| Some((parse_address(server.trim())?, DNS_PORT).into())).collect()
}

/// What this machine is called.
pub(crate) fn host_name() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().to_owned()
}

/// A Node and its addresses.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ThisNode {
    pub(crate) name: String,
    pub(crate) addresses: Vec<IpAddr>,
}

impl ThisNode {
    /// The Node that this machine is. None if there is no Node at all.
    pub(crate) fn find(snapshot: &Snapshot, named: Option<&str>) -> Result<Option<Self>, ConfigError> {
        Self::find_for(snapshot, named, Some(&host_name()))
    }

    fn find_for(snapshot: &Snapshot, named: Option<&str>, host: Option<&str>) -> Result<Option<Self>, ConfigError> {
        let known = || snapshot.nodes.iter().map(|node| node.name.to_string()).collect::<Vec<_>>();
        let is_known = |name: &str| snapshot.node_named(name).is_some();
        let name = match (named, host.filter(|host| is_known(host))) {
            (Some(name), _) if !is_known(name) => {
                return Err(ConfigError::NoSuchNode { name: name.to_owned(), known: known() });
            }
            (Some(name), _) => name.to_owned(),
            (None, Some(host)) => host.to_owned(),
            (None, None) => match known().as_slice() {
                [] => return Ok(None),
                [only] => only.clone(),
                _ => return Err(ConfigError::SeveralNodes(known())),
            },
        };
        let node = snapshot.nodes.iter().find(|node| *node.name == name);
        Ok(node.map(|node| Self { name, addresses: node.addresses.clone() }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use namewall_policy::labels::Labels;
    use namewall_policy::model::Node;

    fn snapshot(names: &[&str]) -> Snapshot {
        let mut snapshot = Snapshot::default();
        for (at, name) in names.iter().enumerate() {
            let addresses = vec![IpAddr::from([192, 0, 2, 1 + at as u8])];
            snapshot.add_node(Node { name: (*name).into(), labels: Labels::default(), addresses, source: None });
        }
        snapshot
    }

    fn find(nodes: &[&str], named: Option<&str>, host: Option<&str>) -> Result<Option<String>, ConfigError> {
        Ok(ThisNode::find_for(&snapshot(nodes), named, host)?.map(|node| node.name))
    }

    #[test]
    fn the_node_is_the_named_one_then_the_host_then_the_only_one() {
        assert_eq!(find(&["a", "b"], Some("b"), Some("a")), Ok(Some("b".to_owned())));
        assert_eq!(find(&["a", "b"], None, Some("a")), Ok(Some("a".to_owned())));
        assert_eq!(find(&["a"], None, Some("elsewhere")), Ok(Some("a".to_owned())));
        assert_eq!(find(&[], None, Some("a")), Ok(None));
    }

    #[test]
    fn a_node_that_cannot_be_told_is_an_error_that_lists_all() {
        let wrong = find(&["a", "b"], Some("c"), None).expect_err("there is no c");
        assert_eq!(wrong.to_string(), "there is no Node c; there are a, b");
        let wrong = find(&["a", "b"], None, Some("c")).expect_err("it may be either");
        assert_eq!(wrong.to_string(), "which Node is this machine? Say --node, one of a, b");
    }

    fn dns() -> DnsConfig {
        let usual = ServerSettings::default();
        DnsConfig {
            upstreams: Vec::new(),
            trusted: vec![([10, 0, 0, 9], 53).into()],
            listen: Vec::new(),
            addresses: Vec::new(),
            first_port: 1053,
            intercept: true,
            hold_limit: usual.hold_limit,
            on_learn_timeout: usual.on_learn_timeout,
            loops: usual.loops,
        }
    }

    #[test]
    fn upstreams_are_those_that_are_set_then_the_clusters() {
        let (set, cluster) = (([192, 0, 2, 53], 53).into(), ([10, 96, 0, 10], 53).into());
        let node = [IpAddr::from([192, 0, 2, 1])];
        let asked = |upstreams: &[SocketAddr]| {
            let config = DnsConfig { upstreams: upstreams.to_vec(), ..dns() };
            config.settings(&node, &[cluster]).map(|settings| (settings.server.upstreams, settings.trusted))
        };
        let trusted = ([10, 0, 0, 9], 53).into();
        assert_eq!(asked(&[set]), Ok((vec![set], vec![set, trusted])));
        assert_eq!(asked(&[]), Ok((vec![cluster], vec![cluster, trusted])));
    }

    #[test]
    fn questions_are_intercepted_at_the_first_address_of_each_family() {
        let node: Vec<IpAddr> = ["192.0.2.1", "192.0.2.2", "2001:db8::1"].map(|text| text.parse().expect("one")).into();
        let cluster = [([10, 96, 0, 10], 53).into()];
        let taken = |config: DnsConfig| config.settings(&node, &cluster).map(|settings| settings.take_to);
        assert_eq!(taken(dns()), Ok(vec![node[0], node[2]]));
        assert_eq!(taken(DnsConfig { addresses: vec![node[1]], ..dns() }), Ok(vec![node[1]]));
        assert_eq!(taken(DnsConfig { intercept: false, ..dns() }), Err(ConfigError::NowhereToAsk));
        let nowhere = dns().settings(&[], &cluster).map(|settings| settings.take_to);
        assert_eq!(nowhere, Err(ConfigError::NoAddress));
        let open = DnsConfig { intercept: false, listen: vec![([127, 0, 0, 1], 53).into()], ..dns() };
        assert_eq!(taken(open), Ok(Vec::new()));
    }
}
