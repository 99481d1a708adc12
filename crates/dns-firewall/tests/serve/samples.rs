//! Other people's Corefiles, served: the samples of the original form (docs/semantics.md, S9) and of the plugins' READMEs, as printed but
//! for where names are asked and engines are.

use crate::support::{Engines, Fake, Firewall, refused};
use namewall_dns_firewall::Identities;
use namewall_engines::Judged;
use namewall_expression::{Fact, Facts, Outcome};
use std::net::IpAddr;
use std::sync::Arc;

const NO: &str = "NXDOMAIN; authority . 60 SOA 60";
const NO_EDNS: &str = "NXDOMAIN; authority . 60 SOA 60; edns ede 15";

const BY_TYPE: &str = ".:53 {
   metadata
   request
   expression rule
   firewall . query {
      rule permit in-cidr([request/client_ip], 172.23.0.0/16) and ([request/qtype] == 'A')
      rule permit request/qtype == 'TXT'
      rule deny true
   }
   forward . 192.0.2.53
} 
";

const BY_TYPE_SHORT: &str = ".:53 {
   metadata
   request
   firewall . query {
      permit in-cidr([request/client_ip], 172.23.0.0/16) and (request/qtype == 'A')
      permit request/qtype == 'TXT'
      deny true
   }
   forward . 192.0.2.53
} 
";

#[test]
fn original_by_type_and_client() {
    for text in [BY_TYPE, BY_TYPE_SHORT] {
        crate::support::check(
            text,
            &[
                ("A www.example.com from 172.23.1.2", "route 0"),
                ("A www.example.com from 172.24.1.2", NO),
                ("AAAA www.example.com from 172.23.1.2", NO),
                ("TXT www.example.com from 172.24.1.2", "route 0"),
                ("TXT www.example.com from fd00::1", "route 0"),
                ("A www.example.com from fd00::1", NO),
            ],
        );
    }
}

const BY_EDNS0: &str = ".:53 {
   metadata
   request {
      edns0 0xffed client_id      
      edns0 0xffee group_id hex 16 0 16      
   }
   firewall . query {
      permit request/client_id ~= 'infoblox'
      deny true
   }
   firewall . response {
      permit inc-cidr(request/returned_ip, 10.0.0.0/8)
      deny true
   }
   forward . 192.0.2.53
} 
";

#[test]
fn original_by_edns0_and_returned_address() {
    let firewall = Firewall::new(BY_EDNS0);
    // Without an encoding it is hexadecimal, as in the original form: so `infoblox` is not in it.
    assert_eq!(firewall.ask("A www.example.com 0xffed=infoblox"), NO_EDNS);
    assert_eq!(firewall.ask("A www.example.com"), NO);
    let text = BY_EDNS0.replace("client_id      \n", "client_id bytes\n");
    let firewall = Firewall::new(&text);
    let becomes = |records: &[&str]| firewall.exchange("A www.example.com 0xffed=infoblox-7", records);
    assert_eq!(becomes(&["@ 30 A 10.1.2.3"]), "pass");
    assert_eq!(becomes(&["@ 30 A 10.1.2.3", "@ 30 A 11.1.2.3"]), NO_EDNS);
    assert_eq!(becomes(&[]), NO_EDNS);
    assert_eq!(firewall.ask("A www.example.com 0xffed=somebody"), NO_EDNS);
}

const ENGINES: &str = ".:53 {
   request {
      edns0 0xffed client_id bytes
      edns0 0xffee group_id      
   }
   themis permission-client {
      endpoint 10.0.0.7:1234, 10.0.0.8:1234
      attr client-id string request/client_id
      streams 100
   }
   themis permission-domain {
      file /home/root/policy-file-domain 
      attr domain string request/qname
   }
   themis permission-ip {
      file /home/root/policy-file-ip 
      attr ip string request/returned_ip
      transfer gid uid
   }
   kubernetes { ... 
   }
   opa opa-permission-ip {
   }
   firewall . query {
      themis permission-client
      themis permission-domain
      permit request/client_id ~= 'infoblox'      
      deny true

      # sample for kubernetes label related rules      
      permit k8s/clientpod.security > level4
      
      # k8s could be an Polcy Engine that filter based on RBAC
      KUBERNETES
   }
   firewall . response {
      themis permission-domain
      deny true
   }
   load-balancer {
       
   }
   forward . 192.0.2.53
} 
";

/// What is not served, here or not yet, with what is said of it. When it is, this is where it goes from.
#[test]
fn what_is_not_served_says_so() {
    for (text, why) in [(
        ENGINES.replace("KUBERNETES", "kubernetes rbac"),
        vec![
            "Corefile:11:11: error: themis permission-domain: /home/root/policy-file-domain: ",
            "Corefile:15:11: error: themis permission-ip: /home/root/policy-file-ip: ",
            "Corefile:34:7: error: kubernetes rbac: ",
        ],
    )] {
        let told = refused(&text);
        let lines: Vec<&str> = told.lines().collect();
        assert_eq!(lines.len(), why.len(), "{told}");
        for (line, start) in lines.iter().zip(why) {
            assert!(line.starts_with(start), "{line}\nshould begin with {start}");
        }
    }
}

