//! The engine, from facts to outcomes, here and with a server.

use crate::fake::{Reply, grpc};
use namewall_engines::themis::codec::{read_request, write_response};
use namewall_engines::themis::policy::{File, Policies};
use namewall_engines::themis::remote::RemoteSettings;
use namewall_engines::themis::{AttributeSetting, CacheSettings, Settings, Source, StartError, ThemisEngine, Type};
use namewall_engines::{Engine, EngineError, Judged, Judgement};
use namewall_expression::{Fact, Facts, Outcome, Value};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

const POLICY: &str = r#"
attributes:
  type: string
  domain_name: domain
  dns_qtype: string
  source_ip: address
  address: address
  gid: integer
  team: string
  refuse: string
  redirect_to: string
policies:
  alg: FirstApplicableEffect
  policies:
    - target: [{equal: [{attr: type}, {val: {type: string, content: query}}]}]
      alg: FirstApplicableEffect
      rules:
        - target: [{contains: [{val: {type: set of domains, content: [bad.example]}}, {attr: domain_name}]}]
          effect: Deny
        - target: [{contains: [{val: {type: set of domains, content: [refused.example]}}, {attr: domain_name}]}]
          effect: Deny
          obligations: [{refuse: {val: {type: string, content: "yes"}}}]
        - target: [{contains: [{val: {type: set of domains, content: [walled.example]}}, {attr: domain_name}]}]
          effect: Deny
          obligations: [{redirect_to: {val: {type: string, content: 192.0.2.53}}}]
        - target: [{equal: [{attr: dns_qtype}, {val: {type: string, content: "41"}}]}]
          effect: Deny
        - target: [{contains: [{attr: source_ip}, {val: {type: network, content: 10.0.0.0/8}}]}]
          effect: Permit
          obligations: [{gid: {val: {type: integer, content: 7}}}]
        - condition: {equal: [{attr: team}, {val: {type: string, content: red}}]}
          effect: Permit
    - target: [{equal: [{attr: type}, {val: {type: string, content: response}}]}]
      alg: FirstApplicableEffect
      rules:
        - target: [{equal: [{attr: gid}, {val: {type: integer, content: 7}}]}]
          condition: {contains: [{val: {type: network, content: "2001:db8::/32"}}, {attr: address}]}
          effect: Deny
        - {effect: Permit}
"#;

#[derive(Default)]
struct TestFacts(HashMap<Fact, Value<'static>>);

impl Facts for TestFacts {
    fn get(&self, fact: &Fact) -> Value<'_> {
        self.0.get(fact).cloned().unwrap_or(Value::UNSET)
    }
}

impl TestFacts {
    fn query(name: &str, kind: &str, client: &str) -> Self {
        Self::default()
            .with(Fact::Name, Value::Text(name.to_owned().into()))
            .with(Fact::Type, Value::Text(kind.to_owned().into()))
            .with(Fact::ClientIp, Value::Address(client.parse().unwrap()))
    }

    fn with(mut self, fact: Fact, value: Value<'static>) -> Self {
        self.0.insert(fact, value);
        self
    }

    /// As whoever asks an engine does it: what was said of the query is known of its answer.
    fn answered(mut self, said: &Judgement, address: Option<&str>) -> Self {
        for (name, value) in &said.labels {
            self.0.insert(Fact::Label(name.as_str().into()), Value::Text(value.clone().into()));
        }
        if let Some(address) = address {
            self.0.insert(Fact::ResponseIp, Value::Address(address.parse().unwrap()));
        }
        self.with(Fact::Rcode, Value::Text("NOERROR".into()))
    }
}

fn policies() -> Policies {
    Policies::read(File { name: "policy.yaml", text: POLICY }, &[]).unwrap_or_else(|error| panic!("{error}"))
}

fn start(source: Source, change: impl FnOnce(&mut Settings)) -> ThemisEngine {
    let mut settings = Settings::new("test", source);
    settings.transfer = vec!["gid".into()];
    let team = Fact::Label("team".into());
    settings.attributes = vec![
        AttributeSetting { name: "team".into(), fact: team, kind: Type::String },
        AttributeSetting { name: "source_ip".into(), fact: Fact::Label("real_ip".into()), kind: Type::Address },
    ];
    change(&mut settings);
    ThemisEngine::start(settings).unwrap_or_else(|error| panic!("{error}"))
}

