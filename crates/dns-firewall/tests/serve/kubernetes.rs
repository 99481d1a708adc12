//! `kubernetes`: names of a cluster. The comparison with CoreDNS (`crates/namewall/tests/coredns`) has the many cases.

use crate::support::{Engines, Firewall, LoggedText, around, built};
use namewall_corefile::Kubernetes;
use namewall_dns_firewall::{
    Before, Built, ClusterIndex, ClusterKey, ClusterKind, ClusterObject, Clusters, EndpointRecord, PortRecord,
    ServiceForm, ServiceRecord, SliceRecord, Surroundings,
};
use std::sync::Arc;

const COREFILE: &str = ".:53 {
    kubernetes cluster.local in-addr.arpa {
        fallthrough in-addr.arpa
        pods verified
        ttl 30
    }
    firewall query {
        block under(name, 'secret.example')
        default allow
    }
    firewall response {
        block in-cidr(response_ip, 10.96.9.0/24)
        default allow
    }
    hosts /no/such/file {
        192.0.2.9 www.example
        192.0.2.8 a.secret.example
        fallthrough
    }
    forward . 192.0.2.53
}";

/// One cluster, whatever a directive asks for.
#[derive(Debug)]
struct One(Arc<ClusterIndex>);

impl Clusters for One {
    fn open(&self, _: &Kubernetes) -> Result<Arc<ClusterIndex>, String> {
        Ok(self.0.clone())
    }
}

pub(crate) fn key(namespace: &str, name: &str) -> ClusterKey {
    ClusterKey { namespace: namespace.into(), name: name.into() }
}

fn port(name: &str, number: u16) -> PortRecord {
    PortRecord { name: name.into(), protocol: "TCP".into(), number: Some(number) }
}

pub(crate) fn service(form: ServiceForm) -> ClusterObject {
    ClusterObject::Service(ServiceRecord { form, ports: vec![port("http", 80)] })
}

pub(crate) fn index() -> Arc<ClusterIndex> {
    let kinds = [ClusterKind::Namespace, ClusterKind::Service, ClusterKind::Slice, ClusterKind::Pod];
    Arc::new(ClusterIndex::new(kinds.to_vec()))
}

pub(crate) fn fill(index: &ClusterIndex) {
    let at = |address: &str| ServiceForm::Balanced(vec![address.parse().unwrap()]);
    let outside = |name: &str| ServiceForm::ExternalName(name.into());
    index.replace(ClusterKind::Namespace, vec![(key("", "shop"), ClusterObject::Namespace)]);
    index.replace(
        ClusterKind::Service,
        vec![
            (key("shop", "web"), service(at("10.96.0.7"))),
            (key("shop", "forbidden"), service(at("10.96.9.1"))),
            (key("shop", "db"), service(ServiceForm::Headless)),
            (key("shop", "www"), service(outside("www.example"))),
            (key("shop", "hidden"), service(outside("a.secret.example."))),
        ],
    );
    let endpoint =
        EndpointRecord { address: "10.1.0.1".parse().unwrap(), host_name: Some("db-0".into()), target: None };
    let slice = SliceRecord { service: "db".into(), endpoints: vec![endpoint], ports: vec![port("sql", 5432)] };
    let own = SliceRecord {
        service: "web".into(),
        endpoints: vec![EndpointRecord { address: "192.0.2.1".parse().unwrap(), host_name: None, target: None }],
        ports: vec![port("http", 80)],
    };
    index.replace(
        ClusterKind::Slice,
        vec![(key("shop", "db-x"), ClusterObject::Slice(slice)), (key("shop", "web-x"), ClusterObject::Slice(own))],
    );
    index.replace(ClusterKind::Pod, vec![(key("shop", "p"), ClusterObject::Pod(vec!["10.1.0.9".parse().unwrap()]))]);
}

fn firewall(index: &Arc<ClusterIndex>) -> Firewall {
    serving(COREFILE, index)
}

/// Serves a Corefile with a cluster.
pub(crate) fn serving(corefile: &str, index: &Arc<ClusterIndex>) -> Firewall {
    let told = LoggedText::default();
    let around = Surroundings { clusters: Some(Arc::new(One(index.clone()))), ..around(&told) };
    let Built { service, routes, listen, warnings, .. } =
        built(corefile, &around, &Engines::none()).unwrap_or_else(|why| panic!("{why}"));
    Firewall { service, routes, listen, warnings, told }
}