#[test]
fn original_external_engines() {
    let by_client = Fake::new(|facts: &dyn Facts| {
        let client = facts.get(&Fact::named("request/client_id")).to_string();
        Judged::Now(Ok(match &*client {
            "friend" => Outcome::Allow,
            "foe" => Outcome::Refuse,
            _ => Outcome::Undefined,
        }
        .into()))
    });
    let by_domain = Fake::new(|facts: &dyn Facts| {
        let is_bad = facts.get(&Fact::Name).to_string() == "bad.example.";
        let is_answer = facts.get(&Fact::Rcode).to_string() == "NOERROR";
        Judged::Now(Ok(match (is_bad, is_answer) {
            (true, _) => Outcome::Block,
            (false, true) => Outcome::Allow,
            (false, false) => Outcome::Undefined,
        }
        .into()))
    });
    let nobody = Fake::now(Outcome::Undefined);
    let engines = Engines::of([
        ("permission-client", &by_client),
        ("permission-domain", &by_domain),
        ("permission-ip", &nobody),
        ("opa-permission-ip", &nobody),
    ]);
    let firewall = Firewall::with_engines(&ENGINES.replace("KUBERNETES", ""), &engines);
    let one = &["@ 30 A 192.0.2.1"];
    assert_eq!(firewall.exchange("A www.example 0xffed=friend", one), "pass");
    assert_eq!(firewall.exchange("A www.example 0xffed=foe", one), "REFUSED; edns ede 18");
    assert_eq!(firewall.exchange("A www.example 0xffed=infoblox", one), "pass");
    assert_eq!(firewall.exchange("A www.example", one), NO);
    assert_eq!(firewall.exchange("A bad.example 0xffed=infoblox", one), NO_EDNS);
    // Its name is asked for again with the answer.
    assert_eq!(firewall.exchange("A bad.example 0xffed=friend", one), NO_EDNS);
}

const POLICY: &str = ".:53 {
policy {
    endpoint 10.0.0.7:1234, 10.0.0.8:1234
    edns0 0xffee client_id hex string 32 0 32
    edns0 0xffee group_id hex string 32 16 32
    edns0 0xffef uid // equal edns0 0xffef uid hex string
    edns0 0xffea source_ip ip address
    edns0 0xffeb client_name bytes string
    debug_query_suffix debug.
    debug_id instance_1
    streams 100
    transfer gid uid
    passthrough mycompanyname.com. mycompanyname.org.
    log
}
forward . 192.0.2.53
}
";

#[test]
fn original_the_older_plugin() {
    let engine = Fake::new(|facts: &dyn Facts| {
        let get = |name: &str| facts.get(&Fact::Label(name.into())).to_string();
        let is_known =
            get("policy/uid") == "0a0b" && get("policy/source_ip") == "192.0.2.9" && get("policy/client_name") == "me";
        Judged::Now(Ok(if is_known { Outcome::Allow } else { Outcome::Undefined }.into()))
    });
    let firewall = Firewall::with_engines(POLICY, &Engines::of([("policy", &engine)]));
    let own = "A www.example 0xffef=x:0a0b 0xffea=x:c0000209 0xffeb=me";
    assert_eq!(firewall.exchange(own, &["@ 30 A 192.0.2.1"]), "pass");
    assert_eq!(firewall.ask("A www.example"), NO, "at the end of a query's list it blocks");
    assert_eq!(firewall.ask("A www.mycompanyname.com"), "route 0");
    assert_eq!(firewall.ask("A mycompanyname.org"), "route 0");
    assert_eq!(firewall.ask("A notmycompanyname.org"), NO);
    let told = firewall.ask("TXT www.example.debug CH");
    assert!(told.contains("www.example.: block by Corefile:2:1"), "{told}");
}

#[test]
fn readmes_by_client() {
    crate::support::check(
        r". {
   firewall query {
      refuse client_ip == '10.120.1.11'
      allow client_ip =~ '10\.120\.0\..*'
      allow client_ip =~ '10\.120\.1\..*'
      drop true
   }
   forward . 192.0.2.53
}
",
        &[
            ("A a.example from 10.120.1.11", "REFUSED"),
            ("A a.example from 10.120.1.12", "route 0"),
            ("A a.example from 10.120.0.1", "route 0"),
            ("A a.example from 10.121.0.1", "silence"),
            ("A a.example from fd00::1", "silence"),
        ],
    );
}

#[test]
fn readmes_by_name() {
    crate::support::check(
        r". {
   firewall query {
      allow name =~ 'example.com'
      allow name =~ 'google.com' && (type == 'A' || type == 'AAAA')
      block true
   }
   forward . 192.0.2.53
}
",
        &[
            ("TXT www.EXAMPLE.com", "route 0"),
            ("A www.google.com", "route 0"),
            ("AAAA www.google.com", "route 0"),
            ("TXT www.google.com", NO),
            ("A www.example.org", NO),
        ],
    );
}

