//! DNS over TLS and HTTPS: kdig and curl ask `namewall dns` and a real CoreDNS the same, and namewall asks CoreDNS.

use crate::corefiles::ZONE;
use crate::peer::CoreDns;
use crate::ports::free_port;
use crate::process::{Folder, Serving, TEST_TIMEOUT};
use namewall_testbed::{Process, peer, program};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

pub(crate) const NAME: &str = "dns.example";

pub(crate) type Authority = CertifiedIssuer<'static, KeyPair>;

const QUESTIONS: [&str; 10] = [
    "A www.example.org",
    "AAAA www.example.org",
    "SOA example.org",
    "NS example.org",
    "MX example.org",
    "TXT example.org",
    "A no.such.name.example.org",
    "TXT www.example.org",
    "A blocked.example.org",
    "ANY www.example.net",
];

/// Writes an authority, and a certificate by it with its key.
pub(crate) fn write_certificate(folder: &Folder, authority: &Authority) {
    let key = KeyPair::generate().unwrap();
    let names = [NAME.to_owned(), "127.0.0.1".to_owned()];
    let certificate = CertificateParams::new(names).unwrap().signed_by(&key, authority).unwrap();
    folder.write("ca.pem", authority.pem());
    // The certificate is written last: a server that sees it change finds its key.
    folder.write("key.pem", key.serialize_pem());
    folder.write("cert.pem", certificate.pem());
}

pub(crate) fn authority() -> Authority {
    // Two of one name are one to who looks an authority up by its name, as curl does.
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    authority_named(&format!("authority {}", NEXT.fetch_add(1, Ordering::SeqCst)))
}

