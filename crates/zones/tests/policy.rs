//! Response policy zones: what their records mean, which of them counts, and how they are transferred.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use namewall_dns::wire::RecordType;
use namewall_zones::{Incoming, PolicyAction, PolicyBounds, PolicyFound, PolicyZone, Record, Transferred, TriggerKind};
use std::net::IpAddr;

const HEAD: &str =
    "$TTL 300\n@ IN SOA ns.policy.example. host.policy.example. 7 3600 600 86400 60\n@ NS ns.policy.example.\n";

fn zone(text: &str) -> PolicyZone {
    PolicyZone::read("policy.example.", &format!("{HEAD}{text}"), PolicyBounds::default())
        .unwrap_or_else(|error| panic!("{error}"))
}

fn refused(text: &str) -> String {
    PolicyZone::read("policy.example.", &format!("{HEAD}{text}"), PolicyBounds::default()).unwrap_err().to_string()
}

fn wire(name: &str) -> Vec<u8> {
    let mut wire: Vec<u8> = Vec::new();
    for label in name.split('.').filter(|label| !label.is_empty()) {
        wire.push(label.len() as u8);
        wire.extend(label.bytes());
    }
    wire.push(0);
    wire
}

fn shown(found: Option<PolicyFound>) -> String {
    let Some(found) = found else { return "nothing".to_owned() };
    let action = match &found.action {
        PolicyAction::Local(records) => format!("Local({})", records.len()),
        other => format!("{other:?}"),
    };
    format!("{action} by {}", found.owner)
}

#[test]
fn records_say_what_clients_get() {
    let zone = zone(
        "bad.example CNAME .\n*.bad.example CNAME .\nnone.example CNAME *.\nok.bad.example CNAME rpz-passthru.\n\
         old.example CNAME old.example.\nquiet.example CNAME rpz-drop.\nslow.example CNAME rpz-tcp-only.\n\
         garden.example CNAME walled.example.\nown.example A 192.0.2.1\n AAAA 2001:db8::1\n",
    );
    for (name, expected) in [
        ("bad.example", "NxDomain by bad.example.policy.example."),
        ("www.bad.example", "NxDomain by *.bad.example.policy.example."),
        ("a.b.bad.example", "NxDomain by *.bad.example.policy.example."),
        // The name's own policy counts before that of a wildcard, and only for itself.
        ("ok.bad.example", "Passthru by ok.bad.example.policy.example."),
        // A wildcard does not reach below a name that the zone has.
        ("www.ok.bad.example", "nothing"),
        ("evilbad.example", "nothing"),
        ("none.example", "NoData by none.example.policy.example."),
        ("www.none.example", "nothing"),
        ("old.example", "Passthru by old.example.policy.example."),
        ("quiet.example", "Drop by quiet.example.policy.example."),
        ("slow.example", "TcpOnly by slow.example.policy.example."),
        ("garden.example", "Local(1) by garden.example.policy.example."),
        ("own.example", "Local(2) by own.example.policy.example."),
        ("example", "nothing"),
    ] {
        assert_eq!(shown(zone.for_name(&wire(name))), expected, "{name}");
    }
    assert_eq!(zone.for_name(&wire("bad.example")).unwrap().line, Some(4));
    assert_eq!(zone.timers().unwrap().serial, 7);
}

#[test]
fn the_longest_wildcard_and_the_longest_prefix_count() {
    let zone = zone(
        "*.example CNAME .\n*.a.example CNAME rpz-passthru.\n* CNAME rpz-drop.\n\
         8.0.0.0.10.rpz-client-ip CNAME .\n16.0.0.1.10.rpz-client-ip CNAME rpz-passthru.\n\
         24.0.2.0.192.rpz-ip CNAME .\n32.7.2.0.192.rpz-ip CNAME rpz-passthru.\n32.zz.db8.2001.rpz-ip CNAME *.\n",
    );
    assert_eq!(shown(zone.for_name(&wire("x.a.example"))), "Passthru by *.a.example.policy.example.");
    assert_eq!(shown(zone.for_name(&wire("b.example"))), "NxDomain by *.example.policy.example.");
    assert_eq!(shown(zone.for_name(&wire("a.example"))), "nothing", "a name above another is there");
    assert_eq!(shown(zone.for_name(&wire("other"))), "Drop by *.policy.example.");
    let client = |text: &str| shown(zone.for_client(text.parse::<IpAddr>().unwrap()));
    assert_eq!(client("10.1.2.3"), "Passthru by 16.0.0.1.10.rpz-client-ip.policy.example.");
    assert_eq!(client("10.2.2.3"), "NxDomain by 8.0.0.0.10.rpz-client-ip.policy.example.");
    assert_eq!(client("192.0.2.7"), "nothing", "networks of answers are not those of clients");
    let addresses = |all: &[&str]| {
        let all: Vec<IpAddr> = all.iter().map(|text| text.parse().unwrap()).collect();
        shown(zone.for_addresses(&all))
    };
    assert_eq!(addresses(&["192.0.2.1"]), "NxDomain by 24.0.2.0.192.rpz-ip.policy.example.");
    assert_eq!(addresses(&["192.0.2.1", "192.0.2.7"]), "Passthru by 32.7.2.0.192.rpz-ip.policy.example.");
    assert_eq!(addresses(&["2001:db8::1", "192.0.2.1"]), "NxDomain by 24.0.2.0.192.rpz-ip.policy.example.");
    assert_eq!(addresses(&["::ffff:192.0.2.1"]), "NxDomain by 24.0.2.0.192.rpz-ip.policy.example.");
    assert_eq!(addresses(&["198.51.100.1"]), "nothing");
    assert_eq!(zone.for_client("10.2.2.3".parse().unwrap()).unwrap().trigger, TriggerKind::ClientIp);
}

