//! Any text as an expression of the DNS firewall: it is refused with a place that is in it, or evaluated for
//! questions of which much, little and odd things are known.

use namewall_expression::{Expression, Fact, Facts, Kind, Value};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// How much is known, and how.
#[derive(Clone, Copy)]
enum Question {
    Nothing,
    Usual,
    /// All as text, as the shipped plugins have it, with labels nobody expects.
    Odd,
}

impl Facts for Question {
    fn get(&self, fact: &Fact) -> Value<'_> {
        let v4 = IpAddr::V4(Ipv4Addr::new(10, 1, 2, 3));
        let mapped = IpAddr::V6(Ipv4Addr::new(10, 1, 2, 3).to_ipv6_mapped());
        match (self, fact.kind()) {
            (Self::Nothing, _) => Value::UNSET,
            (Self::Usual, Kind::Name) => Value::Text("www.example.com.".into()),
            (Self::Usual, Kind::Number) => Value::Number(53),
            (Self::Usual, Kind::Bool) => Value::Bool(true),
            (Self::Usual, Kind::Address) => Value::Address(v4),
            (_, Kind::List) => Value::Addresses(vec![mapped, Ipv6Addr::LOCALHOST.into()].into()),
            (Self::Usual, _) => Value::Text("A".into()),
            (Self::Odd, Kind::Name) => Value::Text("a\\.b.\\\\.\u{fc}..".into()),
            (Self::Odd, Kind::Address) => Value::Address(mapped),
            (Self::Odd, Kind::Text) => Value::Number(u64::MAX),
            (Self::Odd, _) => Value::Text("65535".into()),
        }
    }
}

pub fn expression(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let expression = match Expression::parse(&text) {
        Ok(expression) => expression,
        Err(error) => {
            assert!(text.get(error.span()).is_some(), "{:?} is a place in the text", error.span());
            assert!(error.to_string().contains(error.message()));
            return;
        }
    };
    assert_eq!(expression.text(), text);
    for question in [Question::Nothing, Question::Usual, Question::Odd] {
        let (truth, value) = (expression.is_true(&question), expression.evaluate(&question));
        if let Err(error) = &truth {
            assert!(text.contains(error.piece()) && !error.piece().is_empty(), "{error}");
        }
        let looked_at = expression.shown(&question);
        let all: Vec<String> = expression.facts().iter().map(Fact::to_string).collect();
        assert!(looked_at.iter().all(|(fact, _)| all.contains(fact)), "{looked_at:?} are among {all:?}");
        // What is drawn by lot differs from one time to the next.
        if !text.contains("random") {
            assert_eq!(truth, value.map(|value| value.is_true()), "{text}");
        }
    }
}
