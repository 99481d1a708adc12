//! What is wrong, where, and what would be accepted.

use super::{check, read_alone, within};
use expect_test::expect;
use namewall_corefile::Problem;
use namewall_policy::Finding;

#[test]
fn a_slip_of_the_finger() {
    check(
        ". {\n   metadata\n\n\n\n\n   firewal . query {\n   }\n}\n",
        expect![[r#"
            Corefile:7:4: error: unknown directive `firewal`
              7 |    firewal . query {
                |    ^^^^^^^ did you mean `firewall`?
        "#]],
    );
}

#[test]
fn all_errors_are_told_at_once() {
    within(
        "\tforwad . 8.8.8.8\n\tcache x.y.\n\tcache 0\n\tacl {\n\t\tallow net 10.0.0.0/8\n\t}\n\trewrite name a b\n\tzzzz\n\tlog {\n\t\tclas all\n\t}",
        expect![[r#"
            Corefile:2:2: error: unknown directive `forwad`
              2 | 	forwad . 8.8.8.8
                | 	^^^^^^ did you mean `forward`?
            Corefile:4:2: error: `cache` stands once in a server block
              4 | 	cache 0
                | 	^^^^^ it is on line 3 already
            Corefile:4:8: error: `0` is not accepted here
              4 | 	cache 0
                | 	      ^ write a whole number of at least 1
            Corefile:9:2: error: unknown directive `zzzz`
              9 | 	zzzz
                | 	^^^^ there are `acl`, `any`, `bind`, `bufsize`, `cache`, `chaos`, `debug`, `dns64`, `dnstap`, `dnsnameresolver`, `errors`, `expression`, `file`, `firewall`, `forward`, `geoip`, `header`, `health`, `hosts`, `kubernetes`, `load-balancer`, `loadbalance`, `local`, `log`, `loop`, `metadata`, `metadata_edns0`, `minimal`, `nsid`, `ocp_dnsnameresolver`, `opa`, `policy`, `prometheus`, `ready`, `reload`, `request`, `rewrite`, `rpz`, `template`, `themis`, `timeouts`, `tls`, `trace`, `view` and `whoami`
            Corefile:11:3: error: `log` has no option `clas`
             11 | 		clas all
                | 		^^^^ did you mean `class`?
        "#]],
    );
}

#[test]
fn lists_of_rules() {
    within(
        r"firewall
firewall . anwser {
}
firewall query
firewall bad..zone query {
 default maybe
 default block
 default drop
 permti true
 allow
 redirect
 redirect nowhere true
 redirect 10.0.0.1
 passthrough
 debug_query_suffix
}",
        expect![[r#"
            Corefile:2:1: error: `firewall` needs more arguments
              2 | firewall
                | ^^^^^^^^ write `firewall [ZONE…] query|response { … }`
            Corefile:3:12: error: `anwser` is not accepted here
              3 | firewall . anwser {
                |            ^^^^^^ write `query` or `response`
            Corefile:5:1: error: a list of rules has a block
              5 | firewall query
                | ^^^^^^^^ add `{`, its rules and `}`
            Corefile:5:1: warning: it is not said what counts at the end of this list
              5 | firewall query
                | ^^^^^^^^ in a list without a zone it is `block`: write `default block`
            Corefile:6:10: error: `bad..zone` has an empty label; labels are separated by single dots
              6 | firewall bad..zone query {
                |          ^^^^^^^^^ write a name, like `example.org`, or a network, like `10.0.0.0/24`
            Corefile:7:10: error: `maybe` is not accepted here
              7 |  default maybe
                |          ^^^^^ write `allow`, `block`, `refuse`, `drop`, `permit` or `deny`
            Corefile:9:2: error: a list has one default
              9 |  default drop
                |  ^^^^^^^ remove one of them
            Corefile:10:2: error: `permti` begins no rule
             10 |  permti true
                |  ^^^^^^ did you mean `permit`?
            Corefile:11:2: error: `allow` needs an expression
             11 |  allow
                |  ^^^^^ write `allow true` for always
            Corefile:12:2: error: `redirect` needs an address and an expression
             12 |  redirect
                |  ^^^^^^^^ write `redirect ADDRESS[:PORT] EXPRESSION`
            Corefile:13:11: error: `nowhere` is not an address
             13 |  redirect nowhere true
                |           ^^^^^^^ write `192.0.2.1`, `192.0.2.1:53` or `[2001:db8::1]:53`
            Corefile:14:2: error: `redirect` needs an expression
             14 |  redirect 10.0.0.1
                |  ^^^^^^^^ write `redirect 10.0.0.1:53 true` for always
            Corefile:15:2: error: `passthrough` is not complete
             15 |  passthrough
                |  ^^^^^^^^^^^ write `passthrough SUFFIX…`
            Corefile:16:2: error: `debug_query_suffix` is not complete
             16 |  debug_query_suffix
                |  ^^^^^^^^^^^^^^^^^^ write `debug_query_suffix SUFFIX.`
        "#]],
    );
}

#[test]
fn engines_that_are_not_there() {
    within(
        r"opa one {
 endpoint http://opa/v1/data/dns/action
}
firewall query {
 opa on
 opa two
 themis one
 opa
 one
 kubernetes rbac
 expression x deny true
 default block
}",
        expect![[r#"
            Corefile:2:5: warning: no rule asks the engine `one`
              2 | opa one {
                |     ^^^ write `opa one` in a list
            Corefile:6:6: error: there is no opa engine `on` in this server block
              6 |  opa on
                |      ^^ did you mean `one`?
            Corefile:7:6: error: there is no opa engine `two` in this server block
              7 |  opa two
                |      ^^^ add `opa two { … }`
            Corefile:8:9: error: there is no themis engine `one` in this server block
              8 |  themis one
                |         ^^^ add `themis one { … }`
            Corefile:9:2: error: `opa` needs the name of an engine
              9 |  opa
                |  ^^^ write `opa NAME`
            Corefile:10:2: error: `one` begins no rule
             10 |  one
                |  ^^^ write `opa one`
            Corefile:11:13: error: there is no kubernetes engine `rbac` in this server block
             11 |  kubernetes rbac
                |             ^^^^ add the directive `kubernetes`
            Corefile:12:13: error: there is no expression engine `x`
             12 |  expression x deny true
                |             ^ add `expression x` to the server block
        "#]],
    );
    within(
        r"kubernetes
expression rule
expression rule
expression allow
firewall query {
 kubernetes rbca
 rule
 rule x
 rule deny
 default block
}",
        expect![[r#"
            Corefile:3:12: warning: no rule asks the engine `rule`
              3 | expression rule
                |            ^^^^ write `rule permit …` in a list
            Corefile:4:12: warning: no rule asks the engine `rule`
              4 | expression rule
                |            ^^^^ write `rule permit …` in a list
            Corefile:4:12: error: the engine `rule` is there already
              4 | expression rule
                |            ^^^^ call one of them otherwise
            Corefile:5:12: error: a rule that begins with `allow` is another
              5 | expression allow
                |            ^^^^^ call the engine otherwise
            Corefile:5:12: warning: no rule asks the engine `allow`
              5 | expression allow
                |            ^^^^^ write `allow permit …` in a list
            Corefile:7:13: error: there is no kubernetes engine `rbca` in this server block
              7 |  kubernetes rbca
                |             ^^^^ write `kubernetes rbac`
            Corefile:8:2: error: an expression needs an action before it
              8 |  rule
                |  ^^^^ write `permit`, `deny`, `allow`, `block`, `refuse`, `drop`, `log` or `redirect`
            Corefile:9:7: error: `x` is not accepted here
              9 |  rule x
                |       ^ write `permit`, `deny`, `allow`, `block`, `refuse`, `drop`, `log` or `redirect`
            Corefile:10:7: error: `deny` needs an expression
             10 |  rule deny
                |       ^^^^ write `deny true` for always
        "#]],
    );
}

#[test]
fn quotes_in_expressions() {
    // One word in quotes is what is in them, as with CoreDNS; where CoreDNS would see another expression
    // than the one that is written, it is refused.
    within(
        r#"firewall query {
 allow "type == 'A'"
 allow "type == 'A'" && "name =~ 'x'"
 allow ""
 allow request/team == "x y"
 allow true && "false"
 allow type == "A" || "yes" && name == 'x'
 default block
}"#,
        expect![[r#"
            Corefile:4:8: error: a part of an expression is in quotes, and would be a text
              4 |  allow "type == 'A'" && "name =~ 'x'"
                |        ^^^^^^^^^^^^^ remove the quotes
            Corefile:5:2: error: `allow` needs an expression
              5 |  allow ""
                |  ^^^^^ write `allow true` for always
            Corefile:6:8: error: `team` is never set
              6 |  allow request/team == "x y"
                |        ^^^^^^^^^^^^ add `request { edns0 CODE team }`, or name a fact that is set (docs/expressions.md)
            Corefile:7:16: error: a part of an expression is in quotes, and would be a text
              7 |  allow true && "false"
                |                ^^^^^^^ remove the quotes
            Corefile:8:23: error: a part of an expression is in quotes, and would be a text
              8 |  allow type == "A" || "yes" && name == 'x'
                |                       ^^^^^ remove the quotes
        "#]],
    );
    let read = read_alone(". {\nfirewall query {\n allow \"type == 'A'\"\n default block\n}\n}").unwrap();
    let rule = format!("{:?}", read.servers[0].firewalls[0].rules[0]);
    assert!(rule.contains(r#""type == 'A'" at Corefile:3:9"#), "{rule}");
}

#[test]
fn lists_that_are_probably_not_meant() {
    within(
        r"expression unused
firewall . query {
 permit type == 'A'
}
firewall response {
 log true
}
firewall query {
 deny true
 allow true
 log true
}
firewall . response {
}",
        expect![[r#"
            Corefile:2:12: warning: no rule asks the engine `unused`
              2 | expression unused
                |            ^^^^^^ write `unused permit …` in a list
            Corefile:3:1: warning: it is not said what counts at the end of this list
              3 | firewall . query {
                | ^^^^^^^^ in a list with a zone it is `block`: write `default block`
            Corefile:6:1: warning: it is not said what counts at the end of this list
              6 | firewall response {
                | ^^^^^^^^ in a list without a zone it is `allow`: write `default allow`
            Corefile:11:2: warning: this rule is never asked
             11 |  allow true
                |  ^^^^^ the one on line 10 always holds
            Corefile:12:2: warning: this rule is never asked
             12 |  log true
                |  ^^^ the one on line 10 always holds
            Corefile:14:1: warning: it is not said what counts at the end of this list
             14 | firewall . response {
                | ^^^^^^^^ in a list with a zone it is `block`: write `default block`
        "#]],
    );
}

#[test]
fn pieces_of_edns0() {
    within(
        r"request {
 edns0
 edns0 0xffed
 edns0 0x1ffff a
 edns0 0xffed client_ip
 edns0 0xffed a/b
 edns0 1 a hx
 edns0 1 b hex 16 0
 edns0 1 c hex 16 8 8
 edns0 1 d hex 16 0 17
 edns0 1 e hex 16 16 0
 edns0 1 f bytes 16 0 16
 g 0177755
 g edns0 2 ip
}",
        expect![[r#"
            Corefile:3:2: error: a field needs a label and a code
              3 |  edns0
                |  ^^^^^ write `edns0 CODE LABEL [hex|bytes|ip [LENGTH START END]]`, like `edns0 0xffed client_id`
            Corefile:4:2: error: a field needs a label and a code
              4 |  edns0 0xffed
                |  ^^^^^ write `edns0 CODE LABEL [hex|bytes|ip [LENGTH START END]]`, like `edns0 0xffed client_id`
            Corefile:5:8: error: `0x1ffff` is not the code of an EDNS0 option
              5 |  edns0 0x1ffff a
                |        ^^^^^^^ write a number up to 0xffff, like `0xffed`
            Corefile:6:15: error: `client_ip` is a fact of every query: client_ip
              6 |  edns0 0xffed client_ip
                |               ^^^^^^^^^ choose another label
            Corefile:7:15: error: `a/b` is not a label
              7 |  edns0 0xffed a/b
                |               ^^^ letters, digits, `_`, `-` and `.` are accepted
            Corefile:8:12: error: `hx` is not accepted here
              8 |  edns0 1 a hx
                |            ^^ did you mean `hex`?
            Corefile:9:2: error: a piece of an option has a length, a start and an end
              9 |  edns0 1 b hex 16 0
                |  ^^^^^ write `hex LENGTH START END`, like `hex 16 0 16`
            Corefile:10:21: error: the end 8 is not after the start 8
             10 |  edns0 1 c hex 16 8 8
                |                     ^ the end is the last byte's number and one; 0 is the end of the option
            Corefile:11:21: error: the end 17 is past the length 16
             11 |  edns0 1 d hex 16 0 17
                |                     ^^ the end is the last byte's number and one; 0 is the end of the option
            Corefile:12:19: error: the start 16 is past the length 16
             12 |  edns0 1 e hex 16 16 0
                |                   ^^ the end is the last byte's number and one; 0 is the end of the option
            Corefile:13:12: error: `bytes` takes the whole option
             13 |  edns0 1 f bytes 16 0 16
                |            ^^^^^ only `hex` has a length, a start and an end
            Corefile:15:2: error: the label `g` is there already
             15 |  g edns0 2 ip
                |  ^ call one of them otherwise
        "#]],
    );
}

#[test]
fn long_lines_and_odd_characters_are_shown_in_part() {
    let long = format!(". {{\n{} foo\u{7}x bar\n}}\n", "log . ".repeat(60));
    check(
        &long,
        expect![[r#"
            Corefile:2:362: error: `foo·x` has `·` in it; letters, digits, `-` and `_` are accepted
              2 |  . log . log . log . log . log . log .  foo·x bar
                |                                         ^^^^^ write a name, like `example.org`, or a network, like `10.0.0.0/24`
        "#]],
    );
}

#[test]
fn many_errors_are_counted() {
    let many = format!(". {{\n{}}}\n", (0..250).map(|at| format!("zz{at}\n")).collect::<String>());
    let errors = read_alone(&many).unwrap_err();
    assert_eq!((errors.problems.len(), errors.left_out), (100, 150));
    assert!(errors.to_string().ends_with("\nand 150 more"));
}

#[test]
fn a_problem_is_a_finding() {
    let errors = read_alone(". {\n lgo\n}").unwrap_err();
    let findings: Vec<String> =
        errors.problems.iter().map(|problem: &Problem| Finding::from(problem).to_string()).collect();
    assert_eq!(
        findings,
        ["Corefile:2:2: error[unknown-directive] Corefile: unknown directive `lgo`; did you mean `log`?"]
    );
}
