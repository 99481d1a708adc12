//! OPA's own server and our evaluation of Rego are asked the same, and must say the same. Our client asks
//! the server, so it is held to it too: over TLS with certificates on both sides, and while the server
//! comes and goes.
//!
//! `scripts/peers/opa` builds the server.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use namewall_engines::Engine;
use namewall_engines::http::{ServerUrl, TlsFiles};
use namewall_engines::opa::{InputField, OpaEngine, OpaSettings, OpaSource, RegoFiles};
use namewall_expression::{Fact, Facts, Value};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{sleep, spawn};
use std::time::{Duration, Instant};

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/opa").join(name)
}

/// OPA on a port of this machine.
struct Server {
    process: Child,
    port: u16,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Server {
    fn start(arguments: &[&str]) -> Self {
        // A port that was free a moment ago; somebody else may take it, and then another is tried.
        let free = || TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let started = (0..5).find_map(|_| Self::try_start(free(), arguments));
        started.expect("OPA listens; it says above why it does not")
    }

    fn try_start(port: u16, arguments: &[&str]) -> Option<Self> {
        let process = Command::new(namewall_testbed::peer("opa"))
            .args(["run", "--server", "--skip-version-check", "--log-level", "error"])
            .args(["--addr", &format!("127.0.0.1:{port}")])
            .args(arguments)
            .arg(file("data.json"))
            .stdout(Stdio::null())
            .spawn()
            .expect("OPA starts");
        let mut server = Self { process, port };
        let start = Instant::now();
        while start.elapsed() < Duration::from_secs(30) && server.process.try_wait().expect("it is asked").is_none() {
            if TcpStream::connect(("127.0.0.1", port)).is_ok() {
                return Some(server);
            }
            sleep(Duration::from_millis(20));
        }
        None
    }

    /// The same, after a while without it.
    fn restart(self, arguments: &[&str]) -> Self {
        let port = self.port;
        drop(self);
        Self::try_start(port, arguments).expect("OPA listens where it did")
    }
}

/// What is known of a question, by the names of fields.
#[derive(Clone, Debug, Default)]
struct Asked(BTreeMap<&'static str, String>);

impl Facts for Asked {
    fn get(&self, fact: &Fact) -> Value<'_> {
        let found = self.0.iter().find(|(name, _)| Fact::named(name) == *fact);
        found.map_or(Value::UNSET, |(_, text)| Value::Text(text.as_str().into()))
    }
}

/// Every name with every client, and with every answer.
fn questions() -> Vec<Asked> {
    let names = [
        "www.example.com.",
        "bad.example.",
        "deep.down.bad.example.",
        "notbad.example.",
        "cdn.bad.com.",
        "malware.test.",
        "0123456789abcdef01.example.",
        "0123456789abcdeg.example.",
        "ads7.tracker.net.",
        "ads7.",
        "Ads.Example.Net.",
        "db.internal.",
        "db.six.",
        "a.odd.",
        "a.number.",
        "both.conflict.",
        "a.conflict.",
        "a-both.conflict.",
        "3.2.arpa.",
        "4.2.arpa.",
        "x.2.arpa.",
        "xa.xb.org.",
        "xa.b.org.",
        ".",
        "müller.example.",
        "a\"b\\c.example.",
    ];
    let clients = ["10.1.2.3", "192.0.2.7", "2001:db8:1::7", "2001:db8:2::7", "nonsense"];
    let answers =
        [("", "", ""), ("NOERROR", "93.184.216.34", "shop"), ("NOERROR", "10.0.0.5", "bank"), ("NXDOMAIN", "", "none")];
    let mut questions = Vec::new();
    for name in names {
        for (number, client) in clients.into_iter().enumerate() {
            for (rcode, address, team) in answers {
                let kind = if number == 3 { "ANY" } else { "A" };
                let known = [("name", name), ("client_ip", client), ("rcode", rcode), ("response_ip", address)];
                let more = [("type", kind), ("team", team)];
                let all = known.into_iter().chain(more).map(|(name, text)| (name, text.to_owned()));
                questions.push(Asked(all.collect()));
            }
        }
    }
    questions
}

fn engine(at: OpaSource) -> OpaEngine {
    let names = ["client_ip", "name", "rcode", "response_ip", "type", "team"];
    let fields = names.map(|name| InputField { name: name.into(), fact: Fact::named(name) }).to_vec();
    let timeout = Some(Duration::from_secs(20));
    OpaEngine::start(&OpaSettings { at, fields, timeout, concurrency: None }).unwrap_or_else(|error| panic!("{error}"))
}

fn here(policy: &str, is_v0: bool) -> OpaEngine {
    let (policies, data) = (vec![file(policy)], vec![file("data.json")]);
    engine(OpaSource::Files(RegoFiles { policies, data, query: "data.dns.action".into(), is_v0 }))
}

fn remote(port: u16, tls: Option<TlsFiles>) -> OpaEngine {
    let host_port = format!("127.0.0.1:{port}");
    let url = ServerUrl { is_tls: tls.is_some(), host_port, path: "/v1/data/dns/action".into() };
    engine(OpaSource::Server { url, tls })
}

/// An outcome, or that there is none: both fail in their own words.
fn said(engine: &OpaEngine, asked: &Asked) -> Result<String, String> {
    engine.judge(asked).wait().map(|judgement| judgement.outcome.to_string()).map_err(|error| error.to_string())
}

/// Both say the same to everything. How often they said what.
fn compare(ours: &OpaEngine, theirs: &OpaEngine) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    let mut differ = Vec::new();
    for asked in questions() {
        let (ours, theirs) = (said(ours, &asked), said(theirs, &asked));
        if ours.as_ref().ok() != theirs.as_ref().ok() {
            differ.push(format!("{asked:?}\nours:   {ours:?}\ntheirs: {theirs:?}"));
        }
        *counts.entry(ours.unwrap_or_else(|_| "error".into())).or_default() += 1;
    }
    assert!(differ.is_empty(), "{} differ:\n{}", differ.len(), differ[..differ.len().min(5)].join("\n"));
    counts
}

