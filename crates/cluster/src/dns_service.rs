//! Which Service answers DNS in a cluster.

use crate::{DescribedService, Key, Store};
use namewall_policy::Finding;

/// Where distributions have it, in the order in which they are tried: kubeadm and the large clouds, OpenShift,
/// Kubespray, RKE2.
const USUAL: [(&str, &str); 4] = [
    ("kube-system", "kube-dns"),
    ("openshift-dns", "dns-default"),
    ("kube-system", "coredns"),
    ("kube-system", "rke2-coredns-rke2-coredns"),
];

/// The Service that `named` says, or the first usual one. None if there is no such Service with an address.
pub fn find_dns_service(store: &Store, named: Option<&Key>) -> Option<Key> {
    let has_address =
        |key: &Key| store.service(key).map(DescribedService::cluster_addresses).is_some_and(|all| !all.is_empty());
    let usual = USUAL.into_iter().map(|(namespace, name)| Key { namespace: namespace.into(), name: name.into() });
    let candidates: Vec<Key> = match named {
        Some(named) => vec![named.clone()],
        None => usual.collect(),
    };
    candidates.into_iter().find(has_address)
}

/// What is wrong if there is none. `consequence` says what does not work without it.
pub fn no_dns_service(named: Option<&Key>, consequence: &str) -> Finding {
    let candidates = match named {
        Some(Key { namespace, name }) => format!("{namespace}/{name}"),
        None => USUAL.map(|(namespace, name)| format!("{namespace}/{name}")).join(", "),
    };
    let message = format!(
        "the cluster's DNS Service is not found, or has no address (looked for {candidates}): {consequence}. Name it \
         with --dns-service (dnsService of the chart)"
    );
    Finding::error("no-dns-service", "Service", message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::SERVICE;
    use serde_json::json;

    fn cluster(services: &[(&str, &str, &str)]) -> Store {
        let mut store = Store::default();
        for (namespace, name, address) in services {
            let metadata = json!({"namespace": namespace, "name": name});
            store.apply(SERVICE.preferred(), &json!({"metadata": metadata, "spec": {"clusterIP": address}}));
        }
        store
    }

    fn found(store: &Store, named: Option<&Key>) -> Option<String> {
        find_dns_service(store, named).map(|Key { namespace, name }| format!("{namespace}/{name}"))
    }

    #[test]
    fn the_usual_ones_are_found_and_the_first_counts() {
        let openshift = ("openshift-dns", "dns-default", "172.30.0.10");
        assert_eq!(found(&cluster(&[openshift]), None).as_deref(), Some("openshift-dns/dns-default"));
        let both = cluster(&[openshift, ("kube-system", "kube-dns", "10.96.0.10")]);
        assert_eq!(found(&both, None).as_deref(), Some("kube-system/kube-dns"));
        assert_eq!(
            found(&cluster(&[("kube-system", "kube-dns", "None"), openshift]), None).as_deref(),
            Some("openshift-dns/dns-default")
        );
    }

    #[test]
    fn a_named_one_is_never_replaced_by_another() {
        let store = cluster(&[("kube-system", "kube-dns", "10.96.0.10"), ("dns", "own", "10.96.0.11")]);
        let named = |name: &str| Key { namespace: "dns".into(), name: name.into() };
        assert_eq!(found(&store, Some(&named("own"))).as_deref(), Some("dns/own"));
        assert_eq!(found(&store, Some(&named("other"))), None);
        let finding = no_dns_service(Some(&named("other")), "no name opens");
        assert!(finding.message.contains("dns/other") && !finding.message.contains("kube-dns"), "{finding}");
    }

    #[test]
    fn without_any_the_finding_lists_where_it_was_looked_for() {
        assert_eq!(found(&Store::default(), None), None);
        let finding = no_dns_service(None, "no name opens");
        assert!(finding.message.contains("openshift-dns/dns-default"), "{finding}");
    }
}
