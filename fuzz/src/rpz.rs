//! Response policy zones: read or refused, and the same after a transfer, whole or by changes.

use namewall_dns::wire::RecordType;
use namewall_zones::{Incoming, PolicyAction, PolicyBounds, PolicyZone, Record, Transferred};
use std::net::IpAddr;

const NAMES: [&[u8]; 6] =
    [b"\0", b"\x03bad\0", b"\x03www\x03bad\0", b"\x01a\x01b\x04wild\0", b"\x01*\x04wild\0", b"\x01a\x06rpz-ip\0"];

pub fn rpz(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let zone = match PolicyZone::read("policy.example.", text, PolicyBounds::default()) {
        Ok(zone) => zone,
        Err(error) => {
            let lines = text.lines().count() as u32;
            assert!(error.line <= lines.max(1), "line {} of {lines}", error.line);
            return;
        }
    };
    let said = said(&zone);
    let records: Vec<Record> = zone.records().collect();
    let whole: Vec<Record> =
        std::iter::once(zone.soa().clone()).chain(records).chain(std::iter::once(zone.soa().clone())).collect();
    // Whole, a record a message; what was read can be transferred.
    let again = transferred(None, whole.iter().cloned().map(|record| vec![record]).collect());
    assert_eq!(self::said(&again), said);
    // By changes: everything goes, and comes again.
    let (soa, next) = (zone.soa().clone(), newer(zone.soa()));
    let Some(next) = next else { return };
    let mut distinct: Vec<Record> = Vec::new();
    for record in again.records() {
        if !distinct
            .iter()
            .any(|known| (&known.owner, known.kind, &known.data) == (&record.owner, record.kind, &record.data))
        {
            distinct.push(record);
        }
    }
    // A record that stands twice is one for who sends changes.
    if distinct.len() != again.len() {
        return;
    }
    let mut changes = vec![next.clone(), soa];
    changes.extend(distinct.iter().cloned());
    changes.push(next.clone());
    changes.extend(distinct.into_iter().rev());
    changes.push(next);
    assert_eq!(self::said(&transferred(Some(&again), vec![changes])), said);
}

/// The SOA of the next version.
fn newer(soa: &Record) -> Option<Record> {
    let mut next = soa.clone();
    let at = next.data.len().checked_sub(20)?;
    let serial = u32::from_be_bytes(*next.data.get(at..)?.first_chunk()?).wrapping_add(1);
    next.data.get_mut(at..at + 4)?.copy_from_slice(&serial.to_be_bytes());
    Some(next)
}

fn transferred(before: Option<&PolicyZone>, messages: Vec<Vec<Record>>) -> PolicyZone {
    let mut incoming = Incoming::new(b"\x06policy\x07example\0", before, PolicyBounds::default());
    let mut last = None;
    for message in messages {
        last = incoming.take(message).unwrap_or_else(|why| panic!("{why}"));
    }
    match last {
        Some(Transferred::Zone(zone)) => *zone,
        other => panic!("{other:?}"),
    }
}

/// What a zone says of some names and addresses.
fn said(zone: &PolicyZone) -> Vec<String> {
    let addresses: [IpAddr; 3] =
        [[192, 0, 2, 1].into(), [10, 0, 0, 1].into(), "2001:db8::1".parse().expect("an address")];
    let names = NAMES.into_iter().map(|name| zone.for_name(name));
    let clients = addresses.into_iter().map(|address| zone.for_client(address));
    let found = names.chain(clients).chain(addresses.iter().map(|address| zone.for_addresses(&[*address])));
    let shown = found.map(|found| {
        let Some(found) = found else { return "nothing".to_owned() };
        assert!(found.owner.ends_with("policy.example."), "{}", found.owner);
        if let PolicyAction::Local(records) = &found.action {
            let is_alias = |record: &Record| record.kind == RecordType::CNAME;
            assert!(!records.is_empty() && (records.len() == 1 || !records.iter().any(is_alias)));
            let mut data: Vec<_> = records.iter().map(|record| (record.kind.0, record.data.clone())).collect();
            data.sort();
            return format!("{} {data:?}", found.owner);
        }
        format!("{} {:?}", found.owner, found.action)
    });
    shown.collect()
}
