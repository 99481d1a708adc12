//! A second opinion on S9, written to be seen through: for any small Corefile of expressions and any question and
//! answer, it says what becomes of them, and the service has to say the same.

use crate::support::Firewall;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, RngSeed, TestRunner};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::net::IpAddr;

const ZONES: [&str; 5] = [".", "example.com", "deep.example.com", "example.org", "com"];
/// Each a list of labels, as one of them has a dot in it.
const NAMES: [&[&str]; 7] = [
    &["www", "example", "com"],
    &["example", "com"],
    &["a", "deep", "example", "com"],
    &["notexample", "com"],
    &["evil.example", "com"],
    &["www", "example", "org"],
    &["test"],
];
const TYPES: [&str; 3] = ["A", "AAAA", "TXT"];
const CLIENTS: [&str; 4] = ["10.0.0.1", "192.0.2.200", "fd00::1", "2001:db8::7"];
const ADDRESSES: [&str; 4] = ["192.0.2.1", "198.51.100.1", "2001:db8::1", "fd00::2"];

/// What holds of a question, and of an answer's address.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Condition {
    True,
    False,
    IsA,
    IsTcp,
    UnderExampleCom,
    ClientInside,
    AnswerInside,
    AnswerIs,
    IsNxDomain,
    TwoAddresses,
    NotSet,
    Fails,
}

use Condition::*;

impl Condition {
    fn is_of_response(self) -> bool {
        matches!(self, AnswerInside | AnswerIs | IsNxDomain | TwoAddresses)
    }
}

const CONDITIONS: [(Condition, &str); 12] = [
    (True, "true"),
    (False, "false"),
    (IsA, "type == 'A'"),
    (IsTcp, "proto == 'tcp'"),
    (UnderExampleCom, "under(name, 'example.com')"),
    (ClientInside, "in-cidr(client_ip, 10.0.0.0/8, fd00::/8)"),
    (AnswerInside, "in-cidr(response_ip, 192.0.2.0/24, 2001:db8::/32)"),
    (AnswerIs, "response_ip == '198.51.100.1'"),
    (IsNxDomain, "rcode == 'NXDOMAIN'"),
    (TwoAddresses, "len([response/ips]) > 1"),
    (NotSet, "[kubernetes/client-label/none] != ''"),
    (Fails, "atoi([kubernetes/client-label/none]) > 1"),
];

#[derive(Clone, Copy, PartialEq, Debug)]
enum Action {
    Allow,
    Block,
    Refuse,
    Drop,
    Log,
    Redirect,
}

#[derive(Clone, Debug)]
struct List {
    is_response: bool,
    /// None is the shipped form.
    zones: Option<Vec<&'static str>>,
    rules: Vec<(Action, Condition)>,
    default: Option<Action>,
    passthrough: Option<&'static str>,
}

#[derive(Clone, Debug)]
struct Question {
    name: &'static [&'static str],
    kind: &'static str,
    client: &'static str,
    is_tcp: bool,
    is_nx_domain: bool,
    addresses: Vec<&'static str>,
}

/// Blocks by their zones.
type Blocks = BTreeMap<&'static str, Vec<List>>;

fn word(action: Action) -> &'static str {
    match action {
        Action::Allow => "allow",
        Action::Block => "block",
        Action::Refuse => "refuse",
        Action::Drop => "drop",
        Action::Log => "log",
        Action::Redirect => "redirect 192.0.2.99",
    }
}

fn written(blocks: &Blocks) -> String {
    let mut text = String::new();
    for (zone, lists) in blocks {
        writeln!(text, "{zone}:53 {{\n    forward . 192.0.2.53").unwrap();
        for list in lists {
            let zones = list.zones.iter().flatten().copied().collect::<Vec<_>>().join(" ");
            let point = if list.is_response { "response" } else { "query" };
            writeln!(text, "    firewall {zones} {point} {{").unwrap();
            if let Some(zone) = list.passthrough {
                writeln!(text, "        passthrough {zone}").unwrap();
            }
            for (action, condition) in &list.rules {
                let expression = CONDITIONS.iter().find(|(known, _)| known == condition).unwrap().1;
                writeln!(text, "        {} {expression}", word(*action)).unwrap();
            }
            if let Some(default) = list.default {
                writeln!(text, "        default {}", word(default)).unwrap();
            }
            text.push_str("    }\n");
        }
        text.push_str("}\n");
    }
    text
}

/// Whether a zone has a name: the name ends with its labels.
fn has(zone: &str, name: &[&str]) -> bool {
    let labels: Vec<&str> = zone.split('.').filter(|label| !label.is_empty()).collect();
    name.ends_with(&labels)
}

