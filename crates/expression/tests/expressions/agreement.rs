//! Two evaluators, one value. Random expressions are written out with no more parentheses than they need,
//! read back, and evaluated by both.
//!
//! The seed is fixed. To look further: `PROPTEST_CASES=100000 PROPTEST_RNG_SEED=7 cargo test -p
//! namewall-expression --test expressions`.

use super::naive::{Exp, Val, Wrong, evaluate, is_true, show};
use super::support::{TestFacts, addresses};
use namewall_expression::{Computed, Expression, Value};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, RngSeed, TestRunner};
use std::cell::Cell;

const TEXTS: [&str; 16] = [
    "",
    "0",
    "5",
    "44",
    "-1.5",
    "false",
    "True",
    "A",
    "a",
    "www.example.com.",
    "WWW.example.com",
    "example.com",
    "com",
    "10.1.2.3",
    "10.0.0.0/8",
    "high",
];
const ADDRESSES: [&str; 5] = ["10.1.2.3", "10.0.0.1", "192.0.2.7", "2001:db8::1", "::1"];
const NETWORKS: [(&str, u8); 5] =
    [("10.0.0.0", 8), ("10.1.0.0", 16), ("0.0.0.0", 0), ("2001:db8::", 32), ("192.0.2.7", 32)];
const PATTERNS: [&str; 6] = ["a", "^W", "com$", "example.com", "^10[.]", "^$"];
const FACTS: [&str; 14] = [
    "name",
    "type",
    "client_ip",
    "port",
    "rsize",
    ">do",
    "response_ip",
    "response/ips",
    "label",
    "label-a",
    "label/b",
    "label.c",
    "label_d",
    "label/never",
];
/// What binds stronger is further down.
const LEVELS: [&[&str]; 10] = [
    &["?"],
    &["??"],
    &["or"],
    &["and"],
    &["not"],
    &["==", "!=", "<", "<=", ">", ">=", "=~", "!~", "in", "not in"],
    &["&", "|", "^"],
    &["<<", ">>"],
    &["+", "-"],
    &["*", "/", "%"],
];
const STRONGEST: usize = LEVELS.len();

fn literal() -> impl Strategy<Value = Exp> {
    let network = |(address, prefix): (&str, u8)| Val::Network(address.parse().expect("an address"), prefix);
    prop_oneof![
        4 => prop::sample::select(&TEXTS[..]).prop_map(|text| Val::Text(text.to_owned())),
        2 => prop::sample::select(vec![0.0, 1.0, 2.0, 5.0, 44.0, 0.5, 65535.0]).prop_map(Val::Number),
        1 => any::<bool>().prop_map(Val::Bool),
        2 => prop::sample::select(&ADDRESSES[..]).prop_map(|text| Val::Address(text.parse().expect("an address"))),
        2 => prop::sample::select(&NETWORKS[..]).prop_map(network),
    ]
    .prop_map(Exp::Value)
}

fn expression() -> impl Strategy<Value = Exp> {
    let leaf = prop_oneof![3 => prop::sample::select(&FACTS[..]).prop_map(Exp::Fact), 2 => literal()];
    leaf.prop_recursive(4, 40, 4, |inner| {
        let signs: Vec<&str> = LEVELS.iter().flat_map(|level| level.iter().copied()).collect();
        let signs: Vec<&str> =
            signs.into_iter().filter(|sign| !["?", "not", "=~", "!~", "in", "not in"].contains(sign)).collect();
        let boxed = |inner: &BoxedStrategy<Exp>| inner.clone().prop_map(Box::new);
        let inner = inner.boxed();
        let list = prop::collection::vec(inner.clone(), 1..4).prop_map(Exp::List);
        let several = prop::collection::vec(inner.clone(), 2..4);
        let one = prop::collection::vec(inner.clone(), 1..2);
        let two = prop::collection::vec(inner.clone(), 2..3);
        let many = prop::sample::select(vec!["in-cidr", "under", "has_suffix", "has_prefix"]);
        let single = prop::sample::select(vec!["atoi", "lower", "count", "len"]);
        prop_oneof![
            8 => (prop::sample::select(signs), boxed(&inner), boxed(&inner)).prop_map(|(sign, a, b)| Exp::Pair(sign, a, b)),
            4 => (prop::sample::select(vec!["in", "not in"]), boxed(&inner), list.clone())
                .prop_map(|(sign, a, list)| Exp::Pair(sign, a, Box::new(list))),
            1 => (boxed(&inner), Just("response/ips")).prop_map(|(a, fact)| Exp::Pair("in", a, Box::new(Exp::Fact(fact)))),
            2 => (prop::sample::select(vec!["=~", "!~"]), boxed(&inner), prop::sample::select(&PATTERNS[..]))
                .prop_map(|(sign, a, text)| Exp::Pair(sign, a, Box::new(Exp::Value(Val::Text(text.to_owned()))))),
            2 => (prop::sample::select(vec!["!", "not", "-", "~"]), boxed(&inner)).prop_map(|(sign, a)| Exp::Prefix(sign, a)),
            2 => (boxed(&inner), boxed(&inner), boxed(&inner)).prop_map(|(a, b, c)| Exp::Choice(a, b, c)),
            3 => (many, several).prop_map(|(name, arguments)| Exp::Call(name, arguments)),
            2 => (single, one).prop_map(|(name, arguments)| Exp::Call(name, arguments)),
            1 => two.prop_map(|arguments| Exp::Call("label", arguments)),
        ]
    })
}