#[test]
fn an_owner_has_each_record_once_and_not_too_many() {
    let twice = zone("a A 192.0.2.1\nb CNAME .\na A 192.0.2.2\na 60 A 192.0.2.1\nB CNAME .\n");
    assert_eq!(twice.len(), 3);
    assert_eq!(shown(twice.for_name(&wire("a"))), "Local(2) by a.policy.example.");
    assert_eq!(shown(twice.for_name(&wire("b"))), "NxDomain by b.policy.example.");
    let many = |count: usize| (0..count).map(|at| format!("a A 10.0.{}.{}\n", at / 256, at % 256)).collect::<String>();
    assert_eq!(shown(zone(&many(256)).for_name(&wire("a"))), "Local(256) by a.policy.example.");
    let why = refused(&format!("b CNAME .\n{}", many(257)));
    assert_eq!(why, "line 5: a.policy.example.: an owner has at most 256 records");
}

/// A question for the owner of a policy about addresses is a question for a name.
#[test]
fn owners_of_networks_are_no_names() {
    let zone = zone("32.7.2.0.192.rpz-ip CNAME .\nns.example.rpz-nsdname CNAME .\n");
    assert_eq!(shown(zone.for_name(&wire("32.7.2.0.192.rpz-ip"))), "nothing");
    assert_eq!(shown(zone.for_name(&wire("ns.example.rpz-nsdname"))), "nothing");
    assert_eq!(zone.of_servers(), 1);
}

#[test]
fn s10_2_what_is_not_understood_is_refused_with_its_line() {
    for (text, why) in [
        ("a CNAME .\nb.rpz-else CNAME .\n", "line 5: b.rpz-else.: no trigger is called so"),
        ("a CNAME rpz-nothing.\n", "line 4: a.policy.example.: rpz-nothing. is no action that is known"),
        ("24.1.2.0.192.rpz-ip CNAME .\n", "the address has bits behind its prefix"),
        ("a CNAME .\na A 192.0.2.1\n", "line 4: a.policy.example.: an alias is the only record of its owner"),
        ("a NS ns.example.\n", "neither a delegation nor a DNAME is a policy"),
        ("a SOA ns host 1 2 3 4 5\n", "line 4: an SOA stands at policy.example., and nowhere else"),
        ("a.other. CNAME .\n", "line 4: a.other. is not in policy.example."),
        ("a CNAM .\n", "line 4: "),
    ] {
        let said = refused(text);
        assert!(said.contains(why), "{text}: {said}");
    }
    let without = PolicyZone::read("policy.example.", "$TTL 1\na CNAME .\n", PolicyBounds::default());
    assert_eq!(without.unwrap_err().to_string(), "line 1: there is no SOA of policy.example.");
}

#[test]
fn a_zone_has_bounds() {
    let text = format!("{HEAD}a CNAME .\nb CNAME .\n");
    let read = |bounds| PolicyZone::read("policy.example.", &text, bounds);
    assert!(read(PolicyBounds { records: 1, ..PolicyBounds::default() }).unwrap_err().message.contains("max_records"));
    assert!(read(PolicyBounds { bytes: 100, ..PolicyBounds::default() }).unwrap_err().message.contains("max_bytes"));
    assert!(read(PolicyBounds { records: 2, ..PolicyBounds::default() }).is_ok());
}

fn soa(serial: u32) -> Record {
    let mut data = [wire("ns.policy.example"), wire("host.policy.example")].concat();
    for number in [serial, 3600, 600, 86400, 60] {
        data.extend(number.to_be_bytes());
    }
    Record { owner: wire("policy.example"), kind: RecordType(6), class: 1, ttl: 300, data }
}

fn deny(name: &str) -> Record {
    let owner = wire(&format!("{name}.policy.example"));
    Record { owner, kind: RecordType::CNAME, class: 1, ttl: 300, data: vec![0] }
}

fn names(zone: &PolicyZone) -> Vec<String> {
    let candidates = ["a", "b", "c", "d"];
    candidates.into_iter().filter(|name| zone.for_name(&wire(name)).is_some()).map(str::to_owned).collect()
}