#[test]
fn our_evaluation_is_opas() {
    let policy = file("policy.rego").display().to_string();
    let server = Server::start(&[&policy]);
    let counts = compare(&here("policy.rego", false), &remote(server.port, None));
    // All ways through the policy were taken.
    let words: Vec<&str> = counts.keys().map(String::as_str).collect();
    let redirects = ["redirect to 10.9.9.9:53", "redirect to [2001:db8::53]:5353"];
    let expected = ["allow", "block", "drop", "error", "log", redirects[0], redirects[1], "refuse", "undefined"];
    assert_eq!(words, expected, "{counts:?}");
    assert!(counts.values().sum::<usize>() >= 100);
}

#[test]
fn our_evaluation_of_the_first_version_is_opas() {
    let policy = file("v0.rego").display().to_string();
    let server = Server::start(&["--v0-compatible", &policy]);
    let counts = compare(&here("v0.rego", true), &remote(server.port, None));
    assert_eq!(counts.keys().collect::<Vec<_>>(), ["allow", "block", "refuse"], "{counts:?}");
}

/// OPA takes the parts out of a negation first, so that an undefined part makes all of it undefined
/// (open-policy-agent/opa issue 1877). Here a negation of what is undefined holds, as Rego's reference
/// has it. docs/opa.md says how to write what both read alike; who changes shows here.
#[test]
fn a_negation_with_an_undefined_part_is_known_to_differ() {
    let policy = file("negation.rego").display().to_string();
    let server = Server::start(&[&policy]);
    let (ours, theirs) = (here("negation.rego", false), remote(server.port, None));
    let asked = Asked::default();
    let both = [said(&ours, &asked), said(&theirs, &asked)].map(Result::unwrap);
    assert_eq!(both, ["allow", "undefined"]);
}

#[test]
fn a_server_that_is_restarted_is_no_error() {
    let policy = file("policy.rego").display().to_string();
    let server = Server::start(&[&policy]);
    let engine = remote(server.port, None);
    let asked = questions().remove(4);
    let before = said(&engine, &asked);
    before.as_ref().unwrap();
    let mut server = server.restart(&[&policy]);
    for _ in 0..3 {
        assert_eq!(said(&engine, &asked), before);
        server = server.restart(&[&policy]);
    }
    drop(server);
    assert!(said(&engine, &asked).unwrap_err().contains("refused"));
}

/// Files that are gone after the test.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        let path = std::env::temp_dir().join(format!("namewall-opa-real-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        std::fs::write(self.0.join(name), text).unwrap();
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

type Authority = CertifiedIssuer<'static, KeyPair>;

