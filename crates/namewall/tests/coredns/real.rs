//! Corefiles as people have them (tests/corefiles): whole files, each served by both servers and asked the same.

use crate::ask::{Answer, Question, ask, timeless};
use crate::corefiles::{QUESTIONS, UPSTREAM_ZONE, ZONE};
use crate::differences::{Intended, Ledger};
use crate::encrypted::{Authority, authority, write_certificate};
use crate::options::cities;
use crate::peer::CoreDns;
use crate::plain::{FILE_ANY, FILE_WITHOUT_NS, HOSTS_NODATA_SOA, NEGATIVE_SOA_TTL, NOBODY_ANSWERS};
use crate::ports::free_port;
use crate::process::{Folder, Serving};
use namewall_testbed::ControlPlane;

macro_rules! samples {
    ($($name:literal),* $(,)?) => {
        &[$(($name, include_str!(concat!("../../../../tests/corefiles/", $name, ".corefile")))),*]
    };
}

const COREFILES: &[(&str, &str)] = samples![
    "clusters/kubernetes",
    "clusters/aks",
    "clusters/gke",
    "clusters/node-local-dns",
    "clusters/openshift-default",
    "real/k3s",
    "real/eks",
    "real/rke2",
    "real/minikube",
    "real/stub-domains",
    "real/verified-pods",
    "real/ad-block",
    "real/no-ipv6",
    "real/wildcard-ips",
    "real/dns64",
    "real/split-horizon",
    "real/by-country",
    "real/rewrites",
    "real/rewrite-more",
    "real/dot-upstream",
    "real/authoritative",
];

const OBJECTS: &str = "apiVersion: v1
kind: Namespace
metadata: {name: shop}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
spec: {clusterIP: 10.96.7.7, ports: [{name: http, port: 80}]}
---
apiVersion: v1
kind: Service
metadata: {name: db, namespace: shop}
spec: {clusterIP: None, ports: [{name: sql, port: 5432}]}
---
apiVersion: v1
kind: Service
metadata: {name: out, namespace: shop}
spec: {type: ExternalName, externalName: www.example.org}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: db, namespace: shop, labels: {kubernetes.io/service-name: db}}
addressType: IPv4
endpoints: [{addresses: [10.9.0.7], targetRef: {kind: Pod, name: db-0, namespace: shop}}, {addresses: [10.9.0.8], hostname: second}]
ports: [{name: sql, port: 5432}]
";

/// Asked of every Corefile, beside the questions of the table of plain ones.
const MORE: &[&str] = &[
    "A web.shop.svc.cluster.local",
    "AAAA web.shop.svc.cluster.local",
    "SRV _http._tcp.web.shop.svc.cluster.local",
    "A db.shop.svc.cluster.local",
    "SRV db.shop.svc.cluster.local",
    "A second.db.shop.svc.cluster.local",
    "A db-0.db.shop.svc.cluster.local",
    "A 10-9-0-7.db.shop.svc.cluster.local",
    "A out.shop.svc.cluster.local",
    "A none.shop.svc.cluster.local",
    "A www.example.org.shop.svc.cluster.local",
    "PTR 7.7.96.10.in-addr.arpa",
    "PTR 8.0.9.10.in-addr.arpa",
    "A kubernetes.default.svc.cluster.local",
    "A 10-8-0-1.shop.pod.cluster.local",
    "A node-1",
    "A host.minikube.internal",
    "A override.example.org",
    "A kube.example.org",
    "A a.b.c.d.e.internal.cloudapp.net",
    "A reddog.microsoft.com",
    "A blocked.example.org",
    "AAAA blocked.example.org",
    "A tracker.example.org",
    "AAAA tracker.example.org",
    "A ads7.example.org",
    "A x.telemetry.example.org",
    "HTTPS ads.example.org",
    "A x.local.example.org",
    "A ip-10-0-0-1.ip.example.net",
    "MX ip-10-0-0-1.ip.example.net",
    "AAAA ip-10-0-0-1.ip.example.net",
    "A other.ip.example.net",
    "A anything.test",
    "AAAA anything.test",
    "MX anything.test",
    "A www.example.org from=127.1.0.1",
    "AAAA www.example.org from=127.1.0.1",
    "TXT text.example.org from=127.1.0.1",
    "A x.example.org from=127.2.0.1",
    "A host.example.org from=127.1.0.1",
    "A www.example.org from=127.2.0.1",
    "A a.corp.example.net",
    "A www.corp.example.net",
    "A legacy.example.org",
    "A pre-new.example.org",
    "A service.example.org",
    "A api-x.example.org",
    "ANY service.example.org",
    "A nowhere.example.org",
    "A a.nowhere.example.org",
    "A missing.example.com",
    "A to-v4.example.org",
    "AAAA to-v4.example.org",
    "A to-target.example.org",
    "TXT hostname.bind CH",
    "TXT authors.bind CH",
    "TXT id.server CH",
    "A localhost.example.org",
    "PTR 1.0.0.127.in-addr.arpa",
    "NS .",
    "HINFO anything.example.org",
];

