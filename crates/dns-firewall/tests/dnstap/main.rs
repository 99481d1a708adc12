//! `dnstap`, read by the library of dnstap's authors. `scripts/peers/dnstap` builds the reader.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(dead_code, reason = "the support is shared with the tests in `telling`")]

#[path = "../telling/support.rs"]
mod support;
#[path = "../telling/taps.rs"]
mod taps;

use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread::spawn;
use std::time::Duration;
use support::{TEST_TIMEOUT, Telling, ask_by_tcp, eventually, serve};
use taps::{blocked, lost, path, rules};

/// dnstap's own reader.
struct Reader {
    process: Child,
    at: String,
    lines: Receiver<String>,
}

impl Drop for Reader {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        // Killed, it leaves its socket; where it listens by TCP there is no such file.
        let _ = std::fs::remove_file(&self.at);
    }
}

impl Reader {
    fn start(network: &str, at: &str) -> Self {
        let mut reader = Command::new(namewall_testbed::peer("dnstap"));
        let mut process = reader.args([network, at]).stdout(Stdio::piped()).spawn().expect("the reader starts");
        let (send, lines) = channel();
        let output = BufReader::new(process.stdout.take().unwrap());
        spawn(move || output.lines().map_while(Result::ok).for_each(|line| _ = send.send(line)));
        let at = lines.recv_timeout(TEST_TIMEOUT).expect("it says where it listens");
        Self { process, at, lines }
    }

    fn unix() -> (Self, PathBuf) {
        let path = path("tap");
        (Self::start("unix", path.to_str().unwrap()), path)
    }

    /// The next messages.
    fn next<const N: usize>(&self) -> [Value; N] {
        [(); N].map(|()| {
            let line = self.lines.recv_timeout(TEST_TIMEOUT).expect("a message comes");
            serde_json::from_str(&line).unwrap_or_else(|error| panic!("{line}: {error}"))
        })
    }
}

/// The fields of a dnstap message, without its times, its ports and the DNS message itself.
fn told(message: &Value) -> String {
    let of = |name: &str| message["dnstap"]["message"][name].as_str().unwrap_or("-").to_owned();
    let names = ["type", "socket_family", "socket_protocol", "query_address", "response_address"];
    let words: Vec<String> = names.into_iter().map(of).collect();
    format!("{} [{}]", words.join(" "), message["extra"].as_str().unwrap())
}

/// Nanoseconds since the epoch, of RFC 3339.
fn time(message: &Value, name: &str) -> Option<String> {
    message["dnstap"]["message"][name].as_str().map(str::to_owned)
}

#[test]
fn messages_are_told_whole_with_the_decision_and_its_rule() {
    let (reader, path) = Reader::unix();
    let telling = Telling::new();
    let tap = format!("unix://{} full {{\n identity me\n version 7\n}}", path.display());
    let serving = serve(&telling, &rules(&tap));
    let port = u64::from(serving.at.port());

    assert_eq!(serving.ask("blocked.example", 1), Some(3));
    let [query, response] = reader.next();
    assert_eq!(told(&query), "CLIENT_QUERY INET UDP 127.0.0.1 127.0.0.1 [decision=block rule=Corefile:7:7]");
    assert_eq!(told(&response), "CLIENT_RESPONSE INET UDP 127.0.0.1 127.0.0.1 [decision=block rule=Corefile:7:7]");
    assert_eq!((&query["dnstap"]["identity"], &query["dnstap"]["version"]), (&"me".into(), &"7".into()));
    let message = &query["dnstap"]["message"];
    assert_eq!(message["response_port"], port);
    assert!(message["query_port"].as_u64().is_some_and(|port| port > 0));
    assert!(message["query_message"].as_str().unwrap().contains(";blocked.example.\tIN\t A"), "{message}");
    assert!(message["response_message"].is_null() && message["response_time"].is_null(), "{message}");
    let message = &response["dnstap"]["message"];
    assert!(message["response_message"].as_str().unwrap().contains("status: NXDOMAIN"), "{message}");
    assert!(message["query_message"].is_null(), "{message}");
    // It is one question: asked when it was asked, answered later.
    assert_eq!(
        time(&query, "query_time"),
        time(&response, "query_time").inspect(|asked| {
            assert!(time(&response, "response_time").is_some_and(|answered| answered[..19] >= asked[..19]));
        })
    );

    assert_eq!(ask_by_tcp(serving.at, "www.example", 1), 0);
    let [query, forwarded, heard, response] = reader.next();
    assert_eq!(told(&query), "CLIENT_QUERY INET TCP 127.0.0.1 127.0.0.1 [decision=allow rule=Corefile:9:7]");
    assert_eq!(told(&forwarded), "FORWARDER_QUERY INET TCP 127.0.0.1 127.0.0.1 []");
    assert_eq!(told(&heard), "FORWARDER_RESPONSE INET TCP 127.0.0.1 127.0.0.1 []");
    assert_eq!(told(&response), "CLIENT_RESPONSE INET TCP 127.0.0.1 127.0.0.1 [decision=allow rule=Corefile:11:4]");
    assert_ne!(forwarded["dnstap"]["message"]["response_port"], port, "the upstream's");
    for message in [&heard, &response] {
        let text = message["dnstap"]["message"]["response_message"].as_str().unwrap();
        assert!(text.contains("www.example.\t60\tIN\tA\t192.0.2.1"), "{text}");
    }

    assert_eq!(serving.ask("bad.example", 1), Some(5));
    let [_, _, heard, response] = reader.next();
    assert!(heard["dnstap"]["message"]["response_message"].as_str().unwrap().contains("status: NOERROR"));
    assert_eq!(told(&response), "CLIENT_RESPONSE INET UDP 127.0.0.1 127.0.0.1 [decision=refuse rule=Corefile:12:7]");
    assert!(response["dnstap"]["message"]["response_message"].as_str().unwrap().contains("status: REFUSED"));

    assert_eq!(serving.ask("silent.example", 1), None);
    assert_eq!(serving.ask("dead.example", 1), Some(2));
    let [silent, dead, response] = reader.next();
    assert!(told(&silent).ends_with("[decision=drop rule=Corefile:8:7]"), "and no response");
    assert!(dead["dnstap"]["message"]["query_message"].as_str().unwrap().contains("dead.example."));
    assert!(response["dnstap"]["message"]["response_message"].as_str().unwrap().contains("status: SERVFAIL"));
}

