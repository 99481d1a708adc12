use super::*;
use crate::Scenario;
use std::path::Path;
use std::time::Duration;

const SERVER: &str = "203.0.113.53";

fn zones(servers: &str, zones: &str) -> Zones {
    let text = format!(
        "topology:\n  dns:\n    servers: {{{SERVER}: {servers}}}\n    zones:\n{zones}\nprobes: ['10.0.0.1 -> 10.0.0.2/ICMP: allow']\n"
    );
    Scenario::parse(&text, "inline", Path::new(".")).unwrap_or_else(|error| panic!("{error}\n{text}")).zones
}

fn asked(name: &str, kind: &str) -> Message {
    Message::query(0x1234, name.parse().unwrap(), kind.parse().unwrap())
}

/// What comes back, in words: records, then `rcode`.
fn told(bytes: &[u8]) -> String {
    let message = Message::read(bytes).unwrap();
    let mut words: Vec<String> = Vec::new();
    words.push(message.rcode.to_string());
    words.extend(message.truncated.then(|| "TC".to_owned()));
    words.extend(message.answer.iter().map(|record| match &record.data {
        Data::Name(kind, target) => format!("{} {kind} {target}", record.owner),
        data => format!("{} {}", record.owner, data.address().map_or("data".to_owned(), |address| address.to_string())),
    }));
    words.extend(message.authority.iter().map(|record| format!("{} of {}", record.data.kind(), record.owner)));
    words.join(", ")
}

fn ask_over(zones: &mut Zones, query: &Message, transport: Transport) -> Vec<Reply> {
    zones.respond(SERVER.parse().unwrap(), &query.write(), transport)
}

fn ask(zones: &mut Zones, name: &str, kind: &str) -> String {
    let replies = ask_over(zones, &asked(name, kind), Transport::Udp);
    assert_eq!(replies.len(), 1);
    told(&replies[0].bytes)
}

#[test]
fn names_aliases_wildcards_and_nothing() {
    let mut zones = zones(
        "{}",
        "
      api.example.com: {A: [198.51.100.7], AAAA: ['2001:db8::7'], ttl: 60}
      www.example.com.: {CNAME: api.example.com}
      far.example.com: {CNAME: nowhere.example.net}
      cut.example.com: {CNAME: api.example.com, chase: false}
      round.example.com: {CNAME: about.example.com}
      about.example.com: {CNAME: round.example.com}
      '*.wild.example.com': {A: 198.51.100.9}
      a.deep.wild.example.com: {A: 198.51.100.10}
      ",
    );
    let mut check =
        |name: &str, kind: &str, expected: &str| assert_eq!(ask(&mut zones, name, kind), expected, "{name}");
    check("Api.Example.COM", "A", "NOERROR, Api.Example.COM 198.51.100.7");
    check("api.example.com", "AAAA", "NOERROR, api.example.com 2001:db8::7");
    check("api.example.com", "TXT", "NOERROR, SOA of example.com");
    check("www.example.com", "A", "NOERROR, www.example.com CNAME api.example.com, api.example.com 198.51.100.7");
    check("www.example.com", "CNAME", "NOERROR, www.example.com CNAME api.example.com");
    check("far.example.com", "A", "NXDOMAIN, far.example.com CNAME nowhere.example.net, SOA of example.net");
    check("cut.example.com", "A", "NOERROR, cut.example.com CNAME api.example.com");
    let circle = "round.example.com CNAME about.example.com, about.example.com CNAME round.example.com";
    check("round.example.com", "A", &format!("NOERROR, {circle}"));
    check("x.wild.example.com", "A", "NOERROR, x.wild.example.com 198.51.100.9");
    check("x.y.wild.example.com", "A", "NOERROR, x.y.wild.example.com 198.51.100.9");
    check("wild.example.com", "A", "NOERROR, SOA of example.com");
    // RFC 4592: a name that exists, if only by what is under it, keeps the wildcard from all under it.
    check("b.deep.wild.example.com", "A", "NXDOMAIN, SOA of example.com");
    check("deep.wild.example.com", "A", "NOERROR, SOA of example.com");
    check("gone.example", "A", "NXDOMAIN, SOA of gone.example");
}

