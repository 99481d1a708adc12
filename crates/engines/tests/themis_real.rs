//! Themis' own server and our reading of its policies are asked the same, and
//! must say the same: effect, whether anything went wrong, and every obligation,
//! byte for byte. Our client asks the server, so it is held to it too.
//!
//! `scripts/peers/pdpserver` builds the server.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use namewall_engines::themis::codec::{
    Attribute, Effect, Response, read_request, read_response, write_request, write_response,
};
use namewall_engines::themis::policy::{File, Policies};
use namewall_engines::themis::remote::{Balance, Client, RemoteSettings};
use namewall_engines::themis::{Flags, Name, Network, Value};
use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, LazyLock};
use std::thread::sleep;
use std::time::{Duration, Instant};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/themis")
}

/// Where the server is.
static BINARY: LazyLock<PathBuf> = LazyLock::new(|| namewall_testbed::peer("pdpserver"));

/// Themis' server on ports of this machine.
struct Server {
    process: Child,
    address: String,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Server {
    fn start(policy: &str) -> Self {
        // Ports that were free a moment ago; somebody else may take one, and then others are tried.
        for _ in 0..5 {
            let ports: Vec<TcpListener> = (0..3).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
            let at = |number: usize| ports[number].local_addr().unwrap().to_string();
            let (service, control, storage) = (at(0), at(1), at(2));
            drop(ports);
            let mut process = Command::new(&*BINARY)
                .args(["-v", "0", "-pfmt", if policy.ends_with(".json") { "json" } else { "yaml" }])
                .args(["-l", &service, "-c", &control, "-storage", &storage])
                .args(["-max-response", "65535"])
                .arg("-p")
                .arg(folder().join(policy))
                .arg("-j")
                .arg(folder().join("content.json"))
                .stdout(Stdio::null())
                .spawn()
                .expect("the server starts");
            let start = Instant::now();
            while start.elapsed() < Duration::from_secs(30) && process.try_wait().expect("it can be asked").is_none() {
                if TcpStream::connect(&service).is_ok() {
                    return Self { process, address: service };
                }
                sleep(Duration::from_millis(20));
            }
            let _ = process.kill();
            let _ = process.wait();
        }
        panic!("Themis' server does not listen");
    }
}

fn client(servers: &[&Server], change: impl FnOnce(&mut RemoteSettings)) -> Client {
    let mut settings = RemoteSettings::of(servers.iter().map(|server| server.address.clone()));
    settings.connection_timeout = Duration::from_secs(10);
    settings.request_timeout = Duration::from_secs(20);
    change(&mut settings);
    Client::start(settings).expect("a thread can start")
}

fn policies(policy: &str) -> Policies {
    let read = |name: &str| fs::read_to_string(folder().join(name)).expect("the file is there");
    let (text, content) = (read(policy), read("content.json"));
    Policies::read(File { name: policy, text: &text }, &[File { name: "content.json", text: &content }])
        .unwrap_or_else(|error| panic!("{error}"))
}

/// Asks both.
fn check(client: &Client, policies: &Policies, body: Vec<u8>, what: &dyn std::fmt::Debug) -> Response {
    let theirs = client.ask(body.clone()).unwrap_or_else(|error| panic!("{what:?}: {error}"));
    let theirs = read_response(&theirs, usize::MAX).unwrap_or_else(|error| panic!("{what:?}: {error}"));
    let ours = match read_request(&body) {
        Ok(attributes) => policies.decide(&attributes),
        Err(error) => Response { effect: Effect::Indeterminate, status: error.to_string(), obligations: Vec::new() },
    };
    let plain = |response: &Response| {
        let status = if response.status.is_empty() { "" } else { "something" }.to_owned();
        let plain = Response { effect: response.effect, status, obligations: response.obligations.clone() };
        // As bytes, in which a number that is none is itself.
        write_response(&plain).expect("it can be written")
    };
    assert_eq!(plain(&ours), plain(&theirs), "{what:?}\nours:   {ours:?}\ntheirs: {theirs:?}");
    theirs
}

fn strings(items: &[&str]) -> Vec<Arc<str>> {
    items.iter().map(|item| Arc::from(*item)).collect()
}

fn set(items: &[&str]) -> Value {
    Value::SetOfStrings(Arc::new(strings(items).into_iter().collect()))
}

fn networks(items: &[&str]) -> Value {
    Value::SetOfNetworks(Arc::new(items.iter().map(|item| Network::parse(item).unwrap()).collect()))
}

fn domains(items: &[&str]) -> Value {
    Value::SetOfDomains(Arc::new(items.iter().map(|item| Name::parse(item).unwrap()).collect()))
}

/// What each attribute may be.
fn values() -> Vec<(&'static str, Vec<Value>)> {
    let texts = |items: &[&str]| items.iter().map(|item| Value::string(item)).collect::<Vec<_>>();
    let list = |items: &[&str]| Value::ListOfStrings(strings(items).into());
    let integers = || [5, -7, 0, 6, 1 << 60, i64::MIN, i64::MAX, -1].map(Value::Integer).to_vec();
    let floats = || [1.0, 0.5, -0.0, 5.0, 1e308, -1e308, f64::INFINITY, f64::NAN, 6.25].map(Value::Float).to_vec();
    let address = |text: &str| Value::Address(text.parse().unwrap());
    let network = |text: &str| Value::Network(Network::parse(text).unwrap());
    let name = |text: &str| Value::Domain(Name::parse(text).unwrap());
    let sets = || vec![set(&["a", "b"]), set(&["b", "a", "c"]), set(&[]), set(&["c"]), set(&["one", "nobody"])];
    let lists = || {
        vec![
            list(&["a", "b"]),
            list(&["b", "a", "b"]),
            list(&[]),
            list(&["c", "x"]),
            list(&["x", "y", "nobody"]),
            list(&["nobody", "x", "y"]),
            list(&["one", "two"]),
            list(&["permit", "a"]),
        ]
    };
    vec![
        ("s", texts(&["one", "two", "three", "", "x", "y", "z", "deep", "none"])),
        ("t", texts(&["one", "two", "o", "x", "y", "z"])),
        ("i", integers()),
        ("j", integers()),
        ("f", floats()),
        ("g", floats()),
        (
            "a",
            ["10.1.2.3", "10.1.9.9", "10.200.0.1", "192.0.2.1", "200.1.1.1", "2001:db8::1", "2001:db8:0:1::5", "::1"]
                .map(address)
                .to_vec(),
        ),
        (
            "net",
            ["10.1.0.0/24", "10.0.0.0/7", "192.0.2.0/24", "2001:db8:0:1::/64", "2001:db8::/31", "0.0.0.0/0"]
                .map(network)
                .to_vec(),
        ),
        (
            "d",
            [
                "example.com",
                "WWW.example.COM.",
                "deep.www.example.com",
                "example.net",
                "other.net",
                "a\\.b.example",
                ".",
            ]
            .map(name)
            .to_vec(),
        ),
        ("b", vec![Value::Boolean(true), Value::Boolean(false)]),
        ("ss", sets()),
        ("st", sets()),
        (
            "sn",
            vec![networks(&["10.0.0.0/8", "2001:db8::/32"]), networks(&[]), networks(&["0.0.0.0/0", "10.1.2.3/32"])],
        ),
        ("sd", vec![domains(&["example.com"]), domains(&["net", "www.example.com"]), domains(&[".", "\\032.a"])]),
        ("ls", lists()),
        ("lt", lists()),
        ("fl", vec![Value::Flags(Flags { count: 3, bits: 5 })]),
    ]
}

/// Numbers in no order, the same every time.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % sides as u64) as usize
    }
}