fn authority(name: &str) -> Authority {
    let mut params = CertificateParams::new([]).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(DnType::CommonName, name);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

/// A certificate and its key, as files.
fn certificate(folder: &Folder, name: &str, authority: &Authority) -> (PathBuf, PathBuf) {
    let mut params = CertificateParams::new(["127.0.0.1".to_owned()]).unwrap();
    params.distinguished_name.push(DnType::CommonName, name);
    let key = KeyPair::generate().unwrap();
    let signed = params.signed_by(&key, authority).unwrap();
    (folder.write(&format!("{name}.crt"), &signed.pem()), folder.write(&format!("{name}.key"), &key.serialize_pem()))
}

/// Passes bytes on to a server, and counts who connects.
fn before(server: &Server) -> (u16, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (port, to) = (listener.local_addr().unwrap().port(), server.port);
    let connections = Arc::new(AtomicUsize::new(0));
    let counted = connections.clone();
    spawn(move || {
        for client in listener.incoming() {
            counted.fetch_add(1, Ordering::SeqCst);
            let (client, server) = (client.unwrap(), TcpStream::connect(("127.0.0.1", to)).unwrap());
            // Or the two wait for each other.
            client.set_nodelay(true).unwrap();
            server.set_nodelay(true).unwrap();
            for (mut from, mut to) in [(client.try_clone().unwrap(), server.try_clone().unwrap()), (server, client)] {
                spawn(move || {
                    let mut bytes = [0; 4096];
                    while let Ok(count @ 1..) = from.read(&mut bytes) {
                        to.write_all(&bytes[..count]).ok()?;
                    }
                    to.shutdown(Shutdown::Both).ok()
                });
            }
        }
    });
    (port, connections)
}

#[test]
fn certificates_on_both_sides() {
    let folder = Folder::new();
    let (ours, strangers) = (authority("ours"), authority("a stranger's"));
    let ca = folder.write("ca.crt", &ours.pem());
    let (server_cert, server_key) = certificate(&folder, "server", &ours);
    let client = certificate(&folder, "client", &ours);
    let stranger = certificate(&folder, "stranger", &strangers);
    let strangers_ca = folder.write("strangers.crt", &strangers.pem());
    let [ca_text, cert, key] = [&ca, &server_cert, &server_key].map(|path| path.display().to_string());
    let policy = file("policy.rego").display().to_string();
    let arguments = ["--tls-cert-file", &cert, "--tls-private-key-file", &key, "--tls-ca-cert-file", &ca_text];
    let server = Server::start(&[&arguments[..], &["--authentication=tls", &policy]].concat());
    let tls = |client: Option<&(PathBuf, PathBuf)>, authority: Option<&PathBuf>| {
        Some(TlsFiles { client: client.cloned(), authority: authority.cloned() })
    };

    let (port, connections) = before(&server);
    let engine = remote(port, tls(Some(&client), Some(&ca)));
    compare(&here("policy.rego", false), &engine);
    assert_eq!(connections.load(Ordering::SeqCst), 1, "one connection is kept for all");

    let asked = questions().remove(0);
    let refused = |tls: Option<TlsFiles>| said(&remote(server.port, tls), &asked).unwrap_err();
    // A server that refuses a certificate may have hung up before its alert is read.
    refused(tls(None, Some(&ca)));
    refused(tls(Some(&stranger), Some(&ca)));
    let untrusted = refused(tls(Some(&client), Some(&strangers_ca)));
    assert!(untrusted.contains("UnknownIssuer"), "{untrusted}");
    let by_the_system = refused(tls(Some(&client), None));
    assert!(by_the_system.contains("UnknownIssuer"), "{by_the_system}");
    let plain = said(&remote(server.port, None), &asked).unwrap_err();
    assert!(plain.contains("status 400"), "{plain}");

    // Certificates change, and questions go on.
    let renewed = certificate(&folder, "client", &ours);
    assert_eq!(renewed, client);
    assert!(engine.reload().unwrap() && !engine.reload().unwrap());
    said(&engine, &asked).unwrap();
    std::fs::write(&client.1, "no key").unwrap();
    engine.reload().unwrap_err();
    said(&engine, &asked).unwrap();
}

#[test]
fn certificates_that_do_not_fit_are_refused_at_the_start() {
    let folder = Folder(std::env::temp_dir().join(format!("namewall-opa-pairs-{}", std::process::id())));
    std::fs::create_dir_all(&folder.0).unwrap();
    let ours = authority("ours");
    let ca = folder.write("ca.crt", &ours.pem());
    let (one, other) = (certificate(&folder, "one", &ours), certificate(&folder, "other", &ours));
    let empty = folder.write("empty", "");
    let check = |certificate: &Path, key: &Path, authority: &Path, expected: &str| {
        let client = Some((certificate.to_owned(), key.to_owned()));
        let tls = Some(TlsFiles { client, authority: Some(authority.to_owned()) });
        let url = ServerUrl { is_tls: true, host_port: "127.0.0.1:1".into(), path: "/".into() };
        let at = OpaSource::Server { url, tls };
        let settings = OpaSettings { at, fields: Vec::new(), timeout: None, concurrency: None };
        let error = OpaEngine::start(&settings).unwrap_err().to_string();
        assert!(error.contains(expected), "{expected}: {error}");
    };
    check(&one.0, &other.1, &ca, "one.crt cannot be used with");
    check(&empty, &one.1, &ca, "empty has no certificate");
    check(&one.0, &empty, &ca, "empty has no private key");
    check(&one.0, &one.1, &empty, "empty has no certificate");
    check(&one.0, &one.1, Path::new("/nowhere"), "cannot read /nowhere");
}
