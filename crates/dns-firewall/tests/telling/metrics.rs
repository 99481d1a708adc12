//! `prometheus`: what is counted, and that it is told in the format.

use crate::support::{Serving, Telling, ask_by_tcp, eventually, serve};
use namewall_dns_firewall::METRICS;
use std::collections::{BTreeMap, BTreeSet};

const CACHED: &str = ".:PORT {
   prometheus :0
   cache
   firewall query {
      refuse name == 'refused.example.'
      block  name == 'broken.example.' && atoi([kubernetes/client-label/none]) == 1
      drop   name == 'silent.example.'
      default allow
   }
   firewall response {
      block response_ip == '192.0.2.1' && name == 'bad.example.'
   }
   forward . UPSTREAM
}";

/// The samples, held to the format: every family has its head before it and stands in one piece, no
/// sample stands twice, and a histogram's buckets grow up to its count.
fn samples(text: &str) -> BTreeMap<String, f64> {
    let mut samples = BTreeMap::new();
    let (mut family, mut families) = (String::new(), BTreeSet::new());
    let mut buckets: (String, f64) = Default::default();
    for line in text.lines() {
        if let Some(head) = line.strip_prefix("# ") {
            let words: Vec<&str> = head.split(' ').collect();
            match words[0] {
                "HELP" => {
                    assert!(words.len() > 2 && families.insert(words[1].to_owned()), "{line}");
                    family = words[1].to_owned();
                }
                "TYPE" => {
                    assert!(words[1] == family && ["counter", "gauge", "histogram"].contains(&words[2]), "{line}")
                }
                other => panic!("{other}"),
            }
            continue;
        }
        let (name, value) = line.rsplit_once(' ').expect(line);
        let value: f64 = value.parse().expect(line);
        let bare = name.split('{').next().unwrap();
        let of_histogram = ["_bucket", "_sum", "_count"].iter().find_map(|end| bare.strip_suffix(end));
        assert!(bare == family || of_histogram == Some(&family), "{line} is not of {family}");
        assert!(name == bare || name.ends_with("\"}"), "{line}");
        if let Some((_, rest)) = name.split_once("{le=\"") {
            let labels = format!("{bare}{}", rest.split_once('"').unwrap().1);
            let last = if buckets.0 == labels { buckets.1 } else { 0.0 };
            assert!(value >= last, "{line}");
            buckets = (labels, value);
        }
        assert!(samples.insert(name.to_owned(), value).is_none(), "{line} stands twice");
    }
    samples
}

fn value(serving: &Serving, name: &str) -> f64 {
    let name = name.replace("SERVER", &format!("server=\"dns://:{}\"", serving.at.port()));
    samples(&serving.metrics()).get(&name).copied().unwrap_or_default()
}

