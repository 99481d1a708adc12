//! What a question pays for the expressions of a DNS firewall: lists of typical rules, none of which speaks,
//! so that all are evaluated; and single expressions. Allocations are counted beside the time: usual
//! expressions have none. After divan's table come `figure NAME VALUE` lines, each the best of several tries.

use divan::{AllocProfiler, Bencher, black_box};
use namewall_firewall::{Expression, Fact, Facts, Value};
use std::borrow::Cow;
use std::net::IpAddr;
use std::time::Instant;

#[global_allocator]
static ALLOCATIONS: AllocProfiler = AllocProfiler::system();

/// A question as a server knows it: nothing is made for who asks.
struct Question {
    client: IpAddr,
    labels: [(&'static str, &'static str); 3],
}

const QUESTION: Question = Question {
    client: IpAddr::V4(std::net::Ipv4Addr::new(172, 23, 4, 5)),
    labels: [
        ("kubernetes/client-namespace", "shop"),
        ("kubernetes/client-pod-name", "web-0"),
        ("kubernetes/client-label/app", "web"),
    ],
};

impl Facts for Question {
    fn get(&self, fact: &Fact) -> Value<'_> {
        match fact {
            Fact::Name => Value::Text(Cow::Borrowed("www.shop.example.com.")),
            Fact::Type => Value::Text(Cow::Borrowed("A")),
            Fact::Protocol => Value::Text(Cow::Borrowed("udp")),
            Fact::ClientIp => Value::Address(self.client),
            Fact::ClientPort => Value::Number(40000),
            Fact::BufferSize => Value::Number(1232),
            Fact::Label(label) => {
                let known = self.labels.iter().find(|(name, _)| **name == **label);
                known.map_or(Value::UNSET, |(_, value)| Value::Text(Cow::Borrowed(value)))
            }
            _ => Value::UNSET,
        }
    }
}

/// As people write them; a pattern in ten.
fn rule(number: usize) -> String {
    let (high, low) = (number / 256, number % 256);
    match number % 10 {
        0 | 5 => format!("in-cidr(client_ip, 10.{low}.0.0/16) and type == 'A'"),
        1 | 6 => format!("under(name, 'team{number}.example')"),
        2 => format!("name == 'host{number}.example.com' or name == 'host{number}.example.net'"),
        3 => format!("[kubernetes/client-namespace] == 'team{number}' and type in ('A', 'AAAA')"),
        4 => format!("type == 'TXT' and in-cidr(client_ip, 192.168.{low}.0/24, 2001:db8:{high:x}::/48)"),
        7 => format!("client_ip in (10.0.{low}.1, 10.0.{low}.2, 10.0.{low}.3) and proto == 'tcp'"),
        8 => format!(">bufsize > 4096 and port < {}", number % 1024),
        _ => format!("name =~ '^ads{number}\\.'"),
    }
}

fn rules(count: usize) -> Vec<Expression> {
    (0..count).map(|number| Expression::parse(&rule(number)).expect("it is an expression")).collect()
}

fn all(rules: &[Expression]) {
    let question: &dyn Facts = black_box(&QUESTION);
    for rule in rules {
        assert_eq!(black_box(rule.is_true(question)), Ok(false));
    }
}

fn main() {
    // Patterns make room for themselves when they are first used.
    divan::main();
    if std::env::args().skip(1).all(|argument| argument == "--bench") {
        for count in [1, 10, 100, 1000] {
            let rules = rules(count);
            println!("figure expressions_{count}_ns {:.1}", best(|| all(&rules)) * 1e9);
        }
        for (name, text) in SINGLE {
            let expression = Expression::parse(text).expect("it is an expression");
            println!("figure expression_{name}_ns {:.1}", best(|| single(&expression)) * 1e9 / 1000.0);
        }
    }
}

const SINGLE: [(&str, &str); 4] = [
    ("cidr_and_type", "in-cidr(client_ip, 172.16.0.0/12) and type == 'A'"),
    ("under", "under(name, 'example.com')"),
    ("pattern", r"name =~ '^ads[0-9]*\.'"),
    ("label", "[kubernetes/client-label/app] == 'web'"),
];

#[divan::bench(args = [1, 10, 100, 1000])]
fn rules_to_the_end(bencher: Bencher<'_, '_>, count: usize) {
    let rules = rules(count);
    all(&rules);
    bencher.bench(|| all(&rules));
}

#[divan::bench(args = SINGLE.map(|(_, text)| text))]
fn a_thousand_times(bencher: Bencher<'_, '_>, text: &str) {
    let expression = Expression::parse(text).expect("it is an expression");
    single(&expression);
    bencher.bench(|| single(&expression));
}

#[divan::bench]
fn read_an_expression() -> Expression {
    Expression::parse(black_box(SINGLE[0].1)).expect("it is an expression")
}

fn single(expression: &Expression) {
    let question: &dyn Facts = black_box(&QUESTION);
    for _ in 0..1000 {
        let _ = black_box(black_box(expression).is_true(question));
    }
}

fn best(mut action: impl FnMut()) -> f64 {
    let mut seconds = || {
        let start = Instant::now();
        action();
        start.elapsed().as_secs_f64()
    };
    (0..500).map(|_| seconds()).fold(f64::INFINITY, f64::min)
}