/// Names that a Corefile with `cache` answers itself, or leads elsewhere.
const OWN: [&str; 7] = [
    "out.shop.svc.cluster.local",
    "node-1",
    "override.example.org",
    "host.minikube.internal",
    "localhost",
    "1.0.0.127.in-addr.arpa",
    "x.local.example.org",
];

/// In the order in which they are tried.
const INTENDED: &[Intended] = &[
    NOBODY_ANSWERS,
    HOSTS_NODATA_SOA,
    ("own-answers-are-not-cached", |d| {
        let without = |answer: &Answer| {
            let [answer_records, authority] = [&answer.answer, &answer.authority].map(|records| timeless(records));
            Answer { answer: answer_records, authority, ..answer.clone() }
        };
        OWN.contains(&&*d.question.name) && without(d.theirs) == without(d.ours)
    }),
    ("dns64-soa-ttl", |d| {
        let without = |answer: &Answer| Answer { answer: timeless(&answer.answer), ..answer.clone() };
        d.question.kind.0 == 28 && d.ours.answer.concat().contains("64, ff, 9b") && without(d.theirs) == without(d.ours)
    }),
    NEGATIVE_SOA_TTL,
    FILE_ANY,
    FILE_WITHOUT_NS,
];

/// A Corefile at one port, whose upstreams are one of ours: at its addresses there is nobody here.
fn moved(text: &str, at: &Place<'_>) -> String {
    let mut moved = String::new();
    for line in text.lines() {
        let indent = &line[..line.len() - line.trim_start().len()];
        let words: Vec<&str> = line.split_whitespace().collect();
        let is_block = words.last() == Some(&"{");
        let opens = if is_block { " {" } else { "" };
        let http = format!("127.0.0.1:{}", free_port());
        let new = match &words[..] {
            ["bind", ..] => String::new(),
            ["forward", zone, to, ..] if to.starts_with("tls://") => {
                format!("forward {zone} tls://127.0.0.1:{} {{\n tls ca.pem", at.above_tls)
            }
            ["forward", zone, ..] => format!("forward {zone} 127.0.0.1:{}{opens}", at.above),
            ["prometheus", ..] => format!("prometheus {http}"),
            ["ready", ..] => format!("ready {http}"),
            ["health", ..] => format!("health {http}{opens}"),
            // A server that is told to end serves on for so long.
            ["lameduck", _] => "lameduck 0s".to_owned(),
            ["kubernetes", rest @ .., "{"] => {
                format!("kubernetes {} {{\n kubeconfig {}", rest.join(" "), at.kubeconfig)
            }
            // The keys of a server block: all at one port.
            _ if indent.is_empty() && is_block && !line.starts_with('(') => {
                let key = |key: &&str| format!("{}:{}", key.split(':').next().unwrap_or_default(), at.port);
                let keys: Vec<String> = words[..words.len() - 1].iter().map(key).collect();
                format!("{} {{\n bind 127.0.0.1", keys.join(" "))
            }
            _ => line.trim().to_owned(),
        };
        moved += &format!("{indent}{new}\n");
    }
    moved
}