#[test]
fn questions_answers_and_decisions_are_counted() {
    let telling = Telling::new();
    let serving = serve(&telling, CACHED);
    for _ in 0..2 {
        assert_eq!(serving.ask("www.example", 1), Some(0));
        assert_eq!(serving.ask("nx.example", 28), Some(3));
    }
    assert_eq!(ask_by_tcp(serving.at, "www.example", 65_280), 0);
    assert_eq!(serving.ask("refused.example", 1), Some(5));
    assert_eq!(serving.ask("broken.example", 1), Some(2));
    assert_eq!(serving.ask("bad.example", 1), Some(3));
    assert_eq!(serving.ask("silent.example", 1), None);
    assert_eq!(serving.ask("dead.example", 1), Some(2));
    let requests = |kind: &str, proto: &str| {
        value(
            &serving,
            &format!(
                "coredns_dns_requests_total{{SERVER,zone=\".\",view=\"\",proto=\"{proto}\",family=\"1\",type=\"{kind}\"}}"
            ),
        )
    };
    assert_eq!((requests("A", "udp"), requests("AAAA", "udp"), requests("other", "tcp")), (7.0, 2.0, 1.0));
    let by = |rcode: &str, plugin: &str| {
        let labels = format!("SERVER,zone=\".\",view=\"\",rcode=\"{rcode}\",plugin=\"{plugin}\"");
        value(&serving, &format!("coredns_dns_responses_total{{{labels}}}"))
    };
    let responses = |rcode| ["", "cache", "firewall", "forward"].iter().map(|plugin| by(rcode, plugin)).sum::<f64>();
    // Who is met with silence has no answer.
    assert_eq!((responses("NOERROR"), responses("NXDOMAIN")), (3.0, 3.0));
    assert_eq!((responses("REFUSED"), responses("SERVFAIL")), (1.0, 2.0));
    assert_eq!((by("NOERROR", "cache"), by("NOERROR", "forward"), by("REFUSED", "firewall")), (1.0, 2.0, 1.0));
    let sizes = |of: &str, proto: &str| {
        let labels = format!("SERVER,zone=\".\",view=\"\",proto=\"{proto}\"");
        let of = format!("coredns_dns_{of}_size_bytes");
        (value(&serving, &format!("{of}_count{{{labels}}}")), value(&serving, &format!("{of}_sum{{{labels}}}")))
    };
    assert_eq!(sizes("request", "tcp"), (1.0, 29.0));
    assert_eq!(sizes("request", "udp").0, 9.0);
    assert_eq!((sizes("response", "udp").0, sizes("response", "tcp").0), (8.0, 1.0));
    assert_eq!(value(&serving, "coredns_dns_request_duration_seconds_count{SERVER,zone=\".\",view=\"\"}"), 10.0);
    assert!(value(&serving, "coredns_dns_request_duration_seconds_sum{SERVER,zone=\".\",view=\"\"}") > 0.1);
    let decisions = |point: &str, outcome: &str, rule: &str| {
        let labels = format!("SERVER,point=\"{point}\",outcome=\"{outcome}\",rule=\"Corefile:{rule}\"");
        value(&serving, &format!("namewall_firewall_decisions_total{{{labels}}}"))
    };
    assert_eq!(decisions("query", "refuse", "5:7"), 1.0);
    assert_eq!(decisions("query", "error", "6:7"), 1.0);
    assert_eq!(decisions("query", "drop", "7:7"), 1.0);
    assert_eq!(decisions("query", "allow", "4:4"), 7.0, "at the end of the list");
    assert_eq!(decisions("response", "block", "11:7"), 1.0);
    assert_eq!(decisions("response", "allow", "10:4"), 5.0);
}

#[test]
fn a_rule_with_a_name_is_counted_by_it_wherever_its_line_is() {
    let telling = Telling::new();
    let named = CACHED.replace("refuse name == 'refused.example.'", "rule no refuse name == 'refused.example.'");
    // The counts of two servers at different ports are two series, so each has one.
    for text in [named.clone(), named.replace("   cache\n", "   cache\n\n   errors\n")] {
        let serving = serve(&telling, &text);
        assert_eq!(serving.ask("refused.example", 1), Some(5));
        let labels = "SERVER,point=\"query\",outcome=\"refuse\",rule=\"no\"";
        assert_eq!(value(&serving, &format!("namewall_firewall_decisions_total{{{labels}}}")), 1.0);
    }
}

#[test]
fn the_cache_and_upstreams_are_counted() {
    let telling = Telling::new();
    let serving = serve(&telling, CACHED);
    for name in ["www.example", "www.example", "www.example", "nx.example", "nx.example"] {
        serving.ask(name, 1);
    }
    let hits = |kind: &str| {
        value(&serving, &format!("coredns_cache_hits_total{{SERVER,type=\"{kind}\",zones=\".\",view=\"\"}}"))
    };
    assert_eq!((hits("success"), hits("denial")), (2.0, 1.0));
    assert_eq!(value(&serving, "coredns_cache_misses_total{SERVER,zones=\".\",view=\"\"}"), 2.0);
    let entries =
        |kind: &str| value(&serving, &format!("coredns_cache_entries{{SERVER,type=\"{kind}\",zones=\".\",view=\"\"}}"));
    assert_eq!((entries("success"), entries("denial")), (1.0, 1.0));
    let of_upstreams = samples(&serving.metrics());
    let counts =
        of_upstreams.iter().filter(|(name, _)| name.starts_with("coredns_proxy_request_duration_seconds_count{"));
    let counts: Vec<(&str, f64)> =
        counts.map(|(name, value)| (name.rsplit_once("rcode=").unwrap().1, *value)).collect();
    assert_eq!(counts, [("\"NOERROR\"}", 1.0), ("\"NXDOMAIN\"}", 1.0)]);
}

