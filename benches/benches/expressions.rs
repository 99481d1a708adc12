//! What a question pays for the expressions of a DNS firewall: lists of typical rules, none of which speaks,
//! so that all are evaluated; single expressions; and a question as the DNS server asks it of a Corefile with
//! such a list, from its bytes to whom it is forwarded, against one of a Corefile without. Allocations are counted beside the time: usual
//! expressions have none. After divan's table come `figure NAME VALUE` lines, each the best of several tries.

use divan::{AllocProfiler, Bencher, black_box};
use namewall_corefile::{NoFiles, read};
use namewall_dns::{Asked, Chain, Step, Transport};
use namewall_dns_firewall::{Service, Strangers, Surroundings, Teller, build};
use namewall_expression::{Expression, Fact, Facts, Value};
use std::borrow::Cow;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
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

/// A Corefile with so many of them; without a list at all where there are none.
fn service(count: usize) -> Service {
    let rules: String = (0..count).map(|number| format!("refuse {}\n", rule(number))).collect();
    let list = if count == 0 { String::new() } else { format!("firewall query {{\n{rules}default allow\n}}\n") };
    let text = format!(". {{\nbind 127.0.0.1\n{list}forward . 192.0.2.53\n}}\n");
    let corefile = read("Corefile", &text, &NoFiles, &|_| None).expect("it is a Corefile");
    let teller = Arc::new(Teller::start(std::io::sink()).expect("a thread can start"));
    let around =
        Surroundings { teller, identities: Arc::new(Strangers), addresses: Vec::new(), names: None, clusters: None };
    build(&corefile, &around).expect("it can be served").service
}

/// A hundred questions.
fn judge(service: &Service) {
    const QUERY: &[u8] = b"\0\0\x01\0\0\x01\0\0\0\0\0\0\x03www\x04shop\x07example\x03com\0\0\x01\0\x01";
    let server = SocketAddr::from(([127, 0, 0, 1], 53));
    for port in 0..100 {
        let asked =
            Asked { query: QUERY, client: (QUESTION.client, 40_000 + port).into(), server, transport: Transport::Udp };
        assert!(matches!(black_box(service.query(black_box(&asked))), Step::Forward(..)));
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
        for count in [0, 1, 10, 100, 1000] {
            let service = service(count);
            println!("figure judged_{count}_us {:.3}", best(|| judge(&service)) * 1e6 / 100.0);
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

#[divan::bench(args = [0, 1, 10, 100, 1000])]
fn a_hundred_questions(bencher: Bencher<'_, '_>, count: usize) {
    let service = service(count);
    bencher.bench(|| judge(&service));
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
