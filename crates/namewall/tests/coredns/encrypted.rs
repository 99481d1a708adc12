//! DNS over TLS and HTTPS: kdig and curl ask `namewall dns` and a real CoreDNS the same, and namewall asks CoreDNS.

use crate::corefiles::ZONE;
use crate::peer::CoreDns;
use crate::ports::free_port;
use crate::process::{Folder, Serving, TEST_TIMEOUT};
use namewall_testbed::program;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

const NAME: &str = "dns.example";

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
fn write_certificate(folder: &Folder, authority: &CertifiedIssuer<'static, KeyPair>) {
    let key = KeyPair::generate().unwrap();
    let names = [NAME.to_owned(), "127.0.0.1".to_owned()];
    let certificate = CertificateParams::new(names).unwrap().signed_by(&key, authority).unwrap();
    folder.write("ca.pem", authority.pem());
    // The certificate is written last: a server that sees it change finds its key.
    folder.write("key.pem", key.serialize_pem());
    folder.write("cert.pem", certificate.pem());
}

fn authority() -> CertifiedIssuer<'static, KeyPair> {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
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

fn folder(corefile: &str, authority: &CertifiedIssuer<'static, KeyPair>) -> Folder {
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
        .args(["--silent", "--max-time", "60", "--noproxy", "*", "--output", "/dev/null", "--cacert"])
        .arg(ca)
        .args(["--resolve", &format!("{NAME}:{port}:127.0.0.1"), "--write-out"])
        .arg("%{http_version} %{http_code} %{content_type} %header{cache-control}")
        .args(&args[1..])
        .arg(url)
        .output()
        .unwrap();
    String::from_utf8(output.stdout).unwrap()
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
