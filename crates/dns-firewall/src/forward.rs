//! Who is asked for what: `forward`, as the DNS server has to be told of it.

use crate::engines::tls_files;
use crate::message::is_under;
use namewall_corefile::{self as corefile, HealthCheck, Upstream, Zone};
use namewall_dns::wire::{Name, Rcode};
use namewall_dns::{Health, Route, Tls, UpstreamOrder, UpstreamTransport};
use namewall_engines::http::client_config;
use namewall_policy::domain::DomainName;
use rustls::pki_types::ServerName;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;

/// Names that are asked of a route.
#[derive(Debug)]
pub(crate) struct Forwarding {
    from: Vec<Zone>,
    except: Vec<Zone>,
    /// Codes of answers with which the next that is for a name is asked.
    next: Vec<Rcode>,
    pub(crate) route: usize,
    /// Who is asked by the route, for questions of our own.
    pub(crate) upstreams: Vec<namewall_dns::Upstream>,
    /// How they are asked.
    pub(crate) way: UpstreamTransport,
}

impl Forwarding {
    pub(crate) fn new(forward: &corefile::Forward, route: usize, upstreams: Vec<namewall_dns::Upstream>) -> Self {
        let (from, except, next) = (forward.from.clone(), forward.except.clone(), codes(&forward.next));
        Self { from, except, next, route, upstreams, way: way(forward) }
    }

    /// How long its zone is that has the name, if one has.
    fn depth(&self, name: &Name) -> Option<usize> {
        let depth = |zones: &[Zone]| zones.iter().filter(|zone| is_under(name, zone)).map(Zone::depth).max();
        depth(&self.from).filter(|_| depth(&self.except).is_none())
    }
}

/// The number of the one that is asked for a name: of those that are for it the one with the longest zone, and of
/// two as long the first.
pub(crate) fn first(all: &[Forwarding], name: &Name) -> Option<usize> {
    let fitting = all.iter().enumerate().filter_map(|(at, one)| Some((one.depth(name)?, at)));
    fitting.rev().max_by_key(|(depth, _)| *depth).map(|(_, at)| at)
}

/// The one that is asked after another which answered with this code, if that is not the last word.
pub(crate) fn next(all: &[Forwarding], at: usize, code: Rcode, name: &Name) -> Option<usize> {
    all.get(at).filter(|one| one.next.contains(&code))?;
    (at + 1..all.len()).find(|&later| all[later].depth(name).is_some())
}

/// Such codes as answers have without EDNS0; others are refused where they are written.
fn codes(written: &[corefile::Rcode]) -> Vec<Rcode> {
    written.iter().filter_map(|code| u8::try_from(code.0).ok().map(Rcode)).collect()
}

/// What is wrong with a `forward`, or probably not meant.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    pub(crate) errors: Vec<String>,
    pub(crate) warnings: Vec<String>,
}