fn level(exp: &Exp) -> usize {
    let of = |sign: &str| LEVELS.iter().position(|level| level.contains(&sign)).expect("a sign has a level");
    match exp {
        Exp::Choice(..) => 0,
        Exp::Pair(sign, ..) => of(sign),
        Exp::Prefix("not", _) => of("not"),
        _ => STRONGEST,
    }
}

/// As weakly bound as `weakest` without parentheses, and no weaker.
fn write(exp: &Exp, weakest: usize) -> String {
    let at = level(exp);
    let text = match exp {
        Exp::Value(Val::Text(text)) => format!("'{text}'"),
        Exp::Value(value) => show(value),
        Exp::Fact(name) => (*name).to_owned(),
        Exp::List(items) => format!("({})", list(items)),
        Exp::Prefix("not", inner) => format!("not {}", write(inner, at)),
        Exp::Prefix(sign, inner) => format!("{sign}{}", write(inner, STRONGEST)),
        Exp::Pair(sign, a, b) => format!("{} {sign} {}", write(a, at), write(b, at + 1)),
        Exp::Choice(a, b, c) => format!("{} ? {} : {}", write(a, 1), write(b, 0), write(c, 0)),
        Exp::Call(name, arguments) => format!("{name}({})", list(arguments)),
    };
    if at < weakest { format!("({text})") } else { text }
}

fn list(items: &[Exp]) -> String {
    items.iter().map(|item| write(item, 0)).collect::<Vec<_>>().join(", ")
}

fn known() -> impl Strategy<Value = TestFacts> {
    let text = || prop::sample::select(&TEXTS[..]);
    let set = |values: Vec<Value<'static>>| prop::sample::select(values);
    let address = |text: &str| Value::Address(text.parse().expect("an address"));
    let ips = || ADDRESSES.iter().map(|text| address(text)).chain([Value::UNSET]).collect::<Vec<_>>();
    let number = |numbers: &[u64]| numbers.iter().map(|&number| Value::Number(number)).chain([Value::UNSET]).collect();
    let names = ["www.example.com.", "example.com.", ".", "evilexample.com.", "a.b.c.d."];
    (
        (prop::sample::select(names.to_vec()), prop::sample::select(vec!["A", "AAAA"])),
        (set(ips()), set(ips())),
        (set(number(&[0, 44, 53, 65535])), set(number(&[0, 512]))),
        set(vec![Value::Bool(true), Value::Bool(false), Value::UNSET]),
        set(vec![addresses(&["10.0.0.1", "::1"]), addresses(&[]), Value::UNSET]),
        (text(), text(), text(), text(), set(ips())),
    )
        .prop_map(|((name, kind), (client, response), (port, size), flag, ips, labels)| {
            TestFacts::default()
                .text("name", name)
                .text("type", kind)
                .with("client_ip", client)
                .with("response_ip", response)
                .with("port", port)
                .with("rsize", size)
                .with(">do", flag)
                .with("response/ips", ips)
                .text("label", labels.0)
                .text("label-a", labels.1)
                .text("label/b", labels.2)
                .text("label.c", labels.3)
                .with("label_d", labels.4)
        })
}

