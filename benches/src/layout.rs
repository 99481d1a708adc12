//! Who is where: namespaces with team and environment, applications in them,
//! pods on nodes, and the addresses of both.

use crate::Cluster;
use crate::random::mix;
use std::net::Ipv4Addr;

pub(crate) const TEAMS: [&str; 20] = [
    "payments", "orders", "catalog", "identity", "search", "shipping", "billing", "fraud", "growth", "mobile", "data",
    "ledger", "risk", "pricing", "loyalty", "content", "support", "media", "maps", "partner",
];
pub(crate) const ENVIRONMENTS: [&str; 4] = ["prod", "staging", "test", "dev"];

/// What an application is, and what it listens on.
#[derive(Debug)]
pub(crate) struct Trade {
    pub(crate) name: &'static str,
    pub(crate) tier: &'static str,
    pub(crate) ports: &'static [(&'static str, u16)],
}

const fn trade(name: &'static str, tier: &'static str, ports: &'static [(&'static str, u16)]) -> Trade {
    Trade { name, tier, ports }
}

const METRICS: (&str, u16) = ("metrics", 9090);

pub(crate) const TRADES: [Trade; 16] = [
    trade("web", "frontend", &[("http", 8080), METRICS]),
    trade("api", "backend", &[("http", 8080), ("grpc", 50051), METRICS]),
    trade("db", "data", &[("postgres", 5432), METRICS]),
    trade("worker", "backend", &[METRICS]),
    trade("cache", "data", &[("redis", 6379), METRICS]),
    trade("gateway", "frontend", &[("http", 8080), ("https", 8443), METRICS]),
    trade("auth", "backend", &[("grpc", 50051), METRICS]),
    trade("queue", "data", &[("amqp", 5672), ("admin", 15672), METRICS]),
    trade("mailer", "backend", &[("http", 8080), METRICS]),
    trade("scheduler", "backend", &[METRICS]),
    trade("reports", "backend", &[("http", 8081), METRICS]),
    trade("console", "frontend", &[("http", 8082), METRICS]),
    trade("images", "backend", &[("http", 8080), METRICS]),
    trade("events", "backend", &[("grpc", 50052), METRICS]),
    trade("audit", "data", &[("http", 9200), METRICS]),
    trade("importer", "backend", &[METRICS]),
];

const DNS: Trade = trade("coredns", "system", &[("dns", 53), METRICS]);
const PROMETHEUS: Trade = trade("prometheus", "system", &[("http", 9091)]);
const INGRESS: Trade = trade("ingress-nginx", "system", &[("http", 80), ("https", 443)]);
const AGENT: Trade = trade("node-agent", "system", &[METRICS]);
/// In which of the two system namespaces each is.
static SYSTEM: [(usize, &Trade); 4] = [(0, &DNS), (1, &PROMETHEUS), (1, &INGRESS), (0, &AGENT)];

#[derive(Debug)]
pub(crate) struct Layout {
    pub(crate) cluster: Cluster,
    /// The first two are the platform's.
    pub(crate) namespaces: Vec<Namespace>,
    pub(crate) apps: Vec<App>,
}

#[derive(Debug)]
pub(crate) struct Namespace {
    pub(crate) name: String,
    pub(crate) team: String,
    pub(crate) environment: &'static str,
}

#[derive(Debug)]
pub(crate) struct App {
    pub(crate) number: usize,
    /// Its place among the namespaces.
    pub(crate) namespace: usize,
    pub(crate) name: String,
    pub(crate) trade: &'static Trade,
}

/// One pod of an application.
#[derive(Debug)]
pub(crate) struct Pod<'l> {
    pub(crate) app: &'l App,
    pub(crate) name: String,
    pub(crate) node: usize,
    pub(crate) address: Ipv4Addr,
    pub(crate) host_network: bool,
}

impl Layout {
    pub(crate) fn new(cluster: &Cluster) -> Self {
        let cluster = Cluster {
            namespaces: cluster.namespaces.max(3),
            nodes: cluster.nodes.max(1),
            replicas: cluster.replicas.max(1),
            ..*cluster
        };
        let platform = |name: &str| Namespace { name: name.into(), team: "platform".into(), environment: "system" };
        let mut namespaces = vec![platform("kube-system"), platform("monitoring")];
        namespaces.extend((0..cluster.namespaces - 2).map(tenant));
        let apps = (0..cluster.pods.div_ceil(cluster.replicas)).map(|number| app(number, namespaces.len() - 2));
        Self { apps: apps.collect(), cluster, namespaces }
    }