/// The route of a `forward`.
pub(crate) fn route(forward: &corefile::Forward, findings: &mut Findings) -> Route {
    for code in forward.next.iter().chain(&forward.failover).filter(|code| code.0 > 15) {
        findings.errors.push(format!("code {} is not looked at; `next` and `failover` take those up to 15", code.0));
    }
    let is_tls = |upstream: &&Upstream| matches!(upstream, Upstream::Tls(..) | Upstream::Https { .. });
    let mut trusted = None;
    if forward.to.iter().any(|upstream| is_tls(&upstream)) {
        match client_config(&tls_files(&forward.tls)) {
            Ok(config) => trusted = Some(config),
            Err(error) => findings.errors.push(error.to_string()),
        }
    } else if forward.tls != corefile::Tls::default() || forward.tls_server_name.is_some() {
        findings.warnings.push("`tls` has no effect: no upstream is `tls://ADDRESS` or `https://ADDRESS`".to_owned());
    }
    let mut upstreams = Vec::new();
    for upstream in &forward.to {
        match upstream {
            Upstream::Plain(address) => upstreams.push((*address).into()),
            Upstream::Tls(address, name) => match (&trusted, server_name(forward, *address, name.as_ref())) {
                (Some((config, digest)), Ok(name)) => {
                    let tls = Tls { config: config.clone(), name, digest: *digest };
                    upstreams.push(namewall_dns::Upstream { tls: Some(tls), ..(*address).into() });
                }
                (_, Err(error)) => findings.errors.push(error),
                // Why nobody can be trusted has been said.
                (None, _) => {}
            },
            Upstream::Https { address, name, path } => {
                match (&trusted, server_name(forward, *address, name.as_ref())) {
                    (Some((config, digest)), Ok(name)) => {
                        let mut config = (**config).clone();
                        config.alpn_protocols = vec![b"h2".to_vec()];
                        let tls = Some(Tls { config: Arc::new(config), name, digest: *digest });
                        upstreams.push(namewall_dns::Upstream {
                            tls,
                            http_path: Some(path.clone()),
                            ..(*address).into()
                        });
                    }
                    (_, Err(error)) => findings.errors.push(error),
                    (None, _) => {}
                }
            }
            Upstream::File(path) => match name_servers(path) {
                Ok(found) if found.is_empty() => findings.errors.push(format!("{} names no server", path.display())),
                Ok(found) => upstreams.extend(found.into_iter().map(namewall_dns::Upstream::from)),
                Err(error) => findings.errors.push(format!("{}: {error}", path.display())),
            },
        }
    }
    let health = health(&forward.health_check, forward.max_fails);
    for upstream in &mut upstreams {
        upstream.health.clone_from(&health);
        (upstream.idle_timeout, upstream.most_age) = (Some(forward.expire), forward.max_age);
    }
    Route {
        upstreams,
        order: match forward.order {
            corefile::ForwardOrder::Random => UpstreamOrder::Random,
            corefile::ForwardOrder::RoundRobin => UpstreamOrder::RoundRobin,
            corefile::ForwardOrder::Sequential => UpstreamOrder::Sequential,
        },
        way: way(forward),
        failover: codes(&forward.failover),
        most_queries: forward.max_concurrent,
        tries: forward.max_connect_attempts.map(|most| u8::try_from(most).unwrap_or(u8::MAX)),
        fails_fast: forward.fail_fast,
    }
}

fn way(forward: &corefile::Forward) -> UpstreamTransport {
    match (forward.force_tcp, forward.prefer_udp) {
        (true, _) => UpstreamTransport::Tcp,
        (_, true) => UpstreamTransport::UdpFirst,
        _ => UpstreamTransport::AsAsked,
    }
}

/// Whose certificate an upstream must have: its own name's, that of all of them, or else its address'.
fn server_name(
    forward: &corefile::Forward,
    address: SocketAddr,
    own: Option<&DomainName>,
) -> Result<ServerName<'static>, String> {
    if let (Some(own), Some(of_all)) = (own, &forward.tls_server_name) {
        return Err(format!("{address} has the name {own} and, by `tls_servername`, {of_all}; write one of them"));
    }
    let Some(name) = own.or(forward.tls_server_name.as_ref()) else { return Ok(ServerName::from(address.ip())) };
    ServerName::try_from(name.to_string()).map_err(|error| format!("no certificate can be of {name}: {error}"))
}

fn health(check: &HealthCheck, failures: u32) -> Health {
    if failures == 0 {
        return Health::Assumed;
    }
    // One question, for the name servers of a domain.
    let mut query = vec![0, 0, u8::from(check.is_recursive), 0, 0, 1, 0, 0, 0, 0, 0, 0];
    if let Zone::Name(name) = &check.domain {
        for label in name.labels() {
            query.push(label.len() as u8);
            query.extend(label.as_bytes());
        }
    }
    query.extend([0, 0, 2, 0, 1]);
    Health::ByChecks { query, every: check.every, failures }
}

/// The servers of a file like `/etc/resolv.conf`.
fn name_servers(path: &Path) -> std::io::Result<Vec<SocketAddr>> {
    let text = std::fs::read_to_string(path)?;
    let server = |line: &str| {
        let mut words = line.split_whitespace();
        let address = words.next().filter(|word| *word == "nameserver").and(words.next())?;
        Some(SocketAddr::new(address.parse::<IpAddr>().ok()?, 53))
    };
    Ok(text.lines().filter_map(server).collect())
}
