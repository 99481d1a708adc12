//! Served for real: clients that are not ours, and the end.

use crate::ports::free_port;
use crate::process::{Folder, Serving, dig};
use nix::sys::signal::Signal;
use std::net::{Ipv4Addr, Ipv6Addr, UdpSocket};

fn corefile(port: u16) -> String {
    format!(
        ".:{port} {{
   bind lo
   log . \"{{remote}} {{type}} {{name}} {{rcode}}\"
   hosts /no/such/file {{
      192.0.2.10 www.example
      2001:db8::10 www.example
   }}
   firewall query {{
      refuse under(name, 'refused.example')
      block under(name, 'blocked.example')
      default allow
   }}
}}
"
    )
}

#[test]
fn dig_is_answered_by_udp_and_tcp_and_either_version_of_ip() {
    let port = free_port();
    let serving = Serving::start(&corefile(port));
    for server in [Ipv4Addr::LOCALHOST.into(), std::net::IpAddr::from(Ipv6Addr::LOCALHOST)] {
        for over in ["+notcp", "+tcp"] {
            let ask = |words: &str| dig(server, port, &format!("{words} {over}"));
            assert_eq!(ask("www.example A"), "NOERROR\nwww.example. 3600 IN A 192.0.2.10");
            assert_eq!(ask("WWW.example AAAA +noedns"), "NOERROR\nWWW.example. 3600 IN AAAA 2001:db8::10");
            assert_eq!(ask("-x 192.0.2.10"), "NOERROR\n10.2.0.192.in-addr.arpa. 3600 IN PTR www.example.");
            assert_eq!(ask("a.refused.example A"), "REFUSED");
            let blocked = ask("a.blocked.example A");
            let soa = "NXDOMAIN\n. 60 IN SOA namewall.invalid. hostmaster.invalid. 1 3600 600 86400 60";
            assert_eq!(blocked, soa);
        }
    }
    serving.wait_for("[INFO] 127.0.0.1 A www.example. NOERROR", 2);
    serving.wait_for("[INFO] [::1] A a.refused.example. REFUSED", 2);
}

#[test]
fn why_something_is_blocked_is_told_to_who_can_be_told() {
    let port = free_port();
    let _serving = Serving::start(&corefile(port));
    let output = std::process::Command::new("dig")
        .args(["@127.0.0.1", "-p", &port.to_string(), "a.blocked.example", "+tries=1"])
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("EDE: 15 (Blocked)"), "{text}");
}

#[test]
fn it_ends_when_it_is_told_to() {
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let port = free_port();
        let serving = Serving::start(&corefile(port));
        serving.signal(signal);
        serving.wait_for("note: ended", 1);
        let (status, told) = serving.end();
        assert!(status.success(), "{told}");
        // Somebody else can have its port.
        assert!(UdpSocket::bind((Ipv4Addr::LOCALHOST, port)).is_ok());
    }
}

#[test]
fn a_port_that_is_taken_is_told() {
    let taken = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = taken.local_addr().unwrap().port();
    let (code, told) = Folder::new(&format!(".:{port} {{\n bind 127.0.0.1\n}}\n")).run(&[]);
    let why = "is another DNS server running there?: Address already in use (os error 98)";
    assert_eq!(told, format!("error: cannot listen at 127.0.0.1:{port}; {why}\n"));
    assert_eq!(code, Some(2));
}
