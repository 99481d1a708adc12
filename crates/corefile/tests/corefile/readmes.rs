//! The samples of the plugins' READMEs, and Corefiles of clusters, as printed (tests/corefiles).

use super::original::{ENGINES, POLICY};
use super::{check, check_rules, only_server, read_alone, shown, told};
use expect_test::expect;
use namewall_corefile::{ConfiguredEngine, EngineSettings, Themis};

/// The Corefiles of the shipped plugins' READMEs, with what is warned of.
#[test]
fn readmes_of_the_shipped_plugins() {
    let acl = sample!("readmes/clients");
    check(acl, expect![""]);
    check_rules(
        acl,
        expect![[r#"
            Query shipped, at its end block
              refuse if client_ip == '10.120.1.11' (Corefile:3:14)
              allow if client_ip =~ '10\.120\.0\..*' (Corefile:4:13)
              allow if client_ip =~ '10\.120\.1\..*' (Corefile:5:13)
              drop if true (Corefile:6:12)
        "#]],
    );
    assert!(only_server(acl).firewalls[0].drops_silently());
    let names = sample!("readmes/names");
    check(names, expect![""]);
    let edns0 = sample!("readmes/edns0");
    check(edns0, expect![""]);
    expect![[r#"
        [
          Edns0 {label: "metadata_edns0/group_id", code: 65517, encoding: Bytes, place: Corefile:4:7},
          Edns0 {label: "metadata_edns0/client_id", code: 65518, encoding: Bytes, place: Corefile:5:7},
        ]
    "#]]
    .assert_eq(&shown(&only_server(edns0).edns0));
    let first_edns0 = sample!("readmes/first-edns0");
    check(first_edns0, expect![""]);
    check_rules(
        first_edns0,
        expect![[r#"
            Query shipped, at its end block
              refuse if [metadata/client_id] != 'ABCDEF' (Corefile:7:14)
              refuse if [metadata/group_id] != '123456789' (Corefile:8:14)
              block if true (Corefile:9:13)
            Response shipped, at its end allow
              refuse if response_ip =~ '172.217.*' (Corefile:12:15)
              allow if true (Corefile:13:13)
        "#]],
    );
    let present_edns0 = ". {\n metadata_edns0 {\n  client_id 0xffed address\n  group_id 0xffee hex 16 0 16\n }\n}";
    check(present_edns0, expect![""]);
    let tenants = sample!("readmes/tenants");
    check(tenants, expect![""]);
    let engine = sample!("readmes/any-engine");
    check(
        engine,
        expect![[r#"
            Corefile:2:3: warning: it is not said what counts at the end of this list
              2 |   firewall query {
                |   ^^^^^^^^ in a list without a zone it is `block`: write `default block`
            Corefile:6:3: warning: `myengine` has neither endpoint nor policy
              6 |   themis myengine {
                |   ^^^^^^ Themis' own port is asked: 127.0.0.1:5555
            Corefile:7:5: warning: `...` stands for nothing
              7 |     ...
                |     ^^^ write the options, or remove it
        "#]],
    );
}

fn only_themis(corefile: &str) -> Themis {
    match &only_server(corefile).engines[..] {
        [EngineSettings { engine: ConfiguredEngine::Themis(themis), .. }] => (**themis).clone(),
        engines => panic!("{engines:?} is not one Themis"),
    }
}

#[test]
fn readmes_of_the_shipped_engines() {
    let opa = sample!("readmes/opa");
    check(
        opa,
        expect![[r#"
            Corefile:6:3: warning: it is not said what counts at the end of this list
              6 |   firewall query {
                |   ^^^^^^^^ in a list without a zone it is `block`: write `default block`
        "#]],
    );
    let [engine] = &only_server(opa).engines[..] else { panic!("there is one engine") };
    assert_eq!((&*engine.name, engine.place.to_string().as_str()), ("myengine", "Corefile:2:7"));
    let original = only_server(ENGINES).engines.into_iter().find(|engine| &*engine.name == "opa-permission-ip");
    assert_eq!(Some(&engine.engine), original.as_ref().map(|engine| &engine.engine));
    let themis = sample!("readmes/themis");
    check(
        themis,
        expect![[r#"
            Corefile:2:10: warning: `client_id` is never set
              2 |   themis myengine {
                |          ^^^^^^^^ `myengine` is asked without it
            Corefile:2:10: warning: `group_id` is never set
              2 |   themis myengine {
                |          ^^^^^^^^ `myengine` is asked without it
            Corefile:2:10: warning: `another_id` is never set
              2 |   themis myengine {
                |          ^^^^^^^^ `myengine` is asked without it
            Corefile:2:10: warning: `source_ip` is never set
              2 |   themis myengine {
                |          ^^^^^^^^ `myengine` is asked without it
            Corefile:2:10: warning: `client_name` is never set
              2 |   themis myengine {
                |          ^^^^^^^^ `myengine` is asked without it
            Corefile:16:3: warning: it is not said what counts at the end of this list
             16 |   firewall query {
                |   ^^^^^^^^ in a list without a zone it is `block`: write `default block`
        "#]],
    );
    let themis = only_themis(themis);
    expect![[r#"
        [
          Attribute {name: "client_id", fact: Label("client_id"), kind: String},
          Attribute {name: "group_id", fact: Label("group_id"), kind: String},
          Attribute {name: "uid", fact: Label("another_id"), kind: String},
          Attribute {name: "source_ip", fact: Label("source_ip"), kind: Address},
          Attribute {name: "client_name", fact: Label("client_name"), kind: String},
        ]
    "#]]
    .assert_eq(&shown(&themis.attributes));
    let attributes = themis.attributes.clone();
    assert_eq!(themis, Themis { attributes, passthrough: Vec::new(), ..only_themis(POLICY) });
    let older = sample!("readmes/older-policy");
    check(
        older,
        expect![[r#"
            Corefile:12:5: error: `validation1` is not served here
             12 |     validation1 type="query" domain_name
                |     ^^^^^^^^^^^ what a query is told is `attr`, and `domain_name`, `dns_qtype`, `source_ip` always
            Corefile:13:5: error: `validation2` is not served here
             13 |     validation2 type="response" address
                |     ^^^^^^^^^^^ what an answer is told is `attr` and `transfer`, and `address` always
            Corefile:16:5: error: `dnstap` is not served here
             16 |     dnstap 0 policy_action
                |     ^^^^^^ use the directive `dnstap`: what Themis says is in its extra field
        "#]],
    );
}

const CLUSTER: &str = sample!("clusters/kubernetes");

#[test]
fn the_corefile_of_every_cluster() {
    assert_eq!(told(&read_alone(CLUSTER)), "");
    expect![[r#"
        ServerBlock {
          keys: [Key {scheme: Dns, zone: ., port: 53, place: Corefile:1:1}],
          kubernetes: Some(
            Kubernetes {
              zones: [cluster.local., in-addr.arpa., ip6.arpa.],
              labels: Selector {},
              pods: Insecure,
              ttl: 30s,
              has_endpoints: true,
              fallthrough: [in-addr.arpa., ip6.arpa.],
              startup_timeout: 5s,
              place: Corefile:7:5,
            },
          ),
          forwards: [
            Forward {
              from: [.],
              to: [File("/etc/resolv.conf")],
              order: Random,
              expire: 10s,
              health_check: HealthCheck {every: 500ms, is_recursive: true, domain: .},
              max_fails: 2,
              max_concurrent: Some(1000),
              tls: Tls {},
              place: Corefile:13:5,
            },
          ],
          cache: Some(
            Cache {
              success: Share {capacity: 9984, ttl: 30s, min_ttl: 5s},
              denial: Share {capacity: 9984, ttl: 30s, min_ttl: 5s},
              servfail: 5s,
              no_success: [cluster.local.],
              no_denial: [cluster.local.],
            },
          ),
          errors: Some(Errors {}),
          health: Some(Health {at: ListenAt {port: 8080}, lameduck: 5s}),
          ready: Some(ListenAt {port: 8181}),
          prometheus: Some(ListenAt {port: 9153}),
          reload: Some(Every {interval: 30s, jitter: 15s}),
          loadbalance: true,
          detects_loops: true,
          directives: [
            "cache",
            "errors",
            "forward",
            "health",
            "kubernetes",
            "loadbalance",
            "loop",
            "prometheus",
            "ready",
            "reload",
          ],
          place: Corefile:1:1,
        }
    "#]]
    .assert_eq(&shown(&only_server(CLUSTER)));
}

#[test]
fn the_corefile_of_openshift() {
    let text = sample!("clusters/openshift");
    check(text, expect![""]);
}

/// The other has options that are not served.
#[test]
fn every_sample_but_one_is_accepted() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/corefiles");
    let mut refused = Vec::new();
    for kind in ["clusters", "original", "readmes"] {
        for entry in std::fs::read_dir(folder.join(kind)).expect("the folder can be listed") {
            let path = entry.expect("the entry can be read").path();
            let text = std::fs::read_to_string(&path).expect("the sample can be read");
            if read_alone(&text).is_err() {
                refused.push(path.file_stem().expect("it has a name").to_string_lossy().into_owned());
            }
        }
    }
    refused.sort();
    assert_eq!(refused, ["older-policy"]);
}
