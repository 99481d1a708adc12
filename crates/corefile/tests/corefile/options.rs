//! What is wrong with a directive's options: those that are not there, not served,
//! or said twice.

use super::within;
use expect_test::expect;

#[test]
fn options_of_opa() {
    within(
        r"opa a {
 endpoint localhost:8181
 endpoint http://localhost:8181/v1/data/dns/action
 tls CERT
 fields
 query dns.action
 timeout 5
 concurrency 0
 default_decision perhaps
 feilds name
}
opa b {
 endpoint https://opa/
 policy x.rego
}
opa a {
 policy x.rego
 tls a b c
 v0 x
}
firewall query {
 opa a
 opa b
 default block
}",
        expect![[r#"
            Corefile:3:11: error: `localhost:8181` is not a URL
              3 |  endpoint localhost:8181
                |           ^^^^^^^^^^^^^^ write all of it, like `http://127.0.0.1:8181/v1/data/dns/action`
            Corefile:4:2: warning: `endpoint` is set twice
              4 |  endpoint http://localhost:8181/v1/data/dns/action
                |  ^^^^^^^^ the later one counts
            Corefile:5:2: error: `tls` needs more arguments
              5 |  tls CERT
                |  ^^^ write `tls CERT KEY CA`
            Corefile:6:2: error: `fields` needs more arguments
              6 |  fields
                |  ^^^^^^ write `fields FIELD…`
            Corefile:7:8: error: `data`, `query` and `v0` are for policies that are evaluated here
              7 |  query dns.action
                |        ^^^^^^^^^^ add `policy FILE…`
            Corefile:8:10: error: `5` is not a duration
              8 |  timeout 5
                |          ^ write its unit, like `5s`
            Corefile:9:14: error: `0` is not accepted here
              9 |  concurrency 0
                |              ^ write a whole number from 1 to 65535
            Corefile:10:2: error: it is not said what is done
             10 |  default_decision perhaps
                |  ^^^^^^^^^^^^^^^^ write `default_decision allow`, `block`, `refuse` or `drop`
            Corefile:10:19: error: `perhaps` is not accepted here
             10 |  default_decision perhaps
                |                   ^^^^^^^ write `allow`, `block`, `refuse`, `drop`, `permit` or `deny`
            Corefile:11:2: error: `opa` has no option `feilds`
             11 |  feilds name
                |  ^^^^^^ did you mean `fields`?
            Corefile:14:2: error: an OPA is asked over HTTP or evaluated here, not both
             14 |  endpoint https://opa/
                |  ^^^^^^^^ remove `endpoint` or `policy`
            Corefile:17:5: error: the engine `a` is there already
             17 | opa a {
                |     ^ call one of them otherwise
            Corefile:19:2: error: `tls` is for an OPA that is asked over HTTP
             19 |  tls a b c
                |  ^^^ remove it
            Corefile:20:5: error: `v0` takes no arguments
             20 |  v0 x
                |     ^ write `v0`
        "#]],
    );
}

#[test]
fn options_of_themis() {
    within(
        r"themis a {
 endpoint 10.0.0.1:x, 10.0.0.2
 pdp policy.yaml
 attr a
 attr a b c
 streams 0 hot-spt
 connection_timeout soon
 max_request_size auto x
 max_request_size 1 2
 max_response_attributes many
 cache 0s 0
 debug_query_suffix .
 passthrough a..b
 default_decision policy_action=4
 default_decision policy_action=9
 dnstap 1 x
 log yes
}
firewall query {
 themis a
 default block
}",
        expect![[r#"
            Corefile:3:11: error: `10.0.0.1:x` is neither an address nor a name
              3 |  endpoint 10.0.0.1:x, 10.0.0.2
                |           ^^^^^^^^^^^ write `HOST:PORT`, like `10.0.0.7:5555` or `[2001:db8::7]:5555`
            Corefile:4:2: error: a Themis is asked over gRPC or evaluated here, from one policy
              4 |  pdp policy.yaml
                |  ^^^ remove `endpoint` or `pdp`
            Corefile:5:2: error: `attr` needs more arguments
              5 |  attr a
                |  ^^^^ write `attr NAME LABEL [string|domain|address]`
            Corefile:6:11: error: `c` is not accepted here
              6 |  attr a b c
                |           ^ write `string`, `domain` or `address`
            Corefile:7:10: error: `0` is not accepted here
              7 |  streams 0 hot-spt
                |          ^ write a whole number from 1 to 65535
            Corefile:7:12: error: `hot-spt` is not accepted here
              7 |  streams 0 hot-spt
                |            ^^^^^^^ did you mean `hot-spot`?
            Corefile:8:21: error: `soon` is not a duration
              8 |  connection_timeout soon
                |                     ^^^^ write a number and a unit, like `500ms`, `30s` or `1h30m`
            Corefile:9:24: error: `x` is not accepted here
              9 |  max_request_size auto x
                |                        ^ write a whole number from 0 to 2147483647
            Corefile:10:2: warning: `max_request_size` is set twice
             10 |  max_request_size 1 2
                |  ^^^^^^^^^^^^^^^^ the later one counts
            Corefile:10:19: error: two sizes
             10 |  max_request_size 1 2
                |                   ^ write `max_request_size [auto] BYTES`
            Corefile:11:26: error: `many` is not accepted here
             11 |  max_response_attributes many
                |                          ^^^^ write a whole number from 0 to 2147483647
            Corefile:12:8: error: nothing can be kept for no time
             12 |  cache 0s 0
                |        ^^ write `cache`: it is 10m
            Corefile:12:11: error: `0` is not accepted here
             12 |  cache 0s 0
                |           ^ write a whole number from 1 to 2147483647
            Corefile:13:21: error: a name must not be empty
             13 |  debug_query_suffix .
                |                     ^ write a name, like `www.example.org`
            Corefile:14:14: error: `a..b` has an empty label; labels are separated by single dots
             14 |  passthrough a..b
                |              ^^^^ write a name, like `example.org`, or a network, like `10.0.0.0/24`
            Corefile:15:2: error: a redirect needs an address
             15 |  default_decision policy_action=4
                |  ^^^^^^^^^^^^^^^^ add `redirect_to=ADDRESS`
            Corefile:16:2: warning: `default_decision` is set twice
             16 |  default_decision policy_action=9
                |  ^^^^^^^^^^^^^^^^ the later one counts
            Corefile:16:2: error: it is not said what is done
             16 |  default_decision policy_action=9
                |  ^^^^^^^^^^^^^^^^ write `default_decision allow`, `block`, `refuse` or `drop`
            Corefile:16:19: error: `9` is not an action
             16 |  default_decision policy_action=9
                |                   ^^^^^^^^^^^^^^^ 1 is drop, 2 allow, 3 block, 4 redirect, 5 refuse
            Corefile:17:2: error: `dnstap` is not served here
             17 |  dnstap 1 x
                |  ^^^^^^ use the directive `dnstap`: what Themis says is in its extra field
            Corefile:18:6: error: `log` takes no arguments
             18 |  log yes
                |      ^^^ write `log`
        "#]],
    );
}

#[test]
fn options_of_the_rest() {
    within(
        r"forward .
forward . dns.example tls://1.1.1.1 https://x
forward . 8.8.8.8 {
 policy rond_robin
 health_check 1s no_rec domian x
 max_fails -1
 expire 10
 next NXDOMIAN
 tls a b c d
 spray
}
cache 30 {
 success
 success x
 denial 1 0
 prefetch 1 1m 5%
 servfail 10m
 disable all
 serve_stale 1h later
}",
        expect![[r#"
            Corefile:2:1: error: `forward` needs more arguments
              2 | forward .
                | ^^^^^^^ write `forward FROM TO… { … }`
            Corefile:3:11: error: `dns.example` is not an address
              3 | forward . dns.example tls://1.1.1.1 https://x
                |           ^^^^^^^^^^^ write `192.0.2.1`, `192.0.2.1:53` or `[2001:db8::1]:53`
            Corefile:3:37: error: the address of `x` is not looked up
              3 | forward . dns.example tls://1.1.1.1 https://x
                |                                     ^^^^^^^^^ write its address, like `https://ADDRESS%x`
            Corefile:5:9: error: `rond_robin` is not accepted here
              5 |  policy rond_robin
                |         ^^^^^^^^^^ did you mean `round_robin`?
            Corefile:6:25: error: `domian` is not accepted here
              6 |  health_check 1s no_rec domian x
                |                         ^^^^^^ write `health_check DURATION [no_rec] [domain NAME]`
            Corefile:6:32: error: `x` is not accepted here
              6 |  health_check 1s no_rec domian x
                |                                ^ write `health_check DURATION [no_rec] [domain NAME]`
            Corefile:7:12: error: `-1` is not accepted here
              7 |  max_fails -1
                |            ^^ write a whole number of at least 0
            Corefile:8:9: error: `10` is not a duration
              8 |  expire 10
                |         ^^ write its unit, like `10s`
            Corefile:9:7: error: `NXDOMIAN` is not accepted here
              9 |  next NXDOMIAN
                |       ^^^^^^^^ did you mean `NXDOMAIN`?
            Corefile:10:12: error: `tls` takes no more than 3 arguments
             10 |  tls a b c d
                |            ^ write `tls [CERT KEY] [CA]`
            Corefile:11:2: error: `forward` has no option `spray`
             11 |  spray
                |  ^^^^^ it has `except`, `force_tcp`, `prefer_udp`, `expire`, `max_age`, `max_fails`, `max_connect_attempts`, `max_idle_conns`, `max_concurrent`, `tls`, `tls_servername`, `policy`, `health_check`, `next`, `failover` and `failfast_all_unhealthy_upstreams`
            Corefile:14:2: error: `success` needs more arguments
             14 |  success
                |  ^^^^^^^ write `success CAPACITY [TTL] [MINTTL]`
            Corefile:15:10: error: `x` is not accepted here
             15 |  success x
                |          ^ write a whole number of at least 0
            Corefile:16:11: error: `0` is not accepted here
             16 |  denial 1 0
                |           ^ write a whole number of at least 1
            Corefile:17:16: error: `5%` is not accepted here
             17 |  prefetch 1 1m 5%
                |                ^^ write 10% to 90%
            Corefile:18:11: error: a failure is kept for 5 minutes at most
             18 |  servfail 10m
                |           ^^^ RFC 2308 has it so
            Corefile:19:10: error: `all` is not accepted here
             19 |  disable all
                |          ^^^ write `success` or `denial`
            Corefile:20:17: error: `later` is not accepted here
             20 |  serve_stale 1h later
                |                 ^^^^^ write `immediate` or `verify`
        "#]],
    );
    within(
        r"hosts x {
 10.0.0.1
 10.0.0.2 bad..name
 ttl 0
 10.0.0 x
}
log {
 class some
}
errors {
 consolidate 5m
 consolidate 5m x loud
}
health 8080
ready :0x
prometheus localhost
dnstap udp://x
dnstap /x part
bind 10.0.0.1:53
reload 1s
template IN AX {
}
template IN A {
 match x
}
loadbalance weighted file
loop x {
}
whoami {
 a
}",
        expect![[r#"
            Corefile:3:2: error: an address needs a name
              3 |  10.0.0.1
                |  ^^^^^^^^ write `ADDRESS NAME…`
            Corefile:4:11: error: `bad..name` has an empty label; labels are separated by single dots
              4 |  10.0.0.2 bad..name
                |           ^^^^^^^^^ write a name, like `www.example.org`
            Corefile:5:6: error: `0` is not accepted here
              5 |  ttl 0
                |      ^ write a whole number from 1 to 65535
            Corefile:6:2: error: `hosts` has no option `10.0.0`
              6 |  10.0.0 x
                |  ^^^^^^ it has `ttl`, `no_reverse`, `reload` and `fallthrough`
            Corefile:9:8: error: `some` is not accepted here
              9 |  class some
                |        ^^^^ write `all`, `success`, `denial` or `error`
            Corefile:12:2: error: `consolidate` needs more arguments
             12 |  consolidate 5m
                |  ^^^^^^^^^^^ write `consolidate DURATION REGEXP [LEVEL] [show_first]`
            Corefile:13:19: error: `loud` is not accepted here
             13 |  consolidate 5m x loud
                |                   ^^^^ write `error`, `warning`, `info` or `debug`
            Corefile:15:8: error: `8080` is not where something can be served
             15 | health 8080
                |        ^^^^ write `:PORT` or `HOST:PORT`, like `:8080` or `localhost:9153`
            Corefile:16:7: error: `:0x` is not where something can be served
             16 | ready :0x
                |       ^^^ write `:PORT` or `HOST:PORT`, like `:8080` or `localhost:9153`
            Corefile:17:12: error: `localhost` is not where something can be served
             17 | prometheus localhost
                |            ^^^^^^^^^ write `:PORT` or `HOST:PORT`, like `:8080` or `localhost:9153`
            Corefile:18:8: error: nothing is told over `udp://`
             18 | dnstap udp://x
                |        ^^^^^^^ write the path of a socket, `tcp://HOST:PORT` or `tls://HOST:PORT`
            Corefile:19:11: error: `part` is not accepted here
             19 | dnstap /x part
                |           ^^^^ write `full`
            Corefile:20:6: error: `10.0.0.1:53` is neither an address nor an interface
             20 | bind 10.0.0.1:53
                |      ^^^^^^^^^^^ the port stands in the key of the server block, like `.:1053`
            Corefile:21:8: error: the interval is less than 2s
             21 | reload 1s
                |        ^^ or write `reload off`
            Corefile:22:13: error: `AX` is not accepted here
             22 | template IN AX {
                |             ^^ did you mean `A`?
            Corefile:24:1: error: this template says nothing
             24 | template IN A {
                | ^^^^^^^^ add `answer RECORD` or `rcode RCODE`, like `rcode NXDOMAIN`
            Corefile:27:13: error: addresses have no weights here
             27 | loadbalance weighted file
                |             ^^^^^^^^ write `loadbalance`
            Corefile:28:6: error: `loop` takes no arguments
             28 | loop x {
                |      ^ write `loop`
            Corefile:31:2: error: `whoami` has no option `a`
             31 |  a
                |  ^ it has no options
        "#]],
    );
    within(
        r"kubernetes {
 pods maybe
 ttl 9999
 endpoint 10.0.0.1
 upstream
 namespaces a
 namespace_labels b
}
ocp_dnsnameresolver {
 minTTL 0
 failurethreshold 3
}
kubernetes
policy {
 streams 1
}",
        expect![[r#"
            Corefile:2:1: error: namespaces are chosen by name or by label, not both
              2 | kubernetes {
                | ^^^^^^^^^^ remove `namespaces` or `namespace_labels`
            Corefile:3:7: error: `maybe` is not accepted here
              3 |  pods maybe
                |       ^^^^^ write `disabled`, `insecure` or `verified`
            Corefile:4:6: error: `9999` is not accepted here
              4 |  ttl 9999
                |      ^^^^ write a whole number from 0 to 3600
            Corefile:5:11: error: `10.0.0.1` is not a URL
              5 |  endpoint 10.0.0.1
                |           ^^^^^^^^ write all of it, like `http://127.0.0.1:8181/v1/data/dns/action`
            Corefile:6:2: error: `upstream` is not served here
              6 |  upstream
                |  ^^^^^^^^ CoreDNS has removed it: external names are always looked up
            Corefile:11:9: error: `0` is not accepted here
             11 |  minTTL 0
                |         ^ write a whole number from 1 to 2147483647
            Corefile:12:2: error: `ocp_dnsnameresolver` has no option `failurethreshold`
             12 |  failurethreshold 3
                |  ^^^^^^^^^^^^^^^^ did you mean `failureThreshold`?
            Corefile:14:1: error: `kubernetes` stands once in a server block
             14 | kubernetes
                | ^^^^^^^^^^ it is on line 2 already
            Corefile:15:1: error: `policy` asks nobody
             15 | policy {
                | ^^^^^^ add `endpoint HOST:PORT…`
        "#]],
    );
}