#[test]
fn over_tcp_without_full_who_and_when_is_told_and_what_is_configured_besides() {
    let reader = Reader::start("tcp", "127.0.0.1:0");
    let telling = Telling::new();
    let tap = format!("tcp://{} {{\n extra \"{{type}} {{/firewall/decision}};\"\n}}", reader.at);
    let serving = serve(&telling, &rules(&tap));
    assert_eq!(serving.ask("blocked.example", 28), Some(3));
    let [query, response] = reader.next();
    let extra = "AAAA block; decision=block rule=Corefile:6:7";
    assert_eq!((&query["extra"], &response["extra"]), (&extra.into(), &extra.into()));
    for message in [&query, &response] {
        let message = &message["dnstap"]["message"];
        assert!(message["query_message"].is_null() && message["response_message"].is_null(), "{message}");
        assert!(message["query_time"].is_string(), "{message}");
    }
    let own = concat!("namewall-", env!("CARGO_PKG_VERSION"));
    assert_eq!(query["dnstap"]["version"], own);
    assert!(!query["dnstap"]["identity"].as_str().unwrap().is_empty());
}

#[test]
fn what_engines_say_besides_is_told_too() {
    let policy = path("policy.yaml");
    std::fs::write(
        &policy,
        r#"
attributes: {type: string, domain_name: domain, reason: string, list: string}
policies:
  alg: FirstApplicableEffect
  rules:
    - effect: Deny
      obligations: [{reason: {val: {type: string, content: "seen \"there\""}}}, {list: {val: {type: string, content: five}}}]
"#,
    )
    .unwrap();
    let (reader, path) = Reader::unix();
    let telling = Telling::new();
    let corefile = format!(
        ".:PORT {{\n dnstap {}\n themis here {{ pdp {} }}\n firewall query {{ themis here }}\n}}",
        path.display(),
        policy.display()
    );
    let serving = serve(&telling, &corefile);
    assert_eq!(serving.ask("www.example", 1), Some(3));
    let [_, response] = reader.next();
    let extra = response["extra"].as_str().unwrap();
    assert!(extra.starts_with("decision=block rule=Corefile:4:19 "), "{extra}");
    assert!(extra.contains(r#" reason="seen \"there\"""#) && extra.contains(" list=five"), "{extra}");
    std::fs::remove_file(policy).unwrap();
}

#[test]
fn a_reader_that_comes_late_or_comes_back_gets_what_waits() {
    let telling = Telling::new();
    let path = path("tap");
    let serving = serve(&telling, &blocked(&path));
    assert_eq!(serving.ask("early.example", 1), Some(3));
    std::thread::sleep(Duration::from_millis(50));
    let reader = Reader::start("unix", path.to_str().unwrap());
    reader.next::<2>();
    drop(reader);
    assert_eq!(serving.ask("between.example", 1), Some(3));
    let reader = Reader::start("unix", path.to_str().unwrap());
    reader.next::<2>();
    assert_eq!(lost(&serving), 0);
}

#[test]
fn in_the_end_the_reader_has_everything_and_is_told_that_it_is_the_end() {
    let (reader, path) = Reader::unix();
    let telling = Telling::new();
    let serving = serve(&telling, &blocked(&path));
    for _ in 0..100 {
        serving.ask("www.example", 1);
    }
    serving.end(&telling);
    reader.next::<200>();
}

#[test]
fn a_tap_outlives_the_corefile_that_named_it() {
    let (reader, path) = Reader::unix();
    let telling = Telling::new();
    let mut serving = serve(&telling, &blocked(&path));
    serving.ask("www.example", 1);
    serving.reload(&telling, &blocked(&path).replace("block true", "refuse true"));
    eventually("the new one counts", || (serving.ask("www.example", 1) == Some(5)).then_some(()));
    serving.end(&telling);
    let all: Vec<String> = reader.lines.iter().take(4).collect();
    assert!(all[1].contains("decision=block") && all[3].contains("decision="), "{all:?}");
}
