//! The samples of the original form (docs/semantics.md, S9), as printed (tests/corefiles).

use super::{check, check_rules, only_server, shown};
use expect_test::expect;

const BY_TYPE: &str = sample!("original/by-type");

#[test]
fn original_a_named_expression_engine() {
    check(BY_TYPE, expect![""]);
    check_rules(
        BY_TYPE,
        expect![[r#"
            Query [.], at its end block
              allow by rule if in-cidr([request/client_ip], 172.23.0.0/16) and ([request/qtype] == 'A') (Corefile:6:19)
              allow by rule if request/qtype == 'TXT' (Corefile:7:19)
              block by rule if true (Corefile:8:17)
        "#]],
    );
}

const BY_TYPE_SHORT: &str = sample!("original/by-type-short");

#[test]
fn original_expressions_without_an_engine() {
    check(BY_TYPE_SHORT, expect![""]);
    check_rules(
        BY_TYPE_SHORT,
        expect![[r#"
            Query [.], at its end block
              allow if in-cidr([request/client_ip], 172.23.0.0/16) and (request/qtype == 'A') (Corefile:5:14)
              allow if request/qtype == 'TXT' (Corefile:6:14)
              block if true (Corefile:7:12)
        "#]],
    );
}

const BY_EDNS0: &str = sample!("original/by-edns0");

#[test]
fn original_edns0_and_answers() {
    check(
        BY_EDNS0,
        expect![[r#"
        Corefile:4:7: hint: it is read as text, because of line 8
          4 |       edns0 0xffed client_id      
            |       ^^^^^ write `bytes` after the label
    "#]],
    );
    check_rules(
        BY_EDNS0,
        expect![[r#"
            Query [.], at its end block
              allow if request/client_id ~= 'infoblox' (Corefile:8:14)
              block if true (Corefile:9:12)
            Response [.], at its end block
              allow if inc-cidr(request/returned_ip, 10.0.0.0/8) (Corefile:12:14)
              block if true (Corefile:13:12)
        "#]],
    );
    expect![[r#"
        [
          Edns0 {label: "client_id", code: 65517, encoding: Bytes, is_untyped: true, place: Corefile:4:7},
          Edns0 {
            label: "group_id",
            code: 65518,
            encoding: Hex {length: Some(16), start: 0, end: Some(16)},
            place: Corefile:5:7,
          },
        ]
    "#]]
    .assert_eq(&shown(&only_server(BY_EDNS0).edns0));
}

pub(super) const ENGINES: &str = sample!("original/engines");

#[test]
fn original_external_engines() {
    check(
        ENGINES,
        expect![[r#"
            Corefile:3:7: hint: it is read as text, because of line 27
              3 |       edns0 0xffed client_id      
                |       ^^^^^ write `bytes` after the label
            Corefile:15:11: warning: no rule asks the engine `permission-ip`
             15 |    themis permission-ip {
                |           ^^^^^^^^^^^^^ write `themis permission-ip` in a list
            Corefile:20:17: warning: `...` stands for nothing
             20 |    kubernetes { ... 
                |                 ^^^ write the options, or remove it
            Corefile:22:4: warning: `opa-permission-ip` has no endpoint
             22 |    opa opa-permission-ip {
                |    ^^^ OPA's own port is asked: http://localhost:8181/v1/data/dns/action
            Corefile:22:8: warning: no rule asks the engine `opa-permission-ip`
             22 |    opa opa-permission-ip {
                |        ^^^^^^^^^^^^^^^^^ write `opa opa-permission-ip` in a list
            Corefile:31:7: warning: this rule is never asked
             31 |       permit k8s/clientpod.security > level4
                |       ^^^^^^ the one on line 28 always holds
            Corefile:34:7: warning: this rule is never asked
             34 |       kubernetes rbac
                |       ^^^^^^^^^^ the one on line 28 always holds
            Corefile:40:4: hint: `load-balancer` is read as CoreDNS' `loadbalance`
             40 |    load-balancer {
                |    ^^^^^^^^^^^^^
        "#]],
    );
    check_rules(
        ENGINES,
        expect![[r#"
            Query [.], at its end block
              themis permission-client
              themis permission-domain
              allow if request/client_id ~= 'infoblox' (Corefile:27:14)
              block if true (Corefile:28:12)
              allow if k8s/clientpod.security > level4 (Corefile:31:14)
              kubernetes rbac
            Response [.], at its end block
              themis permission-domain
              block if true (Corefile:38:12)
        "#]],
    );
    let server = only_server(ENGINES);
    expect![[r#"
        [
          EngineSettings {
            name: "permission-client",
            engine: Themis(
              Themis {
                at: Remote([10.0.0.7:1234, 10.0.0.8:1234]),
                attributes: [Attribute {name: "client-id", fact: Label("client_id"), kind: String}],
                streams: Some(100),
                balance: RoundRobin,
                connection_timeout: Forever,
                debug: Debugging {},
              },
            ),
            place: Corefile:6:11,
          },
          EngineSettings {
            name: "permission-domain",
            engine: Themis(
              Themis {
                at: Here {policy: "/home/root/policy-file-domain"},
                attributes: [Attribute {name: "domain", fact: Name, kind: String}],
                balance: RoundRobin,
                connection_timeout: Forever,
                debug: Debugging {},
              },
            ),
            place: Corefile:11:11,
          },
          EngineSettings {
            name: "permission-ip",
            engine: Themis(
              Themis {
                at: Here {policy: "/home/root/policy-file-ip"},
                attributes: [Attribute {name: "ip", fact: ResponseIp, kind: String}],
                balance: RoundRobin,
                transfer: ["gid", "uid"],
                connection_timeout: Forever,
                debug: Debugging {},
              },
            ),
            place: Corefile:15:11,
          },
          EngineSettings {
            name: "opa-permission-ip",
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
            place: Corefile:22:8,
          },
        ]
    "#]]
    .assert_eq(&shown(&server.engines));
    assert!(server.loadbalance && server.kubernetes.is_some());
}

pub(super) const POLICY: &str = sample!("original/older-plugin");

#[test]
fn original_the_older_plugin() {
    check(
        POLICY,
        expect![[r#"
        Corefile:6:22: warning: the rest of the line is taken for a comment
          6 |     edns0 0xffef uid // equal edns0 0xffef uid hex string
            |                      ^^ write `#`: in a Corefile `//` is a word like others
    "#]],
    );
    check_rules(
        POLICY,
        expect![[r#"
            Query shipped, at its end block
              themis policy
            Response shipped, at its end allow
              themis policy
        "#]],
    );
    let server = only_server(POLICY);
    expect![[r#"
        [
          EngineSettings {
            name: "policy",
            engine: Themis(
              Themis {
                at: Remote([10.0.0.7:1234, 10.0.0.8:1234]),
                attributes: [
                  Attribute {name: "client_id", fact: Label("policy/client_id"), kind: String},
                  Attribute {name: "group_id", fact: Label("policy/group_id"), kind: String},
                  Attribute {name: "uid", fact: Label("policy/uid"), kind: String},
                  Attribute {name: "source_ip", fact: Label("policy/source_ip"), kind: Address},
                  Attribute {name: "client_name", fact: Label("policy/client_name"), kind: String},
                ],
                streams: Some(100),
                balance: RoundRobin,
                transfer: ["gid", "uid"],
                connection_timeout: Forever,
                log: true,
                debug: Debugging {suffix: Some(debug), id: Some("instance_1")},
                passthrough: [mycompanyname.com., mycompanyname.org.],
              },
            ),
            place: Corefile:2:1,
          },
        ]
    "#]]
    .assert_eq(&shown(&server.engines));
    expect![[r#"
        [
          Edns0 {
            label: "policy/client_id",
            code: 65518,
            encoding: Hex {length: Some(32), start: 0, end: Some(32)},
            place: Corefile:4:5,
          },
          Edns0 {
            label: "policy/group_id",
            code: 65518,
            encoding: Hex {length: Some(32), start: 16, end: Some(32)},
            place: Corefile:5:5,
          },
          Edns0 {label: "policy/uid", code: 65519, encoding: Hex {start: 0}, place: Corefile:6:5},
          Edns0 {label: "policy/source_ip", code: 65514, encoding: Address, place: Corefile:7:5},
          Edns0 {label: "policy/client_name", code: 65515, encoding: Bytes, place: Corefile:8:5},
        ]
    "#]]
    .assert_eq(&shown(&server.edns0));
    assert_eq!(format!("{:?}", server.firewalls[0].passthrough), "[mycompanyname.com., mycompanyname.org.]");
}
