//! What a server block is for: `[SCHEME://]ZONE[:PORT]`.

use crate::lexer::Token;
use crate::problem::Report;
use crate::{FileSpan, Zone};

/// How clients reach a server block.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Scheme {
    /// Over UDP and TCP.
    #[default]
    Dns,
    /// DNS over TLS.
    Tls,
    /// DNS over HTTPS.
    Https,
}

impl Scheme {
    pub fn word(self) -> &'static str {
        match self {
            Self::Dns => "dns",
            Self::Tls => "tls",
            Self::Https => "https",
        }
    }

    pub fn is_encrypted(self) -> bool {
        self != Self::Dns
    }

    fn port(self) -> u16 {
        match self {
            Self::Dns => 53,
            Self::Tls => 853,
            Self::Https => 443,
        }
    }
}

/// A zone that is served at a port.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Key {
    pub scheme: Scheme,
    pub zone: Zone,
    pub port: u16,
    pub place: FileSpan,
}

/// One key: several zones where it is a network whose names are in several.
pub(crate) fn read(token: &Token, report: &mut Report) -> Vec<Key> {
    let (scheme, rest) = match token.text.split_once("://") {
        Some((scheme, rest)) => (scheme.to_ascii_lowercase(), rest),
        None => ("dns".to_owned(), &*token.text),
    };
    let scheme = match &*scheme {
        "dns" => Scheme::Dns,
        "tls" => Scheme::Tls,
        "https" => Scheme::Https,
        "https3" | "quic" | "grpc" => {
            report
                .error("not-served", &token.place, format!("`{scheme}://` is not served here"))
                .help("write `tls://` or `https://`, or leave the scheme away for plain DNS");
            return Vec::new();
        }
        _ => {
            report
                .error("bad-key", &token.place, format!("`{scheme}://` is no scheme of DNS"))
                .help("write `dns://`, `tls://` or `https://`");
            return Vec::new();
        }
    };
    let Some((zone, port)) = split_port(rest, token, report) else { return Vec::new() };
    let port = port.unwrap_or(scheme.port());
    // `:1053` is every name, as with CoreDNS.
    let zones = report.zone_of(if zone.is_empty() { "." } else { zone }, token);
    zones.into_iter().map(|zone| Key { scheme, zone, port, place: token.place.clone() }).collect()
}

/// The zone and the port, if it is written: a number after the last colon. A network's colons come before its slash.
fn split_port<'a>(text: &'a str, token: &Token, report: &mut Report) -> Option<(&'a str, Option<u16>)> {
    let (zone, port) = match text.rsplit_once(':') {
        Some((zone, port)) if !port.contains('/') => (zone, port),
        _ => return Some((text, None)),
    };
    match port.parse::<u16>() {
        Ok(port) if port > 0 => Some((zone, Some(port))),
        _ => {
            report
                .error("bad-port", &token.place, format!("`{port}` is not a port"))
                .help("ports are 1 to 65535, like `example.org:1053`");
            None
        }
    }
}
