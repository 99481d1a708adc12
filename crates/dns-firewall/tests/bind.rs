//! Policy zones of a real server, BIND: transferred whole and by changes; and what BIND itself makes of the same zone.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(dead_code, unused_imports, reason = "the support is shared with the tests in `serve`")]

#[path = "../../dns/tests/support/stub.rs"]
mod stub;
#[path = "serve/support/mod.rs"]
mod support;

use namewall_dns::wire::{Header, Section, records};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};
use stub::{Over, Upstream, eventually};
use support::{Ask, Live, answer, receive};

struct Bind {
    process: Child,
    port: u16,
    folder: PathBuf,
}

impl Drop for Bind {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn zone(serial: u32, records: &str) -> String {
    format!("$TTL 300\n@ SOA ns.policy.example. host.policy.example. {serial} 1 1 86400 60\n@ NS localhost.\n{records}")
}

impl Bind {
    /// One with a policy zone. With options of its own it may be a resolver, too.
    fn start(name: &str, records: &str, options: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("namewall-bind-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("policy.zone"), zone(1, records)).unwrap();
        // A port that was free a moment ago; somebody else may take it, and then another is tried.
        let free = || TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let started = (0..5).find_map(|_| Self::try_start(folder.clone(), free(), options));
        started.expect("named listens; its log says why it does not")
    }

    fn try_start(folder: PathBuf, port: u16, options: &str) -> Option<Self> {
        let at = folder.display();
        let text = format!(
            "options {{
                directory \"{at}\"; pid-file none; session-keyfile none; managed-keys-directory \"{at}\";
                listen-on port {port} {{ 127.0.0.1; }}; listen-on-v6 {{ none; }};
                allow-transfer {{ 127.0.0.1; }}; notify no; ixfr-from-differences yes; dnssec-validation no;
                {options}
            }};
            controls {{ }};
            zone \"policy.example\" {{ type primary; file \"policy.zone\"; allow-query {{ any; }}; }};
            "
        );
        std::fs::write(folder.join("named.conf"), text).unwrap();
        let log = std::fs::File::create(folder.join("log")).unwrap();
        let program = namewall_testbed::program("named");
        let process = Command::new(program)
            .args(["-g", "-n", "1", "-c"])
            .arg(folder.join("named.conf"))
            .stdin(Stdio::null())
            .stderr(log)
            .spawn();
        let mut bind = Self { process: process.expect("named starts"), port, folder };
        let began = Instant::now();
        while began.elapsed() < Duration::from_secs(30) && bind.process.try_wait().unwrap().is_none() {
            if bind.log().contains("running") && TcpStream::connect(("127.0.0.1", port)).is_ok() {
                return Some(bind);
            }
            sleep(Duration::from_millis(20));
        }
        eprintln!("{}", bind.log());
        None
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.folder.join("log")).unwrap_or_default()
    }

    /// Serves another version.
    fn becomes(&self, serial: u32, records: &str) {
        let file = self.folder.join("policy.zone");
        std::fs::write(&file, zone(serial, records)).unwrap();
        // It looks at the time of a file, in seconds.
        let later = std::time::SystemTime::now() + Duration::from_secs(60 * u64::from(serial));
        std::fs::File::options().write(true).open(&file).unwrap().set_modified(later).unwrap();
        let told = Command::new("kill").args(["-HUP", &self.process.id().to_string()]).status().unwrap();
        assert!(told.success());
    }
}

const DENIED: &str = "NXDOMAIN; authority . 60 SOA 60";

#[test]
fn a_policy_zone_is_transferred_whole_and_by_changes() {
    let many: String = (0..5_000).map(|number| format!("name{number}.example CNAME .\n")).collect();
    let mut bind = Bind::start("transfer", &format!("bad.example CNAME .\n{many}"), "recursion no;");
    let hosts = "hosts /no/such/file {\n192.0.2.1 bad.example good.example name17.example\n}";
    let live = Live::start(&format!(".:PORT0 {{\nrpz policy.example from 127.0.0.1:{}\n{hosts}\n}}", bind.port));
    let good = "NOERROR aa; good.example. 3600 A 192.0.2.1";
    eventually(|| live.ask("A good.example") == good);
    assert_eq!(live.ask("A bad.example"), DENIED);
    assert_eq!(live.ask("A name17.example"), DENIED);
    assert!(bind.log().contains("AXFR started"), "{}", bind.log());
    bind.becomes(2, &format!("good.example CNAME .\n{many}"));
    eventually(|| live.ask("A good.example") == DENIED);
    assert_eq!(live.ask("A bad.example"), "NOERROR aa; bad.example. 3600 A 192.0.2.1");
    assert_eq!(live.ask("A name17.example"), DENIED);
    assert!(bind.log().contains("IXFR started"), "{}", bind.log());
    assert!(live.told.has("serial 2, 5001 records"));
    // Without its server the last version goes on to count.
    bind.process.kill().unwrap();
    eventually(|| live.told.has("the last version goes on to count"));
    assert_eq!(live.ask("A good.example"), DENIED);
}

