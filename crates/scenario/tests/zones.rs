//! What is written can be read: random zones, asked in random ways.

use namewall_scenario::zones::{Data, Message, Name, Owner, Rcode, Record, RecordSet, RecordType, Transport, Zones};
use namewall_scenario::{Scenario, zones};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::Path;

const SERVER: &str = "203.0.113.53";

fn name() -> impl Strategy<Value = Name> {
    // Few labels, so that names share their ends.
    let label = prop_oneof!["[a-cA-C]", "[a-z]{1,12}", Just("*".to_owned()), "[a-z]{63}"];
    proptest::collection::vec(label, 1..4).prop_map(|labels| labels.join(".").parse().expect("a name"))
}

fn data() -> impl Strategy<Value = Data> {
    let kind = prop_oneof![Just(RecordType::CNAME), Just(RecordType::NS), Just(RecordType::PTR)];
    prop_oneof![
        any::<[u8; 4]>().prop_map(|octets| Data::A(octets.into())),
        any::<[u8; 16]>().prop_map(|octets| Data::Aaaa(octets.into())),
        (kind, name()).prop_map(|(kind, name)| Data::Name(kind, name)),
        (any::<u16>(), name()).prop_map(|(preference, name)| Data::Mx(preference, name)),
        (name(), name(), any::<[u32; 5]>()).prop_map(|(a, b, numbers)| Data::Soa(a, b, numbers)),
        (64u16..300, proptest::collection::vec(any::<u8>(), 0..300))
            .prop_map(|(kind, bytes)| Data::Raw(RecordType(kind), bytes)),
    ]
}

fn records() -> impl Strategy<Value = Vec<Record>> {
    let record = (name(), 0..0x8000_0000u32, data()).prop_map(|(owner, ttl, data)| Record { owner, ttl, data });
    proptest::collection::vec(record, 0..12)
}

fn with_server(options: &str) -> Zones {
    let text = format!(
        "topology: {{dns: {{servers: {{{SERVER}: {options}}}}}}}\nprobes: ['10.0.0.1 -> 10.0.0.2/ICMP: allow']"
    );
    Scenario::parse(&text, "inline", Path::new(".")).unwrap_or_else(|error| panic!("{error}")).zones
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_written_is_read_back(
        (asked, answer, authority, additional) in (name(), records(), records(), records()),
        (edns, compress, over_tcp) in (proptest::option::of(0..4096u16), any::<bool>(), any::<bool>()),
    ) {
        let mut zones = with_server(if compress { "{}" } else { "{compress: false}" });
        let exact = zones::Exact { rcode: Some(Rcode(0)), answer, authority, additional };
        zones.replace(asked.clone(), Some(Owner::Exact(exact.clone())));
        let query = Message { edns, ..Message::query(77, asked.clone(), RecordType::A) };
        let transport = if over_tcp { Transport::Tcp } else { Transport::Udp };
        let replies = zones.respond(SERVER.parse().unwrap(), &query.write(), transport);
        prop_assert_eq!(replies.len(), 1);
        let read = Message::read(&replies[0].bytes).unwrap();
        prop_assert!(read.answers(&query));
        prop_assert!(read.question.as_ref().unwrap().name.is_exactly(&asked), "its case is echoed");
        if over_tcp {
            prop_assert_eq!(&read.answer, &exact.answer);
            prop_assert_eq!(&read.authority, &exact.authority);
            prop_assert_eq!(&read.additional, &exact.additional);
        } else {
            prop_assert!(replies[0].bytes.len() <= usize::from(edns.unwrap_or(0).max(512)));
            let whole = read.answer.len() == exact.answer.len() && read.authority.len() == exact.authority.len();
            prop_assert!(exact.answer.starts_with(&read.answer) && read.truncated != whole);
        }
    }

    #[test]
    fn every_query_is_answered_with_what_there_is(
        owners in proptest::collection::btree_map(name(), proptest::collection::vec(any::<[u8; 4]>(), 1..4), 0..8),
        asked in name(),
    ) {
        let mut zones = with_server("{}");
        for (owner, addresses) in &owners {
            let addresses = addresses.iter().map(|octets| IpAddr::from(*octets)).collect();
            let set = RecordSet::of_addresses(addresses, 30);
            zones.replace(owner.clone(), Some(Owner::Records(set)));
        }
        let query = Message::query(77, asked.clone(), RecordType::A);
        let replies = zones.respond(SERVER.parse().unwrap(), &query.write(), Transport::Tcp);
        let read = Message::read(&replies[0].bytes).unwrap();
        prop_assert_eq!(read.answer.is_empty(), !read.authority.is_empty(), "nothing is told with an SOA");
        let by_name: BTreeMap<&Name, _> = owners.iter().collect();
        if let Some(addresses) = by_name.get(&asked) {
            let expected: Vec<IpAddr> = addresses.iter().map(|octets| IpAddr::from(*octets)).collect();
            prop_assert_eq!(read.addresses().collect::<Vec<_>>(), expected);
        }
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        if let Ok(read) = Message::read(&bytes) {
            prop_assert_eq!(Message::read(&read.write()), Ok(read));
        }
        with_server("{}").respond(SERVER.parse().unwrap(), &bytes, Transport::Udp);
    }
}
