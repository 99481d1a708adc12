//! Another server over TLS: unbound.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(dead_code, unused_imports, reason = "the support is shared with the tests in `serve`")]

#[path = "../../dns/tests/support/stub.rs"]
mod stub;
#[path = "serve/support/mod.rs"]
mod support;

use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};
use support::{Authority, Live};

struct Unbound {
    process: Child,
    port: u16,
}

impl Drop for Unbound {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Unbound {
    /// One that ends connections as soon as they are idle.
    fn start(authority: &Authority) -> Self {
        let files = authority.files("dns.example");
        let (certificate, key) = files.split_once(' ').unwrap();
        // A port that was free a moment ago; somebody else may take it, and then another is tried.
        let free = || TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let started = (0..5).find_map(|_| Self::try_start(authority, free(), certificate, key));
        started.expect("unbound listens; it says above why it does not")
    }

    fn try_start(authority: &Authority, port: u16, certificate: &str, key: &str) -> Option<Self> {
        let file = authority.path("unbound.conf");
        let text = format!(
            "server:
    directory: \"\"
    chroot: \"\"
    username: \"\"
    pidfile: \"\"
    do-daemonize: no
    use-syslog: no
    interface: 127.0.0.1@{port}
    tls-port: {port}
    tls-service-key: \"{key}\"
    tls-service-pem: \"{certificate}\"
    tcp-idle-timeout: 300
    access-control: 127.0.0.0/8 allow
    module-config: \"iterator\"
    local-zone: \"example.\" static
    local-data: \"www.example. 300 IN A 192.0.2.1\"
    local-data: \"text.example. 300 IN TXT '{}'\"
remote-control:
    control-enable: no
",
            "x".repeat(200)
        );
        std::fs::write(&file, text).unwrap();
        let program = namewall_testbed::program("unbound");
        let process = Command::new(program).args(["-d", "-c", &file]).stdin(Stdio::null()).spawn();
        let mut unbound = Self { process: process.expect("unbound starts"), port };
        let began = Instant::now();
        while began.elapsed() < Duration::from_secs(20) && unbound.process.try_wait().unwrap().is_none() {
            if TcpStream::connect(("127.0.0.1", port)).is_ok() {
                return Some(unbound);
            }
            sleep(Duration::from_millis(20));
        }
        None
    }
}

#[test]
fn unbound_is_asked_over_tls_also_after_it_has_hung_up() {
    let authority = Authority::new("unbound");
    let unbound = Unbound::start(&authority);
    let live = Live::start(&format!(
        ".:PORT0 {{\n forward . tls://127.0.0.1%dns.example:{} {{\n tls {}\n }}\n}}",
        unbound.port,
        authority.ca()
    ));
    for _ in 0..3 {
        for over in ["", "tcp"] {
            assert_eq!(live.ask(&format!("A www.example {over}")), "NOERROR aa; www.example. 300 A 192.0.2.1");
            assert!(live.ask(&format!("TXT text.example {over}")).contains(&"x".repeat(200)));
            assert!(live.ask(&format!("A nobody.example {over}")).starts_with("NXDOMAIN"));
        }
        sleep(Duration::from_millis(500));
    }
    // To whom its certificate means nothing it is as good as silent.
    let stranger = Authority::new("not-unbounds");
    let live = Live::start(&format!(
        ".:PORT0 {{\n forward . tls://127.0.0.1%dns.example:{} {{\n tls {}\n }}\n}}",
        unbound.port,
        stranger.ca()
    ));
    assert_eq!(live.ask("A www.example"), "SERVFAIL");
}