/// Ids of the cases, as they stand in the file.
fn cases() -> Vec<String> {
    let text = fs::read_to_string(folder().join("cases.yaml")).expect("the file is there");
    let ids = text.lines().filter_map(|line| {
        let rest = line.strip_prefix("    - id: ").or_else(|| line.strip_prefix("    - {id: "))?;
        Some(rest.split(',').next()?.trim().to_owned())
    });
    ids.collect()
}

#[test]
fn themis_and_we_decide_the_same() {
    let server = Server::start("cases.yaml");
    let client = client(&[&server], |_| {});
    let policies = policies("cases.yaml");
    let values = values();
    let mut dice = Dice(0x9e37_79b9_7f4a_7c15);
    let mut cases = cases();
    assert!(cases.len() > 60, "{} cases were found", cases.len());
    cases.push("of nobody".into());
    let mut effects = Vec::new();
    let mut ask = |attributes: Vec<Attribute>| {
        let body = write_request(&attributes, usize::MAX).expect("it can be written");
        let said = check(&client, &policies, body, &attributes);
        effects.push((said.effect, said.status.is_empty(), said.obligations.len()));
    };
    ask(Vec::new());
    ask(vec![Attribute::new("case", Value::Integer(1))]);
    for case in &cases {
        let named = |rest: Vec<Attribute>| {
            let mut attributes = vec![Attribute::new("case", Value::string(case))];
            attributes.extend(rest);
            attributes
        };
        ask(named(Vec::new()));
        // Everything there is, the first of each, then the second, …
        for turn in 0..9 {
            let all = values.iter().map(|(name, values)| Attribute::new(name, values[turn % values.len()].clone()));
            ask(named(all.collect()));
        }
        // Each attribute missing once.
        for missing in 0..values.len() {
            let all = values.iter().enumerate().filter(|(at, _)| *at != missing);
            ask(named(all.map(|(_, (name, values))| Attribute::new(name, values[0].clone())).collect()));
        }
        for _ in 0..30 {
            let mut some = Vec::new();
            for (name, values) in &values {
                if dice.roll(4) > 0 {
                    some.push(Attribute::new(name, values[dice.roll(values.len())].clone()));
                }
            }
            ask(named(some));
        }
    }
    assert!(effects.len() > 3000, "{} requests", effects.len());
    for effect in [
        Effect::Permit,
        Effect::Deny,
        Effect::NotApplicable,
        Effect::Indeterminate,
        Effect::IndeterminateD,
        Effect::IndeterminateP,
        Effect::IndeterminateDP,
    ] {
        let seen = effects.iter().filter(|(said, ..)| *said == effect).count();
        assert!(seen >= 5, "{effect} came out {seen} times only");
    }
    let bare = effects.iter().filter(|(effect, fine, _)| *effect == Effect::NotApplicable && !fine).count();
    let partly = effects.iter().filter(|(effect, fine, told)| *effect == Effect::Permit && !fine && *told > 0).count();
    assert!(bare > 5 && partly > 5, "{bare} not applicable and broken, {partly} permitted with half of what was due");
}

