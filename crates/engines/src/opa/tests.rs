//! Both ways to a policy, the second against servers that do everything wrong. tests/opa_real.rs holds
//! them to OPA itself.

use super::{InputField, LoadError, OpaEngine, OpaError, OpaSettings, OpaSource, RegoFiles};
use crate::http::ServerUrl;
use crate::http::server::{Reply, Server, ok};
use crate::{Engine, Judged};
use namewall_expression::{Fact, Facts, Outcome, Value};
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

struct TestFacts<'a>(&'a [(&'a str, &'a str)]);

impl Facts for TestFacts<'_> {
    fn get(&self, fact: &Fact) -> Value<'_> {
        let found = self.0.iter().find(|(name, _)| Fact::named(name) == *fact);
        found.map_or(Value::UNSET, |(_, value)| Value::Text((*value).into()))
    }
}

const ASKED: TestFacts<'_> = TestFacts(&[("name", "www.example.com."), ("client_ip", "10.0.0.1")]);

fn fields(names: &[&str]) -> Vec<InputField> {
    names.iter().map(|name| InputField { name: (*name).into(), fact: Fact::named(name) }).collect()
}

fn settings(at: OpaSource) -> OpaSettings {
    let fields = fields(&["client_ip", "name", "rcode", "response_ip"]);
    OpaSettings { at, fields, timeout: None, concurrency: None }
}

/// Files that are gone after the test.
struct Folder(PathBuf);

