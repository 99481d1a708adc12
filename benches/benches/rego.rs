//! What it costs to judge a question by a policy in Rego: some twenty rules, and data of a thousand names
//! and networks. After divan's table come `figure NAME VALUE` lines, each the best of several tries.

use divan::counter::ItemsCount;
use divan::{Bencher, black_box};
use namewall_engines::Engine;
use namewall_engines::opa::{InputField, OpaEngine, OpaSettings, OpaSource, RegoFiles};
use namewall_expression::{Fact, Facts, Outcome, Value};
use std::fmt::Write;
use std::sync::LazyLock;
use std::time::Instant;

const NAMES: usize = 1_000;

/// As policies are written that have grown: a list of what is blocked, teams with domains of their own,
/// networks, a pattern or two, and an order in which all that counts.
const POLICY: &str = r#"package dns

default action := "refuse"

action := "block" if blocked
else := "drop" if dropped
else := "log" if watched
else := "allow" if allowed

blocked if data.blocked[input.name]
blocked if {
	labels := split(trim_suffix(input.name, "."), ".")
	some at in numbers.range(1, 3)
	parent := concat(".", array.slice(labels, at, count(labels)))
	data.blocked_zones[parent]
}
blocked if glob.match("ads*.**", ["."], trim_suffix(input.name, "."))
blocked if {
	input.response_ip != ""
	net.cidr_contains("127.0.0.0/8", input.response_ip)
}

dropped if regex.match(`^[0-9a-f]{32}\.`, input.name)
dropped if count(input.name) > 200

watched if endswith(input.name, ".watched.example.")

internal if endswith(input.name, ".svc.cluster.local.")
internal if endswith(input.name, ".corp.example.")

from_cluster if net.cidr_contains("10.0.0.0/8", input.client_ip)
from_cluster if net.cidr_contains("fd00::/8", input.client_ip)

team := data.clients[input.client_ip]

of_team if {
	some domain in data.teams[team].domains
	endswith(input.name, domain)
}

allowed if { internal; from_cluster }
allowed if of_team
allowed if public
public if { from_cluster; data.public[input.name] }
public if { from_cluster; startswith(input.name, "www.") }
"#;

/// A thousand entries in all.
fn data() -> String {
    let list = |count: usize, entry: &dyn Fn(usize) -> String| (0..count).map(entry).collect::<Vec<_>>().join(",");
    let mut text = String::from("{");
    let _ = write!(text, r#""blocked":{{{}}},"#, list(500, &|n| format!(r#""bad{n}.example.":true"#)));
    let _ = write!(text, r#""blocked_zones":{{{}}},"#, list(200, &|n| format!(r#""zone{n}.example":true"#)));
    let _ = write!(text, r#""public":{{{}}},"#, list(100, &|n| format!(r#""api{n}.example.":true"#)));
    let _ = write!(text, r#""clients":{{{}}},"#, list(150, &|n| format!(r#""10.0.0.{n}":"team{}""#, n % 50)));
    let team = |n| format!(r#""team{n}":{{"domains":[".team{n}.example.",".shared.example."]}}"#);
    let _ = write!(text, r#""teams":{{{}}}}}"#, list(50, &team));
    text
}

struct Asked {
    name: String,
    client: String,
}

impl Facts for Asked {
    fn get(&self, fact: &Fact) -> Value<'_> {
        match fact {
            Fact::Name => Value::Text((&*self.name).into()),
            Fact::ClientIp => Value::Text((&*self.client).into()),
            _ => Value::UNSET,
        }
    }
}

/// Of each seven, one by every way through the policy.
fn asked(number: usize) -> (Asked, Outcome) {
    let (name, outcome) = match number % 7 {
        0 => (format!("bad{}.example.", number % 500), Outcome::Block),
        1 => (format!("www.zone{}.example.", number % 200), Outcome::Block),
        2 => (format!("{number:032x}.example."), Outcome::Drop),
        3 => (format!("a{number}.watched.example."), Outcome::Log),
        4 => (format!("db{number}.shop.svc.cluster.local."), Outcome::Allow),
        5 => (format!("git.team{}.example.", number % 150 % 50), Outcome::Allow),
        _ => (format!("x{number}.elsewhere.example."), Outcome::Refuse),
    };
    (Asked { name, client: format!("10.0.0.{}", number % 150) }, outcome)
}

static ENGINE: LazyLock<OpaEngine> = LazyLock::new(|| {
    let folder = std::env::temp_dir().join(format!("namewall-rego-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("there is room for files");
    let write = |name: &str, text: &str| {
        std::fs::write(folder.join(name), text).expect("there is room for files");
        folder.join(name)
    };
    let at = OpaSource::Files(RegoFiles {
        policies: vec![write("policy.rego", POLICY)],
        data: vec![write("data.json", &data())],
        query: "data.dns.action".into(),
        is_v0: false,
    });
    let names = ["client_ip", "name", "rcode", "response_ip"];
    let fields = names.map(|name| InputField { name: name.into(), fact: Fact::named(name) }).to_vec();
    let settings = OpaSettings { at, fields, timeout: None, concurrency: None };
    let engine = OpaEngine::start(&settings).expect("it is a policy");
    let _ = std::fs::remove_dir_all(folder);
    engine
});

static ASKED: LazyLock<Vec<Asked>> = LazyLock::new(|| (0..NAMES).map(|number| asked(number).0).collect());

fn main() {
    for number in 0..NAMES {
        let (asked, expected) = asked(number);
        let said = ENGINE.judge(&asked).wait().map(|judgement| judgement.outcome);
        assert_eq!(said, Ok(expected), "{}", asked.name);
    }
    divan::main();
    // Who asks for a part, or for a list, wants no figures.
    if std::env::args().skip(1).all(|argument| argument == "--bench") {
        let best = (0..20).map(|_| seconds()).fold(f64::INFINITY, f64::min);
        println!("figure rego_us {:.1}", best * 1e6 / NAMES as f64);
    }
}

#[divan::bench]
fn judge_by_20_rules_and_1k_entries(bencher: Bencher<'_, '_>) {
    bencher.counter(ItemsCount::new(NAMES)).bench(judge_all);
}

fn judge_all() {
    for asked in &*ASKED {
        let _ = black_box(ENGINE.judge(black_box(asked)).wait());
    }
}

fn seconds() -> f64 {
    let start = Instant::now();
    judge_all();
    start.elapsed().as_secs_f64()
}
