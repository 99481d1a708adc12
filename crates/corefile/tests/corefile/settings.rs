//! What directives set.

use super::{only_server, shown};
use expect_test::{Expect, expect};

/// The settings of a server block with these lines, from line 2 on.
fn check(lines: &str, expected: Expect) {
    let mut server = only_server(&format!(". {{\n{lines}\n}}\n"));
    server.keys.clear();
    expected.assert_eq(&shown(&server));
}

#[test]
fn firewalls() {
    check(
        r"firewall example.org 10.0.0.0/24 query {
  passthrough ok.example.org.
  debug_query_suffix debug.
  log
  log name == 'x'
  redirect 192.0.2.1 type == 'A'
  redirect [2001:db8::1]:54 true
  default refuse
}",
        expect![[r#"
            ServerBlock {
              firewalls: [
                Firewall {
                  point: Query,
                  written: Seed([example.org., 0.0.10.in-addr.arpa.]),
                  rules: [
                    Rule {
                      kind: Expression {
                        outcome: Log,
                        action: "log",
                        text: "name == 'x'" at Corefile:6:7,
                        expression: "name == 'x'",
                      },
                      text: "log name == 'x'",
                      place: Corefile:6:3,
                    },
                    Rule {
                      kind: Expression {
                        outcome: Redirect(192.0.2.1:53),
                        action: "redirect",
                        text: "type == 'A'" at Corefile:7:22,
                        expression: "type == 'A'",
                      },
                      text: "redirect 192.0.2.1 type == 'A'",
                      place: Corefile:7:3,
                    },
                    Rule {
                      kind: Expression {
                        outcome: Redirect([2001:db8::1]:54),
                        action: "redirect",
                        text: "true" at Corefile:8:29,
                        expression: "true",
                      },
                      text: "redirect [2001:db8::1]:54 true",
                      place: Corefile:8:3,
                    },
                  ],
                  default: Some(Refuse),
                  default_text: Some("default refuse" at Corefile:9:3),
                  passthrough: [ok.example.org.],
                  debug_query_suffix: Some(debug),
                  log: true,
                  text: "firewall example.org 10.0.0.0/24 query",
                  place: Corefile:2:1,
                },
              ],
              directives: ["firewall"],
              place: Corefile:1:1,
            }
        "#]],
    );
}

#[test]
fn engines() {
    check(
        r"opa a {
 policy a.rego b.rego
 data d.json
 query data.x.y
 v0
 timeout 50ms
 concurrency 4
 fields name client_ip kubernetes/client-namespace
 default_decision refuse
}
themis b {
 pdp p.yaml c.json
 attr domain qname domain
 attr ip address response_ip
 metrics uid
 connection_timeout no
 max_request_size 1024
 max_response_attributes 16
 cache 5m 64
 passthrough example.org
 timeout 1s
 default_decision policy_action=4 redirect_to=192.0.2.7 log=1
}
firewall response {
 opa a
 themis b
 default block
}",
        expect![[r#"
            ServerBlock {
              firewalls: [
                Firewall {
                  point: Response,
                  written: Shipped,
                  rules: [
                    Rule {kind: Engine {kind: Opa, name: "a"}, text: "opa a", place: Corefile:26:2},
                    Rule {kind: Engine {kind: Themis, name: "b"}, text: "themis b", place: Corefile:27:2},
                  ],
                  default: Some(Block),
                  default_text: Some("default block" at Corefile:28:2),
                  text: "firewall response",
                  place: Corefile:25:1,
                },
              ],
              engines: [
                EngineSettings {
                  name: "a",
                  engine: Opa(
                    Opa {
                      at: Here {
                        policies: ["a.rego", "b.rego"],
                        data: ["d.json"],
                        query: "data.x.y",
                        is_v0: true,
                      },
                      fields: [
                        OpaField {name: "name", fact: Name},
                        OpaField {name: "client_ip", fact: ClientIp},
                        OpaField {
                          name: "kubernetes/client-namespace",
                          fact: Label("kubernetes/client-namespace"),
                        },
                      ],
                      timeout: Some(50ms),
                      concurrency: Some(4),
                      default_decision: Some(Decision {outcome: Refuse}),
                    },
                  ),
                  place: Corefile:2:5,
                },
                EngineSettings {
                  name: "b",
                  engine: Themis(
                    Themis {
                      at: Here {policy: "p.yaml", content: ["c.json"]},
                      attributes: [
                        Attribute {name: "domain", fact: Name, kind: Domain},
                        Attribute {name: "ip", fact: ResponseIp, kind: Address},
                      ],
                      balance: RoundRobin,
                      metrics: ["uid"],
                      connection_timeout: Forever,
                      max_request_size: Some(1024),
                      max_response_attributes: Some(16),
                      cache: Some(DecisionCache {ttl: 300s, megabytes: Some(64)}),
                      debug: Debugging {},
                      default_decision: Some(
                        Decision {outcome: Redirect(192.0.2.7:53), attributes: [("log", "1")]},
                      ),
                      passthrough: [example.org.],
                      timeout: Some(1s),
                    },
                  ),
                  place: Corefile:12:8,
                },
              ],
              directives: ["firewall", "opa", "themis"],
              place: Corefile:1:1,
            }
        "#]],
    );
}

#[test]
fn forwards() {
    check(
        r"forward example.org 10.0.0.1 [2001:db8::1]:54 dns://10.0.0.2:55 tls://9.9.9.9 tls://1.1.1.1%one.example:8853 /etc/resolv.conf {
 except a.example.org
 policy sequential
 health_check 2s no_rec domain example.org.
 max_fails 3
 max_concurrent 100
 expire 20s
 max_age 1m
 force_tcp
 prefer_udp
 tls ca.pem
 tls_servername dns.example
 failfast_all_unhealthy_upstreams
 failover SERVFAIL REFUSED
 next NXDOMAIN
}
forward . 10.0.0.9",
        expect![[r#"
            ServerBlock {
              forwards: [
                Forward {
                  from: [example.org.],
                  to: [
                    Plain(10.0.0.1:53),
                    Plain([2001:db8::1]:54),
                    Plain(10.0.0.2:55),
                    Tls(9.9.9.9:853, None),
                    Tls(1.1.1.1:8853, Some(one.example)),
                    File("/etc/resolv.conf"),
                  ],
                  except: [a.example.org.],
                  order: Sequential,
                  force_tcp: true,
                  prefer_udp: true,
                  expire: 20s,
                  max_age: Some(60s),
                  health_check: HealthCheck {every: 2s, domain: example.org.},
                  max_fails: 3,
                  max_concurrent: Some(100),
                  tls: Tls {authority: Some("ca.pem")},
                  tls_server_name: Some(dns.example),
                  next: [Rcode(3)],
                  failover: [Rcode(2), Rcode(5)],
                  fail_fast: true,
                  place: Corefile:2:1,
                },
                Forward {
                  from: [.],
                  to: [Plain(10.0.0.9:53)],
                  order: Random,
                  expire: 10s,
                  health_check: HealthCheck {every: 500ms, is_recursive: true, domain: .},
                  max_fails: 2,
                  tls: Tls {},
                  place: Corefile:18:1,
                },
              ],
              directives: ["forward"],
              place: Corefile:1:1,
            }
        "#]],
    );
}

#[test]
fn answers_from_here() {
    check(
        r#"cache 60 example.org {
 success 1000 600 10
 denial 500
 prefetch 5 30s 20%
 serve_stale 2h verify
 servfail 10s
 disable denial a.example
 keepttl
}
hosts h.txt example.org {
 10.0.0.1 a.example.org b.example.org
 2001:db8::1 a.example.org
 ttl 60
 no_reverse
 reload 0s
 fallthrough
}
file db.example example.org {
 reload 1m
}
template IN A example.org {
 match ^a[.] "^b [.]"
 answer "{{ .Name }} 60 IN A 10.0.0.1"
 authority example.org. 60 IN NS ns.example.org.
 rcode NOERROR
 ederror 17 filtered
 fallthrough
}"#,
        expect![[r#"
            ServerBlock {
              cache: Some(
                Cache {
                  zones: [example.org.],
                  success: Share {capacity: 1000, ttl: 600s, min_ttl: 10s},
                  denial: Share {capacity: 500, ttl: 60s, min_ttl: 5s},
                  prefetch: Some(Prefetch {amount: 5, within: 30s, percentage: 20}),
                  serve_stale: Some(ServeStale {up_to: 7200s, verify: true}),
                  servfail: 10s,
                  no_denial: [a.example.],
                  keep_ttl: true,
                },
              ),
              hosts: Some(
                Hosts {
                  file: "h.txt",
                  zones: [example.org.],
                  entries: [
                    HostEntry {address: 10.0.0.1, names: [a.example.org, b.example.org]},
                    HostEntry {address: 2001:db8::1, names: [a.example.org]},
                  ],
                  ttl: 60s,
                  fallthrough: [.],
                },
              ),
              files: [
                ZoneFile {file: "db.example", zones: [example.org.], reload: Some(60s), place: Corefile:19:1},
              ],
              templates: [
                Template {
                  class: Some(1),
                  kind: Some(1),
                  zones: [example.org.],
                  matches: ["^a[.]" at Corefile:23:8, "^b [.]" at Corefile:23:15],
                  answer: ["{{ .Name }} 60 IN A 10.0.0.1" at Corefile:24:10],
                  authority: ["example.org. 60 IN NS ns.example.org." at Corefile:25:12],
                  rcode: Rcode(0),
                  extended_error: Some((17, "filtered")),
                  fallthrough: [.],
                  place: Corefile:22:1,
                },
              ],
              directives: ["cache", "file", "hosts", "template"],
              place: Corefile:1:1,
            }
        "#]],
    );
}

#[test]
fn telling_and_the_process() {
    check(
        r#"bind 127.0.0.1 eth0 {
 except ::1
}
bind ::1
log example.org "{remote} {type}" {
 class denial error
}
log
errors {
 stacktrace
 consolidate 5m ".* i/o timeout$" warning show_first
}
health localhost:8091 {
 lameduck 1s
}
ready :8182
prometheus
dnstap tcp://tap.example:6000 full {
 identity me
 version 1
 extra "{type}"
}
dnstap unix:///tmp/x.sock
reload 10s 8s
dnsnameresolver {
 namespaces a b
 minTTL 10
 failureThreshold 3
}
loop
debug
whoami
loadbalance round_robin"#,
        expect![[r#"
            ServerBlock {
              bind: [
                Bind {at: [Address(127.0.0.1), Interface("eth0")], except: [Address(::1)]},
                Bind {at: [Address(::1)]},
              ],
              dns_name_resolver: Some(
                DnsNameResolver {namespaces: ["a", "b"], min_ttl: 10s, failure_threshold: 3},
              ),
              logs: [
                Log {
                  zones: [example.org.],
                  format: Some("{remote} {type}" at Corefile:6:18),
                  classes: [Denial, Error],
                },
                Log {zones: [.], classes: [All]},
              ],
              errors: Some(
                Errors {
                  consolidate: [
                    Consolidate {
                      every: 300s,
                      like: ".* i/o timeout$" at Corefile:12:18,
                      level: Warning,
                      show_first: true,
                    },
                  ],
                  stacktrace: true,
                },
              ),
              dnstaps: [
                Dnstap {
                  to: Tcp(tap.example:6000),
                  full: true,
                  identity: Some("me"),
                  version: Some("1"),
                  extra: Some("{type}" at Corefile:22:9),
                },
                Dnstap {to: Unix("/tmp/x.sock")},
              ],
              health: Some(Health {at: ListenAt {host: Some(localhost), port: 8091}, lameduck: 1s}),
              ready: Some(ListenAt {port: 8182}),
              prometheus: Some(ListenAt {host: Some(localhost), port: 9153}),
              reload: Some(Every {interval: 10s, jitter: 5s}),
              loadbalance: true,
              detects_loops: true,
              debug: true,
              whoami: true,
              directives: [
                "bind",
                "debug",
                "dnsnameresolver",
                "dnstap",
                "errors",
                "health",
                "loadbalance",
                "log",
                "loop",
                "prometheus",
                "ready",
                "reload",
                "whoami",
              ],
              place: Corefile:1:1,
            }
        "#]],
    );
}

#[test]
fn a_directive_without_settings_sets_only_itself() {
    let set = |line: &str| {
        let server = only_server(&format!(". {{\n{line}\n}}\n"));
        [("loadbalance", server.loadbalance), ("loop", server.detects_loops), ("debug", server.debug)]
            .into_iter()
            .chain([("whoami", server.whoami)])
            .filter_map(|(name, is_set)| is_set.then_some(name))
            .collect::<Vec<_>>()
    };
    for name in ["loadbalance", "loop", "debug", "whoami"] {
        assert_eq!(set(name), [name]);
    }
    assert_eq!(set("load-balancer"), ["loadbalance"]);
    for other in ["bind 127.0.0.1", "cache", "errors", "log", "metadata", "ready", "reload", "request"] {
        assert!(set(other).is_empty(), "{other}");
    }
}