    pub(crate) fn tenants(&self) -> impl Iterator<Item = &Namespace> {
        self.namespaces.iter().skip(2)
    }

    pub(crate) fn namespace(&self, app: &App) -> &Namespace {
        &self.namespaces[app.namespace]
    }

    /// Every application's first pod, then every one's second, and so on.
    pub(crate) fn pods(&self) -> impl Iterator<Item = Pod<'_>> {
        (0..self.cluster.pods).map(|number| self.pod(number))
    }

    fn pod(&self, number: usize) -> Pod<'_> {
        let app = &self.apps[number % self.apps.len()];
        let node = number % self.cluster.nodes;
        let host_network = std::ptr::eq(app.trade, SYSTEM[3].1);
        let place = (number / self.cluster.nodes + 2) as u32;
        let address =
            if host_network { node_address(node) } else { Ipv4Addr::from_bits(pod_network(node).to_bits() + place) };
        let name = format!("{}-{}-{}", app.name, app.hash(), word(number as u64, 5));
        Pod { app, name, node, address, host_network }
    }

    /// A frontend that asks its own team's API.
    pub(crate) fn question(&self) -> (String, String) {
        let last = self.namespaces.len() - 1;
        let of = |trade: &str| self.apps.iter().find(|app| app.namespace == last && app.trade.name == trade);
        let (from, to) = (of("web").unwrap_or(&self.apps[0]), of("api").unwrap_or(&self.apps[0]));
        let text = |app: &App| {
            let name = if self.cluster.templates { app.name.clone() } else { self.pod(app.number).name };
            format!("{}/{name}", self.namespace(app).name)
        };
        (text(from), format!("{}:8080", text(to)))
    }
}

fn tenant(number: usize) -> Namespace {
    let (team, environment) = (number / ENVIRONMENTS.len(), ENVIRONMENTS[number % ENVIRONMENTS.len()]);
    let team = match team / TEAMS.len() {
        0 => TEAMS[team].to_owned(),
        more => format!("{}{more}", TEAMS[team % TEAMS.len()]),
    };
    Namespace { name: format!("{team}-{environment}"), team, environment }
}

/// The platform's own applications come first, the others go round the tenants.
fn app(number: usize, tenants: usize) -> App {
    if let Some(&(namespace, trade)) = SYSTEM.get(number) {
        return App { number, namespace, name: trade.name.to_owned(), trade };
    }
    let (slot, tenant) = ((number - SYSTEM.len()) / tenants, (number - SYSTEM.len()) % tenants);
    let trade = &TRADES[slot % TRADES.len()];
    let name = match slot / TRADES.len() {
        0 => trade.name.to_owned(),
        more => format!("{}-{more}", trade.name),
    };
    App { number, namespace: tenant + 2, name, trade }
}

impl App {
    pub(crate) fn version(&self) -> usize {
        1 + (mix(self.number as u64) % 3) as usize
    }

    /// Its `pod-template-hash`.
    pub(crate) fn hash(&self) -> String {
        word(self.number as u64 ^ 0x5eed, 10)
    }
}

/// As Kubernetes ends the names of pods.
fn word(number: u64, length: usize) -> String {
    const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    let mut rest = mix(number);
    let letters = (0..length).map(|_| {
        let letter = LETTERS[(rest % LETTERS.len() as u64) as usize];
        rest /= LETTERS.len() as u64;
        char::from(letter)
    });
    letters.collect()
}

/// The node's block of 1,024 pod addresses.
pub(crate) fn pod_network(node: usize) -> Ipv4Addr {
    Ipv4Addr::from_bits(Ipv4Addr::new(10, 128, 0, 0).to_bits() + ((node as u32) << 10))
}

pub(crate) fn node_address(node: usize) -> Ipv4Addr {
    Ipv4Addr::from_bits(Ipv4Addr::new(172, 20, 0, 10).to_bits() + node as u32)
}