fn transferred(before: Option<&PolicyZone>, messages: Vec<Vec<Record>>) -> Result<Option<Transferred>, String> {
    bounded(before, messages, PolicyBounds::default())
}

fn bounded(
    before: Option<&PolicyZone>,
    messages: Vec<Vec<Record>>,
    bounds: PolicyBounds,
) -> Result<Option<Transferred>, String> {
    let origin = wire("policy.example");
    let mut incoming = Incoming::new(&origin, before, bounds);
    let mut last = None;
    for message in messages {
        last = incoming.take(message)?;
    }
    Ok(last)
}

fn whole(messages: Vec<Vec<Record>>) -> PolicyZone {
    match transferred(None, messages) {
        Ok(Some(Transferred::Zone(zone))) => *zone,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_whole_zone_comes_between_two_soas() {
    let zone = whole(vec![vec![soa(1), deny("a")], vec![deny("b")], vec![soa(1)]]);
    assert_eq!(names(&zone), ["a", "b"]);
    assert!(matches!(transferred(None, vec![vec![soa(1), deny("a")]]), Ok(None)), "it goes on");
    assert!(transferred(None, vec![vec![deny("a")]]).is_err());
    assert!(transferred(None, vec![vec![soa(1), soa(1), deny("a")]]).is_err());
    assert!(transferred(None, vec![vec![soa(1), deny("a"), soa(2)]]).is_err());
}

#[test]
fn changes_lead_from_version_to_version() {
    let before = whole(vec![vec![soa(1), deny("a"), deny("b"), soa(1)]]);
    let after = |messages| match transferred(Some(&before), messages) {
        Ok(Some(Transferred::Zone(zone))) => Ok((names(&zone), zone.timers().unwrap().serial)),
        other => Err(format!("{other:?}")),
    };
    let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    let one = vec![soa(2), soa(1), deny("a"), soa(2), deny("c"), soa(2)];
    assert_eq!(after(vec![one.clone()]), Ok((set(&["b", "c"]), 2)));
    assert_eq!(after(one.into_iter().map(|record| vec![record]).collect()), Ok((set(&["b", "c"]), 2)));
    let two =
        vec![soa(3), soa(1), deny("a"), soa(2), deny("c"), soa(2), deny("c"), soa(3), deny("a"), deny("d"), soa(3)];
    assert_eq!(after(vec![two]), Ok((set(&["a", "b", "d"]), 3)));
    // A server that has no changes any more sends all of it.
    assert_eq!(after(vec![vec![soa(9), deny("d"), soa(9)]]), Ok((set(&["d"]), 9)));
    assert!(matches!(transferred(Some(&before), vec![vec![soa(1)]]), Ok(Some(Transferred::Current))));
    assert!(transferred(Some(&before), vec![vec![soa(0)]]).is_err(), "an older version");
    assert!(after(vec![vec![soa(2), soa(1), deny("c"), soa(2), soa(2)]]).is_err(), "it was never there");
}

#[test]
fn an_older_zone_is_refused_in_every_form() {
    let before = whole(vec![vec![soa(5), deny("a"), soa(5)]]);
    let older = "the server has an older version, 4; the version here is 5";
    for messages in [
        vec![vec![soa(4)]],
        vec![vec![soa(4), deny("b"), soa(4)]],
        vec![vec![soa(4), soa(5), deny("a"), soa(4), soa(4)]],
    ] {
        assert_eq!(transferred(Some(&before), messages).unwrap_err(), older);
    }
    assert!(transferred(Some(&before), vec![vec![soa(5), deny("b"), soa(5)]]).is_ok(), "as new");
    // Serials wrap around (RFC 1982).
    let before = whole(vec![vec![soa(u32::MAX), deny("a"), soa(u32::MAX)]]);
    assert!(transferred(Some(&before), vec![vec![soa(1), deny("b"), soa(1)]]).is_ok());
    assert!(transferred(Some(&before), vec![vec![soa(u32::MAX - 1), deny("b"), soa(u32::MAX - 1)]]).is_err());
}

/// Changes that take back each other leave nothing, but have to be kept until the last one has come.
#[test]
fn changes_have_the_bounds_of_the_zone_while_they_come() {
    let before = whole(vec![vec![soa(1), deny("a"), soa(1)]]);
    let bounds = PolicyBounds { bytes: 10_000, ..PolicyBounds::default() };
    let changes = |count: usize| {
        let many = (0..count).map(|at| deny(&format!("name-{at}")));
        vec![vec![soa(2), soa(1), soa(2)], many.collect()]
    };
    assert!(matches!(bounded(Some(&before), changes(100), bounds), Ok(None)));
    let why = bounded(Some(&before), changes(1000), bounds).unwrap_err();
    assert_eq!(why, "its changes take more than 10000 bytes (`max_bytes`)");
}
