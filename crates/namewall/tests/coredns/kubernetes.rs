//! `kubernetes`: the same API server, the same Corefiles, the same questions.

use crate::ask::{Question, ask};
use crate::cluster::{make, questions};
use crate::differences::{Intended, Ledger};
use crate::peer::CoreDns;
use crate::ports::free_port;
use crate::process::{Folder, Serving, TEST_TIMEOUT};
use namewall_testbed::{ControlPlane, Dice};
use std::time::{Duration, Instant};

const SEED: u64 = 17;
/// Questions for each of the settings.
const QUESTIONS: usize = 560;

/// Options of `kubernetes` that are compared.
const SETTINGS: [&str; 6] = [
    "pods insecure\nfallthrough in-addr.arpa ip6.arpa\nttl 30",
    "pods verified\nendpoint_pod_names\nttl 0",
    "namespaces shop default\nlabels tier=front\npods verified",
    "noendpoints\nignore empty_service\npods disabled",
    "namespace_labels team in (goods, other)\nfallthrough\nttl 600",
    "ignore empty_service\npods insecure\nlabels tier notin (back),!none",
];

const NXDOMAIN: &str = "NXDOMAIN";

/// In the order in which they are tried.
const INTENDED: &[Intended] = &[
    ("nodata-by-type", |d| d.theirs.rcode == NXDOMAIN && d.ours.rcode == "NOERROR" && d.ours.is_empty()),
    ("soa-below-the-zone", |d| d.question.kind.0 == 6 && d.theirs.rcode == "NOERROR" && d.theirs.is_empty()),
];

/// Everybody's upstream.
fn upstream(port: u16) -> String {
    format!(
        ".:{port} {{\n bind 127.0.0.1\n template IN A example.com {{\n match ^www\n answer \"{{{{ .Name }}}} 60 IN A 192.0.2.77\"\n \
         fallthrough\n }}\n template IN ANY . {{\n rcode NXDOMAIN\n authority \". 60 IN SOA a. b. 1 2 3 4 5\"\n }}\n}}\n"
    )
}

fn corefile(kubeconfig: &str, ports: &[u16], above: u16) -> String {
    let block = |(port, options): (&u16, &&str)| {
        format!(
            ".:{port} {{\n bind 127.0.0.1\n kubernetes cluster.local in-addr.arpa ip6.arpa {{\n kubeconfig {kubeconfig}\n \
             startup_timeout 60s\n {options}\n }}\n forward . 127.0.0.1:{above}\n}}\n"
        )
    };
    ports.iter().zip(&SETTINGS).map(block).collect()
}

pub(crate) fn wait_for(what: &str, holds: impl Fn() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < TEST_TIMEOUT, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn names_of_a_cluster_are_answered_as_coredns_answers_them() {
    let plane = ControlPlane::start().unwrap();
    let mut dice = Dice::new(SEED);
    let made = make(&plane, &mut dice);
    let kubeconfig = plane.kubeconfig().display().to_string();
    let ports = || -> Vec<u16> { SETTINGS.iter().map(|_| free_port()).collect() };
    let (theirs, ours, above) = (ports(), ports(), free_port());
    let text = corefile(&kubeconfig, &theirs, above) + &upstream(above);
    let _coredns = CoreDns::start(Folder::new(&text), theirs[0]);
    let _serving = Serving::start(&corefile(&kubeconfig, &ours, above));
    let mut ledger = Ledger::new(INTENDED);
    let compare = |ledger: &mut Ledger, at: usize, question: &Question| {
        let answers = [ask(theirs[at], question), ask(ours[at], question)];
        ledger.compare(SETTINGS[at].replace('\n', "; ").as_str(), question, [&answers[0], &answers[1]]);
    };
    for (at, _) in SETTINGS.iter().enumerate() {
        for question in questions(&made, &mut dice, QUESTIONS) {
            compare(&mut ledger, at, &question);
        }
    }

    // What changes is answered as it is then.
    plane.kubectl(&["delete", "service", "s1", "-A", "--field-selector=metadata.name=s1"]).ok();
    let fresh = "apiVersion: v1\nkind: Service\nmetadata: {name: fresh, namespace: shop, labels: {tier: front}}\n\
                 spec: {clusterIP: None, ports: [{name: http, port: 80}]}\n---\n\
                 apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\n\
                 metadata: {name: fresh, namespace: shop, labels: {tier: front, kubernetes.io/service-name: fresh}}\n\
                 addressType: IPv4\nendpoints: [{addresses: [10.6.6.6]}]\nports: [{name: http, port: 80}]\n";
    plane.apply(fresh).unwrap();
    let question = Question::new("A fresh.shop.svc.cluster.local");
    for port in [theirs[0], ours[0]] {
        wait_for("a new Service is never answered", || !ask(port, &question).is_empty());
    }
    plane.kubectl(&["delete", "endpointslice", "fresh", "-n", "shop"]).unwrap();
    for port in [theirs[0], ours[0]] {
        wait_for("endpoints that are gone are answered for ever", || ask(port, &question).rcode == NXDOMAIN);
    }
    compare(&mut ledger, 0, &question);
    assert!(ledger.asked > 2_000, "{}", ledger.asked);
    ledger.finish("Names of a cluster");
}

/// What is not known yet is not denied: a resolver would remember that there is no such name.
#[test]
fn names_get_servfail_until_the_cluster_is_known() {
    let (port, nobody) = (free_port(), free_port());
    let text = format!(
        ".:{port} {{\n bind 127.0.0.1\n kubernetes cluster.local in-addr.arpa {{\n endpoint http://127.0.0.1:{nobody}\n \
         startup_timeout 0s\n fallthrough in-addr.arpa\n }}\n}}\n"
    );
    let _serving = Serving::start(&text);
    for text in ["A kubernetes.default.svc.cluster.local", "A cluster.local", "PTR 1.0.96.10.in-addr.arpa"] {
        assert_eq!(ask(port, &Question::new(text)).rcode, "SERVFAIL", "{text}");
    }
    assert_eq!(ask(port, &Question::new("A www.example.com")).rcode, "REFUSED");
}