fn remote(endpoint: &str) -> Source {
    let mut settings = RemoteSettings::of([endpoint]);
    (settings.connection_timeout, settings.request_timeout) = (Duration::from_secs(5), Duration::from_secs(5));
    Source::Remote(settings)
}

/// A server that decides by the same policy; counts what it is asked.
fn server() -> (Arc<AtomicUsize>, String) {
    let asked = Arc::new(AtomicUsize::new(0));
    let (counted, policies) = (asked.clone(), policies());
    let endpoint = grpc(move |body| {
        counted.fetch_add(1, Ordering::Relaxed);
        let attributes = read_request(body).expect("the engine writes requests");
        Reply::body(&write_response(&policies.decide(&attributes)).expect("it can be written"))
    });
    (asked, endpoint)
}

fn judge(engine: &ThemisEngine, facts: &TestFacts) -> Result<Judgement, EngineError> {
    engine.judge(facts).wait()
}

#[test]
fn queries_and_responses_have_outcomes() {
    let (_, endpoint) = server();
    for source in [Source::Policies(policies()), remote(&endpoint)] {
        let engine = start(source, |_| {});
        let said =
            |name: &str, kind: &str, client: &str| judge(&engine, &TestFacts::query(name, kind, client)).unwrap();
        assert_eq!(said("www.bad.example.", "A", "10.0.0.1").outcome, Outcome::Block);
        assert_eq!(said("refused.example.", "A", "10.0.0.1").outcome, Outcome::Refuse);
        let walled = Outcome::Redirect("192.0.2.53:53".parse().unwrap());
        assert_eq!(said("walled.example.", "A", "10.0.0.1").outcome, walled);
        assert_eq!(said("good.example.", "HTTPS", "10.0.0.1").outcome, Outcome::Block);
        let good = said("good.example.", "AAAA", "10.0.0.1");
        assert_eq!((good.outcome, &*good.labels), (Outcome::Allow, &[("gid".to_owned(), "7".to_owned())][..]));
        assert_eq!(good.trace, ["themis test: Permit"]);

        // The label goes on to the response, with its type.
        let answered = |address| TestFacts::query("good.example.", "AAAA", "10.0.0.1").answered(&good, address);
        assert_eq!(judge(&engine, &answered(Some("2001:db8::1"))).unwrap().outcome, Outcome::Block);
        assert_eq!(judge(&engine, &answered(Some("192.0.2.1"))).unwrap().outcome, Outcome::Allow);
        // An answer without an address is judged by its question: MX, TXT, and that there is nothing.
        assert_eq!(judge(&engine, &answered(None)).unwrap().outcome, Outcome::Allow);
        let bad = TestFacts::query("www.bad.example.", "MX", "10.0.0.1").answered(&good, None);
        assert_eq!(judge(&engine, &bad).unwrap().outcome, Outcome::Block);
    }
}

#[test]
fn configured_attributes_are_sent() {
    let engine = start(Source::Policies(policies()), |_| {});
    let query = || TestFacts::query("good.example.", "A", "192.0.2.1");
    let team = |team: &'static str| query().with(Fact::Label("team".into()), Value::Text(team.into()));
    assert_eq!(judge(&engine, &team("red")).unwrap().outcome, Outcome::Allow);
    assert_eq!(judge(&engine, &team("blue")).unwrap().outcome, Outcome::Undefined);
    let missing = judge(&engine, &query()).unwrap_err();
    assert!(missing.0.starts_with("themis test: Indeterminate{P}: ") && missing.0.ends_with("`team` is missing"));
    // One of a name that is sent anyway takes its place.
    let real = |address: &'static str| query().with(Fact::Label("real_ip".into()), Value::Text(address.into()));
    assert_eq!(judge(&engine, &real("10.1.1.1")).unwrap().outcome, Outcome::Allow);
    let broken = judge(&engine, &real("10.1.1")).unwrap_err();
    assert_eq!(broken.0, "themis test: the attribute `source_ip` cannot be of the type Address: `10.1.1`");
}

#[test]
fn s9_4_a_failure_is_an_error_or_what_is_configured() {
    let engine = start(Source::Policies(policies()), |settings| {
        settings.on_error = Some(Outcome::Refuse);
        settings.debug_id = Some("instance 1".into());
    });
    let said = judge(&engine, &TestFacts::query("good.example.", "A", "192.0.2.1")).unwrap();
    assert_eq!(said.outcome, Outcome::Refuse);
    assert_eq!(said.trace[0], "ident: instance 1");
    assert!(said.trace[1].starts_with("themis test: failed: Indeterminate{P}"), "{:?}", said.trace);
    assert!(judge(&engine, &TestFacts::query("a..b.", "A", "10.0.0.1")).unwrap().trace[1].contains("no domain name"));
}

