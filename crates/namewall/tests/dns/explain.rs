//! `--explain`: what becomes of a question, and why.

use crate::process::Folder;
use expect_test::expect;

const COREFILE: &str = "\
.:5300 {
   bind 127.0.0.1
   request {
      edns0 0xffed client_id bytes
   }
   hosts /no/such/file {
      192.0.2.10 www.example.com
      fallthrough
   }
   firewall query {
      refuse under(name, 'internal.example')
      permit in-cidr(client_ip, 10.0.0.0/8, fd00::/8) and type in ('A', 'AAAA')
      redirect 192.0.2.99 client_id == 'guest'
      block atoi(client_id) == 7
      default block
   }
   firewall . response {
      passthrough example.net
      deny in-cidr(response_ip, 192.0.2.128/25)
      permit rcode == 'NOERROR' and type != 'TXT'
      drop type == 'TXT'
      default deny
   }
   forward . 192.0.2.53 {
      except nowhere.example
   }
}
";

fn check(question: &str, code: i32, expected: expect_test::Expect) {
    Folder::new(COREFILE).check(&["--explain", question], code, expected);
}

/// The same for a question that is forwarded, without what query rules say of it.
fn check_response(question: &str, code: i32, expected: expect_test::Expect) {
    let (ended, printed) = Folder::new(COREFILE).run(&["--explain", question]);
    let (_, response) = printed.split_once("it is forwarded\n").expect("it is forwarded");
    expected.assert_eq(response);
    assert_eq!(ended, Some(code), "{printed}");
}

