//! What a server block is for: `[SCHEME://]ZONE[:PORT]`.

use crate::lexer::Token;
use crate::problem::Report;
use crate::{FileSpan, Zone};

const PORT: u16 = 53;

/// A zone that is served at a port.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Key {
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
    match &*scheme {
        "dns" => {}
        "tls" | "https" | "https3" | "quic" | "grpc" => {
            report
                .error("not-served", &token.place, format!("`{scheme}://` is not supported: only plain DNS is served"))
                .help("leave the scheme away, or write `dns://`");
            return Vec::new();
        }
        _ => {
            report.error("bad-key", &token.place, format!("`{scheme}://` is no scheme of DNS")).help("write `dns://`");
            return Vec::new();
        }
    }
    let Some((zone, port)) = split_port(rest, token, report) else { return Vec::new() };
    // `:1053` is every name, as with CoreDNS.
    let zones = report.zone_of(if zone.is_empty() { "." } else { zone }, token);
    zones.into_iter().map(|zone| Key { zone, port, place: token.place.clone() }).collect()
}

/// The zone and the port: a number after the last colon. A network's colons come before its slash.
fn split_port<'a>(text: &'a str, token: &Token, report: &mut Report) -> Option<(&'a str, u16)> {
    let (zone, port) = match text.rsplit_once(':') {
        Some((zone, port)) if !port.contains('/') => (zone, port),
        _ => return Some((text, PORT)),
    };
    match port.parse::<u16>() {
        Ok(port) if port > 0 => Some((zone, port)),
        _ => {
            report
                .error("bad-port", &token.place, format!("`{port}` is not a port"))
                .help("ports are 1 to 65535, like `example.org:1053`");
            None
        }
    }
}
