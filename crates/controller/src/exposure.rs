//! What the conditions and Events of a ClusterEgressFirewall say: which nodes do not enforce it yet, and which Services
//! point at what it denies. Pure; time is an argument.

use crate::firewalls::Firewall;
use namewall_cluster::kinds::cluster_egress_firewall::OffendingService;
use namewall_kubernetes::{FirewallNotice, FirewallReport, Truth};
use namewall_policy::Instant;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// How many nodes, and how many Services, a message names.
const MOST_NAMED: usize = 5;
/// How often Events tell of a firewall's Services.
pub(crate) const TELL_EVERY: Duration = Duration::from_secs(60);

/// What is said of a firewall that these nodes enforce.
pub(crate) fn report(firewall: &Firewall, enforcing: &BTreeSet<Arc<str>>) -> FirewallReport {
    let mut status = firewall.status.clone();
    status.enforcing_nodes = i32::try_from(enforcing.len()).ok();
    let conditions = vec![enforced(firewall, enforcing), exposed(firewall)];
    FirewallReport { generation: firewall.generation, status, conditions }
}

fn enforced(firewall: &Firewall, enforcing: &BTreeSet<Arc<str>>) -> Truth {
    let kind = "Enforced";
    let missing: Vec<&str> = firewall.nodes.difference(enforcing).map(|node| &**node).collect();
    if firewall.is_audited {
        let message = "it is audited: what it denies is reported, and not blocked".to_owned();
        return Truth { kind, is_true: false, reason: "Audited", message };
    }
    match missing.len() {
        0 => {
            let message = match firewall.nodes.len() {
                0 => "no node is there that it is for".to_owned(),
                1 => "the one node it is for enforces it".to_owned(),
                count => format!("all {count} nodes it is for enforce it"),
            };
            Truth { kind, is_true: true, reason: "EnforcedOnAllNodes", message }
        }
        count => {
            let of = firewall.nodes.len();
            let message = format!("{count} of {of} nodes do not enforce it yet: {}", named(&missing, count));
            Truth { kind, is_true: false, reason: "NodesNotEnforcing", message }
        }
    }
}

fn exposed(firewall: &Firewall) -> Truth {
    let kind = "Exposed";
    let count = usize::try_from(firewall.status.offending_services_count.unwrap_or_default()).unwrap_or_default();
    if count == 0 {
        let message = "no Service points at a destination that it denies".to_owned();
        return Truth { kind, is_true: false, reason: "NoServices", message };
    }
    let services: Vec<String> = firewall.status.offending_services.iter().map(described).collect();
    let services: Vec<&str> = services.iter().map(String::as_str).collect();
    let message = format!("{}; connections through them are denied too", points(&services, count));
    Truth { kind, is_true: true, reason: "ServicesPointAtDenied", message }
}

/// The Services that users were told of.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub(crate) struct ToldServices {
    services: Vec<OffendingService>,
    /// When Events may tell of others.
    next: Option<Instant>,
}

impl ToldServices {
    /// Those that the status of a firewall names already.
    pub(crate) fn new(services: Vec<OffendingService>) -> Self {
        Self { services, next: None }
    }

    /// What there is to tell now. It counts as told from then on.
    pub(crate) fn take_news(&mut self, services: &[OffendingService], now: Instant) -> Vec<FirewallNotice> {
        if self.next.is_some_and(|next| now < next) {
            return Vec::new();
        }
        let is_in = |list: &[OffendingService], one: &OffendingService| {
            list.iter().any(|known| (&known.namespace, &known.name) == (&one.namespace, &one.name))
        };
        let appeared: Vec<String> = services.iter().filter(|one| !is_in(&self.services, one)).map(described).collect();
        let gone = self.services.iter().filter(|one| !is_in(services, one));
        let gone: Vec<String> = gone.map(|one| format!("{}/{}", one.namespace, one.name)).collect();
        let mut news = Vec::new();
        if !appeared.is_empty() {
            let appeared: Vec<&str> = appeared.iter().map(String::as_str).collect();
            let message = format!("{}; connections through them are denied too", points(&appeared, appeared.len()));
            news.push(FirewallNotice { is_warning: true, reason: "Exposed", message });
        }
        if !gone.is_empty() {
            let gone: Vec<&str> = gone.iter().map(String::as_str).collect();
            let message =
                format!("Services that no longer point at a denied destination: {}", named(&gone, gone.len()));
            news.push(FirewallNotice { is_warning: false, reason: "NotExposed", message });
        }
        if !news.is_empty() {
            self.services = services.to_vec();
            self.next = Some(now + TELL_EVERY);
        }
        news
    }
}