#[test]
fn a_block_is_each_address_and_rotates() {
    let mut zones = zones("{}", "      many.example: {A: [198.51.100.0/30, 192.0.2.9], rotate: 2, ttl: 0}");
    let mut next = || ask(&mut zones, "many.example", "A").replace("NOERROR, ", "").replace("many.example ", "");
    assert_eq!(
        [next(), next(), next()],
        ["198.51.100.0, 198.51.100.1", "198.51.100.2, 198.51.100.3", "192.0.2.9, 198.51.100.0"]
    );
}

#[test]
fn what_does_not_fit_is_truncated() {
    let mut zones = zones("{}", "      many.example: {A: [198.51.100.0/24]}");
    let counted = |zones: &mut Zones, edns, transport| {
        let query = Message { edns, ..asked("many.example", "A") };
        let replies = ask_over(zones, &query, transport);
        let read = Message::read(&replies[0].bytes).unwrap();
        assert_eq!(read.edns, edns.map(|_| 1232));
        (replies[0].bytes.len(), read.answer.len(), read.truncated)
    };
    assert_eq!(counted(&mut zones, None, Transport::Udp), (510, 30, true));
    assert_eq!(counted(&mut zones, Some(1232), Transport::Udp), (1225, 74, true));
    assert!(counted(&mut zones, Some(100), Transport::Udp).2);
    assert!(counted(&mut zones, Some(4096), Transport::Udp).2);
    assert_eq!(counted(&mut zones, None, Transport::Tcp), (30 + 256 * 16, 256, false));
}

#[test]
fn a_stream_carries_64_kib_and_not_more() {
    let mut zones = zones("{}", "      many.example: {A: [198.18.0.0/20, 198.18.16.0/22]}");
    let reply = &ask_over(&mut zones, &asked("many.example", "A"), Transport::Tcp)[0];
    assert!(reply.bytes.len() <= 0xffff && Message::read(&reply.bytes).unwrap().truncated);
}

#[test]
fn servers_misbehave_as_told() {
    let zone = "      api.example: {A: [198.51.100.7]}";
    let replies = |servers: &str, transport| ask_over(&mut zones(servers, zone), &asked("Api.example", "A"), transport);
    let one = |servers: &str, transport| {
        let replies = replies(servers, transport);
        assert_eq!(replies.len(), 1, "{servers}");
        told(&replies[0].bytes)
    };
    use Transport::{Tcp, Udp};
    assert_eq!(replies("{silent: true}", Udp), []);
    assert_eq!(replies("{tcpOnly: true}", Udp), []);
    assert_eq!(replies("{udpOnly: true}", Tcp), []);
    assert_eq!(replies("{slow: 300ms}", Udp)[0].delay, Duration::from_millis(300));
    assert_eq!(one("{rcode: SERVFAIL}", Udp), "SERVFAIL");
    assert_eq!(one("{truncate: true}", Udp), "NOERROR, TC");
    assert_eq!(one("{truncate: true}", Tcp), "NOERROR, Api.example 198.51.100.7");
    assert!(Message::read(&replies("{garbage: true}", Udp)[0].bytes).is_err());
    assert_eq!(one("{wrongCase: true}", Udp), "NOERROR, api.example 198.51.100.7");
    assert!(replies("{compress: false}", Udp)[0].bytes.len() > replies("{}", Udp)[0].bytes.len());

    let mut dropping = zones("{drop: 2}", zone);
    let lengths = [(); 3].map(|()| ask_over(&mut dropping, &asked("api.example", "A"), Udp).len());
    assert_eq!((lengths, dropping.queries(SERVER.parse().unwrap())), ([0, 0, 1], 3));
}