fn naive_value(value: Value<'_>) -> Val {
    match value {
        Value::Text(text) => Val::Text(text.into_owned()),
        Value::Number(number) => Val::Number(number as f64),
        Value::Fraction(number) => Val::Number(number),
        Value::Bool(is) => Val::Bool(is),
        Value::Address(address) => Val::Address(address),
        Value::Addresses(list) => Val::List(list.iter().copied().map(Val::Address).collect()),
    }
}

fn computed(value: &Computed<'_>) -> Val {
    match value {
        Computed::Text(text) => Val::Text(text.to_string()),
        Computed::Number(number) => Val::Number(*number),
        Computed::Bool(is) => Val::Bool(*is),
        Computed::Address(address) => Val::Address(*address),
        Computed::Network(network) => Val::Network(network.address(), network.prefix()),
        Computed::Addresses(list) => Val::List(list.iter().copied().map(Val::Address).collect()),
        Computed::List(items) => Val::List(items.iter().map(computed).collect()),
    }
}

fn runner(cases: u32) -> TestRunner {
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    let seeded = std::env::var_os("PROPTEST_RNG_SEED").is_some();
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(cases);
    TestRunner::new(match seeded {
        true => Config { cases, ..config },
        false => Config { cases, rng_algorithm: RngAlgorithm::ChaCha, rng_seed: RngSeed::Fixed(9), ..config },
    })
}

#[test]
fn both_evaluators_agree() {
    let (read, valued, wrong) = (Cell::new(0u32), Cell::new(0u32), Cell::new(0u32));
    let cases = 6_000;
    let outcome = runner(cases).run(&(expression(), known()), |(exp, known)| {
        let text = write(&exp, 0);
        // What is seen to be wrong at once is not evaluated.
        let Ok(expression) = Expression::parse(&text) else { return Ok(()) };
        read.set(read.get() + 1);
        let facts =
            |name: &str| naive_value(namewall_expression::Facts::get(&known, &namewall_expression::Fact::named(name)));
        let expected = evaluate(&exp, &facts);
        let got = expression.evaluate(&known);
        match (&got, &expected) {
            (Ok(_), _) => valued.set(valued.get() + 1),
            _ => wrong.set(wrong.get() + 1),
        }
        let told = got.as_ref().map(computed).map_err(|_| Wrong);
        prop_assert_eq!(&told, &expected, "{}", text);
        let truth = expression.is_true(&known).map_err(|_| Wrong);
        prop_assert_eq!(truth, expected.map(|value| is_true(&value)), "{}", text);
        Ok(())
    });
    outcome.unwrap_or_else(|error| panic!("{error}"));
    let (read, valued, wrong) = (read.get(), valued.get(), wrong.get());
    let told = format!("of {cases}, {read} were read, {valued} had a value, {wrong} had none");
    assert!(read > cases / 5 && valued > cases / 6 && wrong > cases / 60, "{told}");
}

#[test]
fn whatever_is_written_is_read_or_refused() {
    let pieces = [
        "(", ")", "[", "]", ",", "'", "\"", "\\", " ", "::", "/", "-", ".", ":", "?", "??", "=~", "~=", "in", "not",
        "and", "!", "~", "**", ">>", ">", "0x", "1", "1e9", "10.0.0.1", "/8", "fe80::1", "a", "name", ">do",
        "in-cidr(", "label(", "ü", "\u{0}", "\t", "\n", "=", "true", "random(", "'^('",
    ];
    let words = prop::collection::vec(prop::sample::select(pieces.to_vec()), 0..14).prop_map(|words| words.concat());
    let text = prop_oneof![words, "\\PC{0,40}", "[ -~]{0,30}"];
    runner(10_000)
        .run(&(text, known()), |(text, known)| {
            match Expression::parse(&text) {
                Ok(expression) => {
                    let _ = expression.is_true(&known);
                    expression.shown(&known);
                    prop_assert!(Expression::parse(expression.text()).is_ok());
                }
                Err(error) => {
                    prop_assert!(text.get(error.span()).is_some(), "{}: {:?}", text, error);
                    prop_assert!(error.to_string().contains(error.message()));
                }
            }
            Ok(())
        })
        .unwrap_or_else(|error| panic!("{error}"));
}
