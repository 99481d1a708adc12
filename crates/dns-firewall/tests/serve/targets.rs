//! Questions that the server asks for a client: the target of an ExternalName, and the A records for `dns64`. Each is
//! treated as a question of the client: the same choice of server block and view, and the same rules (S9.1, S9.3).

use crate::kubernetes::{fill, index, key, service, serving};
use crate::stub::{Over, Upstream};
use crate::support::{Firewall, answer, upstream};
use namewall_dns_firewall::{ClusterIndex, ClusterKind, ServiceForm};
use std::sync::Arc;

/// A cluster with ExternalName Services, each with its namespace, its name and its target.
fn leading_to(services: &[[&str; 3]]) -> Arc<ClusterIndex> {
    let index = index();
    fill(&index);
    let mut all = vec![(key("shop", "web"), service(ServiceForm::Balanced(vec!["10.96.0.7".parse().unwrap()])))];
    for [namespace, name, target] in services {
        all.push((key(namespace, name), service(ServiceForm::ExternalName((*target).into()))));
    }
    index.replace(ClusterKind::Service, all);
    let namespaces = ["shop", "tenant"].map(|name| (key("", name), namewall_dns_firewall::ClusterObject::Namespace));
    index.replace(ClusterKind::Namespace, namespaces.to_vec());
    index
}

#[test]
fn s9_1_the_target_of_an_external_name_has_its_own_server_block() {
    let (one, two) = (upstream(&["@ 30 A 192.0.2.1"]), upstream(&["@ 30 A 192.0.2.2"]));
    let corefile = format!(
        "denied.test:53 {{
            forward . {two}
            firewall query {{
                refuse true
            }}
        }}
        other.test:53 {{
            forward . {two}
        }}
        listed.test:53 {{
            hosts /no/such/file {{
                192.0.2.3 a.listed.test
            }}
        }}
        acl.test:53 {{
            acl {{
                drop net *
            }}
            forward . {two}
        }}
        .:53 {{
            kubernetes cluster.local
            forward . {one}
        }}",
        one = one.address,
        two = two.address
    );
    let services = [
        ["shop", "denied", "a.denied.test"],
        ["shop", "other", "a.other.test"],
        ["shop", "listed", "a.listed.test"],
        ["shop", "dropped", "a.acl.test"],
        ["shop", "far", "a.far.test"],
    ];
    let firewall = serving(&corefile, &leading_to(&services));
    let ask = |name: &str| firewall.ask(&format!("A {name}.shop.svc.cluster.local"));
    assert_eq!(ask("denied"), "REFUSED");
    assert_eq!(ask("dropped"), "silence");
    for (name, address) in [("other", "192.0.2.2"), ("listed", "192.0.2.3"), ("far", "192.0.2.1")] {
        let answer = ask(name);
        assert!(answer.contains("CNAME") && answer.contains(address), "{name}: {answer}");
    }
}

#[test]
fn s9_1_an_external_name_within_the_zone_does_not_get_round_rules() {
    let corefile = ".:53 {
        kubernetes cluster.local
        firewall query {
            deny [kubernetes/namespace] == 'shop'
            default allow
        }
    }";
    let services = [
        ["tenant", "door", "web.shop.svc.cluster.local"],
        ["tenant", "hall", "door.tenant.svc.cluster.local"],
        ["tenant", "round", "about.tenant.svc.cluster.local"],
        ["tenant", "about", "round.tenant.svc.cluster.local"],
        ["tenant", "none", "none.other.svc.cluster.local"],
    ];
    let index = leading_to(&services);
    let firewall = serving(corefile, &index);
    assert!(firewall.ask("A web.shop.svc.cluster.local").starts_with("NXDOMAIN"));
    for name in ["door", "hall"] {
        let answer = firewall.ask(&format!("A {name}.tenant.svc.cluster.local"));
        assert!(answer.starts_with("NXDOMAIN"), "{name}: {answer}");
    }
    let open = serving(".:53 {\n kubernetes cluster.local\n}", &index);
    let ask = |name: &str| open.ask(&format!("A {name}.tenant.svc.cluster.local"));
    for name in ["door", "hall"] {
        assert!(ask(name).contains("web.shop.svc.cluster.local. 5 A 10.96.0.7"), "{}", ask(name));
    }
    for name in ["round", "none"] {
        assert_eq!(ask(name), "answer NOERROR aa; authority cluster.local. 5 SOA 5", "{name}");
    }
}

