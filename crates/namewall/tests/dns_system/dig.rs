//! Asked by dig, by UDP and TCP.

use crate::ports::free_port;
use crate::process::{Folder, Serving};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::process::Command;

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

/// What dig prints of an answer: its status, then its records.
pub(crate) fn dig(server: impl Into<IpAddr>, port: u16, words: &str) -> String {
    let server = server.into();
    let output = Command::new(namewall_testbed::program("dig"))
        .arg(format!("@{server}"))
        .args(["-p", &port.to_string(), "+time=5", "+tries=1", "+noall", "+comments", "+answer", "+authority"])
        .args(words.split_whitespace())
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let status = text.split("status: ").nth(1).and_then(|rest| rest.split(',').next()).unwrap_or("nothing");
    let records = text.lines().filter(|line| !line.starts_with(';') && !line.trim().is_empty());
    let records = records.map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
    [status.to_owned()].into_iter().chain(records).collect::<Vec<_>>().join("\n")
}

#[test]
fn dig_is_answered_by_udp_and_tcp_and_either_version_of_ip() {
    let port = free_port();
    let serving = Serving::start(&corefile(port));
    for server in [Ipv4Addr::LOCALHOST.into(), IpAddr::from(Ipv6Addr::LOCALHOST)] {
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
    let output = Command::new(namewall_testbed::program("dig"))
        .args(["@127.0.0.1", "-p", &port.to_string(), "a.blocked.example", "+tries=1"])
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("EDE: 15 (Blocked)"), "{text}");
}