impl Folder {
    fn new(test: &str) -> Self {
        let path = std::env::temp_dir().join(format!("namewall-opa-{}-{test}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        fs::write(self.0.join(name), text).unwrap();
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn here(folder: &Folder, policy: &str, data: &[&str]) -> OpaSettings {
    let data = data.iter().enumerate().map(|(at, text)| folder.write(&format!("{at}.json"), text)).collect();
    let policies = vec![folder.write("policy.rego", policy)];
    settings(OpaSource::Files(RegoFiles { policies, data, query: "data.dns.action".into(), is_v0: false }))
}

/// What an engine says, or how it fails.
fn said(engine: &OpaEngine, facts: &dyn Facts) -> String {
    engine.judge(facts).wait().map_or_else(|error| format!("error: {error}"), |judgement| judgement.outcome.to_string())
}

const POLICY: &str = r#"package dns
action := "block" if input.name in data.blocked
else := "allow" if net.cidr_contains("10.0.0.0/8", input.client_ip)
else := {"action": "redirect", "to": data.elsewhere} if input.client_ip == "192.0.2.1"
else := "perhaps" if input.client_ip == "192.0.2.2"
"#;
const BLOCKED: &str = r#"{"blocked": ["bad.example."]}"#;

#[test]
fn a_policy_evaluated_here() {
    let folder = Folder::new("here");
    let engine = OpaEngine::start(&here(&folder, POLICY, &[BLOCKED, r#"{"elsewhere": "9.9.9.9"}"#])).unwrap();
    for (name, client, expected) in [
        ("www.example.com.", "10.0.0.1", "allow"),
        ("bad.example.", "10.0.0.1", "block"),
        ("www.example.com.", "192.0.2.1", "redirect to 9.9.9.9:53"),
        ("www.example.com.", "192.0.2.3", "undefined"),
        // A built-in function that fails is undefined, as with OPA.
        ("www.example.com.", "no address", "undefined"),
    ] {
        let facts = TestFacts(&[("name", name), ("client_ip", client)]);
        assert!(matches!(engine.judge(&facts), Judged::Later(_)));
        assert_eq!(said(&engine, &facts), expected, "{name} {client}");
    }
    let failed = said(&engine, &TestFacts(&[("name", "x."), ("client_ip", "192.0.2.2")]));
    assert!(failed.starts_with("error: data.dns.action: \"perhaps\" is no result"), "{failed}");
}

#[test]
fn labels_that_are_not_set_are_not_told() {
    let folder = Folder::new("labels");
    let policy = r#"package dns
action := "allow" if { input.rcode == ""; not input["kubernetes/client-namespace"] }
action := "block" if input["kubernetes/client-namespace"] == "shop"
"#;
    let mut settings = here(&folder, policy, &[]);
    settings.fields = fields(&["rcode", "kubernetes/client-namespace"]);
    let engine = OpaEngine::start(&settings).unwrap();
    assert_eq!(said(&engine, &TestFacts(&[])), "allow");
    assert_eq!(said(&engine, &TestFacts(&[("kubernetes/client-namespace", "shop")])), "block");
}

#[test]
fn the_first_version_of_rego_is_read_where_it_is_said() {
    let folder = Folder::new("v0");
    let policy = "package dns\nimport input.name\ndefault action = \"allow\"\naction = \"refuse\" { refuse }\n\
                  refuse { name == \"www.example.com.\" }\n";
    let mut settings = here(&folder, policy, &[]);
    assert!(matches!(OpaEngine::start(&settings), Err(OpaError::Load(LoadError::Policy { .. }))));
    if let OpaSource::Files(files) = &mut settings.at {
        files.is_v0 = true;
    }
    let engine = OpaEngine::start(&settings).unwrap();
    assert_eq!(said(&engine, &ASKED), "refuse");
    assert_eq!(said(&engine, &TestFacts(&[("name", "x.")])), "allow");
}

#[test]
fn what_cannot_be_evaluated_is_not_loaded() {
    let folder = Folder::new("bad");
    let check = |policy: &str, data: &[&str], expected: &str| {
        let error = OpaEngine::start(&here(&folder, policy, data)).unwrap_err().to_string();
        assert!(error.contains(expected), "{policy}: {error}");
    };
    check("package dns\naction := ", &[], "policy.rego is not Rego");
    check("package dns\nverdict := 1", &[], "no policy has the rule data.dns.action");
    check("package other\naction := \"allow\"", &[], "no policy has the rule data.dns.action");
    check("package dns\naction := unknown(1)", &[], "no function unknown here");
    check("package dns\naction := http.send({}).body", &[], "no function http.send here");
    check(
        "package dns\naction := \"allow\" if { input.name == \"x\"; time.now_ns() > 1 }",
        &[],
        "no function time.now_ns here",
    );
    check("package dns\naction := \"allow\" if x == 1", &[], "undefined variable");
    check(POLICY, &["{"], "0.json is not a JSON object");
    check(POLICY, &["[]"], "0.json is not a JSON object");
    check(POLICY, &[BLOCKED, r#"{"blocked": 1}"#], "1.json is not a JSON object");
    let mut missing = here(&folder, POLICY, &[]);
    if let OpaSource::Files(files) = &mut missing.at {
        files.policies.push("/nowhere/x.rego".into());
    }
    assert!(OpaEngine::start(&missing).unwrap_err().to_string().starts_with("cannot read /nowhere/x.rego"));
}

#[test]
fn changed_files_are_read_again_and_bad_ones_are_not_taken() {
    let folder = Folder::new("reload");
    let engine = OpaEngine::start(&here(&folder, "package dns\naction := \"allow\"", &[])).unwrap();
    assert!(!engine.reload().unwrap());
    folder.write("policy.rego", "package dns\naction := \"block\"");
    assert_eq!(said(&engine, &ASKED), "allow");
    assert!(engine.reload().unwrap());
    assert_eq!(said(&engine, &ASKED), "block");
    folder.write("policy.rego", "package dns\naction := ");
    engine.reload().unwrap_err();
    assert_eq!(said(&engine, &ASKED), "block");
}

#[test]
fn an_evaluation_ends_and_the_next_one_is_sound() {
    let folder = Folder::new("endless");
    let policy = r#"package dns
action := "allow" if input.name != "slow."
action := "block" if { input.name == "slow."; some a in n; some b in n; a * b == 0 }
n := numbers.range(1, 3000)
"#;
    let engine = OpaEngine::start(&here(&folder, policy, &[])).unwrap();
    for _ in 0..2 {
        let start = Instant::now();
        let failed = said(&engine, &TestFacts(&[("name", "slow.")]));
        assert!(failed.contains("time limit"), "{failed}");
        assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
        assert_eq!(said(&engine, &ASKED), "allow");
    }
}

#[test]
fn what_a_policy_prints_is_told_to_who_debugs() {
    let folder = Folder::new("prints");
    let policy = "package dns\naction := \"allow\" if print(\"asked for\", input.name)";
    let engine = OpaEngine::start(&here(&folder, policy, &[])).unwrap();
    let judgement = engine.judge(&ASKED).wait().unwrap();
    assert_eq!(judgement.outcome, Outcome::Allow);
    assert!(judgement.trace[0].ends_with("asked for www.example.com."), "{:?}", judgement.trace);
    assert_eq!(judgement.trace[1], "data.dns.action is \"allow\"");
}

fn remote(url: ServerUrl, timeout: u64) -> OpaSettings {
    let mut settings = settings(OpaSource::Server { url, tls: None });
    settings.timeout = Some(Duration::from_millis(timeout));
    settings
}

#[test]
fn a_server_is_asked_as_the_plugin_asks_it() {
    let replies = [r#"{"result":"block"}"#, r#"{"decision_id":"1"}"#, r#" {"result":{"action":"log"}} "#];
    let server = Server::start(move |number| Reply::Body(replies[number].into()));
    let engine = OpaEngine::start(&remote(server.url("/v1/data/dns/action"), 5_000)).unwrap();
    assert!(matches!(engine.judge(&ASKED), Judged::Later(_)));
    assert_eq!([(); 3].map(|()| said(&engine, &ASKED)), ["block", "undefined", "log"]);
    assert_eq!(server.connections(), 1, "the connection is kept");
    let request = &server.requests()[0];
    assert!(request.starts_with("POST /v1/data/dns/action HTTP/1.1\r\n"), "{request}");
    assert!(request.to_lowercase().contains("\r\ncontent-type: application/json\r\n"), "{request}");
    let body = r#"{"input":{"client_ip":"10.0.0.1","name":"www.example.com.","rcode":"","response_ip":""}}"#;
    assert!(request.ends_with(&format!("\r\n\r\n{body}")), "{request}");
}

/// Whatever a server does, there is an error, and in time.
fn fails(reply: impl Fn() -> Reply + Send + Sync + 'static, expected: &str) {
    let server = Server::start(move |_| reply());
    let engine = OpaEngine::start(&remote(server.url("/"), 400)).unwrap();
    let start = Instant::now();
    let failed = said(&engine, &ASKED);
    let took = start.elapsed();
    let at = format!("error: OPA at {}: ", server.url("/").host_port);
    assert!(failed.starts_with(&at) && failed.contains(expected), "{expected}: {failed}");
    // What is more than 400 ms is this machine's own delay; a drip takes longer than this.
    assert!(took < Duration::from_millis(2_000), "{expected}: {took:?}");
}

#[test]
fn servers_that_do_not_answer() {
    fails(|| Reply::Hang, "no answer in time");
    fails(|| Reply::Last(Vec::new()), "disconnected");
    let slowly = || {
        let mut bytes = ok("{}");
        bytes.extend([b' '; 200]);
        bytes
    };
    // The header, the body, each byte in time, and all of it never.
    fails(move || Reply::Drip(slowly()), "no answer in time");
    fails(|| Reply::Raw(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{".to_vec()), "no answer in time");
    fails(|| Reply::Last(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{".to_vec()), "disconnected");
}

#[test]
fn servers_that_answer_nonsense() {
    fails(|| Reply::Last(b"SSH-2.0-OpenSSH_9.9\r\n\r\n".to_vec()), "");
    fails(|| Reply::Raw(vec![0; 1000]), "");
    fails(|| Reply::Raw([b"HTTP/1.1 200 OK\r\nx: ".to_vec(), vec![b'a'; 1 << 20]].concat()), "header");
    fails(|| Reply::Body("<html>".into()), "not JSON");
    fails(|| Reply::Raw(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n\xff\xfe".to_vec()), "not JSON");
    fails(|| Reply::Body(String::new()), "not JSON");
    fails(|| Reply::Body("[]".into()), "not an object");
    fails(|| Reply::Body(r#"{"result":"maybe"}"#.into()), "\"maybe\" is no result");
    fails(|| Reply::Body(r#"{"result":true}"#.into()), "true is no result");
    fails(|| Reply::Body(r#"{"result":1e999999999}"#.into()), "");
    fails(|| Reply::Body(format!("{}{}", r#"{"result":"#, "[".repeat(100_000))), "not JSON");
    fails(|| Reply::Endless, "longer than");
    fails(|| Reply::Raw(b"HTTP/1.1 200 OK\r\ncontent-length: 99999999999\r\n\r\n".to_vec()), "");
}

#[test]
fn errors_are_told_with_what_the_server_says() {
    let internal = b"HTTP/1.1 500 Internal Server Error\r\ncontent-length: 20\r\n\r\n{\"result\":\"allow\"}\r\n";
    fails(move || Reply::Raw(internal.to_vec()), "status 500: {\"result\":\"allow\"}");
    fails(|| Reply::Raw(b"HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\n\r\n".to_vec()), "status 401");
    // Nobody is followed.
    let found = b"HTTP/1.1 307 Temporary Redirect\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n";
    fails(move || Reply::Raw(found.to_vec()), "status 307");
}

#[test]
fn nobody_listens() {
    let url = Server::start(|_| Reply::Hang).url("/");
    thread::sleep(Duration::from_millis(50));
    let engine = OpaEngine::start(&remote(url, 400)).unwrap();
    let failed = said(&engine, &ASKED);
    assert!(failed.contains("refused"), "{failed}");
}

#[test]
fn a_kept_connection_that_dies_is_no_error() {
    // Every second request finds its connection closed under it.
    let server = Server::start(|number| match number % 3 {
        1 => Reply::Last(Vec::new()),
        _ => Reply::Body(r#"{"result":"allow"}"#.into()),
    });
    let engine = OpaEngine::start(&remote(server.url("/"), 5_000)).unwrap();
    for _ in 0..4 {
        assert_eq!(said(&engine, &ASKED), "allow");
    }
    assert!(server.connections() > 1);
}

#[test]
fn questions_beyond_the_bound_are_refused_at_once() {
    let server = Server::start(|_| Reply::Hang);
    let mut settings = remote(server.url("/"), 1_000);
    settings.concurrency = Some(2);
    let engine = Arc::new(OpaEngine::start(&settings).unwrap());
    let start = Instant::now();
    let mut later: Vec<Judged> = (0..4).map(|_| engine.judge(&ASKED)).collect();
    assert!(later.iter().all(|judged| matches!(judged, Judged::Later(_))));
    let Judged::Now(Err(refused)) = engine.judge(&ASKED) else { panic!("there is no room for a fifth") };
    assert!(refused.0.ends_with("too many questions are under way"), "{refused}");
    // One that nobody waits for any more makes room.
    drop(later.pop());
    later.push(engine.judge(&ASKED));
    let asking: Vec<_> = later.into_iter().map(|judged| thread::spawn(move || judged.wait())).collect();
    for thread in asking {
        assert!(thread.join().unwrap().unwrap_err().0.contains("in time"));
    }
    // Those that waited have not waited twice.
    assert!(start.elapsed() < Duration::from_millis(1_900), "{:?}", start.elapsed());
    assert_eq!(server.connections(), 2);
    assert!(matches!(engine.judge(&ASKED), Judged::Later(_)));
}

#[test]
fn a_policy_is_never_evaluated_on_the_thread_that_asks() {
    let folder = Folder::new("thread");
    let engine = OpaEngine::start(&here(&folder, POLICY, &[BLOCKED, r#"{"elsewhere": "9.9.9.9"}"#])).unwrap();
    assert!(matches!(engine.judge(&ASKED), Judged::Later(_)));
    let most = thread::available_parallelism().map_or(1, |all| all.get());
    assert!((1..=most.max(2) - 1).contains(&engine.workers()), "one processor is left to serve");
}

#[test]
fn a_question_that_waited_too_long_for_its_turn_is_not_evaluated() {
    let folder = Folder::new("late");
    let engine = OpaEngine::start(&here(&folder, POLICY, &[BLOCKED, r#"{"elsewhere": "9.9.9.9"}"#])).unwrap();
    let Judged::Later(late) = engine.judge(&ASKED) else { panic!("it is evaluated later") };
    thread::sleep(Duration::from_millis(1_100));
    let error = late().unwrap_err().to_string();
    assert!(error.contains("took too long"), "{error}");
}
