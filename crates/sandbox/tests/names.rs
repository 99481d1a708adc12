//! DNS outside, asked from pods with real packets.

mod common;

use common::{Cluster, address, has_rights};
use namewall_sandbox::{Ask, Heard, Sandbox};
use namewall_scenario::Scenario;
use namewall_scenario::zones::{Message, Owner, Rcode, RecordSet, Transport, Zones};
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

const POD: &str = "10.0.0.1";
const POD_V6: &str = "fd00::1";
const OUTSIDE: [&str; 4] = ["203.0.113.53", "203.0.113.54", "2001:db8::53", "203.0.113.66"];
const ZONES: &str = "
      api.example: {A: [198.51.100.7], AAAA: ['2001:db8::7']}
      www.example: {CNAME: api.example}
      '*.wild.example': {A: [198.51.100.9]}
      many.example: {A: [198.18.0.0/21]}
";

fn zones(servers: &str) -> Zones {
    let text = format!(
        "topology:\n  dns:\n    servers: {servers}\n    zones: {ZONES}\nprobes: ['10.0.0.1 -> 10.0.0.2/ICMP: allow']\n"
    );
    Scenario::parse(&text, "inline", Path::new(".")).unwrap_or_else(|error| panic!("{error}")).zones
}

/// A pod on a node, no policy, and these servers outside.
fn sandbox(servers: &str) -> Sandbox {
    let cluster = Cluster::default().node("n1", &["192.0.2.1"]).pod("shop/web", "n1", &[POD, POD_V6]);
    let mut sandbox = cluster.build(&OUTSIDE);
    sandbox.serve_names(&zones(servers)).unwrap_or_else(|error| panic!("{error}"));
    sandbox
}

fn question(server: &str, name: &str) -> Ask {
    Ask {
        server: SocketAddr::new(address(server), 53),
        name: name.parse().expect("a name"),
        kind: "A".parse().expect("a type"),
        via: None,
        edns: Some(1232),
        mixed_case: false,
    }
}

fn ask(sandbox: &Sandbox, ask: Ask) -> Option<Heard> {
    let from = if ask.server.is_ipv4() { POD } else { POD_V6 };
    let place = sandbox.place(address(from)).expect("a place");
    sandbox.ask(&place, &[ask], 1).unwrap_or_else(|error| panic!("{error}")).pop().flatten()
}

fn addresses(heard: Option<Heard>) -> Vec<IpAddr> {
    heard.expect("an answer").addresses
}

#[test]
fn a_pod_asks_over_both_protocols_and_both_families() {
    if !has_rights() {
        return;
    }
    let sandbox = sandbox("{203.0.113.53: {}, '2001:db8::53': {}}");
    for server in ["203.0.113.53", "2001:db8::53"] {
        for via in [None, Some(Transport::Udp), Some(Transport::Tcp)] {
            let heard = ask(&sandbox, Ask { via, ..question(server, "www.example") });
            assert_eq!(addresses(heard), [address("198.51.100.7")], "{server} {via:?}");
        }
        let aaaa = Ask { kind: "AAAA".parse().unwrap(), ..question(server, "Api.Example") };
        assert_eq!(addresses(ask(&sandbox, aaaa)), [address("2001:db8::7")]);
        let nothing = ask(&sandbox, question(server, "nobody.example")).unwrap();
        assert_eq!((nothing.rcode, nothing.is_empty), (Rcode::NXDOMAIN, true));
    }
    let servers = sandbox.name_servers().unwrap();
    assert_eq!(OUTSIDE.map(|server| servers.queries(address(server))), [5, 0, 5, 0]);
}

#[test]
fn what_is_truncated_is_asked_for_again_over_tcp() {
    if !has_rights() {
        return;
    }
    let sandbox = sandbox("{203.0.113.53: {}, 203.0.113.54: {truncate: true}}");
    let whole = ask(&sandbox, question("203.0.113.53", "many.example")).unwrap();
    assert_eq!((whole.addresses.len(), whole.via, whole.truncated), (2048, Transport::Tcp, false));
    assert!(whole.bytes.len() > 32 << 10);
    let cut = Ask { via: Some(Transport::Udp), edns: None, ..question("203.0.113.53", "many.example") };
    let cut = ask(&sandbox, cut).unwrap();
    assert!(cut.truncated && cut.bytes.len() <= 512 && !cut.is_empty);
    let heard = ask(&sandbox, question("203.0.113.54", "api.example")).unwrap();
    assert_eq!((heard.addresses.len(), heard.via), (1, Transport::Tcp));
}