#[test]
fn forged_answers_come_first_and_have_one_thing_wrong() {
    let zone = "      api.example: {A: [198.51.100.7]}";
    let query = asked("api.example", "A");
    let check = |spoof: &str, sender: Sender, answers: bool| {
        let replies = ask_over(&mut zones(&format!("{{spoof: {spoof}}}"), zone), &query, Transport::Udp);
        assert_eq!(replies.len(), 2, "{spoof}");
        let forged = Message::read(&replies[0].bytes).unwrap();
        assert_eq!(forged.addresses().collect::<Vec<_>>(), [FORGED_V4], "{spoof}");
        assert_eq!((replies[0].sender, forged.answers(&query)), (sender, answers), "{spoof}");
        assert_eq!(told(&replies[1].bytes), "NOERROR, api.example 198.51.100.7", "{spoof}");
    };
    check("id", Sender::Server, false);
    check("question", Sender::Server, false);
    check("port", Sender::OtherPort, true);
    check("source", Sender::OtherAddress, true);
    let over_tcp = ask_over(&mut zones("{spoof: [id, port, source]}", zone), &query, Transport::Tcp);
    assert_eq!(over_tcp.len(), 2, "only the id can be forged in a stream");
}

#[test]
fn exact_answers_come_as_they_are_written() {
    let mut zones = zones(
        "{}",
        "
      odd.example:
        answer: [b.example 30 A 198.51.100.1, odd.example 30 CNAME b.example, foreign.example.net 30 A 198.51.100.66]
        additional: [extra.example 30 A 198.51.100.67]
      broken.example: {rcode: SERVFAIL, answer: [broken.example 30 A 198.51.100.1]}
      svc.example: {TYPE65: '\\# 4 01020304', TXT: [hello, world], MX: 10 mail.example}
      ",
    );
    let expected = "NOERROR, b.example 198.51.100.1, odd.example CNAME b.example, foreign.example.net 198.51.100.66";
    assert_eq!(ask(&mut zones, "odd.example", "A"), expected);
    assert_eq!(ask(&mut zones, "broken.example", "A"), "SERVFAIL, broken.example 198.51.100.1");
    assert_eq!(ask(&mut zones, "svc.example", "HTTPS"), "NOERROR, svc.example data");
    assert_eq!(ask(&mut zones, "svc.example", "TXT"), "NOERROR, svc.example data, svc.example data");
    assert_eq!(ask(&mut zones, "svc.example", "ANY").matches("data").count(), 4);
    zones.replace("odd.example".parse().unwrap(), None);
    assert_eq!(ask(&mut zones, "odd.example", "A"), "NXDOMAIN, SOA of odd.example");
}

#[test]
fn odd_queries_are_answered_or_passed_over() {
    let mut zones = zones("{}", "      api.example: {A: [198.51.100.7]}");
    let server = SERVER.parse().unwrap();
    let query = asked("api.example", "A").write();
    let mut rcode = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut query = query.clone();
        change(&mut query);
        let replies = zones.respond(server, &query, Transport::Udp);
        replies.first().map(|reply| Message::read(&reply.bytes).unwrap().rcode)
    };
    assert_eq!(rcode(&|_| {}), Some(Rcode::NOERROR));
    assert_eq!(rcode(&|query| query.truncate(20)), Some(Rcode::FORMERR));
    assert_eq!(rcode(&|query| query.truncate(11)), None);
    assert_eq!(rcode(&|query| query[2] |= 0x80), None, "it is a response");
    assert_eq!(rcode(&|query| query[2] |= 0x10), Some(Rcode::NOTIMP));
    assert_eq!(rcode(&|query| *query.last_mut().unwrap() = 3), Some(Rcode::REFUSED));
    assert_eq!(zones.respond([203, 0, 113, 99].into(), &query, Transport::Udp), []);
}