const RECORDS: &str = "bad.example CNAME .\n*.bad.example CNAME .\nok.bad.example CNAME rpz-passthru.\n\
    none.example CNAME *.\nslow.example CNAME rpz-tcp-only.\nown.example A 192.0.2.77\nown.example TXT text\n\
    garden.example CNAME walled.example.\n*.wild.example CNAME *.walled.example.\n24.0.2.0.192.rpz-ip CNAME .\n\
    32.7.2.0.192.rpz-ip CNAME rpz-passthru.\n32.8.2.0.192.rpz-ip CNAME walled.example.\n\
    *.tree.example CNAME .\ndeep.down.tree.example CNAME *.\n48.zz.1.db8.2001.rpz-ip CNAME *.\n32.2.0.0.127.rpz-client-ip CNAME .\n32.3.0.0.127.rpz-client-ip CNAME rpz-passthru.\n";

/// What upstreams say of names.
fn world(query: &[u8], _: Over) -> Vec<Vec<u8>> {
    let question = namewall_dns::wire::Question::of_query(query).unwrap();
    let name = question.name.to_string();
    let address = |address: &str| format!("{name}. 60 A {address}");
    let kind = question.record_type.0;
    let lines: Vec<String> = match (&*name, kind) {
        ("alias.example", kind) => {
            let alias = format!("{name}. 60 CNAME bad.example.");
            let address = (kind == 1).then(|| "bad.example. 60 A 198.51.100.80".to_owned());
            std::iter::once(alias).chain(address).collect()
        }
        ("v6.example", 28) => vec![format!("{name}. 60 AAAA 2001:db8:1::5")],
        ("other6.example", 28) => vec![format!("{name}. 60 AAAA 2001:db8:2::5")],
        (_, kind) if kind != 1 => Vec::new(),
        ("listed.example", _) => vec![address("192.0.2.1")],
        ("seven.example", _) => vec![address("192.0.2.7")],
        ("eight.example", _) => vec![address("192.0.2.8")],
        ("two.example", _) => vec![address("198.51.100.1"), address("192.0.2.9")],
        _ => vec![address("198.51.100.80")],
    };
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    vec![answer(query, &lines)]
}

/// The code of a reply, whether it is cut off, and its answers without their TTLs.
fn said(reply: &[u8]) -> String {
    let header = Header::read(reply).unwrap();
    let all = records(reply).unwrap();
    let mut answers: Vec<String> = all
        .iter()
        .filter(|record| record.section == Section::Answer)
        .map(|record| {
            let name = |at| namewall_dns::wire::Name::read(reply, at).unwrap().0.to_string();
            match record.kind.0 {
                5 => format!("{} CNAME {}", name(record.owner), name(record.ttl_at + 6)),
                kind => format!("{} {kind} {:?}", name(record.owner), record.data),
            }
        })
        .collect();
    answers.sort();
    format!("{}{} {}", header.rcode, if header.is_truncated { " tc" } else { "" }, answers.join("; "))
}

fn ask_at(server: SocketAddr, ask: &Ask) -> String {
    let socket = UdpSocket::bind((ask.client.ip(), 0)).unwrap();
    socket.set_read_timeout(Some(stub::TEST_TIMEOUT)).unwrap();
    socket.connect(server).unwrap();
    socket.send(&ask.query).unwrap();
    receive(&socket).map_or_else(|| "silence".to_owned(), |reply| said(&reply))
}

#[test]
fn bind_says_the_same_of_the_same_zone() {
    let upstream = Upstream::with(world);
    let options = format!(
        "recursion yes; allow-recursion {{ any; }}; forward only; forwarders {{ 127.0.0.1 port {}; }};
         response-policy {{ zone \"policy.example\"; }} break-dnssec yes qname-wait-recurse no;",
        upstream.address.port()
    );
    let bind = Bind::start("second", RECORDS, &options);
    let live = Live::start(&format!(
        ".:PORT0 {{\nrpz policy.example from 127.0.0.1:{}\nforward . {}\n}}",
        bind.port, upstream.address
    ));
    eventually(|| {
        live.ask("A bad.example") == DENIED && bind.log().contains("rpz: policy.example: reload done: success")
    });
    let names = [
        "bad.example",
        "www.bad.example",
        "a.b.bad.example",
        "ok.bad.example",
        "x.ok.bad.example",
        "evilbad.example",
        "none.example",
        "tree.example",
        "a.tree.example",
        "down.tree.example",
        "a.down.tree.example",
        "deep.down.tree.example",
        "a.deep.down.tree.example",
        "slow.example",
        "own.example",
        "garden.example",
        "a.wild.example",
        "wild.example",
        "listed.example",
        "seven.example",
        "eight.example",
        "two.example",
        "alias.example",
        "plain.example",
        "v6.example",
        "other6.example",
        "32.7.2.0.192.rpz-ip",
    ];
    for name in names {
        for kind in ["A", "AAAA", "TXT", "CNAME"] {
            for client in ["127.0.0.1", "127.0.0.2", "127.0.0.3"] {
                let question = format!("{kind} {name} from {client}");
                let ask = Ask::from(&*question);
                let theirs = ask_at(([127, 0, 0, 1], bind.port).into(), &ask);
                let ours = ask_at(([127, 0, 0, 1], live.ports[0]).into(), &ask);
                // BIND gives the alias before the denial of its target; here the denial is of the name that was asked for.
                let theirs = if theirs == "NXDOMAIN alias.example CNAME bad.example" { "NXDOMAIN " } else { &theirs };
                assert_eq!(ours, theirs, "{question}");
            }
        }
    }
}
