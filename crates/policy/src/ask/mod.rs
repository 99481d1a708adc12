//! Questions as users write them: `shop/web -> api.github.com:443/TCP`.
//!
//! A question may stand for several connections. A Service sends a client to
//! one of its backends and a name to one of its addresses, so *every* [`Route`]
//! must be open for the answer to be yes; two pods with several addresses may
//! choose, so one open connection of a Route is enough.

mod nearest;
mod resolve;
mod world;

use crate::addr::{Cidr, parse_address};
use crate::domain::{DomainName, NameError};
use crate::flow::Flow;
use crate::lease::{Instant, LeaseTable};
use crate::port::Protocol;
use crate::program::Program;
use crate::snapshot::Snapshot;
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// One end, as written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Host {
    /// `NS/NAME`, or `NS/KIND/NAME` where two kinds share a name.
    Object {
        namespace: String,
        kind: Option<String>,
        name: String,
    },
    Address(IpAddr),
    /// A name as a pod writes it: its search list applies.
    Name(DomainName),
    /// A name with a dot at its end: no search list applies.
    Absolute(DomainName),
}

/// `HOST[:PORT[/PROTO]]`, `HOST/ICMP`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Target {
    pub host: Host,
    pub protocol: Protocol,
    /// None: whatever port.
    pub port: Option<u16>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AskError {
    #[error("`{0}` is not an end of a connection; write NAMESPACE/POD, an address, or a name")]
    Host(String),
    #[error("`{0}`: {1}")]
    Name(String, NameError),
    #[error("`{0}` is no port; use 1 to 65535")]
    Port(String),
    #[error("`{0}` is not a protocol; use TCP, UDP, SCTP or ICMP")]
    Protocol(String),
    #[error("`{0}` is no IP address")]
    Address(String),
    #[error("`{0}` is a network; ask about one of its addresses")]
    Network(String),
    #[error("`{0}` is a pattern; ask about one name that it matches")]
    Pattern(String),
    #[error("`{0}` is a URL; write only the host and the port, like api.example.com:443")]
    Url(String),
    #[error("{1} has no ports; write {0}/{1}")]
    NoPorts(String, Protocol),
    #[error("there is no workload or Service {0} in the input{1}")]
    NotFound(String, String),
    #[error("{0} resolves to nothing for {1}{2}")]
    NoSuchName(String, String, String),
    #[error("Service {0} leads from one ExternalName to another without end")]
    ExternalNameLoop(String),
    #[error("{0} is several things: {1}. Write NAMESPACE/KIND/NAME")]
    Ambiguous(String, String),
    #[error("a connection starts at a pod or an address, not at a name ({0}): write NAMESPACE/POD{1}")]
    FromName(String, String),
    #[error("a connection starts at a pod or an address, and {0} is a Service")]
    FromService(String),
    #[error("{0} has no port {1}; it has {2}")]
    NoServicePort(String, String, String),
    #[error("{0} is a Service; name a workload")]
    NotAWorkload(String),
    #[error("no pod has the address {0}")]
    NoPodAt(IpAddr),
    #[error("`{0}` is no workload: write NAMESPACE/WORKLOAD{1}")]
    WithoutNamespace(String, String),
}

impl FromStr for Host {
    type Err = AskError;

