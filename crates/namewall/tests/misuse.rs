//! What a newcomer may type: a question that is wrong gets an answer that says
//! what is wrong and what to write instead.

use namewall_testbed::run_with_input;

const CLUSTER: &str = "
apiVersion: v1
kind: Pod
metadata: {name: web, namespace: shop, labels: {app: web}}
spec: {containers: []}
status: {podIPs: [{ip: 10.0.0.1}]}
---
apiVersion: v1
kind: Pod
metadata: {name: db, namespace: shop, labels: {app: db}}
spec: {containers: [{ports: [{name: sql, containerPort: 5432}]}]}
status: {podIPs: [{ip: 10.0.0.2}]}
---
apiVersion: v1
kind: Pod
metadata: {name: replica, namespace: shop, labels: {app: replica, tier: db}}
spec: {containers: []}
status: {podIPs: [{ip: 10.0.0.3}]}
---
apiVersion: v1
kind: Service
metadata: {name: sql, namespace: shop}
spec: {clusterIP: 10.96.0.1, selector: {app: db}, ports: [{name: sql, port: 80, targetPort: sql}, {name: admin, port: 81, targetPort: 9000}]}
---
apiVersion: v1
kind: Service
metadata: {name: out, namespace: shop}
spec: {type: ExternalName, externalName: api.example.com}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: db, namespace: shop}
spec: {podSelector: {matchLabels: {app: db}}, ingress: [{ports: [{port: sql}]}]}
";

/// Standard output and standard error, and the exit code.
fn run(args: &[&str]) -> (String, Option<i32>) {
    run_with(CLUSTER, args)
}

fn run_with(input: &str, args: &[&str]) -> (String, Option<i32>) {
    let output = run_with_input(env!("CARGO_BIN_EXE_namewall"), args, input);
    let text = [output.stdout, output.stderr].concat();
    (String::from_utf8(text).expect("it prints text"), output.status.code())
}

fn explain(from: &str, to: &str) -> (String, Option<i32>) {
    run(&["explain", "--from", from, "--to", to, "-"])
}

fn refuses(from: &str, to: &str, because: &str) {
    let (text, code) = explain(from, to);
    assert!(text.contains(because), "{from} -> {to}: {text}");
    assert_eq!(code, Some(2), "{from} -> {to}: {text}");
}

#[test]
fn a_host_that_is_none_is_refused_with_what_it_seems_to_be() {
    for (host, because) in [
        ("10.0.0.256:80", "`10.0.0.256` is no IP address"),
        ("10.0.0:80", "`10.0.0` is no IP address"),
        ("[fd00::zz]:80", "`[fd00::zz]` is no IP address"),
        ("10.0.0.0/8:80", "`10.0.0.0/8` is a network; ask about one of its addresses"),
        ("fd00::/64", "`fd00::/64` is a network; ask about one of its addresses"),
        ("*.example.com:80", "`*.example.com` is a pattern; ask about one name"),
        ("http://example.com:80/", "`http://example.com:80/` is a URL; write only the host and the port"),
        ("shop/db:5432/ICMP", "ICMP has no ports; write shop/db/ICMP"),
    ] {
        refuses("shop/web", host, because);
    }
}

#[test]
fn a_protocol_without_ports_may_stand_where_the_port_stands() {
    let (text, _) = explain("shop/web", "shop/db:icmp");
    assert!(text.starts_with("DENY  shop/web -> shop/db/ICMP"), "{text}");
}

#[test]
fn an_end_without_its_namespace_is_suggested_with_it() {
    refuses("web", "shop/db:80", "write NAMESPACE/POD; did you mean shop/web?");
    refuses("example.com", "shop/db:80", "write NAMESPACE/POD");
    refuses("shop/web", "shop/slq:80", "did you mean shop/sql?");
    refuses("Shop/Web", "shop/db:80", "did you mean shop/web?");
    let (text, _) = explain("shop/xyz", "shop/db:80");
    assert!(!text.contains("did you mean"), "no name is like it: {text}");
}

#[test]
fn a_port_that_a_service_does_not_have_is_refused_with_those_it_has() {
    refuses("shop/web", "shop/sql:5432", "Service shop/sql has no port 5432/TCP; it has 80/TCP, 81/TCP");
}

#[test]
fn commands_about_a_workload_say_why_something_is_none() {
    for (name, because) in [
        ("shop/sql", "shop/sql is a Service; name a workload"),
        ("10.0.0.77", "no pod has the address 10.0.0.77"),
        ("wbe", "write NAMESPACE/WORKLOAD; did you mean shop/web?"),
        ("example.com", "write NAMESPACE/WORKLOAD"),
    ] {
        for args in [vec!["policies", name, "-"], vec!["matrix", "--focus", name, "-"]] {
            let (text, code) = run(&args);
            assert!(text.contains(because), "{args:?}: {text}");
            assert_eq!(code, Some(2), "{args:?}: {text}");
        }
    }
}

/// A Service is asked at its own ports, whichever its backends have.
#[test]
fn the_open_ports_of_a_service_are_its_own() {
    let (text, _) = explain("shop/web", "shop/sql");
    assert!(text.contains("open ports: TCP 80\n"), "{text}");
}

#[test]
fn no_story_is_told_of_port_0() {
    let (text, _) = explain("shop/web", "shop/out");
    assert!(text.contains("shown for TCP 1\n"), "{text}");
}

#[test]
fn documents_without_a_kind_are_counted_in_words() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/shop");
    let (text, _) = run(&["check", root]);
    assert!(text.contains("passed over, since no policy looks at them: 1 without a kind"), "{text}");
}

#[test]
fn policies_alone_are_not_enough_for_a_question() {
    let (_, policy) = CLUSTER.rsplit_once("---").expect("the last is a policy");
    let (text, code) = run_with(policy, &["explain", "--from", "shop/web", "--to", "shop/db:80", "-"]);
    assert!(text.contains("it has no workloads. Give pods or Deployments too"), "{text}");
    assert_eq!(code, Some(2));
}

#[test]
fn files_that_are_joined_without_a_line_between_them_are_recognised() {
    let joined = CLUSTER.replacen("---\n", "", 1);
    let (text, code) = run_with(&joined, &["check", "-"]);
    assert!(text.contains("the key `apiVersion` is here twice; first on line 2; is a line `---` missing"), "{text}");
    assert_eq!(code, Some(1));
}
