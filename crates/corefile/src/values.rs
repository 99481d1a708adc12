//! Words as values: durations, numbers, addresses. What cannot be read is reported, and missing.

use crate::form::one_of;
use crate::lexer::Token;
use crate::problem::Report;
use crate::suggest::nearest;
use namewall_policy::addr::parse_address;
use namewall_policy::dns_codes::{RCODES, Registry};
use namewall_policy::domain::DomainName;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Who is asked or listened at: by address or by name.
#[derive(Clone, PartialEq, Eq, Hash)]
pub enum Host {
    Address(IpAddr),
    Name(DomainName),
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(IpAddr::V6(address)) => write!(f, "[{address}]"),
            Self::Address(address) => write!(f, "{address}"),
            Self::Name(name) => write!(f, "{name}"),
        }
    }
}

impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

#[derive(Clone, PartialEq, Eq, Hash)]
pub struct HostPort {
    pub host: Host,
    pub port: u16,
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

impl fmt::Debug for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// Where something is served beside DNS: `:8080` is every address.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ListenAt {
    pub host: Option<Host>,
    pub port: u16,
}

/// `http://HOST[:PORT][/PATH]`, or https.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HttpUrl {
    pub is_tls: bool,
    pub at: HostPort,
    /// With its `/`, and what is asked after `?`.
    pub path: Arc<str>,
}

/// Certificates for a connection.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Tls {
    /// The client's certificate and its key.
    pub client: Option<(PathBuf, PathBuf)>,
    /// Who must have signed the server's; those the system trusts, if there is none.
    pub authority: Option<PathBuf>,
}

/// The code of a response.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Rcode(pub u16);

impl Report {
    /// A Go duration: `1h15m30.5s`.
    pub(crate) fn duration(&mut self, token: &Token) -> Option<Duration> {
        match signed_duration(&token.text) {
            Some((false, duration)) => Some(duration),
            Some((true, _)) => {
                self.error("bad-duration", &token.place, format!("`{}` is less than nothing", token.text))
                    .help("write a duration without a `-`");
                None
            }
            None => {
                self.bad_duration(token);
                None
            }
        }
    }

    pub(crate) fn bad_duration(&mut self, token: &Token) {
        let problem = self.error("bad-duration", &token.place, format!("`{}` is not a duration", token.text));
        match token.text.parse::<u64>() {
            Ok(number) => problem.help(format!("write its unit, like `{number}s`")),
            Err(_) => problem.help("write a number and a unit, like `500ms`, `30s` or `1h30m`"),
        }
    }

    pub(crate) fn number(&mut self, token: &Token, range: RangeInclusive<u32>) -> Option<u32> {
        match token.text.parse::<u32>() {
            Ok(number) if range.contains(&number) => Some(number),
            _ => {
                let (least, most) = range.into_inner();
                let problem = self.error("bad-number", &token.place, format!("`{}` is not accepted here", token.text));
                match most {
                    u32::MAX => problem.help(format!("write a whole number of at least {least}")),
                    _ => problem.help(format!("write a whole number from {least} to {most}")),
                }
                None
            }
        }
    }

    /// Seconds as a whole number.
    pub(crate) fn seconds(&mut self, token: &Token, range: RangeInclusive<u32>) -> Option<Duration> {
        self.number(token, range).map(|seconds| Duration::from_secs(seconds.into()))
    }

