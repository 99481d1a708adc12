//! What a name of a cluster is about: the facts `kubernetes/namespace`, `kubernetes/service` and the like. They are read
//! from the name alone, as CoreDNS does it: nobody is asked whether there is such a Service.

use crate::message::is_under;
use namewall_corefile::Zone;
use namewall_dns::wire::Name;

/// The zones of the directive `kubernetes`.
#[derive(Debug)]
pub(crate) struct ClusterNames {
    zones: Vec<Zone>,
}

/// The parts of `_PORT._PROTOCOL.SERVICE.NAMESPACE.svc.ZONE` or `ENDPOINT.SERVICE.NAMESPACE.svc.ZONE`.
#[derive(Default)]
struct Parts<'n> {
    kind: &'n str,
    namespace: &'n str,
    service: &'n str,
    endpoint: &'n str,
    port: &'n str,
    protocol: &'n str,
}

impl ClusterNames {
    pub(crate) fn new(zones: Vec<Zone>) -> Self {
        Self { zones }
    }

    /// The value of a fact, if the name is one of the cluster's.
    pub(crate) fn label(&self, name: &Name, label: &str) -> Option<String> {
        let fitting = self.zones.iter().filter(|zone| is_under(name, zone));
        let zone = fitting.max_by_key(|zone| zone.depth())?;
        let labels: Vec<String> =
            name.labels().map(|label| String::from_utf8_lossy(label).to_ascii_lowercase()).collect();
        let own = labels.len().checked_sub(zone.depth())?;
        let parts = Parts::read(&labels[..own])?;
        let value = match label.strip_prefix("kubernetes/")? {
            "kind" => parts.kind,
            "namespace" => parts.namespace,
            "service" => parts.service,
            "endpoint" => parts.endpoint,
            "port-name" => parts.port,
            "protocol" => parts.protocol,
            _ => return None,
        };
        Some(value.to_owned())
    }
}

impl<'n> Parts<'n> {
    /// None for a name of another form.
    fn read(labels: &'n [String]) -> Option<Self> {
        let mut labels: Vec<&str> = labels.iter().map(String::as_str).collect();
        let mut parts = Self { kind: labels.pop().unwrap_or_default(), ..Self::default() };
        if labels.is_empty() {
            // The zone itself, or all of its Services: nothing in particular.
            return matches!(parts.kind, "" | "svc" | "pod").then(Self::default);
        }
        if !matches!(parts.kind, "svc" | "pod") {
            return None;
        }
        parts.namespace = labels.pop().unwrap_or_default();
        parts.service = labels.pop().unwrap_or_default();
        let bare = |label: &'n str| label.strip_prefix('_').unwrap_or(label);
        match labels[..] {
            [] => {}
            [endpoint] => parts.endpoint = endpoint,
            [port, protocol] => (parts.port, parts.protocol) = (bare(port), bare(protocol)),
            _ => return None,
        }
        Some(parts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_coredns_reads_them() {
        let shown = |name: &str| {
            let labels: Vec<String> = name.split('.').filter(|label| !label.is_empty()).map(str::to_owned).collect();
            Parts::read(&labels).map(|parts| {
                [parts.kind, parts.namespace, parts.service, parts.endpoint, parts.port, parts.protocol].join("|")
            })
        };
        for (name, expected) in [
            ("", Some("|||||")),
            ("svc", Some("|||||")),
            ("shop.svc", Some("svc|shop||||")),
            ("web.shop.svc", Some("svc|shop|web|||")),
            ("pod-1.web.shop.svc", Some("svc|shop|web|pod-1||")),
            ("_http._tcp.web.shop.svc", Some("svc|shop|web||http|tcp")),
            ("10-0-0-1.shop.pod", Some("pod|shop|10-0-0-1|||")),
            ("web.shop.other", None),
            ("other", None),
            ("a.b.c.web.shop.svc", None),
        ] {
            assert_eq!(shown(name).as_deref(), expected, "{name}");
        }
    }
}
