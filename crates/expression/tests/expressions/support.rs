//! Questions to ask expressions about.

use namewall_expression::{Computed, Expression, Fact, Facts, Value};
use std::net::IpAddr;

#[derive(Clone, Default, Debug)]
pub(crate) struct TestFacts(Vec<(Fact, Value<'static>)>);

impl TestFacts {
    pub(crate) fn with(mut self, name: &str, value: Value<'static>) -> Self {
        let fact = Fact::named(name);
        self.0.retain(|(known, _)| *known != fact);
        self.0.push((fact, value));
        self
    }

    pub(crate) fn text(self, name: &str, value: &str) -> Self {
        self.with(name, Value::Text(value.to_owned().into()))
    }
}

impl Facts for TestFacts {
    fn get(&self, fact: &Fact) -> Value<'_> {
        self.0.iter().find(|(known, _)| known == fact).map_or(Value::UNSET, |(_, value)| value.clone())
    }
}

pub(crate) fn address(text: &str) -> Value<'static> {
    Value::Address(text.parse().expect("an address"))
}

pub(crate) fn addresses(texts: &[&str]) -> Value<'static> {
    let list: Vec<IpAddr> = texts.iter().map(|text| text.parse().expect("an address")).collect();
    Value::Addresses(list.into())
}

/// A question of a pod, at the query point: nothing is known of an answer.
pub(crate) fn query() -> TestFacts {
    TestFacts::default()
        .text("name", "www.example.com.")
        .text("type", "A")
        .text("class", "IN")
        .text("proto", "udp")
        .with("client_ip", address("172.23.4.5"))
        .with("port", Value::Number(40000))
        .with("server_ip", address("172.23.0.10"))
        .with("server_port", Value::Number(53))
        .with("size", Value::Number(44))
        .with(">id", Value::Number(7))
        .with(">opcode", Value::Number(0))
        .with(">bufsize", Value::Number(1232))
        .with(">do", Value::Bool(true))
        .text("request/client_id", "infoblox-7")
        .text("kubernetes/client-namespace", "shop")
        .text("kubernetes/client-label/app", "web")
        .text("kubernetes/client-label/security", "5")
        .text("kubernetes/client-label/trusted", "false")
}

/// The same with an answer of two addresses, the second of which is being judged.
pub(crate) fn response() -> TestFacts {
    query()
        .text("rcode", "NOERROR")
        .with("rsize", Value::Number(90))
        .text(">rflags", "qr,rd,ra")
        .with("response_ip", address("10.9.8.7"))
        .with("response/ips", addresses(&["192.0.2.1", "10.9.8.7"]))
}

pub(crate) fn read(text: &str) -> Expression {
    Expression::parse(text).unwrap_or_else(|error| panic!("{error}"))
}

/// The value as it would be written in an expression, or `error: …`.
pub(crate) fn value(text: &str, facts: &dyn Facts) -> String {
    match read(text).evaluate(facts) {
        Ok(value) => written(&value),
        Err(error) => format!("error: {error}"),
    }
}

fn written(value: &Computed<'_>) -> String {
    match value {
        Computed::Text(text) => format!("'{text}'"),
        Computed::List(items) => format!("({})", items.iter().map(written).collect::<Vec<_>>().join(", ")),
        Computed::Addresses(list) => {
            format!("({})", list.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "))
        }
        other => other.to_string(),
    }
}

/// Every expression has its value, for the same question.
pub(crate) fn check(facts: &TestFacts, cases: &[(&str, &str)]) {
    for (text, expected) in cases {
        assert_eq!(&value(text, facts), expected, "{text}");
    }
}

/// Every expression holds, or not, for the same question; and evaluates to the same.
pub(crate) fn holds(facts: &TestFacts, cases: &[(&str, bool)]) {
    for (text, expected) in cases {
        let expression = read(text);
        assert_eq!(expression.is_true(facts), Ok(*expected), "{text}");
        assert_eq!(expression.evaluate(facts).map(|value| value.is_true()), Ok(*expected), "{text}");
    }
}