    /// One of some words.
    pub(crate) fn word<T: Copy>(&mut self, token: &Token, words: &[(&'static str, T)]) -> Option<T> {
        let known = || words.iter().map(|(word, _)| *word);
        if let Some((_, value)) = words.iter().find(|(word, _)| token.text.eq_ignore_ascii_case(word)) {
            return Some(*value);
        }
        let problem = self.error("bad-word", &token.place, format!("`{}` is not accepted here", token.text));
        match nearest(&token.text, known()) {
            Some(near) => problem.help(format!("did you mean `{near}`?")),
            None => problem.help(format!("write {}", one_of(known()))),
        }
        None
    }

    pub(crate) fn rcode(&mut self, token: &Token) -> Option<Rcode> {
        self.code(token, &RCODES).map(Rcode)
    }

    /// A name of a registry, in any case, or its prefix and a number.
    pub(crate) fn code(&mut self, token: &Token, registry: &Registry) -> Option<u16> {
        let number = registry.number(&token.text);
        if number.is_none() {
            let problem = self.error("bad-word", &token.place, format!("`{}` is not accepted here", token.text));
            match nearest(&token.text, registry.names()) {
                Some(near) => problem.help(format!("did you mean `{near}`?")),
                None => {
                    problem.help(format!("write a name that IANA registers, or `{}` and a number", registry.prefix()))
                }
            }
        }
        number
    }

    /// An address with or without a port.
    pub(crate) fn socket(&mut self, token: &Token, default_port: u16) -> Option<SocketAddr> {
        match host_port(&token.text, Some(default_port)) {
            Some(HostPort { host: Host::Address(address), port }) => Some(SocketAddr::new(address, port)),
            _ => {
                self.error("bad-address", &token.place, format!("`{}` is not an address", token.text))
                    .help("write `192.0.2.1`, `192.0.2.1:53` or `[2001:db8::1]:53`");
                None
            }
        }
    }

    /// A name or an address, with or without a port.
    pub(crate) fn host_port(&mut self, text: &str, token: &Token, default_port: u16) -> Option<HostPort> {
        let read = host_port(text, Some(default_port));
        if read.is_none() {
            self.error("bad-address", &token.place, format!("`{text}` is neither an address nor a name"))
                .help("write `HOST:PORT`, like `10.0.0.7:5555` or `[2001:db8::7]:5555`");
        }
        read
    }

    /// `[HOST]:PORT`.
    pub(crate) fn listen(&mut self, token: &Token) -> Option<ListenAt> {
        let text = token.text.strip_prefix("http://").unwrap_or(&token.text);
        if let Some(port) = text.strip_prefix(':').and_then(|port| port.parse().ok()) {
            return Some(ListenAt { host: None, port });
        }
        let read = host_port(text, None).map(|HostPort { host, port }| ListenAt { host: Some(host), port });
        if read.is_none() {
            self.error("bad-address", &token.place, format!("`{}` is not where something can be served", token.text))
                .help("write `:PORT` or `HOST:PORT`, like `:8080` or `localhost:9153`");
        }
        read
    }

    pub(crate) fn url(&mut self, token: &Token) -> Option<HttpUrl> {
        let read = url(&token.text);
        if read.is_none() {
            self.error("bad-url", &token.place, format!("`{}` is not a URL", token.text))
                .help("write all of it, like `http://127.0.0.1:8181/v1/data/dns/action`");
        }
        read
    }
}

pub(crate) fn path(token: &Token) -> PathBuf {
    PathBuf::from(&*token.text)
}

/// `[CERT KEY] [CA]`, as CoreDNS has it.
pub(crate) fn tls(args: &[Token]) -> Tls {
    match args {
        [cert, key, authority] => Tls { client: Some((path(cert), path(key))), authority: Some(path(authority)) },
        [cert, key] => Tls { client: Some((path(cert), path(key))), authority: None },
        [authority] => Tls { client: None, authority: Some(path(authority)) },
        _ => Tls::default(),
    }
}

/// `HOST[:PORT]`; without a default the port must be there.
fn host_port(text: &str, default_port: Option<u16>) -> Option<HostPort> {
    if let Some(address) = parse_address(text.trim_start_matches('[').trim_end_matches(']')) {
        return default_port.map(|port| HostPort { host: Host::Address(address), port });
    }
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) => (host, port.parse().ok()),
        None => (text, default_port),
    };
    let host = match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
        Some(address) => Host::Address(parse_address(address)?),
        None => parse_address(host).map(Host::Address).or_else(|| host.parse().ok().map(Host::Name))?,
    };
    Some(HostPort { host, port: port.filter(|port| *port > 0)? })
}

fn url(text: &str) -> Option<HttpUrl> {
    let (scheme, rest) = text.split_once("://")?;
    let (is_tls, port) = match &*scheme.to_ascii_lowercase() {
        "http" => (false, 80),
        "https" => (true, 443),
        _ => return None,
    };
    let (at, path) = match rest.find(['/', '?']) {
        Some(at) if rest[at..].starts_with('/') => (&rest[..at], &rest[at..]),
        Some(_) => return None,
        None => (rest, "/"),
    };
    let is_sendable = path.bytes().all(|byte| byte.is_ascii_graphic()) && !path.contains('#');
    is_sendable.then_some(())?;
    Some(HttpUrl { is_tls, at: host_port(at, Some(port))?, path: path.into() })
}