#[test]
fn answers_are_cached_by_the_whole_request() {
    let (asked, endpoint) = server();
    let engine = start(remote(&endpoint), |settings| settings.cache = Some(CacheSettings::default()));
    let query = |name: &str| TestFacts::query(name, "A", "10.0.0.1");
    for _ in 0..5 {
        assert_eq!(judge(&engine, &query("good.example.")).unwrap().outcome, Outcome::Allow);
        assert_eq!(judge(&engine, &query("bad.example.")).unwrap().outcome, Outcome::Block);
    }
    assert_eq!(asked.load(Ordering::Relaxed), 2);
    assert!(matches!(engine.judge(&query("good.example.")), Judged::Now(Ok(_))));
    assert!(matches!(engine.judge(&query("other.example.")), Judged::Later(_)));
    // What could not be told is asked again.
    for _ in 0..2 {
        assert!(judge(&engine, &TestFacts::query("good.example.", "A", "192.0.2.1")).is_err());
    }
    assert_eq!(asked.load(Ordering::Relaxed), 4);
}

#[test]
fn servers_that_lie_are_errors() {
    let query = TestFacts::query("good.example.", "A", "10.0.0.1");
    for (body, words) in [
        (&b""[..], "ends before"),
        (b"\x02\0\x01\0\0\0\0", "version 2"),
        (b"\x01\0\x09\0\0\0\0", "9 is no effect"),
        (b"\x01\0\x01\0\0\xff\xff", "65535 attributes, where 64"),
        (b"\x01\0\x01\0\0\0\0\0", "1 bytes too many"),
        (b"\x01\0\x01\x01\0\xff\0\0", "UTF-8"),
        (b"\x01\0\x03\x02\0no\0\0", "Indeterminate: no"),
    ] {
        let engine = start(remote(&grpc(move |_| Reply::body(body))), |_| {});
        let error = judge(&engine, &query).unwrap_err();
        assert!(error.0.contains(words), "{error}");
    }
}

#[test]
fn a_question_that_waited_too_long_for_a_thread_is_not_asked() {
    let (asked, endpoint) = server();
    let mut settings = RemoteSettings::of([&*endpoint]);
    settings.request_timeout = Duration::from_millis(200);
    let engine = start(Source::Remote(settings), |_| {});
    let Judged::Later(late) = engine.judge(&TestFacts::query("good.example.", "A", "10.0.0.1")) else {
        panic!("a server is asked later")
    };
    std::thread::sleep(Duration::from_millis(200));
    let error = late().unwrap_err();
    assert!(error.0.contains("no answer within 200ms"), "{error}");
    assert_eq!(asked.load(Ordering::Relaxed), 0);
}

#[test]
fn requests_are_bounded() {
    let engine = start(remote("127.0.0.1:1"), |settings| settings.max_request_size = 60);
    let said = engine.judge(&TestFacts::query("long.name.to.ask.for.example.", "A", "10.0.0.1"));
    let Judged::Now(Err(error)) = said else { panic!("{said:?}") };
    assert!(error.0.contains("where 60 are the limit"), "{error}");
}

#[test]
fn what_cannot_start_says_why() {
    let start = |source| ThemisEngine::start(Settings::new("test", source)).unwrap_err().to_string();
    assert_eq!(start(Source::Remote(RemoteSettings::of(["10.0.0.7"]))), "`10.0.0.7` is no server; write HOST:PORT");
    assert_eq!(start(Source::Remote(RemoteSettings::of(Vec::<String>::new()))), "there is no server to ask");
    let files = Source::Files { policy: "/nowhere/policy.yaml".into(), contents: Vec::new() };
    assert!(start(files).starts_with("/nowhere/policy.yaml: "));
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/themis");
    let settings = |contents| Settings::new("test", Source::Files { policy: folder.join("simple.json"), contents });
    assert!(ThemisEngine::start(settings(vec![folder.join("content.json")])).is_ok());
    let error = ThemisEngine::start(settings(Vec::new())).unwrap_err();
    assert!(matches!(&error, StartError::Policy(error) if error.message == "there is no content `content`"), "{error}");
}
