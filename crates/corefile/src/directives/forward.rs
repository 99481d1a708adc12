//! `forward FROM TO… { … }`: who is asked.

use crate::form::{ANY, Form, Words, many, once};
use crate::lexer::Token;
use crate::parse::Line;
use crate::problem::Report;
use crate::values::{path, tls};
use crate::{FileSpan, Rcode, Tls, Zone};
use namewall_policy::domain::DomainName;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

pub(crate) const FORWARD: Form = many("forward", "FROM TO… { … }", 2, ANY);

/// An option of `forward`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ForwardOption {
    Except,
    ForceTcp,
    PreferUdp,
    Expire,
    MaxAge,
    MaxFails,
    MaxConnectAttempts,
    MaxIdleConnections,
    MaxConcurrent,
    Tls,
    TlsServerName,
    Policy,
    HealthCheck,
    Next,
    Failover,
    FailFast,
}

const OPTIONS: Words<ForwardOption> = Words {
    served: &[
        (ForwardOption::Except, many("except", "ZONE…", 1, ANY)),
        (ForwardOption::ForceTcp, once("force_tcp", "", 0, 0)),
        (ForwardOption::PreferUdp, once("prefer_udp", "", 0, 0)),
        (ForwardOption::Expire, once("expire", "DURATION", 1, 1)),
        (ForwardOption::MaxAge, once("max_age", "DURATION", 1, 1)),
        (ForwardOption::MaxFails, once("max_fails", "NUMBER", 1, 1)),
        (ForwardOption::MaxConnectAttempts, once("max_connect_attempts", "NUMBER", 1, 1)),
        (ForwardOption::MaxIdleConnections, once("max_idle_conns", "NUMBER", 1, 1)),
        (ForwardOption::MaxConcurrent, once("max_concurrent", "NUMBER", 1, 1)),
        (ForwardOption::Tls, once("tls", "[CERT KEY] [CA]", 0, 3)),
        (ForwardOption::TlsServerName, once("tls_servername", "NAME", 1, 1)),
        (ForwardOption::Policy, once("policy", "random|round_robin|sequential", 1, 1)),
        (ForwardOption::HealthCheck, once("health_check", "DURATION [no_rec] [domain NAME]", 1, 4)),
        (ForwardOption::Next, many("next", "RCODE…", 1, ANY)),
        (ForwardOption::Failover, many("failover", "RCODE…", 1, ANY)),
        (ForwardOption::FailFast, once("failfast_all_unhealthy_upstreams", "", 0, 0)),
    ],
    not_served: &[],
};

/// Where queries over HTTPS go if no path is written.
const DOH_PATH: &str = "/dns-query";

/// As many as CoreDNS takes.
const MOST_UPSTREAMS: usize = 15;

