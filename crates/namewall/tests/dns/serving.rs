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
fn dig_reads_what_a_zone_file_and_a_template_say() {
    let (port, folder) = (free_port(), Folder::new(""));
    folder.write(
        "db.example",
        "$TTL 300
@ SOA ns hostmaster 1 7200 3600 1209600 60
  NS ns
  MX 10 mail
ns A 192.0.2.53
mail AAAA 2001:db8::25
*.wild TXT \"a b\" c
alias CNAME mail
_sip._tcp SRV 1 2 5060 mail
",
    );
    let text = format!(
        ".:{port} {{
   bind 127.0.0.1
   file {} example.org
   template IN A template.example {{
      match ^ip-([0-9]+)[.]template[.]example[.]$
      answer \"{{{{ .Name }}}} 60 IN A 192.0.2.{{{{ index .Match 1 }}}}\"
   }}
   whoami
}}
",
        folder.path("db.example").display()
    );
    let _serving = Serving::start(&text);
    let ask = |words: &str| dig(Ipv4Addr::LOCALHOST, port, words);
    let soa = "example.org. 60 IN SOA ns.example.org. hostmaster.example.org. 1 7200 3600 1209600 60";
    for over in ["+notcp", "+tcp", "+noedns"] {
        for (question, answer) in [
            ("mx example.org", "NOERROR\nexample.org. 300 IN MX 10 mail.example.org.".to_owned()),
            ("srv _sip._tcp.example.org", "NOERROR\n_sip._tcp.example.org. 300 IN SRV 1 2 5060 mail.example.org.".to_owned()),
            ("txt x.wild.example.org", "NOERROR\nx.wild.example.org. 300 IN TXT \"a b\" \"c\"".to_owned()),
            ("aaaa alias.example.org", "NOERROR\nalias.example.org. 300 IN CNAME mail.example.org.\nmail.example.org. 300 IN AAAA 2001:db8::25".to_owned()),
            ("a mail.example.org", format!("NOERROR\n{soa}")),
            ("a nobody.example.org", format!("NXDOMAIN\n{soa}")),
            ("a ip-7.template.example", "NOERROR\nip-7.template.example. 60 IN A 192.0.2.7".to_owned()),
            ("a ip-777.template.example", "SERVFAIL".to_owned()),
        ] {
            assert_eq!(ask(&format!("{question} {over}")), answer, "{question} {over}");
        }
    }
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