#[test]
fn names_of_a_cluster_are_answered() {
    let index = index();
    fill(&index);
    let firewall = firewall(&index);
    assert_eq!(firewall.warnings, [""; 0]);
    let soa = "authority cluster.local. 30 SOA 30";
    for (question, expected) in [
        ("A web.shop.svc.cluster.local", "answer NOERROR aa; web.shop.svc.cluster.local. 30 A 10.96.0.7".to_owned()),
        ("AAAA web.shop.svc.cluster.local", format!("answer NOERROR aa; {soa}")),
        ("A none.shop.svc.cluster.local", format!("answer NXDOMAIN aa; {soa}")),
        (
            "A db-0.db.shop.svc.cluster.local",
            "answer NOERROR aa; db-0.db.shop.svc.cluster.local. 30 A 10.1.0.1".to_owned(),
        ),
        (
            "A 10-1-0-9.shop.pod.cluster.local",
            "answer NOERROR aa; 10-1-0-9.shop.pod.cluster.local. 30 A 10.1.0.9".to_owned(),
        ),
        ("A 10-1-0-8.shop.pod.cluster.local", format!("answer NXDOMAIN aa; {soa}")),
        ("TXT shop.svc.cluster.local", format!("answer NOERROR aa; {soa}")),
        (
            "PTR 7.0.96.10.in-addr.arpa",
            "answer NOERROR aa; 7.0.96.10.in-addr.arpa. 30 PTR web.shop.svc.cluster.local.".to_owned(),
        ),
        ("PTR 8.0.96.10.in-addr.arpa", "route 0".to_owned()),
        ("AXFR cluster.local", "answer REFUSED".to_owned()),
        ("A www.example.org", "route 0".to_owned()),
    ] {
        assert_eq!(firewall.ask(question), expected, "{question}");
    }
    // The Service that leads to us is the zone's name server.
    assert!(firewall.ask("NS cluster.local").contains("NS web.shop.svc.cluster.local."));
}

/// Rules decide about answers of the cluster, and about names that its aliases lead to.
#[test]
fn s9_3_rules_judge_answers_of_a_cluster() {
    let index = index();
    fill(&index);
    let firewall = firewall(&index);
    assert!(firewall.ask("A forbidden.shop.svc.cluster.local").starts_with("NXDOMAIN"), "its address is blocked");
    let alias = firewall.ask("A www.shop.svc.cluster.local");
    assert!(alias.contains("CNAME www.example.") && alias.contains("192.0.2.9"), "{alias}");
    let hidden = firewall.ask("A hidden.shop.svc.cluster.local");
    assert!(hidden.starts_with("NXDOMAIN"), "a denied target is a denied question: {hidden}");
}

/// NXDOMAIN would be remembered.
#[test]
fn nothing_is_denied_before_all_of_a_cluster_is_known() {
    let index = index();
    let firewall = firewall(&index);
    index.replace(ClusterKind::Namespace, vec![(key("", "shop"), ClusterObject::Namespace)]);
    index.replace(ClusterKind::Service, Vec::new());
    for question in ["A web.shop.svc.cluster.local", "PTR 7.0.96.10.in-addr.arpa", "A cluster.local"] {
        assert_eq!(firewall.ask(question), "answer SERVFAIL", "{question}");
    }
    fill(&index);
    assert!(firewall.ask("A web.shop.svc.cluster.local").starts_with("answer NOERROR"));
}

/// A reload that wants other objects does not take away what is known.
#[test]
fn a_new_choice_of_objects_is_answered_from_the_old_one_until_it_is_listed() {
    let old = index();
    fill(&old);
    let corefile = namewall_corefile::read("Corefile", COREFILE, &namewall_corefile::NoFiles, &|_| None).unwrap();
    let directive = Arc::new(corefile.servers[0].kubernetes.clone().unwrap());
    let kinds = vec![ClusterKind::Namespace, ClusterKind::Service];
    let new = Arc::new(ClusterIndex::after(kinds, Some(Before { index: old.clone(), directive })));
    let firewall = firewall(&new);
    let question = "A web.shop.svc.cluster.local";
    let known = "answer NOERROR aa; web.shop.svc.cluster.local. 30 A 10.96.0.7";
    assert_eq!(firewall.ask(question), known);
    assert!(new.settle() && new.before().is_some());
    new.replace(ClusterKind::Namespace, vec![(key("", "shop"), ClusterObject::Namespace)]);
    assert_eq!(firewall.ask(question), known, "Services are not listed yet");
    new.replace(ClusterKind::Service, Vec::new());
    assert!(firewall.ask(question).starts_with("answer NXDOMAIN"), "{}", firewall.ask(question));
    assert!(new.settle() && new.before().is_none());
    assert_eq!(Arc::strong_count(&old), 1, "nobody needs the old one any more");
}
