//! Zone files: read or refused, and whatever a zone is asked, its answer is one.

use namewall_dns::wire::{Name, RecordType};
use namewall_zones::{Found, Zone};

const NAMES: [&[u8]; 7] = [
    b"\x07example\0",
    b"\x03www\x07example\0",
    b"\x01*\x07example\0",
    b"\x01a\x01b\x03sub\x07example\0",
    b"\x05alias\x07example\0",
    b"\x01a\x01.\x07example\0",
    b"\x03www\x05other\0",
];

pub fn zone(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let zone = match Zone::read("example.", text) {
        Ok(zone) => zone,
        Err(error) => {
            let lines = text.lines().count() as u32;
            assert!(error.line <= lines.max(1), "line {} of {lines}", error.line);
            return;
        }
    };
    for (at, wire) in NAMES.into_iter().enumerate() {
        let (name, _) = Name::read(wire, 0).expect("it is a name");
        for kind in [1, 2, 5, 6, 15, 16, 28, 33, 43, 255] {
            let Some(answer) = zone.answer(&name, RecordType(kind)) else {
                assert_eq!(at, NAMES.len() - 1, "{name} is in the zone");
                continue;
            };
            let all = answer.answer.iter().chain(&answer.authority).chain(&answer.additional);
            for record in all {
                assert_eq!(Name::read(&record.owner, 0).expect("an owner is a name").1, record.owner.len());
                assert!(record.data.len() <= usize::from(u16::MAX) && record.class == 1);
            }
            // The first record is of the name, and each of its own name or of where the one before leads.
            if let Some(first) = answer.answer.first() {
                assert!(first.owner.eq_ignore_ascii_case(name.as_bytes()), "{name} {kind}");
            }
            let has_soa = answer.authority.iter().any(|record| record.kind == RecordType(6));
            match answer.found {
                Found::NoName => assert!(has_soa, "{name} {kind}: what is not there is denied"),
                Found::Elsewhere => assert!(answer.answer.is_empty() && !answer.authority.is_empty() && !has_soa),
                Found::Name => assert!(!answer.answer.is_empty() || has_soa, "{name} {kind}: nothing is denied, too"),
            }
        }
    }
}
