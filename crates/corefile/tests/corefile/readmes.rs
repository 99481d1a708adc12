//! The samples of the plugins' READMEs, and Corefiles of clusters, as printed.

use super::{check, check_rules, only_server, read_alone, shown, told};
use expect_test::expect;

/// The Corefiles of the shipped plugins' READMEs, with what is warned of.
#[test]
fn readmes_of_the_shipped_plugins() {
    let acl = r"
. {
   firewall query {
      refuse client_ip == '10.120.1.11'
      allow client_ip =~ '10\.120\.0\..*'
      allow client_ip =~ '10\.120\.1\..*'
      drop true
   }
}
";
    check(acl, expect![""]);
    check_rules(
        acl,
        expect![[r#"
        Query shipped, at its end block
          refuse if client_ip == '10.120.1.11' (Corefile:4:14)
          allow if client_ip =~ '10\.120\.0\..*' (Corefile:5:13)
          allow if client_ip =~ '10\.120\.1\..*' (Corefile:6:13)
          drop if true (Corefile:7:12)
    "#]],
    );
    assert!(only_server(acl).firewalls[0].drops_silently());
    let names = r"
. {
   firewall query {
      allow name =~ 'example.com'
      allow name =~ 'google.com' && (type == 'A' || type == 'AAAA')
      block true
   }
}
";
    check(names, expect![""]);
    let edns0 = r"
example.org {
   metadata
   metadata_edns0 {
      group_id edns0 0xffed bytes
      client_id edns0 0xffee bytes
   }
   firewall query {
      refuse [metadata_edns0/client_id] != 'ABCDEF'
      refuse [metadata_edns0/group_id] != '123456789'
      allow true
   }
}
";
    check(edns0, expect![""]);
    expect![[r#"
        [
          Edns0 {label: "metadata_edns0/group_id", code: 65517, encoding: Bytes, place: Corefile:5:7},
          Edns0 {label: "metadata_edns0/client_id", code: 65518, encoding: Bytes, place: Corefile:6:7},
        ]
    "#]]
    .assert_eq(&shown(&only_server(edns0).edns0));
    let first_edns0 = r"
example.org {
   metadata {
      group_id edns0 0xffed bytes
      client_id edns0 0xffee bytes
   }
   firewall query {
      refuse [metadata/client_id] != 'ABCDEF'
      refuse [metadata/group_id] != '123456789'
      block true
   }
   firewall response {
      refuse  response_ip =~ '172.217.*'   # refuse any IP that is in 172.217.0.0/16
      allow true
   }
}
";
    check(first_edns0, expect![""]);
    check_rules(
        first_edns0,
        expect![[r#"
        Query shipped, at its end block
          refuse if [metadata/client_id] != 'ABCDEF' (Corefile:8:14)
          refuse if [metadata/group_id] != '123456789' (Corefile:9:14)
          block if true (Corefile:10:13)
        Response shipped, at its end allow
          refuse if response_ip =~ '172.217.*' (Corefile:13:15)
          allow if true (Corefile:14:13)
    "#]],
    );
    let present_edns0 = ". {\n metadata_edns0 {\n  client_id 0xffed address\n  group_id 0xffee hex 16 0 16\n }\n}";
    check(present_edns0, expect![""]);
    let tenants = r"
cluster.local {
   metadata
   kubernetes {
      pods verified
   }
   firewall query {
      allow [kubernetes/client-namespace] !~ '^tenant-'
      allow [kubernetes/namespace] == [kubernetes/client-namespace]
      allow [kubernetes/namespace] == 'default'
      block true
   }
}
";
    check(tenants, expect![""]);
    let engine = r"
. {
  firewall query {
    themis myengine
  }
   
  themis myengine {
    ...
  }
}
";
    check(
        engine,
        expect![[r#"
            Corefile:3:3: warning: it is not said what counts at the end of this list
              3 |   firewall query {
                |   ^^^^^^^^ in a list without a zone it is `block`: write `default block`
            Corefile:7:3: warning: `myengine` has neither endpoint nor policy
              7 |   themis myengine {
                |   ^^^^^^ Themis' own port is asked: 127.0.0.1:5555
            Corefile:8:5: warning: `...` stands for nothing
              8 |     ...
                |     ^^^ write the options, or remove it
        "#]],
    );
}

#[test]
fn readmes_of_the_shipped_engines() {
    let opa = r"
. {
  opa myengine {
        endpoint http://127.0.0.1:8181/v1/data/dns/action
  }

  firewall query {
    opa myengine
  }
}
";
    check(
        opa,
        expect![[r#"
        Corefile:7:3: warning: it is not said what counts at the end of this list
          7 |   firewall query {
            |   ^^^^^^^^ in a list without a zone it is `block`: write `default block`
    "#]],
    );
    expect![[r#"
        [
          EngineSettings {
            name: "myengine",
            engine: Opa(
              Opa {
                at: Remote {url: HttpUrl {at: 127.0.0.1:8181, path: "/v1/data/dns/action"}},
                fields: [
                  OpaField {name: "client_ip", fact: ClientIp},
                  OpaField {name: "name", fact: Name},
                  OpaField {name: "rcode", fact: Rcode},
                  OpaField {name: "response_ip", fact: ResponseIp},
                ],
              },
            ),
            place: Corefile:3:7,
          },
        ]
    "#]]
    .assert_eq(&shown(&only_server(opa).engines));
    let themis = r"
. {
  themis myengine {
    endpoint 10.0.0.7:1234 10.0.0.8:1234
    attr client_id request/client_id
    attr group_id request/group_id
    attr uid request/another_id
    attr source_ip request/source_ip address 
    attr client_name request/client_name
    debug_query_suffix debug.
    debug_id instance_1
    streams 100
    transfer gid uid
    log
  }

  firewall query {
    themis myengine
  }
}
";
    check(
        themis,
        expect![[r#"
        Corefile:17:3: warning: it is not said what counts at the end of this list
         17 |   firewall query {
            |   ^^^^^^^^ in a list without a zone it is `block`: write `default block`
    "#]],
    );
    expect![[r#"
        Themis(
          Themis {
            at: Remote([10.0.0.7:1234, 10.0.0.8:1234]),
            attributes: [
              Attribute {name: "client_id", fact: Label("client_id"), kind: String},
              Attribute {name: "group_id", fact: Label("group_id"), kind: String},
              Attribute {name: "uid", fact: Label("another_id"), kind: String},
              Attribute {name: "source_ip", fact: Label("source_ip"), kind: Address},
              Attribute {name: "client_name", fact: Label("client_name"), kind: String},
            ],
            streams: Some(100),
            balance: RoundRobin,
            transfer: ["gid", "uid"],
            connection_timeout: Forever,
            log: true,
            debug: Debugging {suffix: Some(debug), id: Some("instance_1")},
          },
        )
    "#]]
    .assert_eq(&shown(&only_server(themis).engines[0].engine));
    let older = r#"
. {
  policy {
    endpoint 10.0.0.7:1234, 10.0.0.8:1234
    streams 100
    connection_timeout 1s

    edns0 0xffee client_id hex 32 0 32
    edns0 0xffee group_id hex 32 16 32
    edns0 0xffef uid
    edns0 0xffea client_ip ip
    edns0 0xffeb client_name bytes
    validation1 type="query" domain_name
    validation2 type="response" address
    default_decision policy_action=2 log=1 client_ip=192.168.0.101
    metrics client_name
    dnstap 0 policy_action

    passthrough mycompanyname.com. mycompanyname.org.
    debug_query_suffix debug.
    debug_id instance_1
    log
  }
}
"#;
    check(
        older,
        expect![[r#"
            Corefile:13:5: error: `validation1` is not served here
             13 |     validation1 type="query" domain_name
                |     ^^^^^^^^^^^ what a query is told is `attr`, and `domain_name`, `dns_qtype`, `source_ip` always
            Corefile:14:5: error: `validation2` is not served here
             14 |     validation2 type="response" address
                |     ^^^^^^^^^^^ what an answer is told is `attr` and `transfer`, and `address` always
            Corefile:17:5: error: `dnstap` is not served here
             17 |     dnstap 0 policy_action
                |     ^^^^^^ use the directive `dnstap`: what Themis says is in its extra field
        "#]],
    );
}

const CLUSTER: &str = "\
.:53 {
    errors
    health {
       lameduck 5s
    }
    ready
    kubernetes cluster.local in-addr.arpa ip6.arpa {
       pods insecure
       fallthrough in-addr.arpa ip6.arpa
       ttl 30
    }
    prometheus :9153
    forward . /etc/resolv.conf {
       max_concurrent 1000
    }
    cache 30 {
       disable success cluster.local
       disable denial cluster.local
    }
    loop
    reload
    loadbalance
}
";

#[test]
fn the_corefile_of_every_cluster() {
    assert_eq!(told(&read_alone(CLUSTER)), "");
    expect![[r#"
        ServerBlock {
          keys: [Key {zone: ., port: 53, place: Corefile:1:1}],
          kubernetes: Some(
            Kubernetes {
              zones: [cluster.local., in-addr.arpa., ip6.arpa.],
              pods: Insecure,
              ttl: 30s,
              has_endpoints: true,
              fallthrough: [in-addr.arpa., ip6.arpa.],
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
          place: Corefile:1:1,
        }
    "#]]
    .assert_eq(&shown(&only_server(CLUSTER)));
}

#[test]
fn the_corefile_of_openshift() {
    let text = "\
.:5353 {
    bufsize 1232
    errors
    log . {
        class error
    }
    health {
        lameduck 20s
    }
    ready
    ocp_dnsnameresolver {
        namespaces openshift-ovn-kubernetes
    }
    prometheus 127.0.0.1:9153
    forward . /etc/resolv.conf {
        policy sequential
    }
    cache 900 {
        denial 9984 30
    }
    reload
}
";
    check(
        text,
        expect![[r#"
        Corefile:2:5: error: `bufsize` is CoreDNS', and not served here
          2 |     bufsize 1232
            |     ^^^^^^^ remove it: answers go out as they come
    "#]],
    );
}
