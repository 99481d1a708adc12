//! Other people's Corefiles as printed, served by the real binary at the ports and addresses they name, with
//! real engines where they look for them: OPA's server and Themis', which `scripts/peers` builds.
//!
//! What is added to each is whom to forward to, since none says it; what is changed is said where it is.

// All of it is a test, which cannot be seen where there is no harness.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod corefiles;
mod world;

use corefiles::*;
use namewall_sandbox::{Namespace, ensure_rights};
use namewall_testbed::{give_up, program};
use world::{World, empty_cluster, opa, pdp};

/// What clients send as their id.
const FRIEND: &str = "f";
const FOE: &str = "o";

fn main() {
    // Before the first thread: without root it takes a user namespace.
    ensure_rights().unwrap_or_else(|error| give_up(error));
    let _found = ["ip", "dig"].map(program);
    let namespace = Namespace::create().expect("a network namespace can be made");
    // Addresses and ports are as printed, and nobody else's.
    let count = namespace.enter(|| {
        world::set_up();
        let all: [fn(); 8] = [
            seed_by_type_and_client,
            seed_by_edns0_and_returned_address,
            seed_external_engines,
            seed_the_older_plugin,
            readmes_by_client_and_name,
            readmes_by_edns0,
            readmes_of_opa,
            readmes_of_themis,
        ];
        all.iter().for_each(|test| test());
        all.len()
    });
    println!("test samples: {} passed", count.expect("the namespace can be entered"));
}

fn seed_by_type_and_client() {
    for text in [BY_TYPE, BY_TYPE_SHORT] {
        let world = World::serve(text, &[]);
        world.check(&[
            ("A www.example.com from 172.23.1.2", "198.51.100.80"),
            ("A www.example.com from 172.24.1.2", "NXDOMAIN"),
            ("AAAA www.example.com from 172.23.1.2", "NXDOMAIN"),
            ("TXT www.example.com from 172.24.1.2", "\"text\""),
            ("TXT www.example.com from 2001:db8:1::2", "\"text\""),
            ("A www.example.com from 2001:db8:1::2", "NXDOMAIN"),
        ]);
    }
}

fn seed_by_edns0_and_returned_address() {
    // An option that a rule compares with a text is read as text, with or without `bytes`.
    for text in [BY_EDNS0.to_owned(), BY_EDNS0.replace("client_id      \n", "client_id bytes\n")] {
        let world = World::serve(&text, &[]);
        world.check(&[
            ("A inside.example.com 65517=infoblox-7", "10.1.2.3"),
            ("A www.example.com 65517=infoblox-7", "NXDOMAIN"),
            ("A both.example.com 65517=infoblox-7", "NXDOMAIN"),
            ("A inside.example.com 65517=somebody", "NXDOMAIN"),
            ("A inside.example.com", "NXDOMAIN"),
        ]);
    }
}

fn seed_external_engines() {
    let by_client = format!(
        "attributes: {{client-id: string, refuse: string}}
policies:
  alg: FirstApplicableEffect
  rules:
    - {{target: [{{equal: [{{attr: client-id}}, {{val: {{type: string, content: '{FRIEND}'}}}}]}}], effect: Permit}}
    - target: [{{equal: [{{attr: client-id}}, {{val: {{type: string, content: '{FOE}'}}}}]}}]
      effect: Deny
      obligations: [{{refuse: {{val: {{type: string, content: ''}}}}}}]
"
    );
    let _both = [pdp("10.0.0.7:1234", &by_client), pdp("10.0.0.8:1234", &by_client)];
    // Where its files are, and Kubernetes, is not as printed: a sample has no cluster. Without a zone of its own
    // `kubernetes` would answer every name of the block, as with CoreDNS.
    let cluster = "kubernetes cluster.local { endpoint http://10.0.0.9";
    // A rule looks at the client's pod, so the API server has to have listed the pods.
    empty_cluster("10.0.0.9");
    let text = ENGINES.replace("/home/root/", "").replace("kubernetes { ... ", cluster);
    // Of an answer it is told its address, and no attribute that is not transferred.
    let by_domain = "attributes: {type: string, domain: string, address: address}
policies:
  alg: FirstApplicableEffect
  policies:
    - target: [{equal: [{attr: type}, {val: {type: string, content: response}}]}]
      alg: FirstApplicableEffect
      rules:
        - {target: [{contains: [{val: {type: network, content: 172.217.0.0/16}}, {attr: address}]}], effect: Deny}
        - {effect: Permit}
    - alg: FirstApplicableEffect
      rules:
        - {target: [{equal: [{attr: domain}, {val: {type: string, content: bad.example.com.}}]}], effect: Deny}
        - {target: [{equal: [{attr: domain}, {val: {type: string, content: good.example.com.}}]}], effect: Permit}
";
    let by_address = "attributes: {ip: string}\npolicies: {alg: FirstApplicableEffect, rules: [{effect: Permit}]}\n";
    let world = World::serve(&text, &[("policy-file-domain", by_domain), ("policy-file-ip", by_address)]);
    world.check(&[
        // The first engine's word, over gRPC.
        ("A www.example.com 65517=f", "198.51.100.80"),
        ("A www.example.com 65517=o", "REFUSED"),
        // The second's, in process.
        ("A good.example.com 65517=x", "198.51.100.80"),
        ("A bad.example.com 65517=x", "NXDOMAIN"),
        // And again of the answer, by its address.
        ("A google.example.com 65517=f", "NXDOMAIN"),
        // The end of the list.
        ("A www.example.com 65517=x", "NXDOMAIN"),
        // Themis cannot decide without what its policy looks at.
        ("A www.example.com", "SERVFAIL"),
    ]);
}