    fn from_str(text: &str) -> Result<Self, AskError> {
        let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
        if let Some(address) = parse_address(bare) {
            return Ok(Self::Address(address));
        }
        if text.starts_with('[') || is_numeric(text) {
            return Err(AskError::Address(text.to_owned()));
        }
        if text.starts_with("*.") {
            return Err(AskError::Pattern(text.to_owned()));
        }
        let parts: Vec<&str> = text.split('/').collect();
        match parts.as_slice() {
            [address, _] if parse_address(address).is_some() => Err(AskError::Network(text.to_owned())),
            [""] => Err(AskError::Host(text.to_owned())),
            [name] => {
                let form = if name.ends_with('.') { Self::Absolute } else { Self::Name };
                let parsed: DomainName = name.parse().map_err(|error| AskError::Name(text.to_owned(), error))?;
                let host = form(parsed);
                // Characters that IDNA leaves out may stand between digits.
                match is_numeric(&host.to_string()) {
                    true => Err(AskError::Address(text.to_owned())),
                    false => Ok(host),
                }
            }
            [namespace, name] if !namespace.is_empty() && !name.is_empty() => {
                Ok(Self::Object { namespace: (*namespace).to_owned(), kind: None, name: (*name).to_owned() })
            }
            [namespace, kind, name] if !namespace.is_empty() && !kind.is_empty() && !name.is_empty() => {
                Ok(Self::Object {
                    namespace: (*namespace).to_owned(),
                    kind: Some((*kind).to_owned()),
                    name: (*name).to_owned(),
                })
            }
            _ => Err(AskError::Host(text.to_owned())),
        }
    }
}

/// Whether somebody meant an IPv4 address: only digits and dots.
fn is_numeric(text: &str) -> bool {
    text.contains('.') && text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') && text != "."
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.host, self.port) {
            (Host::Address(IpAddr::V6(v6)), Some(port)) => write!(f, "[{v6}]:{port}/{}", self.protocol),
            (host, Some(port)) => write!(f, "{host}:{port}/{}", self.protocol),
            (host, None) if self.protocol.has_ports() => write!(f, "{host}"),
            (host, None) => write!(f, "{host}/{}", self.protocol),
        }
    }
}

impl FromStr for Target {
    type Err = AskError;

    fn from_str(text: &str) -> Result<Self, AskError> {
        if text.contains("://") {
            return Err(AskError::Url(text.to_owned()));
        }
        // A protocol is the last part after a slash, if that is one.
        let (rest, protocol) = match text.rsplit_once('/') {
            Some((rest, last)) if last.parse::<Protocol>().is_ok() => (rest, last.parse().ok()),
            // `host:80/XYZ` can only be a protocol that is none.
            Some((rest, last)) if rest.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok()) => {
                return Err(AskError::Protocol(last.to_owned()));
            }
            _ => (text, None),
        };
        // A protocol without ports may also stand where a port stands: `host:ICMP`.
        let portless = |text: &str| text.parse::<Protocol>().ok().filter(|protocol| !protocol.has_ports());
        let (rest, protocol) = match rest.rsplit_once(':').and_then(|(host, last)| Some((host, portless(last)?))) {
            Some((host, found)) if protocol.is_none() => (host, Some(found)),
            _ => (rest, protocol),
        };
        let protocol = protocol.unwrap_or(Protocol::Tcp);
        // An IPv6 address has colons of its own: with a port it stands in brackets.
        let bare = rest.strip_prefix('[').and_then(|inner| inner.strip_suffix(']')).unwrap_or(rest);
        if parse_address(bare).is_some() {
            return Ok(Self { host: bare.parse()?, protocol, port: None });
        }
        if rest.parse::<Cidr>().is_ok() {
            return Err(AskError::Network(rest.to_owned()));
        }
        let (host, port) = match rest.rsplit_once(':') {
            Some((host, port)) => match port.parse::<u16>() {
                Ok(number @ 1..) => (host, Some(number)),
                _ => return Err(AskError::Port(port.to_owned())),
            },
            None => (rest, None),
        };
        let host: Host = host.parse()?;
        match port {
            Some(_) if !protocol.has_ports() => Err(AskError::NoPorts(host.to_string(), protocol)),
            _ => Ok(Self { host, protocol, port }),
        }
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Object { namespace, kind: Some(kind), name } => write!(f, "{namespace}/{kind}/{name}"),
            Self::Object { namespace, kind: None, name } => write!(f, "{namespace}/{name}"),
            Self::Address(address) => write!(f, "{address}"),
            Self::Name(name) => write!(f, "{name}"),
            Self::Absolute(name) => write!(f, "{name}."),
        }
    }
}