/// Where a Corefile is served, and what it is moved to.
struct Place<'a> {
    port: u16,
    above: u16,
    above_tls: u16,
    kubeconfig: &'a str,
}

fn folder(corefile: &str, authority: &Authority) -> Folder {
    let folder = Folder::new(corefile);
    std::fs::create_dir(folder.path("custom")).unwrap();
    for (name, text) in [
        ("db.example", ZONE),
        ("NodeHosts", "192.0.2.31 node-1\n"),
        ("blocklist.hosts", "0.0.0.0 blocked.example.org\n"),
        ("europe.hosts", "192.0.2.33 host.example.org www.example.org\n"),
        ("custom/extra.override", include_str!("../../../../tests/corefiles/real/custom.override")),
    ] {
        folder.write(name, text);
    }
    folder.write("city.mmdb", cities());
    write_certificate(&folder, authority);
    folder
}

/// Everybody's upstream, over UDP, TCP and TLS.
fn upstream(above: u16, above_tls: u16, authority: &Authority) -> Folder {
    let zone = format!("{UPSTREAM_ZONE}to-v4 IN CNAME v4\nto-target IN CNAME target\ntarget IN A 192.0.2.41\n");
    let body =
        "bind 127.0.0.1\n template ANY ANY . {\n rcode NXDOMAIN\n authority \". 60 IN SOA a. b. 1 2 3 4 60\"\n }";
    let folder = Folder::new(&format!(
        "example.org:{above} {{\n bind 127.0.0.1\n file db.upstream\n}}\n.:{above} {{\n {body}\n}}\n\
         tls://example.org:{above_tls} {{\n tls cert.pem key.pem\n bind 127.0.0.1\n file db.upstream\n}}\n\
         tls://.:{above_tls} {{\n tls cert.pem key.pem\n {body}\n}}\n"
    ));
    folder.write("db.upstream", zone);
    write_certificate(&folder, authority);
    folder
}

#[test]
fn corefiles_that_people_have_are_served_as_coredns_serves_them() {
    let plane = ControlPlane::start().unwrap();
    plane.apply(OBJECTS).unwrap();
    let pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: p1, namespace: shop}\n\
               spec: {containers: [{name: c, image: none}]}\n";
    plane.run_pod(pod, "10.8.0.1").unwrap();
    let kubeconfig = plane.kubeconfig().display().to_string();
    let authority = authority();
    let (above, above_tls) = (free_port(), free_port());
    let _upstream = CoreDns::start(upstream(above, above_tls, &authority), above);
    let mut ledger = Ledger::new(INTENDED);
    let known = Question::new("A kubernetes.default.svc.cluster.local");
    for (name, text) in COREFILES {
        ledger.begin();
        let [theirs, ours] = [(); 2].map(|()| Place { port: free_port(), above, above_tls, kubeconfig: &kubeconfig });
        let _coredns = CoreDns::start(folder(&moved(text, &theirs), &authority), theirs.port);
        let serving = Serving::start_in(folder(&moved(text, &ours), &authority));
        if text.contains("kubernetes") {
            for port in [theirs.port, ours.port] {
                crate::kubernetes::wait_for("the cluster is known", || !ask(port, &known).is_empty());
            }
        }
        for question in QUESTIONS.iter().chain(MORE) {
            let question = Question::new(question);
            let answers = [theirs.port, ours.port].map(|port| ask(port, &question));
            ledger.compare_aged(name, &question, [&answers[0], &answers[1]]);
        }
        assert!(!serving.told().contains("panic"), "{name}: {}", serving.told());
    }
    assert!(COREFILES.len() >= 15 && ledger.asked >= 1_000, "{}", ledger.asked);
    ledger.finish("Corefiles that people have");
}