fn described(one: &OffendingService) -> String {
    format!("{}/{} (to {}, denied by rule {})", one.namespace, one.name, one.address, one.rule)
}

fn points(services: &[&str], count: usize) -> String {
    format!("Services that point at a denied destination: {}", named(services, count))
}

/// The first of them, and how many more there are.
fn named(names: &[&str], count: usize) -> String {
    let shown = names.len().min(MOST_NAMED);
    let list = names[..shown].join(", ");
    if count > shown { format!("{list} and {} more", count - shown) } else { list }
}

#[cfg(test)]
mod tests {
    use super::*;
    use namewall_cluster::kinds::cluster_egress_firewall::ClusterEgressFirewallStatus;

    fn service(name: &str) -> OffendingService {
        OffendingService {
            namespace: "shop".to_owned(),
            name: name.to_owned(),
            rule: 0,
            address: "192.0.2.1".to_owned(),
        }
    }

    fn firewall(nodes: &[&str], services: &[&str]) -> Firewall {
        let status = ClusterEgressFirewallStatus {
            offending_services: services.iter().map(|name| service(name)).collect(),
            offending_services_count: i32::try_from(services.len()).ok(),
            ..ClusterEgressFirewallStatus::default()
        };
        let nodes = nodes.iter().map(|node| Arc::from(*node)).collect();
        Firewall { generation: 3, status, is_audited: false, nodes }
    }

    fn told(firewall: &Firewall, enforcing: &[&str]) -> Vec<String> {
        let enforcing = enforcing.iter().map(|node| Arc::from(*node)).collect();
        let conditions = report(firewall, &enforcing).conditions;
        conditions.iter().map(|one| format!("{} {} {}: {}", one.kind, one.is_true, one.reason, one.message)).collect()
    }

    #[test]
    fn nodes_that_do_not_enforce_are_named_and_many_are_counted() {
        let all = ["a", "b", "c", "d", "e", "f", "g", "h"];
        assert_eq!(
            told(&firewall(&all, &[]), &all)[0],
            "Enforced true EnforcedOnAllNodes: all 8 nodes it is for enforce it"
        );
        let missing = "Enforced false NodesNotEnforcing: 2 of 8 nodes do not enforce it yet: a, h";
        assert_eq!(told(&firewall(&all, &[]), &all[1..7])[0], missing);
        let many = "Enforced false NodesNotEnforcing: 8 of 8 nodes do not enforce it yet: a, b, c, d, e and 3 more";
        assert_eq!(told(&firewall(&all, &[]), &["gone"])[0], many);
        let audited = Firewall { is_audited: true, ..firewall(&all, &[]) };
        assert!(told(&audited, &all)[0].starts_with("Enforced false Audited: "));
    }

    #[test]
    fn services_are_named_with_where_they_lead() {
        let one = "Exposed true ServicesPointAtDenied: Services that point at a denied destination: \
                   shop/a (to 192.0.2.1, denied by rule 0); connections through them are denied too";
        assert_eq!(told(&firewall(&[], &["a"]), &[])[1], one);
        assert!(told(&firewall(&[], &["a", "b", "c", "d", "e", "f"]), &[])[1].contains("rule 0) and 1 more;"));
        assert!(told(&firewall(&[], &[]), &[])[1].starts_with("Exposed false NoServices: "));
    }

    #[test]
    fn a_service_is_told_of_once_and_again_when_it_is_gone() {
        let now = Instant(Duration::from_secs(100));
        let mut told = ToldServices::default();
        let mut news = |names: &[&str], now: Instant| {
            let services: Vec<OffendingService> = names.iter().map(|name| service(name)).collect();
            let news = told.take_news(&services, now);
            news.iter().map(|one| (one.reason, one.message.contains("shop/b"))).collect::<Vec<_>>()
        };
        assert_eq!(news(&["a"], now), [("Exposed", false)]);
        assert_eq!(news(&["a"], now + TELL_EVERY), []);
        assert_eq!(news(&["a", "b"], now + TELL_EVERY), [("Exposed", true)]);
        // A Service that comes and goes makes no more Events than one a minute.
        let soon = now + TELL_EVERY + Duration::from_secs(1);
        assert_eq!(news(&["a"], soon), []);
        assert_eq!(news(&["a"], soon + TELL_EVERY), [("NotExposed", true)]);
    }
}