#[test]
fn readmes_by_edns0() {
    let text = r"example.org {
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
   forward . 192.0.2.53
}
";
    crate::support::check(
        text,
        &[
            ("A www.example.org 0xffed=123456789 0xffee=ABCDEF", "route 0"),
            ("A www.example.org 0xffed=123456789", "REFUSED; edns ede 18"),
            ("A www.example.org 0xffed=12345678 0xffee=ABCDEF", "REFUSED; edns ede 18"),
            ("A www.example.org", "REFUSED"),
            ("A www.example.com 0xffed=123456789 0xffee=ABCDEF", "REFUSED; edns"),
        ],
    );
    let first = Firewall::new(
        r"example.org {
   metadata {
      group_id edns0 0xffed bytes
      client_id edns0 0xffee bytes
   }
   firewall query {
      refuse [metadata/client_id] != 'ABCDEF'
      refuse [metadata/group_id] != '123456789'
      allow true
   }
   firewall response {
      refuse  response_ip =~ '172.217.*'   # refuse any IP that is in 172.217.0.0/16
      allow true
   }
   forward . 192.0.2.53
}
",
    );
    let becomes = |record: &str| {
        first.exchange("A www.example.org 0xffed=123456789 0xffee=ABCDEF", &["@ 30 A 192.0.2.1", record])
    };
    assert_eq!(becomes("@ 30 A 192.0.2.2"), "pass");
    assert_eq!(becomes("@ 30 A 172.217.1.1"), "REFUSED; edns ede 18");
}

/// A tenant's pod, and one that is none.
#[derive(Debug)]
struct Tenants;

impl Identities for Tenants {
    fn label(&self, client: IpAddr, label: &str) -> Option<String> {
        let namespace = if client == IpAddr::from([10, 0, 0, 1]) { "tenant-a" } else { "kube-system" };
        (label == "kubernetes/client-namespace").then(|| namespace.to_owned())
    }
}

#[test]
fn readmes_by_tenant() {
    let text = r"cluster.local {
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
   forward . 192.0.2.53
}
";
    let firewall = Firewall::with(text, &Engines::none(), Arc::new(Tenants));
    assert_eq!(firewall.ask("A web.tenant-b.svc.cluster.local from 10.0.0.2"), "route 0");
    assert_eq!(
        firewall.ask("A web.tenant-b.svc.cluster.local from 10.0.0.1"),
        "NXDOMAIN; authority cluster.local. 60 SOA 60"
    );
}

#[test]
fn readmes_by_engine() {
    let engine = Fake::now(Outcome::Allow);
    let themis = r". {
  themis myengine {
    endpoint 10.0.0.7:1234 10.0.0.8:1234
    attr client_id request/client_id
    attr source_ip request/source_ip address 
    debug_query_suffix debug.
    debug_id instance_1
    streams 100
    transfer gid uid
    log
  }

  firewall query {
    themis myengine
  }
  forward . 192.0.2.53
}
";
    let opa = ". {\n  opa myengine {\n        endpoint http://127.0.0.1:8181/v1/data/dns/action\n  }\n\n  firewall query {\n    opa myengine\n  }\n  forward . 192.0.2.53\n}";
    let nothing = ". {\n  firewall query {\n    themis myengine\n  }\n   \n  themis myengine {\n    ...\n  }\n  forward . 192.0.2.53\n}";
    for text in [themis, opa, nothing] {
        let firewall = Firewall::with_engines(text, &Engines::of([("myengine", &engine)]));
        assert_eq!(firewall.ask("A a.example"), "route 0");
    }
}

/// The Corefile of every cluster, without what is asked of its process.
#[test]
fn a_clusters_own_is_served_with_warnings() {
    let text = ".:53 {
    errors
    kubernetes cluster.local in-addr.arpa ip6.arpa {
       pods insecure
       fallthrough in-addr.arpa ip6.arpa
       ttl 30
    }
    forward . 192.0.2.53 {
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
    let firewall = Firewall::new(text);
    assert_eq!(
        firewall.warnings,
        [
            "Corefile:3:5: names of the cluster are not answered here, they are forwarded; it says who clients are",
            "Corefile:1:1: `loadbalance` has no effect yet",
            "Corefile:1:1: `loop` has no effect yet",
        ]
    );
    assert_eq!(firewall.exchange("A www.example", &["@ 300 A 192.0.2.1"]), "pass");
    assert_eq!(firewall.ask("A www.example"), "answer NOERROR; www.example. 30 A 192.0.2.1");
    assert_eq!(firewall.exchange("A web.shop.svc.cluster.local", &["@ 300 A 192.0.2.1"]), "pass");
    assert_eq!(firewall.ask("A web.shop.svc.cluster.local"), "route 0");
}
