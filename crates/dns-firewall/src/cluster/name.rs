//! What a name of a cluster is about, read from the name alone. The facts `kubernetes/namespace`, `kubernetes/service`
//! and the like are that, as with CoreDNS: they do not say that there is such a Service.

use crate::message::is_under;
use namewall_corefile::Zone;
use namewall_dns::wire::Name;

/// The zones of the directive `kubernetes`.
#[derive(Debug)]
pub(crate) struct ClusterNames {
    zones: Vec<Zone>,
}

/// The parts of `_PORT._PROTOCOL.SERVICE.NAMESPACE.svc.ZONE` or `ENDPOINT.SERVICE.NAMESPACE.svc.ZONE`.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Parts<'n> {
    /// `svc` or `pod`; empty for a name of nothing in particular.
    pub(super) kind: &'n str,
    pub(super) namespace: &'n str,
    pub(super) service: &'n str,
    pub(super) endpoint: &'n str,
    pub(super) port: &'n str,
    pub(super) protocol: &'n str,
}

impl ClusterNames {
    pub(crate) fn new(zones: Vec<Zone>) -> Self {
        Self { zones }
    }

    /// The longest zone that has the name.
    pub(super) fn zone_of(&self, name: &Name) -> Option<&Zone> {
        self.zones.iter().filter(|zone| is_under(name, zone)).max_by_key(|zone| zone.depth())
    }

    /// The value of a fact, if the name is one of the cluster's.
    pub(crate) fn label(&self, name: &Name, label: &str) -> Option<String> {
        let zone = self.zone_of(name)?;
        let labels = labels_before(name, zone);
        let parts = Parts::read(&labels)?;
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

/// The labels of a name before those of a zone that has it, in lower case.
pub(super) fn labels_before(name: &Name, zone: &Zone) -> Vec<String> {
    let mut labels: Vec<String> =
        name.labels().map(|label| String::from_utf8_lossy(label).to_ascii_lowercase()).collect();
    labels.truncate(labels.len().saturating_sub(zone.depth()));
    labels
}

impl<'n> Parts<'n> {
    /// None for a name of another form.
    pub(super) fn read(labels: &'n [String]) -> Option<Self> {
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