/// A duration as Go reads it, and whether it has a minus.
pub(crate) fn signed_duration(text: &str) -> Option<(bool, Duration)> {
    let (is_negative, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Some((false, Duration::ZERO));
    }
    if rest.is_empty() {
        return None;
    }
    let mut nanoseconds: u128 = 0;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, after) = rest.split_at(digits);
        let unit = after.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(after.len());
        let scale: u128 = match &after[..unit] {
            "ns" => 1,
            "us" | "µs" | "μs" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            _ => return None,
        };
        nanoseconds = nanoseconds.checked_add(scaled(number, scale)?)?;
        rest = &after[unit..];
    }
    // What Go can hold: some 292 years.
    let nanoseconds = u64::try_from(nanoseconds).ok().filter(|nanoseconds| i64::try_from(*nanoseconds).is_ok())?;
    Some((is_negative && nanoseconds > 0, Duration::from_nanos(nanoseconds)))
}

/// A decimal number of something.
fn scaled(number: &str, scale: u128) -> Option<u128> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') || number.len() > 40 {
        return None;
    }
    let whole = if whole.is_empty() { 0 } else { whole.parse::<u128>().ok()? };
    // Digits past the twelfth are less than a nanosecond of an hour.
    let fraction = &fraction[..fraction.len().min(18)];
    let part = if fraction.is_empty() { 0 } else { fraction.parse::<u128>().ok()? };
    let part = part.checked_mul(scale)? / 10u128.pow(fraction.len() as u32);
    whole.checked_mul(scale)?.checked_add(part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_as_go_has_them() {
        let seconds = |text| signed_duration(text).map(|(minus, duration)| (minus, duration.as_secs_f64()));
        for (text, expected) in [
            ("30s", Some((false, 30.0))),
            ("1h15m30.5s", Some((false, 4530.5))),
            (".5s", Some((false, 0.5))),
            ("5.s", Some((false, 5.0))),
            ("100ms", Some((false, 0.1))),
            ("2µs", Some((false, 0.000_002))),
            ("0", Some((false, 0.0))),
            ("-1s", Some((true, 1.0))),
            ("-0s", Some((false, 0.0))),
            ("", None),
            ("5", None),
            ("s", None),
            (".s", None),
            ("1.2.3s", None),
            ("1d", None),
            ("1s ", None),
            ("9999999999h", None),
            ("99999999999999999999999999999999999999999s", None),
        ] {
            assert_eq!(seconds(text), expected, "{text}");
        }
    }

    #[test]
    fn hosts_ports_and_urls() {
        let shown = |text, port| host_port(text, port).map(|read| read.to_string()).unwrap_or_default();
        for (text, expected) in [
            ("10.0.0.1", "10.0.0.1:53"),
            ("10.0.0.1:1053", "10.0.0.1:1053"),
            ("::1", "[::1]:53"),
            ("[::1]", "[::1]:53"),
            ("[::1]:5353", "[::1]:5353"),
            ("pdp.example", "pdp.example:53"),
            ("pdp.example:1", "pdp.example:1"),
            ("10.0.0.1:0", ""),
            ("10.0.0.1:x", ""),
            ("", ""),
            (":53", ""),
            ("a b", ""),
        ] {
            assert_eq!(shown(text, Some(53)), expected, "{text}");
        }
        assert_eq!(shown("localhost", None), "");
        let shown = |text| url(text).map(|url| format!("{} {} {}", url.is_tls, url.at, url.path)).unwrap_or_default();
        for (text, expected) in [
            ("http://127.0.0.1:8181/v1/data", "false 127.0.0.1:8181 /v1/data"),
            ("https://opa.example", "true opa.example:443 /"),
            ("opa.example/v1", ""),
            ("ftp://opa.example", ""),
            ("http:///v1", ""),
            ("http://a/\u{1}", ""),
        ] {
            assert_eq!(shown(text), expected, "{text}");
        }
    }
}