fn depth(zone: &str) -> usize {
    zone.split('.').filter(|label| !label.is_empty()).count()
}

fn is_within(address: &str, v4: &str, v6: u16) -> bool {
    match address.parse::<IpAddr>().unwrap() {
        IpAddr::V4(address) => address.to_string().starts_with(v4),
        IpAddr::V6(address) if v6 == 0xfd00 => address.segments()[0] >> 8 == 0xfd,
        IpAddr::V6(address) => address.segments()[..2] == [v6, 0xdb8],
    }
}

/// Whether a condition holds; none is an error.
fn holds(condition: Condition, question: &Question, address: Option<&str>) -> Option<bool> {
    Some(match condition {
        True => true,
        False | NotSet => false,
        IsA => question.kind == "A",
        IsTcp => question.is_tcp,
        UnderExampleCom => has("example.com", question.name),
        ClientInside => is_within(question.client, "10.", 0xfd00),
        AnswerInside => address.is_some_and(|address| is_within(address, "192.0.2.", 0x2001)),
        AnswerIs => address == Some("198.51.100.1"),
        IsNxDomain => question.is_nx_domain,
        TwoAddresses => question.addresses.len() > 1,
        Fails => return None,
    })
}

/// What a list says of one address: none is an error.
fn of_list(list: &List, question: &Question, address: Option<&str>) -> Option<Action> {
    for (action, condition) in &list.rules {
        if holds(*condition, question, address)? && *action != Action::Log {
            return Some(*action);
        }
    }
    Some(match (list.default, &list.zones, list.is_response) {
        (Some(default), ..) => default,
        (None, None, true) => Action::Allow,
        (None, ..) => Action::Block,
    })
}

/// Lists of a point without zones are one list.
fn merged(lists: &[List], is_response: bool) -> Vec<List> {
    let mut merged: Vec<List> = Vec::new();
    for list in lists.iter().filter(|list| list.is_response == is_response) {
        match merged.iter_mut().find(|first| first.zones.is_none() && list.zones.is_none()) {
            Some(first) => {
                first.rules.extend(&list.rules);
                first.default = first.default.or(list.default);
            }
            None => merged.push(list.clone()),
        }
    }
    merged
}

/// Lists that would contradict each other in one list do not.
fn agreeing(mut lists: Vec<List>) -> Vec<List> {
    for is_response in [false, true] {
        let is_one = |list: &&mut List| list.is_response == is_response && list.zones.is_none();
        let mut of_one: Vec<&mut List> = lists.iter_mut().filter(is_one).collect();
        if of_one.len() > 1 {
            let default = of_one.iter().find_map(|list| list.default);
            for list in &mut of_one {
                list.passthrough = None;
                list.default = list.default.and(default);
            }
        }
    }
    lists
}

/// What all lists of a point say: the action, and whether a drop is silence.
fn of_lists(lists: &[List], is_response: bool, question: &Question) -> (Option<Action>, bool) {
    let mut result = (Some(Action::Allow), false);
    for list in &merged(lists, is_response) {
        let is_meant = list.zones.as_ref().is_none_or(|zones| zones.iter().any(|zone| has(zone, question.name)));
        let passes = list.passthrough.is_some_and(|zone| has(zone, question.name));
        if !is_meant || passes {
            continue;
        }
        let looks = |(_, condition): &(Action, Condition)| matches!(condition, AnswerInside | AnswerIs);
        let addresses: Vec<Option<&str>> = match is_response && list.rules.iter().any(looks) {
            true if !question.addresses.is_empty() => question.addresses.iter().map(|one| Some(*one)).collect(),
            _ => vec![None],
        };
        for address in addresses {
            match of_list(list, question, address) {
                Some(Action::Allow) => {}
                Some(Action::Redirect) => result.0 = Some(Action::Redirect),
                other => return (other, list.zones.is_none()),
            }
        }
    }
    result
}

/// What a client gets who does not get an answer.
fn denial(action: Option<Action>, is_silent: bool, zone: &str) -> String {
    let owner = if zone == "." { ".".to_owned() } else { format!("{zone}.") };
    match action {
        None => "SERVFAIL".to_owned(),
        Some(Action::Refuse) => "REFUSED".to_owned(),
        Some(Action::Drop) if is_silent => "silence".to_owned(),
        Some(Action::Drop) => format!("NOERROR; authority {owner} 60 SOA 60"),
        _ => format!("NXDOMAIN; authority {owner} 60 SOA 60"),
    }
}

