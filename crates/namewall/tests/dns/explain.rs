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
      allow in-cidr(client_ip, 10.0.0.0/8, fd00::/8) and type in ('A', 'AAAA')
      redirect 192.0.2.99 client_id == 'guest'
      block atoi(client_id) == 7
      default block
   }
   firewall example.com response {
      default allow
   }
   forward . 192.0.2.53 {
      except nowhere.example
   }
}
";

fn check(question: &str, code: i32, expected: expect_test::Expect) {
    Folder::new(COREFILE).check(&["--explain", question], code, expected);
}

#[test]
fn what_is_forwarded() {
    check(
        "A www.test from 10.1.2.3",
        0,
        expect![[r#"
            server block for .
            Corefile:11:7: refuse under(name, 'internal.example') → no  (name = "www.test.")
            Corefile:12:7: allow in-cidr(client_ip, 10.0.0.0/8, fd00::/8) and type in ('A', 'AAAA') → allow  (client_ip = "10.1.2.3", type = "A")
            result: allow
            it is forwarded
        "#]],
    );
}

#[test]
fn what_hosts_answers() {
    check(
        "AAAA www.example.com from fd00::1 over tcp",
        0,
        expect![[r#"
        server block for .
        Corefile:11:7: refuse under(name, 'internal.example') → no  (name = "www.example.com.")
        Corefile:12:7: allow in-cidr(client_ip, 10.0.0.0/8, fd00::/8) and type in ('A', 'AAAA') → allow  (client_ip = "fd00::1", type = "AAAA")
        result: allow
        hosts answers it
        response rules are asked when the answer is there
    "#]],
    );
}

#[test]
fn what_is_refused() {
    check(
        "A a.internal.example from 10.1.2.3",
        1,
        expect![[r#"
        server block for .
        Corefile:11:7: refuse under(name, 'internal.example') → refuse  (name = "a.internal.example.")
        result: refuse
    "#]],
    );
}

#[test]
fn what_is_asked_of_somebody_else() {
    check(
        "A www.example.com from 192.0.2.1 edns0:0xffed=guest",
        0,
        expect![[r#"
        server block for .
        Corefile:11:7: refuse under(name, 'internal.example') → no  (name = "www.example.com.")
        Corefile:12:7: allow in-cidr(client_ip, 10.0.0.0/8, fd00::/8) and type in ('A', 'AAAA') → no  (client_ip = "192.0.2.1")
        Corefile:13:7: redirect client_id == 'guest' → redirect to 192.0.2.99:53  (client_id = "guest")
        result: redirect to 192.0.2.99:53
        it is asked of 192.0.2.99:53
        response rules are asked when the answer is there
    "#]],
    );
}

#[test]
fn what_cannot_be_evaluated() {
    check(
        "A www.test from 192.0.2.1 edns0:0xffed=x",
        1,
        expect![[r#"
        server block for .
        Corefile:11:7: refuse under(name, 'internal.example') → no  (name = "www.test.")
        Corefile:12:7: allow in-cidr(client_ip, 10.0.0.0/8, fd00::/8) and type in ('A', 'AAAA') → no  (client_ip = "192.0.2.1")
        Corefile:13:7: redirect client_id == 'guest' → no  (client_id = "x")
        Corefile:14:7: block atoi(client_id) == 7 → failed: in `atoi(client_id)`: `x` is no whole number  (client_id = "x")
        result: SERVFAIL, in `atoi(client_id)`: `x` is no whole number
    "#]],
    );
}

#[test]
fn what_nobody_is_asked() {
    check(
        "A nowhere.example from 10.1.2.3",
        1,
        expect![[r#"
            server block for .
            Corefile:11:7: refuse under(name, 'internal.example') → no  (name = "nowhere.example.")
            Corefile:12:7: allow in-cidr(client_ip, 10.0.0.0/8, fd00::/8) and type in ('A', 'AAAA') → allow  (client_ip = "10.1.2.3", type = "A")
            result: allow
            nobody is there to answer it: REFUSED
        "#]],
    );
}

#[test]
fn what_no_block_is_for() {
    check(
        "A www.test at 127.0.0.1:53",
        1,
        expect![[r#"
        no server block is for www.test. at 127.0.0.1:53: REFUSED
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
        error: `near` is not understood; there are from, at, over and edns0:CODE=VALUE
    "#]],
    );
}