#[derive(Clone, PartialEq, Debug)]
pub struct Forward {
    /// Names that are asked there.
    pub from: Vec<Zone>,
    pub to: Vec<Upstream>,
    /// Names that are not.
    pub except: Vec<Zone>,
    pub order: ForwardOrder,
    pub force_tcp: bool,
    pub prefer_udp: bool,
    /// How long an idle connection is kept, and any.
    pub expire: Duration,
    pub max_age: Option<Duration>,
    pub health_check: HealthCheck,
    /// Failed checks after which an upstream is down; 0 is never.
    pub max_fails: u32,
    pub max_connect_attempts: Option<u32>,
    pub max_idle_connections: Option<u32>,
    pub max_concurrent: Option<u32>,
    pub tls: Tls,
    pub tls_server_name: Option<DomainName>,
    /// Codes of answers with which the next `forward` is asked.
    pub next: Vec<Rcode>,
    /// Codes of answers with which the next upstream is asked.
    pub failover: Vec<Rcode>,
    /// Whether SERVFAIL is said at once if all upstreams are down.
    pub fail_fast: bool,
    pub place: FileSpan,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Upstream {
    Plain(SocketAddr),
    /// DNS over TLS; the name is the one its certificate must have.
    Tls(SocketAddr, Option<DomainName>),
    /// DNS over HTTPS, at this path; the name is the one its certificate must have.
    Https {
        address: SocketAddr,
        name: Option<DomainName>,
        path: Arc<str>,
    },
    /// The servers of a file like `/etc/resolv.conf`.
    File(PathBuf),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ForwardOrder {
    #[default]
    Random,
    RoundRobin,
    Sequential,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HealthCheck {
    pub every: Duration,
    pub is_recursive: bool,
    /// What is asked.
    pub domain: Zone,
}

pub(crate) fn read(line: &Line, report: &mut Report) -> Option<Forward> {
    let (from, to) = line.args.split_first()?;
    if let Some(extra) = to.get(MOST_UPSTREAMS) {
        report
            .error("extra-argument", &extra.place, format!("more than {MOST_UPSTREAMS} upstreams"))
            .help("name fewer, as CoreDNS has it");
    }
    let from = report.zone(from);
    let mut forward = Forward {
        from,
        to: to.iter().filter_map(|word| upstream(word, report)).collect(),
        except: Vec::new(),
        order: ForwardOrder::default(),
        force_tcp: false,
        prefer_udp: false,
        expire: Duration::from_secs(10),
        max_age: None,
        health_check: HealthCheck { every: Duration::from_millis(500), is_recursive: true, domain: Zone::Root },
        max_fails: 2,
        max_connect_attempts: None,
        max_idle_connections: None,
        max_concurrent: None,
        tls: Tls::default(),
        tls_server_name: None,
        next: Vec::new(),
        failover: Vec::new(),
        fail_fast: false,
        place: line.place().clone(),
    };
    for (option, line) in report.options(line, &OPTIONS) {
        forward.set(option, &line.args, report);
    }
    Some(forward)
}

impl Forward {
    fn set(&mut self, option: ForwardOption, args: &[Token], report: &mut Report) {
        let number = |report: &mut Report| report.number(&args[0], 0..=u32::MAX);
        match option {
            ForwardOption::Except => self.except.extend(report.zones(args)),
            ForwardOption::ForceTcp => self.force_tcp = true,
            ForwardOption::PreferUdp => self.prefer_udp = true,
            ForwardOption::Expire => self.expire = report.duration(&args[0]).unwrap_or(self.expire),
            ForwardOption::MaxAge => self.max_age = report.duration(&args[0]),
            ForwardOption::MaxFails => self.max_fails = number(report).unwrap_or(self.max_fails),
            // 0 is no limit, as with CoreDNS.
            ForwardOption::MaxConnectAttempts => self.max_connect_attempts = number(report).filter(|most| *most > 0),
            ForwardOption::MaxIdleConnections => self.max_idle_connections = number(report).filter(|most| *most > 0),
            ForwardOption::MaxConcurrent => self.max_concurrent = number(report).filter(|most| *most > 0),
            ForwardOption::Tls => self.tls = tls(args),
            ForwardOption::TlsServerName => self.tls_server_name = report.name(&args[0]),
            ForwardOption::Policy => {
                let orders = [
                    ("random", ForwardOrder::Random),
                    ("round_robin", ForwardOrder::RoundRobin),
                    ("sequential", ForwardOrder::Sequential),
                ];
                self.order = report.word(&args[0], &orders).unwrap_or_default();
            }
            ForwardOption::HealthCheck => self.set_health_check(args, report),
            ForwardOption::Next => self.next.extend(args.iter().filter_map(|word| report.rcode(word))),
            ForwardOption::Failover => self.failover.extend(args.iter().filter_map(|word| report.rcode(word))),
            ForwardOption::FailFast => self.fail_fast = true,
        }
    }

    fn set_health_check(&mut self, args: &[Token], report: &mut Report) {
        self.health_check.every = report.duration(&args[0]).unwrap_or(self.health_check.every);
        let mut rest = args[1..].iter();
        while let Some(word) = rest.next() {
            match (&*word.text, rest.as_slice().first()) {
                ("no_rec", _) => self.health_check.is_recursive = false,
                ("domain", Some(domain)) => {
                    rest.next();
                    self.health_check.domain = report.zone(domain).pop().unwrap_or(Zone::Root);
                }
                _ => {
                    report
                        .error("bad-word", &word.place, format!("`{}` is not accepted here", word.text))
                        .help("write `health_check DURATION [no_rec] [domain NAME]`");
                }
            }
        }
    }
}

fn upstream(word: &Token, report: &mut Report) -> Option<Upstream> {
    let (scheme, rest) = word.text.split_once("://").unwrap_or(("dns", &word.text));
    match scheme {
        "dns" if rest.starts_with(['/', '.']) => Some(Upstream::File(path(&word.saying(rest)))),
        "dns" => {
            let socket = report.socket(&word.saying(rest), 53)?;
            Some(Upstream::Plain(socket))
        }
        "tls" => {
            let (address, name) = named_address(word, rest, 853, report)?;
            Some(Upstream::Tls(address, name))
        }
        "https" => {
            let (host, path) = rest.split_once('/').map_or((rest, None), |(host, path)| (host, Some(path)));
            let bare = host.split('%').next().unwrap_or_default();
            if is_name(bare) {
                report.error("bad-address", &word.place, format!("the address of `{bare}` is not looked up")).help(
                    format!("write its address, like `https://ADDRESS%{}`", bare.split(':').next().unwrap_or_default()),
                );
                return None;
            }
            let (address, name) = named_address(word, host, 443, report)?;
            let path = path.map_or_else(|| DOH_PATH.to_owned(), |path| format!("/{path}"));
            let is_path = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'?' | b'#' | b'{' | b'}' | b'"');
            if !path.bytes().all(is_path) {
                report
                    .error("bad-url", &word.place, format!("`{path}` is not a path"))
                    .help(format!("queries are sent as POST to a path like `{DOH_PATH}`"));
                return None;
            }
            Some(Upstream::Https { address, name, path: path.into() })
        }
        _ => {
            report
                .error("not-served", &word.place, format!("`{scheme}://` is not asked"))
                .help("write an address, `tls://ADDRESS`, `https://ADDRESS` or a file like /etc/resolv.conf");
            None
        }
    }
}

/// True for what is a name and no address, with or without a port.
fn is_name(host: &str) -> bool {
    let is_address = host.starts_with('[') || host.parse::<std::net::Ipv6Addr>().is_ok();
    !is_address && host.split(':').next().is_some_and(|host| host.contains(|one: char| one.is_ascii_alphabetic()))
}

/// `9.9.9.9%dns.quad9.net:853`: an address, the name of its certificate if it is written, and a port.
fn named_address(word: &Token, text: &str, port: u16, report: &mut Report) -> Option<(SocketAddr, Option<DomainName>)> {
    let (address, name) = match text.split_once('%') {
        Some((address, name)) => {
            let (name, port) = name.split_once(':').map_or((name, ""), |(name, port)| (name, port));
            let port = if port.is_empty() { String::new() } else { format!(":{port}") };
            (format!("{address}{port}"), Some(name))
        }
        None => (text.to_owned(), None),
    };
    let name = match name {
        Some(name) => Some(report.name(&word.saying(name))?),
        None => None,
    };
    Some((report.socket(&word.saying(&address), port)?, name))
}