/// What becomes of a question, and then of its answer.
fn judged(blocks: &Blocks, question: &Question) -> (String, String) {
    let fitting = blocks.iter().enumerate().filter(|(_, (zone, _))| has(zone, question.name));
    let Some((number, (zone, lists))) = fitting.max_by_key(|(_, (zone, _))| depth(zone)) else {
        return ("REFUSED".to_owned(), "REFUSED".to_owned());
    };
    let to = match of_lists(lists, false, question) {
        (Some(Action::Allow), _) => format!("route {number}"),
        (Some(Action::Redirect), _) => "asked of 192.0.2.99:53".to_owned(),
        (action, is_silent) => {
            let denial = denial(action, is_silent, zone);
            return (denial.clone(), denial);
        }
    };
    let passing = match of_lists(lists, true, question) {
        (Some(Action::Allow), _) => "pass".to_owned(),
        (action, is_silent) => denial(action, is_silent, zone),
    };
    (to, passing)
}

fn list() -> impl Strategy<Value = List> {
    let zone = || prop::sample::select(&ZONES[..]);
    let actions = vec![Action::Allow, Action::Block, Action::Refuse, Action::Drop, Action::Log, Action::Redirect];
    let condition = prop::sample::select(CONDITIONS.map(|(condition, _)| condition).to_vec());
    let rule = (prop::sample::select(actions), condition);
    let defaults = vec![None, None, Some(Action::Allow), Some(Action::Allow), Some(Action::Refuse), Some(Action::Drop)];
    (
        any::<bool>(),
        prop::option::of(prop::collection::vec(zone(), 1..3)),
        prop::collection::vec(rule, 0..5),
        prop::sample::select(defaults),
        prop::option::weighted(0.2, zone()),
    )
        .prop_map(|(is_response, zones, mut rules, default, passthrough)| {
            // An answer cannot be redirected.
            rules.retain(|(action, _)| !(is_response && *action == Action::Redirect));
            // A query has nothing of its answer yet.
            rules.retain(|(_, condition)| is_response || !condition.is_of_response());
            List { is_response, zones, rules, default, passthrough }
        })
}

fn question() -> impl Strategy<Value = Question> {
    (
        prop::sample::select(&NAMES[..]),
        prop::sample::select(&TYPES[..]),
        prop::sample::select(&CLIENTS[..]),
        any::<(bool, bool)>(),
        prop::collection::vec(prop::sample::select(&ADDRESSES[..]), 0..4),
    )
        .prop_map(|(name, kind, client, (is_tcp, is_nx_domain), addresses)| {
            let addresses = if is_nx_domain { Vec::new() } else { addresses };
            Question { name, kind, client, is_tcp, is_nx_domain, addresses }
        })
}

#[test]
fn the_service_and_a_naive_reading_of_s9_agree() {
    let config = Config {
        cases: 1_000,
        failure_persistence: None,
        rng_algorithm: RngAlgorithm::ChaCha,
        rng_seed: RngSeed::Fixed(9),
        ..Config::default()
    };
    let lists = prop::collection::vec(list(), 0..4).prop_map(agreeing);
    let blocks = prop::collection::btree_map(prop::sample::select(&ZONES[..]), lists, 1..4);
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let counted = std::cell::RefCell::new(&mut seen);
    let outcome =
        TestRunner::new(config).run(&(blocks, prop::collection::vec(question(), 12)), |(blocks, questions)| {
            let text = written(&blocks);
            let firewall = Firewall::new(&text);
            for question in questions {
                let name: Vec<String> = question.name.iter().map(|label| label.replace('.', "\\.")).collect();
                let over = if question.is_tcp { "tcp" } else { "" };
                let asked = format!("{} {} from {} {over}", question.kind, name.join("."), question.client);
                let mut lines: Vec<String> = Vec::new();
                for address in &question.addresses {
                    lines.push(format!("@ 30 {} {address}", if address.contains(':') { "AAAA" } else { "A" }));
                }
                if question.is_nx_domain {
                    lines.push("NXDOMAIN".to_owned());
                }
                let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
                let (to, passing) = judged(&blocks, &question);
                prop_assert_eq!(firewall.ask(&asked), to.clone(), "{}\n{}", asked, text);
                prop_assert_eq!(firewall.exchange(&asked, &lines), passing.clone(), "{} {:?}\n{}", asked, lines, text);
                for said in [to, passing] {
                    let word = said.split([' ', ';']).next().unwrap_or_default().to_owned();
                    *counted.borrow_mut().entry(word).or_default() += 1;
                }
            }
            Ok(())
        });
    outcome.unwrap_or_else(|error| panic!("{error}"));
    for word in ["route", "asked", "pass", "REFUSED", "NXDOMAIN", "NOERROR", "SERVFAIL", "silence"] {
        assert!(seen.get(word).is_some_and(|count| *count > 50), "there was enough of each: {seen:?}");
    }
}