fn seed_the_older_plugin() {
    let policy = "attributes: {type: string, domain_name: domain, address: address, uid: string, client_name: string}
policies:
  alg: FirstApplicableEffect
  rules:
    - target: [{equal: [{attr: type}, {val: {type: string, content: query}}]}, {equal: [{attr: uid}, {val: {type: string, content: '0a0b'}}]}]
      effect: Permit
    - target: [{equal: [{attr: type}, {val: {type: string, content: response}}]}, {contains: [{val: {type: network, content: 10.0.0.0/8}}, {attr: address}]}]
      effect: Deny
";
    let _both = [pdp("10.0.0.7:1234", policy), pdp("10.0.0.8:1234", policy)];
    let world = World::serve(POLICY, &[]);
    world.check(&[
        ("A www.example.com 65519=x0a0b", "198.51.100.80"),
        ("A inside.example.com 65519=x0a0b", "NXDOMAIN"),
        ("A www.example.com 65519=x0a0c", "NXDOMAIN"),
        ("A www.example.com", "SERVFAIL"),
        ("A www.mycompanyname.com", "198.51.100.80"),
        ("A notmycompanyname.com 65519=x0a0c", "NXDOMAIN"),
    ]);
    let told = world.dig("CH TXT www.example.com.debug 65519=x0a0c");
    assert!(told.contains("www.example.com.: block by Corefile:2:1"), "{told}");
}

fn readmes_by_client_and_name() {
    let world = World::serve(README_CLIENTS, &[]);
    world.check(&[
        ("A www.example.com from 10.120.1.11", "REFUSED"),
        ("A www.example.com from 10.120.1.12", "198.51.100.80"),
        ("A www.example.com from 10.120.0.1", "198.51.100.80"),
        ("A www.example.com from 172.23.1.2", "nothing"),
    ]);
    drop(world);
    let world = World::serve(README_NAMES, &[]);
    world.check(&[
        ("TXT www.example.com", "\"text\""),
        ("A www.google.com", "198.51.100.80"),
        ("TXT www.google.com", "NXDOMAIN"),
        ("A www.example.org", "NXDOMAIN"),
    ]);
}

fn readmes_by_edns0() {
    let world = World::serve(README_EDNS0, &[]);
    world.check(&[
        ("A www.example.org 65517=123456789 65518=ABCDEF", "198.51.100.80"),
        ("A www.example.org 65517=123456789", "REFUSED"),
        ("A www.example.org 65517=12345678 65518=ABCDEF", "REFUSED"),
        ("A www.example.com 65517=123456789 65518=ABCDEF", "REFUSED"),
    ]);
    drop(world);
    // The older README's list ends with `block true`, which lets nobody pass.
    let world = World::serve(README_FIRST_EDNS0, &[]);
    world.check(&[
        ("A www.example.org 65517=123456789 65518=ABCDEF", "NXDOMAIN"),
        ("A www.example.org 65517=123456789", "REFUSED"),
    ]);
    drop(world);
    let world = World::serve(&README_FIRST_EDNS0.replace("block true", "allow true"), &[]);
    world.check(&[
        ("A www.example.org 65517=123456789 65518=ABCDEF", "198.51.100.80"),
        ("A google.example.org 65517=123456789 65518=ABCDEF", "REFUSED"),
    ]);
}

fn readmes_of_opa() {
    let policy = "package dns

action := \"allow\" if input.name == \"www.example.com.\"

action := \"refuse\" if input.client_ip == \"10.120.1.11\"
";
    // A server that is not there lets nobody pass.
    let world = World::serve(README_OPA, &[]);
    world.check(&[("A www.example.com", "SERVFAIL")]);
    let _server = opa("127.0.0.1:8181", policy);
    world.check(&[
        ("A www.example.com", "198.51.100.80"),
        ("A www.example.org from 10.120.1.11", "REFUSED"),
        // Two words at once are none: OPA fails.
        ("A www.example.com from 10.120.1.11", "SERVFAIL"),
        ("A www.example.org", "NXDOMAIN"),
    ]);
}

fn readmes_of_themis() {
    let policy = "attributes: {domain_name: domain}
policies:
  alg: FirstApplicableEffect
  rules:
    - target: [{contains: [{val: {type: set of domains, content: [example.com]}}, {attr: domain_name}]}]
      effect: Permit
    - target: [{contains: [{val: {type: set of domains, content: [bad.example]}}, {attr: domain_name}]}]
      effect: Deny
";
    let questions =
        [("A www.example.com", "198.51.100.80"), ("A www.bad.example", "NXDOMAIN"), ("A www.example.org", "NXDOMAIN")];
    let servers = [pdp("10.0.0.7:1234", policy), pdp("10.0.0.8:1234", policy)];
    let world = World::serve(README_THEMIS, &[]);
    world.check(&questions);
    let told = world.dig("CH TXT www.bad.example.debug");
    assert!(told.contains("themis myengine: Deny"), "{told}");
    // One of two is enough.
    let [first, _second] = servers;
    drop(first);
    world.check(&questions);
    drop(world);
    // `...` is no option: Themis' own port is asked.
    let _server = pdp("127.0.0.1:5555", policy);
    World::serve(README_ANY, &[]).check(&questions);
}