/// Connections that stand for each other: one open is enough.
#[derive(Clone, Debug)]
pub struct Route {
    /// What this route is, where a question has several: a backend, an address.
    pub label: Option<String>,
    /// The port of the Service that sends clients this way.
    pub service_port: Option<u16>,
    pub flows: Vec<Flow>,
    /// Whether it begins at a load balancer outside, which passes on what the source has sent there (S1.11).
    pub relayed: bool,
}

/// Who asks of what.
#[derive(Clone, Copy, Debug)]
pub struct World<'a> {
    pub snapshot: &'a Snapshot,
    pub program: &'a Program,
    pub leases: &'a LeaseTable,
    /// What names were answered with, leased or not.
    pub names: &'a Names,
    pub cluster_domain: &'a DomainName,
    pub now: Instant,
}

pub type Names = std::collections::BTreeMap<DomainName, Vec<IpAddr>>;

#[cfg(test)]
mod tests {
    use super::*;

    fn target(text: &str) -> (String, Protocol, Option<u16>) {
        let target: Target = text.parse().unwrap();
        (target.host.to_string(), target.protocol, target.port)
    }

    #[test]
    fn a_name_that_would_be_shown_as_digits_and_dots_is_refused() {
        // With a soft hyphen, which IDNA leaves out, and with full-width digits.
        for text in ["192.\u{ad}1", "192.\u{ad}1.", "192.\u{ad}.", "１９２.1"] {
            assert_eq!(text.parse::<Host>(), Err(AskError::Address(text.to_owned())));
        }
    }

    #[test]
    fn targets_are_read_as_written() {
        use Protocol::{Icmp, Sctp, Tcp, Udp};
        assert_eq!(target("shop/web:80/TCP"), ("shop/web".into(), Tcp, Some(80)));
        assert_eq!(target("shop/web"), ("shop/web".into(), Tcp, None));
        assert_eq!(target("shop/Deployment/web:53/udp"), ("shop/Deployment/web".into(), Udp, Some(53)));
        assert_eq!(target("10.0.0.1:9/SCTP"), ("10.0.0.1".into(), Sctp, Some(9)));
        assert_eq!(target("2001:db8::1"), ("2001:db8::1".into(), Tcp, None));
        assert_eq!(target("[2001:db8::1]/ICMP"), ("2001:db8::1".into(), Icmp, None));
        assert_eq!(target("[::ffff:10.0.0.1]:443"), ("10.0.0.1".into(), Tcp, Some(443)));
        assert_eq!(target("[2001:db8::1]:443"), ("2001:db8::1".into(), Tcp, Some(443)));
        assert_eq!(target("10.0.0.1/ICMP"), ("10.0.0.1".into(), Icmp, None));
        assert_eq!(target("shop/web:icmp"), ("shop/web".into(), Icmp, None));
        assert_eq!(target("[2001:db8::1]:ICMPv6"), ("2001:db8::1".into(), Icmp, None));
        assert_eq!(target("1.example:80"), ("1.example".into(), Tcp, Some(80)));
        assert_eq!(target("API.github.com:443"), ("api.github.com".into(), Tcp, Some(443)));
        assert_eq!(target("api.github.com.:443"), ("api.github.com.".into(), Tcp, Some(443)));
        assert_eq!(target("cart:7070"), ("cart".into(), Tcp, Some(7070)));
    }

    #[test]
    fn bad_targets_say_what_is_wrong() {
        for bad in [
            "",
            ".",
            "shop/",
            "/web",
            "shop/web:0",
            "shop/web:70000",
            "shop/web:80/XYZ",
            "a/b/c/d",
            "x y.z:1",
            "10.0.0.256:80",
        ] {
            assert!(bad.parse::<Target>().is_err(), "{bad}");
        }
    }
}