#[test]
fn s9_3_dns64_asks_the_server_block_and_the_view_of_type_a() {
    let up = upstream(&["@ 30 A 192.0.2.1"]);
    let of_a = |rules: &str| {
        format!(
            ".:53 {{
                view six {{
                    expr type() == 'AAAA'
                }}
                dns64 {{
                    allow_ipv4
                }}
                hosts /no/such/file {{
                    192.0.2.1 v.test
                    192.0.2.2 w.test
                }}
            }}
            .:53 {{
                {rules}
                forward . {}
            }}",
            up.address
        )
    };
    let by_name = Firewall::new(&of_a("firewall query {\n refuse name == 'v.test.'\n default allow\n }"));
    let answer = by_name.ask("AAAA v.test");
    assert!(!answer.contains("64:ff9b"), "{answer}");
    assert!(by_name.ask("AAAA w.test").contains("64:ff9b::c000:201"), "the block of type A is asked");
    let by_address = "firewall response {\n block in-cidr(response_ip, 192.0.2.1/32)\n default allow\n }";
    let answer = Firewall::new(&of_a(by_address)).ask("AAAA w.test");
    assert!(!answer.contains("64:ff9b"), "{answer}");
}

#[test]
fn redirected_questions_pass_acl_and_rewrite() {
    let up = upstream(&["@ 30 A 192.0.2.1"]);
    let firewall = Firewall::new(&format!(
        ".:53 {{
            firewall query {{
                redirect {} true
            }}
            acl {{
                block net 10.0.0.0/8
                drop net 192.0.2.77
                block type TXT
            }}
            acl secret.test {{
                block type A
            }}
            rewrite name old.test new.test
            rewrite name door.test a.secret.test
        }}",
        up.address
    ));
    assert_eq!(firewall.ask("A a.test from 10.1.2.3"), "REFUSED");
    assert_eq!(firewall.ask("A a.test from 192.0.2.77"), "silence");
    assert_eq!(firewall.ask("TXT a.test"), "REFUSED");
    assert_eq!(firewall.ask("A door.test"), "REFUSED");
    assert_eq!(firewall.ask("A a.test"), format!("asked of {}", up.address));
    let rewritten = firewall.ask("A old.test");
    assert!(rewritten.contains("old.test. 30 A 192.0.2.1"), "{rewritten}");
}

/// As with CoreDNS: `dns64` sees what `acl` says of AAAA, and `acl` is asked about A.
#[test]
fn dns64_stands_before_acl() {
    let with = |acl: &str| {
        Firewall::new(&format!(
            ".:53 {{
                acl {{
                    {acl}
                }}
                dns64 {{
                    allow_ipv4
                }}
                hosts /no/such/file {{
                    192.0.2.1 a.test
                }}
            }}"
        ))
    };
    assert!(with("filter type AAAA").ask("AAAA a.test").contains("64:ff9b::c000:201"));
    assert_eq!(with("block type AAAA A").ask("AAAA a.test"), "REFUSED");
    assert_eq!(with("drop type AAAA").ask("AAAA a.test"), "silence");
}

#[test]
fn look_ups_go_by_tcp_where_force_tcp_says_so() {
    let up = Upstream::with(|query, over: Over| match over {
        Over::Tcp => vec![answer(query, &["@ 30 A 192.0.2.6"])],
        Over::Udp => vec![answer(query, &["@ 30 A 192.0.2.66"])],
    });
    let firewall = Firewall::new(&format!(
        ".:53 {{\n rewrite name old.test new.test\n forward . {} {{\n force_tcp\n }}\n}}",
        up.address
    ));
    let answer = firewall.ask("A old.test");
    assert!(answer.contains("old.test. 30 A 192.0.2.6") && !answer.contains("192.0.2.66"), "{answer}");
}

#[test]
fn errors_tells_of_look_ups_that_nobody_answers() {
    // Nobody listens there.
    let nobody = std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let corefile = format!(
        ".:53 {{
            errors
            kubernetes cluster.local
            rewrite name old.test new.test
            forward . {nobody}
        }}"
    );
    let firewall = serving(&corefile, &leading_to(&[["shop", "far", "a.far.test"]]));
    assert_eq!(firewall.ask("A old.test"), "answer SERVFAIL");
    firewall.ask("A far.shop.svc.cluster.local");
    let told = firewall.told.lines(2);
    for (line, name) in told.iter().zip(["new.test.", "a.far.test."]) {
        assert!(line.contains(&format!("[ERROR] 2 {name} A: no upstream answered")), "{told:?}");
    }
}