fn authority_named(name: &str) -> Authority {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

/// Plain DNS, TLS and HTTPS at these ports.
fn corefile(ports: [u16; 3]) -> String {
    let body = "bind 127.0.0.1
   template ANY ANY blocked.example.org {
      rcode NXDOMAIN
   }
   file db.example example.org";
    let [plain, tls, https] = ports;
    format!(
        ".:{plain} {{\n   {body}\n}}
tls://.:{tls} {{\n   tls cert.pem key.pem\n   {body}\n}}
https://.:{https} {{\n   tls cert.pem key.pem\n   {body}\n}}\n"
    )
}

fn folder(corefile: &str, authority: &Authority) -> Folder {
    let folder = Folder::new(corefile);
    folder.write("db.example", ZONE);
    write_certificate(&folder, authority);
    folder
}

/// What kdig prints of an answer: its status, then the records of the answer section in some order.
fn kdig(port: u16, ca: &Path, words: &str) -> String {
    let mut command = Command::new(program("kdig"));
    command.args(["@127.0.0.1", "-p", &port.to_string(), "+retry=2", "+timeout=20", "+noall", "+header", "+answer"]);
    // To kdig these options mean TLS by themselves.
    if words.contains("+tls") || words.contains("+https") {
        command.arg(format!("+tls-ca={}", ca.display())).arg(format!("+tls-hostname={NAME}"));
    }
    let output = command.args(words.split_whitespace()).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let status = text.split("QUERY; status: ").nth(1).and_then(|rest| rest.split(';').next()).unwrap_or("nothing");
    let records = text.lines().filter(|line| !line.starts_with(';') && !line.trim().is_empty());
    let mut records: Vec<String> = records.map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    records.sort();
    [status.to_owned()].into_iter().chain(records).collect::<Vec<_>>().join("\n")
}

/// The version of HTTP, the status, the content type and how long the answer may be kept.
fn curl(port: u16, ca: &Path, args: &[&str]) -> String {
    let url = format!("https://{NAME}:{port}{}", args[0]);
    let output = Command::new(program("curl"))
        .args(["--silent", "--show-error", "--max-time", "60", "--noproxy", "*", "--output", "/dev/null", "--cacert"])
        .arg(ca)
        .args(["--resolve", &format!("{NAME}:{port}:127.0.0.1"), "--write-out"])
        .arg("%{http_version} %{http_code} %{content_type} %header{cache-control}")
        .args(&args[1..])
        .arg(url)
        .output()
        .unwrap();
    // Why there is no answer.
    String::from_utf8([output.stdout, output.stderr].concat()).unwrap()
}

#[test]
fn answers_over_tls_and_https_are_those_of_coredns() {
    let authority = authority();
    let [theirs, ours] = [(); 2].map(|()| [(); 3].map(|()| free_port()));
    let _coredns = CoreDns::start(folder(&corefile(theirs), &authority), theirs[0]);
    let serving = Serving::start_in(folder(&corefile(ours), &authority));
    serving.wait_for("serving encrypted DNS", 2);
    let ca = serving.folder.path("ca.pem");
    let mut asked = 0;
    for words in QUESTIONS {
        let plain = kdig(ours[0], &ca, words);
        assert_ne!(plain, "nothing", "{words}");
        for (at, transport) in [(1, "+tls"), (2, "+https"), (2, "+https-get")] {
            let words = format!("{words} {transport}");
            let own = kdig(ours[at], &ca, &words);
            assert_eq!(own, plain, "{words}: over UDP and encrypted");
            // `nobody-answers` and `file-any` are intended differences of plain DNS.
            if !words.contains("ANY") {
                assert_eq!(own, kdig(theirs[at], &ca, &words), "{words}: ours and CoreDNS'");
                asked += 1;
            }
        }
    }
    assert_eq!(asked, 27);
    // `A www.example.org`
    let good = "AAABAAABAAAAAAAAA3d3dwdleGFtcGxlA29yZwAAAQAB";
    for args in [
        vec![format!("/dns-query?dns={good}")],
        vec![format!("/dns-query?dns={good}"), "--http1.1".to_owned()],
        vec![format!("/dns-query?dns={good}=")],
        vec!["/dns-query".to_owned()],
        vec!["/other".to_owned()],
    ] {
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let [theirs, ours] = [theirs[2], ours[2]].map(|port| curl(port, &ca, &args));
        // The content types of errors are of texts that nobody reads.
        let without_type = |text: &str| text.replace(" text/plain; charset=utf-8", " ");
        assert_eq!(without_type(&ours), without_type(&theirs), "{args:?}");
    }
}

#[test]
fn a_coredns_over_https_is_an_upstream() {
    let authority = authority();
    let theirs = [(); 3].map(|()| free_port());
    let _coredns = CoreDns::start(folder(&corefile(theirs), &authority), theirs[0]);
    let port = free_port();
    let text = format!(
        ".:{port} {{\n bind 127.0.0.1\n errors\n forward . https://127.0.0.1%{NAME}:{} {{\n tls ca.pem\n }}\n}}\n",
        theirs[2]
    );
    let serving = Serving::start_in(folder(&text, &authority));
    let ca = serving.folder.path("ca.pem");
    for words in QUESTIONS.iter().filter(|words| !words.contains("ANY")) {
        assert_eq!(kdig(port, &ca, words), kdig(theirs[0], &ca, words), "{words}\n{}", serving.told());
    }
}

/// The kind and the protocol of messages that a server tells of by dnstap, as the reader of dnstap's authors reads them.
struct Tap {
    process: Process,
    lines: Receiver<String>,
}

impl Tap {
    fn start(path: &Path) -> Self {
        let mut reader = Command::new(peer("dnstap"));
        let mut child = reader.arg("unix").arg(path).stdout(Stdio::piped()).spawn().unwrap();
        let (send, lines) = channel();
        let output = BufReader::new(child.stdout.take().unwrap());
        std::thread::spawn(move || output.lines().map_while(Result::ok).for_each(|line| _ = send.send(line)));
        let tap = Self { process: Process::owned(child), lines };
        // It says where it listens.
        tap.lines.recv_timeout(TEST_TIMEOUT).unwrap();
        tap
    }

    /// The next dnstap messages, sorted: namewall may report an answer before the query that it forwarded for it.
    fn next(&mut self, count: usize) -> Vec<String> {
        let mut told: Vec<String> = (0..count)
            .map(|_| {
                let line = self.lines.recv_timeout(TEST_TIMEOUT).unwrap();
                assert!(self.process.is_alive());
                let told: Value = serde_json::from_str(&line).unwrap();
                let of = |name: &str| told["dnstap"]["message"][name].as_str().unwrap_or("-").to_owned();
                format!("{} {}", of("type"), of("socket_protocol"))
            })
            .collect();
        told.sort();
        told
    }
}

/// A reader of dnstap can tell how clients and upstreams are asked. CoreDNS says TCP of all that is encrypted.
#[test]
fn dnstap_tells_tls_and_https_apart() {
    let authority = authority();
    let (above, above_tls) = (free_port(), free_port());
    let upstream = format!(
        ".:{above} {{\n bind 127.0.0.1\n whoami\n}}\n\
         tls://example.org:{above_tls} {{\n bind 127.0.0.1\n tls cert.pem key.pem\n file db.example\n}}\n"
    );
    let _upstream = CoreDns::start(folder(&upstream, &authority), above);
    let text = |ports: [u16; 3]| {
        let forward = format!("forward . tls://127.0.0.1:{above_tls} {{\n tls ca.pem\n tls_servername {NAME}\n}}");
        corefile(ports).replace("file db.example example.org", &format!("dnstap tap full\n {forward}"))
    };
    let [theirs, ours] = [(); 2].map(|()| [(); 3].map(|()| free_port()));
    let served = folder(&text(theirs), &authority);
    let (mut their_tap, ca) = (Tap::start(&served.path("tap")), served.path("ca.pem"));
    let _coredns = CoreDns::start(served, theirs[0]);
    let served = folder(&text(ours), &authority);
    let mut our_tap = Tap::start(&served.path("tap"));
    let _serving = Serving::start_in(served);
    let expected = |client: &str, upstream: &str| {
        ["CLIENT_QUERY", "CLIENT_RESPONSE"]
            .map(|kind| format!("{kind} {client}"))
            .into_iter()
            .chain(["FORWARDER_QUERY", "FORWARDER_RESPONSE"].map(|kind| format!("{kind} {upstream}")))
            .collect::<Vec<String>>()
    };
    // CoreDNS was asked whether it serves, of what its upstream has not.
    while !their_tap.lines.recv_timeout(TEST_TIMEOUT).unwrap().contains("CLIENT_RESPONSE") {}
    for (at, transport, client) in [(0, "", "UDP"), (0, "+tcp", "TCP"), (1, "+tls", "DOT"), (2, "+https", "DOH")] {
        let words = format!("A www.example.org {transport}");
        assert!(kdig(ours[at], &ca, &words).starts_with("NOERROR"), "{words}");
        assert_eq!(our_tap.next(4), expected(client, "DOT"), "{words}: ours");
        assert!(kdig(theirs[at], &ca, &words).starts_with("NOERROR"), "{words}");
        let client = if client == "UDP" { "UDP" } else { "TCP" };
        assert_eq!(their_tap.next(4), expected(client, "TCP"), "{words}: CoreDNS'");
    }
}

/// Only clients with a certificate of the clients' authority are served, where that is written.
#[test]
fn clients_show_their_certificates_as_they_must_with_coredns() {
    // Clients show certificates only of authorities that a server names, so somebody takes the name of theirs.
    let (of_servers, of_clients, impostor) = (authority(), authority_named("clients"), authority_named("clients"));
    for (option, without, with_another) in
        [("require_and_verify", "nothing", "nothing"), ("verify_if_given", "NOERROR", "nothing")]
    {
        let [theirs, ours] = [(); 2].map(|()| [(); 3].map(|()| free_port()));
        let tls = format!("tls cert.pem key.pem clients.pem {{\n      client_auth {option}\n   }}");
        let served = |ports: [u16; 3]| {
            let folder = folder(&corefile(ports).replace("tls cert.pem key.pem", &tls), &of_servers);
            folder.write("clients.pem", of_clients.pem());
            folder
        };
        let _coredns = CoreDns::start(served(theirs), theirs[0]);
        let serving = Serving::start_in(served(ours));
        serving.wait_for("serving encrypted DNS", 2);
        let ca = serving.folder.path("ca.pem");
        let shown = |name: &str, authority: &Authority| {
            let key = KeyPair::generate().unwrap();
            let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
            params.distinguished_name.push(DnType::CommonName, name);
            let certificate = params.signed_by(&key, authority).unwrap();
            serving.folder.write(&format!("{name}.key"), key.serialize_pem());
            serving.folder.write(&format!("{name}.pem"), certificate.pem());
            [format!("{name}.pem"), format!("{name}.key")].map(|file| serving.folder.path(&file).display().to_string())
        };
        let (good, bad) = (shown("good", &of_clients), shown("bad", &impostor));
        for (certificate, expected) in [(None, without), (Some(&good), "NOERROR"), (Some(&bad), with_another)] {
            let words = certificate.map_or_else(String::new, |[certificate, key]| {
                format!("+tls-certfile={certificate} +tls-keyfile={key}")
            });
            let mut args = vec!["/dns-query?dns=AAABAAABAAAAAAAAA3d3dwdleGFtcGxlA29yZwAAAQAB"];
            args.extend(certificate.iter().flat_map(|[certificate, key]| ["--cert", certificate, "--key", key]));
            for (ports, whose) in [(ours, "ours"), (theirs, "CoreDNS'")] {
                let told = kdig(ports[1], &ca, &format!("A www.example.org +tls {words}"));
                assert!(told.starts_with(expected), "{whose}, {option}, {certificate:?}: {told}");
                let told = curl(ports[2], &ca, &args);
                assert_eq!(
                    told.starts_with("2 200 "),
                    expected == "NOERROR",
                    "{whose}, {option}, {certificate:?}: {told}"
                );
            }
        }
    }
}

/// Waits until kdig gets what it should.
fn eventually(port: u16, ca: &Path, expected: &str) {
    let began = Instant::now();
    loop {
        let seen = kdig(port, ca, "A www.example.org +tls");
        if seen.starts_with(expected) {
            return;
        }
        assert!(began.elapsed() < TEST_TIMEOUT, "{seen}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_certificate_that_changes_is_read_again_and_a_bad_one_is_not_served() {
    let (first, second) = (authority(), authority());
    let ports = [(); 3].map(|()| free_port());
    let text = corefile(ports).replace("bind 127.0.0.1", "bind 127.0.0.1\n   reload 2s 1s");
    let serving = Serving::start_in(folder(&text, &first));
    let old_ca = serving.folder.path("old.pem");
    std::fs::copy(serving.folder.path("ca.pem"), &old_ca).unwrap();
    eventually(ports[1], &old_ca, "NOERROR");
    serving.folder.write("cert.pem", "no certificate");
    serving.wait_for("cert.pem has no certificate", 1);
    serving.wait_for("it is served as it was before", 1);
    eventually(ports[1], &old_ca, "NOERROR");
    write_certificate(&serving.folder, &second);
    eventually(ports[1], &serving.folder.path("ca.pem"), "NOERROR");
    eventually(ports[1], &old_ca, "nothing");
}