#[test]
fn policies_in_json_are_read_alike() {
    let server = Server::start("simple.json");
    let client = client(&[&server], |_| {});
    let policies = policies("simple.json");
    let name = |text: &str| Attribute::new("domain_name", Value::Domain(Name::parse(text).unwrap()));
    let address = |text: &str| Attribute::new("address", Value::Address(text.parse().unwrap()));
    let number = |number| Attribute::new("i", Value::Integer(number));
    let mut asked = 0;
    for kind in ["query", "response", "neither"] {
        for domain in ["example.com", "www.example.com", "example.net", "other.org"] {
            for ip in ["10.0.0.1", "10.1.2.3", "192.0.2.1", "192.0.2.2", "2001:db8::1", "203.0.113.1"] {
                for i in [3, 11, 0] {
                    let all = [
                        Attribute::new("type", Value::string(kind)),
                        name(domain),
                        address(ip),
                        number(i),
                        Attribute::new("dns_qtype", Value::string("1c")),
                    ];
                    for without in 0..=all.len() {
                        let some = all.iter().enumerate().filter(|(at, _)| *at != without);
                        let some: Vec<Attribute> = some.map(|(_, attribute)| attribute.clone()).collect();
                        check(&client, &policies, write_request(&some, usize::MAX).unwrap(), &some);
                        asked += 1;
                    }
                }
            }
        }
    }
    assert!(asked > 1000, "{asked}");
}

#[test]
fn broken_requests_are_broken_for_both() {
    let server = Server::start("cases.yaml");
    let client = client(&[&server], |settings| settings.streams = 0);
    let policies = policies("cases.yaml");
    let case = |name: &str| Attribute::new("case", Value::string(name));
    let whole = write_request(
        &[
            case("echo"),
            Attribute::new("a", Value::Address("2001:db8::1".parse().unwrap())),
            Attribute::new("sn", networks(&["10.0.0.0/8"])),
            Attribute::new("ls", Value::ListOfStrings(strings(&["a", "b"]).into())),
            Attribute::new("f", Value::Float(1.5)),
        ],
        usize::MAX,
    )
    .unwrap();
    for end in 0..=whole.len() {
        check(&client, &policies, whole[..end].to_vec(), &format!("cut at {end}"));
    }
    let twice =
        |first: Value, second: Value| vec![case("echo"), Attribute::new("s", first), Attribute::new("s", second)];
    for attributes in [
        twice(Value::string("a"), Value::string("a")),
        twice(Value::string("a"), Value::Integer(1)),
        twice(Value::Integer(1), Value::string("a")),
        vec![case("echo"), case("echo")],
    ] {
        check(&client, &policies, write_request(&attributes, usize::MAX).unwrap(), &attributes);
    }
    for body in [
        &b"\x02\0\0\0"[..],
        b"\x01\0\x01\0\x01s\x0f",
        b"\x01\0\x01\0\x01s\x07\x21\x01\x02\x03\x04",
        b"\x01\0\x01\0\x01s\x08\x81\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\x0f\x10",
        b"\x01\0\x01\0\x01s\x09\x04\0a..b",
        b"\x01\0\x01\0\x01s\x0b\x01\0\xe1\x01\x02\x03\x04",
        b"\x01\0\x01\0\x01s\x0e\x00\x00",
    ] {
        check(&client, &policies, body.to_vec(), &body);
    }
}

#[test]
fn another_server_answers_when_one_is_gone() {
    for (streams, balance) in [(2, Balance::RoundRobin), (3, Balance::HotSpot), (0, Balance::RoundRobin)] {
        let (first, second) = (Server::start("cases.yaml"), Server::start("cases.yaml"));
        let client = client(&[&first, &second], |settings| (settings.streams, settings.balance) = (streams, balance));
        let body = write_request(&[Attribute::new("case", Value::string("default"))], usize::MAX).unwrap();
        let ask = || read_response(&client.ask(body.clone()).unwrap(), 64).unwrap().effect;
        // Many at once, each more than there are streams.
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| (0..50).for_each(|_| assert_eq!(ask(), Effect::Permit)));
            }
        });
        drop(first);
        for _ in 0..50 {
            assert_eq!(ask(), Effect::Permit, "{streams} {balance:?}");
        }
    }
}
