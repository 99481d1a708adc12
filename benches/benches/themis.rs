//! What a question costs where Themis' policies are evaluated in process: by a
//! hundred rules of which the last one applies, and by a map of ten thousand
//! domains; and what reading such a map costs at the start. After divan's table
//! come `figure NAME VALUE` lines, each the best of several tries.

use divan::counter::ItemsCount;
use divan::{Bencher, black_box};
use namewall_engines::themis::codec::{Attribute, Effect};
use namewall_engines::themis::policy::{File, Policies};
use namewall_engines::themis::{Name, Settings, Source, ThemisEngine, Value};
use namewall_engines::{Engine, Judged};
use namewall_expression::{Fact, Facts, Outcome, Value as Known};
use std::fmt::Write;
use std::sync::LazyLock;
use std::time::Instant;

const RULES: usize = 100;
const DOMAINS: usize = 10_000;
const NAMES: usize = 1_000;

fn rules() -> Policies {
    let mut text = String::from(
        "attributes: {type: string, domain_name: domain, dns_qtype: string, source_ip: address}\n\
         policies:\n  alg: FirstApplicableEffect\n  rules:\n",
    );
    for number in 0..RULES {
        let (second, third) = (number / 16, number % 16 * 16);
        writeln!(
            text,
            "  - target: [{{contains: [{{val: {{type: network, content: 10.{second}.{third}.0/24}}}}, {{attr: source_ip}}]}}]\n    \
             effect: {}",
            if number % 2 == 0 { "Permit" } else { "Deny" },
        )
        .expect("a String takes all");
    }
    Policies::read(File { name: "rules.yaml", text: &text }, &[]).expect("it is a policy")
}

fn content() -> String {
    let entries: Vec<String> = (0..DOMAINS).map(|number| format!("\"zone{number}.example\": \"deny\"")).collect();
    format!(
        "{{\"id\": \"content\", \"items\": {{\"action\": {{\"keys\": [\"domain\"], \"type\": \"string\", \"data\": {{\n{}\n}}}}}}}}",
        entries.join(",\n")
    )
}

fn map(content: &str) -> Policies {
    let text = "attributes: {type: string, domain_name: domain, dns_qtype: string, source_ip: address, policy_id: string}\n\
         policies:\n  alg: {id: Mapper, map: {selector: {uri: 'local:content/action', path: [{attr: domain_name}], type: string}}, default: permit}\n  \
         rules:\n  - {id: permit, effect: Permit}\n  - {id: deny, effect: Deny, obligations: [{policy_id: {val: {type: string, content: listed}}}]}\n";
    Policies::read(File { name: "map.yaml", text }, &[File { name: "content.json", text: content }])
        .expect("it is a policy")
}

/// Names in no order; of every two one is below a domain of the map.
fn name(at: usize) -> String {
    match at % 2 {
        0 => format!("www.shop.zone{}.example", at * 7_919 % DOMAINS),
        _ => format!("www.shop{at}.elsewhere.example"),
    }
}

fn request(name: &str, client: &str) -> Vec<Attribute> {
    vec![
        Attribute::new("type", Value::string("query")),
        Attribute::new("domain_name", Value::Domain(Name::parse(name).expect("it is a name"))),
        Attribute::new("dns_qtype", Value::string("1")),
        Attribute::new("source_ip", Value::Address(client.parse().expect("it is an address"))),
    ]
}

static ASKED: LazyLock<Vec<Vec<Attribute>>> =
    LazyLock::new(|| (0..NAMES).map(|at| request(&name(at), "10.6.48.7")).collect());

struct Question {
    name: String,
}

impl Facts for Question {
    fn get(&self, fact: &Fact) -> Known<'_> {
        match fact {
            Fact::Name => Known::Text(self.name.as_str().into()),
            Fact::Type => Known::Text("A".into()),
            Fact::ClientIp => Known::Address([10, 6, 48, 7].into()),
            _ => Known::UNSET,
        }
    }
}

fn engine(policies: Policies) -> ThemisEngine {
    ThemisEngine::start(Settings::new("bench", Source::Policies(policies))).expect("it starts")
}

fn questions() -> Vec<Question> {
    (0..NAMES).map(|at| Question { name: name(at) + "." }).collect()
}

fn main() {
    divan::main();
    // Who asks for a part, or for a list, wants no figures.
    if std::env::args().skip(1).all(|argument| argument == "--bench") {
        for (name, policies) in [("rules", rules()), ("map", map(&content()))] {
            let (engine, questions) = (engine(policies), questions());
            let seconds = || {
                let start = Instant::now();
                questions.iter().for_each(|question| _ = black_box(engine.judge(black_box(question))));
                start.elapsed().as_secs_f64()
            };
            let best = (0..50).map(|_| seconds()).fold(f64::INFINITY, f64::min);
            println!("figure themis_{name}_us {:.2}", best * 1e6 / NAMES as f64);
        }
    }
}

#[divan::bench]
fn decide_by_the_last_of_100_rules(bencher: Bencher<'_, '_>) {
    let policies = rules();
    assert_eq!(policies.decide(&ASKED[0]).effect, Effect::Deny);
    bencher.counter(ItemsCount::new(NAMES)).bench_local(|| {
        for attributes in &*ASKED {
            black_box(policies.decide(black_box(attributes)));
        }
    });
}

#[divan::bench]
fn decide_by_a_map_of_10k_domains(bencher: Bencher<'_, '_>) {
    let policies = map(&content());
    assert_eq!([0, 1].map(|at| policies.decide(&ASKED[at]).effect), [Effect::Deny, Effect::Permit]);
    bencher.counter(ItemsCount::new(NAMES)).bench_local(|| {
        for attributes in &*ASKED {
            black_box(policies.decide(black_box(attributes)));
        }
    });
}

/// From facts to an outcome, names read and all.
#[divan::bench]
fn judge_by_a_map_of_10k_domains(bencher: Bencher<'_, '_>) {
    let (engine, questions) = (engine(map(&content())), questions());
    assert!(matches!(engine.judge(&questions[0]), Judged::Now(Ok(said)) if said.outcome == Outcome::Block));
    bencher.counter(ItemsCount::new(NAMES)).bench_local(|| {
        for question in &questions {
            black_box(engine.judge(black_box(question)));
        }
    });
}

#[divan::bench(sample_count = 10)]
fn read_a_map_of_10k_domains(bencher: Bencher<'_, '_>) {
    let content = content();
    bencher.bench_local(|| map(black_box(&content)));
}