#[test]
fn servers_misbehave_on_the_wire() {
    if !has_rights() {
        return;
    }
    let mut sandbox = sandbox("{203.0.113.53: {}}");
    let mut heard = |behaviour: &str, change: &dyn Fn(Ask) -> Ask| {
        let zones = zones(&format!("{{203.0.113.53: {behaviour}}}"));
        sandbox.serve_names(&zones).unwrap();
        ask(&sandbox, change(question("203.0.113.53", "api.example")))
    };
    let plain = |ask| ask;
    let tcp = |ask| Ask { via: Some(Transport::Tcp), ..ask };
    let mixed = |ask| Ask { mixed_case: true, ..ask };
    assert_eq!(heard("{silent: true}", &plain), None);
    assert_eq!(heard("{garbage: true}", &plain), None);
    assert_eq!(heard("{drop: 1}", &plain), None);
    assert_eq!(heard("{udpOnly: true}", &tcp), None);
    assert_eq!(heard("{tcpOnly: true}", &plain), None);
    assert_eq!(addresses(heard("{tcpOnly: true}", &tcp)), [address("198.51.100.7")]);
    assert_eq!(heard("{rcode: REFUSED}", &plain).unwrap().rcode, Rcode::REFUSED);
    assert_eq!(addresses(heard("{}", &mixed)), [address("198.51.100.7")]);
    assert_eq!(heard("{wrongCase: true}", &mixed), None, "a client that mixes its case does not believe it");
    assert_eq!(addresses(heard("{wrongCase: true}", &plain)), [address("198.51.100.7")]);
    let slow = heard("{slow: 300ms}", &plain).unwrap();
    assert!((300..1500).contains(&slow.took.as_millis()), "{:?}", slow.took);
    let slow = heard("{slow: 300ms}", &tcp).unwrap();
    assert!((300..1500).contains(&slow.took.as_millis()), "{:?}", slow.took);
    for spoof in ["id", "port", "question", "source", "[id, port, question, source]"] {
        let heard = heard(&format!("{{spoof: {spoof}}}"), &plain);
        assert_eq!(addresses(heard), [address("198.51.100.7")], "{spoof}");
    }
}

/// A client that believes whatever comes: what a forger sends does come.
#[test]
fn forged_answers_do_arrive() {
    if !has_rights() {
        return;
    }
    let sandbox = sandbox("{203.0.113.53: {spoof: [id, question, port, source]}}");
    let pod = sandbox.pod("shop/web").unwrap();
    let query = Message::query(7, "api.example".parse().unwrap(), "A".parse().unwrap());
    let came = pod.enter(|| {
        let socket = std::net::UdpSocket::bind((POD, 0)).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        socket.send_to(&query.write(), "203.0.113.53:53").unwrap();
        let mut buffer = [0; 1500];
        [(); 5].map(|()| {
            let (length, from) = socket.recv_from(&mut buffer).unwrap();
            let message = Message::read(&buffer[..length]).unwrap();
            format!("{from} {} {}", message.answers(&query), message.addresses().next().unwrap())
        })
    });
    assert_eq!(
        came.unwrap(),
        [
            "203.0.113.53:53 false 203.0.113.66",
            "203.0.113.53:53 false 203.0.113.66",
            "203.0.113.53:5300 true 203.0.113.66",
            "203.0.113.66:53 true 203.0.113.66",
            "203.0.113.53:53 true 198.51.100.7",
        ]
    );
}

#[test]
fn zones_change_while_they_are_served() {
    if !has_rights() {
        return;
    }
    let sandbox = sandbox("{203.0.113.53: {}}");
    let servers = sandbox.name_servers().unwrap();
    let moved = RecordSet::of_addresses(vec![address("198.51.100.70")], 5);
    servers.replace("api.example".parse().unwrap(), Some(Owner::Records(moved)));
    assert_eq!(addresses(ask(&sandbox, question("203.0.113.53", "www.example"))), [address("198.51.100.70")]);
    servers.replace("api.example".parse().unwrap(), None);
    assert_eq!(ask(&sandbox, question("203.0.113.53", "api.example")).unwrap().rcode, Rcode::NXDOMAIN);
}

#[test]
fn ten_thousand_lookups_at_once() {
    if !has_rights() {
        return;
    }
    let sandbox = sandbox("{203.0.113.53: {}}");
    let place = sandbox.place(address(POD)).unwrap();
    let asks: Vec<Ask> = (0..10_000)
        .map(|at| {
            let via = if at % 10 == 0 { Some(Transport::Tcp) } else { None };
            Ask { via, mixed_case: at % 2 == 0, ..question("203.0.113.53", &format!("n{at}.wild.example")) }
        })
        .collect();
    let start = Instant::now();
    let heard = sandbox.ask(&place, &asks, 200).unwrap();
    let answered = heard.iter().flatten().filter(|heard| heard.addresses == [address("198.51.100.9")]).count();
    assert_eq!(answered, 10_000, "in {:?}", start.elapsed());
    assert_eq!(sandbox.name_servers().unwrap().queries(address("203.0.113.53")), 10_000);
}

/// Three queries in one breath, the answers as they come, and then silence: the server hangs up after 10 s.
#[test]
fn a_stream_is_pipelined_and_closed_when_idle() {
    if !has_rights() {
        return;
    }
    let sandbox = sandbox("{203.0.113.53: {}}");
    let pod = sandbox.pod("shop/web").unwrap();
    let mut stream = pod.enter(|| TcpStream::connect("203.0.113.53:53")).unwrap().unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
    let mut asked = Vec::new();
    for id in 1..=3 {
        let query = Message::query(id, "many.example".parse().unwrap(), "A".parse().unwrap()).write();
        asked.extend((query.len() as u16).to_be_bytes());
        asked.extend(query);
    }
    // A message may come in pieces.
    let (first, rest) = asked.split_at(5);
    stream.write_all(first).unwrap();
    std::thread::sleep(Duration::from_millis(50));
    stream.write_all(rest).unwrap();
    for id in 1..=3 {
        let mut length = [0; 2];
        stream.read_exact(&mut length).unwrap();
        let mut message = vec![0; usize::from(u16::from_be_bytes(length))];
        stream.read_exact(&mut message).unwrap();
        let message = Message::read(&message).unwrap();
        assert_eq!((message.id, message.answer.len()), (id, 2048));
    }
    let start = Instant::now();
    assert_eq!(stream.read(&mut [0; 1]).unwrap(), 0, "it is closed");
    assert!(start.elapsed().as_secs() >= 9, "{:?}", start.elapsed());
}