#[test]
fn what_is_forwarded() {
    check(
        "A www.test from 10.1.2.3",
        0,
        expect![[r#"
            A www.test. from 10.1.2.3 at 127.0.0.1:5300: server block for .
            Corefile:10:4: firewall query
              Corefile:11:7: refuse under(name, 'internal.example') → no  (name = "www.test.")
              Corefile:12:7: permit in-cidr(client_ip, 10.0.0.0/8, fd00::/8) and type in ('A', 'AAAA') → permit  (client_ip = "10.1.2.3", type = "A")
              it ends there: allow; 2 rules were not asked
            it is forwarded
            the client gets the answer, if response rules let it pass
        "#]],
    );
}

#[test]
fn what_hosts_answers() {
    check(
        "AAAA www.example.com from fd00::1 over tcp",
        0,
        expect![[r#"
            AAAA www.example.com. from fd00::1 at 127.0.0.1:5300: server block for .
            Corefile:10:4: firewall query
              Corefile:11:7: refuse under(name, 'internal.example') → no  (name = "www.example.com.")
              Corefile:12:7: permit in-cidr(client_ip, 10.0.0.0/8, fd00::/8) and type in ('A', 'AAAA') → permit  (client_ip = "fd00::1", type = "AAAA")
              it ends there: allow; 2 rules were not asked
            hosts answers it
            Corefile:17:4: firewall . response
              Corefile:19:7: deny in-cidr(response_ip, 192.0.2.128/25) → no  (response_ip = "")
              Corefile:20:7: permit rcode == 'NOERROR' and type != 'TXT' → permit  (rcode = "NOERROR", type = "AAAA")
              it ends there: allow; 1 rule was not asked
            the client gets the answer
        "#]],
    );
}

#[test]
fn what_is_refused() {
    check(
        "A a.internal.example from 10.1.2.3",
        1,
        expect![[r#"
            A a.internal.example. from 10.1.2.3 at 127.0.0.1:5300: server block for .
            Corefile:10:4: firewall query
              Corefile:11:7: refuse under(name, 'internal.example') → refuse  (name = "a.internal.example.")
              it ends there: refuse; 3 rules were not asked
            the client gets REFUSED
        "#]],
    );
}

#[test]
fn what_is_asked_of_somebody_else() {
    check(
        "A www.example.com from 192.0.2.1 edns0:0xffed=guest",
        0,
        expect![[r#"
            A www.example.com. from 192.0.2.1 at 127.0.0.1:5300: server block for .
            Corefile:10:4: firewall query
              Corefile:11:7: refuse under(name, 'internal.example') → no  (name = "www.example.com.")
              Corefile:12:7: permit in-cidr(client_ip, 10.0.0.0/8, fd00::/8) and type in ('A', 'AAAA') → no  (client_ip = "192.0.2.1")
              Corefile:13:7: redirect 192.0.2.99 client_id == 'guest' → redirect to 192.0.2.99:53  (client_id = "guest")
              it ends there: redirect to 192.0.2.99:53; 1 rule was not asked
            it is asked of 192.0.2.99:53
            the client gets the answer, if response rules let it pass
        "#]],
    );
}

#[test]
fn what_cannot_be_evaluated() {
    check(
        "A www.test from 192.0.2.1 edns0:0xffed=x",
        1,
        expect![[r#"
            A www.test. from 192.0.2.1 at 127.0.0.1:5300: server block for .
            Corefile:10:4: firewall query
              Corefile:11:7: refuse under(name, 'internal.example') → no  (name = "www.test.")
              Corefile:12:7: permit in-cidr(client_ip, 10.0.0.0/8, fd00::/8) and type in ('A', 'AAAA') → no  (client_ip = "192.0.2.1")
              Corefile:13:7: redirect 192.0.2.99 client_id == 'guest' → no  (client_id = "x")
              Corefile:14:7: block atoi(client_id) == 7 → failed: in `atoi(client_id)`: `x` is no whole number  (client_id = "x")
              it ends there: SERVFAIL
            the client gets SERVFAIL
        "#]],
    );
}

#[test]
fn what_nobody_is_asked() {
    check(
        "A nowhere.example from 10.1.2.3",
        1,
        expect![[r#"
            A nowhere.example. from 10.1.2.3 at 127.0.0.1:5300: server block for .
            Corefile:10:4: firewall query
              Corefile:11:7: refuse under(name, 'internal.example') → no  (name = "nowhere.example.")
              Corefile:12:7: permit in-cidr(client_ip, 10.0.0.0/8, fd00::/8) and type in ('A', 'AAAA') → permit  (client_ip = "10.1.2.3", type = "A")
              it ends there: allow; 2 rules were not asked
            nobody is there to answer it
            the client gets REFUSED
        "#]],
    );
}

#[test]
fn what_no_block_is_for() {
    check(
        "A www.test at 127.0.0.1:53",
        1,
        expect![[r#"
            A www.test. from 127.0.0.1 at 127.0.0.1:53: no server block is for it
            the client gets REFUSED
        "#]],
    );
}

#[test]
fn what_becomes_of_an_answer_address_by_address() {
    check_response(
        "A www.test from 10.1.2.3 answer 192.0.2.1,192.0.2.200,192.0.2.2",
        1,
        expect![[r#"
            Corefile:17:4: firewall . response, for 192.0.2.1
              Corefile:19:7: deny in-cidr(response_ip, 192.0.2.128/25) → no  (response_ip = "192.0.2.1")
              Corefile:20:7: permit rcode == 'NOERROR' and type != 'TXT' → permit  (rcode = "NOERROR", type = "A")
              it ends there: allow; 1 rule was not asked
            Corefile:17:4: firewall . response, for 192.0.2.200
              Corefile:19:7: deny in-cidr(response_ip, 192.0.2.128/25) → deny  (response_ip = "192.0.2.200")
              it ends there: block; 2 rules were not asked
            the client gets NXDOMAIN
        "#]],
    );
    check_response(
        "AAAA www.test from 10.1.2.3 answer 2001:db8::1",
        0,
        expect![[r#"
            Corefile:17:4: firewall . response, for 2001:db8::1
              Corefile:19:7: deny in-cidr(response_ip, 192.0.2.128/25) → no  (response_ip = "2001:db8::1")
              Corefile:20:7: permit rcode == 'NOERROR' and type != 'TXT' → permit  (rcode = "NOERROR", type = "AAAA")
              it ends there: allow; 1 rule was not asked
            the client gets the answer
        "#]],
    );
}

#[test]
fn what_becomes_of_an_answer_without_addresses() {
    check_response(
        "A www.test from 10.1.2.3 answer NXDOMAIN",
        1,
        expect![[r#"
            Corefile:17:4: firewall . response
              Corefile:19:7: deny in-cidr(response_ip, 192.0.2.128/25) → no  (response_ip = "")
              Corefile:20:7: permit rcode == 'NOERROR' and type != 'TXT' → no  (rcode = "NXDOMAIN")
              Corefile:21:7: drop type == 'TXT' → no  (type = "A")
              Corefile:22:7: default deny → block
            the client gets NXDOMAIN
        "#]],
    );
    check_response(
        "A www.example.net from 10.1.2.3 answer NXDOMAIN",
        0,
        expect![[r#"
            Corefile:17:4: firewall . response
              names of example.net. pass through; 3 rules were not asked
            the client gets the answer
        "#]],
    );
}

#[test]
fn for_programs() {
    Folder::new(COREFILE).check(
        &["-o", "json", "--explain", "A www.test from 10.1.2.3 answer 192.0.2.200"],
        1,
        expect![[r#"
            {
              "question": "A www.test. from 10.1.2.3 at 127.0.0.1:5300",
              "serverBlock": ".",
              "query": {
                "result": "allow",
                "lists": [
                  {
                    "list": "firewall query",
                    "source": {
                      "file": "Corefile",
                      "line": 10,
                      "column": 4
                    },
                    "address": null,
                    "rules": [
                      {
                        "rule": "refuse under(name, 'internal.example')",
                        "source": {
                          "file": "Corefile",
                          "line": 11,
                          "column": 7
                        },
                        "said": null,
                        "error": null,
                        "facts": {
                          "name": "www.test."
                        },
                        "trace": [],
                        "labels": {}
                      },
                      {
                        "rule": "permit in-cidr(client_ip, 10.0.0.0/8, fd00::/8) and type in ('A', 'AAAA')",
                        "source": {
                          "file": "Corefile",
                          "line": 12,
                          "column": 7
                        },
                        "said": "permit",
                        "error": null,
                        "facts": {
                          "client_ip": "10.1.2.3",
                          "type": "A"
                        },
                        "trace": [],
                        "labels": {}
                      }
                    ],
                    "notAsked": 2,
                    "end": "it ends there: allow; 2 rules were not asked"
                  }
                ]
              },
              "changes": [],
              "answer": "it is forwarded",
              "notes": [],
              "policyOfAnswer": null,
              "response": {
                "result": "block",
                "lists": [
                  {
                    "list": "firewall . response",
                    "source": {
                      "file": "Corefile",
                      "line": 17,
                      "column": 4
                    },
                    "address": "192.0.2.200",
                    "rules": [
                      {
                        "rule": "deny in-cidr(response_ip, 192.0.2.128/25)",
                        "source": {
                          "file": "Corefile",
                          "line": 19,
                          "column": 7
                        },
                        "said": "deny",
                        "error": null,
                        "facts": {
                          "response_ip": "192.0.2.200"
                        },
                        "trace": [],
                        "labels": {}
                      }
                    ],
                    "notAsked": 2,
                    "end": "it ends there: block; 2 rules were not asked"
                  }
                ]
              },
              "clientGets": "NXDOMAIN",
              "passes": false
            }
        "#]],
    );
}

const ENGINES: &str = "\
.:5300 {
   bind 127.0.0.1
   expression rule
   opa own {
      policy own.rego
   }
   themis pdp {
      pdp own.yaml
      transfer gid
   }
   firewall . query {
      rule deny type == 'ANY'
      opa own
      themis pdp
   }
   forward . 192.0.2.53
}
";

#[test]
fn what_engines_say() {
    let folder = Folder::new(ENGINES);
    folder.write("own.rego", "package dns\n\naction := \"refuse\" if input.name == \"refused.test.\"\n");
    folder.write(
        "own.yaml",
        "attributes: {domain_name: domain, gid: string}
policies:
  alg: FirstApplicableEffect
  rules:
    - target: [{contains: [{val: {type: set of domains, content: [example]}}, {attr: domain_name}]}]
      effect: Permit
      obligations: [{gid: {val: {type: string, content: '42'}}}]
",
    );
    folder.check(
        &["--explain", "A refused.test"],
        1,
        expect![[r#"
        A refused.test. from 127.0.0.1 at 127.0.0.1:5300: server block for .
        Corefile:11:4: firewall . query
          Corefile:12:7: rule deny type == 'ANY' → no  (type = "A")
          Corefile:13:7: opa own → refuse
              data.dns.action is "refuse"
          it ends there: refuse; 1 rule was not asked
        the client gets REFUSED
        Corefile:11:4: warning: it is not said what counts at the end of this list
         11 |    firewall . query {
            |    ^^^^^^^^ in a list with a zone it is `block`: write `default block`
    "#]],
    );
    folder.check(
        &["--explain", "A www.example"],
        0,
        expect![[r#"
        A www.example. from 127.0.0.1 at 127.0.0.1:5300: server block for .
        Corefile:11:4: firewall . query
          Corefile:12:7: rule deny type == 'ANY' → no  (type = "A")
          Corefile:13:7: opa own → no
              data.dns.action is undefined
          Corefile:14:7: themis pdp → allow
              themis pdp: Permit
              gid = 42
          it ends there: allow
        it is forwarded
        the client gets the answer
        Corefile:11:4: warning: it is not said what counts at the end of this list
         11 |    firewall . query {
            |    ^^^^^^^^ in a list with a zone it is `block`: write `default block`
    "#]],
    );
    folder.check(
        &["--explain", "A www.test"],
        1,
        expect![[r#"
        A www.test. from 127.0.0.1 at 127.0.0.1:5300: server block for .
        Corefile:11:4: firewall . query
          Corefile:12:7: rule deny type == 'ANY' → no  (type = "A")
          Corefile:13:7: opa own → no
              data.dns.action is undefined
          Corefile:14:7: themis pdp → no
              themis pdp: NotApplicable
          no rule says anything, and no default: block
        the client gets NXDOMAIN
        Corefile:11:4: warning: it is not said what counts at the end of this list
         11 |    firewall . query {
            |    ^^^^^^^^ in a list with a zone it is `block`: write `default block`
    "#]],
    );
}

#[test]
fn what_is_no_question() {
    check(
        "www.test",
        2,
        expect![[r#"
            error: `www.test` is no question; write one like 'A www.example.com from 10.1.2.3'
        "#]],
    );
    check(
        "A www.test near 10.1.2.3",
        2,
        expect![[r#"
            error: `near` is not understood; there are from, at, over, edns0:CODE=VALUE and answer
        "#]],
    );
}

/// What `rewrite`, `acl` and `dns64` do with a question, and what cannot be known without the cluster.
#[test]
fn directives_that_change_questions_are_told() {
    let text = ".:5300 {
   bind 127.0.0.1
   acl secret.test {
      block type A
      drop type TXT
   }
   rewrite name old.test new.test
   rewrite name door.test a.secret.test
   dns64 {
      allow_ipv4
   }
   hosts /no/such/file {
      192.0.2.7 new.test
      fallthrough
   }
   kubernetes cluster.local
   forward . 192.0.2.53
}
";
    for (question, code, expected) in [
        (
            "A door.test",
            1,
            expect![[r#"
                A door.test. from 127.0.0.1 at 127.0.0.1:5300: server block for .
                it is rewritten: A a.secret.test.
                `acl` does not let it pass
                the client gets REFUSED
            "#]],
        ),
        (
            "TXT a.secret.test",
            1,
            expect![[r#"
                TXT a.secret.test. from 127.0.0.1 at 127.0.0.1:5300: server block for .
                `acl` does not let it pass
                the client gets nothing
            "#]],
        ),
        (
            "A old.test",
            0,
            expect![[r#"
                A old.test. from 127.0.0.1 at 127.0.0.1:5300: server block for .
                it is rewritten: A new.test.
                hosts answers it
                the client gets the answer
            "#]],
        ),
        (
            "AAAA www.test",
            0,
            expect![[r#"
                AAAA www.test. from 127.0.0.1 at 127.0.0.1:5300: server block for .
                it is forwarded
                `dns64`: without an address in the answer, the A records are looked up, as another question of the client
                the client gets the answer
            "#]],
        ),
        (
            "AAAA new.test",
            0,
            expect![[r#"
                AAAA new.test. from 127.0.0.1 at 127.0.0.1:5300: server block for .
                hosts answers it
                `dns64`: without an address in the answer, the A records are looked up, as another question of the client
                the client gets an answer that is not known here
            "#]],
        ),
        (
            "A web.shop.svc.cluster.local",
            0,
            expect![[r#"
                A web.shop.svc.cluster.local. from 127.0.0.1 at 127.0.0.1:5300: server block for .
                kubernetes answers it
                the objects of the cluster are not known here
                the client gets an answer that is not known here
            "#]],
        ),
    ] {
        Folder::new(text).check(&["--explain", question], code, expected);
    }
}