#[test]
fn an_engine_is_counted_by_its_name_with_how_long_it_took_and_how_often_it_failed() {
    // Nobody listens there.
    let telling = Telling::new();
    let serving = serve(
        &telling,
        ".:PORT {
   prometheus :0
   themis far { endpoint 127.0.0.1:1
      connection_timeout 10ms
   }
   firewall query { themis far }
}",
    );
    assert_eq!(serving.ask("www.example", 1), Some(2));
    assert_eq!(value(&serving, "namewall_firewall_engine_failures_total{SERVER,engine=\"themis far\"}"), 1.0);
    assert_eq!(value(&serving, "namewall_firewall_engine_duration_seconds_count{SERVER,engine=\"themis far\"}"), 1.0);
}

#[test]
fn counts_go_on_when_the_corefile_is_read_again_and_those_of_rules_that_are_gone_end() {
    let corefile = |rules: &str| {
        format!(".:PORT {{\n   prometheus :0\n   firewall query {{\n      {rules}\n      default block\n   }}\n}}")
    };
    let telling = Telling::new();
    let mut serving = serve(&telling, &corefile("allow name == 'a.example.'\n      refuse true"));
    serving.ask("b.example", 1);
    let total = "coredns_dns_requests_total{SERVER,zone=\".\",view=\"\",proto=\"udp\",family=\"1\",type=\"A\"}";
    let refused = "namewall_firewall_decisions_total{SERVER,point=\"query\",outcome=\"refuse\",rule=\"Corefile:5:7\"}";
    assert_eq!((value(&serving, total), value(&serving, refused)), (1.0, 1.0));
    let at = serving.endpoints.addresses();
    serving.reload(&telling, &corefile("allow name == 'a.example.'"));
    assert_eq!(serving.endpoints.addresses(), at);
    // The server takes the new one up when it gets to it.
    eventually("the rule is gone", || (value(&serving, refused) == 0.0).then_some(()));
    serving.ask("b.example", 1);
    assert_eq!(value(&serving, total), 2.0);
}

#[test]
fn the_table_has_every_metric_with_its_type() {
    let serving = serve(&Telling::new(), CACHED);
    let text = serving.metrics();
    let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    let exported: BTreeSet<String> =
        types.map(str::to_owned).filter(|line| !line.contains("namewall_build_info")).collect();
    let declared = METRICS.iter().map(|metric| format!("{} {}", metric.name, metric.kind.word())).collect();
    assert_eq!(exported, declared);
}

#[test]
fn blocks_are_counted_apart_and_only_where_it_is_asked_for() {
    let telling = Telling::new();
    let serving = serve(
        &telling,
        "a.example:PORT b.example:PORT {
   prometheus :0
   firewall query { refuse true }
}
c.example:PORT {
   firewall query { refuse true }
}",
    );
    for name in ["www.a.example", "a.example", "b.example", "c.example"] {
        assert_eq!(serving.ask(name, 1), Some(5));
    }
    let responses = |zone: &str| {
        value(
            &serving,
            &format!(
                "coredns_dns_responses_total{{SERVER,zone=\"{zone}\",view=\"\",rcode=\"REFUSED\",plugin=\"firewall\"}}"
            ),
        )
    };
    assert_eq!((responses("a.example."), responses("b.example."), responses("c.example.")), (2.0, 1.0, 0.0));
}
